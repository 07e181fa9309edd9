//! Files that nobody else changes: what the kernel believes of them is always so.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use fuse_protocol::Opcode;
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, RenameFlags, StatxFlags, StatxTimestamp, XattrFlags, copy_file_range, fallocate,
    renameat_with, setxattr, statx,
};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use testkit::{PATIENCE, in_private_namespace, wait_until};

use crate::stand::{CACHED, DIRECT, EXCLUSIVE, How, Stand, proc_path};

/// Returns everything of statx(2) that a file system tells of a file; `None` if there is no file.
fn seen(path: &Path, flags: AtFlags) -> Option<String> {
    let flags = flags | AtFlags::SYMLINK_NOFOLLOW;
    let stat = statx(CWD, path, flags, StatxFlags::BASIC_STATS).ok()?;
    let time = |time: StatxTimestamp| format!("{}.{:09}", time.tv_sec, time.tv_nsec);
    let [atime, mtime, ctime] = [stat.stx_atime, stat.stx_mtime, stat.stx_ctime].map(time);
    let owner = (stat.stx_uid, stat.stx_gid);
    Some(format!(
        "{} mode {:o} links {} of {owner:?} size {} blocks {} atime {atime} mtime {mtime} ctime {ctime}",
        stat.stx_ino, stat.stx_mode, stat.stx_nlink, stat.stx_size, stat.stx_blocks
    ))
}

/// Returns paths in the directory, as a listing tells them.
fn listed(path: &Path) -> BTreeSet<PathBuf> {
    fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect()
}

fn writer(path: &Path) -> File {
    OpenOptions::new().write(true).open(path).unwrap()
}

type Step = (&'static str, fn(&Path));

const STEPS: [Step; 33] = [
    ("create", |d| File::create_new(d.join("f")).unwrap().write_all(b"content").unwrap()),
    ("make a directory", |d| fs::create_dir(d.join("sub")).unwrap()),
    ("create below", |d| fs::write(d.join("sub/x"), b"x").unwrap()),
    ("write", |d| writer(&d.join("f")).write_all_at(b"more", 10_000).unwrap()),
    ("append", |d| OpenOptions::new().append(true).open(d.join("f")).unwrap().write_all(b"end").unwrap()),
    ("read", |d| _ = File::open(d.join("f")).unwrap().read(&mut [0; 100]).unwrap()),
    ("truncate", |d| writer(&d.join("f")).set_len(5).unwrap()),
    ("grow", |d| writer(&d.join("f")).set_len(100_000).unwrap()),
    ("allocate", |d| fallocate(writer(&d.join("f")), FallocateFlags::empty(), 0, 200_000).unwrap()),
    ("punch", |d| {
        let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(writer(&d.join("f")), how, 0, 100_000).unwrap();
    }),
    ("sync", |d| writer(&d.join("f")).sync_all().unwrap()),
    ("set times", |d| writer(&d.join("f")).set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(5)).unwrap()),
    ("chmod", |d| fs::set_permissions(d.join("f"), Permissions::from_mode(0o640)).unwrap()),
    ("chown", |d| chown(d.join("f"), Some(1000), Some(1000)).unwrap()),
    ("chmod of a directory", |d| fs::set_permissions(d.join("sub"), Permissions::from_mode(0o700)).unwrap()),
    // Not every tmpfs has attributes of users.
    ("set an attribute", |d| _ = setxattr(d.join("f"), "user.a", b"value", XattrFlags::empty())),
    ("remove an attribute", |d| _ = rustix::fs::removexattr(d.join("f"), "user.a")),
    ("link", |d| fs::hard_link(d.join("f"), d.join("g")).unwrap()),
    ("write by the other name", |d| writer(&d.join("g")).write_all_at(b"again", 0).unwrap()),
    ("unlink one of two names", |d| fs::remove_file(d.join("f")).unwrap()),
    ("rename", |d| fs::rename(d.join("g"), d.join("f")).unwrap()),
    ("rename into another directory", |d| fs::rename(d.join("f"), d.join("sub/f")).unwrap()),
    ("exchange", |d| {
        renameat_with(CWD, d.join("sub/f"), CWD, d.join("sub/x"), RenameFlags::EXCHANGE).unwrap();
    }),
    ("replace", |d| fs::rename(d.join("sub/x"), d.join("sub/f")).unwrap()),
    ("symlink", |d| symlink("target", d.join("g")).unwrap()),
    ("read a symlink", |d| _ = fs::read_link(d.join("g")).unwrap()),
    ("unlink the last name", |d| fs::remove_file(d.join("g")).unwrap()),
    ("rename a directory", |d| {
        fs::create_dir(d.join("other")).unwrap();
        fs::rename(d.join("sub"), d.join("other/sub")).unwrap();
    }),
    ("copy", |d| {
        let from = File::open(d.join("other/sub/f")).unwrap();
        copy_file_range(&from, None, File::create(d.join("f")).unwrap(), None, 100).unwrap();
    }),
    ("open and truncate", |d| drop(File::create(d.join("other/sub/f")).unwrap())),
    ("write by several descriptors", |d| {
        let (one, two) = (writer(&d.join("f")), writer(&d.join("f")));
        one.write_all_at(b"one", 0).unwrap();
        two.write_all_at(b"two", 10).unwrap();
    }),
    ("give a nameless file a name", |d| {
        let file = OpenOptions::new().write(true).custom_flags(libc::O_TMPFILE).open(d).unwrap();
        (&file).write_all(b"content").unwrap();
        rustix::fs::linkat(CWD, proc_path(&file), CWD, d.join("g"), AtFlags::SYMLINK_FOLLOW).unwrap();
    }),
    ("remove a directory", |d| {
        fs::remove_file(d.join("other/sub/f")).unwrap();
        fs::remove_dir(d.join("other/sub")).unwrap();
    }),
];

