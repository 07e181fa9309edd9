#!/usr/bin/env bash
# Whether every program compiles for AArch64, where some types of the C library have other widths.
set -u
cd "$(dirname "$0")/../.." || exit 1
target=aarch64-unknown-linux-gnu
if ! timeout 120 rustup --quiet target add $target; then
  echo "not tested: rustup, which installs the standard library of $target, is missing or cannot"
  exit 0
fi
if cargo check --locked --quiet --target $target --package cli --package slowfs --package limits; then
  echo "test result: ok. 1 passed; 0 failed"
else
  echo "test result: FAILED. 0 passed; 1 failed"
  exit 1
fi
