#!/bin/bash
# How long a session of 40 GiB takes to host memory and back, against pinned copies, on a machine with a GPU.
#
#   tests/gpu/suspend.sh FOLDER [GIB]   FOLDER is what `tests/gpu/torch.sh --carry` made
#
# Ends with 0 where the memory is as it was, 77 where there is no GPU or no PyTorch, 1 otherwise.
set -u
folder=$(cd "${1:?the folder that was carried}" && pwd)
gib=${2:-40}
bulkhead=$folder/bulkhead
[ "$("$bulkhead" doctor --backend)" = cuda ] || { echo "skipped: no GPU"; exit 77; }
python3 -c 'import torch' 2> /dev/null || { echo "skipped: no PyTorch"; exit 77; }
work=$(mktemp -d)
mkdir -m 700 "$work/run"
export BULKHEAD_SOCKET=$work/run/kernel.sock
"$bulkhead" serve --backend cuda --runtime-directory "$work/run" --swap-memory "$((gib + 4))GiB" 2> "$work/serve.log" &
server=$!
trap 'kill $server; wait $server; rm -rf "$work"' EXIT
for _ in $(seq 400); do [ -S "$BULKHEAD_SOCKET" ] && break; sleep 0.05; done
python3 - <<'EOF'
import time, torch
host, there = torch.empty(4 << 30, dtype=torch.uint8, pin_memory=True), torch.empty(4 << 30, dtype=torch.uint8, device="cuda")
for name, to, of in [("to the host", host, there), ("to the device", there, host)]:
    to.copy_(of); torch.cuda.synchronize(); begun = time.perf_counter()
    for _ in range(4): to.copy_(of, non_blocking=True)
    torch.cuda.synchronize()
    print(f"pinned copies natively, {name}: {4 * host.nbytes / (time.perf_counter() - begun) / 1e9:.1f} GB/s")
EOF
mkfifo "$work/go"
"$bulkhead" run --domain isolated -- python3 - "$gib" "$work/go" > "$work/out" 2> "$work/err" <<'EOF' &
import sys, torch
parts = [torch.arange(1 << 27, device="cuda", dtype=torch.int64) + k for k in range(int(sys.argv[1]))]
torch.cuda.synchronize()
print("ready", flush=True)
open(sys.argv[2]).read()
print("right" if all((part - k == torch.arange(1 << 27, device="cuda")).all().item() for k, part in enumerate(parts)) else "WRONG", flush=True)
EOF
program=$!
for _ in $(seq 600); do grep -q ready "$work/out" && break; sleep 0.1; done
id=$("$bulkhead" status --json | python3 -c 'import json, sys; print([s["id"] for s in json.load(sys.stdin)["sessions"] if s["domain"] == "isolated"][0])')
for round in 1 2; do
    for what in suspend resume; do
        begun=$(date +%s.%N)
        "$bulkhead" $what "$id" || { echo "FAILED: $what"; tail -n 5 "$work/serve.log"; exit 1; }
        python3 -c "import sys, time; s = time.time() - float(sys.argv[1]); print(f'round $round, $what: {s:.2f} s, {$gib * 2**30 / s / 1e9:.1f} GB/s')" "$begun"
        [ $what = resume ] || nvidia-smi --query-gpu=memory.used --format=csv,noheader
    done
done
echo go > "$work/go"
wait $program
tail -n 1 "$work/out"
grep -q right "$work/out"
