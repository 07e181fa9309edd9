# Sourced by all.sh: what the preload library costs programs whose files are not ours, where an agent serves windows. `bare` is without
# the library.

library=${FOREBAY_PRELOAD:-$PWD/target/release/libforebay_preload.so}

untouched() { # SIDE OPERATION UNIT LABEL [FILE]
  local preload=
  [ "$1" = bare ] || preload=$library
  value "$4" "$3" less "$1" "$(LD_PRELOAD=$preload "$scratch/untouched" "$2" ${5:+"$5"})"
}

bench_preload() {
  gcc -O2 -o "$scratch/untouched" benches/untouched.c || exit 1
  export -f untouched value both
  export library out scratch ROUNDS
  # shellcheck disable=SC2016
  windowed /dev/shm /dev/shm '
    for operation in lseek pread pwrite mmap open; do
      both untouched "$operation" ns "$operation on another file, preloaded" "$scratch/plain"
    done
    both untouched start us "start of a process, preloaded"'
}

# `bare` is write(2) to a tmpfs.
acknowledged() { # SIDE BYTES LABEL
  local file=$tmpfs/forebay-bench.$$ took synced
  [ "$1" = bare ] || file=$dir/acknowledged
  read -r took synced < <("$scratch/acknowledged" "$file" "$2")
  value "$3" us less "$1" "$took"
  [ "$1" = bare ] || value "$3, until synced" us less "$1" "$synced"
  rm -f "$file"
}

# More than a window holds, until it is written and until it is synced in the burst buffer's file system; and it is compared.
beyond() { # SIDE [HOW]
  local written all at
  at=$(at "$1")/beyond
  mkdir "$at"
  read -r written all < <("$scratch/streams" "$at" own 131072 1 $((1 << 30)))
  value "1 GiB in writes of 128 KiB${2:-}, to the last write" MB/s more "$1" "$written"
  value "1 GiB in writes of 128 KiB${2:-}, until synced" MB/s more "$1" "$all"
  rm -r "$at"
}

# What a window without a journal or a checksum, shared with nobody, would give at most.
two_copies() {
  local written all
  read -r written all < <("$scratch/two_copies" "$scratch/huge" "$bare" 131072 $((16 << 20)) $((1 << 30)))
  value "the same by two threads and a bare ring of 16 MiB, to the last write" MB/s more forebay "$written"
  value "the same by two threads and a bare ring of 16 MiB, until synced" MB/s more forebay "$all"
  rm "$bare/two_copies"
}

# Four processes: `bare` is a file for each, the other one file for all, both in PLACE.
together() { # SIDE PLACE LABEL
  local written all kind=own
  [ "$1" = bare ] || kind=shared
  mkdir "$2/together" && : >"$2/together/shared"
  read -r written all < <("$scratch/streams" "$2/together" $kind 47008 4 $((1 << 29)))
  value "$3, to the last write" MB/s more "$1" "$written"
  value "$3, until synced" MB/s more "$1" "$all"
  rm -r "$2/together"
}

windowed() { # RINGS TMPFS COMMAND [RULE...]
  local rules=(stage_out=manual "${@:4}")
  tmpfs=$2 "$forebay" run --quiet --window="$1" "${rules[@]/#/--policy=}" --dir "$dir" --burst-buffer "$buffer" -- bash -c "$3"
}

bench_window() {
  gcc -O2 -o "$scratch/acknowledged" benches/acknowledged.c || exit 1
  gcc -O2 -o "$scratch/streams" benches/streams.c || exit 1
  gcc -O2 -pthread -o "$scratch/two_copies" benches/two_copies.c || exit 1
  # As `--window` without a directory mounts it, but not from within a namespace.
  mkdir "$scratch/huge" && mount -t tmpfs -o huge=within_size,size=25% huge "$scratch/huge" || exit 1
  export -f acknowledged beyond two_copies together value both at on_complete fio_rates fio_run
  export library out scratch dir bare ROUNDS
  # shellcheck disable=SC2016
  windowed "$scratch/huge" /dev/shm '
    both acknowledged 8192 "acknowledged write of 8 KiB"
    both acknowledged 131072 "acknowledged write of 128 KiB"
    for bytes in 8192 131072; do
      for round in $(seq "$ROUNDS"); do
        read -r took _ < <("$scratch/acknowledged" - $bytes)
        value "memcpy of $bytes bytes" us less forebay "$took"
      done
    done
    both beyond
    for round in $(seq "$ROUNDS"); do two_copies; done
    both together "$dir" "four writers of 47,008 bytes"
    both together "$bare" "four writers of 47,008 bytes, without windows"
    for at in "$bare" "$dir"; do head -c 128M /dev/urandom >"$at/complete"; done
    # Read anew, both: how the pages of a file lie that was written here or there makes a tenth of what a read takes.
    sync && echo 3 >/proc/sys/vm/drop_caches
    for at in "$bare" "$dir"; do cat "$at/complete" >/dev/null; done
    both on_complete "random read 4 KiB, preloaded" randread 128m 4k
    rm "$bare/complete" "$dir/complete"'
  windowed "$scratch/huge" "$scratch/huge" '
    both acknowledged 8192 "acknowledged write of 8 KiB, write(2) there too"
    both acknowledged 131072 "acknowledged write of 128 KiB, write(2) there too"'
  windowed /dev/shm /dev/shm '
    both acknowledged 8192 "acknowledged write of 8 KiB, rings in /dev/shm"
    both acknowledged 131072 "acknowledged write of 128 KiB, rings in /dev/shm"'
  # shellcheck disable=SC2016
  windowed "$scratch/huge" "$scratch/huge" '
    both beyond ", written back by the kernel"
    both together "$dir" "four writers of 47,008 bytes, written back by the kernel"' write_back=kernel
  umount "$scratch/huge"
}
