//! A scratch global store and burst buffer, and the real program run over them with a limit on every wait.
#![allow(dead_code, reason = "every test binary uses some of it")]

use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use testkit::{ProcessGuard, TempTree, wait_for};

/// Longest time for one call of the program.
pub const BOUND: Duration = Duration::from_secs(60);

/// Directories of one test.
pub struct Bench {
    /// Directory that contains everything, removed when dropped.
    pub tree: TempTree,
    /// Accelerated directory; from the test's namespace, the global store's own.
    pub dir: PathBuf,
    /// The burst buffer.
    pub buffer: PathBuf,
}

/// Result of one call of the program.
#[derive(Debug)]
pub struct Done {
    /// Exit status; 128 + n for a signal.
    pub code: i32,
    /// Text printed to stdout.
    pub out: String,
    /// Text printed to stderr.
    pub err: String,
}

/// A running program with its output in files, so that a full pipe never blocks it.
pub struct Running {
    /// Killed with its process group when dropped.
    pub guard: ProcessGuard,
    out: File,
    err: File,
}

impl Bench {
    /// Creates the fresh directories `data` and `bb`.
    pub fn new() -> Bench {
        let tree = TempTree::new();
        let (dir, buffer) = (tree.dir("data"), tree.dir("bb"));
        Bench { tree, dir, buffer }
    }

    /// Executes `forebay run` of a shell script over the directory, from inside it.
    pub fn run(&self, options: &[&str], script: &str) -> Done {
        self.start_run(options, script).wait()
    }

    /// Starts a run like [`Bench::run`] without waiting for its end.
    pub fn start_run(&self, options: &[&str], script: &str) -> Running {
        let mut command = forebay();
        command.arg("run").args(options).arg("--burst-buffer").arg(&self.buffer).arg("--dir").arg(&self.dir);
        command.args(["--", "sh", "-c", script]).current_dir(&self.dir);
        start(&mut command, "")
    }

    /// Mounts the directory in the background.
    pub fn mount(&self, options: &[&str]) -> Mounted<'_> {
        let mut command = forebay();
        command.arg("mount").arg(&self.dir).arg("--burst-buffer").arg(&self.buffer).args(options);
        let done = start(&mut command, "").wait();
        assert_eq!(done.code, 0, "{done:?}");
        self.mounted()
    }

    /// Returns the directory, which was mounted just now.
    pub fn mounted(&self) -> Mounted<'_> {
        Mounted { bench: self }
    }

    /// Reads a file of the directory as seen from here.
    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.dir.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }
}

/// Directory mounted in the background. If the test fails, its agent is killed and the mount removed.
pub struct Mounted<'a> {
    bench: &'a Bench,
}

impl Mounted<'_> {
    /// Returns the agent's process id.
    pub fn agent(&self) -> i32 {
        agent_of(&self.bench.buffer)
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        if !is_mounted(&self.bench.dir) {
            return;
        }
        kill(self.agent(), libc::SIGKILL);
        let _ = rustix::mount::unmount(&self.bench.dir, rustix::mount::UnmountFlags::DETACH);
    }
}

/// Counts the sessions of windows in a directory. The links to the library stay there.
pub fn sessions(dir: &Path) -> usize {
    let is_session = |name: &str| !name.starts_with("forebay-preload-");
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_name().to_str().is_none_or(is_session)).count()
}

/// Returns the process that holds a burst buffer.
pub fn agent_of(buffer: &Path) -> i32 {
    let owner = fs::read_to_string(buffer.join("forebay.lock")).expect("a lock file");
    owner.split_whitespace().next().and_then(|pid| pid.parse().ok()).expect("a process id")
}

/// Sends a signal to one process.
pub fn kill(pid: i32, signal: i32) {
    assert!(pid > 1);
    // SAFETY: sends a signal; no memory is involved.
    unsafe { libc::kill(pid, signal) };
}

/// Returns whether something of ours is mounted exactly at `dir`.
pub fn is_mounted(dir: &Path) -> bool {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    table.lines().any(|line| line.contains("fuse.forebay") && line.split(' ').nth(4) == dir.to_str())
}

/// Returns a command for the program, without environment variables that affect it.
pub fn forebay() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    command.env_remove("FOREBAY_BURST_BUFFER").env_remove("FOREBAY_DIRS");
    command
}

/// Runs the program with these arguments.
pub fn call<S: AsRef<std::ffi::OsStr>>(words: impl IntoIterator<Item = S>) -> Done {
    start(forebay().args(words), "").wait()
}

/// Returns the output of a call that must have succeeded.
pub fn ok(done: Done) -> String {
    assert_eq!(done.code, 0, "{done:?}");
    done.out
}

/// Starts a command with `input` as its standard input.
pub fn start(command: &mut Command, input: &str) -> Running {
    let (out, err) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
    let mut stdin = tempfile::tempfile().unwrap();
    stdin.write_all(input.as_bytes()).unwrap();
    stdin.seek(SeekFrom::Start(0)).unwrap();
    command.stdin(stdin).stdout(Stdio::from(out.try_clone().unwrap())).stderr(Stdio::from(err.try_clone().unwrap()));
    Running { guard: ProcessGuard::spawn(command), out, err }
}

impl Running {
    /// Returns the process id.
    pub fn pid(&self) -> i32 {
        self.guard.pid() as i32
    }

    /// Returns what was printed to stderr so far.
    pub fn err(&mut self) -> String {
        text(&mut self.err)
    }

    /// Waits until stderr contains `part`.
    pub fn complains(&mut self, part: &str) -> String {
        let err = &mut self.err;
        wait_for(part, BOUND, || Some(text(err)).filter(|text| text.contains(part)))
    }

    /// Waits for the process's end.
    pub fn wait(mut self) -> Done {
        let code = code(self.guard.wait(BOUND));
        Done { code, out: text(&mut self.out), err: text(&mut self.err) }
    }
}

fn code(status: ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt;
    status.code().or(status.signal().map(|signal| 128 + signal)).expect("an end")
}

fn text(file: &mut File) -> String {
    // The program shares the offset: read from the start by position.
    use std::os::unix::fs::FileExt;
    let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    String::from_utf8_lossy(&bytes).into_owned()
}
