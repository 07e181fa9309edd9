//! `--window`: a program that writes through a window, and deaths of it and of its agent.

#[path = "../common/mod.rs"]
mod common;
mod out_of_sight;
mod own_tmpfs;
mod programs;

use std::fs::OpenOptions;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::Ordering::SeqCst;

use common::{BOUND, Bench, call, forebay, kill, ok, sessions, start};
use rustix::fs::{Mode, OFlags};
use testkit::{in_private_namespace, wait_until};
use window::client::Registration;
use window::{Mapping, Memory, WindowMedium};

const LEDGER: &str = "FOREBAY_TEST_LEDGER";

/// Returns offset and bytes of write `number`.
fn write(number: u64) -> (u64, Vec<u8>) {
    let len = 1 + (number * 7919 % 9000) as usize;
    (number * 104_729 % 500_000, vec![(number % 251) as u8; len])
}

/// Not a test: runs the command. Word 0 of the ledger counts acknowledged writes, word 1 is its process id, word 2
/// says that it ended.
#[test]
#[ignore = "run by the tests below, in a process of its own"]
fn writer() {
    let Some(ledger) = std::env::var_os(LEDGER) else { return };
    let ledger = Mapping::open(ledger.as_ref(), WindowMedium::Volatile).unwrap();
    let socket = std::env::var_os("FOREBAY_WINDOW_SOCKET").expect("windows are served");
    let registration = Registration::connect(socket.as_encoded_bytes()).unwrap();
    let announcement = registration.announce(rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs());
    // Past the preload library, which would announce it too.
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = rustix::fs::open("file", flags, Mode::from_raw_mode(0o666)).unwrap();
    assert!(announcement.windowed());
    let window = registration.attach(file.as_fd(), 0).unwrap();
    ledger.word(8).store(std::process::id().into(), SeqCst);
    let last = std::env::var("FOREBAY_TEST_WRITES").map_or(u64::MAX, |writes| writes.parse().unwrap());
    for number in 0..last {
        let (offset, bytes) = write(number);
        if window.append(offset, &bytes).is_err() {
            break;
        }
        ledger.word(0).store(number + 1, SeqCst);
    }
    ledger.word(16).store(1, SeqCst);
}

/// Not a test either: runs a program that reads what it writes. The kernel continues to read existing data by itself.
#[test]
#[ignore = "run by a test below, in a process of its own"]
fn database() {
    let Some(socket) = std::env::var_os("FOREBAY_WINDOW_SOCKET") else { return };
    let registration = Registration::connect(socket.as_encoded_bytes()).unwrap();
    let opens = |options: &mut OpenOptions, name: &str| {
        let announcement = registration.announce_mildly(rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs());
        let file = options.read(true).write(true).open(name).unwrap();
        (announcement.windowed(), file)
    };
    assert!(!opens(&mut OpenOptions::new(), "there").0);
    assert!(opens(OpenOptions::new().truncate(true), "emptied").0);
    let (windowed, file) = opens(OpenOptions::new().create(true).truncate(false), "made");
    assert!(windowed);
    let window = registration.attach(file.as_fd(), 0).unwrap();
    window.append(0, b"written").unwrap();
    let mut bytes = [0; 7];
    std::os::unix::fs::FileExt::read_exact_at(&file, &mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"written");
}

/// Not a test either: runs a program that gets no window.
#[test]
#[ignore = "run by a test below, in a process of its own"]
fn in_vain() {
    let Some(socket) = std::env::var_os("FOREBAY_WINDOW_SOCKET") else { return };
    let registration = Registration::connect(socket.as_encoded_bytes()).unwrap();
    let announcement = registration.announce(rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs());
    let file = OpenOptions::new().write(true).create(true).truncate(true).open("file").unwrap();
    assert!(announcement.windowed());
    let refused = registration.attach(file.as_fd(), 0).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::ENOSPC));
    std::os::unix::fs::FileExt::write_all_at(&file, b"written", 0).unwrap();
}

struct Story {
    bench: Bench,
    ledger: Mapping,
    /// Directory named for its windows.
    window: String,
    /// Directory in which they lie.
    rings: PathBuf,
    /// Whether its mounts count as those of the machine.
    on_machine: bool,
    /// Directory of the file, which the command makes: one below the accelerated directory is delegated.
    within: &'static str,
}

