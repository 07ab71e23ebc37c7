#!/bin/bash
# PyTorch that is bound by the GPU: times, CPU time and memory natively and in isolated sessions, in turns, on a machine with a GPU.
#
#   tests/gpu/torch_large.sh FOLDER [ROUNDS]   FOLDER is what `tests/gpu/torch.sh --carry` made
#
# The kernel runs only beside what is measured in a session of its own. Ends with 77 where there is no GPU or no PyTorch.
set -u
here=$(cd "$(dirname "$0")/../.." && pwd)
folder=$(cd "${1:?the folder that was carried}" && pwd)
rounds=${2:-1}
bulkhead=$folder/bulkhead
[ "$("$bulkhead" doctor --backend)" = cuda ] || { echo "skipped: no GPU"; exit 77; }
python3 -c 'import torch' 2> /dev/null || { echo "skipped: no PyTorch"; exit 77; }
work=$(mktemp -d)
server=
down() { [ -z "$server" ] || { kill "$server"; wait "$server" 2> /dev/null; }; server=; }
trap 'down; rm -rf "$work"' EXIT
up() {
    rm -rf "$work/run"; mkdir -m 700 "$work/run"
    "$bulkhead" serve --backend cuda --runtime-directory "$work/run" "$@" 2>> "$work/serve.log" &
    server=$!
    for _ in $(seq 400); do [ -S "$work/run/kernel.sock" ] && break; sleep 0.05; done
}
used() { nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits | head -n 1; }
program="python3 $here/tests/torch/large.py"
# What the device has in use while a program holds 1 GiB, beyond what it had before, in MiB.
held() {
    local before; before=$(used)
    mkfifo "$work/in"
    # shellcheck disable=SC2086
    "$@" $program hold < "$work/in" > "$work/held" 2>> "$work/err" &
    local pid=$!
    exec 9> "$work/in"
    for _ in $(seq 600); do grep -q held "$work/held" && break; sleep 0.1; done
    echo "1 GiB in a program, device memory: $(($(used) - before)) MiB"
    exec 9>&-
    wait $pid
    rm "$work/in"
}
for _ in $(seq "$rounds"); do
    for way in native isolated; do
        run=()
        [ $way = native ] || { up; sleep 1; run=("$bulkhead" run --domain isolated --socket "$work/run/kernel.sock" --); }
        { held "${run[@]}"
          # shellcheck disable=SC2086
          timeout 120 "${run[@]}" $program fill 2>> "$work/err" || echo "FAILED: 1 fill"
          # shellcheck disable=SC2086
          timeout 300 "${run[@]}" $program times 2>> "$work/err" || echo "FAILED: 1 times"
        } | sed "s/^/$way\t/" >> "$work/all"
        down
        sleep 1
    done
done
[ -s "$work/err" ] && tail -n 5 "$work/err"
python3 - "$work/all" <<'PY'
import statistics, sys
figures = {}
for line in open(sys.argv[1]):
    way, rest = line.rstrip("\n").split("\t", 1)
    name, value = rest.rsplit(": ", 1)
    number, unit = value.split(" ", 1)
    figures.setdefault((name, unit), {}).setdefault(way, []).append(float(number))
print(f"{'':64} {'':6}{'native':>12}{'isolated':>12}{'ratio':>8}")
for (name, unit), by_way in figures.items():
    native, isolated = (statistics.median(by_way[way]) if way in by_way else float("nan") for way in ("native", "isolated"))
    print(f"{name[:64]:64} {unit:6}{native:>12.3f}{isolated:>12.3f}{isolated / native:>8.3f}")
PY
