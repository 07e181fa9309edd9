//! Rights equal those of the plain directory: a table of modes, owners and calls, made by an ordinary user beside a
//! plain directory.

mod common;

use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write as _};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{Bench, forebay, start};
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, Gid, StatxFlags, Timespec, Timestamps, UTIME_NOW, Uid, XattrFlags, chown,
    copy_file_range, fallocate, setxattr, statx, utimensat,
};
use testkit::in_private_namespace;

/// Where the program of the test works, and where it leaves what it saw.
const DIR: &str = "FOREBAY_TEST_RIGHTS_DIR";
const SEEN: &str = "FOREBAY_TEST_RIGHTS_SEEN";

const USER: u32 = 7001;
const OTHER: u32 = 7002;
const TEAM: u32 = 7100;

/// Runs `act` in a thread of the user, who is in the team's group too.
fn as_user<T: Send>(act: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let groups = [TEAM];
            // SAFETY: the raw calls change this thread's credentials only; the pointer and count describe `groups`.
            let done = unsafe {
                libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr())
                    | libc::syscall(libc::SYS_setresgid, USER, USER, USER)
                    | libc::syscall(libc::SYS_setresuid, USER, USER, USER)
            };
            assert_eq!(done, 0);
            act()
        });
        thread.join().unwrap()
    })
}

fn said<T>(done: io::Result<T>) -> String {
    done.map_or_else(|error| format!("errno {}", error.raw_os_error().unwrap_or(0)), |_| "ok".into())
}

fn truncate(path: &Path, len: i64) -> io::Result<()> {
    let path = std::ffi::CString::new(path.as_os_str().as_encoded_bytes()).unwrap();
    // SAFETY: a C string that lives through the call.
    if unsafe { libc::truncate(path.as_ptr(), len) } == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn give(path: &Path, mode: u32, owner: u32, group: u32) {
    chown(path, Some(Uid::from_raw(owner)), Some(Gid::from_raw(group))).unwrap();
    fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
}

/// One attribute as three calls tell it.
fn bits(path: &Path) -> String {
    let told = statx(CWD, path, AtFlags::empty(), StatxFlags::BASIC_STATS).unwrap();
    let stat = fs::metadata(path).unwrap();
    assert_eq!(u32::from(told.stx_mode), stat.mode(), "{}", path.display());
    format!("{:o} {}:{}", stat.mode() & 0o7777, stat.uid(), stat.gid())
}

type Call = (&'static str, fn(&Path) -> io::Result<()>);

fn write(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).open(path)
}

/// Calls on a file.
const ON_FILES: [Call; 16] = [
    ("read", |path| File::open(path)?.read_exact(&mut [0; 4])),
    ("write", |path| write(path)?.write_all(b"x")),
    ("write at", |path| write(path)?.write_all_at(b"x", 1)),
    ("read and write", |path| OpenOptions::new().read(true).write(true).open(path)?.write_all(b"x")),
    ("append", |path| OpenOptions::new().append(true).open(path)?.write_all(b"x")),
    ("open to cut", |path| OpenOptions::new().write(true).truncate(true).open(path).map(drop)),
    ("cut by name", |path| truncate(path, 2)),
    ("cut open", |path| write(path)?.set_len(2)),
    ("allocate", |path| Ok(fallocate(write(path)?, FallocateFlags::empty(), 0, 9000)?)),
    ("copy into", |path| {
        let from = File::open(path.with_file_name("source"))?;
        Ok(copy_file_range(from, None, write(path)?, None, 100).map(drop)?)
    }),
    ("many writes", |path| {
        let mut file = write(path)?;
        (0..5).try_for_each(|_| file.write_all(&[1; 1000]))
    }),
    ("touch", |path| {
        let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW as _ };
        Ok(utimensat(CWD, path, &Timestamps { last_access: now, last_modification: now }, AtFlags::empty())?)
    }),
    ("set times", |path| {
        let then = Timespec { tv_sec: 1_000_000_000, tv_nsec: 0 };
        Ok(utimensat(CWD, path, &Timestamps { last_access: then, last_modification: then }, AtFlags::empty())?)
    }),
    ("chmod", |path| fs::set_permissions(path, PermissionsExt::from_mode(0o2750))),
    ("chgrp", |path| Ok(chown(path, None, Some(Gid::from_raw(TEAM)))?)),
    ("setxattr", |path| Ok(setxattr(path, "user.x", b"y", XattrFlags::empty())?)),
];