/// Directories of files: the accelerated one, and a delegated one.
const WITHIN: [&str; 2] = [".", "delegated"];

impl Story {
    fn new() -> Story {
        let bench = Bench::new();
        let ledger = Mapping::create(&bench.tree.path("ledger"), 4096, WindowMedium::Volatile).unwrap();
        let rings = bench.tree.path("rings");
        let window = format!("--window={}", rings.display());
        Story { bench, ledger, window, rings, on_machine: false, within: "." }
    }

    /// The program, where this happens.
    fn forebay(&self) -> Command {
        let mut command = forebay();
        if self.on_machine {
            command.env("FOREBAY_TEST_MACHINE", "1");
        }
        for job in ["SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "FLUX_JOB_ID", "JOB_ID"] {
            command.env_remove(job);
        }
        command
    }

    fn start(&self, writes: Option<u64>) -> common::Running {
        let mut command = self.forebay();
        command.arg("run").arg("--burst-buffer").arg(&self.bench.buffer).arg("--dir").arg(&self.bench.dir);
        let script = "mkdir -p \"$1\" && cd \"$1\" && exec \"$0\" --exact writer --ignored";
        command.args([&*self.window, "--", "sh", "-c", script]).arg(std::env::current_exe().unwrap()).arg(self.within);
        command.current_dir(&self.bench.dir).env(LEDGER, self.bench.tree.path("ledger"));
        if let Some(writes) = writes {
            command.env("FOREBAY_TEST_WRITES", writes.to_string());
        }
        start(&mut command, "")
    }

    fn acknowledged(&self) -> u64 {
        self.ledger.word(0).load(SeqCst)
    }

    /// The file below has what was acknowledged; one write more may be there.
    fn check(&self) {
        let found = std::fs::read(self.bench.dir.join(self.within).join("file")).unwrap();
        let mut expected: Vec<u8> = Vec::new();
        (0..self.acknowledged()).for_each(|number| apply(&mut expected, number));
        let without = found == expected;
        apply(&mut expected, self.acknowledged());
        assert!(without || found == expected, "after {} acknowledged writes", self.acknowledged());
        assert_eq!(sessions(&self.rings), 0, "no session is left");
    }
}

fn apply(file: &mut Vec<u8>, number: u64) {
    let (offset, bytes) = write(number);
    let end = offset as usize + bytes.len();
    file.resize(file.len().max(end), 0);
    file[offset as usize..end].copy_from_slice(&bytes);
}

#[test] // S37, S71
fn a_program_with_a_window_runs_and_its_data_is_in_the_global_store() {
    in_private_namespace(|| {
        for within in WITHIN {
            let story = Story { within, ..Story::new() };
            let done = story.start(Some(3000)).wait();
            assert_eq!((done.code, story.acknowledged()), (0, 3000), "{done:?}");
            story.check();
        }
    });
}

#[test] // S37
fn a_mount_with_windows_says_what_programs_need() {
    in_private_namespace(|| {
        let story = Story::new();
        let rings = story.bench.tree.path("rings");
        let mounted = forebay()
            .arg("mount")
            .arg(&story.bench.dir)
            .arg("--burst-buffer")
            .arg(&story.bench.buffer)
            .arg(format!("--window={}", rings.display()))
            .output()
            .unwrap();
        let exports = String::from_utf8(mounted.stdout).unwrap();
        assert!(exports.contains(" LD_PRELOAD="), "{exports}");
        let script = format!("{exports}exec \"$0\" --exact writer --ignored");
        let mut command = Command::new("sh");
        command.args(["-c", &script]).arg(std::env::current_exe().unwrap()).current_dir(&story.bench.dir);
        command.env(LEDGER, story.bench.tree.path("ledger")).env("FOREBAY_TEST_WRITES", "300");
        let done = start(&mut command, "").wait();
        assert_eq!((done.code, story.acknowledged()), (0, 300), "{done:?}");
        ok(call([Path::new("umount"), &story.bench.dir]));
        story.check();
    });
}

