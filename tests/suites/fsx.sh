#!/usr/bin/env bash
# Random operations on one file, each read checked against a model in memory: fsx, by system calls and by mappings, with
# room in the burst buffer and with almost none, by each way that data goes, through windows, and through a server that has the
# names. After the drain the global store must hold what the program last saw.
#
#   tests/suites/fsx.sh [RUN...]               FOREBAY_PLAIN=1 runs in the plain directory
#
# Clauses: S8, S30, S40, S48
cd "$(dirname "$0")" || exit 1
. ./report.sh
. ./accelerated.sh

VERSION=0.3.2
OPERATIONS=${FOREBAY_FSX_OPERATIONS:-6000}
RUN_SECONDS_MAX=90
SEED=${FOREBAY_FSX_SEED:-20261121}

# weights NAME=N...: an fsx configuration with the listed operations.
configuration() { # FILE LENGTH WEIGHT...
  local file=$1 length=$2
  shift 2
  {
    printf 'flen = %s\n[opsize]\nmax = %s\n[weights]\n' "$length" $((length / 4))
    printf '%s\n' "$@"
  } >"$file"
}

calls=(read=10 write=10 truncate=2 mapread=0 mapwrite=0 invalidate=0)
mapped=(read=10 write=10 truncate=2 mapread=10 mapwrite=10 invalidate=1)
# What ends the window of a file is rare, or it would have none for long.
windowed=(read=10 write=10 truncate=2 invalidate=0 fsync=0.2 fdatasync=0.2 punch_hole=2 posix_fallocate=2)
unmapped=(mapread=0 mapwrite=0)
ending=(close_open=0.5 mapread=0.01 mapwrite=0.01 sendfile=0.01 copy_file_range=0.01)
# Environment of fsx: what loads the library that writes through windows.
loaded=()
wide=(fsync=0.2 fdatasync=0.2 close_open=1 punch_hole=2 posix_fallocate=2 sendfile=2 copy_file_range=2 posix_fadvise=1)

run_fsx() { # NAME GLOBAL FILES
  local name=$1 global=$2 files=$3 n children=() bad=0
  for n in $(seq "$files"); do
    env "${loaded[@]}" timeout --kill-after=5 $RUN_SECONDS_MAX "$tools/bin/fsx" -q -N "$OPERATIONS" -S $((SEED + n)) -P "$scratch/artifacts" \
      -f "$scratch/$name.toml" "$global/$name.$n" >"$scratch/$name.$n.log" 2>&1 </dev/null &
    children+=($!)
  done
  for n in $(seq "$files"); do
    wait "${children[n - 1]}" && continue
    bad=1
    fail "fsx::$name.$n" "seed $((SEED + n)), exit status $?"
    tail -n 15 "$scratch/$name.$n.log"
  done
  return $bad
}

exercise() { # NAME GLOBAL BUFFER FILES [OPTION...]
  local name=$1 global=$2 buffer=$3 files=$4
  mkdir -p "$global" "$buffer"
  if ! mount_accelerated "$global" "$buffer" "${@:5}"; then
    fail "fsx::$name" "cannot mount"
    return
  fi
  run_and_compare "$name" "$global" "$global" "$files" unmount_accelerated
}

# The same through windows, of which there must have been some.
exercise_windows() { # NAME GLOBAL BUFFER|unix:PATH FILES [OPTION...]
  local rings=$scratch/memory/rings.$1 library=${FOREBAY_PRELOAD:-$top/target/debug/libforebay_preload.so} before=$failed_count socket writes
  mkdir -p "$2" "$rings" && chmod 700 "$rings"
  if ! mount_accelerated "$2" "$3" "${@:5}" --window="$rings"; then
    fail "fsx::$1" "cannot mount"
    return
  fi
  socket=$(sed -n 's/^export FOREBAY_WINDOW_SOCKET=\([^ ]*\).*/\1/p' "$scratch/mount.log")
  loaded=(LD_PRELOAD="$library" FOREBAY_WINDOW_SOCKET="$socket")
  run_and_compare "$1" "$2" "$2" "$4" unmount_windows
  loaded=()
  writes=$(cat "$scratch/windowed")
  [ "$failed_count" != "$before" ] || [ "${writes:-0}" -ge $((OPERATIONS / 10)) ] ||
    fail "fsx::$1.windows" "only '$writes' writes went through windows"
}

unmount_windows() { # GLOBAL
  "$forebay" status --json "$1" | sed -n 's/.*"acknowledged_writes": *\([0-9]*\).*/\1/p' | head -n 1 >"$scratch/windowed"
  unmount_accelerated "$1"
}

# As on a node that does not see GLOBAL: names and data through a server.
exercise_names() { # NAME GLOBAL BUFFER DIR FILES
  local name=$1 global=$2 buffer=$3 dir=$4 files=$5
  mkdir -p "$global" "$buffer" "$dir"
  if ! mount_names "$global" "$buffer" "$dir"; then
    fail "fsx::$name" "cannot mount"
    return
  fi
  run_and_compare "$name" "$dir" "$global" "$files" unmount_names
}

