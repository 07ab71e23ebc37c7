#!/bin/bash
# Beside a kernel that takes all of the device and does not end, whoever opens a session, allocates, or loads code goes on after
# `--loading-seconds`, who only waits for the device is not ended, and deep queues of short kernels keep nobody from loading code.
#
#   tests/gpu/beside_endless.sh --carry FOLDER    here: builds what the device machine needs into FOLDER
#   tests/gpu/filled.sh FOLDER                    there: a table, a row for each case
#
# Ends with 0 where all of it is so, 77 where there is no GPU, 1 otherwise.
set -u
folder=$(cd "${1:?the folder that was carried}" && pwd)
bulkhead=$folder/bulkhead
backend=${BACKEND:-$("$bulkhead" doctor --backend)}
[ -n "${BACKEND:-}" ] || [ "$backend" = cuda ] || { echo "skipped: no GPU"; exit 77; }
work=$(mktemp -d)
server=
trap '[ -z "$server" ] || { kill $server; wait $server; }; rm -rf "$work"' EXIT
mkdir -m 700 "$work/run"
export BULKHEAD_SOCKET=$work/run/kernel.sock
"$bulkhead" serve --backend "$backend" --loading-seconds 5 --runtime-directory "$work/run" 2> "$work/serve.log" &
server=$!
for _ in $(seq 400); do [ -S "$BULKHEAD_SOCKET" ] && break; sleep 0.05; done
attack=$folder/programs/attack_beside
failed=0
# Of a kernel that is not long.
turns=700000
[ "$backend" = cuda ] || turns=2000

# has NAME SECONDS PROGRAM...: a line for it, and whether it passed in time.
has() {
    local name=$1 most=$2 begun said passed=1
    shift 2
    begun=$(date +%s%3N)
    said=$(timeout "$most" "$bulkhead" run -- "$@" 2>&1 | tail -n 2 | tr '\n' ';') || passed=0
    grep -q PASS <<< "$said" || passed=0
    echo "$said" > "$work/${name%% *}"
    printf '%-18s %6d ms  %s\n' "$name" $(($(date +%s%3N) - begun)) "${said:0:150}"
    [ $passed = 1 ] || { echo "FAILED  $name"; touch "$work/failed"; }
}
has 'code is compiled' 60 "$attack" neighbour 0.1
has 'vecadd alone' 60 "$folder/programs/vecadd"
has 'deep_queue alone' 60 "$folder/programs/deep_queue"
"$bulkhead" run -- "$attack" allocates 2 > /dev/null

echo '-- who allocates, beside a kernel that fills the device'
has 'allocates' 60 "$attack" allocates 4 & one=$!
sleep 2
has 'fills' 60 "$attack" fills 50 & two=$!
wait $one $two
echo '-- who only waits for the device, while somebody opens a session'
has 'behind' 60 "$attack" behind 4 & one=$!
sleep 2
has 'fills' 60 "$attack" fills 50 & two=$!
sleep 4
has 'vecadd' 50 "$folder/programs/vecadd" & three=$!
wait $one $two $three
echo '-- whose turn is next, where two fill the device'
has 'behind' 60 "$attack" behind 4 & one=$!
has 'fills first' 60 "$attack" fills 50 2 & two=$!
has 'fills second' 60 "$attack" fills 50 3 & four=$!
sleep 6
has 'vecadd' 50 "$folder/programs/vecadd" & three=$!
wait $one $two $three $four
echo '-- who ends beside a kernel that fills the device has nobody ended'
has 'rests' 60 "$attack" rests 4 & one=$!
has 'fills' 60 "$attack" fills 16 2 & two=$!
wait $one $two
grep -q 'after 16.*cudaErrorNotReady' "$work/fills" || { echo "FAILED  fills: it was ended"; touch "$work/failed"; }
echo '-- beside two deep queues of short kernels'
has 'deep_queue' 60 "$folder/programs/deep_queue" 12 $turns & one=$!
has 'deep_queue' 60 "$folder/programs/deep_queue" 12 $turns & two=$!
sleep 3
for _ in 1 2 3; do has 'vecadd' 50 "$folder/programs/vecadd"; done
wait $one $two
[ ! -e "$work/failed" ] || failed=1
[ $failed = 0 ] || tail -n 20 "$work/serve.log"
exit $failed
