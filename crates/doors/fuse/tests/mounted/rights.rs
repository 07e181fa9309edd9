//! The caller's rights at each call, and refusals of the store itself.

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;

use rustix::fs::{Gid, IFlags, Uid, chown, ioctl_getflags, ioctl_setflags};
use rustix::mount::{MountFlags, mount_remount};
use testkit::{PATIENCE, in_private_namespace, kernel_has, wait_until};

use crate::stand::{DIRECT, How, PASSTHROUGH, Stand};
use crate::who::{as_capable_user, as_user, in_thread};

const MANUAL: How = How { rule: Some("stage_out=manual"), ..PASSTHROUGH };

fn set_flags(path: &Path, flags: IFlags) {
    let file = File::open(path).unwrap();
    ioctl_setflags(&file, (ioctl_getflags(&file).unwrap() - (IFlags::APPEND | IFlags::IMMUTABLE)) | flags).unwrap();
}

fn truncate(path: &Path, len: i64) -> Result<(), i32> {
    let path = CString::new(path.as_os_str().as_bytes()).unwrap();
    // SAFETY: a C string that lives through the call.
    if unsafe { libc::truncate(path.as_ptr(), len) } == 0 {
        Ok(())
    } else {
        Err(std::io::Error::last_os_error().raw_os_error().unwrap())
    }
}

fn errno<T>(done: std::io::Result<T>) -> Option<i32> {
    done.err().and_then(|error| error.raw_os_error())
}

#[test] // S60
fn files_that_are_immutable_or_append_only_below_are_so_for_programs() {
    in_private_namespace(|| {
        for how in [PASSTHROUGH, DIRECT] {
            let stand = Stand::new(how);
            for (name, flag) in [("fixed", IFlags::IMMUTABLE), ("log", IFlags::APPEND)] {
                fs::write(stand.path(name), b"old\n").unwrap();
                wait_until("the stage-out", PATIENCE, || fs::read(stand.below(name)).unwrap() == b"old\n");
                // The replica exists, so only the store's check keeps the program from it.
                assert_eq!(fs::read(stand.path(name)).unwrap(), b"old\n");
                set_flags(&stand.below(name), flag);
                let path = stand.path(name);
                let open = |options: &mut OpenOptions| errno(options.open(&path));
                assert_eq!(open(OpenOptions::new().write(true)), Some(libc::EPERM), "{name}");
                assert_eq!(open(OpenOptions::new().read(true).write(true)), Some(libc::EPERM), "{name}");
                assert_eq!(open(OpenOptions::new().write(true).truncate(true)), Some(libc::EPERM), "{name}");
                assert_eq!(truncate(&path, 1), Err(libc::EPERM), "{name}");
                assert_eq!(errno(fs::remove_file(&path)), Some(libc::EPERM), "{name}");
                assert_eq!(fs::read(&path).unwrap(), b"old\n", "{name}");
            }
            assert_eq!(errno(OpenOptions::new().append(true).open(stand.path("fixed"))), Some(libc::EPERM));
            for line in ["new\n", "newer\n"] {
                OpenOptions::new().append(true).open(stand.path("log")).unwrap().write_all(line.as_bytes()).unwrap();
            }
            assert_eq!(
                fs::read(stand.below("log")).unwrap(),
                b"old\nnew\nnewer\n",
                "at once: nothing waits for a flag to go"
            );
            assert_eq!(fs::read(stand.path("log")).unwrap(), b"old\nnew\nnewer\n");
            let log = OpenOptions::new().read(true).append(true).open(stand.path("log")).unwrap();
            assert_eq!(errno(log.set_len(0)), Some(libc::EPERM));
            drop(log);
            ["fixed", "log"].iter().for_each(|name| set_flags(&stand.below(name), IFlags::empty()));
        }
    });
}

#[test] // S60
fn a_truncation_that_a_read_only_store_refuses_has_cut_nothing() {
    in_private_namespace(|| {
        for how in [MANUAL, How { passthrough: false, ..MANUAL }] {
            let stand = Stand::new(how);
            for name in ["clean", "dirty", "privileged"] {
                fs::write(stand.below(name), b"old\n").unwrap();
                assert_eq!(fs::read(stand.path(name)).unwrap(), b"old\n");
            }
            OpenOptions::new().append(true).open(stand.path("dirty")).unwrap().write_all(b"new\n").unwrap();
            OpenOptions::new().append(true).open(stand.path("privileged")).unwrap().write_all(b"new\n").unwrap();
            fs::set_permissions(stand.below("privileged"), PermissionsExt::from_mode(0o6777)).unwrap();
            mount_remount(stand.below(""), MountFlags::RDONLY, "").unwrap();
            for (name, text) in [("clean", &b"old\n"[..]), ("dirty", b"old\nnew\n"), ("privileged", b"old\nnew\n")] {
                let path = stand.path(name);
                assert_eq!(truncate(&path, 1), Err(libc::EROFS), "{name}");
                assert_eq!(truncate(&path, 0), Err(libc::EROFS), "{name}");
                assert_eq!(
                    errno(OpenOptions::new().write(true).truncate(true).open(&path)),
                    Some(libc::EROFS),
                    "{name}"
                );
                assert_eq!(errno(OpenOptions::new().append(true).open(&path)), Some(libc::EROFS), "{name}");
                assert_eq!(fs::read(&path).unwrap(), text, "{name}");
            }
            mount_remount(stand.below(""), MountFlags::empty(), "").unwrap();
        }
    });
}

