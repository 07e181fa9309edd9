#!/usr/bin/env bash
# What `forebay limits watch` costs the watched program: a process for each processor, all busy with sums and small files, so that
# nothing is left for the watcher to use; with it and without, turn about, ROUNDS times. The median of the ratios of neighbours.
#
#   benches/watch.sh        ROUNDS=15 BIN=target/release
set -u
cd "$(dirname "$0")/.." || exit 1
# shellcheck source=scripts/environment.sh
. scripts/environment.sh
bin=${BIN:-$PWD/target/release}
exec python3 - "$bin/forebay" "${ROUNDS:-15}" <<'PYTHON'
import os, statistics, subprocess, sys, tempfile, time

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

with tempfile.TemporaryDirectory(dir="/dev/shm") as place:
    watch = [forebay, "limits", "watch", "--"]
    seconds(watch, place)
    pairs = []
    for number in range(rounds):
        sides = [(), watch] if number % 2 else [watch, ()]
        took = {bool(side): seconds(side, place) for side in sides}
        pairs.append((took[False], took[True]))
ratios = sorted(watched / alone for alone, watched in pairs)
alone = statistics.median(pair[0] for pair in pairs)
print("alone %.2f s, watched over alone: median %.4f, %.3f to %.3f (%d rounds, %d processors, load %.1f)" % (
    alone, statistics.median(ratios), ratios[0], ratios[-1], rounds, os.cpu_count(), os.getloadavg()[0]))
PYTHON
