//! Names, links, special files, listings, attributes and users.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;

use global_store::hidden;
use rustix::fs::{CWD, FileType, Mode, RenameFlags, makedev, mknodat, renameat_with};
use testkit::in_private_namespace;

use crate::stand::{How, PASSTHROUGH, Stand};
use crate::who::as_user;

#[test] // S2
fn hard_links_are_one_file() {
    in_private_namespace(|| {
        let stand = Stand::new(PASSTHROUGH);
        fs::write(stand.path("a"), b"one").unwrap();
        fs::hard_link(stand.path("a"), stand.path("b")).unwrap();
        let (a, b) = (fs::metadata(stand.path("a")).unwrap(), fs::metadata(stand.path("b")).unwrap());
        assert_eq!((a.ino(), a.nlink(), b.nlink()), (b.ino(), 2, 2));
        assert_eq!(a.ino(), fs::metadata(stand.below("a")).unwrap().ino());
        let open = File::options().append(true).open(stand.path("b")).unwrap();
        (&open).write_all(b" two").unwrap();
        assert_eq!(fs::read(stand.path("a")).unwrap(), b"one two");
        fs::remove_file(stand.path("a")).unwrap();
        assert_eq!(fs::read(stand.path("b")).unwrap(), b"one two");
        assert_eq!(open.metadata().unwrap().nlink(), 1);
    });
}

#[test]
fn rename_flags_mean_what_they_say() {
    in_private_namespace(|| {
        let stand = Stand::new(PASSTHROUGH);
        let rename = |a: &str, b: &str, flags| renameat_with(CWD, stand.path(a), CWD, stand.path(b), flags);
        fs::write(stand.path("a"), b"a").unwrap();
        fs::write(stand.path("b"), b"b").unwrap();
        assert_eq!(rename("a", "b", RenameFlags::NOREPLACE), Err(rustix::io::Errno::EXIST));
        rename("a", "b", RenameFlags::EXCHANGE).unwrap();
        assert_eq!(fs::read(stand.path("a")).unwrap(), b"b");
        assert_eq!(fs::read(stand.path("b")).unwrap(), b"a");
        rename("a", "b", RenameFlags::empty()).unwrap();
        assert_eq!(fs::read(stand.path("b")).unwrap(), b"b");
        assert!(!stand.path("a").exists());
        rename("b", "c", RenameFlags::WHITEOUT).unwrap();
        let whiteout = fs::symlink_metadata(stand.path("b")).unwrap();
        assert!(whiteout.file_type().is_char_device() && whiteout.rdev() == 0);
    });
}

#[test] // S1
fn a_name_that_others_make_is_there_at_once() {
    in_private_namespace(|| {
        let stand = Stand::new(PASSTHROUGH);
        assert!(!stand.path("name").exists());
        fs::write(stand.below("name"), b"others").unwrap();
        assert_eq!(fs::read(stand.path("name")).unwrap(), b"others");
    });
}

#[test] // S1
fn a_name_that_was_not_there_is_trusted_as_long_as_the_policy_says_but_never_when_it_is_made() {
    in_private_namespace(|| {
        let stand = Stand::new(How { rule: Some("negative_timeout=1h"), ..PASSTHROUGH });
        let names = ["opened", "new", "directory", "link", "target", "own"];
        for name in names {
            assert!(!stand.path(name).exists());
        }
        for name in &names[..5] {
            fs::write(stand.below(name), b"others").unwrap();
            assert!(!stand.path(name).exists(), "{name}: asked again");
        }
        // Creating a name always finds the truth, and no existing file is replaced unseen.
        let opened = File::options().read(true).write(true).create(true).truncate(false).open(stand.path("opened"));
        assert_eq!(std::io::read_to_string(opened.unwrap()).unwrap(), "others");
        let there = |made: std::io::Result<()>| made.is_err_and(|error| error.kind() == ErrorKind::AlreadyExists);
        assert!(there(File::create_new(stand.path("new")).map(drop)));
        assert!(there(fs::create_dir(stand.path("directory"))));
        assert!(there(symlink("opened", stand.path("link"))));
        let moved = renameat_with(CWD, stand.path("opened"), CWD, stand.path("target"), RenameFlags::NOREPLACE);
        assert_eq!(moved, Err(rustix::io::Errno::EXIST));
        // Names that are made or removed through the mount appear and vanish at once.
        fs::write(stand.path("own"), b"own").unwrap();
        assert_eq!(fs::read(stand.path("own")).unwrap(), b"own");
        fs::rename(stand.path("own"), stand.path("other")).unwrap();
        assert!(!stand.path("own").exists() && stand.path("other").exists());
    });
}

