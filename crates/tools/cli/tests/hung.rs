//! A global store that does not answer: who waits, for how long, and with which outcome.

mod common;

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::{Bench, Running, call, forebay, kill, ok, start};
use testkit::{PATIENCE, ProcessGuard, TempTree, in_private_namespace, wait_until};

/// The policy `unavailable` of these tests. `LATE` allows for two checks, each after a tenth of a second, and a busy
/// machine.
const UNAVAILABLE: Duration = Duration::from_secs(2);
const LATE: Duration = Duration::from_secs(3);

/// Environment variable that tells the process that serves the store what to serve.
const SERVE: &str = "HUNG_TEST_SERVE";

/// Store that can be made to hang, with a burst buffer before it.
struct Hung {
    bench: Bench,
    lower: PathBuf,
    _server: ProcessGuard,
}

impl Hung {
    /// Creates a store whose `calls`, or all calls, hang while `hang` is on.
    fn new(calls: &str) -> Hung {
        let tree = TempTree::new();
        let (lower, dir, buffer) = (tree.dir("lower"), tree.dir("dir"), tree.dir("bb"));
        let fault = format!("{calls}:1+:while={}", tree.path("hangs").display());
        let words: Vec<&[u8]> = vec![
            b"slowfs",
            lower.as_os_str().as_bytes(),
            dir.as_os_str().as_bytes(),
            b"--foreground",
            b"--fault",
            fault.as_bytes(),
        ];
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "serve", "--ignored", "--nocapture", "--test-threads=1"]);
        command.env(SERVE, OsString::from_vec(words.join(&b'\n'))).stdin(Stdio::null());
        let server = ProcessGuard::spawn(&mut command);
        wait_until("the store", PATIENCE, || fuse_protocol::mount::is_mounted(&dir).unwrap());
        Hung { bench: Bench { tree, dir, buffer }, lower, _server: server }
    }

    fn hang(&self) {
        fs::write(self.bench.tree.path("hangs"), b"").unwrap();
    }

    fn answer(&self) {
        fs::remove_file(self.bench.tree.path("hangs")).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.bench.dir.join(name)
    }

    fn status(&self) -> serde_json::Value {
        let said = ok(call(["status", "--json"]));
        let status: serde_json::Value = serde_json::from_str(&said).unwrap();
        status[0]["status"].clone()
    }

    /// Returns the number of calls that the store has not answered for two seconds.
    fn unanswered(&self) -> u64 {
        self.status()["store"]["unanswered"].as_u64().unwrap()
    }
}

impl Drop for Hung {
    fn drop(&mut self) {
        // Processes that are left could not be killed.
        let _ = fs::remove_file(self.bench.tree.path("hangs"));
    }
}

/// Makes every open of a file hang until the returned descriptor is dropped; waiting processes can be killed. Returns
/// `None`, with a message, if the kernel does not support this.
fn hang_opens(file: &Path) -> Option<OwnedFd> {
    let path = std::ffi::CString::new(file.as_os_str().as_bytes()).unwrap();
    // SAFETY: calls on a C string that lives through them, and a descriptor that is nobody else's.
    let (asked, marked) = unsafe {
        let asked = libc::fanotify_init(libc::FAN_CLASS_CONTENT | libc::FAN_CLOEXEC, libc::O_RDONLY as u32);
        let marked = libc::fanotify_mark(asked, libc::FAN_MARK_ADD, libc::FAN_OPEN_PERM, libc::AT_FDCWD, path.as_ptr());
        (asked, marked)
    };
    if asked < 0 || marked != 0 {
        eprintln!("skipped: the kernel asks nobody before it opens a file");
        return None;
    }
    // SAFETY: it was opened just now.
    Some(unsafe { OwnedFd::from_raw_fd(asked) })
}

/// Sends a first request to end, which is answered, and a second one.
fn interrupt_twice(running: &mut Running) {
    kill(running.pid(), libc::SIGINT);
    running.complains("once more leaves it");
    kill(running.pid(), libc::SIGINT);
}

#[test] // S22
fn a_forced_unmount_ends_within_seconds_though_the_store_hangs_and_lists_what_stays() {
    in_private_namespace(|| {
        let hung = Hung::new("any");
        let _mounted = hung.bench.mount(&["--policy", "stage_out=manual"]);
        fs::write(hung.path("file"), "content").unwrap();
        hung.hang();
        let start = Instant::now();
        let forced = call(["umount", "--force", hung.bench.dir.to_str().unwrap()]);
        assert!(start.elapsed() < Duration::from_secs(30), "{:?}: {forced:?}", start.elapsed());
        assert!(forced.code == 75 && forced.err.contains("dir/file: draining: "), "{forced:?}");
        assert!(!common::is_mounted(&hung.bench.dir));
        assert!(fuse_protocol::mount::is_mounted(&hung.bench.dir).unwrap(), "the store itself stays");
        hung.answer();
        wait_until("the recovery", PATIENCE, || call([Path::new("recover"), &hung.bench.buffer]).code == 0);
        assert_eq!(fs::read_to_string(hung.lower.join("file")).unwrap(), "content");
    });
}

