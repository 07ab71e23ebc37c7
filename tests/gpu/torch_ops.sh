#!/bin/bash
# PyTorch's own samples for each of its operators (tests/torch/ops.py), natively and in isolated sessions, on a machine with a GPU.
#
#   tests/gpu/torch_ops.sh FOLDER [PARTS] [OPTION...]   FOLDER as tests/gpu/torch.sh --carry makes it; options are those of ops.py
#
# PARTS (4) processes run at a time, each with its part of the operators: natively first, then each in a session of its own.
# Ends with 0 where no digest differs, 77 where there is no GPU or no PyTorch, 1 otherwise.
set -u
here=$(cd "$(dirname "$0")/../.." && pwd)
folder=$(cd "${1:?the folder that was carried}" && pwd)
parts=${2:-4}
shift $(($# < 2 ? $# : 2))
bulkhead=$folder/bulkhead
[ "$("$bulkhead" doctor --backend)" = cuda ] || { echo "skipped: no GPU"; exit 77; }
python3 -c 'import torch' 2> /dev/null || { echo "skipped: no PyTorch"; exit 77; }
work=$(mktemp -d)
mkdir -m 700 "$work/run"
export BULKHEAD_SOCKET=$work/run/kernel.sock
all() { # WHICH COMMAND...: each part, all at once
    which=$1
    shift
    at=0
    running=""
    while [ $at -lt "$parts" ]; do
        timeout 400 "$@" python3 "$here/tests/torch/ops.py" --part "$at/$parts" "${options[@]}" > "$work/$which.$at" 2> "$work/$which.$at.err" &
        running="$running $!"
        at=$((at + 1))
    done
    for one in $running; do wait "$one" || echo "$which: a part ended with $?"; done
    cat "$work/$which".*[0-9] > "$work/$which"
}
options=("$@")
# Some samples come out of sets.
export PYTHONHASHSEED=0
all native env
"$bulkhead" serve --backend cuda --runtime-directory "$work/run" 2> "$work/serve.log" &
server=$!
trap 'kill $server; wait $server; rm -rf "$work"' EXIT
for _ in $(seq 400); do [ -S "$BULKHEAD_SOCKET" ] && break; sleep 0.05; done
all ours "$bulkhead" run --domain isolated --
python3 - "$work/native" "$work/ours" <<'PYTHON'
import sys
def read(name):
    return {tuple(line.split(" ")[:2]): line.rstrip("\n").split(" ", 2)[2] for line in open(name)}
native, ours = read(sys.argv[1]), read(sys.argv[2])
left = {key for key in native if "left" in (native[key], ours.get(key))}
varies = {key for key in native if native[key] == "varies"} - left
# Where sums are made in any order, two runs may agree by chance.
here = {key for key in native if ours.get(key) == "varies"} - left - varies
varies |= here
differs = [key for key in native if key not in left | varies and native[key] != ours.get(key)]
for key in differs:
    print(f"DIFFERS {key[0]:48} {key[1]:10} natively {native[key]}, here {ours.get(key, 'nothing')}")
for key in here:
    print(f"varies  {key[0]:48} {key[1]:10} here, and not natively this time")
same = len(native) - len(left) - len(varies) - len(differs)
print(f"{len(native)} pairs of operator and type: {same} the same, {len(differs)} differ, {len(varies)} do not repeat themselves natively, {len(left)} left for want of time")
sys.exit(1 if differs or not same else 0)
PYTHON
ended=$?
for which in native ours; do
    grep -hE '^[0-9.]+ s$' "$work/$which".*.err | sort -n | tail -n 1 | sed "s/^/$which, the longest part: /"
done
# What a library of ours should never do.
grep -hA3 panicked "$work"/ours.*.err | head -n 12 && ended=1
grep -h '^bulkhead' "$work"/ours.*.err | sort | uniq -c | head -n 12 | cut -c1-240
exit $ended
