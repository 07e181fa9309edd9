//! On a terminal: what its keys do to the command and to the agent behind it.

mod common;

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::process::Command;
use std::sync::mpsc::{Receiver, channel};

use common::{BOUND, Bench, agent_of, call, ok};
use testkit::{ProcessGuard, in_private_namespace, wait_until};

/// A program with a terminal of its own.
struct Terminal {
    guard: ProcessGuard,
    keys: File,
    screen: Receiver<Vec<u8>>,
    seen: String,
}

impl Terminal {
    fn start(command: &mut Command) -> Terminal {
        let (mut ours, mut theirs) = (-1, -1);
        let null = std::ptr::null_mut();
        // SAFETY: both integers outlive the call; the other arguments may be null.
        let made = unsafe { libc::openpty(&mut ours, &mut theirs, null, null.cast(), null.cast()) };
        assert_eq!(made, 0, "no pseudo-terminal: {}", std::io::Error::last_os_error());
        // SAFETY: openpty has made both, and nobody else has them.
        let (keys, tty) = unsafe { (File::from_raw_fd(ours), OwnedFd::from_raw_fd(theirs)) };
        // A terminal of no kind gets no bars.
        command.env("TERM", "xterm");
        command.stdin(tty.try_clone().unwrap()).stdout(tty.try_clone().unwrap()).stderr(tty);
        // The program must not hold its own terminal open: when a test fails, the hang-up ends it.
        rustix::io::fcntl_setfd(&keys, rustix::io::FdFlags::CLOEXEC).unwrap();
        let guard = ProcessGuard::spawn(command);
        let (send, screen) = channel();
        let mut reader = keys.try_clone().unwrap();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(n @ 1..) = reader.read(&mut buffer) {
                if send.send(buffer[..n].to_vec()).is_err() {
                    return;
                }
            }
        });
        Terminal { guard, keys, screen, seen: String::new() }
    }

    /// Waits until the text shows; what came before it is forgotten.
    fn shows(&mut self, text: &str) {
        wait_until(text, BOUND, || {
            while let Ok(bytes) = self.screen.try_recv() {
                self.seen.push_str(&String::from_utf8_lossy(&bytes));
            }
            self.seen.contains(text)
        });
        let end = self.seen.find(text).map_or(0, |at| at + text.len());
        self.seen.drain(..end);
    }

    fn press(&mut self, keys: &[u8]) {
        self.keys.write_all(keys).unwrap();
    }
}

/// `setsid --ctty` gives the program a session with its standard input as terminal.
fn run(bench: &Bench, script: &str) -> Terminal {
    let mut command = Command::new("setsid");
    command.args(["--ctty", "--wait", env!("CARGO_BIN_EXE_forebay"), "run", "--burst-buffer"]).arg(&bench.buffer);
    command.args(["--", "sh", "-c", script]).current_dir(&bench.dir);
    Terminal::start(&mut command)
}

#[test]
fn an_interrupt_key_reaches_the_command_once_and_the_agent_drains() {
    in_private_namespace(|| {
        let bench = Bench::new();
        let script = "n=0; trap 'n=$((n+1)); echo $n >> keys; echo int' INT; echo up; \
                      while ! [ -e stop ]; do sleep 0.01; done; exit 5";
        let mut terminal = run(&bench, script);
        terminal.shows("up");
        terminal.press(b"\x03");
        terminal.shows("int");
        std::fs::write(bench.dir.join("stop"), "").unwrap();
        assert_eq!(terminal.guard.wait(BOUND).code(), Some(5));
        assert_eq!(bench.read("keys"), "1\n");
    });
}

#[test]
fn a_stop_key_stops_the_command_and_its_files_go_on_when_it_continues() {
    in_private_namespace(|| {
        let bench = Bench::new();
        let mut command = Command::new("setsid");
        command.args(["--ctty", "--wait", "bash", "--norc", "--noediting", "-i"]).current_dir(&bench.dir);
        command.env("PS1", "ready> ").env("FOREBAY_BURST_BUFFER", &bench.buffer);
        command.env("FOREBAY", env!("CARGO_BIN_EXE_forebay"));
        // The shell waits in a builtin: it cannot stop while a program that it starts is stopped before it runs.
        let go = bench.tree.path("go");
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &go, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        let mut terminal = Terminal::start(&mut command);
        terminal.shows("ready> ");
        terminal.press(b"$FOREBAY run -- sh -c 'echo u''p; read line < ../go; echo e''nd | tee f'\n");
        terminal.shows("up\r\n");
        terminal.press(b"\x1a");
        terminal.shows("Stopped");
        terminal.shows("ready> ");
        terminal.press(b"fg\n");
        std::fs::write(&go, "\n").unwrap();
        terminal.shows("end\r\n");
        terminal.shows("ready> ");
        assert_eq!(bench.read("f"), "end\n");
        terminal.press(b"exit 0\n");
        assert_eq!(terminal.guard.wait(BOUND).code(), Some(0));
    });
}

