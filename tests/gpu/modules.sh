#!/bin/bash
# Protected modules on a machine with a GPU: the echo's round trip, a counter that comes and goes, storage, datagrams.
#
#   tests/gpu/modules.sh --carry FOLDER   here: builds what the device machine needs into FOLDER
#   tests/gpu/modules.sh FOLDER           there: runs it all, and prints tables
#
# Ends with 0 where everything is right, 77 where there is no GPU, 1 otherwise. With BACKEND=software it runs anywhere.
set -u
here=$(cd "$(dirname "$0")/../.." && pwd)
if [ "${1:-}" = --carry ]; then
    mkdir -p "${2:?the folder to carry}" && folder=$(cd "$2" && pwd) && cd "$here" || exit 1
    target=${CARGO_TARGET_DIR:-target}
    nvcc=.toolchain/cuda/bin/nvcc
    cargo build --release -p bulkhead-cli -p bulkhead-libos-cuda -p bulkhead-counter -p bulkhead-storage -p bulkhead-nic || exit 1
    cargo build --release -p bulkhead-client --example echo -p bulkhead-nvme --example rate -p bulkhead-nic --example nic-rate || exit 1
    cp "$target"/release/{bulkhead,libcuda.so,counter,storage,nic} "$target"/release/examples/{echo,rate,nic-rate} "$folder/" || exit 1
    strip "$folder"/{bulkhead,libcuda.so,counter,storage,nic,echo,rate,nic-rate}
    cp modules/examples/counter/gates.ptx "$folder/counter.ptx" && cp modules/storage/gates.ptx "$folder/storage.ptx" || exit 1
    cp modules/nic/gates.ptx "$folder/nic.ptx" || exit 1
    NVCC=$nvcc "$target/release/bulkhead" module build modules/storage/gates.cu -o "$folder/unchecked.ptx" -- -DSTORAGE_UNCHECKED || exit 1
    $nvcc -gencode arch=compute_75,code=compute_75 -o "$folder/counter-tenant" modules/examples/counter/tenant.cu || exit 1
    $nvcc -gencode arch=compute_75,code=compute_75 -I modules/storage/include -o "$folder/storage-tenant" modules/storage/tests/tenant.cu || exit 1
    NVCC=$nvcc "$target/release/bulkhead" module build modules/nic/gates.cu -o "$folder/nic-unchecked.ptx" -- -DNIC_UNCHECKED || exit 1
    $nvcc -gencode arch=compute_75,code=compute_75 -I modules/nic/include -o "$folder/nic-tenant" modules/nic/tests/tenant.cu || exit 1
    $nvcc -gencode arch=compute_75,code=compute_75 -I modules/nic/include -o "$folder/nic-hostile" modules/nic/tests/hostile.cu || exit 1
    $nvcc -gencode arch=compute_75,code=compute_75 -I modules/nic/include -o "$folder/kv" modules/examples/kv.cu || exit 1
    du -sh "$folder"
    exit 0
fi
folder=$(cd "${1:?the folder that was carried}" && pwd)
bulkhead=$folder/bulkhead
backend=${BACKEND:-$("$bulkhead" doctor --backend)}
[ -n "${BACKEND:-}" ] || [ "$backend" = cuda ] || { echo "skipped: no GPU"; exit 77; }
work=$(mktemp -d)
mkdir -m 700 "$work/run"
export BULKHEAD_SOCKET=$work/run/kernel.sock
ended=0
"$bulkhead" serve --backend "$backend" --runtime-directory "$work/run" \
    --module "echo=$here/client/examples/echo/gates.ptx:4MiB" 2> "$work/serve.log" &
server=$!
trap 'kill $server; wait $server; rm -rf "$work"' EXIT
for _ in $(seq 200); do [ -S "$BULKHEAD_SOCKET" ] && break; sleep 0.05; done

say() { printf '== %s\n' "$*"; }
check() { # NAME WANTED COMMAND...: what it says has to have that
    local name=$1 wanted=$2 told code; shift 2
    told=$("$@" 2>&1)
    code=$?
    if printf '%s' "$told" | grep -q "$wanted"; then printf 'pass    %-26s %s\n' "$name" "$(printf '%s' "$told" | tail -n 1 | cut -c1-90)"
    else printf 'FAILED  %-26s code %s\n%s\n' "$name" "$code" "$(printf '%s' "$told" | tail -n 8)"; ended=1; fi
}
serve() { # NAME GATES HOST...: has a module serve
    local name=$1 gates=$2 host; shift 2
    host=$(printf ', "%s"' "$@")
    printf 'name = "%s"\ngates = "%s"\nhost = [%s]\ninstances = 8\n' "$name" "$gates" "${host#, }" > "$work/$name.toml"
    BULKHEAD_MODULE_ANY_GATES=1 "$bulkhead" module start "$work/$name.toml" > "$work/$name.log" 2>&1 &
    for _ in $(seq 200); do [ -S "$work/run/$name.module.sock" ] && return; sleep 0.05; done
    cat "$work/$name.log"; ended=1
}
tenant() { timeout 120 "$bulkhead" run --module "storage=$1" -- "$folder/storage-tenant" "${@:2}"; }

