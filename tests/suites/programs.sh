#!/usr/bin/env bash
# Real programs, unmodified: each of tests/suites/programs runs directly in one directory and under `forebay run` in
# others: in one that is there, where nothing is delegated, and in one that was made through the mount and is delegated.
# What they print and every file they leave in the global store must be the same. What the mount shows at the end must be
# what the global store has after the drain, to the times of modification.
#
#   tests/suites/programs.sh [PROGRAM...]        FOREBAY_PLAIN=1 runs all directly, to test the programs themselves
#
# Clauses: S1, S7, S9, S11, S71
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

# Everything below a directory, a line each: type, mode, owner, links and the first name of the same file, size, time of
# modification, extended attributes, content. With `--without-times` what two runs have in common.
cat >"$scratch/manifest.py" <<'PYTHON'
import hashlib, os, stat, sys

top, times = sys.argv[1], "--without-times" not in sys.argv
first = {}
paths = sorted(os.path.join(at, name)[len(top) + 1:] for at, directories, files in os.walk(top) for name in directories + files)
for path in [""] + paths:
    at = os.path.join(top, path)
    found = os.lstat(at)
    what = [oct(found.st_mode), found.st_uid, found.st_gid, found.st_nlink]
    if not stat.S_ISDIR(found.st_mode):
        what += [first.setdefault(found.st_ino, path), found.st_size, found.st_rdev]
    if times:
        what.append(found.st_mtime_ns)
    what += [(name, os.getxattr(at, name, follow_symlinks=False).hex()) for name in sorted(os.listxattr(at, follow_symlinks=False))
             if not name.startswith("user.forebay.")]
    if stat.S_ISLNK(found.st_mode):
        what.append(os.readlink(at))
    if stat.S_ISREG(found.st_mode):
        with open(at, "rb") as file:
            what.append(hashlib.file_digest(file, "sha256").hexdigest() if hasattr(hashlib, "file_digest") else
                        hashlib.sha256(file.read()).hexdigest())
    print(repr(path), *what)
PYTHON

# Runs a program in the working directory or in a new one, and then tells what the directory looks like from inside.
cat >"$scratch/inside.sh" <<'INSIDE'
script=$1 directory=$2 seconds=$3 manifest=$4
mkdir -p "$directory" && cd "$directory" || exit
timeout --kill-after=5 "$seconds" bash "$script"
status=$?
# Pages that were stored to by a mapping get their time when the kernel writes them.
sync -f .
python3 "${manifest%.*}.py" . >"$manifest"
exit $status
INSIDE

run_accelerated_as() { # VARIANT NAME: sets `have`, where it ran
  local variant=$1 name=$2 script=$PWD/programs/$2.sh global=$scratch/global/$1 buffer=$scratch/buffer/$1 rule=delegate=off
  have=$global/$name
  mkdir -p "$global" "$buffer"
  if [ "$variant" = delegated ]; then rule=delegate=new; else mkdir "$have"; fi
  (cd "$global" && FOREBAY_SUITE_POLICY=$rule run_accelerated "$global" "$buffer" \
    bash "$scratch/inside.sh" "$script" "$name" $PROGRAM_SECONDS_MAX "$scratch/manifest.$variant") \
    >"$scratch/$name.accelerated" 2>"$scratch/$name.stderr" </dev/null
}

# Fails with a reason, and prints what is to be seen of it.
compare() { # VARIANT NAME
  local variant=$1 name=$2 have status
  run_accelerated_as "$variant" "$name"
  status=$?
  if [ $status != 0 ]; then
    why="exit status $status"
    tail -n 20 "$scratch/$name.accelerated" "$scratch/$name.stderr"
  elif ! diff "$scratch/$name.direct" "$scratch/$name.accelerated"; then
    why="it printed something else (<: directly, >: $variant)"
    tail -n 20 "$scratch/$name.stderr"
  elif ! diff "$scratch/$name.want" <(python3 "$scratch/manifest.py" "$have" --without-times); then
    why="it left other files (<: directly, >: $variant)"
  elif ! diff "$scratch/manifest.$variant" <(python3 "$scratch/manifest.py" "$have"); then
    why="the mount showed something else than is in the store (<: the mount, >: below, $variant)"
  else
    why=
  fi
  rm -rf "$have" "${scratch:?}/buffer"
  [ -z "$why" ]
}

run_program() { # NAME
  local name=$1 script=$PWD/programs/$1.sh direct=$scratch/direct/$1 why
  mkdir -p "$direct"
  (cd "$direct" && timeout --kill-after=5 $PROGRAM_SECONDS_MAX bash "$script") >"$scratch/$name.direct" 2>"$scratch/$name.direct.stderr" </dev/null
  python3 "$scratch/manifest.py" "$direct" --without-times >"$scratch/$name.want"
  if compare undelegated "$name" && compare delegated "$name"; then
    pass "$name"
    sed -n "s/^not tested: /not tested in programs::$name: /p" "$scratch/$name.direct"
  else
    fail "$name" "$why"
  fi
  rm -rf "$direct"
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