#[test] // S37
fn a_file_opened_to_read_and_write_has_a_window_if_nothing_was_there_to_read() {
    in_private_namespace(|| {
        let story = Story::new();
        for name in ["there", "emptied"] {
            std::fs::write(story.bench.dir.join(name), "content").unwrap();
        }
        let rings = format!("--window={}", story.bench.tree.path("rings").display());
        let script = format!("exec {} --exact database --ignored", std::env::current_exe().unwrap().display());
        let done = story.bench.run(&["--no-preload", &rings], &script);
        assert_eq!(done.code, 0, "{done:?}");
        assert_eq!(story.bench.read("made"), "written");
        assert_eq!((story.bench.read("there"), story.bench.read("emptied")), ("content".into(), String::new()));
    });
}

#[test] // S38, S71
fn what_a_window_acknowledged_survives_the_death_of_agent_or_of_both() {
    in_private_namespace(|| {
        for (both, within) in [false, true].into_iter().flat_map(|both| WITHIN.map(|within| (both, within))) {
            let story = Story { within, ..Story::new() };
            let mut running = story.start(None);
            wait_until("writes", BOUND, || {
                assert!(running.guard.ended().is_none(), "{}", running.err());
                story.acknowledged() > 2000
            });
            kill(running.pid(), libc::SIGKILL);
            if both {
                kill(story.ledger.word(8).load(SeqCst) as i32, libc::SIGKILL);
            }
            wait_until("the death of the agent", BOUND, || running.guard.ended().is_some());
            let checked = ok(call([Path::new("check"), &story.bench.buffer]));
            assert!(checked.contains("may hold writes that are not here yet"), "{checked}");
            assert_eq!(checked.contains("delegated directories: 1;"), within == WITHIN[1], "{checked}");
            // A program that lives continues until its ring is full, or until somebody recovers.
            let recovered = call([Path::new("recover"), &story.bench.buffer]);
            assert_eq!(recovered.code, 0, "{recovered:?}");
            if !both {
                wait_until("the end of the program", BOUND, || story.ledger.word(16).load(SeqCst) == 1);
            }
            story.check();
        }
    });
}

#[test] // S37
fn windows_are_served_in_every_directory_of_a_run() {
    in_private_namespace(|| {
        let story = Story::new();
        let other = story.bench.tree.dir("other");
        let report = story.bench.tree.path("report");
        let mut command = forebay();
        command.arg("run").arg("--burst-buffer").arg(&story.bench.buffer).arg("--report").arg(&report);
        command.arg("--dir").arg(&story.bench.dir).arg("--dir").arg(&other);
        command.arg(format!("--window={}", story.bench.tree.path("rings").display()));
        // In a directory, then in the other, and in each its own program.
        let script = "cd \"$1\" && \"$0\" --exact writer --ignored && cd \"$2\" && \"$0\" --exact writer --ignored";
        command.args(["--", "sh", "-c", script]).arg(std::env::current_exe().unwrap());
        command.arg(&story.bench.dir).arg(&other);
        command.env(LEDGER, story.bench.tree.path("ledger")).env("FOREBAY_TEST_WRITES", "300");
        let done = start(&mut command, "").wait();
        assert_eq!((done.code, story.acknowledged()), (0, 300), "{done:?}");
        story.check();
        assert!(std::fs::read(other.join("file")).unwrap() == std::fs::read(story.bench.dir.join("file")).unwrap());
        let report: serde_json::Value = serde_json::from_slice(&std::fs::read(&report).unwrap()).unwrap();
        for directory in report["directories"].as_array().unwrap() {
            let windows = &directory["windows"];
            assert_eq!((&windows["attached"], &windows["acknowledged_writes"]), (&1.into(), &300.into()), "{windows}");
            assert_eq!(windows["waiting_bytes"], 0);
        }
    });
}