/// The agent is in that session: the reader gives way to programs of its own scheduling group alone.
#[test] // S22
fn a_mount_outlives_the_keys_and_the_end_of_the_terminal_from_which_it_was_made() {
    in_private_namespace(|| {
        let bench = Bench::new();
        let script = "\"$FOREBAY\" mount .; trap 'echo i''nt' INT; echo mou''nted; while :; do sleep 0.01; done";
        let mut command = Command::new("setsid");
        command.args(["--ctty", "--wait", "sh", "-c", script]).current_dir(&bench.dir);
        command.env("FOREBAY_BURST_BUFFER", &bench.buffer).env("FOREBAY", env!("CARGO_BIN_EXE_forebay"));
        let mut terminal = Terminal::start(&mut command);
        terminal.shows("mounted");
        let agent = rustix::process::Pid::from_raw(agent_of(&bench.buffer));
        let (session, group) = (rustix::process::getsid(agent).unwrap(), rustix::process::getpgid(agent).unwrap());
        // SAFETY: asks for a number. That of this test's session is 0 if it is led from outside the process namespace.
        assert_ne!(session.as_raw_nonzero().get(), unsafe { libc::getsid(0) });
        assert!(rustix::process::test_kill_process(session).is_ok(), "the shell leads it");
        assert_ne!(group, rustix::process::getpgid(Some(session)).unwrap());
        terminal.press(b"\x03");
        terminal.shows("int");
        rustix::process::kill_process(session, rustix::process::Signal::KILL).unwrap();
        assert!(!terminal.guard.wait(BOUND).success());
        drop(terminal);
        let dir = bench.dir.to_str().unwrap();
        ok(call(["status", dir]));
        std::fs::write(bench.dir.join("f"), "kept").unwrap();
        ok(call(["umount", dir]));
        assert_eq!(bench.read("f"), "kept");
    });
}

/// A bar that only knows whole files would stand still.
#[test]
fn a_drain_and_a_staging_draw_bars_that_move_within_a_file() {
    in_private_namespace(|| {
        let bench = Bench::new();
        let mounted = bench.mount(&["--policy", "stage_out=manual", "--policy", "rate=8MiB/s"]);
        std::fs::write(bench.dir.join("large"), vec![1; 16 << 20]).unwrap();
        std::fs::write(bench.dir.join("other"), vec![1; 16 << 20]).unwrap();
        let at_terminal = |words: &[&str], path: &str| {
            let mut command = Command::new("setsid");
            command.args(["--ctty", "--wait", env!("CARGO_BIN_EXE_forebay")]).args(words).arg(bench.dir.join(path));
            Terminal::start(&mut command)
        };
        let mut staging = at_terminal(&["stage", "out", "--wait"], "other");
        staging.shows("staging [");
        assert_eq!(staging.guard.wait(BOUND).code(), Some(0));
        let mut drain = at_terminal(&["drain", "--wait"], "");
        drain.shows("draining: 1 file left [");
        drain.shows("=> ");
        drain.shows("/16.00 MiB ");
        assert_eq!(drain.guard.wait(BOUND).code(), Some(0));
        drop(mounted);
    });
}

/// A long task shows its progress and the remaining time, and leaves nothing on the screen.
#[test]
fn a_sweep_draws_a_bar_with_the_time_that_is_left() {
    let target = tempfile::tempdir_in("/dev/shm").unwrap();
    let mut command = Command::new("setsid");
    command.args(["--ctty", "--wait", env!("CARGO_BIN_EXE_forebay"), "limits", "sweep", "--warm-up", "0", "--target"]);
    command.arg(target.path()).args(["-M", "1", "-N", "1,2", "--time", "200ms", "--pattern", "mdtest-easy"]);
    let mut terminal = Terminal::start(&mut command);
    terminal.shows("M=1 N=2 [=");
    terminal.shows("/6 ");
    terminal.shows(" left ");
    terminal.shows("best: ");
    assert_eq!(terminal.guard.wait(BOUND).code(), Some(0));
}
