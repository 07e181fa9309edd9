#!/usr/bin/env bash
# The preload library must not be noticed: every probe of tests/suites/preload/probe prints the same in a plain directory
# and in an accelerated one, without the library, with it, and with it and windows. Random operations by two processes,
# either or both of them with windows, end in the same bytes. Real programs print and leave the same.
#
#   tests/suites/preload.sh [names|loading|windows|full|numbers|hung|probes|chance|delegated|served|programs]...
#
# Clauses: S9, S40, S71
cd "$(dirname "$0")" || exit 1
. ./report.sh

PROBE_SECONDS_MAX=20
CHANCE_SECONDS_MAX=60
CHANCE_OPERATIONS=${FOREBAY_CHANCE_OPERATIONS:-600}
CHANCE_SEEDS=${FOREBAY_CHANCE_SEEDS:-1 2 3 4}
CHANCE_WRITES_MIN=50 # in windows, of each at least, one with another
PARTS_MAX_SECONDS=500

export LC_ALL=C TZ=UTC

# Runs a command in a new directory of its own, plain or accelerated.
in_new_directory() { # SIDE COMMAND...
  local side=$1 dir=$scratch/plain
  shift
  [ "$side" = accelerated ] && dir=$global
  rm -rf "$dir/here" && mkdir -p "$dir/here" || return 1
  (cd "$dir/here" && "$@")
}

# Environment of a program: without the library, with it, with it and windows, of a size of its own.
environment() { # without|forwarding|windows|sized
  case $1 in
    without) echo LD_PRELOAD= ;;
    forwarding) echo "LD_PRELOAD=$library FOREBAY_WINDOW=off" ;;
    windows) echo "LD_PRELOAD=$library" ;;
    sized) echo "LD_PRELOAD=$library FOREBAY_WINDOW=1MiB" ;;
  esac
}

