#!/bin/bash
# Stock PyTorch in isolated sessions on a machine with a GPU: what people do with it, natively and through Bulkhead.
#
#   tests/gpu/torch.sh --carry FOLDER         here: builds what the device machine needs into FOLDER
#   tests/gpu/torch.sh FOLDER [WORKLOAD...]   there: runs each natively and through Bulkhead, and compares what they print
#
# Ends with 0 where all is the same, 77 where there is no GPU or no PyTorch, 1 otherwise.
set -u
here=$(cd "$(dirname "$0")/../.." && pwd)
if [ "${1:-}" = --carry ]; then
    mkdir -p "${2:?the folder to carry}" && folder=$(cd "$2" && pwd) && cd "$here" || exit 1
    target=${CARGO_TARGET_DIR:-target}
    cargo build --release -p bulkhead-cli -p bulkhead-kernel -p bulkhead-libos-cuda -p bulkhead-libos-nvml || exit 1
    cp "$target"/release/{bulkhead,bulkhead-kernel,libcuda.so,libnvidia_ml.so} "$folder/" && strip "$folder"/{bulkhead,bulkhead-kernel,libcuda.so,libnvidia_ml.so}
    exit 0
fi
folder=$(cd "${1:?the folder that was carried}" && pwd)
shift
bulkhead=$folder/bulkhead
[ "$("$bulkhead" doctor --backend)" = cuda ] || { echo "skipped: no GPU"; exit 77; }
python3 -c 'import torch' 2> /dev/null || { echo "skipped: no PyTorch"; exit 77; }
work=$(mktemp -d)
mkdir -m 700 "$work/run"
export BULKHEAD_SOCKET=$work/run/kernel.sock
# shellcheck disable=SC2086
"$bulkhead" serve --backend cuda ${SERVE_OPTIONS:-} --runtime-directory "$work/run" 2> "$work/serve.log" &
server=$!
trap 'kill $server; wait $server; rm -rf "$work"' EXIT
for _ in $(seq 400); do [ -S "$BULKHEAD_SOCKET" ] && break; sleep 0.05; done
isolated() { timeout 150 "$bulkhead" run --domain isolated -- "$@"; }
ended=0
for name in ${*:-$(python3 "$here/tests/torch/workloads.py" --list) $(python3 "$here/tests/torch/others.py" --list)}; do
    workloads="$here/tests/torch/workloads.py"
    grep -q "^def $name()" "$workloads" || workloads="$here/tests/torch/others.py"
    timeout 150 python3 "$workloads" "$name" > "$work/native" 2> "$work/native.err"
    isolated python3 "$workloads" "$name" > "$work/ours" 2> "$work/ours.err"
    code=$?
    seconds() { grep -E "^$name: [0-9.]+ s$" "$work/$1.err" | tail -n 1 | cut -d' ' -f2-; }
    if grep -q "^$name: not here" "$work/native"; then
        # What it needs is not on this machine: nothing was compared.
        printf 'absent  %s\n' "$name"
    elif [ $code -eq 0 ] && cmp -s "$work/native" "$work/ours"; then
        printf 'same    %-32s natively %s, here %s\n' "$name" "$(seconds native)" "$(seconds ours)"
    else
        ended=1
        printf 'DIFFERS %-32s code %s\n  natively: %s\n  here:     %s\n' "$name" $code "$(head -n 3 "$work/native" | cut -c1-300)" "$(head -n 3 "$work/ours" | cut -c1-300)"
        grep '^bulkhead' "$work/ours.err" | sort | uniq -c | head -n 8 | cut -c1-260
        grep -v "^$name\|^bulkhead" "$work/ours.err" | tail -n "${LINES_OF_ERRORS:-8}" | cut -c1-220
    fi
done
"$bulkhead" status
exit $ended