#[test] // S60
fn a_cut_that_fails_takes_no_set_id_bits_away() {
    in_private_namespace(|| {
        let stand = Stand::new(MANUAL);
        fs::write(stand.path("file"), b"program").unwrap();
        fs::set_permissions(stand.below("file"), PermissionsExt::from_mode(0o6777)).unwrap();
        // The file's data is lost: no open that needs it succeeds.
        for shelf in fs::read_dir(stand.beside("burst-buffer/replicas")).unwrap() {
            for replica in fs::read_dir(shelf.unwrap().path()).unwrap() {
                fs::remove_file(replica.unwrap().path()).unwrap();
            }
        }
        as_user(1234, &[], || {
            assert_eq!(truncate(&stand.path("file"), 1), Err(libc::EIO));
            assert_eq!(errno(OpenOptions::new().write(true).truncate(true).open(stand.path("file"))), Some(libc::EIO));
        });
        assert_eq!(fs::metadata(stand.below("file")).unwrap().mode() & 0o7777, 0o6777);
        fs::remove_file(stand.path("file")).unwrap();
    });
}

#[test] // S6
fn an_allocation_takes_set_id_bits_away_that_came_after_its_open() {
    in_private_namespace(|| {
        for how in [PASSTHROUGH, DIRECT] {
            let stand = Stand::new(how);
            fs::write(stand.path("file"), b"program").unwrap();
            fs::set_permissions(stand.path("file"), PermissionsExt::from_mode(0o777)).unwrap();
            let file = as_user(1234, &[], || OpenOptions::new().write(true).open(stand.path("file")).unwrap());
            fs::set_permissions(stand.path("file"), PermissionsExt::from_mode(0o6777)).unwrap();
            as_user(1234, &[], || rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, 4096).unwrap());
            assert_eq!(fs::metadata(stand.path("file")).unwrap().mode() & 0o7777, 0o777, "{how:?}");
        }
    });
}

#[test] // S1
fn groups_count_as_they_are_at_the_call() {
    in_private_namespace(|| {
        let stand = Stand::new(PASSTHROUGH);
        fs::create_dir(stand.path("team")).unwrap();
        chown(stand.path("team"), None, Some(Gid::from_raw(77))).unwrap();
        fs::set_permissions(stand.path("team"), PermissionsExt::from_mode(0o770)).unwrap();
        in_thread(|who| {
            for turn in 0..3 {
                who.become_user(1234, &[]);
                assert!(File::create(stand.path("team/file")).is_err(), "turn {turn}");
                File::create(stand.path("own")).unwrap();
                who.become_user(1234, &[5, 77]);
                let file = File::create(stand.path("team/file")).unwrap();
                file.write_all_at(b"x", 0).unwrap();
                fs::rename(stand.path("team/file"), stand.path("team/other")).unwrap();
                fs::remove_file(stand.path("team/other")).unwrap();
                fs::remove_file(stand.path("own")).unwrap();
            }
        });
    });
}

#[test] // S1
fn capabilities_count_as_they_are_at_the_call() {
    in_private_namespace(|| {
        let stand = Stand::new(PASSTHROUGH);
        fs::write(stand.path("own"), b"secret").unwrap();
        chown(stand.path("own"), Some(Uid::from_raw(7001)), Some(Gid::from_raw(7001))).unwrap();
        fs::set_permissions(stand.path("own"), PermissionsExt::from_mode(0o600)).unwrap();
        as_user(7002, &[], || assert!(fs::read(stand.path("own")).is_err()));
        as_capable_user(7002, || {
            assert_eq!(fs::read(stand.path("own")).unwrap(), b"secret");
            OpenOptions::new().append(true).open(stand.path("own")).unwrap().write_all(b"!").unwrap();
            fs::set_permissions(stand.path("own"), PermissionsExt::from_mode(0o604)).unwrap();
            chown(stand.path("own"), Some(Uid::from_raw(7002)), None).unwrap();
        });
        let meta = fs::metadata(stand.below("own")).unwrap();
        assert_eq!((meta.uid(), meta.mode() & 0o7777), (7002, 0o604));
        as_user(7001, &[], || {
            assert_eq!(
                errno(chown(stand.path("own"), Some(Uid::from_raw(7001)), None).map_err(Into::into)),
                Some(libc::EPERM)
            )
        });
    });
}

