#!/bin/bash
# What isolated sessions are bound by, and what they print, on a machine with a GPU and nvcc.
#
#   tests/gpu/isolation.sh FOLDER   FOLDER as tests/gpu/torch.sh --carry makes it
#
# Ends with 0 where all is as it should be, 77 where there is no GPU or no nvcc, 1 otherwise.
set -u
here=$(cd "$(dirname "$0")" && pwd)
folder=$(cd "${1:?the folder that was carried}" && pwd)
bulkhead=$folder/bulkhead
[ "$("$bulkhead" doctor --backend)" = cuda ] || { echo "skipped: no GPU"; exit 77; }
nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
[ -x "$nvcc" ] || { echo "skipped: no nvcc"; exit 77; }
work=$(mktemp -d)
server=
trap '[ -z "$server" ] || { kill $server; wait $server; }; rm -rf "$work"' EXIT
failed=0
check() { # NAME CODE [WORDS]: 0 is right
    if [ "$2" -eq 0 ]; then printf 'ok      %-50s %s\n' "$1" "${3:-}"; else failed=1; printf 'FAILED  %-50s %s\n' "$1" "${3:-}"; fi
}
serve() { # OPTION...
    if [ -n "$server" ]; then kill "$server"; wait "$server"; fi
    rm -rf "$work/run"
    mkdir -m 700 "$work/run"
    export BULKHEAD_SOCKET=$work/run/kernel.sock
    "$bulkhead" serve --backend cuda --runtime-directory "$work/run" "$@" 2> "$work/serve.log" &
    server=$!
    for _ in $(seq 400); do [ -S "$BULKHEAD_SOCKET" ] && break; sleep 0.05; done
}
isolated() { timeout 100 "$bulkhead" run --domain isolated -- "$@"; }
# Machine code alone, so that the driver has to print.
for name in prints takes; do
    # An array of 3 GiB has a shadow on the host.
    "$nvcc" -cudart shared -Xcompiler -mcmodel=large -gencode arch=compute_90,code=sm_90 -o "$work/$name" "$here/isolation/$name.cu" || exit 1
done

