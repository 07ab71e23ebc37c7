#!/bin/bash
# What a GPU computes for each case of tests/conformance, which the software GPU is held against.
#
#   tests/gpu/conformance.sh --carry FOLDER        here: puts what the device machine needs into FOLDER
#   tests/gpu/conformance.sh FOLDER [--out TO]     there: writes h200.txt and generated.txt, to the folder TO
#
# The second file has a hash of what each of the random programs of softgpu/tests/generated.rs left.
# Ends with 0 where all cases were recorded, 77 where there is no GPU, 1 otherwise. Needs Python 3 and NVIDIA's driver.
set -u
if [ "${1:-}" = --carry ]; then
    folder=${2:?the folder to carry}
    mkdir -p "$folder/programs" && folder=$(cd "$folder" && pwd) && cd "$(dirname "$0")/../conformance" || exit 1
    cp conformance.py cases.txt inputs.txt "$folder/" || exit 1
    cd ../.. && BULKHEAD_PROGRAMS=$folder/programs exec cargo test -p bulkhead-softgpu --test generated write -- --ignored
fi
folder=$(cd "${1:?the folder that was carried}" && pwd)
to=.
[ "${2:-}" = --out ] && to=${3:?a folder}
[ -e /dev/nvidiactl ] || { echo "skipped: no GPU"; exit 77; }
python3 "$folder/conformance.py" record "$to/h200.txt" || exit 1
exec python3 "$folder/conformance.py" programs "$folder/programs" "$to/generated.txt"