/// Not a test: runs the store.
#[test]
#[ignore = "the store of the other tests"]
fn serve() {
    let Some(words) = std::env::var_os(SERVE) else { return };
    let words = words.as_bytes().split(|byte| *byte == b'\n').map(|word| OsString::from_vec(word.to_vec()));
    slowfs::run(words.collect::<Vec<_>>());
}

/// Returns the outcome of `run`, and its duration.
fn timed<T>(run: impl FnOnce() -> io::Result<T>) -> (Result<T, Option<i32>>, Duration) {
    let begun = Instant::now();
    let done = run().map_err(|error| error.raw_os_error());
    (done, begun.elapsed())
}

fn fails_in_time<T: std::fmt::Debug>(what: &str, run: impl FnOnce() -> io::Result<T>) {
    let (done, took) = timed(run);
    assert_eq!(done.map(|_| ()), Err(Some(libc::EIO)), "{what} after {took:?}");
    assert!(took >= UNAVAILABLE - Duration::from_millis(50) && took < UNAVAILABLE + LATE, "{what} took {took:?}");
}

fn read(path: &Path) -> Vec<u8> {
    fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test] // S51
fn a_call_that_needs_a_store_that_hangs_fails_with_eio_after_the_policys_time_and_no_reader_does() {
    in_private_namespace(|| {
        let hung = Hung::new("any");
        let mounted = hung.bench.mount(&["--policy", "unavailable=2s", "--policy", "stage_out=manual"]);
        let content: Vec<u8> = (0..3u32 << 20).map(|at| (at / 3) as u8).collect();
        fs::write(hung.path("file"), &content).unwrap();
        fs::create_dir(hung.path("directory")).unwrap();
        ok(call(["drain", "--wait", hung.bench.dir.to_str().unwrap()]));
        let mut open = File::open(hung.path("file")).unwrap();
        hung.hang();
        fails_in_time("a name", || fs::metadata(hung.path("never looked for")));
        fails_in_time("a directory", || fs::create_dir(hung.path("directory/new")));
        fails_in_time("a new file", || File::create(hung.path("another")));
        // Data that is here is read, and its attributes are shown.
        let mut got = Vec::new();
        let (read_all, took) = timed(|| open.read_to_end(&mut got));
        assert_eq!(read_all, Ok(content.len()));
        assert!(got == content && took < UNAVAILABLE + LATE, "{took:?}");
        let (told, took) = timed(|| open.metadata());
        assert_eq!(told.map(|attributes| attributes.len()), Ok(content.len() as u64));
        assert!(took < UNAVAILABLE + LATE, "{took:?}");
        assert!(hung.unanswered() > 0);
        let said = ok(call(["status", hung.bench.dir.to_str().unwrap()]));
        assert!(said.contains("the global store does not answer: "), "{said}");
        hung.answer();
        wait_until("the abandoned calls come back", PATIENCE, || hung.unanswered() == 0);
        drop(open);
        assert_eq!(read(&hung.path("file")), content);
        fs::write(hung.path("after"), "after").unwrap();
        ok(call(["umount", hung.bench.dir.to_str().unwrap()]));
        assert_eq!(read(&hung.lower.join("after")), b"after");
        drop(mounted);
    });
}

#[test] // S51
fn who_has_a_complete_file_open_writes_and_asks_for_attributes_while_the_store_hangs() {
    in_private_namespace(|| {
        let hung = Hung::new("any");
        let mounted = hung.bench.mount(&["--policy", "revalidate=0s", "--policy", "stage_out=manual"]);
        fs::write(hung.path("file"), "one").unwrap();
        ok(call(["drain", "--wait", hung.bench.dir.to_str().unwrap()]));
        let file = File::options().read(true).write(true).open(hung.path("file")).unwrap();
        // The open has found no capabilities and has told the kernel once.
        file.write_at(b"t", 0).unwrap();
        hung.hang();
        let (file, begun) = (std::sync::Arc::new(file), Instant::now());
        for round in 0..20 {
            let (asked, done) = (std::sync::Arc::clone(&file), std::sync::mpsc::channel());
            std::thread::spawn(move || {
                let written = asked.write_at(b"t", 0).map(|_| asked.metadata().map(|told| told.len()));
                let _ = done.0.send(written.and_then(|told| told).map_err(|error| error.raw_os_error()));
            });
            assert_eq!(done.1.recv_timeout(LATE), Ok(Ok(3)), "round {round}");
        }
        // Only the first caller waits until the store is known to hang.
        assert!(begun.elapsed() < 3 * LATE, "{:?}", begun.elapsed());
        hung.answer();
        drop(file);
        ok(call(["umount", hung.bench.dir.to_str().unwrap()]));
        assert_eq!(read(&hung.lower.join("file")), b"tne");
        drop(mounted);
    });
}

