//! Number of requests to a global store: operations directly in a store that counts, and through Forebay with its
//! stage-out.

mod common;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::{BOUND, Bench, call, ok};
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use testkit::{PATIENCE, ProcessGuard, TempTree, in_private_namespace, wait_until};

/// Environment variable that tells the process that serves the store what to serve.
const SERVE: &str = "REQUESTS_TEST_SERVE";

/// Number of files on which each operation is executed.
const FILES: u64 = 20;

/// Store that counts requests, with a directory for each side.
struct Counted {
    bench: Bench,
    lower: PathBuf,
    shown: PathBuf,
    _server: ProcessGuard,
}

/// Requests by kind.
type Requests = BTreeMap<String, u64>;

impl Counted {
    /// `--trust`: what was learnt once is not asked for again, however slow the machine is.
    fn new(options: &[&str]) -> Counted {
        let tree = TempTree::new();
        let (lower, shown, buffer) = (tree.mount_tmpfs("lower", 64 << 20), tree.dir("shown"), tree.dir("bb"));
        for side in ["direct", "ours"] {
            fs::create_dir(lower.join(side)).unwrap();
        }
        let mut words = vec![b"slowfs".as_slice(), lower.as_os_str().as_bytes(), shown.as_os_str().as_bytes()];
        words.extend([b"--foreground".as_slice(), b"--trust", b"60s"]);
        words.extend(options.iter().map(|word| word.as_bytes()));
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "serve", "--ignored", "--nocapture", "--test-threads=1"]);
        command.env(SERVE, OsString::from_vec(words.join(&b'\n'))).stdin(Stdio::null());
        let server = ProcessGuard::spawn(&mut command);
        wait_until("the store", PATIENCE, || fuse_protocol::mount::is_mounted(&shown).unwrap());
        let dir = shown.join("ours");
        Counted { bench: Bench { tree, dir, buffer }, lower, shown, _server: server }
    }

    fn requests(&self) -> Requests {
        let mut text = vec![0; 1 << 16];
        let length = rustix::fs::getxattr(&self.shown, "user.slowfs.statistics", &mut text[..]).unwrap();
        let text = String::from_utf8(text[..length].to_vec()).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("requests ")).unwrap();
        let words: Vec<&str> = line.split(' ').collect();
        words.chunks(2).map(|pair| (pair[0].to_owned(), pair[1].parse().unwrap())).collect()
    }

    /// Returns the requests once everything that was opened is closed, for which no program waits.
    fn settled(&self) -> Requests {
        wait_until("every file is closed", BOUND, || {
            let now = self.requests();
            now["open"] + now["create"] == now["release"]
        });
        self.requests()
    }

    /// Returns the requests of `run` in one of the directories, until everything is below.
    fn cost(&self, side: &str, run: impl FnOnce(&Path)) -> Requests {
        let before = self.settled();
        run(&self.shown.join(side));
        if side == "ours" {
            ok(call(["drain", "--wait", self.bench.dir.to_str().unwrap()]));
        }
        let mut after = self.settled();
        after.iter_mut().for_each(|(kind, count)| *count -= before[kind]);
        after.retain(|_, count| *count > 0);
        after
    }
}

/// Not a test: runs the store.
#[test]
#[ignore = "the store of the other tests"]
fn serve() {
    let Some(words) = std::env::var_os(SERVE) else { return };
    let words = words.as_bytes().split(|byte| *byte == b'\n').map(|word| OsString::from_vec(word.to_vec()));
    slowfs::run(words.collect::<Vec<_>>());
}

/// Files that an operation finds.
#[derive(Clone, Copy, PartialEq)]
enum Found {
    Nothing,
    /// Of 4 KiB.
    Files,
    /// Of 64 KiB.
    Larger,
    Directories,
}

struct Operation {
    name: &'static str,
    finds: Found,
    /// Function that executes the operation with all names in the directory.
    run: fn(&Path, &[String]),
    /// Most requests per file, in hundredths: `direct` in the store itself, where they are unavoidable, and `ours`
    /// through Forebay. With a stage-out, `ours` allows for a few requests per batch of files, whose size varies.
    direct: u64,
    ours: u64,
}

fn each(dir: &Path, names: &[String], run: impl Fn(&Path)) {
    names.iter().for_each(|name| run(&dir.join(name)));
}

