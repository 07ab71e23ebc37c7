#!/bin/bash
# What a program does beside an endless kernel of its own holds up no neighbour, on a machine with a GPU.
#
#   tests/gpu/beside_endless.sh --carry FOLDER    here: builds what the device machine needs into FOLDER
#   tests/gpu/beside_endless.sh FOLDER [CASE...]  there: a table, a row for each case (all) of tests/programs/attack_beside.cu
#
# Ends with 0 where the longest kernel of the neighbour took less than LONGEST seconds (1.5), 77 where there is no GPU, 1 otherwise.
set -u
if [ "${1:-}" = --carry ]; then
    folder=${2:?the folder to carry}
    cd "$(dirname "$0")/../.." || exit 1
    target=${CARGO_TARGET_DIR:-target}
    cargo build --release -p bulkhead-cli -p bulkhead-kernel -p bulkhead-libos-cuda -p bulkhead-libos-nvml || exit 1
    mkdir -p "$folder"
    cp "$target"/release/{bulkhead,bulkhead-kernel,libcuda.so,libnvidia_ml.so} "$folder/" || exit 1
    strip "$folder"/{bulkhead,bulkhead-kernel,libcuda.so,libnvidia_ml.so}
    tests/programs.sh --carry "$folder/programs" attack_beside deep_queue vecadd
    exit
fi
folder=$(cd "${1:?the folder that was carried}" && pwd)
shift
bulkhead=$folder/bulkhead
backend=${BACKEND:-$("$bulkhead" doctor --backend)}
[ -n "${BACKEND:-}" ] || [ "$backend" = cuda ] || { echo "skipped: no GPU"; exit 77; }
longest=${LONGEST:-1.5}
program=$folder/programs/attack_beside
work=$(mktemp -d)
server=
trap '[ -z "$server" ] || { kill $server; wait $server; }; rm -rf "$work"' EXIT
mkdir -m 700 "$work/run"
export BULKHEAD_SOCKET=$work/run/kernel.sock
"$bulkhead" serve --backend "$backend" --runtime-directory "$work/run" 2> "$work/serve.log" &
server=$!
for _ in $(seq 400); do [ -S "$BULKHEAD_SOCKET" ] && break; sleep 0.05; done
run() { timeout "$1" "$bulkhead" run -- "${@:2}" 2>&1; }
# The programs' code is compiled once.
run 60 "$program" neighbour 0.1 > "$work/first" || { cat "$work/first"; exit 1; }
# shellcheck disable=SC2046 # names
[ $# -gt 0 ] || set -- $(run 20 "$program" cases)
failed=0
printf '%-14s %-10s %s\n' case 'longest s' 'what the case said'
for name in "$@"; do
    run 40 "$program" neighbour 4 > "$work/neighbour" & beside=$!
    sleep 0.5
    run 20 "$program" "$name" > "$work/said" & attacker=$!
    wait $beside; ended=$?
    wait $attacker
    took=$(sed -n 's/.*the longest took \([0-9.]*\) s.*/\1/p' "$work/neighbour")
    printf '%-14s %-10s %s\n' "$name" "${took:--}" "$(tr '\n' ';' < "$work/said" | cut -c1-150)"
    if [ $ended -ne 0 ] || ! awk -v took="${took:-99}" -v most="$longest" 'BEGIN { exit !(took < most) }'; then
        failed=1
        printf 'FAILED  %s\n' "$(tail -n 1 "$work/neighbour")"
    fi
done
run 60 "$folder/programs/vecadd" || failed=1
[ $failed = 0 ] || tail -n 20 "$work/serve.log"
exit $failed
