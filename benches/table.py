"""Medians of the values that all.sh wrote, side by side, with their spread and ratio."""

import re
import statistics
import sys

cases = {}
for line in open(sys.argv[1]):
    case, unit, better, side, value = re.match(r"(.*) (\S+) (more|less) (bare|forebay) (\S+)$", line).groups()
    cases.setdefault((case, unit, better), {}).setdefault(side, []).append(float(value))


def spread(values):
    return f"{statistics.median(values):10.2f} {(max(values) - min(values)) / max(statistics.median(values), 1e-9):5.0%}"


print(f"{'':64} {'unit':5} {'bare':>10} {'+-':>5} {'forebay':>10} {'+-':>5}  of bare")
for (case, unit, better), sides in cases.items():
    bare, ours = sides.get("bare"), sides["forebay"]
    ratio = ""
    if bare:
        ratio = statistics.median(ours) / statistics.median(bare)
        ratio = f"{ratio:6.2f}x" + ("" if better == "more" else " (less is better)")
    print(f"{case:64} {unit:5} {spread(bare) if bare else '-':>16} {spread(ours)}  {ratio}")
