#!/usr/bin/env bash
# What acceleration costs and gives, as ratios to the same work without it, both measured in the same run, turn about,
# ROUNDS times each: medians, and the spread between the slowest and the fastest round.
#
#   benches/all.sh [CASE...]        ROUNDS=3 FOREBAY_BENCH_DIR=/tmp FOREBAY_BENCH_FAST=/dev/shm FILES=100000 RECORDS=10000000
#
# Burst buffer and global store are two file systems of their own: ext4 on images, that of the burst buffer in
# FOREBAY_BENCH_FAST (memory), that of the global store in FOREBAY_BENCH_DIR (a disk). A directory that is no memory
# and no image can be given instead: FOREBAY_BENCH_FAST_AT, FOREBAY_BENCH_SLOW_AT.
#
# What it runs is built first: `make bench` does that, and runs all cases.
#
# Run it on an idle machine. The table is printed and kept in target/bench/table; raw values in target/bench/values.
set -u
cd "$(dirname "$0")/.." || exit 1
# shellcheck source=scripts/environment.sh
. scripts/environment.sh
for tool in fio python3 gcc mpicc rsync git; do
  command -v "$tool" >/dev/null || { echo "benches/all.sh: $tool is missing: scripts/bootstrap.sh installs it" >&2; exit 2; }
done
if [ -z "${FOREBAY_BENCH_NAMESPACE:-}" ]; then
  sudo=()
  kept=PATH,HOME,ROUNDS,FILES,NAMES_FILES,NAMES_RATE_FILES,NAMES_POLICY,BUILDS,DELEGATED_NAMES,RECORDS,FOREBAY,SLOWFS,FOREBAY_BENCH_DIR,FOREBAY_BENCH_FAST,FOREBAY_BENCH_FAST_AT,FOREBAY_BENCH_SLOW_AT
  [ "$(id -u)" = 0 ] || sudo=(sudo "--preserve-env=$kept")
  exec "${sudo[@]}" env FOREBAY_BENCH_NAMESPACE=1 \
    timeout --kill-after=20 3600 unshare --mount --propagation private --pid --fork --kill-child --mount-proc "$0" "$@"
fi

ROUNDS=${ROUNDS:-3}
IMAGE_BYTES=8G # sparse
FILES=${FILES:-100000}
forebay=${FOREBAY:-$PWD/target/release/forebay}
out=$PWD/target/bench
scratch=$(mktemp -d "${FOREBAY_BENCH_DIR:-/tmp}/forebay-bench-XXXXXX") || exit 1
fast=${FOREBAY_BENCH_FAST_AT:-$scratch/fast} slow=${FOREBAY_BENCH_SLOW_AT:-$scratch/slow}
# The burst buffer's file system: what is bare there. The global store's: the accelerated directory, and what is beside.
bare=$fast/bare buffer=$fast/buffer dir=$slow/dir below=$slow/below
export LC_ALL=C

# Prints the loop device of a new ext4 in DIRECTORY, whose image goes with it.
image() { # DIRECTORY
  local file device
  file=$(mktemp "$1/forebay-bench-image-XXXXXX")
  truncate -s "$IMAGE_BYTES" "$file"
  mkfs.ext4 -q -F ${IMAGE_INODES:+-N "$IMAGE_INODES"} -E lazy_itable_init=0,lazy_journal_init=0 "$file" >&2
  device=$(losetup --find --show --direct-io=on "$file") || device=$(losetup --find --show "$file")
  rm -f "$file"
  echo "$device"
}
mount_image() { # DIRECTORY PLACE
  local device
  mkdir -p "$2"
  device=$(image "$1")
  mount -o discard "$device" "$2" || { losetup --detach "$device" && exit 1; }
  # Not before it is unmounted.
  losetup --detach "$device"
}
clean_up() {
  umount --lazy "$dir" 2>/dev/null
  rm -rf "${bare:?}" "${buffer:?}" "${below:?}"
  umount --lazy "$scratch/fast" "$scratch/slow" "$scratch/huge" 2>/dev/null
  rm -rf --one-file-system "$scratch"
}
trap clean_up EXIT
[ -n "${FOREBAY_BENCH_FAST_AT:-}" ] || mount_image "${FOREBAY_BENCH_FAST:-/dev/shm}" "$fast"
[ -n "${FOREBAY_BENCH_SLOW_AT:-}" ] || mount_image "${FOREBAY_BENCH_DIR:-/tmp}" "$slow"
mkdir -p "$out" "$bare" "$dir" "$buffer" "$below"
: >"$out/values"

