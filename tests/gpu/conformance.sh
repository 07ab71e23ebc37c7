#!/bin/bash
# What a GPU computes for each case of tests/conformance, which the software GPU is held against.
#
#   tests/gpu/conformance.sh --carry FOLDER         here: copies what the device machine needs into FOLDER
#   tests/gpu/conformance.sh FOLDER [--out FILE]    there: writes the values to FILE (h200.txt)
#
# Ends with 0 where all cases were recorded, 77 where there is no GPU, 1 otherwise. Needs Python 3 and NVIDIA's driver.
set -u
if [ "${1:-}" = --carry ]; then
    folder=${2:?the folder to carry}
    cd "$(dirname "$0")/../conformance" || exit 1
    mkdir -p "$folder" && cp conformance.py cases.txt inputs.txt "$folder/"
    exit
fi
folder=$(cd "${1:?the folder that was carried}" && pwd)
out=h200.txt
[ "${2:-}" = --out ] && out=${3:?a file}
[ -e /dev/nvidiactl ] || { echo "skipped: no GPU"; exit 77; }
exec python3 "$folder/conformance.py" record "$out"
