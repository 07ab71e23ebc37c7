#!/usr/bin/env bash
# Runs generated programs against the guard, in as many processes as told, and sums up what they saw.

set -euo pipefail

usage() {
    cat <<'USAGE'
usage: tests/escapes.sh BINARY PROGRAMS [PROCESSES] [SEED]

BINARY is the test `escapes` of bulkhead-executor (cargo test --release -p bulkhead-executor --test escapes --no-run).
PROGRAMS are run in all, in PROCESSES (as many as there are cores), from SEED on (of the clock). A seed is one program.
The output of each process stays in $OUT, or in a new directory. Ends with 1 where a program got out.
USAGE
}

case ${1:-} in
    '' | -h | --help)
        usage
        [[ -n ${1:-} ]]
        exit
        ;;
esac
binary=$1 programs=${2:?$(usage)} processes=${3:-$(nproc)} seed=${4:-$(($(date +%s) * 1000))}
out=${OUT:-$(mktemp -d)}
each=$(((programs + processes - 1) / processes))
began=$SECONDS
running=()
for ((process = 0; process < processes; process++)); do
    BULKHEAD_ESCAPES=$each BULKHEAD_ESCAPES_ALL=1 BULKHEAD_ESCAPES_SEED=$((seed + process * each)) \
        "$binary" --nocapture no_generated_program_gets_out >"$out/escapes.$process" 2>&1 &
    running+=($!)
done
failed=0
for process in "${running[@]}"; do wait "$process" || failed=$((failed + 1)); done
printf '%d programs from seed %d on in %d processes, %d s, %d processes found something\n' \
    $((each * processes)) "$seed" "$processes" $((SECONDS - began)) "$failed"
grep -hE "^[0-9]+ programs in |^seed .* programs, " "$out"/escapes.* || true
((failed == 0))