const WATCHED: [&str; 10] = ["", "f", "g", "sub", "sub/x", "sub/f", "other", "other/sub", "other/sub/f", "absent"];

/// Compares what the kernel tells with what it tells when it has to ask.
fn stale_after(stand: &Stand, step: &str) -> Vec<String> {
    let mut stale = Vec::new();
    // Looking at a file below changes nothing of it; reading a directory there would.
    let exists = |watched: &&str| stand.below("d").join(watched).symlink_metadata().is_ok();
    let existing: Vec<_> =
        WATCHED.iter().filter(|watched| exists(watched)).map(|watched| stand.path("d").join(watched)).collect();
    for watched in WATCHED {
        let path = stand.path("d").join(watched);
        let (told, asked): (Option<String>, Option<String>) =
            [AtFlags::empty(), AtFlags::STATX_FORCE_SYNC].map(|how| seen(&path, how)).into();
        if told != asked || told.is_some() != exists(&watched) {
            stale.push(format!("{step}, {watched:?}:\n  {told:?}\n  {asked:?}"));
        }
        let inside: BTreeSet<_> = existing.iter().filter(|inside| inside.parent() == Some(&path)).cloned().collect();
        if path.is_dir() && listed(&path) != inside {
            stale.push(format!("{step}: the names in {watched:?}"));
        }
    }
    stale
}

#[test] // S1
fn after_each_call_of_a_program_the_kernel_tells_what_is_so() {
    let manual = How { rule: Some("stage_out=manual"), ..EXCLUSIVE };
    let through = |how| How { exclusive: true, rule: manual.rule, ..how };
    for how in [manual, through(DIRECT), through(CACHED)] {
        if !how.is_served() {
            continue;
        }
        in_private_namespace(move || {
            let stand = Stand::new(how);
            fs::create_dir(stand.path("d")).unwrap();
            let mut stale = stale_after(&stand, "nothing");
            for (step, take) in STEPS {
                take(&stand.path("d"));
                stale.extend(stale_after(&stand, step));
            }
            assert!(stale.is_empty(), "{how:?}:\n{}", stale.join("\n"));
        });
    }
}

/// Returns how many requests of a kind an act of a program makes.
fn requests(stand: &Stand, kind: Opcode, act: impl FnOnce()) -> u64 {
    let count = || stand.requests().get(&kind).copied().unwrap_or(0);
    let before = count();
    act();
    count() - before
}

