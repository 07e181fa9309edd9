//! A directory accelerated by the real `forebay` program, in the private mount namespace of a test.

#![allow(dead_code, reason = "each test binary uses a part")]

pub mod chance;

use std::fs::{File, read_to_string};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::mount::{UnmountFlags, unmount};
use testkit::{Disk, ProcessGuard, TempTree, wait_for, wait_until};

/// Longest time for any one step: a busy machine may pause for seconds.
pub const BOUND: Duration = Duration::from_secs(60);

/// A directory, its burst buffer, and room for logs beside them.
pub struct Place {
    tree: TempTree,
    /// The directory to accelerate.
    pub dir: PathBuf,
    /// The burst buffer.
    pub burst_buffer: PathBuf,
    /// The directory, not through the mount.
    below: OwnedFd,
    logs: AtomicU64,
}

/// Result of a command.
#[derive(Debug)]
pub struct Ended {
    /// Exit status, 128 + N for a signal.
    pub code: i32,
    /// Text written to stdout and stderr.
    pub text: String,
}

impl Place {
    /// Creates both on the file system of temporary files.
    pub fn new() -> Place {
        let tree = TempTree::new();
        let (dir, burst_buffer) = (tree.dir("dir"), tree.dir("burst-buffer"));
        Place::of(tree, dir, burst_buffer)
    }

    /// Creates both in memory, with a burst buffer that fills easily.
    pub fn with_burst_buffer_of(bytes: u64) -> Place {
        let tree = TempTree::new();
        let dir = tree.mount_tmpfs("store", 1 << 30).join("dir");
        std::fs::create_dir(&dir).expect("a directory");
        let burst_buffer = tree.mount_tmpfs("burst-buffer", bytes);
        Place::of(tree, dir, burst_buffer)
    }

    /// Creates a place whose burst buffer is on a disk of its own, which can become read-only.
    pub fn with_disk() -> Option<(Place, Disk)> {
        let tree = TempTree::new();
        let (dir, disk) = (tree.dir("dir"), Disk::new(tree.path("image"), tree.dir("burst-buffer"), 128 << 20)?);
        let burst_buffer = disk.place().join("forebay");
        std::fs::create_dir(&burst_buffer).expect("a directory");
        Some((Place::of(tree, dir, burst_buffer), disk))
    }

    fn of(tree: TempTree, dir: PathBuf, burst_buffer: PathBuf) -> Place {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let below = rustix::fs::open(&dir, flags, Mode::empty()).expect("open the directory");
        Place { tree, dir, burst_buffer, below, logs: AtomicU64::new(0) }
    }

    /// Returns a path for a file outside both.
    pub fn beside(&self, name: &str) -> PathBuf {
        self.tree.path(name)
    }

