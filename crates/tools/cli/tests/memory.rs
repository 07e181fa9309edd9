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