say "echo: a question to the host and its answer"
for _ in 1 2 3; do
    for _ in $(seq 50); do timeout 60 "$folder/echo" > "$work/echo" 2>&1 && break; sleep 0.1; done
    cat "$work/echo"
done
say counter
serve counter "$folder/counter.ptx" "$folder/counter"
check counter "holds 32; codes 0 fffffff3 fffffff2" "$bulkhead" run --module counter=limit=10 -- "$folder/counter-tenant"
pkill -9 -x counter && sleep 1
check "counter, killed before" "holds 32; codes 0" "$bulkhead" run --module counter=limit=10 -- "$folder/counter-tenant"
"$bulkhead" module list
"$bulkhead" module stop counter || ended=1
say storage
head -c 16M /dev/zero > "$work/data.img"
serve storage "$folder/storage.ptx" "$folder/storage" --namespace scratch=ram:64MiB --namespace "data=file:$work/data.img"
cat "$work/storage.log"
check "fill a file" "fill: 0 wrong" tenant write:data fill 5 32768
check "check it" "check: 0 wrong" tenant read:data check 5 32768
check "check it by warps" "warps: 0 wrong" tenant read:data warps 5 32768
check "attack" "attack: 75 tried, 0 wrong" tenant write:data@1000+64,read:data@2000+64 attack
check "check what is beside" "check: 0 wrong" tenant read:data@0+1000 check 5 1000
check "not the other's" "ended with fffffff3" tenant read:data fill 1 64
say "random reads of 4 KiB: threads, checks"
for gates in storage unchecked storage unchecked; do
    "$bulkhead" module stop storage; sleep 0.5
    serve storage "$folder/$gates.ptx" "$folder/storage" --namespace scratch=ram:64MiB --namespace "data=file:$work/data.img"
    for threads in 1 32 256 2048; do
        reads=$((threads > 256 ? 50 : 400))
        printf '%-10s memory %6s  %s\n' "$gates" "$threads" "$(tenant read:scratch rate $threads $reads 131072 2>&1 | tail -n 1)"
    done
    printf '%-10s file   %6s  %s\n' "$gates" 256 "$(tenant read:data rate 256 200 32768 2>&1 | tail -n 1)"
done
say "the controller alone, driven by a host thread"
timeout 60 "$folder/rate" --seconds 1 --folder "$work"
"$bulkhead" module stop storage || ended=1
say "datagrams"
serve nic "$folder/nic.ptx" "$folder/nic" --allow '127.0.0.1:7000-7999'
nic() { timeout 120 "$bulkhead" run --module "nic=$1" -- "$folder/nic-tenant" "${@:2}"; }
hostile() { timeout 120 "$bulkhead" run --module "nic=$1" -- "$folder/nic-hostile" "${@:2}"; }
answers() { "$folder/nic-rate" --answer "$1" "$2" & peer=$!; }
gone() { kill "$peer" 2> /dev/null; wait "$peer" 2> /dev/null; }
pair() { # FLOWS WHAT FLOWS WHAT: the first listens while the second sends
    local listens; nic "$1" $2 > "$work/pair" 2>&1 & listens=$!
    for _ in $(seq 400); do grep -q listens "$work/pair" && break; sleep 0.05; done
    nic "$3" $4 > "$work/sends" 2>&1
    wait "$listens"; cat "$work/sends" "$work/pair"
}
check "from kernel to kernel" "count: 0 wrong" pair listen:7100 "count 200 32" 'udp:7101~127.0.0.1:7100' "stream 200 200 32"
check "puts" "window: 0 wrong" pair 'window:7102~127.0.0.1:7103' "window 60 1000" 'put:7103~127.0.0.1:7102' "puts 60 1000"
answers 7900 1; check "attack" "attack: 143 tried, 0 wrong" hostile 'udp:7104~127.0.0.1:7900,listen:7105,put:7106~127.0.0.1:7900' attack; gone
grep -q 'may not' "$work/nic.log" && { echo "FAILED  the device was told to do what it may not"; ended=1; }
say "datagrams of 64 bytes: threads, checks"
for gates in nic nic-unchecked nic nic-unchecked; do
    "$bulkhead" module stop nic; sleep 0.5
    serve nic "$folder/$gates.ptx" "$folder/nic" --allow '127.0.0.1:7000-7999'
    # Somebody has to be there: what is sent to nobody is answered by errors.
    answers 7900 0
    for threads in 1 32 256 2048; do
        packets=$((64000 / threads))
        printf '%-14s %6s  %s\n' "$gates" "$threads" "$(nic 'udp:7107~127.0.0.1:7900' rate $packets $threads 2>&1 | tail -n 1)"
    done
    gone
done
"$bulkhead" module stop nic; sleep 0.5
serve nic "$folder/nic.ptx" "$folder/nic" --allow '127.0.0.1:7000-7999'
say "there and back, and what a host thread does"
for _ in 1 2 3; do
    answers 7900 -1
    printf 'kernel: %s\n' "$(nic 'udp:7108~127.0.0.1:7900' turns 2000 2>&1 | tail -n 1)"
    gone
    timeout 60 "$folder/nic-rate"
done
"$bulkhead" module stop nic || ended=1
"$bulkhead" module list
grep -E 'WARN|ERROR' "$work/serve.log" | head
exit $ended