# Blocks of one kernel print in any order; what comes before those of many blocks, and last, does not.
same() { # FILE FILE
    cmp -s <(head -n 9 "$1") <(head -n 9 "$2") && cmp -s <(tail -n 1 "$1") <(tail -n 1 "$2") && cmp -s <(sort "$1") <(sort "$2")
}
serve
"$nvcc" -cudart shared -gencode arch=compute_90,code=compute_90 -o "$work/code_later" "$here/../programs/code_later.cu" || exit 1
"$nvcc" -cubin -arch=sm_90 -o "$work/code_later.cubin" "$here/../programs/code_later.cu" || exit 1
timeout 100 "$bulkhead" run -- "$work/code_later" "$work/code_later.cubin" > "$work/ours" 2> "$work/err"
check "a program goes on isolated when machine code comes" $? "$(cat "$work/ours"), $(grep -c 'from here on' "$work/err") line"
isolated "$work/code_later" > "$work/ours" 2> "$work/err"
check "an image that is cut off is refused, and no more" $? "$(cat "$work/ours"), $(grep -c 'ended its session' "$work/err") sessions ended"
"$work/prints" > "$work/native"
isolated "$work/prints" > "$work/ours" 2> "$work/err"
same "$work/native" "$work/ours"
check "what kernels print comes where it does natively" $? "$(wc -l < "$work/ours") of $(wc -l < "$work/native") lines"
"$work/prints" fails > "$work/native" 2> "$work/native.err"
isolated "$work/prints" fails > "$work/ours" 2> "$work/err"
same "$work/native" "$work/ours"
check "the same where an assertion fails then" $? "$(wc -l < "$work/ours") of $(wc -l < "$work/native") lines"
[ "$(grep Assertion "$work/native.err" | sort)" = "$(grep Assertion "$work/err" | sort)" ] && grep -q Assertion "$work/err"
check "NVIDIA's words on it reach the program" $? "$(grep -c Assertion "$work/err") lines; $(grep '^bulkhead' "$work/err" | head -n 1 | cut -c1-100)"
# A process that is nobody's session keeps a descriptor of 4 GiB whose maker is gone.
"$nvcc" -o "$work/orphans" "$here/isolated/orphans.cu" -lcuda -lnvidia-ml -L"$(dirname "$nvcc")/../lib64/stubs" 2> /dev/null || exit 1
unclaimed() { "$bulkhead" status --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["devices"][0]["unclaimed_bytes"] >> 20)'; }
before=$(unclaimed)
DESCRIPTOR_ONLY=1 HOLD=6 "$work/orphans" > "$work/ours" &
program=$!
for _ in $(seq 100); do grep -q "descriptor is there" "$work/ours" && break; sleep 0.1; done
sleep 4.5
during=$(unclaimed)
wait $program
sleep 3.5
after=$(unclaimed)
[ "$before" = 0 ] && [ "$after" = 0 ] && [ "$during" -ge 4000 ] && [ "$during" -le 4300 ]
check "memory that nobody has is not promised to sessions" $? "$before, $during, $after MiB; $(grep -c 'taken by no process' "$work/serve.log") line"
isolated "$work/takes" 6 > "$work/ours" 2>&1 &
program=$!
sleep 5
charged=$("$bulkhead" status --session takes --json | python3 -c '
import json, sys
def find(value):
    if isinstance(value, dict):
        if value.get("name") == "device_bytes": yield value["used"]
        if isinstance(value.get("device_bytes"), dict): yield value["device_bytes"]["used"]
        for one in value.values(): yield from find(one)
    elif isinstance(value, list):
        for one in value: yield from find(one)
print(max(find(json.load(sys.stdin)), default=0) >> 20)')
wait $program
[ "$charged" -ge 3584 ] && grep -q right "$work/ours"
check "arrays of an image are charged" $? "$charged MiB are, of which 3,072 are arrays; $(tail -n 1 "$work/ours")"

"$nvcc" -O2 -arch=sm_90 -o "$work/textures" "$here/../programs/textures.cu" && isolated "$work/textures" > "$work/ours" 2>&1
grep -q '^PASS' "$work/ours"
check "textures and surfaces are the device's" $? "$(tail -n 1 "$work/ours")"

if command -v nvidia-smi > /dev/null && python3 -c 'import torch' 2> /dev/null; then
    PAUSE=5 BITS=28 isolated python3 "$here/../torch/shared.py" > "$work/ours" 2> "$work/err" &
    program=$!
    sleep 11
    echo "NVML, of two processes that share 1 GiB: $(nvidia-smi --query-compute-apps=pid,used_memory --format=csv,noheader | tr '\n' ';')"
    "$bulkhead" status | tail -n 3
    wait $program
    check "processes share tensors" $? "$(tr '\n' ' ' < "$work/ours") $(grep '^bulkhead' "$work/err" | head -n 2 | cut -c1-200)"
fi

serve --session-limit device_bytes=2GiB
isolated "$work/takes" 12 > "$work/ours" 2> "$work/err"
code=$?
[ $code -eq 3 ] && grep -q "its process has taken" "$work/serve.log"
check "who takes more than it may is ended" $? "$(cat "$work/ours") $(grep '^bulkhead' "$work/err" | head -n 1 | cut -c1-120)"
isolated "$work/prints" > "$work/ours" 2> "$work/err"
check "and others open as ever" $?

if [ "$(id -u)" = 0 ]; then
    # The folder has to be everybody's to run the executor as another user.
    chmod 755 "$folder"
    serve --executor-uids 70000-70003
    isolated "$work/takes" 2 > "$work/ours" 2> "$work/err" &
    program=$!
    sleep 1.5
    executor=$(pgrep -U 70000 | head -n 1)
    wait $program
    code=$?
    [ -n "$executor" ] && [ $code -eq 0 ]
    check "an executor as a user of its own works" $? "process ${executor:-none}; $(cat "$work/ours") $(head -n 1 "$work/err" | cut -c1-200)"
    parent=/sys/fs/cgroup/bulkhead-test
    if [ -f /sys/fs/cgroup/cgroup.controllers ] && mkdir "$parent" 2> /dev/null &&
        echo "+memory +pids" > "$parent/cgroup.subtree_control" 2> /dev/null; then
        serve --executor-cgroup "$parent" --executor-memory 4GiB
        isolated "$work/takes" 2 > "$work/ours" 2> "$work/err" &
        program=$!
        sleep 1.5
        held=$(cat "$parent"/bulkhead-*/cgroup.procs 2> /dev/null | wc -l)
        bounds=$(cat "$parent"/bulkhead-*/memory.max "$parent"/bulkhead-*/pids.max 2> /dev/null | tr '\n' ' ')
        used=$(cat "$parent"/bulkhead-*/memory.peak "$parent"/bulkhead-*/pids.peak 2> /dev/null | tr '\n' ' ')
        wait $program
        code=$?
        sleep 1
        left=$(find "$parent" -mindepth 1 -type d | wc -l)
        [ "$held" = 1 ] && [ $code -eq 0 ] && [ "$left" = 0 ]
        check "an executor in a cgroup of its own works" $? "held $held, bounds $bounds, peaks $used, left $left; $(cat "$work/ours")"
        kill $server; wait $server; server=
        rmdir "$parent"
    else
        echo "skipped an executor in a cgroup of its own: no cgroup can be made"
        rmdir "$parent" 2> /dev/null
    fi
fi
[ $failed -eq 0 ] || tail -n 8 "$work/serve.log" | cut -c1-250
exit $failed