#[test] // S51
fn more_stuck_programs_than_threads_hold_up_nobody_who_needs_no_store() {
    in_private_namespace(|| {
        let hung = Hung::new("lookup");
        let _mounted = hung.bench.mount(&[]);
        fs::write(hung.path("file"), "file").unwrap();
        let open = File::open(hung.path("file")).unwrap();
        hung.hang();
        let programs: Vec<_> = (0..100)
            .map(|number| {
                let path = hung.path(&format!("missing-{number}"));
                std::thread::spawn(move || fs::metadata(path).map(|_| ()).map_err(|error| error.raw_os_error()))
            })
            .collect();
        wait_until("all are stuck", PATIENCE, || hung.unanswered() >= 100);
        // Locks need only the agent.
        let (locked, took) = timed(|| {
            // SAFETY: a call on an open descriptor, without pointers.
            match unsafe { libc::flock(open.as_raw_fd(), libc::LOCK_EX) } {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            }
        });
        assert_eq!(locked, Ok(()));
        assert!(took < Duration::from_secs(2), "{took:?}");
        assert!(programs.iter().all(|program| !program.is_finished()), "a store that hangs is waited for");
        hung.answer();
        for program in programs {
            assert_eq!(program.join().unwrap(), Err(Some(libc::ENOENT)));
        }
    });
}

#[test] // S51
fn a_program_that_waits_for_a_store_that_hangs_can_be_killed() {
    in_private_namespace(|| {
        let hung = Hung::new("lookup");
        let _mounted = hung.bench.mount(&[]);
        hung.hang();
        let mut program = ProcessGuard::spawn(Command::new("stat").arg(hung.path("missing")).stdin(Stdio::null()));
        wait_until("it waits", PATIENCE, || hung.unanswered() == 1);
        program.signal(rustix::process::Signal::TERM);
        let begun = Instant::now();
        assert!(!program.wait(PATIENCE).success());
        assert!(begun.elapsed() < LATE, "{:?}", begun.elapsed());
        hung.answer();
    });
}

#[test] // S51
fn a_truncation_that_was_given_up_does_not_happen() {
    in_private_namespace(|| {
        let hung = Hung::new("getattr");
        fs::write(hung.lower.join("file"), "content").unwrap();
        let _mounted = hung.bench.mount(&["--policy", "unavailable=2s", "--policy", "revalidate=1m"]);
        assert_eq!(fs::metadata(hung.path("file")).unwrap().len(), 7);
        // The kernel asks again for the store's attributes after a second, and for those of our files after a minute.
        let looked = Instant::now();
        wait_until("the attributes are old", PATIENCE, || looked.elapsed() > Duration::from_millis(1200));
        hung.hang();
        fails_in_time("a truncation", || File::create(hung.path("file")));
        hung.answer();
        wait_until("the call comes back", PATIENCE, || hung.unanswered() == 0);
        assert_eq!(read(&hung.path("file")), b"content");
        ok(call(["umount", hung.bench.dir.to_str().unwrap()]));
        assert_eq!(read(&hung.lower.join("file")), b"content");
    });
}

#[test] // S51
fn what_is_being_staged_out_while_the_store_hangs_is_shown_and_arrives() {
    in_private_namespace(|| {
        let hung = Hung::new("write");
        let _mounted = hung.bench.mount(&["--policy", "unavailable=2s"]);
        hung.hang();
        let content = vec![7; 1 << 20];
        for number in 0..8 {
            let (written, took) = timed(|| fs::write(hung.path(&format!("file-{number}")), &content));
            assert_eq!(written, Ok(()));
            assert!(took < UNAVAILABLE, "{took:?}");
        }
        wait_until("the copies are stuck", PATIENCE, || hung.unanswered() > 0);
        let calls = hung.status()["store"]["calls"].clone();
        assert!(calls.as_array().unwrap().iter().all(|call| call["call"] == "write"), "{calls}");
        // Data that is here can be read meanwhile, by any program.
        let open = File::open(hung.path("file-0")).unwrap();
        let mut last = [0];
        open.read_exact_at(&mut last, (1 << 20) - 1).unwrap();
        assert_eq!(last, [7]);
        drop(open);
        hung.answer();
        ok(call(["umount", hung.bench.dir.to_str().unwrap()]));
        for number in 0..8 {
            assert!(read(&hung.lower.join(format!("file-{number}"))) == content);
        }
    });
}

