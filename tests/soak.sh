#!/usr/bin/env bash
# Runs every test binary again and again, on an idle or a busy machine, and says what failed even once.

set -euo pipefail

usage() {
    cat <<'USAGE'
usage: tests/soak.sh [--times N] [--minutes M] [--busy] [--only PATTERN]

  --times N       rounds over all test binaries (50)
  --minutes M     begin no binary after that (no limit)
  --busy          keep every core busy beside them
  --only PATTERN  only binaries whose PACKAGE/NAME matches the extended regular expression

Builds the tests first. What a run that failed printed is kept in target/soak. Ends with 0 when nothing failed,
otherwise with 1. One round of all takes some 20 minutes on two cores.
USAGE
}

times=50 minutes= busy= only=.
while (($#)); do
    case $1 in
        --times) times=${2:?usage: --times N} && shift 2 ;;
        --minutes) minutes=${2:?usage: --minutes M} && shift 2 ;;
        --busy) busy=1 && shift ;;
        --only) only=${2:?usage: --only PATTERN} && shift 2 ;;
        -h | --help) usage && exit ;;
        *) usage >&2 && exit 2 ;;
    esac
done

cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
kept=${CARGO_TARGET_DIR:-target}/soak
mkdir -p "$kept"
kept=$(cd -- "$kept" && pwd)
rm -f -- "$kept"/*.log
export BULKHEAD_TESTS_BUILT=1

cargo build --quiet --workspace --examples --bins --lib
# PACKAGE/NAME, the folder of the package, the binary.
mapfile -t binaries < <(
    cargo test --quiet --workspace --no-run --message-format=json 2>/dev/null | "${PYTHON:-python3}" -c '
import json, os, re, sys
only = re.compile(sys.argv[1])
for line in sys.stdin:
    message = json.loads(line)
    if message.get("reason") == "compiler-artifact" and message["profile"]["test"] and message.get("executable"):
        folder = os.path.dirname(message["manifest_path"])
        name = os.path.basename(folder) + "/" + message["target"]["name"]
        if only.search(name):
            print(name, folder, message["executable"], sep="\t")
' "$only"
)
((${#binaries[@]})) || {
    printf 'soak.sh: no test binary matches %s\n' "$only" >&2
    exit 2
}

helpers=()
trap 'for helper in "${helpers[@]}"; do kill "$helper" 2>/dev/null || true; done' EXIT
if [[ -n $busy ]]; then
    for ((core = 0; core < $(nproc); core++)); do
        sha256sum /dev/zero &
        helpers+=($!)
    done
fi

declare -A ran=() failed=()
SECONDS=0
until=$((minutes ? SECONDS + minutes * 60 : 0))
for ((round = 1; round <= times; round++)); do
    for binary in "${binaries[@]}"; do
        IFS=$'\t' read -r name folder program <<<"$binary"
        ((until == 0 || SECONDS < until)) || break 2
        log=$kept/${name//\//_}.$round.log
        ran[$name]=$((${ran[$name]:-0} + 1))
        if (cd -- "$folder" && CARGO_MANIFEST_DIR=$folder "$program") >"$log" 2>&1 </dev/null; then
            rm -f -- "$log"
        else
            failed[$name]=$((${failed[$name]:-0} + 1))
            printf 'soak.sh: round %d: %s failed: %s\n' "$round" "$name" "$log"
            grep -hE '^test .* FAILED$' "$log" || true
        fi
    done
    printf 'soak.sh: round %d of %d done after %d s, %d of %d binaries have failed\n' \
        "$round" "$times" "$SECONDS" "${#failed[@]}" "${#binaries[@]}"
done

printf '\n%6s %6s  %s\n' runs failed binary
for name in "${!ran[@]}"; do
    printf '%6d %6d  %s\n' "${ran[$name]}" "${failed[$name]:-0}" "$name"
done | sort -k2,2nr -k3
((${#failed[@]} == 0))