# They are wrong on purpose here and there, of which the compiler would warn. NAME.64 calls what has 64 bits in its name.
compile() {
  local source binary
  for source in preload/probe/*.c; do
    binary=$scratch/bin/$(basename "$source" .c)
    gcc -O1 -w -pthread -o "$binary" "$source" -lutil &&
      gcc -O1 -w -pthread -D_FILE_OFFSET_BITS=64 -D_LARGEFILE64_SOURCE -o "$binary.64" "$source" -lutil || return 1
  done
  gcc -O1 -Wall -o "$scratch/chance" preload/chance.c && gcc -O1 -Wall -o "$scratch/windowed" preload/windowed.c &&
    gcc -O1 -Wall -o "$scratch/full" preload/full.c && gcc -O1 -Wall -pthread -o "$scratch/forked" preload/forked.c &&
    gcc -O1 -Wall -pthread -o "$scratch/numbers" preload/numbers.c &&
    gcc -O1 -Wall -pthread -o "$scratch/interrupted" preload/interrupted.c && gcc -O1 -Wall -o "$scratch/hung" preload/hung.c && gcc -O1 -Wall -o "$scratch/streams" preload/streams.c
}

# Proves that the rest of this suite is about windows at all.
inside_windows() {
  local with want have bytes count
  for with in without:0 forwarding:0 windows:16777216 sized:1048576; do
    want=${with#*:}
    # shellcheck disable=SC2046
    have=$(in_new_directory accelerated env $(environment "${with%:*}") "$scratch/windowed")
    if [ "$have" = "$want" ]; then pass "windows::${with%:*}"; else fail "windows::${with%:*}" "its window has '$have' bytes, not '$want'"; fi
  done
  for with in 65536:2:16777216 65535:2:0 65535:3:16777216 65536:1:0; do
    IFS=: read -r bytes count want <<<"$with"
    # shellcheck disable=SC2046
    have=$(in_new_directory accelerated env $(environment windows) "$scratch/windowed" "$bytes" "$count")
    if [ "$have" = "$want" ]; then pass "windows::asked_for_$with"; else fail "windows::asked_for_$with" "its window has '$have' bytes"; fi
  done
  # shellcheck disable=SC2046
  have=$(in_new_directory accelerated timeout --kill-after=2 $CHANCE_SECONDS_MAX env $(environment windows) "$scratch/forked")
  if [ "$have" = 0 ]; then pass windows::of_forked_children; else fail windows::of_forked_children "$have"; fi
  buffered "" "16384 16384 16384 20000 0 1"
  buffered FOREBAY_STDIO_BUFFER=64KiB "0 16384 0 20000 64 1"
  buffered FOREBAY_STDIO_BUFFER=1KiB "16384 16384 16384 20000 0 1"
  handlers
  interrupted jumped 20
  interrupted nested 4
  interrupted forked 20
  interrupted split 20
  interrupted twins 20
  interrupted shared 10
  documented c "$scratch/documented"
  documented python python3 "$scratch/documented.py"
}

# Writes and reads with windows leave the program without a signal handler that it would not have anyway.
handlers() {
  local side have want
  for side in without windows; do
    # shellcheck disable=SC2046
    have=$(in_new_directory accelerated env $(environment $side) python3 -c '
import os
open("file", "wb", buffering=0).write(bytes(range(256)) * 4096)
writer, reader = os.open("other", os.O_WRONLY | os.O_CREAT), os.open("file", os.O_RDONLY)
right = all(os.write(writer, b"12345678") == 8 and os.pread(reader, 100, 256 * n) == bytes(range(100)) for n in range(200))
print(right, [line for line in open("/proc/self/status") if line.startswith("SigCgt")])' 2>&1)
    [ $side = windows ] || want=$have
  done
  if [ "$have" = "$want" ] && [[ $have = True* ]]; then pass windows::no_signal_handler; else fail windows::no_signal_handler "'$have', not '$want'"; fi
}

# What streams keep back, and that all of it arrives.
buffered() { # VARIABLE WANT
  local have name=windows::streams${1:+_of_${1#*=}}
  # shellcheck disable=SC2046
  have=$(in_new_directory accelerated env $(environment windows) ${1:+"$1"} "$scratch/streams" 2>&1; wc -c <"$global/here/left")
  if [ "$have" = "$2"$'\n20000' ]; then pass "$name"; else fail "$name" "$have"; fi
}

# The examples of the documentation, in programs of their own: a window, none, a larger one.
documented() { # LANGUAGE COMMAND...
  local language=$1 told
  shift
  # shellcheck disable=SC2046
  told=$(in_new_directory accelerated env $(environment windows) "$@" 2>&1)
  if [ "$told" = "3 1 3 1048576" ]; then pass "windows::documented_$language"; else fail "windows::documented_$language" "$told"; fi
}

example() { # LANGUAGE
  awk -v fence='```'"$1" '$0 == fence { inside = 1; next } /^```/ { inside = 0 } inside' ../../docs/window.md
}

compile_examples() {
  {
    echo '#include <fcntl.h>'
    echo '#include <stdio.h>'
    echo '#include <unistd.h>'
    example c
    cat <<'C'
static void fill(int fd) { for (int n = 0; n < 20; n++) (void)!write(fd, "12345678", 8); }
int main(void) {
  struct forebay_window window = {0};
  int fd = open("file", O_WRONLY | O_CREAT | O_TRUNC, 0644);
  fill(fd);
  forebay_window(fd, FOREBAY_WINDOW_GET, &window);
  printf("%u ", window.state);
  forebay_window_off(fd);
  forebay_window(fd, FOREBAY_WINDOW_ON, &window);
  printf("%u ", window.state);
  close(fd);
  fd = open("other", O_WRONLY | O_CREAT | O_TRUNC, 0644);
  window.bytes = 1 << 20;
  forebay_window(fd, FOREBAY_WINDOW_SIZE, &window);
  fill(fd);
  forebay_window(fd, FOREBAY_WINDOW_GET, &window);
  printf("%u %llu\n", window.state, (unsigned long long)window.bytes);
  return 0;
}
C
  } >"$scratch/documented.c"
  gcc -O1 -Wall -o "$scratch/documented" "$scratch/documented.c" || return 1
  {
    example python | sed '/^window(/d'
    cat <<'PYTHON'

def fill(f):
    for n in range(20):
        f.write(b"12345678")

f = open("file", "wb", buffering=0)
fill(f)
print(window(f.fileno(), 0)[4], end=" ")
window(f.fileno(), 2)
window(f.fileno(), 1)
print(window(f.fileno(), 0)[4], end=" ")
f.close()
f = open("other", "wb", buffering=0)
window(f.fileno(), 3, 1 << 20)
fill(f)
told = window(f.fileno(), 0)
print(told[4], told[2])
PYTHON
  } >"$scratch/documented.py"
}

# A story of numbers.c in a new accelerated directory, and what it is to tell.
numbers() { # WANT STORY...
  story numbers "$@"
}

# The same of interrupted.c.
interrupted() { # STORY ROUNDS
  story interrupted "1 0" "$@"
}

# The same of hung.c.
hung() { # WANT STORY
  story hung "$@"
}

story() { # PROGRAM WANT STORY...
  local program=$1 want=$2 have name
  shift 2
  name=$program::$1${2:+_${2##*/}}
  # shellcheck disable=SC2046
  have=$(in_new_directory accelerated timeout --kill-after=2 $CHANCE_SECONDS_MAX env $(environment windows) \
    "$scratch/$program" "$@" 2>&1 || echo "exit $?")
  if [ "$have" = "$want" ]; then pass "$name"; else fail "$name" "'$have', not '$want'"; fi
}

