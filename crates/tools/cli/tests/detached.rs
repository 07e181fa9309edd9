//! A mount whose burst buffer's file system was taken away under it (`umount -l`).

mod common;

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::PathBuf;

use common::{BOUND, Bench, agent_of, call, is_mounted, kill, ok};
use rustix::mount::{UnmountFlags, unmount};
use testkit::{in_private_namespace, wait_until};

/// Mounts with one dirty file, and detaches the burst buffer's file system. Returns the agent and the directory
/// below.
fn detached(bench: &mut Bench) -> (i32, File) {
    bench.buffer = bench.tree.mount_tmpfs("detached", 64 << 20);
    let below = File::open(&bench.dir).unwrap();
    std::mem::forget(bench.mount(&["--policy", "stage_out=manual"]));
    fs::write(bench.dir.join("f"), "data").unwrap();
    let agent = agent_of(&bench.buffer);
    unmount(&bench.buffer, UnmountFlags::DETACH).unwrap();
    assert!(!bench.buffer.join("agent.sock").exists(), "the test is worth nothing");
    (agent, below)
}

fn read(below: &File, name: &str) -> String {
    fs::read_to_string(PathBuf::from(format!("/proc/self/fd/{}/{name}", below.as_raw_fd()))).unwrap()
}

#[test] // S22
fn an_agent_whose_burst_buffer_was_unmounted_is_asked_through_its_mount_and_drains() {
    in_private_namespace(|| {
        let mut bench = Bench::new();
        let (_, below) = detached(&mut bench);
        let dir = bench.dir.to_str().unwrap();
        assert!(ok(call(["status", dir])).contains("1 dirty"));
        ok(call(["drain", "--wait", dir]));
        assert_eq!(read(&below, "f"), "data");
        fs::write(bench.dir.join("late"), "late").unwrap();
        ok(call(["umount", dir]));
        assert_eq!(bench.read("late"), "late");
        assert!(!is_mounted(&bench.dir));
    });
}

#[test] // S22
fn what_a_dead_agent_left_in_a_burst_buffer_that_is_not_there_is_no_success() {
    in_private_namespace(|| {
        let mut bench = Bench::new();
        let (agent, _below) = detached(&mut bench);
        kill(agent, libc::SIGKILL);
        let dir = bench.dir.to_str().unwrap();
        wait_until("the agent is gone", BOUND, || call(["status", dir]).code == 69);
        let ended = call(["umount", dir]);
        assert_eq!(ended.code, 75, "{ended:?}");
        assert!(ended.err.contains("is not there") && ended.err.contains("forebay recover"), "{ended:?}");
        assert!(!is_mounted(&bench.dir));
    });
}
