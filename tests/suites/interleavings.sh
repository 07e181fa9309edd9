#!/usr/bin/env bash
# Every interleaving of small stories about what is shared without a lock, and every value that the memory model lets a
# load return: `loom`, for which the words are compiled anew. The stories: a window's ring (window/src/ring), entries of a
# program's tables (entry_use), what one thread fetches for all (gift), guarded mappings (region).
# Then, in thousands of orders and not in all, what is under locks: `shuttle`. The stories: a file's windows, which programs
# attach, fill, switch off and close while others use the file through the kernel (windows/src/tests/stories.rs), what
# a server remembers of requests that are sent again (transport/src/duplicate_requests.rs), who makes a name log durable
# while others append to it and clean it (delegation/src/delegated/stories.rs), and objects that are put, removed, synced
# and compacted at once (segments/src/tests/stories.rs).
# Last, by seed: clients and a server over a simulated network (crates/proof/simulation), in two processes of so many seeds each.
# FOREBAY_ORDERS: how many of each story of windows and of segments. FOREBAY_SIM_SEEDS: how many seeds for each process.
#
#   tests/suites/interleavings.sh
cd "$(dirname "$0")/../.." || exit 1
status=0
CARGO_TARGET_DIR=target/loom RUSTFLAGS="--cfg loom" cargo test --locked --package window --lib interleavings || status=1
packages=() features=()
for package in windows transport segments delegation; do
  packages+=(--package "$package") features+=(--features "$package/shuttle")
done
cargo test --locked "${packages[@]}" "${features[@]}" --lib stories || status=1
# The server's notes are synced for each story, which costs nothing in memory.
[ -d /dev/shm ] && export TMPDIR=/dev/shm
simulate() { FOREBAY_SIM_SEED=$1 FOREBAY_SIM_SEEDS=$seeds cargo test --locked --package simulation --features shuttle "${@:2}"; }
seeds=${FOREBAY_SIM_SEEDS:-2500}
simulate 1 --no-run || exit 1
simulate $((seeds + 1)) --test simulation nothing_that_clients_were_told &
second=$!
simulate 1 || status=1
wait $second || status=1
exit $status