# An agent that hangs is waited for no longer than a program that asks it nothing would.
inside_hung() {
  hung "1 1" write
  hung "1 0" advice
}

# A number comes to mean another file while a write by it is under way.
inside_numbers() {
  numbers "0 1" moved 200
  numbers "0 0" rotated 60
}

# What a probe told, but for what is another thing behind a server (S45: no O_TMPFILE).
comparable() { # FILE
  if [ -n "${FOREBAY_PRELOAD_SERVED:-}" ]; then grep -v 'O_TMPFILE\|(unnamed,' "$scratch/$1"; else cat "$scratch/$1"; fi
}

probe() { # NAME
  local name=$1 side with problem='' buffer=
  # The one build of each as it comes, the other with larger buffers of streams too.
  [[ $name == *.64 ]] && buffer=FOREBAY_STDIO_BUFFER=64KiB
  for side in plain accelerated; do
    for with in without forwarding windows; do
      # shellcheck disable=SC2046
      in_new_directory $side timeout --kill-after=2 $PROBE_SECONDS_MAX env $(environment $with) ${buffer:+"$buffer"} "$scratch/bin/$name" \
        >"$scratch/$name.$side.$with" 2>&1 </dev/null || problem="exit status $?, $side, $with"
    done
  done
  [ -s "$scratch/$name.plain.without" ] || problem="it printed nothing"
  for side in plain.forwarding plain.windows accelerated.without accelerated.forwarding accelerated.windows; do
    diff <(comparable "$name.plain.without") <(comparable "$name.$side") && continue
    problem="$side is not as plain (<)"
  done
  sed -n "s/.*\"skipped\":\"\([^\"]*\)\".*/not tested in probe::$name: \1/p" "$scratch/$name.plain.without" | sort -u
  if [ -n "$problem" ]; then fail "probe::$name" "$problem"; else pass "probe::$name"; fi
}