/// Calls in a directory that contains `file`, of another owner, and `dir`.
const IN_DIRECTORIES: [Call; 11] = [
    ("list", |dir| fs::read_dir(dir)?.try_for_each(|entry| entry.map(drop))),
    ("look up", |dir| fs::metadata(dir.join("file")).map(drop)),
    ("read in", |dir| File::open(dir.join("file"))?.read_exact(&mut [0; 4])),
    ("create", |dir| File::create_new(dir.join("new")).map(drop)),
    ("mkdir", |dir| fs::create_dir(dir.join("newdir"))),
    ("symlink", |dir| std::os::unix::fs::symlink("x", dir.join("link"))),
    ("link", |dir| fs::hard_link(dir.join("own"), dir.join("hard"))),
    ("rename", |dir| fs::rename(dir.join("file"), dir.join("moved"))),
    ("rename own", |dir| fs::rename(dir.join("own"), dir.join("moved"))),
    ("unlink", |dir| fs::remove_file(dir.join("file"))),
    ("rmdir", |dir| fs::remove_dir(dir.join("dir"))),
];

fn on_files(root: &Path, seen: &mut String) {
    let modes = [0o000, 0o200, 0o400, 0o604, 0o060, 0o006, 0o666, 0o2777, 0o6777];
    fs::write(root.join("source"), [7; 100]).unwrap();
    for (owner, group) in [(USER, USER), (OTHER, OTHER), (OTHER, USER), (OTHER, TEAM)] {
        let path = root.join(format!("file-{owner}-{group}"));
        for mode in modes {
            for (name, call) in ON_FILES {
                let _ = fs::remove_file(&path);
                fs::write(&path, b"data").unwrap();
                give(&path, mode, owner, group);
                let said = as_user(|| said(call(&path)));
                writeln!(seen, "{mode:o} {owner}:{group} {name}: {said}, {}", bits(&path)).unwrap();
            }
        }
        fs::remove_file(&path).unwrap();
    }
}

fn in_directories(root: &Path, seen: &mut String) {
    let modes = [0o700, 0o711, 0o744, 0o755, 0o770, 0o775, 0o777, 0o1777, 0o2777, 0o3770];
    for (owner, group) in [(USER, USER), (OTHER, OTHER), (OTHER, TEAM)] {
        for mode in modes {
            for (name, call) in IN_DIRECTORIES {
                let dir = root.join(format!("{}-{owner}-{group}-{mode:o}", name.replace(' ', "-")));
                fs::create_dir_all(dir.join("dir")).unwrap();
                for (file, owner) in [("file", OTHER), ("own", USER)] {
                    fs::write(dir.join(file), b"data").unwrap();
                    give(&dir.join(file), 0o644, owner, owner);
                }
                give(&dir, mode, owner, group);
                let said = as_user(|| said(call(&dir)));
                let mut left: Vec<String> = fs::read_dir(&dir)
                    .unwrap()
                    .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                    .filter(|name| name != "link")
                    .map(|name| format!("{name} {}", bits(&dir.join(name.as_str()))))
                    .collect();
                left.sort();
                writeln!(seen, "{mode:o} {owner}:{group} {name}: {said}, {left:?}").unwrap();
                fs::remove_dir_all(&dir).unwrap();
            }
        }
    }
}

/// Not a test: the program of the other one.
#[test]
#[ignore = "the program of the other test"]
fn program() {
    let [Some(root), Some(told)] = [DIR, SEEN].map(|name| std::env::var_os(name).map(PathBuf::from)) else { return };
    // SAFETY: umask cannot fail.
    unsafe { libc::umask(0o022) };
    let mut seen = String::new();
    on_files(&root, &mut seen);
    in_directories(&root, &mut seen);
    fs::write(told, seen).unwrap();
}

#[test] // S1
fn rights_are_those_of_the_plain_directory_for_every_call_through_both_doors_and_on_each_route() {
    in_private_namespace(|| {
        let bench = Bench::new();
        fs::set_permissions(bench.tree.root(), PermissionsExt::from_mode(0o755)).unwrap();
        let told = bench.tree.path("seen");
        let me = std::env::current_exe().unwrap();
        let program = ["--exact", "program", "--ignored"];
        let told_by = |command: &mut Command, dir: &Path| {
            let done = start(command.env(DIR, dir).env(SEEN, &told), "").wait();
            assert_eq!(done.code, 0, "{done:?}");
            fs::read_to_string(&told).unwrap()
        };
        let plain = bench.tree.dir("plain");
        let want = told_by(Command::new(&me).args(program), &plain);
        assert!(want.lines().count() > 900 && want.contains("errno 13") && want.contains("errno 1,"));
        for options in [&[][..], &["--no-preload"], &["--no-preload", "--policy", "cache=through"]] {
            let mut command = forebay();
            command.args(["run", "--quiet"]).args(options).arg("--burst-buffer").arg(&bench.buffer);
            command.arg("--dir").arg(&bench.dir).arg("--").arg(&me).args(program);
            let have = told_by(&mut command, &bench.dir);
            let other: Vec<_> = want.lines().zip(have.lines()).filter(|(want, have)| want != have).collect();
            assert!(other.is_empty() && want.len() == have.len(), "{options:?}, plain and accelerated: {other:#?}");
        }
    });
}
