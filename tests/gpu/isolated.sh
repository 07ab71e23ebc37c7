#!/bin/bash
# What isolated sessions are planned on, measured: nine questions about the driver, a table with a row for each answer.
#
#   tests/gpu/isolated.sh            on a machine with a GPU, nvcc and PyTorch; some 4 minutes, 6 at most
#   tests/gpu/isolated.sh --build    builds the programs alone, which needs no GPU
#
# NVCC names the compiler, CUDA_HOME its folder's parent. Where OUT names a folder, all that was printed goes to
# $OUT/isolated.txt. Ends with 0 where every program ended well, 77 where there is no GPU, 1 otherwise.
set -u
here=$(cd "$(dirname "$0")/isolated" && pwd)
deadline=$((SECONDS + 345))
nvcc=${NVCC:-${CUDA_HOME:-/usr/local/cuda}/bin/nvcc}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
raw=${OUT:-$work}/isolated.txt
: > "$raw" || exit 1
ended=0

# Where there is no library of the driver to link against: one that has the names of its calls alone. The programs find
# the real one when they run.
libraries=(-lcuda)
echo 'int main() { return 0; }' > "$work/empty.cpp"
if ! "$nvcc" -o "$work/empty" "$work/empty.cpp" -lcuda > /dev/null 2>&1; then
    { echo '#include <cuda.h>'; echo 'int the_names_begin;'; cat "$here"/*.cpp "$here/common.h" | grep -oE '\bcu[A-Z][A-Za-z0-9]+' | sort -u
    } > "$work/names.cpp"
    "$nvcc" -E "$work/names.cpp" | sed '1,/^int the_names_begin;/d' | awk '/^cu/ { print "void " $1 "(void) {}" }' > "$work/names.c"
    gcc -shared -fPIC -Wl,-soname,libcuda.so.1 -o "$work/libcuda.so.1" "$work/names.c" || exit 1
    libraries=(-Xlinker "$work/libcuda.so.1")
fi
program() { "$nvcc" -O2 -std=c++17 -cudart none -o "$work/$1" "$here/$1.cpp" "${libraries[@]}" -ldl -lpthread; }
begun=$SECONDS
builds=()
for name in start launches graphs waits memory leftovers killed stages images hostcalls; do
    program $name > "$work/$name.build" 2>&1 & builds+=($!)
done
"$nvcc" -arch=sm_90 -O2 -cubin -o "$work/kernels.cubin" "$here/kernels.cu" > "$work/kernels.build" 2>&1 & builds+=($!)
"$nvcc" -arch=sm_90 -O2 -shared -Xcompiler -fPIC -o "$work/libsample.so" "$here/sample.cu" > "$work/sample.build" 2>&1 & builds+=($!)
# A fresh machine reads PyTorch for the first time: not while something is measured.
[ "${1:-}" = --build ] || timeout -k 3 90 python3 -c 'import torch; a = torch.ones(256, 256, device="cuda"); (a @ a).sum().item()' \
    > "$work/torch.build" 2>&1 & warm=$!
for build in "${builds[@]}"; do wait "$build" || ended=1; done
cat "$work"/*.build | tee -a "$raw" | tail -n 20
echo "built in $((SECONDS - begun)) s" >> "$raw"
wait $warm || echo "PyTorch does not run" | tee -a "$raw"
if [ "${1:-}" = --build ]; then
    [ $ended = 0 ] && echo "all is built"
    exit $ended
fi
[ -e /dev/nvidiactl ] || { echo "skipped: no GPU"; exit 77; }

# PyTorch's libraries, without starting it.
torch=$(python3 -c 'import importlib.util as util; print(util.find_spec("torch").submodule_search_locations[0])' 2>> "$raw")
beside() { # the first file of that name beside PyTorch or in CUDA
    find "$(dirname "${torch:-/nowhere/torch}")/nvidia" "${CUDA_HOME:-/usr/local/cuda}/lib64" -name "$1" 2> /dev/null | head -n 1
}
blas=$(beside libcublas.so.13)
export ISOLATED_KERNELS=$work/kernels.cubin ISOLATED_CUBLAS=${blas:+$(dirname "$blas")} PYTHONUNBUFFERED=1
libraries=("$work/libsample.so")
for library in "$torch/lib/libtorch_cuda.so" "$(beside libcublasLt.so.13)"; do [ -f "$library" ] && libraries+=("$library"); done

run() { # NAME COMMAND...: runs it for at most a minute
    local name=$1 limit=$((deadline - SECONDS)) begun=$SECONDS; shift
    [ $limit -gt 60 ] && limit=60
    if [ $limit -lt 3 ]; then
        printf 'row -\t%s\tNOT RUN\tno time was left\n' "$name" >> "$raw"
        ended=1
        return
    fi
    printf '== %s\n' "$name" >> "$raw"
    timeout -k 3 "$limit" "$@" >> "$raw" 2> "$work/errors" < /dev/null
    local code=$?
    cat "$work/errors" >> "$raw"
    if [ $code -ne 0 ]; then
        printf 'row -\t%s\tFAILED with %s\t%s\n' "$name" $code "$(tail -n 1 "$work/errors" | cut -c1-150)" >> "$raw"
        ended=1
    fi
    printf 'in %s s\n' $((SECONDS - begun)) >> "$raw"
}
nvidia-smi --query-gpu=name,driver_version,memory.total,persistence_mode,mig.mode.current,compute_mode --format=csv,noheader >> "$raw" 2>&1
printf 'row 0\taddressing mode\t%s\t%s MPS daemons, %s processors, kernel %s\n' \
    "$(nvidia-smi -q 2> /dev/null | awk -F ': ' '/Addressing Mode/ { print $2; exit }')" \
    "$(pgrep -c nvidia-cuda-mps)" "$(nproc)" "$(uname -r)" >> "$raw"
run start "$work/start"
run launches "$work/launches"
run graphs "$work/graphs"
run waits "$work/waits"
for connections in 1 32; do run "waits, $connections connections" env CUDA_DEVICE_MAX_CONNECTIONS=$connections "$work/waits" held; done
run hostcalls "$work/hostcalls"
run memory "$work/memory"
run images "$work/images" "${libraries[@]}"
run footprint python3 -B "$here/footprint.py" driver "$work/stages"
run "footprint of PyTorch" python3 -B "$here/footprint.py" torch
run leftovers "$work/leftovers"
run "killed, few blocks" "$work/killed" few
run "killed, all SMs" "$work/killed" many

echo "== what was measured; all of it in ${OUT:+\$OUT/}isolated.txt, $SECONDS s"
grep '^row ' "$raw" | awk -F '\t' '{ sub(/^row /, "", $1); printf "%s | %s | %s | %s\n", $1, $2, $3, $4 }' | tee "$work/table"
cat "$work/table" >> "$raw"
exit $ended
