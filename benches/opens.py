#!/usr/bin/env python3
"""Where the time of `open, read 4 KiB, close` of complete files goes: bare, over an empty FUSE server, over Forebay.

    benches/opens.py [FOREBAY...]       ROUNDS=9 TIMES=5000 FOREBAY_BENCH_DIR=/tmp

Run as root. All sides turn about; medians, and the fastest and slowest round, in microseconds. `run` is time on a
processor, `wait` time in a run queue behind others, per open, from /proc/PID/schedstat: what is neither is waking.
"""

import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROUNDS, TIMES = int(os.environ.get("ROUNDS", 9)), int(os.environ.get("TIMES", 5000))
FILES = 1000
HERE = pathlib.Path(__file__).resolve().parent


def run(*words):
    return subprocess.run(list(map(str, words)), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True).stdout


def on_processor(pid):
    """Microseconds that all threads of a process ran and waited to run."""
    total = [0.0, 0.0]
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        ran, waited, _ = map(int, (task / "schedstat").read_text().split())
        total[0] += ran / 1e3
        total[1] += waited / 1e3
    return total


def measure(calls, side, pid):
    before = on_processor(pid) if pid else [0, 0]
    client = subprocess.Popen([calls, "open", side, str(FILES), str(TIMES)], stdout=subprocess.PIPE, text=True)
    own = [0.0, 0.0]
    while client.poll() is None:
        try:
            own = on_processor(client.pid)
        except (OSError, ValueError):
            pass
        time.sleep(0.005)
    after = on_processor(pid) if pid else [0, 0]
    server = [(b - a) / TIMES for a, b in zip(before, after)]
    return [float(client.stdout.read()), *server, own[0] / TIMES, own[1] / TIMES]


def alike(pid):
    """The agent is a session of its own: it gets the priority that the scheduler gives to this one."""
    try:
        nice = pathlib.Path("/proc/self/autogroup").read_text().split()[-1]
        pathlib.Path(f"/proc/{pid}/autogroup").write_text(nice)
    except OSError:
        pass


def accelerated(forebay, scratch, name):
    side, buffer = scratch / name, scratch / f"{name}-buffer"
    side.mkdir(), buffer.mkdir()
    run(forebay, "mount", side, "--burst-buffer", buffer, "--policy", "stage_out=close", "--policy", "revalidate=60s")
    agents = [p for p in run("pgrep", "-f", f"mount {side}").split() if p != str(os.getpid())]
    alike(int(agents[0]))
    return side, int(agents[0])


def main():
    if "FOREBAY_BENCH_NAMESPACE" not in os.environ:
        os.environ["FOREBAY_BENCH_NAMESPACE"] = "1"
        apart = "unshare --mount --propagation private --pid --fork --kill-child --mount-proc".split()
        os.execvp(apart[0], [*apart, sys.executable, *sys.argv])
    binaries = sys.argv[1:] or [HERE.parent / "target/release/forebay"]
    scratch = pathlib.Path(tempfile.mkdtemp(prefix="forebay-opens-", dir=os.environ.get("FOREBAY_BENCH_DIR", "/tmp")))
    calls, empty = scratch / "calls", scratch / "empty_fuse"
    run("gcc", "-O2", "-o", calls, HERE / "calls.c")
    run("gcc", "-O2", "-o", empty, HERE / "empty_fuse.c")
    for name in ("bare", "empty"):
        (scratch / name).mkdir()
    server = subprocess.Popen([empty, scratch / "empty", scratch / "backing"])
    time.sleep(0.3)
    sides = [("bare", scratch / "bare", 0), ("empty FUSE server", scratch / "empty", server.pid)]
    for number, forebay in enumerate(binaries):
        forebay = pathlib.Path(forebay).resolve()
        sides.append((str(forebay), *accelerated(forebay, scratch, f"forebay{number}")))
    for name, side, _ in sides:
        if name != "empty FUSE server":
            run(calls, "create", side, FILES, FILES)
    for forebay, (_, side, _) in zip(binaries, sides[2:]):
        run(forebay, "drain", "--wait", side)
    values = {name: [] for name, _, _ in sides}
    for _ in range(ROUNDS):
        for name, side, pid in sides:
            values[name].append(measure(calls, side, pid))
    print(f"{'us per open, read, close':<40} median    min    max | server run  wait | client run  wait")
    for name, rows in values.items():
        middle = [statistics.median(column) for column in zip(*rows)]
        times = [row[0] for row in rows]
        print(f"{name[-40:]:<40} {middle[0]:6.1f} {min(times):6.1f} {max(times):6.1f} |"
              f" {middle[1]:10.1f} {middle[2]:5.1f} | {middle[3]:10.1f} {middle[4]:5.1f}")
    for forebay, (_, side, _) in zip(binaries, sides[2:]):
        run(forebay, "umount", side)
    run("umount", scratch / "empty")
    server.wait()
    shutil.rmtree(scratch)


main()