# Free memory that goes back to the host has to be had anew, ten times slower than it is written: docs/limits.md.
order=$(cat /sys/module/page_reporting/parameters/page_reporting_order 2>/dev/null || echo -1)
if [ "$order" -ge 0 ] && [ "$order" -le 10 ]; then
  echo "this machine may give its free memory back to its host: figures scatter (docs/limits.md, \"gives its free memory back\")" >&2
fi

kind_of() { # PLACE DIRECTORY-OF-ITS-IMAGE
  echo "$(findmnt -n -o FSTYPE --target "$1")$(mountpoint -q "$1" && echo " on an image in $(findmnt -n -o FSTYPE --target "$2" | tail -n 1)")"
}
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

fio_rates() { # SIDE LABEL FILE RW SIZE BS: the rate, a call, and its processor time, which other programs hardly change
  local rate call time
  read -r rate call time < <(fio_run "${@:3}")
  value "$2" MB/s more "$1" "$rate"
  value "$2, a call" us less "$1" "$call"
  value "$2, processor time a call" us less "$1" "$time"
}
fio_run() { # FILE RW SIZE BS -> MB/s, us, us
  fio --name=bench --filename="$1" --rw="$2" --size="$3" --bs="$4" --ioengine="${ENGINE:-psync}" --fallocate=none --invalidate=0 \
    --randrepeat=1 --end_fsync="${SYNC:-0}" --output-format=json </dev/null |
    python3 -c 'import json, sys
job = json.load(sys.stdin)["jobs"][0]
did = max(job["read"], job["write"], key=lambda side: side["total_ios"])
cpu = (job["usr_cpu"] + job["sys_cpu"]) / 100 * job["job_runtime"] * 1000
print(round(did["bw_bytes"] / 1e6, 1), round(did["clat_ns"]["mean"] / 1e3, 3), round(cpu / did["total_ios"], 3))'
}

write_new() { # SIDE: a new file each time
  rm -f "$(at "$1")/new"
  fio_rates "$1" "write 128 KiB, new file" "$(at "$1")/new" write 512m 128k
  rm -f "$(at "$1")/new"
}
write_new_synced() { # SIDE
  rm -f "$(at "$1")/new"
  SYNC=1 fio_rates "$1" "write 128 KiB and fsync, new file" "$(at "$1")/new" write 512m 128k
  rm -f "$(at "$1")/new"
}
on_complete() { # SIDE LABEL RW SIZE BS: a file that is there, and in the page cache
  fio_rates "$1" "$2" "$(at "$1")/complete" "$3" "$4" "$5"
}
on_replica() { # SIDE LABEL RW SIZE BS: the same bytes, through the mount and beside it
  local file=$dir/complete
  [ "$1" = forebay ] || file=$(find "$buffer/replicas" -type f -size +500M)
  fio_rates "$1" "$2" "$file" "$3" "$4" "$5"
}
calls() { # SIDE LABEL OPERATION
  value "$2" us less "$1" "$("$scratch/calls" "$3" "$(at "$1")/many" 1000 20000)"
}