# Runs fsx in DIR; after that is taken away GLOBAL must hold what it saw last.
run_and_compare() { # NAME DIR GLOBAL FILES UNMOUNT
  local name=$1 dir=$2 global=$3 files=$4 unmount=$5 seen
  mkdir -p "$scratch/artifacts"
  run_fsx "$name" "$dir" "$files"
  local verdict=$?
  seen=$(cd "$dir" && sha256sum "$name".*)
  if ! $unmount "$dir"; then
    fail "fsx::$name" "the mount does not go"
  elif ! (cd "$global" && sha256sum --check --quiet) <<<"$seen"; then
    fail "fsx::$name" "the global store holds other bytes"
  elif [ $verdict = 0 ]; then
    pass "fsx::$name"
  fi
  rm -f "$global/$name".*
}

# Files come and go while fsx runs, so that replicas must be evicted and new files go through.
crowd() { # GLOBAL
  local n
  until [ -e "$1/crowded.1" ]; do sleep 0.1; done
  for n in $(seq 200); do
    head -c 3000000 /dev/zero >"$1/crowd.$((n % 40))" || fail fsx::crowd "a file of the crowd cannot be written"
    [ -e "$1/crowded.1" ] || break
  done
  rm -f "$1"/crowd.*
}

selected() { # NAME
  [ ${#runs[@]} = 0 ] || [[ " ${runs[*]} " == *" $1 "* ]]
}

runs=("$@")
if ! install_tool fsx $VERSION; then
  fail install "fsx $VERSION cannot be installed"
  finish
fi
mkdir -p "$scratch/memory"
mount -t tmpfs -o size=400m forebay-test "$scratch/memory"
configuration "$scratch/calls.toml" 262144 "${calls[@]/=/ = }" "${wide[@]/=/ = }"
configuration "$scratch/through.toml" 262144 "${mapped[@]/=/ = }" "${wide[@]/=/ = }"
configuration "$scratch/mapped.toml" 262144 "${mapped[@]/=/ = }" "${wide[@]/=/ = }"
configuration "$scratch/large.toml" 6000000 "${mapped[@]/=/ = }" "${wide[@]/=/ = }"
configuration "$scratch/crowded.toml" 2000000 "${mapped[@]/=/ = }" "${wide[@]/=/ = }"
configuration "$scratch/memory.toml" 262144 "${mapped[@]/=/ = }" "${wide[@]/=/ = }"
selected calls && exercise calls "$scratch/global" "$scratch/buffer" 1
selected mapped && exercise mapped "$scratch/global" "$scratch/buffer" 1
selected through && exercise through "$scratch/global" "$scratch/buffer" 1 --policy cache=through
if selected agent; then
  # In a user namespace there is no passthrough: all data goes through the agent.
  if said=$(unshare --user --map-root-user --mount --propagation private ./fsx.sh calls mapped 2>&1); then
    pass fsx::agent
  else
    fail fsx::agent "without passthrough"
    echo "$said"
  fi
fi
selected large && OPERATIONS=$((OPERATIONS / 4)) exercise large "$scratch/global" "$scratch/buffer" 2
selected memory && exercise memory "$scratch/memory/global" "$scratch/memory/buffer" 2
if selected windows; then
  mkdir -p "$scratch/global" "$scratch/buffer"
  configuration "$scratch/windows.toml" 262144 "${windowed[@]/=/ = }" "${unmapped[@]/=/ = }"
  exercise_windows windows "$scratch/global" "$scratch/buffer" 2 --policy window=1MiB
  # Behind a server windows come back after what ends them.
  configuration "$scratch/windows_at_a_server.toml" 262144 "${windowed[@]/=/ = }" "${ending[@]/=/ = }"
  mkdir -p "$scratch/memory/windowed" "$scratch/memory/remote"
  if serve "$scratch/memory/windowed" "$scratch/memory/remote"; then
    exercise_windows windows_at_a_server "$scratch/memory/windowed" "unix:$scratch/memory/remote.sock" 2
    end_server || fail fsx::windows_at_a_server.end "the server does not end well"
  else
    fail fsx::windows_at_a_server "no server"
  fi
fi
if selected names; then
  configuration "$scratch/names.toml" 262144 "${mapped[@]/=/ = }" "${wide[@]/=/ = }"
  OPERATIONS=$((OPERATIONS / 2)) exercise_names names "$scratch/memory/served" "$scratch/memory/server" "$scratch/names" 2
fi
if selected crowded; then
  # Three files of up to 2 MB, over a burst buffer of 32 MiB that others fill again and again.
  mkdir -p "$scratch/small"
  mount -t tmpfs -o size=32m forebay-test "$scratch/small"
  crowd "$scratch/global" &
  crowd=$!
  exercise crowded "$scratch/global" "$scratch/small/buffer" 3 --policy passthrough_reserve=30%
  wait "$crowd" 2>/dev/null
fi
finish
