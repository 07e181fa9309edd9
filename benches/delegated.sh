# shellcheck shell=bash
# What an agent needs for the names of one delegated directory that wait for the store: memory, log, descriptors; and whether the last
# names cost what the first did. Each name is an empty file with a local file in the burst buffer, so this has many inodes. Beside it the
# same files are made in a file system like that of the burst buffer.

DELEGATED_NAMES=${DELEGATED_NAMES:-1000000}

# Of the agent PID, in bytes.
delegated_memory() { awk '/^Rss:/ { print $2 * 1024 }' "/proc/$1/smaps_rollup"; }
delegated_log() { du --summarize --bytes "$scratch"/huge/buffer/trees/*/log | awk '{ sum += $1 } END { print sum }'; }
delegated_each() { # LABEL BEFORE AFTER
  value "$1" B less forebay "$(awk -v a="$2" -v b="$3" -v n="$DELEGATED_NAMES" 'BEGIN { printf "%.0f", (b - a) / n }')"
}

delegated_rates() { # SIDE RATES
  value "creations, the first tenth of $DELEGATED_NAMES" 1/s more "$1" "${2% *}"
  value "creations, the last tenth" 1/s more "$1" "${2#* }"
}

# Names of DIRECTORY, which the kernel has forgotten, with the attributes of each, under each label.
delegated_listing() { # SIDE DIRECTORY LABEL...
  local rate label
  echo 2 >/proc/sys/vm/drop_caches
  sleep 1
  rate=$("$scratch/list_names" "$2") || exit 1
  for label in "${@:3}"; do value "$label" 1/s more "$1" "$rate"; done
}

bench_delegated() {
  local agent before descriptors rates log
  gcc -O2 -o "$scratch/many_names" benches/many_names.c && gcc -O2 -o "$scratch/list_names" benches/list_names.c &&
    gcc -O2 -o "$scratch/empty_fuse" benches/empty_fuse.c || exit 1
  # An inode each, and some for the start.
  IMAGE_INODES=$((DELEGATED_NAMES + 10000)) mount_image "${FOREBAY_BENCH_FAST:-/dev/shm}" "$scratch/huge"
  mkdir "$scratch/huge/many"
  rates=$("$scratch/many_names" "$scratch/huge/many" "$DELEGATED_NAMES") || exit 1
  delegated_rates bare "$rates"
  delegated_listing bare "$scratch/huge/many" "first listing with statx"
  umount "$scratch/huge"
  IMAGE_INODES=$((DELEGATED_NAMES + DELEGATED_NAMES / 10 + 10000)) mount_image "${FOREBAY_BENCH_FAST:-/dev/shm}" "$scratch/huge"
  mkdir -p "$scratch/huge/buffer"
  "$forebay" mount "$dir" --burst-buffer "$scratch/huge/buffer" --policy delegate=new --policy stage_out=manual \
    >"$out/mount.log" 2>&1 </dev/null || { cat "$out/mount.log" && exit 1; }
  agent=$("$forebay" status "$dir" --json | sed -n 's/.*"agent"[^0-9]*\([0-9]*\).*/\1/p' | head -n 1)
  [ -n "$agent" ] || agent=$(pgrep -x forebay | tail -n 1)
  mkdir "$dir/many"
  "$scratch/many_names" "$dir/many" 100 >/dev/null && rm "$dir"/many/* # what is there once
  sleep 2
  before=$(delegated_memory "$agent") descriptors=$(ls "/proc/$agent/fd" | wc -l) log=$(delegated_log)
  rates=$("$scratch/many_names" "$dir/many" "$DELEGATED_NAMES") || exit 1
  delegated_rates forebay "$rates"
  delegated_each "memory a name that the kernel remembers" "$before" "$(delegated_memory "$agent")"
  delegated_each "bytes of the log a name" "$log" "$(delegated_log)"
  value "descriptors more" 1 less forebay $(($(ls "/proc/$agent/fd" | wc -l) - descriptors))
  echo 2 >/proc/sys/vm/drop_caches
  sleep 2
  delegated_each "memory a name that the kernel has forgotten" "$before" "$(delegated_memory "$agent")"
  delegated_listing forebay "$dir/many" "first listing with statx" "first listing, empty server of 100,000 names"
  mkdir "$scratch/empty"
  "$scratch/empty_fuse" "$scratch/empty" "$scratch/backing" &
  until mountpoint -q "$scratch/empty"; do sleep 0.1; done
  delegated_listing bare "$scratch/empty/many" "first listing, empty server of 100,000 names"
  umount "$scratch/empty"
  # Nobody waits for a million names in the store.
  kill -9 "$agent"
  umount --lazy "$dir" "$scratch/huge"
}
