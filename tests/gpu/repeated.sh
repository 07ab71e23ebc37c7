#!/bin/bash
# Sort, scan, select and unique of Thrust and CUB, many times over and many at once, on a machine with a GPU, nvcc and Python 3.11.
#
#   tests/gpu/beside_endless.sh --carry FOLDER          here: builds what the device machine needs into FOLDER
#   tests/gpu/repeated.sh FOLDER BACKEND [RUNS [JOBS]]  there: RUNS (100) of each program for compute_75, 80 and 90, JOBS (16) at a time
#
# Stops after LIMIT seconds (500). A row for each program and architecture: runs, and how many of them were right. Ends with 0 where all
# were, and none was left out, 77 where there is no such device, 1 otherwise.
set -u
folder=$(cd "${1:?the folder that was carried}" && pwd)
backend=${2:?cuda or software}
runs=${3:-100}
jobs=${4:-16}
here=$(cd "$(dirname "$0")/.." && pwd)
export BULKHEAD=$folder/bulkhead
[ "$backend" = software ] || [ "$("$BULKHEAD" doctor --backend)" = "$backend" ] || { echo "skipped: no GPU"; exit 77; }
nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
build=${BUILD:-/tmp/repeated}
only='own/(thrust_(sort|scan|unique)|cub_(sort_pairs|select))$'
work=$(mktemp -d)
server=
trap '[ -z "$server" ] || { kill $server; wait $server; }; rm -rf "$work"' EXIT
for architecture in 75 80 90; do
    python3 "$here/outside/run.py" own --only "$only" --build-only --no-native --architecture $architecture --jobs 5 --build "$build" \
        --bulkhead "$BULKHEAD" --toolchain "$(dirname "$(dirname "$nvcc")")" > "$work/built.$architecture" 2>&1 || cat "$work/built.$architecture"
done
if [ "$backend" = cuda ]; then
    mkdir -m 700 "$work/run"
    export BULKHEAD_SOCKET=$work/run/kernel.sock
    "$BULKHEAD" serve --backend cuda --runtime-directory "$work/run" 2> "$work/serve.log" &
    server=$!
    for _ in $(seq 400); do [ -S "$BULKHEAD_SOCKET" ] && break; sleep 0.05; done
    export WAY=
else
    export WAY='--private --backend software'
fi
export WORK=$work
once() {
    # shellcheck disable=SC2086 # options
    timeout 120 "$BULKHEAD" run $WAY -- "$1program" > "$WORK/out.$$" 2>&1
    local status=$?
    if [ $status = 0 ] && grep -q '^PASS ' "$WORK/out.$$"; then echo "$1 right"; else
        echo "$1 WRONG"
        { echo "== $1: $status"; tail -n 5 "$WORK/out.$$"; } >> "$WORK/wrong"
    fi
    rm -f "$WORK/out.$$"
}
export -f once
begun=$(date +%s)
for _ in $(seq "$runs"); do ls -d "$build"/compute_*/own/*/; done | shuf |
    timeout "${LIMIT:-500}" xargs -P "$jobs" -I{} bash -c 'once {}' >> "$work/done"
echo "$backend, $jobs at a time, $(($(date +%s) - begun)) s"
printf '%-12s %-16s %5s %6s\n' architecture program runs right
failed=0
for place in "$build"/compute_*/own/*/; do
    all=$(grep -c "^$place " "$work/done"); right=$(grep -c "^$place right" "$work/done")
    printf '%-12s %-16s %5d %6d\n' "$(basename "$(dirname "$(dirname "$place")")")" "$(basename "$place")" "$all" "$right"
    [ "$all" = "$runs" ] && [ "$right" = "$runs" ] || failed=1
done
[ ! -e "$work/wrong" ] || head -n 40 "$work/wrong"
exit $failed
