#!/usr/bin/env bash
# What `forebay limits watch` costs the watched program: a process for each processor, all busy with sums and small files, so that
# nothing is left for the watcher to use. One program runs all the time; its watcher is stopped and continued (SIGSTOP, SIGCONT) in turn,
# SLICE seconds each, and what the program did in each slice is counted: neighbours differ by nothing else, and whatever else the
# machine does meets both alike. The median of what was done with the watcher over what was done without in neighbouring slices, each with its
# 95 % confidence interval (bootstrap): in a second; and in a second of processor time that the program got (schedstat), where what other
# programs take does not count. What that leaves out, the processor time that the watcher's own threads took, is told as well.
#
#   benches/watch.sh        SLICES=400 SLICE=0.5 BIN=target/release
set -u
cd "$(dirname "$0")/.." || exit 1
# shellcheck source=scripts/environment.sh
. scripts/environment.sh
bin=${BIN:-$PWD/target/release}
exec python3 - "$bin/forebay" "${SLICES:-400}" "${SLICE:-0.5}" <<'PYTHON'
import glob, mmap, os, random, signal, statistics, struct, subprocess, sys, tempfile, time

forebay, slices, length = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
WORK = """
import hashlib, mmap, os, struct, sys
data, place = bytes(1 << 16), sys.argv[1]
with open(f"{place}/done", "r+b") as file:
    done = mmap.mmap(file.fileno(), 0)
for number in range(os.cpu_count()):
    if os.fork() == 0:
        units, name = 0, f"{place}/{number}"
        struct.pack_into("<Q", done, number * 64 + 8, os.getpid())
        while not os.path.exists(f"{place}/end"):
            for _ in range(8):
                hashlib.sha256(data).digest()
                for _ in range(3):
                    with open(name, "wb") as file:
                        file.write(data[:4096])
                    os.unlink(name)
                units += 1
                struct.pack_into("<Q", done, number * 64, units)
        os._exit(0)
for _ in range(os.cpu_count()):
    os.wait()
"""

def own_ns(process):
    files = glob.glob(f"/proc/{process}/task/*/schedstat")
    return sum(int(open(file).read().split()[0]) for file in files)

with tempfile.TemporaryDirectory(dir="/dev/shm") as place:
    with open(f"{place}/done", "wb") as file:
        file.write(bytes(64 * os.cpu_count()))
    with open(f"{place}/done", "r+b") as file:
        done = mmap.mmap(file.fileno(), 0)
    cells = lambda at: [struct.unpack_from("<Q", done, number * 64 + at)[0] for number in range(os.cpu_count())]
    watch = [forebay, "limits", "watch", "--", sys.executable, "-c", WORK, place]
    watcher = subprocess.Popen(watch, stderr=subprocess.DEVNULL)
    time.sleep(2)
    had = lambda: sum(own_ns(process) for process in cells(8))
    rates, each, ran, watched_s = {True: [], False: []}, {True: [], False: []}, own_ns(watcher.pid), 0
    for pair in range(slices // 2):
        # Each comes first in every other pair.
        for watched in (True, False) if pair % 2 else (False, True):
            watcher.send_signal(signal.SIGCONT if watched else signal.SIGSTOP)
            before, spent, at = sum(cells(0)), had(), time.monotonic()
            time.sleep(length)
            took, spent, did = time.monotonic() - at, had() - spent, sum(cells(0)) - before
            rates[watched].append(did / took)
            each[watched].append(did / spent)
            watched_s += took if watched else 0
    watcher.send_signal(signal.SIGCONT)
    share = (own_ns(watcher.pid) - ran) / 1e9 / watched_s / os.cpu_count()
    open(f"{place}/end", "w").close()
    if watcher.wait() != 0:
        sys.exit("the program failed")
chance = random.Random(1)
for what, found in (("a second", rates), ("a second of its processor time", each)):
    ratios = [watched / alone for watched, alone in zip(found[True], found[False])]
    medians = sorted(statistics.median(chance.choices(ratios, k=len(ratios))) for _ in range(2000))
    print("done in %s, with the watcher over without: median %.4f, 95 %% within %.4f to %.4f" % (
        what, statistics.median(ratios), medians[50], medians[1950]))
print("%d pairs of %.1f s, %d processors, load %.1f" % (slices // 2, length, os.cpu_count(), os.getloadavg()[0]))
print("the watcher itself had %.2f %% of the processors while it ran" % (100 * share))
PYTHON
