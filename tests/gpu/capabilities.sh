#!/bin/bash
# The promises about capabilities and memory on a machine with a GPU: the same tests that run on the software GPU.
#
#   tests/gpu/capabilities.sh --carry FOLDER [TEST...]
#                                               here: builds what the device machine needs into FOLDER (a few minutes)
#   tests/gpu/capabilities.sh FOLDER [TEST...]  there: runs the tests, or those named, and prints a table
#
# Ends with 0 where all pass, 77 where there is no GPU, 1 otherwise.
set -u
tests="sharing revocation facets failover swapping isolation sessions executor_death hostile_client zero_copy ledger failover_swapping places attacks kill variables gates"
if [ "${1:-}" = --carry ]; then
    folder=${2:?the folder to carry}
    shift 2
    tests=${*:-$tests}
    cd "$(dirname "$0")/../.." || exit 1
    target=${CARGO_TARGET_DIR:-target}
    cargo build --release -p bulkhead-cli -p bulkhead-kernel -p bulkhead-libos-cuda -p bulkhead-libos-nvml || exit 1
    mkdir -p "$folder/deps" "$folder/examples"
    cp "$target"/release/{bulkhead,bulkhead-kernel,libcuda.so,libnvidia_ml.so} "$folder/" && strip "$folder"/{bulkhead,bulkhead-kernel,libcuda.so,libnvidia_ml.so}
    case " $tests " in *" examples "*)
        cargo build --release -p bulkhead-client --examples || exit 1
        # Cargo keeps each by two names, one of which ends with a hash.
        for example in "$target"/release/examples/*; do
            name=$(basename "$example")
            case $name in *-* | *.*) continue ;; esac
            cp "$example" "$folder/examples/" && strip "$folder/examples/$name"
        done
    esac
    chosen=""
    for test in $tests; do chosen="$chosen --test $test"; done
    # shellcheck disable=SC2086 # a list
    cargo test --release --no-run --message-format=json -p bulkhead-tests $chosen |
        grep -o '"executable":"[^"]*"' | cut -d'"' -f4 | while read -r binary; do
            name=$(basename "$binary")
            cp "$binary" "$folder/deps/${name%-*}" && strip "$folder/deps/${name%-*}"
        done
    # What these tests start.
    # shellcheck disable=SC2046 # a list
    tests/programs.sh --carry "$folder/programs" $(for test in $tests; do
        grep -rhoE '\bprogram\("[a-z_]+"\)' "tests/tests/$test" "tests/tests/$test.rs" 2>/dev/null
    done | cut -d'"' -f2 | sort -u) || exit 1
    du -sh "$folder"
    exit 0
fi
folder=$(cd "${1:?the folder that was carried}" && pwd)
shift
[ "$("$folder/bulkhead" doctor --backend)" = cuda ] || { echo "skipped: no GPU"; exit 77; }
export BULKHEAD_TESTS_BUILT=1 BULKHEAD_TESTS_BACKEND=cuda
BULKHEAD_TESTS_REPOSITORY=$(cd "$(dirname "$0")/../.." && pwd)
export BULKHEAD_TESTS_REPOSITORY
[ -e "$BULKHEAD_TESTS_REPOSITORY/tests/programs/bin" ] || ln -s "$folder/programs" "$BULKHEAD_TESTS_REPOSITORY/tests/programs/bin"
ended=0
for test in ${*:-$tests}; do
    log=$(mktemp)
    timeout 280 "$folder/deps/$test" --test-threads=1 --nocapture > "$log" 2>&1
    code=$?
    line=$(grep -E '^test result' "$log" | tail -n 1 | cut -c1-100)
    if [ $code -eq 0 ]; then printf 'pass    %-18s %s\n' "$test" "$line"
    else printf 'FAILED  %-18s code %s %s\n' "$test" "$code" "$line"; grep -vE '^\s*$' "$log" | tail -n 60; ended=1; fi
    # What the tests measured on the way.
    grep -E 'severed after|stopped after|told after|gone after|later$|moved after|rounds beside|took |longest|attacks' "$log" | sed 's/^/        /' | head -n 12
    rm -f "$log"
done
exit $ended
