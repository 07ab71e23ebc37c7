#!/bin/bash
# Protected modules on a machine with a GPU: the echo's round trip, a counter that comes and goes, storage and its device
# library, datagrams.
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
    cargo build --release -p bulkhead-cli -p bulkhead-kernel -p bulkhead-libos-cuda -p bulkhead-libos-nvml -p bulkhead-counter -p bulkhead-storage -p bulkhead-nic || exit 1
    cargo build --release -p bulkhead-client --example echo -p bulkhead-nvme --example rate -p bulkhead-storage --example storage_client \
        -p bulkhead-nic --example nic-rate || exit 1
    cp "$target"/release/{bulkhead,bulkhead-kernel,libcuda.so,libnvidia_ml.so,counter,storage,nic} "$target"/release/examples/{echo,rate,storage_client,nic-rate} "$folder/" || exit 1
    strip "$folder"/{bulkhead,bulkhead-kernel,libcuda.so,libnvidia_ml.so,counter,storage,nic,echo,rate,storage_client,nic-rate}
    cp modules/examples/counter/gates.ptx "$folder/counter.ptx" && cp modules/storage/gates.ptx "$folder/storage.ptx" || exit 1
    cp modules/nic/gates.ptx "$folder/nic.ptx" || exit 1
    NVCC=$nvcc "$target/release/bulkhead" module build modules/storage/gates.cu -o "$folder/unchecked.ptx" -- -DSTORAGE_UNCHECKED || exit 1
    $nvcc -gencode arch=compute_75,code=compute_75 -o "$folder/counter-tenant" modules/examples/counter/tenant.cu || exit 1
    for program in storage/tests/{tenant,cached,edges,hits,blocks,workload} examples/{bfs,pagerank}; do
        $nvcc -gencode arch=compute_75,code=compute_75 -I modules/storage/include -o "$folder/storage-${program##*/}" "modules/$program.cu" || exit 1
    done
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
# The software GPU does less of what measures.
few=$([ "$backend" = cuda ] && echo 1 || echo 20)
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
program() { timeout "${limit:-120}" "$bulkhead" run --module "storage=$2" -- "$folder/storage-$1" "${@:3}"; } # PROGRAM EXTENTS ARGUMENT...
tenant() { program tenant "$@"; }

say "echo: a question to the host and its answer"
for _ in 1 2 3; do
    for _ in $(seq 50); do timeout 60 "$folder/echo" > "$work/echo" 2>&1 && break; sleep 0.1; done
    cat "$work/echo"
done
say counter
serve counter "$folder/counter.ptx" "$folder/counter"
check counter "holds 32; then came DONE; RIGHTS (more than the limit); RANGE" "$bulkhead" run --module counter=limit=10 -- "$folder/counter-tenant"
pkill -9 -x counter && sleep 1
check "counter, killed before" "holds 32; then came DONE" "$bulkhead" run --module counter=limit=10 -- "$folder/counter-tenant"
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
say "storage: the cache of pages, arrays, blocks"
check "fill it again" "fill: 0 wrong" tenant write:data fill 5 32768
check "lanes of one set" "lanes: 0 wrong" program cached read:data lanes 5
for pages in 8 64 4096; do check "random elements, $pages pages" "check: 0 wrong" program cached read:data check 5 32768 "$pages"; done
check "write by elements" "write: 0 wrong" program cached write:data@8192+2048 write 6 2048 64
check "check that" "check: 0 wrong" tenant read:data@8192+2048 check 6 2048
check "check what is beside" "check: 0 wrong" tenant read:data@0+8192 check 5 8192
check "all lines in use" "pinned: 0 wrong" program edges read:data pinned 5
check "wrong elements, extents" "errors: 0 wrong" program edges write:data@0+32,read:data@100+64 errors 32
check "write by blocks" "write: 0 wrong" program blocks write:data write 8 32767
check "check by blocks" "check: 0 wrong" program blocks read:data check 8 32767
"$folder/storage-bfs" make "$work/graph" 100000 1500000 3 && dd if="$work/graph" of="$work/data.img" conv=notrunc status=none
for pages in 64 4096; do check "bfs, $pages pages" " 0 wrong" program bfs read:data run "$work/graph" 1 "$pages"; done
check "pagerank" " 0 wrong" program pagerank read:data run "$work/graph" 3 4096
say "storage from the host"
export BULKHEAD_SOCKET
check "put" "bytes were written" "$folder/storage_client" put write:data "$work/graph"
check "get" "bytes were read" "$folder/storage_client" get read:data "$work/graph.back" "$(stat -c %s "$work/graph")"
check "the same" same sh -c "cmp '$work/graph' '$work/graph.back' && echo same"
"$folder/storage_client" rate read:scratch 131072 2
"$folder/storage_client" rate read:data 32768 2
say "storage: cache hits (pages, turns, blocks)"
for blocks in 4 132 1056; do
    [ "$few" -gt 1 ] && [ "$blocks" -gt 4 ] && continue
    limit=20 program hits read:scratch $((4096 / few)) $((200 / few)) "$blocks" 2>&1 | sed "s/^/$blocks blocks: /"
