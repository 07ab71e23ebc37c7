#!/bin/bash
# The whole path on a machine with a GPU: doctor, demo, every program natively and through Bulkhead, the same with the
# device nodes hidden, the attacks beside a neighbour, and the benchmark.
#
#   tests/gpu/skeleton.sh FOLDER [OUT]
#
# FOLDER holds the release binaries `bulkhead`, `bulkhead-kernel`, `libcuda.so` and `libnvidia_ml.so` and the folder `programs` of tests/programs.sh --carry.
# OUT gets the benchmark's JSON. Ends with 0 where everything passes, 1 otherwise.
set -u
folder=$(cd "${1:?the folder of the release binaries}" && pwd)
out=${2:-$(mktemp -d)}
bulkhead=$folder/bulkhead
programs=$folder/programs
ended=0
export LD_LIBRARY_PATH=$programs

say() { printf '== %s\n' "$*"; }
check() { # NAME COMMAND...: runs a command, tells how it went
    local name=$1 log; shift
    log=$(timeout 120 "$@" 2>&1)
    local code=$?
    if [ $code -eq 0 ]; then printf 'pass    %-28s %s\n' "$name" "$(printf '%s' "$log" | tail -n 1 | cut -c1-80)"
    else printf 'FAILED  %-28s code %s\n%s\n' "$name" "$code" "$(printf '%s' "$log" | tail -n 6)"; ended=1; fi
}
regular() { find "$programs" -maxdepth 1 -type f -perm -u+x ! -name 'attack_*' ! -name '*.so*' -printf '%f\n' | sort; }

say doctor
"$bulkhead" doctor
say demo
"$bulkhead" demo --backend cuda || ended=1
runtime=$(mktemp -d)
"$bulkhead" serve --backend cuda --runtime-directory "$runtime" 2>"$out/serve.log" &
server=$!
for _ in $(seq 200); do [ -S "$runtime/kernel.sock" ] && break; sleep 0.05; done
say "programs through Bulkhead, one kernel"
for name in $(regular); do check "$name" "$bulkhead" run --socket "$runtime/kernel.sock" -- "$programs/$name"; done
say "large, natively and through Bulkhead"
for name in $(regular); do
    check "$name, native" "$programs/$name" large
    check "$name" "$bulkhead" run --socket "$runtime/kernel.sock" -- "$programs/$name" large
done
say "four at a time"
for name in vecadd reduction matmul streams; do
    "$bulkhead" run --socket "$runtime/kernel.sock" -- "$programs/$name" large & pids="${pids:-} $!"
done
for pid in $pids; do wait "$pid" || { echo "FAILED  pid $pid"; ended=1; }; done
say "the device nodes hidden from the program (mount namespace)"
hide='for node in /dev/nvidia*; do if [ -d "$node" ]; then mount -t tmpfs none "$node"; else mount --bind /dev/null "$node"; fi; done; exec "$@"'
check "native (must fail)" sh -c '! unshare -m sh -c "$0" sh "$@"' "$hide" "$programs/vecadd"
check vecadd unshare -m sh -c "$hide" sh "$bulkhead" run --socket "$runtime/kernel.sock" -- "$programs/vecadd"
check streams unshare -m sh -c "$hide" sh "$bulkhead" run --socket "$runtime/kernel.sock" -- "$programs/streams"
say "attackers beside a neighbour"
executor() { pgrep -f "$bulkhead executor" | sort | tr '\n' ' '; }
before=$(executor)
for attack in attack_wild attack_shared attack_local; do
    timeout 120 "$bulkhead" run --socket "$runtime/kernel.sock" -- "$programs/$attack" > "$out/$attack.log" 2>&1 & attacker=$!
    check "matmul beside $attack" "$bulkhead" run --socket "$runtime/kernel.sock" -- "$programs/matmul" large
    wait $attacker; printf '        %-28s ended with %s: %s\n' "$attack" $? "$(tail -n 1 "$out/$attack.log")"
    check "vecadd after $attack" "$bulkhead" run --socket "$runtime/kernel.sock" -- "$programs/vecadd" large
done
if [ "$before" = "$(executor)" ]; then printf 'pass    the executor is the same: %s\n' "$before"
else echo "FAILED  the executor is another"; ended=1; fi
say "the executor is killed and comes back"
pkill -KILL -f "$bulkhead executor"
check "vecadd on the next executor" "$bulkhead" run --socket "$runtime/kernel.sock" -- "$programs/vecadd" large
if [ "$before" = "$(executor)" ]; then echo "FAILED  the executor was not killed"; ended=1; fi
kill $server; wait $server
say bench
"$bulkhead" bench --json > "$out/bench.json" || echo "bench ended with $?"
say "ended with $ended"
exit $ended
