# shellcheck shell=bash
# What `all.sh` measures of copying between burst buffer and global store. Each round works on names that were never
# there: ext4 is slow to take up the inodes of files that were deleted a moment ago.
#
# Both sides begin with all written and the data of the source where it would be: in memory if a program has just made it
# (out), on the medium if it lies in the global store (in). What varies is the price of fresh memory: a virtual machine whose
# free memory goes back to its host pays 2 s for 1 GB of page cache or nothing, by when that happened. So large copies, of which
# dd makes all in page cache, have two rounds more.

GB_BYTES=1073741824
SMALL_FILES=10000
WRITER_BYTES=512m

# Both file systems at rest, and the bytes of these files not in memory.
settle() { # FILE...
  sync -f "$fast" && sync -f "$slow"
  [ $# = 0 ] || python3 -c '
import os, sys
for top in sys.argv[1:]:
    files = [os.path.join(at, name) for at, _, names in os.walk(top) for name in names] or [top]
    for name in files:
        fd = os.open(name, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)' "$@"
}
stage() { # in|out|evict PATH
  "$forebay" stage "$1" --recursive --wait "$2" >"$out/stage.log" 2>&1 </dev/null || { cat "$out/stage.log" && exit 1; }
}
rate_of() { # SECONDS [BYTES] -> MB/s
  awk -v s="$1" -v b="${2:-$GB_BYTES}" 'BEGIN { printf "%.1f", b / 1e6 / s }'
}

large_out() { # SIDE
  local began took
  if [ "$1" = bare ]; then
    settle && began=$(now)
    dd if="$bare/whole" of="$below/out-$((++turn))" bs=1M conv=fsync status=none
  else
    cp "$bare/whole" "$dir/out-$((++turn))" && settle && began=$(now)
    drain
  fi
  took=$(since "$began")
  value "stage-out of 1 GB, dd conv=fsync" MB/s more "$1" "$(rate_of "$took")"
  rm -f "$dir/out-$turn" "$below/out-$turn"
}

large_in() { # SIDE
  local began took
  if [ "$1" = bare ]; then
    settle "$below/whole" && began=$(now)
    dd if="$below/whole" of="$bare/in-$((++turn))" bs=1M conv=fsync status=none
  else
    stage evict "$dir/whole"
    settle "$dir/whole" && stage evict "$dir/whole" && began=$(now)
    stage in "$dir/whole"
  fi
  took=$(since "$began")
  value "stage-in of 1 GB, dd conv=fsync" MB/s more "$1" "$(rate_of "$took")"
  rm -f "$bare/in-$turn"
}

bench_large() {
  local turn=0
  dd if=/dev/urandom of="$bare/whole" bs=1M count=1024 status=none
  cp "$bare/whole" "$below/whole" && cp "$bare/whole" "$dir/whole"
  accelerate stage_out=manual keep_after=1h
  ROUNDS=$((ROUNDS + 2)) both large_out
  ROUNDS=$((ROUNDS + 2)) both large_in
  decelerate
}

small_out() { # SIDE
  local began
  : $((++turn))
  if [ "$1" = bare ]; then
    settle && began=$(now)
    cp -a "$bare/small" "$below/out-$turn" && sync -f "$below"
  else
    cp -a "$bare/small" "$dir/out-$turn" && settle && began=$(now)
    drain
  fi
  value "stage-out of 10,000 x 4 KiB, cp -a + sync -f" s less "$1" "$(since "$began")"
}

small_in() { # SIDE
  local began
  if [ "$1" = bare ]; then
    settle "$below/small" && began=$(now)
    cp -a "$below/small" "$bare/in-$((++turn))" && sync -f "$bare"
  else
    settle "$below/small" && began=$(now)
    stage in "$dir/small"
  fi
  value "stage-in of 10,000 x 4 KiB, cp -a + sync -f" s less "$1" "$(since "$began")"
  [ "$1" = bare ] || stage evict "$dir/small"
}

small_through() { # SIDE: written in place by a program, until it is safe in the global store
  local began
  settle && began=$(now)
  cp -a "$bare/small" "$(below_or_dir "$1")/through-$((++turn))"
  value "cp -a of 10,000 x 4 KiB, until it returns" s less "$1" "$(since "$began")"
  if [ "$1" = bare ]; then sync -f "$below"; else drain; fi
  value "the same, until all is in the global store" s less "$1" "$(since "$began")"
}
below_or_dir() { if [ "$1" = bare ]; then echo "$below"; else echo "$dir"; fi; }

create_in() { # SIDE: one call after the other, of new files
  local at
  at=$(below_or_dir "$1")/created-$((++turn))
  mkdir "$at" && settle
  value "create, write 4 KiB, close; new in the store" us less "$1" "$("$scratch/calls" create "$at" "$SMALL_FILES" "$SMALL_FILES")"
}

bench_small() {
  local turn=0
  gcc -O2 -o "$scratch/calls" benches/calls.c || exit 1
  mkdir "$bare/small" "$dir/small"
  "$scratch/calls" create "$bare/small" "$SMALL_FILES" "$SMALL_FILES" >/dev/null
  cp -a "$bare/small" "$below/small"
  # The names that stage-in copies are links, so that their data can be dropped from memory by a name outside.
  rmdir "$dir/small" && cp -al "$below/small" "$dir/small"
  accelerate stage_out=manual keep_after=1h
  both small_out
  both small_in
  both create_in
  drain
  decelerate
  accelerate stage_out=close keep_after=1h
  both small_through
  decelerate
}

# A writer until it is told to stop: its rate while SECONDS of work beside it last.
writer() { # FILE COMMAND... -> the writer's MB/s; seconds of the command are left in $out/beside
  local file=$1 began pid
  shift
  fio --name=writer --filename="$file" --rw=write --size=$WRITER_BYTES --bs=128k --ioengine=psync --fallocate=none \
    --invalidate=0 --time_based --runtime=300 --output-format=json --output="$out/writer.json" </dev/null >/dev/null 2>&1 &
  pid=$!
  sleep 1
  began=$(now)
  "$@"
  since "$began" >"$out/beside"
  kill -INT "$pid"
  wait "$pid"
  python3 - "$out/writer.json" <<'END'
import json, sys
text = open(sys.argv[1]).read()
print(round(json.loads(text[text.index("{"):])["jobs"][0]["write"]["bw_bytes"] / 1e6, 1))
END
}
bare_copies() { for n in 1 2; do dd if="$bare/whole" of="$below/beside-$n-$turn" bs=1M conv=fsync status=none; done; }
stage_outs() { stage out "$dir/beside-1-$turn" && stage out "$dir/beside-2-$turn"; }
dirty() { for n in 1 2; do cp "$bare/whole" "$dir/beside-$n-$turn"; done; }

beside() { # SIDE
  local file alone began copies=bare_copies
  : $((++turn))
  if [ "$1" = bare ]; then file=$bare/written; else file=$dir/written copies=stage_outs && dirty; fi
  dd if=/dev/zero of="$file" bs=1M count=512 status=none
  settle
  alone=$(writer "$file" sleep 3)
  settle
  $copies # a first time
  rm -f "$below"/beside-* "$dir"/beside-*
  [ "$1" = bare ] || dirty
  settle
  began=$(now)
  $copies
  value "two copies of 1 GB alone, dd conv=fsync" MB/s more "$1" "$(rate_of "$(since "$began")" $((2 * GB_BYTES)))"
  rm -f "$below"/beside-* "$dir"/beside-*
  [ "$1" = bare ] || dirty
  settle
  value "a writer of 128 KiB alone" MB/s more "$1" "$alone"
  value "the writer beside the two copies" MB/s more "$1" "$(writer "$file" $copies)"
  value "the two copies beside the writer" MB/s more "$1" "$(rate_of "$(cat "$out/beside")" $((2 * GB_BYTES)))"
  rm -f "$below"/beside-* "$dir"/beside-* "$file"
}

bench_beside() {
  local turn=0
  dd if=/dev/urandom of="$bare/whole" bs=1M count=1024 status=none
  accelerate stage_out=manual keep_after=1h
  both beside
  decelerate
}