done
say "storage: fio's matrix, checked and not (order, bytes, depth, turns, writes in 100, checked, blocks)"
for place in scratch data; do
    blocks=$([ $place = data ] && echo 32768 || echo 131072)
    program workload "write:$place" fill "$blocks" || ended=1
    while read -r order bytes depth turns writes checked; do
        turns=$((turns > few ? turns / few : 1)) arguments="$order $bytes $depth $turns $writes $checked"
        # shellcheck disable=SC2086
        told=$(program workload "write:$place" run $arguments "$blocks" 2>&1) || ended=1
        printf '%-8s %s\n' $place "$(printf '%s' "$told" | head -n 1)"
        printf '%s' "$told" | grep -q " 0 wrong" || { printf 'FAILED  %s: %s\n' "$arguments" "$told"; ended=1; }
    done << 'MATRIX'
random 512 256 50 30 1
random 4096 256 50 30 1
random 65536 32 20 30 1
random 1048576 8 5 30 1
random 512 256 200 0 0
random 4096 1 200 0 0
random 4096 32 200 0 0
random 4096 256 200 0 0
random 4096 2048 50 0 0
sequential 4096 256 200 0 0
sequential 65536 64 50 0 0
sequential 1048576 16 10 0 0
random 4096 256 200 50 0
random 4096 256 200 100 0
MATRIX
done
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
say "storage with the latency of flash, 80 us: reading and computing, one after the other and overlapped, by warps"
sleep 0.5
serve storage "$folder/storage.ptx" "$folder/storage" --namespace scratch=ram:64MiB --latency 80
for warps in 1 16 64; do
    echo "$warps warps"
    program workload read:scratch overlap $warps $((200 / few)) 131072 || ended=1
done
"$bulkhead" module stop storage || ended=1
say "datagrams"
serve nic "$folder/nic.ptx" "$folder/nic" --allow '127.0.0.1:7000-7999~127.0.0.0/8:7000-7999'
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
    serve nic "$folder/$gates.ptx" "$folder/nic" --allow '127.0.0.1:7000-7999~127.0.0.0/8:7000-7999'
    # Somebody has to be there: what is sent to nobody is answered by errors.
    answers 7900 0
    for threads in 1 32 256 2048; do
        packets=$((64000 / threads))
        printf '%-14s %6s  %s\n' "$gates" "$threads" "$(nic 'udp:7107~127.0.0.1:7900' rate $packets $threads 2>&1 | tail -n 1)"
    done
    gone
done
"$bulkhead" module stop nic; sleep 0.5
serve nic "$folder/nic.ptx" "$folder/nic" --allow '127.0.0.1:7000-7999~127.0.0.0/8:7000-7999'
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