bench_data() {
  accelerate stage_out=manual
  both write_new
  both write_new_synced
  for side in bare forebay; do
    dd if=/dev/urandom of="$(at $side)/complete" bs=1M count=512 status=none
    cat "$(at $side)/complete" >/dev/null
  done
  both on_complete "write 128 KiB, complete file" write 512m 128k
  SYNC=1 both on_complete "write 128 KiB and fsync, complete file" write 512m 128k
  both on_complete "read 128 KiB, complete file" read 512m 128k
  ENGINE=mmap both on_complete "read 128 KiB, mapped" read 512m 128k
  both on_complete "random read 8 KiB" randread 128m 8k
  both on_complete "random write 8 KiB" randwrite 128m 8k
  both on_replica "random read 8 KiB, and in the replica" randread 128m 8k
  both on_replica "random write 8 KiB, and in the replica" randwrite 128m 8k
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

# shellcheck source=benches/copying.sh
. benches/copying.sh

# The largest agent there is, in MB.
agent_memory() {
  local pid
  for pid in $(pgrep -x forebay); do
    awk '/^VmRSS/ { print $2 / 1000 }' "/proc/$pid/status"
  done | sort -n | tail -n 1
}

# The same while so many files of the accelerated directory are open.
agent_memory_with_open() { # COUNT
  local at=$scratch/holding
  mkfifo "$at"
  ulimit -n $(($1 + 100))
  python3 -c 'import os, sys
held = [os.open(os.path.join(sys.argv[1], str(n)), os.O_RDWR) for n in range(int(sys.argv[2]))]
print("held", flush=True)
sys.stdin.read()' "$dir/many" "$1" <"$at" >"$at.said" &
  exec 6>"$at"
  until grep -q held "$at.said"; do sleep 0.1; done
  agent_memory
  exec 6>&-
  wait $!
}

bench_scale() {
  gcc -O2 -o "$scratch/calls" benches/calls.c || exit 1
  accelerate stage_out=close keep_after=1h
  mkdir -p "$dir/many"
  "$scratch/calls" create "$dir/many" "$FILES" "$FILES" >/dev/null
  drain
  "$scratch/calls" open "$dir/many" "$FILES" "$FILES" >/dev/null
  value "agent's memory with $FILES files" MB less forebay "$(agent_memory)"
  value "the same with 1,000 of them open" MB less forebay "$(agent_memory_with_open 1000)"
  decelerate
  local round began
  for round in $(seq "$ROUNDS"); do
    began=$(now)
    accelerate stage_out=close keep_after=1h
    stat "$dir/many/0" >/dev/null
    value "start with $FILES records, to the first stat" s less forebay "$(since "$began")"
    decelerate
    began=$(now)
    "$forebay" run --burst-buffer "$buffer" --dir "$dir" --quiet -- true || exit 1
    value "run -- true with $FILES records, all of it" s less forebay "$(since "$began")"
  done
}

# A server's requests beside a socket copy into files and a bare ping-pong; built by
# `cargo build --release -p server --example requests`.
bench_server() {
  target/release/examples/requests "${FOREBAY_BENCH_FAST:-/dev/shm}" 1 "$ROUNDS" >>"$out/values" || exit 1
}

# A catalogue of RECORDS on the disk, once: writing 10^7 takes two to six minutes. Built by
# `cargo build --release -p catalogue --example ten_million`.
bench_catalogue() {
  local records=${RECORDS:-10000000}
  target/release/examples/ten_million "$records" "$slow/catalogue" >"$out/catalogue.log" || exit 1
  value "a record of $records, on disk" B less forebay "$(awk '/ bytes each on disk/ { print $1 }' "$out/catalogue.log")"
  # Printed as 1.234s or 123.456ms.
  value "a catalogue of $records opened" s less forebay "$(sed -n 's/^reopened in \([^,]*\),.*/\1/p' "$out/catalogue.log" |
    awk '{ print $1 ~ /ms$/ ? $1 / 1000 : $1 + 0 }')"
}

# shellcheck source=benches/preload.sh
. benches/preload.sh
# shellcheck source=benches/names.sh
. benches/names.sh
# shellcheck source=benches/builds.sh
. benches/builds.sh
# shellcheck source=benches/delegated.sh
. benches/delegated.sh
[ $# -gt 0 ] || set -- data calls large small beside scale catalogue preload window server names names-cost builds delegated
for bench in "$@"; do
  echo "measuring: $bench" >&2
  "bench_$bench"
  rm -rf "${buffer:?}" "${bare:?}" "${below:?}" "${dir:?}"/* && mkdir "$buffer" "$bare" "$below"
done
{
  echo "$(date -u +%F), Linux $(uname -r), $(nproc) processors, $ROUNDS rounds, $(git describe --always --dirty 2>/dev/null), load $(cut -d ' ' -f 1 /proc/loadavg)"
  echo "burst buffer: $(kind_of "$fast" "${FOREBAY_BENCH_FAST:-/dev/shm}"); global store: $(kind_of "$slow" "${FOREBAY_BENCH_DIR:-/tmp}")"
  python3 benches/table.py "$out/values"
} | tee "$out/table"
