#!/usr/bin/env bash
# What acceleration costs and gives, as ratios to the bare file system that holds the burst buffer, both measured in the
# same run, turn about, ROUNDS times each: medians, and the spread between the slowest and the fastest round.
#
#   benches/all.sh [CASE...]        ROUNDS=3 FOREBAY_BENCH_DIR=/tmp FILES=100000
#
# Run it on an idle machine. The table is printed and kept in target/bench/table; raw values in target/bench/values.
set -u
cd "$(dirname "$0")/.." || exit 1
# shellcheck source=scripts/environment.sh
. scripts/environment.sh
if [ -z "${FOREBAY_BENCH_NAMESPACE:-}" ]; then
  sudo=()
  [ "$(id -u)" = 0 ] || sudo=(sudo --preserve-env=PATH,HOME,ROUNDS,FILES,FOREBAY_BENCH_DIR)
  exec "${sudo[@]}" env FOREBAY_BENCH_NAMESPACE=1 \
    timeout --kill-after=20 3000 unshare --mount --propagation private --pid --fork --kill-child --mount-proc "$0" "$@"
fi

ROUNDS=${ROUNDS:-3}
FILES=${FILES:-100000}
forebay=${FOREBAY:-$PWD/target/release/forebay}
out=$PWD/target/bench
scratch=$(mktemp -d "${FOREBAY_BENCH_DIR:-/tmp}/forebay-bench-XXXXXX")
bare=$scratch/bare dir=$scratch/dir buffer=$scratch/buffer
export LC_ALL=C
mkdir -p "$out" "$bare" "$dir" "$buffer"
: >"$out/values"

clean_up() {
  umount --lazy "$dir" 2>/dev/null
  rm -rf --one-file-system "$scratch"
}
trap clean_up EXIT

now() { date +%s.%N; }
since() { awk -v a="$1" -v b="$(now)" 'BEGIN { printf "%.4f", b - a }'; }
value() { echo "$*" >>"$out/values"; } # CASE UNIT BETTER SIDE VALUE

accelerate() { # [RULE...]
  local rules=() rule
  for rule in "$@"; do rules+=(--policy "$rule"); done
  "$forebay" mount "$dir" --burst-buffer "$buffer" "${rules[@]}" >"$out/mount.log" 2>&1 </dev/null ||
    { cat "$out/mount.log" && exit 1; }
}
decelerate() { "$forebay" umount "$dir" >"$out/umount.log" 2>&1 </dev/null || { cat "$out/umount.log" && exit 1; }; }
drain() { "$forebay" drain --wait "$dir" >"$out/drain.log" 2>&1 </dev/null || { cat "$out/drain.log" && exit 1; }; }
at() { if [ "$1" = bare ]; then echo "$bare"; else echo "$dir"; fi; }

# Both sides, turn about, so that a drift of the machine falls on both.
both() { # FUNCTION ARGUMENT...
  local round
  for round in $(seq "$ROUNDS"); do
    if [ $((round % 2)) = 1 ]; then
      "$1" bare "${@:2}" && "$1" forebay "${@:2}"
    else
      "$1" forebay "${@:2}" && "$1" bare "${@:2}"
    fi
  done
}

fio_rate() { # FILE RW SIZE BS -> MB/s
  fio --name=bench --filename="$1" --rw="$2" --size="$3" --bs="$4" --ioengine=psync --fallocate=none --invalidate=0 \
    --randrepeat=1 --output-format=json </dev/null |
    python3 -c 'import json, sys
job = json.load(sys.stdin)["jobs"][0]
print(round(max(job["read"]["bw_bytes"], job["write"]["bw_bytes"]) / 1e6, 1))'
}

write_new() { # SIDE: a new file each time
  rm -f "$(at "$1")/new"
  value "write 128 KiB, new file" MB/s more "$1" "$(fio_rate "$(at "$1")/new" write 512m 128k)"
  rm -f "$(at "$1")/new"
}
on_complete() { # SIDE LABEL RW SIZE BS: a file that is there, and in the page cache
  value "$2" MB/s more "$1" "$(fio_rate "$(at "$1")/complete" "$3" "$4" "$5")"
}
calls() { # SIDE LABEL OPERATION
  value "$2" us less "$1" "$("$scratch/calls" "$3" "$(at "$1")/many" 1000 20000)"
}

