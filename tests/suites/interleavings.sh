#!/usr/bin/env bash
# Every interleaving of small stories about what is shared without a lock, and every value that the memory model lets a load return: `loom`,
# for which the words are compiled anew. The stories: a window's ring (window/src/ring), entries of a program's tables, of descriptors and of
# mappings (life), what one thread fetches for all (gift), what a program believes of a mapped copy while a replica
# is cut (standing), guarded mappings (region).
#
#   tests/suites/interleavings.sh
cd "$(dirname "$0")/../.." || exit 1
CARGO_TARGET_DIR=target/loom RUSTFLAGS="--cfg loom" cargo test --locked --package window --lib interleavings
