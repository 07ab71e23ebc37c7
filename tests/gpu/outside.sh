#!/bin/bash
# Programs that others wrote, on a machine with a GPU and without their sources: on Bulkhead, and natively.
#
#   tests/gpu/outside.sh --carry FOLDER CHECKOUTS [SUITE...]   here: packs what tests/outside/run.py has built
#   tests/gpu/outside.sh FOLDER [OPTION...]                    there: runs them; options are those of run.py
#
# Ends with 77 where there is no GPU, otherwise as run.py does.
set -eu
here=$(cd "$(dirname "$0")/../.." && pwd)
if [ "${1:-}" = --carry ]; then
    folder=${2:?the folder to carry}
    checkouts=${3:?the folder of the checkouts}
    shift 3
    cd "$here"
    target=${CARGO_TARGET_DIR:-target}
    cargo build --release -p bulkhead-cli -p bulkhead-kernel -p bulkhead-libos-cuda -p bulkhead-libos-nvml
    mkdir -p "$folder"
    cp "$target"/release/{bulkhead,bulkhead-kernel,libcuda.so,libnvidia_ml.so} "$folder/"
    strip "$folder"/{bulkhead,bulkhead-kernel,libcuda.so,libnvidia_ml.so}
    python3 tests/outside/run.py --checkouts "$checkouts" --pack "$folder/outside.tar.xz" "$@"
    exit
fi
folder=$(cd "${1:?the folder that was carried}" && pwd)
shift
[ "$("$folder/bulkhead" doctor --backend)" = cuda ] || { echo "skipped: no GPU"; exit 77; }
unpacked=$folder/outside
[ -d "$unpacked" ] || { mkdir "$unpacked" && tar xf "$folder/outside.tar.xz" -C "$unpacked"; }
# Programs with makefiles of their own are made here.
[ ! -x /usr/local/cuda/bin/nvcc ] || set -- --toolchain /usr/local/cuda "$@"
exec python3 "$here/tests/outside/run.py" --checkouts "$unpacked/checkouts" --build "$unpacked/build" --built \
    --bulkhead "$folder/bulkhead" --backend cuda "$@"