bench_data() {
  accelerate stage_out=manual
  both write_new
  for side in bare forebay; do
    dd if=/dev/urandom of="$(at $side)/complete" bs=1M count=512 status=none
    cat "$(at $side)/complete" >/dev/null
  done
  both on_complete "write 128 KiB, complete file" write 512m 128k
  both on_complete "read 128 KiB, complete file" read 512m 128k
  both on_complete "random read 8 KiB" randread 128m 8k
  both on_complete "random write 8 KiB" randwrite 128m 8k
  rm -f "$bare/complete" "$dir/complete"
  decelerate
}

bench_calls() {
  gcc -O2 -o "$scratch/calls" benches/calls.c || exit 1
  accelerate stage_out=close
  for side in bare forebay; do
    mkdir -p "$(at $side)/many"
    "$scratch/calls" create "$(at $side)/many" 1000 1000 >/dev/null
  done
  drain
  both calls "stat, warm" stat
  both calls "open, read 4 KiB, close" open
  both calls "create, write 4 KiB, close" create
  rm -rf "$bare/many" "$dir/many"
  decelerate
}

stage_out() { # SIDE: the burst buffer's bytes to the global store, durably
  local began
  if [ "$1" = bare ]; then
    rm -f "$bare/copied" && sync -f "$bare" && began=$(now)
    dd if="$bare/whole" of="$bare/copied" bs=1M conv=fsync status=none
  else
    rm -f "$dir/whole" && cp "$bare/whole" "$dir/whole" && sync -f "$bare" && began=$(now)
    drain
  fi
  value "stage-out of 1 GB against dd conv=fsync" MB/s more "$1" "$(since "$began" | awk '{ printf "%.1f", 1073.7 / $1 }')"
}

small_files() { # SIDE: 10,000 files of 4 KiB, until they are safe in the global store
  local began
  rm -rf "$(at "$1")/small" && sync -f "$bare" && began=$(now)
  cp -a "$scratch/small" "$(at "$1")/small"
  if [ "$1" = bare ]; then sync -f "$bare"; else drain; fi
  value "10,000 files of 4 KiB against cp -a; sync -f" s less "$1" "$(since "$began")"
}

bench_drain() {
  dd if=/dev/urandom of="$bare/whole" bs=1M count=1024 status=none
  accelerate stage_out=manual
  both stage_out
  rm -f "$bare/whole" "$bare/copied" "$dir/whole"
  mkdir "$scratch/small"
  for n in $(seq 10000); do head -c 4096 /dev/zero >"$scratch/small/$n"; done
  both small_files
  rm -rf "$bare/small" "$dir/small" "$scratch/small"
  decelerate
}

# The largest agent there is, in MB.
agent_memory() {
  local pid
  for pid in $(pgrep -x forebay); do
    awk '/^VmRSS/ { print $2 / 1000 }' "/proc/$pid/status"
  done | sort -n | tail -n 1
}

bench_scale() {
  gcc -O2 -o "$scratch/calls" benches/calls.c || exit 1
  accelerate stage_out=close keep_after=1h
  mkdir -p "$dir/many"
  "$scratch/calls" create "$dir/many" "$FILES" "$FILES" >/dev/null
  drain
  "$scratch/calls" open "$dir/many" "$FILES" "$FILES" >/dev/null
  value "agent's memory with $FILES files" MB less forebay "$(agent_memory)"
  decelerate
  local round began
  for round in $(seq "$ROUNDS"); do
    began=$(now)
    accelerate stage_out=close keep_after=1h
    stat "$dir/many/0" >/dev/null
    value "start with $FILES records, to the first stat" s less forebay "$(since "$began")"
    decelerate
  done
}

# shellcheck source=benches/preload.sh
. benches/preload.sh
[ $# -gt 0 ] || set -- data calls drain scale preload
for bench in "$@"; do
  echo "measuring: $bench" >&2
  "bench_$bench"
  rm -rf "${buffer:?}" && mkdir "$buffer"
done
{
  echo "$(date -u +%F), Linux $(uname -r), $(nproc) processors, $(stat -f -c %T "$scratch"), $ROUNDS rounds, $(git describe --always --dirty 2>/dev/null)"
  python3 benches/table.py "$out/values"
} | tee "$out/table"
