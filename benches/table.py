"""Medians of the values that all.sh wrote, side by side, with their spread and ratio."""

import re
import statistics
import sys

def at_least(bound):
    return f"at least {bound:.2f}x", lambda bare, ours: ours / bare >= bound


def at_most(bound):
    return f"at most {bound:.2f}x", lambda bare, ours: ours / bare <= bound


def no_slower_than(bound):
    return f"at least {bound:.2f} of direct", lambda bare, ours: bare / ours >= bound


def more_by(bound, unit):
    return f"at most {bound} {unit} more", lambda bare, ours: ours - bare <= bound


# What the project set itself, by case and unit.
BARS = {
    ("acknowledged write of 8 KiB", "us"): (
        "at most 0.5 us and 0.40x",
        lambda bare, ours: ours <= 0.5 and ours / bare <= 0.4,
    ),
    ("acknowledged write of 128 KiB", "us"): at_most(0.5),
    ("1 GiB in writes of 128 KiB, until synced", "MB/s"): at_least(0.9),
    ("four writers of 47,008 bytes, until synced", "MB/s"): at_least(0.9),
    ("random read 4 KiB, preloaded", "MB/s"): at_least(1.0),
    ("lseek on another file, preloaded", "ns"): more_by(15, "ns"),
    ("pread on another file, preloaded", "ns"): more_by(15, "ns"),
    ("pwrite on another file, preloaded", "ns"): more_by(15, "ns"),
    ("start of a process, preloaded", "us"): more_by(1000, "us"),
    ("128 KiB writes to a server, two threads", "MB/s"): at_least(0.8),
    ("8 KiB writes to a server, one thread", "1/s"): at_least(0.6),
    **{
        (case, "s"): no_slower_than(0.95)
        for case in ("find -printf", "grep -r", "tar", "cp -r", "rm -r", "rsync in", "rsync out")
    },
}

cases = {}
for line in open(sys.argv[1]):
    case, unit, better, side, value = re.match(r"(.*) (\S+) (more|less) (bare|forebay) (\S+)$", line).groups()
    cases.setdefault((case, unit, better), {}).setdefault(side, []).append(float(value))


def spread(values):
    return f"{statistics.median(values):10.2f} {(max(values) - min(values)) / max(statistics.median(values), 1e-9):5.0%}"


print(f"{'':64} {'unit':5} {'bare':>10} {'+-':>5} {'forebay':>10} {'+-':>5}  of bare")
kept, missed = 0, []
for (case, unit, better), sides in cases.items():
    bare, ours = sides.get("bare"), sides["forebay"]
    ratio = bar = ""
    if bare:
        medians = statistics.median(bare), statistics.median(ours)
        ratio = f"{medians[1] / medians[0]:6.2f}x" + ("" if better == "more" else " (less is better)")
        if (case, unit) in BARS:
            words, keeps = BARS[case, unit]
            bar = f"  bar: {words}: " + ("kept" if keeps(*medians) else "MISSED")
            if keeps(*medians):
                kept += 1
            else:
                missed.append(case)
    print(f"{case:64} {unit:5} {spread(bare) if bare else '-':>16} {spread(ours)}  {ratio}{bar}")
if kept or missed:
    print(f"bars: {kept} kept, {len(missed)} missed" + "".join(f"; {case}" for case in missed))