#[test] // S1
fn who_removes_a_directory_removes_no_hidden_file_that_he_could_not() {
    in_private_namespace(|| {
        let stand = Stand::new(PASSTHROUGH);
        let hidden = "above/inner/.forebay-new-0123456789abcdef-0123456789abcdef";
        fs::create_dir_all(stand.below("above/inner")).unwrap();
        chown(stand.below("above"), Some(Uid::from_raw(7002)), None).unwrap();
        chown(stand.below("above/inner"), Some(Uid::from_raw(7001)), None).unwrap();
        fs::write(stand.below(hidden), b"thesis").unwrap();
        as_user(7002, &[], || {
            assert_eq!(errno(fs::remove_dir(stand.path("above/inner"))), Some(libc::ENOTEMPTY));
            fs::create_dir(stand.path("above/other")).unwrap();
            assert_eq!(errno(fs::rename(stand.path("above/other"), stand.path("above/inner"))), Some(libc::ENOTEMPTY));
        });
        assert_eq!(fs::read(stand.below(hidden)).unwrap(), b"thesis");
        // The owner has access and sees an empty directory.
        chown(stand.below("above"), Some(Uid::from_raw(7001)), None).unwrap();
        as_user(7001, &[], || fs::remove_dir(stand.path("above/inner")).unwrap());
    });
}

#[test] // S61
fn flags_of_files_and_directories_are_the_stores() {
    in_private_namespace(|| {
        for how in [MANUAL, How { passthrough: false, ..MANUAL }] {
            let stand = Stand::new(how);
            fs::write(stand.path("file"), b"dirty").unwrap();
            fs::create_dir(stand.path("dir")).unwrap();
            let flags = |path: &Path| ioctl_getflags(File::open(path).unwrap()).unwrap();
            for name in ["file", "dir"] {
                let (path, below) = (stand.path(name), stand.below(name));
                assert_eq!(flags(&path), flags(&below), "{name}");
                set_flags(&path, IFlags::IMMUTABLE);
                assert!(
                    flags(&path).contains(IFlags::IMMUTABLE) && flags(&below).contains(IFlags::IMMUTABLE),
                    "{name}"
                );
            }
            assert_eq!(fs::read(stand.below("file")).unwrap(), b"dirty", "it could not be staged out any more");
            assert_eq!(errno(File::create(stand.path("dir/new"))), Some(libc::EPERM));
            ["file", "dir"].iter().for_each(|name| set_flags(&stand.path(name), IFlags::empty()));
            File::create(stand.path("dir/new")).unwrap();
            // The directory's own owner may, and nobody else.
            chown(stand.path("file"), Some(Uid::from_raw(1234)), None).unwrap();
            let no_dump = |id: u32| {
                as_user(id, &[], || {
                    let file = File::open(stand.path("file")).unwrap();
                    ioctl_setflags(&file, ioctl_getflags(&file).unwrap() | IFlags::NODUMP)
                })
            };
            assert!(no_dump(1235).is_err());
            no_dump(1234).unwrap();
            assert!(flags(&stand.below("file")).contains(IFlags::NODUMP));
        }
    });
}

#[test] // S61
fn what_the_kernel_asks_no_fuse_server_is_refused_in_its_words() {
    in_private_namespace(|| {
        let stand = Stand::new(PASSTHROUGH);
        fs::write(stand.path("file"), b"x").unwrap();
        let file = File::open(stand.path("file")).unwrap();
        let other = File::create(stand.path("other")).unwrap();
        // `FS_IOC_FIEMAP` of no extents, and a clone of a range.
        let mut fiemap = [0u64; 4];
        // SAFETY: the kernel reads and writes a header of 32 bytes.
        let asked = unsafe { libc::ioctl(file.as_raw_fd(), 0xc020_660b, fiemap.as_mut_ptr()) };
        assert_eq!((asked, std::io::Error::last_os_error().raw_os_error()), (-1, Some(libc::EOPNOTSUPP)));
        assert!(rustix::fs::ioctl_ficlone(&other, &file).is_err());
        let (mut handle, mut mount) = ([0u32; 34], 0);
        handle[0] = 128;
        let path = CString::new(stand.path("file").as_os_str().as_bytes()).unwrap();
        // SAFETY: a handle with room for 128 bytes, as it says, and a C string that lives through the call.
        let named = unsafe {
            libc::syscall(
                libc::SYS_name_to_handle_at,
                libc::AT_FDCWD,
                path.as_ptr(),
                handle.as_mut_ptr(),
                &raw mut mount,
                0,
            )
        };
        // Kernels before 6.9 cannot be told to give no handles.
        if named == -1 || kernel_has((6, 9), "giving no handles") {
            assert_eq!((named, std::io::Error::last_os_error().raw_os_error()), (-1, Some(libc::EOPNOTSUPP)));
        }
        // An ioctl that only some store knows.
        // SAFETY: no memory is read or written before it is known.
        let asked = unsafe { libc::ioctl(file.as_raw_fd(), 0x4008_669a, std::ptr::null::<u8>()) };
        assert_eq!(asked, -1);
    });
}