/// By the call that asks for no time of birth.
fn stat(path: &Path) {
    rustix::fs::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

fn write(path: &Path, flags: OFlags, bytes: usize) {
    let file = rustix::fs::open(path, OFlags::WRONLY | flags, Mode::from_raw_mode(0o644)).unwrap();
    if bytes > 0 {
        assert_eq!(rustix::io::write(&file, &vec![7; bytes]).unwrap(), bytes);
    }
}

fn read(path: &Path) {
    let file = rustix::fs::open(path, OFlags::RDONLY, Mode::empty()).unwrap();
    let mut bytes = vec![0; 1 << 17];
    assert!(rustix::io::read(&file, &mut bytes[..]).unwrap() >= 4096);
}

/// By name and attributes.
fn list(dir: &Path) {
    let listed = rustix::fs::open(dir, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
    let entries = rustix::fs::Dir::new(listed).unwrap().map(|entry| entry.unwrap());
    let names: Vec<_> = entries.map(|entry| entry.file_name().to_owned()).collect();
    let names = names.iter().filter(|name| !name.to_bytes().starts_with(b"."));
    names.for_each(|name| stat(&dir.join(std::ffi::OsStr::from_bytes(name.to_bytes()))));
}

const OPERATIONS: [Operation; 13] = [
    Operation {
        name: "new 4 KiB file",
        finds: Found::Nothing,
        run: |dir, names| each(dir, names, |path| write(path, OFlags::CREATE, 4096)),
        direct: 695,
        ours: 1500,
    },
    Operation {
        name: "empty file",
        finds: Found::Nothing,
        run: |dir, names| each(dir, names, |path| write(path, OFlags::CREATE, 0)),
        direct: 495,
        ours: 820,
    },
    Operation {
        name: "append",
        finds: Found::Files,
        run: |dir, names| each(dir, names, |path| write(path, OFlags::APPEND, 4096)),
        direct: 600,
        ours: 1790,
    },
    Operation {
        name: "rename",
        finds: Found::Files,
        run: |dir, names| each(dir, names, |path| fs::rename(path, path.with_extension("to")).unwrap()),
        direct: 395,
        ours: 595,
    },
    Operation {
        name: "unlink",
        finds: Found::Files,
        run: |dir, names| each(dir, names, |path| fs::remove_file(path).unwrap()),
        direct: 295,
        ours: 295,
    },
    Operation {
        name: "mkdir",
        finds: Found::Nothing,
        run: |dir, names| each(dir, names, |path| fs::create_dir(path).unwrap()),
        direct: 295,
        ours: 405,
    },
    Operation {
        name: "rmdir",
        finds: Found::Directories,
        run: |dir, names| each(dir, names, |path| fs::remove_dir(path).unwrap()),
        direct: 295,
        ours: 395, // the mark of a delegated directory
    },
    Operation {
        name: "cold open, read, close",
        finds: Found::Files,
        run: |dir, names| each(dir, names, read),
        direct: 400,
        ours: 500,
    },
    Operation {
        name: "cold open, read 64 KiB, close",
        finds: Found::Larger,
        run: |dir, names| each(dir, names, read),
        direct: 400,
        ours: 500,
    },
    Operation {
        name: "open, read, close, unlink",
        finds: Found::Files,
        run: |dir, names| {
            each(dir, names, read);
            each(dir, names, |path| fs::remove_file(path).unwrap());
        },
        direct: 600,
        ours: 800,
    },
    Operation { name: "stat", finds: Found::Files, run: |dir, names| each(dir, names, stat), direct: 100, ours: 100 },
    Operation { name: "list and stat, an entry", finds: Found::Files, run: |dir, _| list(dir), direct: 15, ours: 15 },
    Operation {
        name: "list, stat, open, read, close, an entry",
        finds: Found::Files,
        run: |dir, names| {
            list(dir);
            each(dir, names, read);
        },
        direct: 315,
        ours: 415,
    },
];

#[test] // S55
fn every_operation_asks_the_store_as_often_as_the_table_says() {
    in_private_namespace(|| {
        let store = Counted::new(&[]);
        let mounted = store.bench.mount(&[]);
        let (mut table, mut wrong) = (String::new(), false);
        for (number, operation) in OPERATIONS.iter().enumerate() {
            let names: Vec<String> = (0..FILES).map(|file| format!("f{file}")).collect();
            let at = format!("{number}");
            let cost = ["direct", "ours"].map(|side| {
                let lower = store.lower.join(side).join(&at);
                fs::create_dir(&lower).unwrap();
                for name in &names {
                    match operation.finds {
                        Found::Nothing => {}
                        Found::Files => fs::write(lower.join(name), [1; 4096]).unwrap(),
                        Found::Larger => fs::write(lower.join(name), vec![1; 64 << 10]).unwrap(),
                        Found::Directories => fs::create_dir(lower.join(name)).unwrap(),
                    }
                }
                // The directory itself is known.
                stat(&store.shown.join(side).join(&at));
                store.cost(side, |dir| (operation.run)(&dir.join(&at), &names))
            });
            let [direct, ours] = [0, 1].map(|side| cost[side].values().sum::<u64>() * 100 / FILES);
            wrong |= direct > operation.direct || ours > operation.ours;
            let bounds = format!("at most {} / {}", operation.direct, operation.ours);
            writeln!(table, "{}: {direct} / {ours} hundredths a file, {bounds}: {cost:?}", operation.name).unwrap();
        }
        assert!(!wrong, "\n{table}");
        drop(mounted);
    });
}

/// Beside the second lookup of each name: the time of birth, by which the directory is known again, the access list that it has got from
/// its parent, and the mark.
#[test] // S55, S71
fn a_directory_that_becomes_delegated_asks_the_store_four_times_more() {
    in_private_namespace(|| {
        let store = Counted::new(&[]);
        let mounted = store.bench.mount(&["--policy", "delegate=new"]);
        let make = |side: &str, at: &str| {
            let top = store.lower.join(side).join(at);
            fs::create_dir(&top).unwrap();
            let shown = store.shown.join(side).join(at);
            stat(&shown);
            // The first one finds out what the store keeps.
            fs::create_dir(shown.join("first")).unwrap();
            let before = store.settled();
            (0..FILES).for_each(|number| fs::create_dir(shown.join(number.to_string())).unwrap());
            let mut after = store.settled();
            after.iter_mut().for_each(|(kind, count)| *count -= before[kind]);
            after.retain(|_, count| *count > 0);
            after
        };
        let [direct, ours] = ["direct", "ours"].map(|side| make(side, "top"));
        let [few, more] = [&direct, &ours].map(|cost| cost.values().sum::<u64>() * 10 / FILES);
        assert!(more <= few + 43, "{direct:?}\n{ours:?}");
        drop(mounted);
    });
}

/// Of each file its time of birth and its extended attributes are read once. A read opens it, reads it and closes it; who reads several
/// waits for fewer than that.
#[test] // S55, S71
fn a_leased_directory_asks_the_store_twice_for_each_file_and_not_again() {
    in_private_namespace(|| {
        let store = Counted::new(&[]);
        let ours = store.lower.join("ours/leased");
        fs::create_dir(&ours).unwrap();
        (0..FILES).for_each(|file| fs::write(ours.join(format!("f{file}")), [7; 4096]).unwrap());
        let mounted = store.bench.mount(&["--policy", "delegate=lease", "--policy", "stage_out=manual"]);
        let leased = store.shown.join("ours/leased");
        let cost = |run: &dyn Fn()| {
            let before = store.settled();
            run();
            let after = store.settled();
            after.iter().map(|(kind, count)| count - before[kind]).sum::<u64>() * 10 / FILES
        };
        let first = cost(&|| list(&leased));
        let again = cost(&|| list(&leased));
        let reads = cost(&|| (0..FILES).for_each(|file| read(&leased.join(format!("f{file}")))));
        assert_eq!(fs::read(leased.join("f0")).unwrap(), [7; 4096]);
        let renames = cost(&|| {
            let path = |name: &str, file| leased.join(format!("{name}{file}"));
            (0..FILES).for_each(|file| fs::rename(path("f", file), path("other", file)).unwrap());
        });
        assert!(first <= 30 && reads <= 50, "{first} and {reads} tenths a file");
        // The directory's own name is made durable once.
        assert!(again <= 5 && renames <= 5, "{again} and {renames} tenths a file");
        drop(mounted);
    });
}

/// Nobody asks this store who a file is before it is opened, so what a burst buffer has of it must be found otherwise.
#[test] // S55
fn what_an_earlier_agent_left_of_a_file_is_seen_before_anybody_opens_it_and_goes_with_its_name() {
    in_private_namespace(|| {
        let hang = TempTree::new();
        let hung = hang.path("hangs");
        let store = Counted::new(&["--fault", &format!("write:1+:while={}", hung.display())]);
        let dir = store.bench.dir.clone();
        let mounted = store.bench.mount(&["--policy", "stage_out=manual"]);
        for name in ["seen", "removed"] {
            fs::write(dir.join(name), [3; 5000]).unwrap();
        }
        common::kill(mounted.agent(), libc::SIGKILL);
        wait_until("its agent is gone", BOUND, || call(["status", dir.to_str().unwrap()]).code == 69);
        rustix::mount::unmount(&dir, rustix::mount::UnmountFlags::DETACH).unwrap();
        // The next one stages out at once what is left.
        fs::write(&hung, "").unwrap();
        let _mounted = store.bench.mount(&["--policy", "stage_out=manual"]);
        assert_eq!(fs::metadata(dir.join("seen")).unwrap().len(), 5000);
        assert_eq!(fs::metadata(store.lower.join("ours/seen")).unwrap().len(), 0, "not from the store");
        fs::remove_file(&hung).unwrap();
        fs::remove_file(dir.join("removed")).unwrap();
        ok(call(["drain", "--wait", dir.to_str().unwrap()]));
        fs::write(store.lower.join("ours/replacing"), "new").unwrap();
        fs::rename(dir.join("replacing"), dir.join("seen")).unwrap();
        assert_eq!(fs::read_to_string(dir.join("seen")).unwrap(), "new");
        ok(call(["umount", dir.to_str().unwrap()]));
        let said = ok(call(["check", store.bench.buffer.to_str().unwrap()]));
        assert!(said.contains("1 clean, 0 dirty, 0 need a decision"), "{said}");
    });
}
