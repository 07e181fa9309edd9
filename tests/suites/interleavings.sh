#!/usr/bin/env bash
# Every interleaving of small stories about a window's ring, and every value that the memory model lets a load return: `loom`, for which
# the ring's words are compiled anew.
#
#   tests/suites/interleavings.sh
cd "$(dirname "$0")/../.." || exit 1
CARGO_TARGET_DIR=target/loom RUSTFLAGS="--cfg loom" cargo test --locked --package window --lib interleavings
