#!/usr/bin/env bash
# What `forebay limits watch` costs the watched program: a process for each processor, all busy with sums and small files, so that
# nothing is left for the watcher to use; with it and without, turn about, ROUNDS times. The median of the ratios of neighbours, and, since a
# percent is less than two runs of the same differ by, the processor time that the watcher's own threads took (schedstat).
#
#   benches/watch.sh        ROUNDS=15 BIN=target/release
set -u
cd "$(dirname "$0")/.." || exit 1
# shellcheck source=scripts/environment.sh
. scripts/environment.sh
bin=${BIN:-$PWD/target/release}
exec python3 - "$bin/forebay" "${ROUNDS:-15}" <<'PYTHON'
import glob, os, statistics, subprocess, sys, tempfile, time

forebay, rounds = sys.argv[1], int(sys.argv[2])
WORK = """
import hashlib, os, sys
data, place = bytes(1 << 20), sys.argv[1]
children = []
for number in range(os.cpu_count()):
    if (child := os.fork()) == 0:
        for turn in range(700):
            hashlib.sha256(data).digest()
            name = f"{place}/{number}.{turn}"
            for _ in range(40):
                with open(name, "wb") as file:
                    file.write(data[:4096])
                os.unlink(name)
        os._exit(0)
    children.append(child)
sys.exit(any(os.waitpid(child, 0)[1] for child in children))
"""

def seconds(prefix, place):
    began = time.monotonic()
    subprocess.run([*prefix, sys.executable, "-c", WORK, place], check=True, stderr=subprocess.DEVNULL)
    return time.monotonic() - began

def own_share(prefix, place):
    """Of the processors' time while the program ran, what the watcher itself had."""
    began, ran = time.monotonic(), 0
    watcher = subprocess.Popen([*prefix, sys.executable, "-c", WORK, place], stderr=subprocess.DEVNULL)
    while watcher.poll() is None:
        try:
            files = glob.glob(f"/proc/{watcher.pid}/task/*/schedstat")
            ran = max(ran, sum(int(open(file).read().split()[0]) for file in files))
        except (OSError, IndexError):
            pass # a thread that ended meanwhile
        time.sleep(0.1)
    return ran / 1e9 / (time.monotonic() - began) / os.cpu_count()

with tempfile.TemporaryDirectory(dir="/dev/shm") as place:
    watch = [forebay, "limits", "watch", "--"]
    seconds(watch, place)
    pairs = []
    for number in range(rounds):
        sides = [(), watch] if number % 2 else [watch, ()]
        took = {bool(side): seconds(side, place) for side in sides}
        pairs.append((took[False], took[True]))
    shares = [own_share(watch, place) for _ in range(3)]
ratios = sorted(watched / alone for alone, watched in pairs)
alone = statistics.median(pair[0] for pair in pairs)
print("alone %.2f s, watched over alone: median %.4f, %.3f to %.3f (%d rounds, %d processors, load %.1f)" % (
    alone, statistics.median(ratios), ratios[0], ratios[-1], rounds, os.cpu_count(), os.getloadavg()[0]))
print("the watcher itself had %.2f %% of the processors (3 runs, %.2f to %.2f)" % tuple(
    100 * share for share in (statistics.median(shares), min(shares), max(shares))))
PYTHON