#[test] // S23
fn a_dirty_file_is_below_before_it_replaces_another() {
    in_private_namespace(|| {
        let stand = Stand::new(PASSTHROUGH);
        fs::write(stand.path("final"), b"old").unwrap();
        fs::write(stand.path("new"), b"new content").unwrap();
        fs::rename(stand.path("new"), stand.path("final")).unwrap();
        assert_eq!(fs::read(stand.below("final")).unwrap(), b"new content");
    });
}

#[test] // S5
fn fifos_sockets_devices_and_links_are_those_below() {
    in_private_namespace(|| {
        let stand = Stand::new(PASSTHROUGH);
        let make = |name: &str, kind, device| mknodat(CWD, stand.path(name), kind, Mode::from_raw_mode(0o640), device);
        make("fifo", FileType::Fifo, 0).unwrap();
        make("zero", FileType::CharacterDevice, makedev(1, 5)).unwrap();
        make("block", FileType::BlockDevice, makedev(259, 70_000)).unwrap();
        make("plain", FileType::RegularFile, 0).unwrap();
        drop(UnixListener::bind(stand.path("socket")).unwrap());
        symlink("target/of/it", stand.path("link")).unwrap();
        for name in ["fifo", "zero", "block", "plain", "socket", "link"] {
            let (above, below) =
                (fs::symlink_metadata(stand.path(name)).unwrap(), fs::symlink_metadata(stand.below(name)).unwrap());
            assert_eq!((above.mode(), above.rdev(), above.ino()), (below.mode(), below.rdev(), below.ino()), "{name}");
        }
        assert_eq!(fs::read_link(stand.path("link")).unwrap().to_str(), Some("target/of/it"));
        assert!(fs::symlink_metadata(stand.path("socket")).unwrap().file_type().is_socket());
    });
}

#[test] // S5
fn a_large_directory_is_listed_once_each_while_it_changes() {
    in_private_namespace(|| {
        let stand = Stand::new(PASSTHROUGH);
        fs::create_dir(stand.path("dir")).unwrap();
        let names: BTreeSet<OsString> = (0..3000).map(|at| format!("name-{at:05}").into()).collect();
        names.iter().for_each(|name| drop(File::create(stand.below("dir").join(name)).unwrap()));
        let mut seen = Vec::new();
        for (at, entry) in fs::read_dir(stand.path("dir")).unwrap().enumerate() {
            let name = entry.unwrap().file_name();
            if at % 2 == 0 {
                fs::remove_file(stand.path("dir").join(&name)).unwrap();
            }
            seen.push(name);
        }
        let once: BTreeSet<OsString> = seen.iter().cloned().collect();
        assert_eq!(once.len(), seen.len(), "some twice");
        assert_eq!(once, names);
        assert_eq!(fs::read_dir(stand.path("dir")).unwrap().count(), 1500);
    });
}

