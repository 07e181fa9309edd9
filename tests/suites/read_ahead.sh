#!/usr/bin/env bash
# A file on a store with a round trip is read in patterns while it is staged in. Counted is how many of the reads had to wait, with
# the policy read_ahead=auto and with read_ahead=off; the bytes must be right both times.
#
# Clauses: S8
cd "$(dirname "$0")" || exit 1
. ./report.sh
. ./accelerated.sh

PATTERN_SECONDS_MAX=60
slowfs=${SLOWFS:-$top/target/debug/slowfs}
lower=$scratch/lower far=$scratch/far
mkdir -p "$lower" "$far" "$scratch/buffer"

# 128 MiB in which every 8 bytes tell their place.
python3 - "$lower/file" <<'PYTHON'
import array, sys
with open(sys.argv[1], "wb") as f:
    for part in range(128):
        f.write(array.array("Q", range(part << 17, (part + 1) << 17)).tobytes())
PYTHON

# Reads in a pattern, checks what it reads, and thinks after each read: for as long as the store, asked for four blocks at once, needs
# for one.
cat >"$scratch/reader.py" <<'PYTHON'
import os, random, sys, time
fd, size, mib = os.open("file", os.O_RDONLY), 128 << 20, 1 << 20
noise = random.Random(3)
patterns = {
    "sequential": [(at, 128 << 10) for at in range(0, 48 * mib, 128 << 10)],
    "backwards": [(at, 64 << 10) for at in range(120 * mib, 0, -3 * mib)],
    "stride": [(at, 64 << 10) for at in range(0, 126 * mib, 3 * mib)],
    "noisy_stride": [p for at in range(0, 126 * mib, 3 * mib)
                     for p in [(at, 64 << 10)] + [(noise.randrange(size) // 4096 * 4096, 4096)] * (at // mib % 4 == 0)],
}
for at, length in patterns[sys.argv[1]]:
    got = os.pread(fd, length, at)
    assert len(got) == length and got[:8] == (at // 8).to_bytes(8, "little") and got[-8:] == ((at + length) // 8 - 1).to_bytes(8, "little"), at
    time.sleep(0.003 if sys.argv[1] == "sequential" else 0.04)
print(len(patterns[sys.argv[1]]))
PYTHON

# Prints how many reads waited, of how many.
waits() { # PATTERN auto|off
  local buffer=$scratch/buffer/$1.$2 reads
  mkdir -p "$buffer"
  "$slowfs" "$lower" "$far" --latency 15ms || return 1
  reads=$(cd "$far" && timeout --kill-after=5 $PATTERN_SECONDS_MAX "$forebay" run --quiet --policy "read_ahead=$2" --report "$scratch/report" \
    --dir "$far" --burst-buffer "$buffer" -- python3 "$scratch/reader.py" "$1" 2>"$scratch/stderr") || { cat "$scratch/stderr"; reads=; }
  umount "$far"
  rm -rf "$buffer"
  [ -n "$reads" ] && python3 -c 'import json, sys; c = json.load(open(sys.argv[1]))["directories"][0]["counters"]
print(c["read_late"] + c["read_misses"], c["read_hits"] + c["read_late"] + c["read_misses"])' "$scratch/report"
}

pattern() { # NAME MOST-PERCENT-OF-READS
  local with without reads
  read -r without reads <<<"$(waits "$1" off)"
  read -r with reads <<<"$(waits "$1" auto)"
  echo "$1: $with of $reads reads waited, $without without read-ahead"
  if [ "${with:-x}" -ge 0 ] 2>/dev/null && [ "${reads:-0}" -gt 0 ] && [ $((with * 100)) -le $((reads * $2)) ]; then
    pass "read_ahead::$1"
  else
    fail "read_ahead::$1" "$with of $reads reads waited"
  fi
}

# What a program says it will need the kernel asks for at once, and a later read finds it: without a word of ours.
advice_is_heeded() {
  local waited=() advised
  for advised in yes no; do
    mkdir -p "$scratch/buffer/$advised"
    "$slowfs" "$lower" "$far" --latency 15ms || return 1
    waited+=("$(cd "$far" && timeout --kill-after=5 $PATTERN_SECONDS_MAX "$forebay" run --quiet --dir "$far" --burst-buffer "$scratch/buffer/$advised" \
      -- python3 - $advised <<'PYTHON'
import os, random, sys, time
fd, places, waited = os.open("file", os.O_RDONLY), [block << 20 for block in random.Random(5).sample(range(128), 24)], 0
if sys.argv[1] == "yes":
    for at in places:
        os.posix_fadvise(fd, at, 65536, os.POSIX_FADV_WILLNEED)
    time.sleep(2)
for at in places:
    began = time.monotonic()
    assert os.pread(fd, 8, at) == (at // 8).to_bytes(8, "little")
    waited += time.monotonic() - began > 0.01
print(waited)
PYTHON
    )")
    umount "$far"
  done
  echo "advised: ${waited[0]} of 24 reads waited, ${waited[1]} without advice"
  [ "${waited[0]:-24}" -le 2 ] && [ "${waited[1]:-0}" -ge 12 ]
}

pattern sequential 15
pattern stride 35
pattern backwards 35
pattern noisy_stride 50
if advice_is_heeded; then pass read_ahead::advice; else fail read_ahead::advice 'reads waited'; fi
finish