    /// Returns the directory not through the mount, with the contents of the global store.
    pub fn below(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.below.as_raw_fd()))
    }

    /// Runs a `forebay` command to its end.
    pub fn forebay(&self, args: &[&str], environment: &[(&str, &str)]) -> Ended {
        let (mut process, log) = self.start(args, environment);
        let status = process.wait(BOUND);
        let signal = std::os::unix::process::ExitStatusExt::signal(&status);
        Ended { code: status.code().or(signal.map(|signal| 128 + signal)).unwrap_or(-1), text: text(&log) }
    }

    fn start(&self, args: &[&str], environment: &[(&str, &str)]) -> (ProcessGuard, PathBuf) {
        let log = self.tree.path(format!("log-{}", self.logs.fetch_add(1, Ordering::Relaxed)));
        let file = File::create(&log).expect("a log");
        let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
        command.args(args).envs(environment.iter().copied()).current_dir("/");
        command.stdin(Stdio::null()).stdout(file.try_clone().expect("dup")).stderr(file);
        (ProcessGuard::spawn(&mut command), log)
    }

    /// Mounts with rules such as `stage_out=manual`. Errors: the output of an agent that ended before it had mounted.
    pub fn try_mount(&self, rules: &[&str], environment: &[(&str, &str)]) -> Result<Agent<'_>, String> {
        self.try_mount_with(&[], rules, environment)
    }

    /// Mounts with rules and further options.
    pub fn try_mount_with(
        &self,
        options: &[&str],
        rules: &[&str],
        environment: &[(&str, &str)],
    ) -> Result<Agent<'_>, String> {
        let mut args = vec!["mount", path(&self.dir), "--burst-buffer", path(&self.burst_buffer), "--foreground"];
        args.extend(options);
        args.extend(rules.iter().flat_map(|rule| ["--policy", rule]));
        let (mut process, log) = self.start(&args, environment);
        let mut ended = false;
        wait_until("the mount, or the agent's end", BOUND, || {
            ended = process.ended().is_some();
            ended || self.is_mounted()
        });
        if ended && !self.is_mounted() {
            return Err(text(&log));
        }
        Ok(Agent { place: self, process, log })
    }

    /// Mounts with rules; must succeed.
    pub fn mount(&self, rules: &[&str]) -> Agent<'_> {
        self.try_mount(rules, &[]).unwrap_or_else(|said| panic!("no mount:\n{said}"))
    }

    /// Returns whether a mount of ours shows on the directory.
    pub fn is_mounted(&self) -> bool {
        let table = read_to_string("/proc/self/mountinfo").expect("the mount table");
        table.lines().any(|line| line.split(' ').nth(4) == Some(path(&self.dir)) && line.contains("fuse.forebay"))
    }

    /// Detaches a dead agent's mount.
    pub fn detach(&self) {
        while self.is_mounted() {
            unmount(&self.dir, UnmountFlags::DETACH).expect("detach the mount");
        }
    }

    /// Runs `forebay recover`.
    pub fn recover(&self, environment: &[(&str, &str)]) -> Ended {
        self.forebay(&["recover", path(&self.burst_buffer), "--dir", path(&self.dir)], environment)
    }

    /// Checks that `forebay check` finds neither a problem nor anything dirty.
    pub fn check(&self) -> Result<(), String> {
        let ended = self.forebay(&["check", path(&self.burst_buffer)], &[]);
        let sound = ended.code == 0 && ended.text.contains(", 0 dirty, 0 need a decision");
        if sound { Ok(()) } else { Err(format!("check ended with {}:\n{}", ended.code, ended.text)) }
    }

    /// Returns the end of the agent's log, for a message.
    pub fn agent_log(&self) -> String {
        text(&self.burst_buffer.join("agent.log"))
    }
}

fn path(path: &Path) -> &str {
    path.to_str().expect("a path of ours is UTF-8")
}

/// Returns the last lines of a file.
fn text(log: &Path) -> String {
    let text = read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(40)..].join("\n")
}

/// Running agent. When dropped, it is killed and its mount removed.
pub struct Agent<'a> {
    place: &'a Place,
    process: ProcessGuard,
    log: PathBuf,
}

impl Agent<'_> {
    /// Returns whether the agent has ended.
    pub fn has_ended(&mut self) -> bool {
        self.process.ended().is_some()
    }

    /// Kills the agent as a crash would. Its mount stays, dead.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Runs `forebay drain --wait`; then everything is in the global store.
    pub fn drain(&self) -> Ended {
        self.place.forebay(&["drain", path(&self.place.dir), "--wait"], &[])
    }

    /// Runs `forebay stage COMMAND PATH`. Waits for copies, but not until nobody uses the file, as `evict --wait`
    /// does.
    pub fn stage(&self, command: &str, file: &Path) -> Ended {
        let waits = (command != "evict").then_some("--wait");
        let words = ["stage", command, path(file)].into_iter().chain(waits);
        self.place.forebay(&words.collect::<Vec<_>>(), &[])
    }

    /// Drops every unused clean replica. Other replicas are no error.
    pub fn evict_all(&self) {
        self.place.forebay(&["stage", "evict", "--recursive", path(&self.place.dir)], &[]);
    }

    /// Runs `forebay umount`, which drains. The agent has then ended.
    pub fn unmount(mut self) -> Result<(), String> {
        let ended = self.place.forebay(&["umount", path(&self.place.dir)], &[]);
        if ended.code != 0 {
            return Err(format!("umount ended with {}:\n{}\n{}", ended.code, ended.text, self.said()));
        }
        let status = self.process.wait(BOUND);
        if status.success() { Ok(()) } else { Err(format!("the agent ended with {status}:\n{}", self.said())) }
    }

    /// Returns the value of a variable that programs need for windows.
    pub fn exported(&self, variable: &str) -> String {
        wait_for("what programs need for windows", BOUND, || {
            testkit::exported(&read_to_string(&self.log).ok()?, variable)
        })
    }

    /// Returns the agent's output.
    pub fn said(&self) -> String {
        format!("agent said:\n{}\nagent.log:\n{}", text(&self.log), self.place.agent_log())
    }
}

impl Drop for Agent<'_> {
    fn drop(&mut self) {
        self.process.kill();
        self.place.detach();
    }
}
