//! A private mount namespace for one test.

use std::any::type_name;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::mount::{MountPropagationFlags, UnmountFlags, mount_change, unmount};
use rustix::process::{Signal, geteuid};
use rustix::thread::{UnshareFlags, unshare_unsafe};

use crate::connections::abort_connections_of;
use crate::process::ProcessGuard;

/// Environment variable with the name of the test whose body is to run; set only in the child.
const INSIDE: &str = "TESTKIT_INSIDE";

/// Time after which a body counts as hung.
const BOUND: Duration = Duration::from_secs(120);

/// Runs the body of a test in a child process with a private mount namespace, so that no mount outlives the test or is
/// seen outside.
///
/// Call it with a closure, once, directly from the `#[test]` function. The child is this test binary, told to run this
/// one test. The name of the test is taken from the closure's type.
///
/// # Panics
///
/// If the body panics or takes longer than two minutes; the message contains the child's output. After a timeout the
/// FUSE connections of the namespace are aborted first, so that no process stays stuck. Panics also if not run as root.
#[track_caller]
pub fn in_private_namespace<F: FnOnce()>(body: F) {
    in_private_namespace_within(BOUND, body);
}

/// Runs like [`in_private_namespace`], with `bound` instead of two minutes.
#[track_caller]
pub fn in_private_namespace_within<F: FnOnce()>(bound: Duration, body: F) {
    let test = test_name(type_name::<F>());
    if std::env::var_os(INSIDE).is_some_and(|inside| inside == *test) {
        leave_mounts_of_others();
        return body();
    }
    assert!(geteuid().is_root(), "{test} mounts file systems: run the tests as root");
    let mut output = tempfile::tempfile().expect("a file for the output");
    let mut child = spawn(&test, &output);
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.ended() {
            break Some(status);
        }
        if start.elapsed() > bound {
            break None;
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    if status.is_none() {
        abort_connections_of(child.pid());
        child.signal(Signal::KILL);
    }
    if !status.is_some_and(|status| status.success()) {
        let text = read_back(&mut output);
        match status {
            Some(status) => panic!("{test} failed in its namespace ({status}):\n{text}"),
            None => panic!("{test} hung for {bound:?} in its namespace:\n{text}"),
        }
    }
    // A name that matches no test would pass without running anything.
    let text = read_back(&mut output);
    assert!(text.contains("1 passed"), "{test} is not the name of a test; output:\n{text}");
}

fn spawn(test: &str, output: &File) -> ProcessGuard {
    let mut command = Command::new(std::env::current_exe().expect("the test binary"));
    command
        .args(["--exact", test, "--nocapture", "--include-ignored", "--test-threads=1"])
        .env(INSIDE, test)
        .stdin(Stdio::null())
        .stdout(output.try_clone().expect("dup"))
        .stderr(output.try_clone().expect("dup"));
    // SAFETY: between fork and exec only two system calls are made; nothing is allocated and no lock is taken. The
    // child has one thread, so leaving the shared mount namespace affects no other thread.
    unsafe {
        command.pre_exec(|| {
            unshare_unsafe(UnshareFlags::NEWNS)?;
            mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
            Ok(())
        });
    }
    ProcessGuard::spawn(&mut command)
}

/// Detaches the mounts of agents outside, so that commands which list all mounts see those of the test alone.
fn leave_mounts_of_others() {
    let table = std::fs::read_to_string("/proc/self/mountinfo").expect("the mount table");
    let mounts = table.lines().filter(|line| line.contains(" - fuse.forebay "));
    for place in mounts.filter_map(|line| line.split(' ').nth(4)) {
        let _ = unmount(place, UnmountFlags::DETACH);
    }
}

fn read_back(output: &mut File) -> String {
    let mut bytes = Vec::new();
    output.seek(SeekFrom::Start(0)).and_then(|_| output.read_to_end(&mut bytes)).expect("read the output");
    // Indent the child's output so that its test result is not counted as one of the parent's.
    String::from_utf8_lossy(&bytes).lines().map(|line| format!("    {line}\n")).collect()
}

/// Returns the name of the test: `crate::module::test::{{closure}}` is the test `module::test`.
fn test_name(closure: &str) -> String {
    let path = closure.split("::{{closure}}").next().unwrap_or(closure);
    path.split_once("::").map_or(path, |(_, inside)| inside).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TempTree;

    #[test]
    fn a_mount_made_inside_is_not_seen_outside() {
        let before = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        in_private_namespace(|| {
            let tree = TempTree::new();
            let mounted = tree.mount_tmpfs("memory", 1 << 20);
            let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
            assert!(table.contains(mounted.to_str().unwrap()));
        });
        let after = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert_eq!(before.contains("testkit-memory"), after.contains("testkit-memory"));
    }

    fn panic_of(run: impl FnOnce() + std::panic::UnwindSafe) -> String {
        *std::panic::catch_unwind(run).unwrap_err().downcast::<String>().unwrap()
    }

    #[test]
    fn a_failure_inside_fails_outside_with_its_output() {
        let message = panic_of(|| {
            in_private_namespace(|| {
                println!("the reason");
                std::process::exit(7);
            })
        });
        assert!(message.contains("the reason") && message.contains("exit status: 7"), "{message}");
    }

    #[test]
    fn a_body_that_hangs_is_killed() {
        let message = panic_of(|| {
            in_private_namespace_within(Duration::from_millis(300), || {
                std::thread::sleep(Duration::from_secs(1000));
            });
        });
        assert!(message.contains("hung for"), "{message}");
    }

    #[test]
    fn the_name_of_a_test_comes_from_its_closure() {
        assert_eq!(test_name("mounted::a_fact::{{closure}}"), "a_fact");
        assert_eq!(test_name("crate_name::module::tests::a_fact::{{closure}}"), "module::tests::a_fact");
    }
}
