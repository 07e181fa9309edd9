# Two commands do everything on a fresh Debian 12 machine with Rust: `make test` and `make demo`, as root.

.PHONY: all bootstrap build install test quick test-vm demo docs bench experiments experiments-report lint clean help

help: ## this list
	@sed -n 's/^\([a-z-]*\):[^#]*## /\1\t/p' $(MAKEFILE_LIST)

all: build

bootstrap: ## install what is missing from the distribution
	@scripts/bootstrap.sh

build: bootstrap ## build everything (target/debug/forebay)
	cargo build --workspace

PREFIX ?= /usr/local

install: bootstrap ## build for speed, and install in $(PREFIX): command, library, manual pages, completions
	cargo build --release --package cli --package preload
	@scripts/install.sh target/release "$(DESTDIR)$(PREFIX)"

test: bootstrap ## every test and suite, in a private mount namespace
	@scripts/test.sh all

quick: bootstrap ## the workspace's own tests only
	@scripts/test.sh quick

# Of the tests those are left out there that need another kernel, a tmpfs with extended attributes, which 6.1 has not, a terminal, or more
# time than emulation leaves.
OLD_KERNEL_TESTS = fuse fuse-protocol agent/lib window/ wire/ config/ types/ relay/ relay-server/ transport/ cli/bin cli/run cli/mount \
	cli/refusals cli/rules cli/start cli/words cli/damage cli/differential catalogue/condense catalogue/files catalogue/model \
	catalogue/exhaustion global-store/contract global-store/lib models/global file-cache/at_once \
	file-cache/batches file-cache/descriptors file-cache/failures file-cache/full file-cache/lib file-cache/machine_crash file-cache/memory \
	file-cache/model file-cache/read_ahead file-cache/removal file-cache/sta file-cache/taken_back file-cache/times file-cache/waiting

test-vm: bootstrap ## eighty crashes of an emulated machine with kernel 6.1, on disk, over NFS, with delegated directories and windows on NVDIMM; and the tests there
	@FOREBAY_VM_CRASHES=15 FOREBAY_VM_WINDOW_CRASHES=30 FOREBAY_VM_DELEGATED_CRASHES=20 FOREBAY_VM_SECONDS=6000 FOREBAY_OLD_KERNEL_SECONDS=2400 \
	FOREBAY_OLD_KERNEL_TESTS="$(OLD_KERNEL_TESTS)" FOREBAY_TEST_MINUTES=160 scripts/test.sh suite/vm suite/old_kernel

demo: bootstrap ## real programs on a slow store, directly and accelerated, in one table
	@scripts/bootstrap.sh python3-h5py
	@cargo build --quiet --workspace
	@demo/demo.sh

docs: ## the book, in target/book; fails on a broken link
	@scripts/docs.sh

bench: bootstrap ## the ratios that the book states
	@cargo build --quiet --release --workspace
	@cargo build --quiet --release --package server --example requests
	@cargo build --quiet --release --package catalogue --example ten_million
	@benches/all.sh
	@target/release/forebay limits experiments E0-1 E0-2 E0-3 E0-6 E0-8

experiments: bootstrap ## the experiment book, or `make experiments E=E0-4 QUICK=1`
	@cargo build --quiet --workspace
	@target/debug/forebay limits experiments $(E) $(if $(QUICK),--quick)

experiments-report: ## plot what `make experiments` kept
	@cargo build --quiet --package cli
	@target/debug/forebay limits experiments --report target/experiments/report.html

lint: ## format, clippy and the rules of the house
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	cargo xtask tidy

clean: ## remove what was built
	cargo clean
