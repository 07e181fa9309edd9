# Sourced by suites: a scratch directory, and how a directory is accelerated, by `forebay run` or `forebay mount`.
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=scripts/environment.sh
. "$top/scripts/environment.sh"
forebay=${FOREBAY:-$top/target/debug/forebay}
tools=$top/target/tools
scratch=$(mktemp -d "${FOREBAY_TEST_DIR:-/tmp}/forebay-suite-XXXXXX")
chmod 755 "$scratch"

clean_up() {
  unmount_below "$scratch"
  rm -rf --one-file-system "$scratch"
}
trap clean_up EXIT

# Runs a command with GLOBAL accelerated in place, and drains it. FOREBAY_SUITE_WINDOW=--window gives it windows, and
# FOREBAY_SUITE_POLICY a rule.
run_accelerated() { # GLOBAL BUFFER COMMAND...
  local global=$1 buffer=$2
  shift 2
  if [ -n "${FOREBAY_PLAIN:-}" ]; then
    "$@"
  else
    # shellcheck disable=SC2086
    "$forebay" run --quiet ${FOREBAY_SUITE_WINDOW:-} ${FOREBAY_SUITE_POLICY:+--policy "$FOREBAY_SUITE_POLICY"} --dir "$global" --burst-buffer "$buffer" -- "$@"
  fi
}

# Installs a conformance suite from crates.io, once, with what its Cargo.lock says. The registry is asked only for what cargo
# does not hold, so that tests run without a network where they once ran with one.
install_tool() { # CRATE VERSION
  [ -x "$tools/bin/$1" ] && return 0
  local network
  for network in --offline ""; do
    # shellcheck disable=SC2086
    CARGO_TARGET_DIR=$tools/build timeout 400 \
      cargo install $network --quiet --locked --debug --root "$tools" "$1@$2" >"$scratch/install.log" 2>&1 && return 0
  done
  tail -n 20 "$scratch/install.log"
  return 1
}

# Accelerates GLOBAL in place, in this mount namespace, by the burst buffer BUFFER or the server BUFFER.
mount_accelerated() { # GLOBAL BUFFER|unix:PATH [OPTION...]
  [ -n "${FOREBAY_PLAIN:-}" ] && return 0
  local place=--burst-buffer
  [[ $2 == unix:* ]] && place=--server
  timeout --kill-after=5 60 "$forebay" mount "$1" $place "$2" "${@:3}" >"$scratch/mount.log" 2>&1 </dev/null && return 0
  cat "$scratch/mount.log"
  return 1
}

# Drains GLOBAL and takes the mount away.
unmount_accelerated() { # GLOBAL
  [ -n "${FOREBAY_PLAIN:-}" ] && return 0
  timeout --kill-after=5 120 "$forebay" umount "$1" >"$scratch/umount.log" 2>&1 </dev/null && return 0
  cat "$scratch/umount.log"
  return 1
}

# Serves GLOBAL with BUFFER at unix:BUFFER.sock.
serve() { # GLOBAL BUFFER
  "$forebay" serve "$1" --burst-buffer "$2" --listen "unix:$2.sock" >"$scratch/serve.log" 2>&1 </dev/null &
  server=$!
  local tries
  for ((tries = 0; tries < 200; tries++)); do
    grep -qs serving "$scratch/serve.log" && return 0
    sleep 0.1
  done
  cat "$scratch/serve.log"
  return 1
}

# Ends the server, which drains.
end_server() {
  kill "$server"
  wait "$server" && return 0
  cat "$scratch/serve.log"
  return 1
}

# Serves GLOBAL with BUFFER and shows it at DIR, as on a node that does not see it.
mount_names() { # GLOBAL BUFFER DIR
  [ -n "${FOREBAY_PLAIN:-}" ] && { mount --bind "$1" "$3"; return; }
  serve "$1" "$2" || return 1
  timeout --kill-after=5 60 "$forebay" mount "$3" --server "unix:$2.sock" --names server >"$scratch/mount.log" 2>&1 </dev/null && return 0
  cat "$scratch/serve.log" "$scratch/mount.log"
  return 1
}

# Takes DIR away, and ends the server, which drains.
unmount_names() { # DIR
  [ -n "${FOREBAY_PLAIN:-}" ] && { umount "$1"; return; }
  timeout --kill-after=5 60 "$forebay" umount "$1" >"$scratch/umount.log" 2>&1 </dev/null || cat "$scratch/umount.log"
  end_server
}
