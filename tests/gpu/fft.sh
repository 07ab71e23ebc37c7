#!/bin/bash
# Whether cuFFT transforms on a machine with a GPU what it should: many lengths against numpy, and what PyTorch and CuPy have it do,
# recorded natively and replayed; NVIDIA's library natively, guarded, and through the service `modules/cufft`.
#
#   tests/gpu/fft.sh --carry FOLDER   here: builds what the device machine needs into FOLDER
#   tests/gpu/fft.sh FOLDER           there: runs it all, and prints a table; SECONDS_EACH (120) bounds each of the lengths' rows
#
# Ends with 0 where everything is right, 77 where there is no GPU, 1 otherwise. CUFFT names the folder of NVIDIA's library.
set -u
here=$(cd "$(dirname "$0")/../.." && pwd)
if [ "${1:-}" = --carry ]; then
    mkdir -p "${2:?the folder to carry}" && folder=$(cd "$2" && pwd) && cd "$here" || exit 1
    target=${CARGO_TARGET_DIR:-target}
    cargo build --release -p bulkhead-cli -p bulkhead-kernel -p bulkhead-libos-cuda -p bulkhead-libos-nvml -p bulkhead-cufft -p bulkhead-cufft-library || exit 1
    cp "$target"/release/{bulkhead,bulkhead-kernel,libcuda.so,libnvidia_ml.so,cufft,libcufft.so} "$folder/" || exit 1
    strip "$folder"/{bulkhead,bulkhead-kernel,libcuda.so,libnvidia_ml.so,cufft,libcufft.so}
    exit 0
fi
folder=$(cd "${1:?the folder that was carried}" && pwd)
bulkhead=$folder/bulkhead
[ "$("$bulkhead" doctor --backend)" = cuda ] || { echo "skipped: no GPU"; exit 77; }
nvidia=${CUFFT:-/usr/local/cuda/lib64}
work=$(mktemp -d)
mkdir -m 700 "$work/run"
export BULKHEAD_SOCKET=$work/run/kernel.sock
ended=0
"$bulkhead" serve --runtime-directory "$work/run" 2> "$work/serve.log" &
server=$!
trap 'kill $server; wait $server; rm -rf "$work"' EXIT
for _ in $(seq 200); do [ -S "$BULKHEAD_SOCKET" ] && break; sleep 0.05; done
printf 'name = "cufft"\nkind = "service"\nhost = ["%s/cufft", "serve", "--library", "%s"]\n' "$folder" "$nvidia/libcufft.so.12" \
    > "$work/cufft.toml"
"$bulkhead" module start "$work/cufft.toml" > "$work/cufft.log" 2>&1 &
for _ in $(seq 200); do [ -S "$work/run/cufft.module.sock" ] && break; sleep 0.05; done

natively() { LD_LIBRARY_PATH=$nvidia "$@"; }
guarded() { LD_LIBRARY_PATH=$nvidia "$bulkhead" run -- "$@"; }
through() { "$bulkhead" run --module cufft -- "$@"; }
fft() { "$1" timeout 300 python3 -B "$here/tests/gpu/fft/$2.py" "${@:3}"; }
failed() { printf 'FAILED  %s\n' "$1"; tail -n 8 "$2"; ended=1; }

echo "== what PyTorch and CuPy have cuFFT do"
gcc -shared -fPIC -o "$work/record.so" "$here/tests/gpu/fft/record.c" -ldl || ended=1
for framework in torch cupy; do
    log=$work/$framework
    FFT_LOG=$log.calls LD_PRELOAD=$work/record.so python3 -B "$here/tests/gpu/fft/frameworks.py" $framework > "$log.told" 2>&1 ||
        failed "recording $framework" "$log.told"
    [ -s "$log.calls" ] || continue
    for way in natively guarded through; do
        fft $way replay "$log.calls" "$log.$way.npz" $([ $way = natively ] || echo "$log.natively.npz") > "$log.told" 2>&1 ||
            { failed "$framework $way" "$log.told"; continue; }
        printf 'pass    %-6s %-9s %s\n' $framework $way "$(tail -n 1 "$log.told")"
    done
done

lengths() { # WAY NAME LENGTHS TYPES PARTS
    local way=$1 name=$2 part begun=$SECONDS jobs=()
    for part in $(seq 0 $(($5 - 1))); do
        fft "$way" lengths "$3" "$4" "${SECONDS_EACH:-120}" "$part" "$5" > "$work/lengths.$part" 2>&1 &
        jobs+=($!)
    done
    local wrong=0 job
    for job in "${jobs[@]}"; do wait "$job" || wrong=1; done
    printf '%-7s %-9s %-28s %s in %s s\n' "$([ $wrong = 0 ] && echo pass || echo FAILED)" "$way" "$name" \
        "$(cat "$work"/lengths.* | awk '/ done, / { done += $1; all += $3; wrong += $5 } END { print done " of " all ", " wrong " wrong" }')" \
        $((SECONDS - begun))
    [ $wrong = 0 ] || { grep -hv ' done, ' "$work"/lengths.* | head -n 8; ended=1; }
    rm -f "$work"/lengths.*
}
all=c2c,r2c,c2r,z2z,d2z,z2d
powers=$(seq -s, 1 24 | tr ',' '\n' | awk '{ printf "%s%d", (NR > 1) ? "," : "", 2 ^ $1 }')
echo "== lengths, against numpy"
lengths natively "powers of two to 2^24" "$powers" $all 1
lengths guarded "powers of two to 2^24" "$powers" $all 6
lengths through "powers of two to 2^24" "$powers" $all 4
lengths natively "2 to 4096, c2c" 2-4096 c2c 8
lengths guarded "2 to 4096, c2c" 2-4096 c2c 12
lengths guarded "2 to 4096 by 61, others" 2-4096/61 r2c,c2r,z2z,d2z,z2d 12
lengths through "2 to 4096 by 61" 2-4096/61 $all 4
grep -E 'WARN|ERROR' "$work/serve.log" | head
exit $ended
