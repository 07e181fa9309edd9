#!/usr/bin/env python3
"""Whether sweeps reproduce within the confidence that they state: the same sweep many times over, and how often the intervals of two in a
row meet. On tmpfs, on the file system of DIR, and through slowfs with a rate of its own. As root; mounts are in a namespace of their own.

  benches/reproduce.py [DIR]        ROUNDS=20 BIN=target/release
"""

import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
BIN = pathlib.Path(os.environ.get("BIN", ROOT / "target/release")).resolve()
ROUNDS = int(os.environ.get("ROUNDS", "20"))
# The median of n values errs so much more than their mean; Student's t for n - 1. As sweep/statistics.rs has it.
T = {3: 4.303, 5: 2.776}
REPEAT = 5
CASES = [
    ("write 1 MiB", ["--transfer", "1MiB", "--time", "200ms"]),
    ("write 4 KiB", ["--transfer", "4KiB", "--time", "200ms"]),
    ("create", ["--pattern", "mdtest-easy", "--time", "200ms"]),
]

if "FOREBAY_BENCH_NAMESPACE" not in os.environ:
    os.environ["FOREBAY_BENCH_NAMESPACE"] = "1"
    os.execvp("unshare", ["unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--mount-proc",
                          sys.executable, *sys.argv])


def sweep(place, words):
    """The stated rate and half its interval."""
    command = [BIN / "forebay", "limits", "sweep", "--target", place, "-M", "1", "-N", "2", "--repeat", str(REPEAT), "--warm-up", "1",
               "--quiet", "--json", *words]
    told = json.loads(subprocess.run(command, check=True, capture_output=True, stdin=subprocess.DEVNULL).stdout)
    runs = told["results"]["runs"]
    rates = [run["rate"] for run in runs if run["kind"] == runs[0]["kind"]]
    half = 1.2533 * T[len(rates)] * statistics.stdev(rates) / len(rates) ** 0.5
    return statistics.median(rates), half


scratch = tempfile.mkdtemp(prefix="forebay-reproduce-", dir=sys.argv[1] if len(sys.argv) > 1 else "/tmp")
places = {name: f"{scratch}/{name}" for name in ("tmpfs", "disk", "lower", "slowfs")}
try:
    for place in places.values():
        os.mkdir(place)
    for name in ("tmpfs", "lower"):
        subprocess.run(["mount", "-t", "tmpfs", "x", places[name]], check=True)
    subprocess.run([BIN / "slowfs", places["lower"], places["slowfs"], "--bandwidth", "40MB/s", "--metadata-time", "1ms"], check=True)
    print(f"{'on':8} {'what':12} {'median of +-':>13} {'largest difference':>19}  intervals of two in a row that meet")
    for name in ("tmpfs", "disk", "slowfs"):
        for what, words in CASES:
            found = [sweep(places[name], words) for _ in range(ROUNDS)]
            pairs = list(zip(found, found[1:]))
            met = sum(abs(a[0] - b[0]) <= a[1] + b[1] for a, b in pairs)
            apart = max(abs(a[0] - b[0]) / a[0] for a, b in pairs)
            width = statistics.median(half / rate for rate, half in found)
            print(f"{name:8} {what:12} {width:13.1%} {apart:19.1%}  {met} of {len(pairs)}", flush=True)
    print(f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}, Linux {os.uname().release}, {REPEAT} runs a sweep")
finally:
    for name in ("slowfs", "lower", "tmpfs"):
        subprocess.run(["umount", "--lazy", places[name]], stderr=subprocess.DEVNULL)
    shutil.rmtree(scratch, ignore_errors=True)
