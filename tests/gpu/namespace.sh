#!/bin/bash
# Stock PyTorch in an isolated session, in a mount namespace without the GPU's device nodes and without NVIDIA's driver library.
#
#   tests/gpu/namespace.sh FOLDER   FOLDER is what `tests/gpu/torch.sh --carry` made
#
# Ends with 0 where it computes, 77 where there is no GPU or no PyTorch, 1 otherwise.
set -u
folder=$(cd "${1:?the folder that was carried}" && pwd)
bulkhead=$folder/bulkhead
[ "$("$bulkhead" doctor --backend)" = cuda ] || { echo "skipped: no GPU"; exit 77; }
work=$(mktemp -d)
mkdir -m 700 "$work/run"
export BULKHEAD_SOCKET=$work/run/kernel.sock
"$bulkhead" serve --backend cuda --runtime-directory "$work/run" 2> "$work/serve.log" &
server=$!
trap 'kill $server; wait $server; rm -rf "$work"' EXIT
for _ in $(seq 400); do [ -S "$BULKHEAD_SOCKET" ] && break; sleep 0.05; done
: > "$work/empty"
# What is there of the driver is covered by an empty file.
hide='for file in /dev/nvidia* $(ldconfig -p | sed -n "s/.*=> \(.*libcuda\.so.*\|.*libnvidia-ml\.so.*\)/\1/p" | xargs -r readlink -f | sort -u); do
    [ -f "$file" ] || [ -c "$file" ] && mount --bind "$EMPTY" "$file"
done; exec "$@"'
ones='import torch; print(torch.ones(3, device="cuda") + 1, torch.randn(512, 512, device="cuda").matmul(torch.eye(512, device="cuda")).shape)'
native=$(EMPTY=$work/empty timeout 60 unshare -m sh -c "$hide" sh python3 -c "$ones" 2>&1) && { echo "FAILED: it runs natively, so nothing is hidden"; exit 1; }
printf 'natively, hidden: %s\n' "$(printf '%s' "$native" | tail -n 1 | cut -c1-120)"
EMPTY=$work/empty timeout 60 unshare -m sh -c "$hide" sh "$bulkhead" run -- python3 -c "$ones" 2> "$work/err" || { echo FAILED; tail -n 5 "$work/err"; exit 1; }