#[test]
fn seeking_in_a_directory_returns_to_the_same_entry() {
    in_private_namespace(|| {
        let stand = Stand::new(PASSTHROUGH);
        (0..500).for_each(|at| drop(File::create(stand.below(format!("file-{at}"))).unwrap()));
        let c_path = std::ffi::CString::new(stand.path("").to_str().unwrap()).unwrap();
        // SAFETY: the stream is valid until closed, entries until the next call; names are copied at once.
        unsafe {
            let stream = libc::opendir(c_path.as_ptr());
            let next = || {
                let entry = libc::readdir(stream);
                (!entry.is_null()).then(|| std::ffi::CStr::from_ptr((*entry).d_name.as_ptr()).to_owned())
            };
            for _ in 0..200 {
                next().unwrap();
            }
            let here = libc::telldir(stream);
            let rest: Vec<_> = std::iter::from_fn(next).collect();
            libc::seekdir(stream, here);
            assert_eq!(std::iter::from_fn(next).collect::<Vec<_>>(), rest);
            libc::rewinddir(stream);
            assert_eq!(std::iter::from_fn(next).count(), 502);
            libc::closedir(stream);
        }
    });
}

#[test] // S33
fn descriptors_of_nodes_are_bounded() {
    in_private_namespace(|| {
        let stand = Stand::new(How { nodes_max: Some(500), ..PASSTHROUGH });
        (0..3000).for_each(|at| drop(File::create(stand.below(format!("file-{at}"))).unwrap()));
        for at in 0..3000 {
            fs::metadata(stand.path(format!("file-{at}"))).unwrap();
        }
        testkit::wait_until("forgetting", testkit::PATIENCE, || stand.server_descriptors() < 1000);
        assert!(fs::metadata(stand.path("file-0")).is_ok());
    });
}

#[test] // S33
fn what_is_in_use_stays_where_the_kernel_is_asked_to_forget() {
    in_private_namespace(|| {
        let stand = Stand::new(How { nodes_max: Some(100), ..PASSTHROUGH });
        for name in ["work/inner", "listed", "mounts/on", "tree"] {
            fs::create_dir_all(stand.below(name)).unwrap();
        }
        ["file", "open"].iter().for_each(|name| fs::write(stand.below(name), name).unwrap());
        let many = |kind: &str| (0..600).map(|at| format!("tree/{kind}-{at}")).collect::<Vec<_>>();
        many("file").iter().for_each(|name| drop(File::create(stand.below(name)).unwrap()));
        many("directory").iter().for_each(|name| fs::create_dir(stand.below(name)).unwrap());
        let mut inside = std::process::Command::new("cat");
        let inside = testkit::ProcessGuard::spawn(
            inside.current_dir(stand.path("work/inner")).stdin(std::process::Stdio::piped()),
        );
        rustix::mount::mount("none", stand.path("mounts/on"), "tmpfs", rustix::mount::MountFlags::empty(), None)
            .unwrap();
        fs::write(stand.beside("other"), "other").unwrap();
        rustix::mount::mount_bind(stand.beside("other"), stand.path("file")).unwrap();
        let (listed, open) = (File::open(stand.path("listed")).unwrap(), File::open(stand.path("open")).unwrap());

        let look = |kind| many(kind).iter().for_each(|name| _ = fs::symlink_metadata(stand.path(name)).unwrap());
        let few = || stand.server_descriptors() < 250;
        look("file");
        testkit::wait_until("forgetting files", testkit::PATIENCE, few);
        look("directory");
        testkit::wait_until("forgetting directories", testkit::PATIENCE, few);

        let leads = |link: String| fs::read_link(link).unwrap();
        assert_eq!(leads(format!("/proc/{}/cwd", inside.pid())), stand.path("work/inner"));
        for (file, name) in [(&listed, "listed"), (&open, "open")] {
            assert_eq!(leads(crate::stand::proc_path(file).to_str().unwrap().into()), stand.path(name));
        }
        assert_eq!(fs::read_to_string(stand.path("file")).unwrap(), "other");
        for name in ["mounts/on", "file"] {
            rustix::mount::unmount(stand.path(name), rustix::mount::UnmountFlags::empty()).expect(name);
        }
        inside.signal(rustix::process::Signal::KILL);
    });
}