inside_probes() {
  local binary
  for binary in "$scratch"/bin/*; do
    probe "$(basename "$binary")"
  done
}

sums_of() { # SIDE
  if [ "$1" = plain ]; then (cd "$scratch/plain/here" && sha256sum -- *); else (cd "$global/here" && sha256sum -- *); fi
}

# The same operations with every choice of who has windows; the plain directory is the judge.
chance() { # SEED
  local seed=$1 side parent child name problem=
  for side in plain accelerated; do
    for parent in without windows; do
      for child in "" "$library"; do
        name=$side.$parent${child:+.child}
        # shellcheck disable=SC2046
        in_new_directory $side timeout --kill-after=2 $CHANCE_SECONDS_MAX env $(environment $parent) \
          "$scratch/chance" . "$seed" "$CHANCE_OPERATIONS" "$child" >"$scratch/chance.$name" 2>&1 </dev/null ||
          problem="exit status $? for $name"
        sums_of $side >>"$scratch/chance.$name"
        diff "$scratch/chance.plain.without" "$scratch/chance.$name" | head -n 8
        cmp -s "$scratch/chance.plain.without" "$scratch/chance.$name" || problem="$name is not as plain (<)"
      done
    done
  done
  if [ -n "$problem" ]; then fail "chance::seed_$seed" "$problem"; else pass "chance::seed_$seed"; fi
}

inside_chance() {
  local seed
  for seed in $CHANCE_SEEDS; do
    chance "$seed"
    rm -rf "$global/kept.$seed" "$scratch/kept.$seed" && cp -a "$scratch/plain/here" "$scratch/kept.$seed" && mv "$global/here" "$global/kept.$seed"
  done
}

# A part in an accelerated directory with windows; afterwards the global store holds what was seen.
run_inside() { # PART [PREFIX]
  timeout --kill-after=5 $PARTS_MAX_SECONDS "$forebay" run --quiet --window --no-preload --report "$scratch/report" \
    --policy "delegate=$delegate" --dir "$global" "${place[@]}" -- env FOREBAY_PRELOAD_INSIDE="$scratch" "$PWD/preload.sh" "$1" >"$scratch/inside" 2>&1 </dev/null
  retell "${2:-}"
}

# Passes on what another run of a suite told.
retell() { # PREFIX
  local line told=0
  while read -r line; do
    case $line in
      "test result:"*) told=1 ;;
      test\ *\ ok) pass "$1$(cut -d' ' -f2 <<<"$line")" ;;
      test\ *FAILED*) fail "$1$(cut -d' ' -f2 <<<"$line")" "${line#*FAILED: }" ;;
      *) echo "$line" ;;
    esac
  done <"$scratch/inside"
  [ $told = 1 ] || fail "$1part" "it did not end"
}

run_chance() { # [PREFIX]
  local seed written
  run_inside chance "${1:-}"
  # It proves nothing of windows if the rest of the mix always ends them at once.
  written=$(grep -o '"acknowledged_writes": *[0-9]*' "$scratch/report" | grep -o '[0-9]*$')
  if [ "${written:-0}" -ge $((CHANCE_WRITES_MIN * $(wc -w <<<"$CHANCE_SEEDS"))) ]; then
    pass "${1:-}chance::windows" && echo "$written writes"
  else
    fail "${1:-}chance::windows" "they took ${written:-no} writes"
  fi
  for seed in $CHANCE_SEEDS; do
    if diff -r "$scratch/kept.$seed" "$global/kept.$seed"; then
      pass "${1:-}chance::global_store_$seed"
    else
      fail "${1:-}chance::global_store_$seed" "it holds other bytes"
    fi
  done
}

# The same where the burst buffer is behind a server.
run_served() {
  local place=(--server "unix:$scratch/served.sock")
  export FOREBAY_PRELOAD_SERVED=yes
  mkdir "$scratch/served" && serve "$global" "$scratch/served" || { fail served "no server"; return; }
  run_inside probes served::
  run_chance served::
  if end_server; then pass served::end; else fail served::end "the server did not end well"; fi
  unset FOREBAY_PRELOAD_SERVED
}

# In a directory that is made through the mount and delegated.
run_delegated() {
  local delegate=new
  run_inside windows delegated::
  run_inside probes delegated::
  run_chance delegated::
}

# A burst buffer that does not take what a window acknowledged.
run_full() {
  local small=$scratch/small told
  mkdir -p "$small" && mount -t tmpfs -o size=64m small "$small" && mkdir "$small/buffer" &&
    head -c 16M /dev/zero >"$small/filler" || return
  mkdir -p "$global/here"
  told=$(cd "$global/here" && timeout --kill-after=5 $CHANCE_SECONDS_MAX "$forebay" run --quiet --window --policy stage_out=manual \
    --dir "$global" --burst-buffer "$small/buffer" -- "$scratch/full" "$small/filler" 2>"$scratch/full.stderr")
  umount "$small"
  if [ "$told" = "0 wrong" ]; then pass "full::what_cannot_be_drained_is_there_all_the_same"; else
    fail "full::what_cannot_be_drained_is_there_all_the_same" "$told $(tail -n 5 "$scratch/full.stderr")"
  fi
}

# How a command comes to load the library, and how not.
run_loading() {
  local other=$scratch/other told
  preloaded() { # FOREBAY OPTION... -- what the command is told to load
    LD_PRELOAD=/lib/x86_64-linux-gnu/libm.so.6 "$@" --dir "$global" --burst-buffer "$buffer" -- bash -c 'echo "$LD_PRELOAD"' 2>"$scratch/told"
  }
  is() { # NAME HAVE WANT
    if [ "$2" = "$3" ]; then pass "loading::$1"; else fail "loading::$1" "'$2', not '$3'"; fi
  }
  told=$(preloaded "$forebay" run --quiet --window)
  is windows_bring_the_library_and_what_was_loaded_stays "${told#*'/$PLATFORM/'}" \
    "libforebay_preload.so:/lib/x86_64-linux-gnu/libm.so.6"
  is no_preload_leaves_it_out "$(preloaded "$forebay" run --quiet --window --no-preload)" /lib/x86_64-linux-gnu/libm.so.6
  is without_windows_there_is_no_library "$(preloaded "$forebay" run --quiet)" /lib/x86_64-linux-gnu/libm.so.6
  mkdir -p "$other/bin" "$other/lib/forebay"
  cp "$forebay" "$other/bin/forebay" && cp "$library" "$other/lib/forebay/libforebay_preload.so"
  told=$(preloaded "$other/bin/forebay" run --quiet --window)
  is it_is_found_in_lib_forebay "$(readlink "${told%%'/$PLATFORM/'*}/x86_64/libforebay_preload.so")" "$other/lib/forebay/libforebay_preload.so"
  sed -i 's/forebay preload library [0-9.]*, windows/forebay preload library 9.9.9, windows/' "$other/lib/forebay/libforebay_preload.so"
  is another_version_is_not_loaded "$(preloaded "$other/bin/forebay" run --quiet --window)" /lib/x86_64-linux-gnu/libm.so.6
  told=$(grep -c 'is not of this version' "$scratch/told")
  is another_version_is_told "$told" 1
}

# Every name that the library takes the place of is called by a probe, in one of its builds; but for these.
UNCALLED="io_submit" # libaio's: asynchronous.c looks it up as a program does that loads libaio itself
run_names() {
  local have
  have=$(comm -23 <(nm --dynamic --defined-only "$library" | awk '{ print $3 }' | sort) \
    <(nm --undefined-only "$scratch"/bin/* | awk '{ sub(/@.*/, "", $2); print $2 }' | sort -u) | xargs)
  if [ "$have" = "$UNCALLED" ]; then pass names::each_is_called; else fail names::each_is_called "not called: '$have'; known: '$UNCALLED'"; fi
}