#[test]
fn a_window_directory_that_others_may_replace_is_refused() {
    in_private_namespace(|| {
        let bench = Bench::new();
        let open = bench.tree.dir("open");
        std::fs::set_permissions(&open, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
        let refused = |place: &Path, why: &str| {
            let done = bench.run(&[&format!("--window={}", place.display())], "true");
            assert_ne!(done.code, 0);
            let told = ["for windows", "--window=DIR", why].iter().all(|part| done.err.contains(part));
            assert!(told, "{done:?}");
            let doctor = ok(call([Path::new("doctor"), "--window".as_ref(), place]));
            assert!(doctor.contains("limited  windows") && doctor.contains(why), "{doctor}");
        };
        refused(&open, "others may write there (mode 777)");
        std::fs::set_permissions(&open, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
        std::os::unix::fs::chown(&open, Some(1000), None).unwrap();
        refused(&open, "it belongs to user 1000");
        std::fs::write(bench.tree.path("no directory"), "").unwrap();
        refused(&bench.tree.path("no directory"), "it is no directory");
    });
}

#[test] // S37
fn windows_that_cannot_be_are_refused_or_it_is_said_why_there_was_none() {
    in_private_namespace(|| {
        let bench = Bench::new();
        let refused = |rings: &Path, why: &str| {
            let done = bench.run(&[&format!("--window={}", rings.display())], "touch ran");
            assert!(done.code == 64 && done.err.contains(why), "{done:?}");
            let mut mount = forebay();
            mount.arg("mount").arg(&bench.dir).arg("--burst-buffer").arg(&bench.buffer);
            let mounted = start(mount.arg(format!("--window={}", rings.display())), "").wait();
            assert!(mounted.code == 64 && mounted.err.contains(why), "{mounted:?}");
        };
        refused(&bench.dir, "is to be accelerated");
        refused(&bench.dir.join("not/there/yet"), "is to be accelerated");
        std::os::unix::fs::symlink(&bench.dir, bench.tree.path("link")).unwrap();
        refused(&bench.tree.path("link/rings"), "is to be accelerated");
        for size in ["much", "0", "1.5MiB", "16mango"] {
            let mut command = forebay();
            command.arg("run").arg("--burst-buffer").arg(&bench.buffer).arg("--dir").arg(&bench.dir);
            command.args(["--window", "--", "touch", "ran"]).current_dir(&bench.dir).env("FOREBAY_WINDOW", size);
            let done = start(&mut command, "").wait();
            let why = format!("FOREBAY_WINDOW: `{size}` is no size of a window");
            assert!(done.code == 64 && done.err.contains(&why) && done.err.contains("off, or"), "{done:?}");
        }
        assert!(!bench.dir.join("ran").exists());

        let small = bench.tree.mount_tmpfs("small", 1 << 20);
        let script = format!(
            "{} --exact in_vain --ignored && {} status {}",
            std::env::current_exe().unwrap().display(),
            env!("CARGO_BIN_EXE_forebay"),
            bench.dir.display()
        );
        let done =
            bench.run(&["--no-preload", "--window-memory=64MiB", &format!("--window={}", small.display())], &script);
        let why = "1 asked for a window in vain: no ring can be made where they lie: No space left on device";
        assert!(done.code == 0 && done.out.contains(why) && done.err.contains(why), "{done:?}");
        assert!(!done.err.contains("not in memory"), "{done:?}");
        assert_eq!(bench.read("file"), "written");
    });
}

#[test] // S37
fn windows_have_the_memory_that_all_of_them_may_take() {
    in_private_namespace(|| {
        let bench = Bench::new();
        let script = r#"python3 -c '
import fcntl, os, struct
fd = os.open("file", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
for n in range(20): os.write(fd, b"12345678")
print(struct.unpack("<IIQQII", fcntl.ioctl(fd, 0xC020FB01, struct.pack("<IIQQII", 32, 0, 0, 0, 0, 1)))[2] >> 20)'"#;
        for (memory, wish, has, told) in
            [("64MiB", "64MiB", "32", true), ("8MiB", "4MiB", "4", false), ("256MiB", "128MiB", "128", false)]
        {
            let mut command = forebay();
            command.arg("run").arg("--burst-buffer").arg(&bench.buffer).arg("--dir").arg(&bench.dir);
            command.arg(format!("--window={}", bench.tree.path("rings").display())).args(["--window-memory", memory]);
            command.args(["--", "sh", "-c", script]).current_dir(&bench.dir).env("FOREBAY_WINDOW", wish);
            let done = start(&mut command, "").wait();
            assert!(done.code == 0 && done.out.trim() == has, "{memory}: {done:?}");
            assert_eq!(done.err.contains("no window will have the 64MiB of FOREBAY_WINDOW"), told, "{done:?}");
        }
        // A program that gives the size of windows asks for them. With `off` there are none, nor without a setting in
        // this namespace.
        for (wish, agent, memory, has) in [
            (Some("2MiB"), None, None, true),
            (Some("2MiB"), None, Some("64MiB"), true),
            // A program that has an agent that serves windows keeps it.
            (Some("2MiB"), Some("none"), None, false),
            (Some("off"), None, None, false),
            (None, None, None, false),
        ] {
            let mut command = forebay();
            command.arg("run").arg("--burst-buffer").arg(&bench.buffer).arg("--dir").arg(&bench.dir);
            command.args(memory.map(|memory| format!("--window-memory={memory}")));
            command.args(["--", "sh", "-c", "echo ${FOREBAY_WINDOW_SOCKET:-none} ${LD_PRELOAD:-none}"]);
            command.envs(wish.map(|wish| ("FOREBAY_WINDOW", wish)));
            command.envs(agent.map(|agent| ("FOREBAY_WINDOW_SOCKET", agent)));
            let done = start(&mut command, "").wait();
            assert!(done.code == 0 && (done.out.trim() == "none none") != has, "{wish:?}: {done:?}");
        }
        let alone = bench.run(&["--no-preload", "--window-memory", "1GiB"], "true");
        assert!(alone.code == 64 && alone.err.contains("--window"), "{alone:?}");
    });
}

#[test] // S37
fn memory_in_which_no_window_has_room_is_refused() {
    in_private_namespace(|| {
        let bench = Bench::new();
        let rings = format!("--window={}", bench.tree.path("rings").display());
        for (memory, code) in [("0", 64), ("131071", 64), ("128KiB", 0)] {
            let done = bench.run(&[&rings, "--window-memory", memory], "true");
            assert!(done.code == code, "{memory}: {done:?}");
            assert_eq!(done.err.contains("no window has room in it: at least 128KiB"), code != 0, "{done:?}");
        }
    });
}

#[test] // S38
fn the_doctor_tells_what_killed_agents_left_and_whose_it_is_until_that_is_recovered() {
    in_private_namespace(|| {
        let story = Story::new();
        let rings = story.bench.tree.path("rings");
        let doctor = || {
            let done = call([Path::new("doctor"), "--json".as_ref(), "--window".as_ref(), &rings]);
            let report: serde_json::Value = serde_json::from_str(&done.out).unwrap();
            let checks = report["checks"].as_array().unwrap().iter();
            let left = checks.filter(|check| check["name"] == "left windows").map(|check| check["found"].to_string());
            left.collect::<Vec<_>>().join("\n")
        };
        let mut running = story.start(None);
        wait_until("writes", BOUND, || {
            assert!(running.guard.ended().is_none(), "{}", running.err());
            story.acknowledged() > 100
        });
        let of_one_that_lives = doctor();
        kill(running.pid(), libc::SIGKILL);
        kill(story.ledger.word(8).load(SeqCst) as i32, libc::SIGKILL);
        wait_until("the death of the agent", BOUND, || running.guard.ended().is_some());
        let of_one_that_died = doctor();
        let recovered = call([Path::new("recover"), &story.bench.buffer]);
        assert_eq!(recovered.code, 0, "{recovered:?}");
        let of_none = doctor();
        let told = |found: &str| found.contains(rings.to_str().unwrap());
        assert!(!told(&of_one_that_lives), "{of_one_that_lives}");
        assert!(told(&of_one_that_died) && of_one_that_died.contains(" of file"), "{of_one_that_died}");
        assert!(!told(&of_none), "{of_none}");
    });
}

#[test] // S38
fn rings_that_were_taken_away_are_told_as_lost() {
    in_private_namespace(|| {
        let story = Story::new();
        let mut running = story.start(None);
        wait_until("writes", BOUND, || {
            assert!(running.guard.ended().is_none(), "{}", running.err());
            story.acknowledged() > 100
        });
        kill(running.pid(), libc::SIGKILL);
        kill(story.ledger.word(8).load(SeqCst) as i32, libc::SIGKILL);
        wait_until("the death of the agent", BOUND, || running.guard.ended().is_some());
        let rings = story.bench.tree.path("rings");
        for session in std::fs::read_dir(&rings).unwrap() {
            std::fs::remove_dir_all(session.unwrap().path()).unwrap();
        }
        let recovered = call([Path::new("recover"), &story.bench.buffer]);
        assert!(
            recovered.code == 0 && recovered.err.contains("is gone: what they held, if anything, is lost"),
            "{recovered:?}"
        );
        let again = call([Path::new("recover"), &story.bench.buffer]);
        assert!(again.code == 0 && !again.err.contains("lost"), "{again:?}");
    });
}
