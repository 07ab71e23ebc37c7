"""Times that programs print themselves, native runs against Bulkhead's: most benchmarks tell how long their kernels took."""

import math
import re

# What tells a time: a number and its unit, in brackets or not.
TIME = re.compile(
    r"(?<![\w.])(?P<number>\d+\.?\d*(?:[eE][-+]?\d+)?)\s*[\[(]?\s*"
    r"(?P<unit>ns|nsec|nanoseconds|us|usec|microseconds|ms|msec|milliseconds|s|sec|secs|seconds)(?![\w/])")
UNIT_US = {"n": 1e-3, "u": 1.0, "mi": 1.0, "ms": 1e3, "mil": 1e3, "s": 1e6}
# Below this launches are what is timed, and a clock's steps show.
LEAST_US = 20.0


def printed(output):
    """The times that an output tells, by the line around each and how often that line came before: {key: microseconds}.

    >>> [round(us, 3) for us in printed("kernel 1: 12.5 (us)\\nkernel 2: 3e-3 (s), again 4 ms\\n7 MB/s, 9 steps").values()]
    [12.5, 3000.0, 4000.0]
    >>> [printed(f"2 {unit}")["# " + unit, 0, 0] for unit in ("nsec", "microseconds", "msec", "milliseconds", "secs")]
    [0.002, 2.0, 2000.0, 2000.0, 2000000.0]
    """
    found = {}
    for line in output.splitlines():
        for place, match in enumerate(TIME.finditer(line)):
            words = re.sub(r"[\d.]+(?:[eE][-+]?\d+)?", "#", line).strip()
            count = 0
            while (words, place, count) in found:
                count += 1
            found[words, place, count] = float(match["number"]) * microseconds(match["unit"])
    return found


def microseconds(unit):
    for length in (3, 2, 1):
        if unit[:length] in UNIT_US:
            return UNIT_US[unit[:length]]
    raise ValueError(unit)


def least(outputs):
    """The least of each time that all of these outputs tell."""
    tables = [printed(output) for output in outputs]
    keys = set(tables[0]).intersection(*tables[1:]) if tables else set()
    return {key: min(table[key] for table in tables) for key in keys}


def compare(native, ours):
    """How much longer Bulkhead's runs say that they took, for each time of 20 us or more that both tell.

    >>> [(row["line"], row["ratio"]) for row in compare(["a: 40 us\\nb: 5 us", "a: 50 us\\nb: 5 us"], ["a: 60 us\\nb: 9 us"])]
    [('a: # us', 1.5)]
    """
    native, ours = least(native), least(ours)
    rows = []
    for key in sorted(set(native) & set(ours)):
        if native[key] >= LEAST_US and ours[key] > 0:
            rows.append({"line": key[0][:120], "native_us": native[key], "us": ours[key], "ratio": ours[key] / native[key]})
    return rows


def mean(ratios):
    """The geometric mean."""
    ratios = list(ratios)
    return math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else None


def summary(results):
    """Lines that tell how the times of all programs compare."""
    means = {result["program"]: mean(row["ratio"] for row in result["times"]) for result in results if result.get("times")}
    if not means:
        return []
    lines = ["", f"times of {len(means)} programs against native, geometric mean: {mean(means.values()):.3f}"]
    for name, ratio in sorted(means.items(), key=lambda item: -item[1])[:25]:
        if ratio < 1.05:
            break
        rows = next(result["times"] for result in results if result["program"] == name)
        worst = max(rows, key=lambda row: row["ratio"])
        lines.append(f"  {ratio:6.3f}  {name}, {len(rows)} times; {worst['native_us']:.0f} us became {worst['us']:.0f}: {worst['line']}")
    return lines