#[test] // S7
fn attributes_of_our_own_are_hidden_and_others_pass() {
    in_private_namespace(|| {
        use rustix::fs::{XattrFlags, getxattr, listxattr, removexattr, setxattr};
        let stand = Stand::new(PASSTHROUGH);
        let (path, below) = (stand.path("file"), stand.below("file"));
        fs::write(&path, b"x").unwrap();
        if setxattr(&below, "user.kept", b"1", XattrFlags::empty()) == Err(rustix::io::Errno::OPNOTSUPP) {
            return eprintln!("skipped: the global store, a tmpfs, has no such attributes before Linux 6.6");
        }
        removexattr(&below, "user.kept").unwrap();
        setxattr(&path, "user.colour", b"blue", XattrFlags::CREATE).unwrap();
        assert_eq!(setxattr(&path, "user.colour", b"red", XattrFlags::CREATE), Err(rustix::io::Errno::EXIST));
        setxattr(&path, "trusted.secret", b"1", XattrFlags::empty()).unwrap();
        setxattr(&below, "user.forebay.dirty", b"mark", XattrFlags::empty()).unwrap();
        let mut buffer = [0u8; 256];
        let names = |buffer: &mut [u8]| {
            let len = listxattr(&path, &mut *buffer).unwrap();
            String::from_utf8(buffer[..len].to_vec()).unwrap()
        };
        assert_eq!(getxattr(&path, "user.colour", &mut buffer[..]).unwrap(), 4);
        let seen = names(&mut buffer);
        assert!(
            seen.contains("user.colour\0") && seen.contains("trusted.secret\0") && !seen.contains("forebay"),
            "{seen}"
        );
        assert!(!as_user(1234, &[], || names(&mut [0u8; 256])).contains("trusted"));
        assert_eq!(getxattr(&path, "user.forebay.dirty", &mut buffer[..]), Err(rustix::io::Errno::NODATA));
        assert_eq!(removexattr(&path, "user.forebay.dirty"), Err(rustix::io::Errno::PERM));
        removexattr(&path, "user.colour").unwrap();
        assert_eq!(getxattr(&below, "user.colour", &mut buffer[..]), Err(rustix::io::Errno::NODATA));
    });
}

#[test] // S1
fn the_umask_holds_unless_a_default_acl_does() {
    in_private_namespace(|| {
        let stand = Stand::new(PASSTHROUGH);
        // SAFETY: umask cannot fail; this process runs one test.
        unsafe { libc::umask(0o027) };
        fs::create_dir(stand.path("plain")).unwrap();
        File::create(stand.path("plain/file")).unwrap();
        let mode = |path: &str| fs::metadata(stand.below(path)).unwrap().mode() & 0o7777;
        assert_eq!((mode("plain"), mode("plain/file")), (0o750, 0o640));
        fs::create_dir(stand.path("ruled")).unwrap();
        // An ACL of version 2: user, group, mask and other may read and write.
        let acl: Vec<u8> = [2u32.to_le_bytes().to_vec()]
            .into_iter()
            .chain([(1u16, 6u16), (4, 6), (0x10, 6), (0x20, 6)].map(|(tag, permissions)| {
                [tag.to_le_bytes(), permissions.to_le_bytes(), [0xff; 2], [0xff; 2]].concat()
            }))
            .flatten()
            .collect();
        rustix::fs::setxattr(stand.path("ruled"), "system.posix_acl_default", &acl, rustix::fs::XattrFlags::empty())
            .unwrap();
        File::create(stand.path("ruled/file")).unwrap();
        assert_eq!(mode("ruled/file"), 0o666);
    });
}

