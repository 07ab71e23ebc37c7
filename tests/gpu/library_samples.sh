#!/bin/bash
# NVIDIA's samples of its libraries (github.com/NVIDIA/CUDALibrarySamples: cuBLAS, cuBLASLt, cuSPARSE, cuSOLVER, cuRAND, cuFFT), natively
# and in isolated sessions, on a machine with a GPU, nvcc and these libraries.
#
#   tests/gpu/library_samples.sh FOLDER CHECKOUT [REGEX]   FOLDER is what `tests/gpu/torch.sh --carry` made
#
# Right is what ends and prints as natively; lines that tell of time are left out. Ends with 0 where all are, 77 where there is
# no GPU or no nvcc, 1 otherwise.
set -u
folder=$(cd "${1:?the folder that was carried}" && pwd)
checkout=$(cd "${2:?the checkout}" && pwd)
export chosen=${3:-.} bulkhead=$folder/bulkhead
[ "$("$bulkhead" doctor --backend)" = cuda ] || { echo "skipped: no GPU"; exit 77; }
nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
[ -x "$nvcc" ] || { echo "skipped: no nvcc"; exit 77; }
work=$(mktemp -d)
export nvcc work checkout
mkdir -m 700 "$work/run"
export BULKHEAD_SOCKET=$work/run/kernel.sock
"$bulkhead" serve --warm 8 --backend cuda --runtime-directory "$work/run" 2> "$work/serve.log" &
server=$!
trap 'kill $server; wait $server; rm -rf "$work"' EXIT
for _ in $(seq 400); do [ -S "$BULKHEAD_SOCKET" ] && break; sleep 0.05; done
# Headers and libraries: the toolkit's, else those of Python's packages.
flags=(-I/usr/local/cuda/include -L/usr/local/cuda/lib64)
for parts in $(python3 -c 'import nvidia, os; print(*(os.path.join(p, d) for p in nvidia.__path__ for d in os.listdir(p)))' 2> /dev/null); do
    [ ! -d "$parts/include" ] || flags+=("-I$parts/include")
    [ ! -d "$parts/lib" ] || { flags+=("-L$parts/lib"); LD_LIBRARY_PATH=$parts/lib:${LD_LIBRARY_PATH:-}; }
done
export flags_told="${flags[*]}" LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-}
one() {
    local source=$1 name=${1#"$checkout/"} place
    place=$work/${name//\//_}
    mkdir "$place" && cd "$place" || return
    local library=${name%%/*} common=()
    for include in "$checkout/$library" "$checkout/$library/Common" "$checkout/$library/utils" "$(dirname "$source")"; do common+=("-I$include"); done
    # shellcheck disable=SC2086
    if ! "$nvcc" -x cu -arch=sm_90 -std=c++17 -w -o program "$source" "${common[@]}" $flags_told \
        -lcublas -lcublasLt -lcusparse -lcusolver -lcurand -lcufft -lpthread > build.log 2>&1; then
        echo "unbuilt   $name   $(grep -m 1 -i error build.log | cut -c1-120)"
        return
    fi
    told() { grep -v -i -E 'time|elapsed| ms|sec|gflop|tflop|bandwidth|0x[0-9a-f]{6}' "$1"; }
    timeout 60 ./program > native 2> native.err; local native=$?
    timeout 90 "$bulkhead" run --domain isolated -- ./program > isolated 2> isolated.err; local isolated=$?
    if [ $native != $isolated ]; then
        echo "differs   $name   ends with $isolated, natively $native: $(tail -n 1 isolated.err | cut -c1-200)"
    elif cmp -s <(told native) <(told isolated); then
        echo "same      $name   ends with $native"
    else
        timeout 60 ./program > again 2> /dev/null
        if cmp -s <(told native) <(told again); then
            echo "differs   $name   $(diff <(told native) <(told isolated) | head -n 3 | tr '\n' ' ' | cut -c1-200)"
        else
            echo "unsteady  $name   does not print the same natively either"
        fi
    fi
}
export -f one
find "$checkout" -name '*.cu' -o -name '*.cpp' | grep -E "$chosen" | sort | xargs -P 14 -I{} bash -c 'one "$1"' _ {} > "$work/all"
grep -a -v -E '^same .* 0$' "$work/all" | sort
cut -d' ' -f1 "$work/all" | sort | uniq -c
! grep -a -q '^differs' "$work/all"
