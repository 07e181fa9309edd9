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