#[test] // S1
fn users_create_as_themselves_and_nothing_they_may_not() {
    in_private_namespace(|| {
        let stand = Stand::new(PASSTHROUGH);
        as_user(1234, &[], || {
            fs::write(stand.path("mine"), b"x").unwrap();
            fs::create_dir(stand.path("dir")).unwrap();
            symlink("x", stand.path("link")).unwrap();
        });
        for name in ["mine", "dir", "link"] {
            let stat = fs::symlink_metadata(stand.below(name)).unwrap();
            assert_eq!((stat.uid(), stat.gid()), (1234, 1234), "{name}");
        }
        fs::create_dir(stand.path("theirs")).unwrap();
        fs::set_permissions(stand.path("theirs"), PermissionsExt::from_mode(0o770)).unwrap();
        rustix::fs::chown(stand.path("theirs"), None, Some(rustix::fs::Gid::from_raw(77))).unwrap();
        as_user(1234, &[], || assert!(fs::write(stand.path("theirs/file"), b"x").is_err()));
        as_user(1235, &[5, 77], || fs::write(stand.path("theirs/file"), b"x").unwrap());
        fs::set_permissions(stand.path("mine"), PermissionsExt::from_mode(0o000)).unwrap();
        assert_eq!(fs::metadata(stand.path("mine")).unwrap().mode() & 0o7777, 0);
        as_user(1235, &[], || assert!(File::open(stand.path("mine")).is_err()));
        as_user(1234, &[], || assert!(File::open(stand.path("mine")).is_err()));
    });
}

#[test] // S1
fn permission_taken_away_below_holds_at_the_next_open() {
    in_private_namespace(|| {
        let stand = Stand::new(PASSTHROUGH);
        fs::write(stand.path("file"), b"x").unwrap();
        fs::set_permissions(stand.path("file"), PermissionsExt::from_mode(0o644)).unwrap();
        as_user(1234, &[], || File::open(stand.path("file")).unwrap());
        // The kernel trusts the old mode for another second.
        fs::set_permissions(stand.below("file"), PermissionsExt::from_mode(0o600)).unwrap();
        as_user(1234, &[], || assert!(File::open(stand.path("file")).is_err()));
    });
}

#[test] // S71
fn hidden_files_are_not_seen_not_made_and_no_reason_to_keep_a_directory() {
    in_private_namespace(|| {
        let stand = Stand::new(PASSTHROUGH);
        let name = hidden::name("a node that died", 7);
        for directory in ["one", "two", "three"] {
            fs::create_dir(stand.below(directory)).unwrap();
            fs::write(stand.below(directory).join(&name), b"a part").unwrap();
        }
        assert_eq!(fs::read_dir(stand.path("one")).unwrap().count(), 0);
        assert_eq!(fs::metadata(stand.path("one").join(&name)).unwrap_err().kind(), ErrorKind::NotFound);
        fs::create_dir(stand.path("four")).unwrap();
        assert_eq!(fs::write(stand.path("four").join(&name), b"").unwrap_err().kind(), ErrorKind::PermissionDenied);
        fs::write(stand.path("two").join("seen"), b"").unwrap();
        assert_eq!(fs::remove_dir(stand.path("two")).unwrap_err().kind(), ErrorKind::DirectoryNotEmpty);
        assert!(stand.below("two").join(&name).exists(), "somebody may be writing it");
        fs::remove_dir(stand.path("one")).unwrap();
        fs::rename(stand.path("four"), stand.path("three")).unwrap();
        assert_eq!(fs::read_dir(stand.below("three")).unwrap().count(), 0);
    });
}

#[test]
fn what_may_only_be_executed_is_executed() {
    in_private_namespace(|| {
        let stand = Stand::new(PASSTHROUGH);
        fs::copy("/bin/true", stand.path("program")).unwrap();
        fs::set_permissions(stand.path("program"), PermissionsExt::from_mode(0o711)).unwrap();
        as_user(1234, &[], || {
            assert!(File::open(stand.path("program")).is_err());
            assert!(std::process::Command::new(stand.path("program")).status().unwrap().success());
        });
    });
}
