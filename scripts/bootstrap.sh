#!/usr/bin/env bash
# Installs from the distribution what is missing, and says what to do about Rust. Quiet unless something is wrong.
#
#   scripts/bootstrap.sh [PACKAGE...]     the packages that every test needs, or those named
set -euo pipefail

RUST_MINOR=95 # the oldest 1.x that compiles the workspace; as rust-version in Cargo.toml

packages=(build-essential pkg-config git fio rsync sqlite3 attr acl python3 procps psmisc openssl mpich libmpich-dev musl-tools busybox-static)
# Compilers for programs of 32 bits, where there are such.
[ "$(uname -m)" = x86_64 ] && packages+=(gcc-multilib)
[ $# -gt 0 ] && packages=("$@")

as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo --non-interactive "$@"; fi; }

# Runs a command with its output kept back; shows it when the command fails for the third time.
quietly() {
  local log try
  log=$(mktemp)
  for try in 1 2 3; do
    if "$@" >"$log" 2>&1 </dev/null; then
      rm -f "$log"
      return 0
    fi
    sleep $((try * 2))
  done
  echo "failed three times: $*" >&2
  tail -n 40 "$log" >&2
  rm -f "$log"
  return 1
}

missing=()
for package in "${packages[@]}"; do
  state=$(dpkg-query --show --showformat='${db:Status-Status}' "$package" 2>/dev/null || true)
  [ "$state" = installed ] || missing+=("$package")
done
if [ ${#missing[@]} -gt 0 ]; then
  echo "installing ${missing[*]}"
  apt=(env DEBIAN_FRONTEND=noninteractive timeout 300 apt-get -o DPkg::Lock::Timeout=120 -q -y)
  quietly as_root "${apt[@]}" update
  quietly as_root "${apt[@]}" install --no-install-recommends "${missing[@]}"
fi

# Python's own tests, where the distribution has them; a suite says so where it goes without.
if [ $# = 0 ] && ! python3 -c 'import test.test_fileio' 2>/dev/null; then
  own=libpython$(python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')-testsuite
  apt=(env DEBIAN_FRONTEND=noninteractive apt-get -q -y install --no-install-recommends)
  # No more than a while for what can be done without, and never half of it.
  as_root timeout 60 "${apt[@]}" --download-only -o Acquire::Retries=0 -o Acquire::http::Timeout=10 "$own" >/dev/null 2>&1 </dev/null &&
    as_root "${apt[@]}" --no-download "$own" >/dev/null 2>&1 </dev/null || true
fi

# shellcheck source=scripts/environment.sh
. "$(dirname "$0")/environment.sh"
if ! command -v cargo >/dev/null; then
  echo "cargo is missing: install Rust 1.$RUST_MINOR or newer (https://rustup.rs) and run this again" >&2
  exit 1
fi
version=$(cargo --version | cut -d' ' -f2)
minor=$(cut -d. -f2 <<<"$version")
if [ "$minor" -lt "$RUST_MINOR" ]; then
  echo "cargo $version is too old: run 'rustup toolchain install stable && rustup default stable' for 1.$RUST_MINOR or newer" >&2
  exit 1
fi
