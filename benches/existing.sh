#!/usr/bin/env bash
# Programs that work in an existing directory of a slow global store: directly, accelerated, and with the directory leased
# (`delegate=lease`). Turn about, ROUNDS times, each with a fresh copy of the tree below, nothing cached and a new mount. Prints the
# medians of the seconds that each step took, and what is left until everything is in the store.
#
#   benches/existing.sh        ROUNDS=3 FILES=2000 DIRECTORIES=40 LATENCY=2ms
set -u
cd "$(dirname "$0")/.." || exit 1
# shellcheck source=scripts/environment.sh
. scripts/environment.sh
if [ -z "${FOREBAY_BENCH_NAMESPACE:-}" ]; then
  exec env FOREBAY_BENCH_NAMESPACE=1 unshare --mount --propagation private --pid --fork --kill-child --mount-proc "$0" "$@"
fi
ROUNDS=${ROUNDS:-3}
FILES=${FILES:-2000}
DIRECTORIES=${DIRECTORIES:-40}
LATENCY=${LATENCY:-2ms}
bin=${BIN:-$PWD/target/release}
scratch=$(mktemp -d "${1:-/tmp}/forebay-existing-XXXXXX") || exit 1
export HOME=$scratch/home LC_ALL=C
mkdir -p "$HOME" "$scratch"/{first,lower,store,buffer}
git config --global user.email you@example.org
git config --global user.name You
git config --global init.defaultBranch main

clean_up() {
  unmount_below "$scratch"
  [ -n "${slowfs:-}" ] && kill "$slowfs" 2>/dev/null
  rm -rf --one-file-system "$scratch"
}
trap clean_up EXIT

python3 - "$scratch/first" "$FILES" "$DIRECTORIES" <<'PYTHON'
import os, sys
top, files, directories = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
for number in range(files):
    place = f"{top}/directory {number % directories}"
    os.makedirs(place, exist_ok=True)
    with open(f"{place}/file {number}", "w") as file:
        file.write(f"line of file {number}\n" * 150)
PYTHON
(cd "$scratch/first" && git init -q && git add -A && git commit -qm first) || exit 1

step() { # WAY NAME COMMAND...
  local way=$1 name=$2 began
  shift 2
  began=$(date +%s.%N)
  (cd "$scratch/store/data" && "$@" >"$scratch/out" 2>&1) || { echo "$way: $name failed:" && cat "$scratch/out" && exit 1; }
  echo "$name $way $(awk -v began="$began" -v ended="$(date +%s.%N)" 'BEGIN { print ended - began }')" >>"$scratch/seconds"
}

change_some() {
  local number
  for number in $(seq 0 20 $((FILES - 1))); do
    echo changed >>"directory $((number % DIRECTORIES))/file $number"
  done
}
make_new() {
  local number
  for number in $(seq 200); do echo new >"directory $((number % DIRECTORIES))/new $number"; done
}

steps() { # WAY
  step "$1" list find . -path ./.git -prune -o -ls
  step "$1" again find . -path ./.git -prune -o -ls
  step "$1" search grep -rl "file 77$" --exclude-dir=.git .
  step "$1" status git status --short
  step "$1" change change_some
  step "$1" create make_new
  step "$1" commit git -c gc.auto=0 commit -qam second
  step "$1" checkout git checkout -q HEAD~1
}

one() { # WAY
  rm -rf "$scratch/lower/data" "$scratch/buffer" && mkdir "$scratch/buffer"
  cp -a "$scratch/first" "$scratch/lower/data" && sync && echo 3 >/proc/sys/vm/drop_caches
  "$bin/slowfs" "$scratch/lower" "$scratch/store" --latency "$LATENCY" --foreground >"$scratch/slowfs.log" 2>&1 &
  slowfs=$!
  until mountpoint -q "$scratch/store"; do kill -0 "$slowfs" || exit 1 && sleep 0.05; done
  if [ "$1" != direct ]; then
    "$bin/forebay" mount --burst-buffer "$scratch/buffer" "$scratch/store/data" --policy negative_timeout=1s \
      --policy "delegate=$([ "$1" = leased ] && echo lease || echo off)" >"$scratch/out" 2>&1 || { cat "$scratch/out" && exit 1; }
  fi
  steps "$1"
  if [ "$1" != direct ]; then
    step "$1" drain "$bin/forebay" drain --wait "$scratch/store/data"
    "$bin/forebay" umount "$scratch/store/data" >/dev/null || exit 1
  fi
  (cd "$scratch/lower/data" && git status --porcelain >/dev/null && find . -path ./.git -prune -o -type f -print0 | sort -z |
    xargs -0 sha256sum | sha256sum) >>"$scratch/contents"
  umount "$scratch/store" && wait "$slowfs"
  slowfs=
}

for _ in $(seq "$ROUNDS"); do
  for way in direct off leased; do one "$way" || exit 1; done
done
[ "$(sort -u "$scratch/contents" | wc -l)" = 1 ] || { echo "the trees differ afterwards" && exit 1; }
python3 - "$scratch/seconds" <<'PYTHON'
import statistics, sys
took = {}
for line in open(sys.argv[1]):
    name, way, seconds = line.split()
    took.setdefault(name, {}).setdefault(way, []).append(float(seconds))
print(f"{'s':10}{'directly':>10}{'not leased':>12}{'leased':>10}{'gain':>8}{'spread':>8}")
for name, ways in took.items():
    middle = {way: statistics.median(all) for way, all in ways.items()}
    spread = max((max(all) - min(all)) / statistics.median(all) for all in ways.values())
    direct, leased = middle.get("direct"), middle.get("leased")
    gain = f"{direct / leased:.1f}" if direct else ""
    told = [f"{middle[way]:.2f}" if way in middle else "" for way in ("direct", "off", "leased")]
    print(f"{name:10}{told[0]:>10}{told[1]:>12}{told[2]:>10}{gain:>8}{100 * spread:>7.0f}%")
PYTHON
