//! Independence of an agent's memory from its load.

mod common;

use std::fs;

use common::{Bench, call, ok};
use testkit::in_private_namespace;

/// An arena of the C library's allocator, but for the first, begins at a multiple of this.
const ARENA_BYTES: u64 = 64 << 20;

fn arenas(pid: i32) -> usize {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let is_arena = |line: &&str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let start = words[0].split('-').next().and_then(|start| u64::from_str_radix(start, 16).ok());
        words.len() == 5 && words[1] == "rw-p" && start.is_some_and(|start| start.is_multiple_of(ARENA_BYTES))
    };
    1 + maps.lines().filter(is_arena).count()
}

#[test]
fn the_threads_of_an_agent_share_two_arenas() {
    in_private_namespace(|| {
        let bench = Bench::new();
        let mounted = bench.mount(&[]);
        for number in 0..20 {
            fs::write(bench.dir.join(number.to_string()), "data").unwrap();
        }
        ok(call(["drain", "--wait", bench.dir.to_str().unwrap()]));
        let threads = fs::read_dir(format!("/proc/{}/task", mounted.agent())).unwrap().count();
        assert!(threads > 8, "{threads}");
        assert!(arenas(mounted.agent()) <= 2, "{} of {threads} threads", arenas(mounted.agent()));
        ok(call(["umount", bench.dir.to_str().unwrap()]));
    });
}

fn resident_bytes(pid: i32) -> u64 {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
    let line = rollup.lines().find_map(|line| line.strip_prefix("Rss:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

#[test]
fn a_name_of_a_delegated_directory_that_the_kernel_knows_costs_the_agent_few_bytes() {
    /// Made before, so that what is there once does not count.
    const BEFORE: u64 = 2000;
    /// More than half of what the tables of this many names have room for, so a doubled table is among them.
    const NAMES: u64 = 40_000;
    in_private_namespace(|| {
        let bench = Bench::new();
        let mounted = bench.mount(&["--policy", "delegate=new", "--policy", "stage_out=manual"]);
        let directory = bench.dir.join("many");
        fs::create_dir(&directory).unwrap();
        let make = |number: u64| drop(fs::File::create_new(directory.join(format!("{number:016}"))).unwrap());
        (0..BEFORE).for_each(make);
        let before = resident_bytes(mounted.agent());
        (BEFORE..BEFORE + NAMES).for_each(make);
        let each = (resident_bytes(mounted.agent()) - before) / NAMES;
        // It is 400 at most in a release build.
        assert!(each <= 500, "{each} bytes");
        drop(mounted);
    });
}
