# shellcheck shell=bash
# What names and small files cost over a store of 2 ms a request: the same work directly and through Forebay with its default policies.
# Each measurement has a store that was mounted just now and an empty burst buffer, so nothing is known; it ends when all is in the
# store. What `forebay run -- true` takes is taken off.

NAMES_FILES=${NAMES_FILES:-300} # in ten directories, 4 KiB each
NAMES_RATE_FILES=${NAMES_RATE_FILES:-4000} # of 3,901 bytes, for each process; each is a descriptor of the agent
names_store=$scratch/store names_lower=$slow/names names_local=$scratch/local
slowfs=${SLOWFS:-$(dirname "$forebay")/slowfs}

# A tree of small files, as it lies in the store before the work.
names_tree() { # DIRECTORY
  python3 -c 'import os, sys
top, count = sys.argv[1], int(sys.argv[2])
for number in range(count):
    at = os.path.join(top, f"d{number % 10}")
    os.makedirs(at, exist_ok=True)
    with open(os.path.join(at, f"f{number}"), "w") as file:
        file.write(f"line {number} of a file\n" * 180)' "$1" "$NAMES_FILES"
}

# Runs a shell command in the store, which is new, and says how long it took with all that follows.
names_run() { # SIDE COMMAND
  local began took
  rm -rf "${names_lower:?}" "${buffer:?}" "${names_local:?}/out"
  mkdir -p "$names_lower" "$buffer" "$names_store" "$names_local/out"
  cp -r "$names_local/tree" "$names_lower/tree"
  "$slowfs" "$names_lower" "$names_store" --latency 2ms || exit 1
  began=$(now)
  if [ "$1" = bare ]; then
    (cd "$names_store" && LOCAL=$names_local sh -c "$2") >"$out/names.log" 2>&1 || { cat "$out/names.log" >&2 && exit 1; }
  else
    (cd "$names_store" && LOCAL=$names_local "$forebay" run --quiet --burst-buffer "$buffer" --dir "$names_store" -- sh -c "$2") \
      >"$out/names.log" 2>&1 || { cat "$out/names.log" >&2 && exit 1; }
  fi
  took=$(since "$began")
  umount "$names_store"
  echo "$took"
}

names_case() { # SIDE LABEL COMMAND
  local took
  took=$(names_run "$1" "$3") || exit 1
  [ "$1" = bare ] || took=$(awk -v all="$took" -v start="$names_start" 'BEGIN { printf "%.4f", all - start }')
  value "$2" s less "$1" "$took"
}

bench_names-cost() {
  mkdir -p "$names_local"
  names_tree "$names_local/tree"
  git init -q "$names_local/repository" && cp -r "$names_local/tree" "$names_local/repository/"
  (cd "$names_local/repository" && git add . && git -c user.name=bench -c user.email=bench@localhost commit -qm tree)
  names_start=$(for _ in 1 2 3; do names_run forebay true || exit 1; done | sort -n | sed -n 2p)
  value "run -- true, 2 ms a request" s less forebay "$names_start"
  both names_case "find -printf" 'find tree -printf "%s %p\n"'
  both names_case "grep -r" 'grep -r "nothing like this" tree || test $? = 1'
  both names_case "tar" 'tar cf - tree | cat >/dev/null'
  both names_case "cp -r" 'cp -r tree copy'
  both names_case "rm -r" 'rm -r tree'
  both names_case "rsync in" 'rsync -a "$LOCAL/tree/" arrived/'
  both names_case "rsync out" 'rsync -a tree/ "$LOCAL/out/"'
  both names_case "git clone" 'git clone -q "$LOCAL/repository" clone'
  both names_case "many small creates" 'python3 -c "for n in range('"$NAMES_FILES"'): open(f\"new{n}\", \"w\").write(\"x\" * 4096)"'
}

names_letters=dcsou
names_labels=("mkdir" "create, write 3,901 B, close" "stat after that" "open, read 3,901 B, close" "unlink")

# Rates of small files in PLACE by so many processes, once under each label.
names_rates() { # SIDE PLACE FILES PROCESSES LABEL...
  local rates number label
  mapfile -t rates < <("$scratch/small_files" "$2" "$3" "$4" "$names_letters")
  [ "${#rates[@]}" = "${#names_labels[@]}" ] || exit 1
  for label in "${@:5}"; do
    for number in "${!rates[@]}"; do
      value "${names_labels[number]}, $label" 1/s more "$1" "${rates[number]}"
    done
  done
  rm -rf "$2"/p*
}

# Through Forebay, with an empty burst buffer.
names_accelerated() { # PLACE FILES PROCESSES LABEL...
  rm -rf "${buffer:?}" && mkdir "$buffer"
  "$forebay" mount "$1" --burst-buffer "$buffer" ${NAMES_POLICY:+--policy "$NAMES_POLICY"} >"$out/mount.log" 2>&1 </dev/null ||
    { cat "$out/mount.log" && exit 1; }
  names_rates forebay "$@"
  "$forebay" umount "$1" >"$out/umount.log" 2>&1 </dev/null || { cat "$out/umount.log" && exit 1; }
}

# Beside the bare file system, beside a FUSE server that answers from constants, beside one that also has a local file each, and over a
# slow store.
bench_names() {
  local round processes latency empty of_files files=$NAMES_RATE_FILES
  gcc -O2 -o "$scratch/small_files" benches/small_files.c && gcc -O2 -o "$scratch/empty_fuse" benches/empty_fuse.c || exit 1
  mkdir "$scratch/empty" "$scratch/files" "$fast/files"
  "$scratch/empty_fuse" "$scratch/empty" "$scratch/backing" &
  empty=$!
  "$scratch/empty_fuse" "$scratch/files" "$scratch/backing" "$fast/files" &
  of_files=$!
  until mountpoint -q "$scratch/empty" && mountpoint -q "$scratch/files"; do sleep 0.1; done
  for processes in 1 2 4; do
    for round in $(seq "$ROUNDS"); do
      names_rates bare "$slow" "$files" "$processes" "$processes processes"
      names_rates bare "$scratch/empty" "$files" "$processes" "$processes processes, empty server"
      names_rates bare "$scratch/files" "$files" "$processes" "$processes processes, server with a file each"
      names_accelerated "$dir" "$files" "$processes" "$processes processes" "$processes processes, empty server" \
        "$processes processes, server with a file each"
    done
  done
  umount "$scratch/empty" "$scratch/files"
  wait "$empty" "$of_files"
  rm -rf "$fast/files"
  files=$((NAMES_RATE_FILES / 20))
  for latency in 0.5ms 2ms; do
    for round in $(seq "$ROUNDS"); do
      rm -rf "${names_lower:?}" && mkdir -p "$names_lower" "$names_store"
      "$slowfs" "$names_lower" "$names_store" --latency "$latency" || exit 1
      names_rates bare "$names_store" "$files" 1 "$latency a request"
      names_accelerated "$names_store" "$files" 1 "$latency a request"
      umount "$names_store"
    done
  done
}
