#!/usr/bin/env bash
# The preload library must not be noticed: every probe of tests/suites/preload/probe prints the same in a plain directory
# and in an accelerated one, with and without the library. Random operations by two processes, either or both of them
# preloaded, end in the same bytes. Real programs print and leave the same.
#
#   tests/suites/preload.sh [probes|chance|programs]...
cd "$(dirname "$0")" || exit 1
. ./report.sh
. ./accelerated.sh

PROBE_SECONDS_MAX=20
CHANCE_SECONDS_MAX=60
CHANCE_OPERATIONS=${FOREBAY_CHANCE_OPERATIONS:-600}
CHANCE_SEEDS=${FOREBAY_CHANCE_SEEDS:-1 2 3 4}

export LC_ALL=C TZ=UTC
library=${FOREBAY_PRELOAD:-$top/target/debug/libforebay_preload.so}
global=$scratch/global buffer=$scratch/buffer
mkdir -p "$global" "$buffer" "$scratch/bin"

# Runs a command in a new directory of its own, plain or accelerated.
in_new_directory() { # SIDE COMMAND...
  local side=$1 dir=$scratch/plain
  shift
  [ "$side" = accelerated ] && dir=$global
  rm -rf "$dir/here" && mkdir -p "$dir/here" || return 1
  (cd "$dir/here" && "$@")
}

# They are wrong on purpose here and there, of which the compiler would warn.
compile_probes() {
  local source name
  for source in preload/probe/*.c; do
    name=$(basename "$source" .c)
    gcc -O1 -w -pthread -o "$scratch/bin/$name" "$source" || return 1
  done
}

probe() { # NAME
  local name=$1 side with problem=
  for side in plain accelerated; do
    for with in "" "$library"; do
      in_new_directory $side timeout --kill-after=2 $PROBE_SECONDS_MAX env LD_PRELOAD="$with" "$scratch/bin/$name" \
        >"$scratch/$name.$side${with:+.preloaded}" 2>&1 </dev/null || problem="exit status $? $side${with:+, preloaded}"
    done
  done
  [ -s "$scratch/$name.plain" ] || problem="it printed nothing"
  for side in plain.preloaded accelerated accelerated.preloaded; do
    diff "$scratch/$name.plain" "$scratch/$name.$side" && continue
    problem="$side is not as plain (<)"
  done
  if [ -n "$problem" ]; then fail "probe::$name" "$problem"; else pass "probe::$name"; fi
}

run_probes() {
  local binary
  compile_probes || { fail "probes" "they do not compile"; return; }
  mount_accelerated "$global" "$buffer" || { fail "probes" "cannot mount"; return; }
  for binary in "$scratch"/bin/*; do
    probe "$(basename "$binary")"
  done
  unmount_accelerated "$global" || fail "probes" "the mount does not go"
}

# The same operations with every choice of who is preloaded; the plain directory is the judge.
chance() { # SEED
  local seed=$1 side parent child name problem=
  for side in plain accelerated; do
    for parent in "" "$library"; do
      for child in "" "$library"; do
        name=$side${parent:+.parent}${child:+.child}
        in_new_directory $side timeout --kill-after=2 $CHANCE_SECONDS_MAX env LD_PRELOAD="$parent" \
          "$scratch/chance" . "$seed" "$CHANCE_OPERATIONS" "$child" >"$scratch/chance.$name" 2>&1 </dev/null ||
          problem="exit status $? for $name"
        in_new_directory_sum $side >>"$scratch/chance.$name"
        diff "$scratch/chance.plain" "$scratch/chance.$name" | head -n 8
        cmp -s "$scratch/chance.plain" "$scratch/chance.$name" || problem="$name is not as plain (<)"
      done
    done
  done
  if [ -n "$problem" ]; then fail "chance::seed_$seed" "$problem"; else pass "chance::seed_$seed"; fi
}

in_new_directory_sum() { # SIDE
  if [ "$1" = plain ]; then (cd "$scratch/plain/here" && sha256sum -- *); else (cd "$global/here" && sha256sum -- *); fi
}

run_chance() {
  local seed before
  gcc -O1 -Wall -o "$scratch/chance" preload/chance.c || { fail "chance" "it does not compile"; return; }
  mount_accelerated "$global" "$buffer" || { fail "chance" "cannot mount"; return; }
  for seed in $CHANCE_SEEDS; do
    chance "$seed"
  done
  before=$(in_new_directory_sum accelerated)
  unmount_accelerated "$global" || fail "chance" "the mount does not go"
  [ "$before" = "$(in_new_directory_sum accelerated)" ] || fail "chance" "the global store holds other bytes"
}

# The programs of the other suite once more, preloaded.
run_programs() {
  local line
  FOREBAY_SUITE_PRELOAD=$library ./programs.sh >"$scratch/programs" 2>&1
  while read -r line; do
    case $line in
      "test result:"*) ;;
      test\ *\ ok) pass "programs::$(cut -d' ' -f2 <<<"$line")" ;;
      test\ *FAILED*) fail "programs::$(cut -d' ' -f2 <<<"$line")" "${line#*FAILED: }" ;;
      *) echo "$line" ;;
    esac
  done <"$scratch/programs"
}

[ -e "$library" ] || { fail "library" "$library is not there"; finish; }
[ $# -gt 0 ] || set -- probes chance programs
for part in "$@"; do
  case $part in
    probes | chance | programs) "run_$part" ;;
    *) fail "$part" "no such part" ;;
  esac
done
finish
