#!/usr/bin/env python3
"""What the load generators of `forebay limits sweep`, fio and mdtest do for one operation: system calls, by strace, and time in user
space, by the kernel's account of the processes. The calls are counts, the same on a busy machine. Each program is run for N and for
2 N operations; the difference, over N, is one operation's. The times are of the best of ROUNDS, with TIMES as many operations.

  MDTEST=ior/src/mdtest benches/counts.py        BIN=target/release N=2000 TIMES=50 ROUNDS=5 (see metadata.sh for how mdtest is built)
"""

import collections
import os
import pathlib
import re
import resource
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOREBAY = os.path.join(os.environ.get("BIN", ROOT / "target/release"), "forebay")
MDTEST = os.environ.get("MDTEST", "mdtest")
N = int(os.environ.get("N", "2000"))
TIMES = int(os.environ.get("TIMES", "50"))
ROUNDS = int(os.environ.get("ROUNDS", "5"))
# Calls that belong to an operation whoever does it.
OWN = {"open", "pwrite64", "pread64", "write", "read", "openat", "close", "newfstatat", "statx", "stat", "lstat", "unlink", "unlinkat"}


def sweep(place, *words):
    return [FOREBAY, "limits", "sweep", "--target", place, "-M", "1", "-N", "1", "--repeat", "1", "--warm-up", "0", "--time", "600s",
            "--quiet", *words]


def fio(place, block, count):
    return ["fio", "--name=x", f"--directory={place}", "--rw=write", f"--bs={block}", f"--size={block * count}", "--ioengine=psync",
            "--end_fsync=1", "--fallocate=none", "--create_on_open=1", "--unlink=1", "--thread=0"]


def mdtest(place, count, *words):
    return [MDTEST, "-d", f"{place}/mdtest", "-n", str(count), "-F", "-C", "-T", "-r", *words]


CASES = [
    ("write of 4 KiB", "ours", lambda p, n: sweep(p, "--transfer", "4KiB", "--size", str(4096 * n))),
    ("write of 4 KiB", "fio", lambda p, n: fio(p, 4096, n)),
    ("write of 1 MiB", "ours", lambda p, n: sweep(p, "--transfer", "1MiB", "--size", str((n // 10) << 20))),
    ("write of 1 MiB", "fio", lambda p, n: fio(p, 1 << 20, n // 10)),
    ("create, stat, delete", "ours", lambda p, n: sweep(p, "--pattern", "mdtest-easy", "--files", str(n))),
    ("create, stat, delete", "mdtest", lambda p, n: mdtest(p, n, "-u", "-L")),
    ("create of 3901 B, stat, read, delete", "ours", lambda p, n: sweep(p, "--pattern", "mdtest-hard", "--files", str(n))),
    ("create of 3901 B, stat, read, delete", "mdtest", lambda p, n: mdtest(p, n, "-E", "-w", "3901", "-e", "3901")),
]


def run(words):
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(words)}\n{done.stdout}{done.stderr}")


def calls(words, scratch):
    out = f"{scratch}/calls"
    run(["strace", "-f", "-qq", "-c", "-U", "name,calls", "-o", out, *words])
    found = collections.Counter()
    for line in open(out):
        if match := re.match(r"\s*(\w+)\s+(\d+)\s*$", line):
            found[match[1]] += int(match[2])
    found.pop("total", None)
    return found


def user_ns(words, scratch):
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    run(words)
    return (resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before) * 1e9


print(f"{'one operation':38} {'program':8} {'its calls':>10} {'other calls':>12} {'user ns':>8}")
for what, program, command in CASES:
    if not shutil.which(command("/", 1)[0]):
        print(f"{what:38} {program:8} is missing")
        continue
    with tempfile.TemporaryDirectory(dir="/dev/shm") as scratch:
        place = f"{scratch}/target"
        count = N // 10 if "1 MiB" in what else N

        def of(n, how):
            os.mkdir(place)
            found = how(command(place, n), scratch)
            shutil.rmtree(place)
            return found

        few, many = of(N, calls), of(2 * N, calls)
        grown = {name: (number - few[name]) / count for name, number in many.items()}
        own = sum(value for name, value in grown.items() if name in OWN)
        other = {name: value for name, value in grown.items() if name not in OWN and value >= 0.01}
        if count != N:
            print(f"{what:38} {program:8} {own:10.2f} {sum(other.values()):12.2f} {'':8}  {other or ''}")
            continue
        times = TIMES
        most = min(of(2 * N * times, user_ns) for _ in range(ROUNDS))
        each = (most - min(of(N * times, user_ns) for _ in range(ROUNDS))) / (count * times)
        print(f"{what:38} {program:8} {own:10.2f} {sum(other.values()):12.2f} {each:8.0f}  {other or ''}")
