#!/usr/bin/env bash
# Metadata rates of `forebay limits sweep` beside mdtest, started by MPI: the same number of processes and files, the IO500's easy
# and hard definitions, turn about, ROUNDS times, medians of the ratios of neighbours. On tmpfs and the file system of DIR. mdtest is no
# part of this tree; with Debian's mpich, libmpich-dev, autoconf, automake, pkg-config and make it is built by
#
#   git clone https://github.com/hpc/ior && cd ior && ./bootstrap && CC=mpicc ./configure && make
#   MDTEST=ior/src/mdtest benches/metadata.sh [DIR]        ROUNDS=5 FILES=20000 (a process) PROCESSES="1 2" PLACES="tmpfs disk" SETTLE=1
#
# PRIORITY=-20 puts both sides before whatever else runs: on a busy machine they come to the rates of an idle one.
set -u
cd "$(dirname "$0")/.." || exit 1
# shellcheck source=scripts/environment.sh
. scripts/environment.sh
if [ -z "${FOREBAY_BENCH_NAMESPACE:-}" ]; then
  exec env FOREBAY_BENCH_NAMESPACE=1 unshare --mount --propagation private --pid --fork --kill-child --mount-proc "$0" "$@"
fi
ROUNDS=${ROUNDS:-5}
FILES=${FILES:-20000}
SETTLE=${SETTLE:-1}
first=(nice -n "${PRIORITY:-0}")
bin=${BIN:-$PWD/target/release}
for program in "${MPIRUN:=mpirun}" "${MDTEST:=mdtest}" "$bin/forebay"; do
  command -v "$program" >/dev/null || { echo "$program is missing: see the head of $0" >&2 && exit 69; }
done
scratch=$(mktemp -d "${1:-/tmp}/forebay-metadata-XXXXXX") || exit 1
mkdir "$scratch"/{tmpfs,disk}
clean_up() {
  umount --lazy "$scratch/tmpfs" 2>/dev/null
  rm -rf --one-file-system "$scratch"
}
trap clean_up EXIT
mount -t tmpfs -o size=4G,nr_inodes=0 x "$scratch/tmpfs" || exit 1

# As many files made and removed before each side: a virtual machine's memory may have gone back to the host meanwhile, and whoever
# makes inodes first would pay for getting it again.
warm() { # DIR PROCESSES
  python3 -c '
import os, sys
os.mkdir(sys.argv[1])
names = ["%s/%d" % (sys.argv[1], number) for number in range(int(sys.argv[2]))]
for name in names:
    os.close(os.open(name, os.O_CREAT | os.O_WRONLY))
for name in names:
    os.unlink(name)
os.rmdir(sys.argv[1])' "$1/warm" $((FILES * $2))
}
# One line each: PHASE RATE.
mdtest_rates() { # DIR PATTERN PROCESSES
  local words=(-F -C -T -r -N 1)
  [ "$2" = mdtest-easy ] && words+=(-u -L) || words+=(-E -w 3901 -e 3901)
  "${first[@]}" "$MPIRUN" -np "$3" "$MDTEST" -d "$1/mdtest" -n "$FILES" "${words[@]}" </dev/null >"$scratch/mdtest.out"
  awk '/^ *File (creation|stat|read|removal) / && $3 > 0 { print $2, $3 }' "$scratch/mdtest.out" |
    sed 's/creation/create/; s/read/fetch/; s/removal/delete/'
  rm -rf "$1/mdtest"
}
our_rates() { # DIR PATTERN PROCESSES
  "${first[@]}" "$bin/forebay" limits sweep --target "$1" -M 1 -N "$3" --repeat 1 --warm-up 0 --pattern "$2" --files "$FILES" --time 60s \
    --quiet --json </dev/null >"$scratch/ours.json" # into a file: a Python that starts beside the first phase takes a processor from it
  python3 -c 'import json, sys; [print(run["kind"], run["rate"]) for run in json.load(sys.stdin)["results"]["runs"]]' <"$scratch/ours.json"
}

printf '%-6s %-12s %3s %-7s %10s %10s %6s  %s\n' on pattern N phase "mdtest 1/s" "ours 1/s" ratio "lowest to highest"
for place in ${PLACES:-tmpfs disk}; do
  for pattern in mdtest-easy mdtest-hard; do
    for processes in ${PROCESSES:-1 2}; do
      for round in $(seq "$ROUNDS"); do
        sides=(mdtest our)
        [ $((round % 2)) = 0 ] && sides=(our mdtest)
        for side in "${sides[@]}"; do
          warm "$scratch/$place" "$processes"
          sleep "$SETTLE"
          "${side}_rates" "$scratch/$place" $pattern "$processes" | sed "s/^/$side /"
        done
      done | python3 -c '
import collections, statistics, sys
rates = collections.defaultdict(lambda: collections.defaultdict(list))
for line in sys.stdin:
    side, phase, rate = line.split()
    rates[phase][side].append(float(rate))
for phase, sides in rates.items():
    if len(sides["mdtest"]) != len(sides["our"]):
        sys.exit("mdtest and the sweep did not tell the same phases of %s: %s" % (phase, dict(sides)))
    ratios = sorted(ours / theirs for theirs, ours in zip(sides["mdtest"], sides["our"]))
    middle = statistics.median
    print("%-6s %-12s %3s %-7s %10.0f %10.0f %6.2f  %.2f to %.2f" % (*sys.argv[1:], phase, middle(sides["mdtest"]),
          middle(sides["our"]), middle(ratios), ratios[0], ratios[-1]))' "$place" $pattern "$processes"
    done
  done
done
echo "$(nproc) processors, load $(cut -d' ' -f1 /proc/loadavg), Linux $(uname -r), $(stat -f -c %T "$scratch/disk") as disk, $ROUNDS rounds of $FILES files a process"