# The programs of the other suite once more.
run_programs() {
  FOREBAY_SUITE_WINDOW=--window ./programs.sh >"$scratch/inside" 2>&1
  retell programs::
}

if [ -n "${FOREBAY_PRELOAD_INSIDE:-}" ]; then
  scratch=$FOREBAY_PRELOAD_INSIDE global=$FOREBAY_PRELOAD_INSIDE/global
  library=${FOREBAY_PRELOAD:?}
  "inside_$1"
  finish
fi

. ./accelerated.sh
export FOREBAY_PRELOAD=${FOREBAY_PRELOAD:-$top/target/debug/libforebay_preload.so}
library=$FOREBAY_PRELOAD global=$scratch/global buffer=$scratch/buffer
place=(--burst-buffer "$buffer") delegate=off
mkdir -p "$global" "$buffer" "$scratch/bin"
[ -e "$library" ] || { fail "library" "$library is not there"; finish; }
compile && compile_examples || { fail "programs of this suite" "they do not compile"; finish; }
[ $# -gt 0 ] || set -- names loading windows full numbers hung probes chance delegated served programs
for part in "$@"; do
  case $part in
    windows | numbers | hung | probes) run_inside "$part" ;;
    names | loading | full | chance | delegated | served | programs) "run_$part" ;;
    *) fail "$part" "no such part" ;;
  esac
done
finish
