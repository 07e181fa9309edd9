# Sourced by all.sh: what the preload library costs programs whose files are not ours. `bare` is without the library.

library=${FOREBAY_PRELOAD:-$PWD/target/release/libforebay_preload.so}

untouched() { # SIDE OPERATION UNIT LABEL [FILE]
  local preload=
  [ "$1" = bare ] || preload=$library
  value "$4" "$3" less "$1" "$(LD_PRELOAD=$preload "$scratch/untouched" "$2" ${5:+"$5"})"
}

bench_preload() {
  gcc -O2 -o "$scratch/untouched" benches/untouched.c || exit 1
  for operation in lseek pread pwrite; do
    both untouched "$operation" ns "$operation on another file, preloaded" "$scratch/plain"
  done
  both untouched start us "start of a process, preloaded"
}

# `bare` is write(2) to a tmpfs as it comes.
acknowledged() { # SIDE BYTES LABEL
  local file=/dev/shm/forebay-bench.$$
  [ "$1" = bare ] || file=$dir/acknowledged
  value "$3" us less "$1" "$("$scratch/acknowledged" "$file" "$2")"
  rm -f "$file"
}

bench_window() {
  gcc -O2 -o "$scratch/acknowledged" benches/acknowledged.c || exit 1
  export -f acknowledged value both
  export library out scratch dir ROUNDS
  # shellcheck disable=SC2016
  "$forebay" run --quiet --window --policy stage_out=manual --dir "$dir" --burst-buffer "$buffer" -- bash -c '
    both acknowledged 8192 "acknowledged write of 8 KiB"
    both acknowledged 131072 "acknowledged write of 128 KiB"
    for bytes in 8192 131072; do
      for round in $(seq "$ROUNDS"); do
        value "memcpy of $bytes bytes" us less forebay "$("$scratch/acknowledged" - $bytes)"
      done
    done'
}
