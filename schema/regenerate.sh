#!/usr/bin/env bash
# Makes schema.cgr anew from the schemas. Needs the `capnp` binary (Debian: capnproto), which a build does not.
set -euo pipefail
cd "$(dirname "$0")"
out=${1:-schema.cgr}
capnp compile -o- bulkhead.capnp executor.capnp compile.capnp operator.capnp > "$out"
