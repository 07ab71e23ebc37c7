#!/bin/bash
# How fast guarded kernels are: every kernel of tests/programs/kernels_*.cu, natively and through Bulkhead, in turns.
#
#   tests/gpu/kernels.sh --carry FOLDER                 here: builds what the device machine needs into FOLDER
#   tests/gpu/kernels.sh FOLDER [--out FILE] [ROUNDS]   there: prints a table, and writes JSON to FILE
#
# Each of the ROUNDS (3) runs all suites once natively and once through Bulkhead; what counts is the median over the
# rounds of the median over five batches of 50 launches. SIZE=small for a device that computes slowly; SUITES names others
# than the usual five, both times: kernels_seldom has barriers with a count and large local arrays.
# Ends with 0 where all kernels compute what they should, 77 where there is no GPU, 1 otherwise. With BACKEND=software
# nothing is native: the table shows the software GPU twice.
set -u
suites=${SUITES:-kernels_dense kernels_ml kernels_data kernels_hpc kernels_matrix}
if [ "${1:-}" = --carry ]; then
    folder=${2:?the folder to carry}
    cd "$(dirname "$0")/../.." || exit 1
    target=${CARGO_TARGET_DIR:-target}
    cargo build --release -p bulkhead-cli -p bulkhead-kernel -p bulkhead-libos-cuda -p bulkhead-libos-nvml || exit 1
    mkdir -p "$folder"
    cp "$target"/release/{bulkhead,bulkhead-kernel,libcuda.so,libnvidia_ml.so} "$folder/" && strip "$folder"/{bulkhead,bulkhead-kernel,libcuda.so,libnvidia_ml.so}
    # shellcheck disable=SC2086 # a list
    tests/programs.sh --carry "$folder/programs" $suites || exit 1
    du -sh "$folder"
    exit 0
fi
folder=$(cd "${1:?the folder that was carried}" && pwd)
shift
out=
rounds=3
while [ $# -gt 0 ]; do
    case $1 in
        --out) out=${2:?a file}; shift ;;
        *) rounds=$1 ;;
    esac
    shift
done
backend=${BACKEND:-$("$folder/bulkhead" doctor --backend)}
[ -n "${BACKEND:-}" ] || [ "$backend" = cuda ] || { echo "skipped: no GPU"; exit 77; }
size=${SIZE:-large}
[ "$size" = large ] || size=
launches=${LAUNCHES:-50}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
ended=0
one() {
    local kind=$1 suite=$2
    local command=("$folder/programs/$suite")
    if [ "$kind" = bulkhead ] || [ "$backend" = software ]; then
        command=("$folder/bulkhead" run --backend "$backend" -- "${command[@]}")
    fi
    # shellcheck disable=SC2086 # nothing, or a word
    timeout 300 "${command[@]}" $size --time "$launches" >"$work/said" 2>"$work/errors" || {
        printf 'FAILED  %s %s: %s\n' "$suite" "$kind" "$(tail -n 2 "$work/said" "$work/errors" | tr '\n' ' ')"
        ended=1
    }
    sed -n 's/^{"kernel": "\([a-z0-9_]*\)", "ns": \([0-9.]*\)}$/'"$suite $kind"' \1 \2/p' "$work/said" >>"$work/times"
}
: >"$work/times"
for _ in $(seq "$rounds"); do
    for suite in $suites; do
        one native "$suite"
        one bulkhead "$suite"
    done
done
awk -v out="$out" -v backend="$backend" '
    function median(text,    list, n, i, j, kept) {
        n = split(text, list, " ")
        for (i = 2; i <= n; i++) {
            kept = list[i] + 0
            for (j = i - 1; j >= 1 && list[j] + 0 > kept; j--) list[j + 1] = list[j]
            list[j + 1] = kept
        }
        return (list[int((n + 1) / 2)] + list[int(n / 2) + 1]) / 2
    }
    {
        name = $1 "/" $3
        if (!(name in known)) { known[name] = 1; order[++count] = name }
        times[name, $2] = times[name, $2] " " $4
    }
    END {
        printf "%-36s %14s %14s %8s\n", "kernel", "native ns", "bulkhead ns", "ratio"
        for (i = 1; i <= count; i++) {
            name = order[i]
            if (times[name, "native"] == "" || times[name, "bulkhead"] == "") { print name ": one side is missing"; continue }
            native = median(times[name, "native"]); guarded = median(times[name, "bulkhead"])
            ratio = guarded / native; sum += log(ratio); both++
            if (ratio > worst) { worst = ratio; slowest = name }
            printf "%-36s %14.1f %14.1f %8.3f\n", name, native, guarded, ratio
            lines = lines sprintf("%s\n    {\"kernel\": \"%s\", \"native_ns\": %.1f, \"bulkhead_ns\": %.1f, \"ratio\": %.4f}", lines == "" ? "" : ",", name, native, guarded, ratio)
        }
        if (both == 0) exit 1
        mean = exp(sum / both)
        printf "\n%d kernels, geometric mean %.4f, worst %.3f (%s)\n", both, mean, worst, slowest
        if (out != "") {
            printf "{\"backend\": \"%s\", \"kernels\": [%s\n  ],\n  \"count\": %d, \"geometric_mean\": %.4f, \"worst\": %.4f, \"worst_kernel\": \"%s\"}\n", backend, lines, both, mean, worst, slowest >out
        }
    }' "$work/times" || ended=1
exit $ended
