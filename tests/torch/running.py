"""Runs workloads by name: a line of results each on standard output, how long each took on standard error."""

import sys
import time
import traceback


def main(workloads, names):
    """Runs those named, or all; `--list` prints the names. The number of those that failed."""
    if "--list" in names:
        print(*workloads)
        return 0
    failed = 0
    for name in names or workloads:
        begun = time.monotonic()
        try:
            line = workloads[name]()
        except ImportError as error:
            line = f"not here: {error}"
        except Exception as error:  # noqa: BLE001
            failed += 1
            traceback.print_exc(limit=3)
            line = f"FAILED {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        print(f"{name}: {line}", flush=True)
        print(f"{name}: {time.monotonic() - begun:.2f} s", file=sys.stderr)
    return failed