#[test] // S25
fn who_decides_about_a_file_whose_stage_out_hangs_is_told_so() {
    in_private_namespace(|| {
        let hung = Hung::new("write");
        let _mounted = hung.bench.mount(&[]);
        hung.hang();
        fs::write(hung.path("f"), "content").unwrap();
        wait_until("the copy is stuck", PATIENCE, || hung.unanswered() > 0);
        let done = call(["resolve", hung.path("f").to_str().unwrap(), "--keep", "global"]);
        assert_eq!(done.code, 75, "{done:?}");
        assert!(done.err.contains("being staged out just now") && done.err.contains("forebay status"), "{done:?}");
        hung.answer();
        ok(call(["umount", hung.bench.dir.to_str().unwrap()]));
        assert_eq!(read(&hung.lower.join("f")), b"content");
    });
}

#[test] // S22
fn a_second_interrupt_ends_a_run_whose_store_hangs_and_says_where_the_data_is() {
    in_private_namespace(|| {
        let bench = Bench::new();
        let (written, go) = (bench.tree.path("written"), bench.tree.path("go"));
        let script = format!(
            "printf content > f; : > {}; until [ -e {} ]; do sleep 0.01; done",
            written.display(),
            go.display()
        );
        let mut running = bench.start_run(&["--policy", "stage_out=exit"], &script);
        wait_until("the command has written", PATIENCE, || written.exists());
        let Some(hangs) = hang_opens(&bench.dir.join("f")) else { return };
        fs::write(go, b"").unwrap();
        wait_until("the command has ended", PATIENCE, || !has_children(running.pid()));
        interrupt_twice(&mut running);
        let done = running.wait();
        assert_eq!(done.code, 75, "{done:?}");
        let told = ["1 file of", "f: draining: a call to the global store has not come back", "forebay recover"];
        assert!(told.iter().all(|part| done.err.contains(part)), "{done:?}");
        drop(hangs);
        assert_eq!(bench.read("f"), "");
        ok(call(["recover", bench.buffer.to_str().unwrap()]));
        assert_eq!(bench.read("f"), "content");
    });
}

/// A FUSE server that has read a request and does not answer it: the kernel lets no signal reach who waits.
#[test] // S22
fn what_a_run_leaves_is_told_though_the_kernel_keeps_its_process_in_a_store_that_hangs() {
    in_private_namespace(|| {
        let hung = Hung::new("write");
        hung.hang();
        let mut running = hung.bench.start_run(&["--policy", "stage_out=exit"], "printf content > f");
        wait_until("the command has written", PATIENCE, || hung.lower.join("f").exists());
        wait_until("the command has ended", PATIENCE, || !has_children(running.pid()));
        interrupt_twice(&mut running);
        running.complains("calls to the global store have not come back");
        assert!(running.err().contains("forebay recover"), "{}", running.err());
        let buffer = hung.bench.buffer.to_str().unwrap();
        let early = call(["recover", buffer]);
        assert_eq!(early.code, 69, "a call that hangs may still write: {early:?}");
        assert!(early.err.contains("has not come back"), "{early:?}");
        hung.answer();
        assert_eq!(running.wait().code, 75);
        ok(call(["recover", buffer]));
        assert_eq!(read(&hung.lower.join("f")), b"content");
    });
}

#[test] // S22
fn a_recover_whose_store_hangs_from_the_start_ends_when_it_is_asked_to() {
    in_private_namespace(|| {
        let hung = Hung::new("any");
        let killed =
            hung.bench.run(&["--policy", "stage_out=manual"], "printf content > f; kill -KILL $PPID; sleep 0.1");
        assert_eq!(killed.code, 137, "{killed:?}");
        hung.hang();
        let mut running = start(forebay().arg("recover").arg(&hung.bench.buffer), "");
        wait_until("it takes signals by itself", PATIENCE, || takes_signals(running.pid()));
        kill(running.pid(), libc::SIGINT);
        let told = running.complains("forebay recover");
        assert!(told.contains("ended before it was looked at"), "{told}");
        hung.answer();
        assert_eq!(running.wait().code, 130);
        ok(call(["recover", hung.bench.buffer.to_str().unwrap()]));
        assert_eq!(read(&hung.lower.join("f")), b"content");
    });
}

/// Returns whether a process blocks SIGINT, and so takes signals itself.
fn takes_signals(pid: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:"));
    blocked.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).is_some_and(|set| set & 2 != 0)
}

fn has_children(pid: i32) -> bool {
    let children = |task: fs::DirEntry| fs::read_to_string(task.path().join("children")).unwrap_or_default();
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    tasks.map(children).any(|list| !list.trim().is_empty())
}
