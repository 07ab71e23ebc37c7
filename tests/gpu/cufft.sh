#!/bin/bash
# cuFFT on a machine with a GPU: NVIDIA's library natively, guarded, and through the service `modules/cufft`.
#
#   tests/gpu/cufft.sh --carry FOLDER   here: builds what the device machine needs into FOLDER
#   tests/gpu/cufft.sh FOLDER           there: runs it all, and prints times and their ratios
#
# Ends with 0 where everything is right, 77 where there is no GPU, 1 otherwise. CUFFT names the folder of NVIDIA's library
# (/usr/local/cuda/lib64). With BACKEND=software it runs anywhere, on the host's transforms, and times no large ones.
set -u
here=$(cd "$(dirname "$0")/../.." && pwd)
if [ "${1:-}" = --carry ]; then
    mkdir -p "${2:?the folder to carry}" && folder=$(cd "$2" && pwd) && cd "$here" || exit 1
    target=${CARGO_TARGET_DIR:-target}
    cargo build --release -p bulkhead-cli -p bulkhead-kernel -p bulkhead-libos-cuda -p bulkhead-libos-nvml -p bulkhead-cufft -p bulkhead-cufft-library || exit 1
    cp "$target"/release/{bulkhead,bulkhead-kernel,libcuda.so,libnvidia_ml.so,cufft,libcufft.so} "$folder/" || exit 1
    strip "$folder"/{bulkhead,bulkhead-kernel,libcuda.so,libnvidia_ml.so,cufft,libcufft.so}
    .toolchain/cuda/bin/nvcc -std=c++17 -gencode arch=compute_75,code=compute_75 -o "$folder/cufft-tenant" \
        modules/cufft/tests/tenant.cu -L "$folder" -l:libcufft.so || exit 1
    du -sh "$folder"
    exit 0
fi
folder=$(cd "${1:?the folder that was carried}" && pwd)
bulkhead=$folder/bulkhead
tenant=$folder/cufft-tenant
backend=${BACKEND:-$("$bulkhead" doctor --backend)}
[ -n "${BACKEND:-}" ] || [ "$backend" = cuda ] || { echo "skipped: no GPU"; exit 77; }
nvidia=${CUFFT:-/usr/local/cuda/lib64}
small=; [ "$backend" = cuda ] || small=small
work=$(mktemp -d)
mkdir -m 700 "$work/run"
export BULKHEAD_SOCKET=$work/run/kernel.sock
ended=0
"$bulkhead" serve --backend "$backend" --runtime-directory "$work/run" 2> "$work/serve.log" &
server=$!
trap 'kill $server; wait $server; rm -rf "$work"' EXIT
for _ in $(seq 200); do [ -S "$BULKHEAD_SOCKET" ] && break; sleep 0.05; done

say() { printf '== %s\n' "$*"; }
check() { # NAME WANTED COMMAND...: what it says has to have that
    local name=$1 wanted=$2 told code; shift 2
    told=$("$@" 2>&1)
    code=$?
    if printf '%s' "$told" | grep -q "$wanted"; then printf 'pass    %-26s %s\n' "$name" "$(printf '%s' "$told" | grep "$wanted" | cut -c1-90)"
    else printf 'FAILED  %-26s code %s\n%s\n' "$name" "$code" "$(printf '%s' "$told" | tail -n 8)"; ended=1; fi
}
times() { # NAME COMMAND...: thrice, each time from the start
    local name=$1; shift
    say "times, $name"
    for _ in 1 2 3; do
        "$@" times $small > "$work/told" 2> "$work/errors" || { echo "FAILED: code $?"; tail -n 8 "$work/errors"; ended=1; }
        tee -a "$work/$name.times" < "$work/told"
    done
}
start() { # OPTIONS...: has the service serve
    local host
    host=$(printf ', "%s"' "$@")
    printf 'name = "cufft"\nkind = "service"\nhost = ["%s", "serve"%s]\n' "$folder/cufft" "${1:+$host}" > "$work/cufft.toml"
    "$bulkhead" module start "$work/cufft.toml" > "$work/cufft.log" 2>&1 &
    for _ in $(seq 200); do [ -S "$work/run/cufft.module.sock" ] && return; sleep 0.05; done
    cat "$work/cufft.log"; ended=1
}
through() { timeout 300 "$bulkhead" run --module cufft -- "$tenant" "$@"; }
guarded() { LD_LIBRARY_PATH=$nvidia timeout 300 "$bulkhead" run -- "$tenant" "$@"; }
natively() { LD_LIBRARY_PATH=$nvidia timeout 300 "$tenant" "$@"; }

theirs=
[ "$backend" = cuda ] && [ -e "$nvidia/libcufft.so.12" ] && theirs=1
if [ "$theirs" ]; then
    start --engine nvidia --library "$nvidia/libcufft.so.12"
else
    echo "no library of NVIDIA's in $nvidia: the host computes"
    start --engine host
fi
say "the service"
check "many shapes" "PASS right" through right 64
check calls "PASS calls" through calls
check streams "PASS streams" through streams
times service through
"$bulkhead" module list
"$bulkhead" module stop cufft || ended=1
cat "$work/cufft.log"
if [ "$backend" = cuda ]; then
    say "the host as the engine"
    start --engine host
    check "many shapes" "PASS right" through right 16
    "$bulkhead" module stop cufft || ended=1
fi
if [ "$theirs" ]; then
    say "the test's own arithmetic, natively"
    check "many shapes" "PASS right" natively right 64
    times native natively
    say guarded
    check "many shapes" "PASS right" guarded right 64
    times guarded guarded
fi
say "medians: alone p50, in a row (us), second plan (ms), and natively / here"
for name in native guarded service; do
    [ -e "$work/$name.times" ] || continue
    for what in "1024 x 1" "2^20 x 64" "4096^2"; do
        # first plan A ms, second B ms; alone p50 C us, p99 D us; in a row E us
        numbers() { grep -F "$what" "$work/$1.times" 2> /dev/null | sed "s/.*$2 *//; s/ .*//" | sort -g | sed -n 2p; }
        alone=$(numbers $name "alone p50") row=$(numbers $name "in a row") plan=$(numbers $name "second") base=$(numbers native "in a row")
        [ -n "$alone" ] || continue
        ratio=$([ -n "$base" ] && awk "BEGIN { printf \"%.3f\", $base / $row }")
        printf '%-8s %-10s %10s %10s %8s   %s\n' $name "$what" "$alone" "$row" "$plan" "$ratio"
    done
done
grep -E 'WARN|ERROR' "$work/serve.log" | head
exit $ended
