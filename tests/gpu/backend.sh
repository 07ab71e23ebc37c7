#!/bin/sh
# Runs the device trait's contract and the probe of the CUDA backend on a machine with a GPU.
#
#   tests/gpu/backend.sh FOLDER
#
# FOLDER holds the release examples `contract` and `probe` of bulkhead-cuda. Ends with 0 where both pass, 77 where there
# is no device, 1 otherwise. BULKHEAD_PTXAS names ptxas where it is neither on the path nor in /usr/local/cuda/bin.
set -u
folder=${1:?the folder of the release examples}
ended=0
summary=""
for program in contract probe; do
    echo "== $program"
    timeout 240 "$folder/$program"
    code=$?
    case $code in
        0) verdict=pass ;;
        77) verdict=skipped; if [ "$ended" -eq 0 ]; then ended=77; fi ;;
        124) verdict="FAILED (took longer than 240 s)"; ended=1 ;;
        *) verdict="FAILED (code $code)"; ended=1 ;;
    esac
    summary="$summary$program: $verdict
"
done
echo "== summary"
printf '%s' "$summary"
exit "$ended"
