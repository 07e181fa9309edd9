#!/usr/bin/env bash
# Real programs, unmodified: each of tests/suites/programs runs directly in one directory and under `forebay run` in
# another. What they print and every file they leave in the global store must be the same.
#
#   tests/suites/programs.sh [PROGRAM...]        FOREBAY_PLAIN=1 runs both directly, to test the programs themselves
#
# Clauses: S7, S9, S11
cd "$(dirname "$0")" || exit 1
. ./report.sh
. ./accelerated.sh

PROGRAM_SECONDS_MAX=90

export LC_ALL=C TZ=UTC INPUT=$scratch/input
mkdir -p "$INPUT"

# A tree of some hundred real source files and 8 MiB that do not compress, the same in every run.
make_input() {
  (cd "$top" && find Cargo.toml Cargo.lock crates docs scripts tests xtask -type f -print0 | sort -z |
    tar --null --no-recursion --files-from=- --owner=0 --group=0 --mtime=@0 -cf "$INPUT/sources.tar")
  openssl enc -aes-128-ctr -nosalt -pass pass:forebay -in /dev/zero 2>/dev/null | head -c 8388608 >"$INPUT/random"
}

# Name, type, mode, links, size, target, content of everything below a directory.
manifest() { # DIR
  (cd "$1" && find . -mindepth 1 -type d -printf 'd %m %p\n' -o -type l -printf 'l %p %l\n' -o -printf '%y %m %n %s %p\n' | sort -k 3
    find . -type f -print0 | sort -z | xargs -0 -r sha256sum)
}

run_program() { # NAME
  local name=$1 script=$PWD/programs/$1.sh global=$scratch/global buffer=$scratch/buffer/$1 direct=$scratch/direct/$1
  mkdir -p "$direct" "$global/$name" "$buffer"
  (cd "$direct" && timeout --kill-after=5 $PROGRAM_SECONDS_MAX bash "$script") >"$scratch/$name.direct" 2>"$scratch/$name.direct.stderr" </dev/null
  (cd "$global/$name" && run_accelerated "$global" "$buffer" \
    timeout --kill-after=5 $PROGRAM_SECONDS_MAX bash "$script") >"$scratch/$name.accelerated" 2>"$scratch/$name.stderr" </dev/null
  local status=$?
  manifest "$direct" >"$scratch/$name.want"
  manifest "$global/$name" >"$scratch/$name.have"
  if [ $status != 0 ]; then
    fail "$name" "exit status $status"
    tail -n 20 "$scratch/$name.accelerated" "$scratch/$name.stderr"
  elif ! diff "$scratch/$name.direct" "$scratch/$name.accelerated"; then
    fail "$name" "it printed something else (<: directly, >: accelerated)"
    tail -n 20 "$scratch/$name.stderr"
  elif ! diff "$scratch/$name.want" "$scratch/$name.have"; then
    fail "$name" "it left other files (<: directly, >: accelerated)"
  else
    pass "$name"
    sed -n "s/^not tested: /not tested in programs::$name: /p" "$scratch/$name.direct"
  fi
  rm -rf "$direct" "${global:?}/$name" "$buffer"
}

make_input
if [ $# = 0 ]; then
  for script in programs/*.sh; do
    set -- "$@" "$(basename "$script" .sh)"
  done
fi
for program in "$@"; do
  run_program "$program"
done
finish
