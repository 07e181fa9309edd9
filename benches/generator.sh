#!/usr/bin/env bash
# What the load generator of `forebay limits` reaches beside fio with the same pattern: one process, a new file, psync, an fsync at
# the end; turn about, ROUNDS times, medians of the ratios of neighbours. On tmpfs, the file system of DIR, and a FUSE mount (slowfs
# without a promise). Needs root for the mounts, which live in a namespace of their own.
#
#   benches/generator.sh [DIR]        ROUNDS=7 SIZE=128 (MiB) SIZES="4096 65536" BIN=target/release
set -u
cd "$(dirname "$0")/.." || exit 1
# shellcheck source=scripts/environment.sh
. scripts/environment.sh
if [ -z "${FOREBAY_BENCH_NAMESPACE:-}" ]; then
  exec env FOREBAY_BENCH_NAMESPACE=1 unshare --mount --propagation private --pid --fork --kill-child --mount-proc "$0" "$@"
fi
ROUNDS=${ROUNDS:-7}
SIZE=${SIZE:-128}
bin=${BIN:-$PWD/target/release}
for program in fio "$bin/forebay" "$bin/slowfs"; do
  command -v "$program" >/dev/null || { echo "$program is missing: scripts/bootstrap.sh fio; cargo build --release --workspace" >&2 && exit 69; }
done
scratch=$(mktemp -d "${1:-/tmp}/forebay-generator-XXXXXX") || exit 1
mkdir "$scratch"/{tmpfs,disk,lower,fuse}
clean_up() {
  umount --lazy "$scratch/fuse" "$scratch/lower" "$scratch/tmpfs" 2>/dev/null
  rm -rf --one-file-system "$scratch"
}
trap clean_up EXIT
mount -t tmpfs x "$scratch/tmpfs" && mount -t tmpfs x "$scratch/lower" || exit 1
"$bin/slowfs" "$scratch/lower" "$scratch/fuse" || exit 1

fio_rate() { # DIR BYTES -> MB/s
  fio --name=x --directory="$1" --rw=write --bs="$2" --size="${SIZE}m" --ioengine=psync --end_fsync=1 --fallocate=none \
    --create_on_open=1 --unlink=1 --output-format=json </dev/null |
    python3 -c 'import json, sys; print(json.load(sys.stdin)["jobs"][0]["write"]["bw_bytes"] / 1e6)'
}
our_rate() { # DIR BYTES -> MB/s
  "$bin/forebay" limits sweep --target "$1" -M 1 -N 1 --repeat 1 --warm-up 0 --transfer "$2" --size "${SIZE}MiB" --time 60s \
    --quiet --json </dev/null | python3 -c 'import json, sys; print(json.load(sys.stdin)["results"]["runs"][0]["rate"] / 1e6)'
}

printf '%-8s %8s %10s %10s %7s  %s\n' on bytes "fio MB/s" "ours MB/s" ratio "lowest to highest"
for place in tmpfs disk fuse; do
  for bytes in ${SIZES:-4096 47008 65536 131072 1048576}; do
    for round in $(seq "$ROUNDS"); do
      if [ $((round % 2)) = 1 ]; then
        a=$(fio_rate "$scratch/$place" $bytes) b=$(our_rate "$scratch/$place" $bytes)
      else
        b=$(our_rate "$scratch/$place" $bytes) a=$(fio_rate "$scratch/$place" $bytes)
      fi
      echo "$a $b"
    done | python3 -c '
import statistics, sys
pairs = [tuple(map(float, line.split())) for line in sys.stdin]
ratios = sorted(ours / fio for fio, ours in pairs)
middle = statistics.median
print("%-8s %8s %10.0f %10.0f %7.2f  %.2f to %.2f" % (sys.argv[1], sys.argv[2], middle(p[0] for p in pairs),
      middle(p[1] for p in pairs), middle(ratios), ratios[0], ratios[-1]))' "$place" "$bytes"
  done
done
echo "$(nproc) processors, load $(cut -d' ' -f1 /proc/loadavg), Linux $(uname -r), $(stat -f -c %T "$scratch/disk") as disk, $ROUNDS rounds of $SIZE MiB"