#[test]
fn what_is_known_is_not_asked_for_again() {
    in_private_namespace(|| {
        // Whatever is not trusted is asked for at once.
        let stand = Stand::new(How { rule: Some("revalidate=0"), ..EXCLUSIVE });
        fs::create_dir(stand.path("d")).unwrap();
        // Its own name lies where others may change names, so programs come by its descriptor.
        let directory = File::open(stand.path("d")).unwrap();
        let d = proc_path(&directory);
        fs::write(d.join("f"), b"content").unwrap();
        let look = || {
            assert_eq!(fs::metadata(d.join("f")).unwrap().len(), 7);
            assert!(!d.join("absent").exists());
            assert_eq!(listed(&d).len(), 1);
        };
        look();
        look();
        let before = stand.requests();
        look();
        let mut made = stand.requests();
        made.retain(|kind, count| before.get(kind) != Some(count));
        let made: Vec<_> = made.into_keys().collect();
        // No name is looked up, and the listing is not read again.
        assert_eq!(made, [Opcode::Getattr, Opcode::Opendir, Opcode::Releasedir]);
    });
}

/// Names, an absent name, attributes, and a listing: others may change all of them once the exclusivity has ended.
#[test]
fn when_others_may_change_the_files_the_kernel_knows_nothing_any_more() {
    in_private_namespace(|| {
        let stand = Stand::new(How { rule: Some("revalidate=0"), ..EXCLUSIVE });
        let (d, below) = (stand.path("d"), stand.below("d"));
        for name in ["sub", "on"] {
            fs::create_dir_all(below.join(name)).unwrap();
        }
        for name in ["kept", "gone", "link", "before", "same"] {
            fs::write(below.join(name), b"content").unwrap();
        }
        fs::hard_link(d.join("link"), d.join("link2")).unwrap();
        fs::rename(d.join("before"), d.join("moved")).unwrap();
        let look = || {
            let size = |name: &str| fs::metadata(d.join(name)).ok().map(|metadata| metadata.len());
            let sizes = ["kept", "gone", "link", "link2", "moved", "absent", "sub/absent"].map(size);
            (sizes, listed(&d).len())
        };
        let seven = Some(7);
        let before = ([seven, seven, seven, seven, seven, None, None], 8);
        assert_eq!((look(), look()), (before, before));
        let inside = File::open(d.join("sub")).unwrap();
        mount("none", d.join("on"), "tmpfs", MountFlags::empty(), None).unwrap();
        stand.end_exclusivity();
        fs::set_permissions(below.join("kept"), Permissions::from_mode(0o600)).unwrap();
        for name in ["gone", "link", "link2", "moved"] {
            fs::remove_file(below.join(name)).unwrap();
        }
        fs::write(below.join("absent"), b"four").unwrap();
        fs::write(below.join("sub/absent"), b"four").unwrap();
        let four = Some(4);
        assert_eq!(look(), ([seven, None, None, None, None, four, four], 5));
        assert_eq!(fs::metadata(d.join("kept")).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(fs::read_link(proc_path(&inside)).unwrap().ends_with("sub"), "what is in use stays");
        unmount(d.join("on"), UnmountFlags::empty()).expect("what is mounted stays");
        fs::rename(below.join("kept"), below.join("kept now")).unwrap();
        assert!(!d.join("kept").exists() && d.join("kept now").exists());
    });
}

#[test] // S33
fn directories_that_are_entered_without_a_question_are_not_forgotten_for_their_descriptors() {
    in_private_namespace(|| {
        let stand = Stand::new(How { nodes_max: Some(100), ..EXCLUSIVE });
        fs::create_dir(stand.below("d")).unwrap();
        for number in 0..400 {
            fs::create_dir(stand.below(format!("d/directory-{number}"))).unwrap();
            fs::write(stand.below(format!("d/file-{number}")), b"content").unwrap();
        }
        let look = |kind: &str| {
            let names = (0..400).map(|number| stand.path(format!("d/{kind}-{number}")));
            names.for_each(|name| _ = fs::symlink_metadata(name).unwrap());
        };
        look("file");
        wait_until("forgetting files", PATIENCE, || stand.server_descriptors() < 250);
        look("directory");
        look("file");
        wait_until("forgetting files", PATIENCE, || stand.server_descriptors() < 400 + 250);
        assert!(stand.server_descriptors() > 400);
        // Had they been forgotten, the kernel would ask for hundreds. One it may drop by itself, in a machine with little memory.
        let asked = requests(&stand, Opcode::Lookup, || look("directory"));
        assert!(asked <= 4, "{asked} of 400 directories");
    });
}
