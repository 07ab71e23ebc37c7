#!/bin/bash
# Times of PyTorch and of launches natively and in isolated sessions, in turns, on a machine with a GPU.
#
#   tests/gpu/torch_bench.sh FOLDER [ROUNDS]   FOLDER is what `tests/gpu/torch.sh --carry` made
#
# Kernels: as `serve` is without options (launches as graphs), with --launch-singly, and with --warm 1. One line for each way
# and figure, with the medians of the rounds. Ends with 77 where there is no GPU or no PyTorch.
set -u
here=$(cd "$(dirname "$0")/../.." && pwd)
folder=$(cd "${1:?the folder that was carried}" && pwd)
rounds=${2:-3}
bulkhead=$folder/bulkhead
[ "$("$bulkhead" doctor --backend)" = cuda ] || { echo "skipped: no GPU"; exit 77; }
python3 -c 'import torch' 2> /dev/null || { echo "skipped: no PyTorch"; exit 77; }
work=$(mktemp -d)
servers=()
trap 'kill "${servers[@]}"; wait "${servers[@]}" 2> /dev/null; rm -rf "$work"' EXIT
serve() {
    mkdir -m 700 "$work/$1"
    "$bulkhead" serve --backend cuda --runtime-directory "$work/$1" "${@:2}" 2> "$work/$1.log" &
    servers+=($!)
    for _ in $(seq 400); do [ -S "$work/$1/kernel.sock" ] && break; sleep 0.05; done
}
serve graphs
serve singly --launch-singly
serve warm --warm 1
nvcc -O2 -arch=sm_90 -o "$work/rates" "$here/tests/gpu/isolated/rates.cu" || exit 1
for round in $(seq "$rounds"); do
    for way in native graphs singly warm; do
        run=()
        [ $way = native ] || run=("$bulkhead" run --domain isolated --socket "$work/$way/kernel.sock" --)
        for program in "$work/rates" "python3 $here/tests/torch/bench.py"; do
            # shellcheck disable=SC2086
            timeout 200 "${run[@]}" $program > "$work/out" 2> "$work/err" ||
                { echo "FAILED: $way, round $round: $program"; tail -n 5 "$work/err" "$work/out"; }
            sed "s/^/$way\t/" "$work/out" >> "$work/all"
        done
    done
done
python3 - "$work/all" <<'EOF'
import re, statistics, sys
figures = {}
for line in open(sys.argv[1]):
    way, rest = line.rstrip("\n").split("\t", 1)
    name, value = rest.rsplit(": ", 1)
    number = re.match(r"([0-9.]+) (\S+?),?(?: |$)", value)
    if number:
        figures.setdefault((name, number[2]), {}).setdefault(way, []).append(float(number[1]))
ways = ["native", "graphs", "singly", "warm"]
print(f"{'':60} {'':6}" + "".join(f"{way:>12}" for way in ways))
for (name, unit), by_way in figures.items():
    cells = [statistics.median(by_way[way]) if way in by_way else float("nan") for way in ways]
    print(f"{name[:60]:60} {unit:6}" + "".join(f"{cell:>12.3f}" for cell in cells))
EOF
