#!/usr/bin/env bash
# Unmodified programs on a slow global store, first directly, then accelerated in the same paths; every file they leave
# is compared by checksum. Prints one table. Needs root; everything is mounted in a private namespace and removed.
#
#   demo/demo.sh [PROGRAM...]      BANDWIDTH=120MB/s LATENCY=2ms are what the slow store is made to do; POLICY=negative_timeout=1s
set -u
cd "$(dirname "$0")/.." || exit 1
# shellcheck source=scripts/environment.sh
. scripts/environment.sh
if [ -z "${FOREBAY_DEMO_NAMESPACE:-}" ]; then
  sudo=()
  [ "$(id -u)" = 0 ] || sudo=(sudo --preserve-env=PATH,HOME,BANDWIDTH,LATENCY,POLICY)
  # Process 1 of the namespace is this script; when it ends, whatever is left of the demonstration ends with it.
  FOREBAY_DEMO_NAMESPACE=1 exec "${sudo[@]}" env FOREBAY_DEMO_NAMESPACE=1 \
    timeout --kill-after=20 1500 unshare --mount --propagation private --pid --fork --kill-child --mount-proc "$0" "$@"
fi

BANDWIDTH=${BANDWIDTH:-120MB/s}
LATENCY=${LATENCY:-2ms}
PROGRAM_SECONDS_MAX=240
# Nobody else makes names in this store.
POLICY=${POLICY:-negative_timeout=1s}
top=$PWD
bin=$top/target/debug
scratch=$(mktemp -d "${FOREBAY_DEMO_DIR:-/tmp}/forebay-demo-XXXXXX") || exit 1
export LC_ALL=C TZ=UTC INPUT=$scratch/input TOP=$top HOME=$scratch/home
mkdir -p "$INPUT" "$HOME" "$scratch/lower" "$scratch/store" "$scratch/buffer"
store=$scratch/store

clean_up() {
  unmount_below "$scratch"
  [ -n "${slowfs:-}" ] && kill "$slowfs" 2>/dev/null
  rm -rf --one-file-system "$scratch"
}
trap clean_up EXIT

start_store() {
  "$bin/slowfs" "$scratch/lower" "$store" --bandwidth "$BANDWIDTH" --latency "$LATENCY" --foreground >"$scratch/slowfs.log" 2>&1 &
  slowfs=$!
  local tries
  for tries in $(seq 200); do
    mountpoint -q "$store" && return 0
    sleep 0.05
  done
  echo "the slow store did not start:" && cat "$scratch/slowfs.log" && exit 1
}

# Sources of our own dependencies, as cargo has them: the 300 largest files below 200 KB.
make_input() {
  local registry=${CARGO_HOME:-$(getent passwd "$(id -u)" | cut -d: -f6)/.cargo}/registry/src crate
  # shellcheck disable=SC2044
  for crate in $(sed -n '/^name = /{s/.*"\(.*\)"/\1/;N;s/\n.*"\(.*\)"/-\1/;p}' Cargo.lock); do
    find "$registry" -path "*/$crate/*" -type f -size -200k -printf '%s %P\n' 2>/dev/null
  done | sort -k 1,1nr -k 2 -u | head -n 300 | cut -d' ' -f2 | sort >"$scratch/list"
  tar -C "$registry" --owner=0 --group=0 --mtime=@0 -cf "$INPUT/sources.tar" --files-from="$scratch/list"
}

drop_caches() { sync && echo 3 >/proc/sys/vm/drop_caches; }

# Removing thousands of files from the slow store is no part of the demonstration.
set_aside() { mv "$store/data" "$store/aside.$((asides += 1))"; }
asides=0

manifest() { # DIR, of the store's lower directory: what has arrived
  (cd "$1" && find . -type l -printf '%p -> %l\n' | sort
    find . -type f ! -path '*/.git/index' -print0 | sort -z | xargs -0 -r sha256sum)
}

now() { date +%s.%N; }

# One program in one directory. Writes the seconds it took, as the program saw it, to a file outside.
cat >"$scratch/timed" <<'TIMED'
began=$(date +%s.%N)
cd "$1" && timeout --kill-after=5 "$4" bash "$2" || exit
echo "$began $(date +%s.%N)" | awk '{ printf "%.2f\n", $2 - $1 }' >"$3"
TIMED

run_one() { # PROGRAM
  local name=$1 script=$top/demo/programs/$1.sh dir=$store/data buffer=$scratch/buffer/$1 began direct perceived drained megabytes verdict=yes
  mkdir -p "$dir" && drop_caches
  if ! bash "$scratch/timed" "$dir" "$script" "$scratch/seconds" $PROGRAM_SECONDS_MAX >"$scratch/$name.direct" 2>&1; then
    echo "$name failed on the store itself:" && tail -n 5 "$scratch/$name.direct"
    bad=1
    return
  fi
  direct=$(cat "$scratch/seconds")
  manifest "$scratch/lower/data" >"$scratch/$name.want"
  megabytes=$(du --apparent-size -s -B 1 "$scratch/lower/data" | awk '{ printf "%.0f", $1 / 1e6 }')
  set_aside && mkdir "$dir" && drop_caches

  mkdir "$buffer" && began=$(now)
  if ! "$bin/forebay" run --quiet --policy "$POLICY" --dir "$dir" --burst-buffer "$buffer" -- \
    bash "$scratch/timed" "$dir" "$script" "$scratch/seconds" $PROGRAM_SECONDS_MAX >"$scratch/$name.accelerated" 2>&1 </dev/null; then
    echo "$name failed under forebay run:" && tail -n 20 "$scratch/$name.accelerated"
    bad=1
    return
  fi
  drained=$(awk -v a="$began" -v b="$(now)" 'BEGIN { printf "%.2f", b - a }')
  perceived=$(cat "$scratch/seconds")
  manifest "$scratch/lower/data" >"$scratch/$name.have"
  diff "$scratch/$name.want" "$scratch/$name.have" >"$scratch/$name.diff" || { verdict=NO && bad=1; }
  local files
  files=$(wc -l <"$scratch/$name.want")
  set_aside
  awk -v n="$name" -v f="$files" -v m="$megabytes" -v d="$direct" -v p="$perceived" -v r="$drained" -v v="$verdict" 'BEGIN {
    printf "%-12s %6d %6d %9.2f %7.1f %9.2f %8.1f %9.2f %7.1f %7.2fx  %s\n", n, f, m, d, m / d, p, m / p, r, m / r, d / p, v }'
  [ "$verdict" = yes ] || head -n 10 "$scratch/$name.diff"
}

bad=0
start_store
make_input
[ $# -gt 0 ] || set -- unpack pack checkpoint parallel git database
echo "The store: $BANDWIDTH, $LATENCY a request (slowfs). The burst buffer: $(stat -f -c %T "$scratch") on $(nproc) processors, load $(cut -d ' ' -f 1 /proc/loadavg)."
echo "direct: the program on the store; perceived: accelerated (--policy $POLICY), until it ends; drained: until all is in the store."
echo
printf '%-12s %6s %6s %9s %7s %9s %8s %9s %7s %8s  %s\n' program files MB direct MB/s perceived MB/s drained MB/s gain same
printf '%-12s %6s %6s %9s %7s %9s %8s %9s %7s %8s  %s\n' "" "" "" s "" s "" s "" "" files
for program in "$@"; do
  run_one "$program"
done
echo
if [ $bad = 0 ]; then
  echo "Every file is the same. Gain: direct over perceived."
else
  echo "Something is wrong, see above."
fi
exit $bad
