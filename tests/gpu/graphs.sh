#!/bin/bash
# Graphs in isolated sessions on a machine with a GPU: programs that make them, natively and through Bulkhead, and how long they take.
#
#   tests/gpu/graphs.sh FOLDER [ROUNDS]   FOLDER is what `tests/gpu/torch.sh --carry` made
#
# Ends with 0 where all is right, 77 where there is no GPU or no nvcc, 1 otherwise.
set -u
here=$(cd "$(dirname "$0")/../.." && pwd)
folder=$(cd "${1:?the folder that was carried}" && pwd)
rounds=${2:-3}
bulkhead=$folder/bulkhead
[ "$("$bulkhead" doctor --backend)" = cuda ] || { echo "skipped: no GPU"; exit 77; }
nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
[ -x "$nvcc" ] || { echo "skipped: no nvcc"; exit 77; }
work=$(mktemp -d)
mkdir -m 700 "$work/run"
export BULKHEAD_SOCKET=$work/run/kernel.sock
BULKHEAD_LOG=warn,bulkhead_executor=debug "$bulkhead" serve --backend cuda --runtime-directory "$work/run" 2> "$work/serve.log" &
server=$!
trap 'kill $server; wait $server; rm -rf "$work"' EXIT
for _ in $(seq 400); do [ -S "$BULKHEAD_SOCKET" ] && break; sleep 0.05; done
ended=0
isolated() { timeout 150 "$bulkhead" run --domain isolated -- "$@"; }
for name in graphs graph_shapes graph_memory; do
    # Machine code alone: nothing is guarded.
    "$nvcc" -cudart shared -rdc=true -gencode arch=compute_90,code=sm_90 -o "$work/$name" "$here/tests/programs/$name.cu" -lcuda || exit 1
    "$work/$name" large > "$work/native" 2>&1
    native=$?
    isolated "$work/$name" large > "$work/ours" 2> "$work/err"
    code=$?
    [ $code -eq $native ] || { ended=1; tail -n 5 "$work/err"; }
    printf '%-8s %-16s natively: %s\n%26shere:     %s\n' "$([ $code -eq $native ] && echo ok || echo FAILED)" $name \
        "$(tail -n 1 "$work/native" | cut -c1-150)" '' "$(tail -n 1 "$work/ours" | cut -c1-150)"
done
printf 'graphs that the driver refused: %s\n' "$(grep -c 'makes no graph of these nodes' "$work/serve.log")"
grep -h 'refused' "$work/serve.log" | sort | uniq -c | head -n 5 | cut -c1-200
"$nvcc" -O2 -arch=sm_90 -o "$work/rates" "$here/tests/gpu/isolated/rates.cu" || exit 1
for round in $(seq "$rounds"); do
    for way in native isolated; do
        run=()
        [ $way = native ] || run=(isolated)
        "${run[@]}" "$work/rates" 2> "$work/err" | grep -i "graph\|replay" | sed "s/^/$way round $round: /"
        if python3 -c 'import torch' 2> /dev/null; then
            "${run[@]}" python3 "$here/tests/torch/bench.py" 2> "$work/err" | grep -i 'graph\|item' | sed "s/^/$way round $round: /"
        fi
    done
done
exit $ended
