//! Basic operations on files: write, read, map, execute, truncate, append, copy.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::process::Command;

use testkit::in_private_namespace;

use crate::stand::{DIRECT, How, PASSTHROUGH, Stand, proc_path};

const WAYS: [How; 2] = [PASSTHROUGH, DIRECT];

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 251) as u8).collect()
}

#[test]
fn what_is_written_is_read_back_renamed_and_removed() {
    in_private_namespace(|| {
        for how in WAYS {
            let stand = Stand::new(how);
            let data = pattern(3 << 20);
            fs::create_dir(stand.path("dir")).unwrap();
            fs::write(stand.path("dir/a"), &data).unwrap();
            assert_eq!(fs::read(stand.path("dir/a")).unwrap(), data);
            fs::rename(stand.path("dir/a"), stand.path("b")).unwrap();
            assert_eq!(fs::read(stand.path("b")).unwrap(), data);
            assert!(!stand.path("dir/a").exists() && stand.below("b").exists());
            fs::remove_file(stand.path("b")).unwrap();
            fs::remove_dir(stand.path("dir")).unwrap();
            assert_eq!(fs::read_dir(stand.below("")).unwrap().count(), 0);
        }
    });
}

#[test]
fn what_lies_below_is_read_and_what_is_written_arrives_below() {
    in_private_namespace(|| {
        let data = pattern(5 << 20);
        for how in WAYS {
            let stand = Stand::new(how);
            fs::write(stand.below("old"), &data).unwrap();
            assert_eq!(fs::read(stand.path("old")).unwrap(), data);
            let mut file = OpenOptions::new().write(true).open(stand.path("old")).unwrap();
            file.write_all(b"changed").unwrap();
            file.sync_all().unwrap();
            drop(file);
            let mut expected = data.clone();
            expected[..7].copy_from_slice(b"changed");
            assert_eq!(fs::read(stand.path("old")).unwrap(), expected);
            testkit::wait_until("the stage-out", testkit::PATIENCE, || {
                fs::read(stand.below("old")).unwrap() == expected
            });
        }
    });
}

#[test] // S8
fn a_mapping_stores_into_the_file() {
    in_private_namespace(|| {
        for how in WAYS {
            let stand = Stand::new(how);
            fs::write(stand.path("file"), pattern(8192)).unwrap();
            let file = OpenOptions::new().read(true).write(true).open(stand.path("file")).unwrap();
            let (protection, fd) = (libc::PROT_READ | libc::PROT_WRITE, file.as_raw_fd());
            // SAFETY: a new mapping of 8192 bytes of an open file, accessed within its bounds and unmapped once.
            unsafe {
                let at = libc::mmap(std::ptr::null_mut(), 8192, protection, libc::MAP_SHARED, fd, 0);
                assert_ne!(at, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
                assert_eq!(*at.cast::<u8>().add(100), pattern(8192)[100]);
                *at.cast::<u8>().add(100) = 0xee;
                assert_eq!(libc::msync(at, 8192, libc::MS_SYNC), 0);
                libc::munmap(at, 8192);
            }
            drop(file);
            assert_eq!(fs::read(stand.path("file")).unwrap()[100], 0xee);
        }
    });
}

#[test] // S9
fn a_program_is_executed_from_the_mount() {
    in_private_namespace(|| {
        for how in WAYS {
            let stand = Stand::new(how);
            fs::copy("/bin/true", stand.path("true")).unwrap();
            assert!(Command::new(stand.path("true")).status().unwrap().success());
            fs::write(stand.path("script"), "#!/bin/sh\nexit 7\n").unwrap();
            fs::set_permissions(stand.path("script"), PermissionsExt::from_mode(0o755)).unwrap();
            assert_eq!(Command::new(stand.path("script")).status().unwrap().code(), Some(7));
        }
    });
}

#[test]
fn a_running_program_is_not_truncated() {
    in_private_namespace(|| {
        for how in WAYS {
            let stand = Stand::new(how);
            fs::copy("/bin/sleep", stand.path("sleep")).unwrap();
            let mut running = Command::new(stand.path("sleep")).arg("100").spawn().unwrap();
            for flags in [libc::O_RDONLY | libc::O_TRUNC, libc::O_WRONLY | libc::O_TRUNC, libc::O_RDWR] {
                let refused = rustix::fs::open(
                    stand.path("sleep"),
                    rustix::fs::OFlags::from_bits_retain(flags as u32),
                    rustix::fs::Mode::empty(),
                );
                assert_eq!(refused.err(), Some(rustix::io::Errno::TXTBSY), "flags {flags:o}");
            }
            assert!(running.try_wait().unwrap().is_none(), "it still runs");
            running.kill().unwrap();
            running.wait().unwrap();
            assert!(fs::read(stand.path("sleep")).unwrap() == fs::read("/bin/sleep").unwrap(), "it is whole");
        }
    });
}

#[test]
fn truncation_by_open_path_and_descriptor_cuts_and_extends() {
    in_private_namespace(|| {
        for how in WAYS {
            let stand = Stand::new(how);
            let path = stand.path("file");
            fs::write(&path, pattern(10_000)).unwrap();
            File::create(&path).unwrap();
            assert_eq!(fs::metadata(&path).unwrap().len(), 0);
            fs::write(&path, pattern(10_000)).unwrap();
            let c_path = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
            // SAFETY: a C string that lives through the call.
            assert_eq!(unsafe { libc::truncate(c_path.as_ptr(), 100) }, 0);
            assert_eq!(fs::read(&path).unwrap(), pattern(10_000)[..100]);
            let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
            let before = file.metadata().unwrap();
            file.set_len(5000).unwrap();
            let after = file.metadata().unwrap();
            assert_eq!(after.len(), 5000);
            assert!((after.ctime(), after.ctime_nsec()) >= (before.ctime(), before.ctime_nsec()));
            let mut tail = [1u8; 4900];
            file.read_exact_at(&mut tail, 100).unwrap();
            assert!(tail.iter().all(|&byte| byte == 0));
        }
    });
}

#[test] // S10
fn truncation_under_an_open_writer_is_seen_by_it() {
    in_private_namespace(|| {
        for how in WAYS {
            let stand = Stand::new(how);
            let mut first =
                OpenOptions::new().read(true).write(true).create(true).truncate(true).open(stand.path("f")).unwrap();
            first.write_all(&pattern(9000)).unwrap();
            let second = File::create(stand.path("f")).unwrap();
            assert_eq!(first.metadata().unwrap().len(), 0);
            second.write_all_at(b"new", 0).unwrap();
            first.seek(SeekFrom::Start(0)).unwrap();
            let mut text = String::new();
            first.read_to_string(&mut text).unwrap();
            assert_eq!(text, "new");
        }
    });
}

#[test] // S11
fn appends_of_two_descriptors_never_overlap() {
    in_private_namespace(|| {
        for how in WAYS {
            let stand = Stand::new(how);
            let open = || OpenOptions::new().append(true).create(true).open(stand.path("log")).unwrap();
            let mut both = [open(), open()];
            for round in 0..50 {
                // Writes of 4096 bytes, so that appends also begin at block boundaries.
                both[round % 2].write_all(&[round as u8; 4096]).unwrap();
            }
            let all = fs::read(stand.path("log")).unwrap();
            assert_eq!(all.len(), 50 * 4096);
            assert!(all.chunks(4096).enumerate().all(|(round, block)| block.iter().all(|&byte| byte == round as u8)));
        }
    });
}

#[test] // S4
fn an_unlinked_open_file_goes_on() {
    in_private_namespace(|| {
        for how in WAYS {
            let stand = Stand::new(how);
            let file = File::options().read(true).write(true).create_new(true).open(stand.path("file")).unwrap();
            file.write_all_at(b"before", 0).unwrap();
            fs::remove_file(stand.path("file")).unwrap();
            file.write_all_at(b"after!", 6).unwrap();
            let stat = file.metadata().unwrap();
            assert_eq!((stat.nlink(), stat.len()), (0, 12));
            let mut text = [0; 12];
            file.read_exact_at(&mut text, 0).unwrap();
            assert_eq!(&text, b"beforeafter!");
            file.set_permissions(PermissionsExt::from_mode(0o600)).unwrap();
            file.sync_all().unwrap();
        }
    });
}

#[test]
fn a_file_without_a_name_gets_one_by_link() {
    in_private_namespace(|| {
        for how in WAYS {
            let stand = Stand::new(how);
            let open = || File::options().read(true).write(true).custom_flags(libc::O_TMPFILE).open(stand.path(""));
            drop(open().unwrap());
            let file = open().unwrap();
            file.write_all_at(b"content", 0).unwrap();
            rustix::fs::linkat(
                rustix::fs::CWD,
                proc_path(&file),
                rustix::fs::CWD,
                stand.path("named"),
                rustix::fs::AtFlags::SYMLINK_FOLLOW,
            )
            .unwrap();
            drop(file);
            assert_eq!(fs::read(stand.path("named")).unwrap(), b"content");
            assert_eq!(fs::metadata(stand.path("named")).unwrap().nlink(), 1);
        }
    });
}

#[test] // S10
fn holes_allocation_and_seeking_are_those_of_a_file() {
    in_private_namespace(|| {
        use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};
        for how in WAYS {
            let stand = Stand::new(how);
            let file = File::options().read(true).write(true).create_new(true).open(stand.path("sparse")).unwrap();
            file.write_all_at(&[1; 4096], 1 << 20).unwrap();
            assert_eq!(seek(&file, SeekFrom::Data(0)).unwrap(), 1 << 20);
            assert_eq!(seek(&file, SeekFrom::Hole(1 << 20)).unwrap(), (1 << 20) + 4096);
            assert_eq!(seek(&file, SeekFrom::Data((1 << 20) + 4096)), Err(rustix::io::Errno::NXIO));
            assert!(file.metadata().unwrap().blocks() * 512 < 1 << 20);
            fallocate(&file, FallocateFlags::empty(), 0, 2 << 20).unwrap();
            assert_eq!(file.metadata().unwrap().len(), 2 << 20);
            fallocate(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 1 << 20, 4096).unwrap();
            let mut block = [9; 4096];
            file.read_exact_at(&mut block, 1 << 20).unwrap();
            assert_eq!(block, [0; 4096]);
            assert!(fallocate(&file, FallocateFlags::KEEP_SIZE, 0, 0).is_err());
            assert!(fallocate(&file, FallocateFlags::empty(), i64::MAX as u64 - 4096, 8192).is_err());
            fallocate(&file, FallocateFlags::KEEP_SIZE, 3 << 20, 4096).unwrap();
            assert_eq!(file.metadata().unwrap().len(), 2 << 20);
        }
    });
}

#[test] // S9
fn copies_in_the_kernel_and_by_range_are_whole() {
    in_private_namespace(|| {
        for how in WAYS {
            let stand = Stand::new(how);
            let data = pattern((9 << 20) + 17);
            fs::write(stand.path("source"), &data).unwrap();
            // std's copy uses copy_file_range and sendfile.
            assert_eq!(fs::copy(stand.path("source"), stand.path("target")).unwrap(), data.len() as u64);
            assert_eq!(fs::read(stand.path("target")).unwrap(), data);
        }
    });
}

#[test] // S3
fn times_set_by_the_program_stay() {
    in_private_namespace(|| {
        for how in WAYS {
            let stand = Stand::new(how);
            let file = File::create(stand.path("file")).unwrap();
            (&file).write_all(b"x").unwrap();
            let then = std::time::UNIX_EPOCH + std::time::Duration::new(1_000_000_000, 123_456_789);
            file.set_modified(then).unwrap();
            assert_eq!(file.metadata().unwrap().modified().unwrap(), then);
            drop(file);
            testkit::wait_until("the stage-out", testkit::PATIENCE, || fs::read(stand.below("file")).unwrap() == b"x");
            assert_eq!(fs::metadata(stand.path("file")).unwrap().modified().unwrap(), then);
        }
    });
}

#[test]
fn the_mount_tells_the_space_of_the_store_below() {
    in_private_namespace(|| {
        let stand = Stand::new(PASSTHROUGH);
        let (above, below) =
            (rustix::fs::statvfs(stand.path("")).unwrap(), rustix::fs::statvfs(stand.below("")).unwrap());
        assert_eq!((above.f_blocks, above.f_files), (below.f_blocks, below.f_files));
    });
}

#[test]
fn writes_past_the_largest_offset_are_refused_and_not_wrapped() {
    in_private_namespace(|| {
        for how in WAYS {
            let stand = Stand::new(how);
            let file = File::create(stand.path("file")).unwrap();
            assert!(file.write_at(b"x", i64::MAX as u64).is_err());
            assert!(rustix::io::pwrite(file.as_fd(), b"abc", u64::MAX - 1).is_err());
            assert_eq!(file.metadata().unwrap().len(), 0);
            assert!(file.as_raw_fd() >= 0);
        }
    });
}

#[test]
fn changes_of_time_and_size_move_ctime() {
    in_private_namespace(|| {
        for how in WAYS {
            let stand = Stand::new(how);
            let file = File::create(stand.path("file")).unwrap();
            (&file).write_all(b"content").unwrap();
            let ctime = || {
                let stat = file.metadata().unwrap();
                (stat.ctime(), stat.ctime_nsec())
            };
            // Repeated, since two changes within one tick of the store's clock have the same time.
            let moves = |what: &str, change: &dyn Fn()| {
                let before = ctime();
                testkit::wait_until(what, testkit::PATIENCE, || {
                    change();
                    ctime() > before
                });
            };
            moves("futimens", &|| file.set_modified(std::time::UNIX_EPOCH).unwrap());
            moves("ftruncate", &|| file.set_len(3).unwrap());
            moves("fchmod", &|| file.set_permissions(PermissionsExt::from_mode(0o640)).unwrap());
        }
    });
}

#[test]
fn bytes_spliced_through_a_pipe_arrive_even_when_it_runs_short() {
    in_private_namespace(|| {
        for how in WAYS {
            let stand = Stand::new(how);
            let data = pattern(300_000);
            fs::write(stand.path("source"), &data).unwrap();
            let (source, target) =
                (File::open(stand.path("source")).unwrap(), File::create(stand.path("target")).unwrap());
            let (read, write) = rustix::pipe::pipe().unwrap();
            let splice = |from: std::os::fd::BorrowedFd<'_>, to: std::os::fd::BorrowedFd<'_>, len: usize| {
                rustix::pipe::splice(from, None, to, None, len, rustix::pipe::SpliceFlags::empty()).unwrap()
            };
            let mut left = data.len();
            while left > 0 {
                let mut inside = splice(source.as_fd(), write.as_fd(), 50_001);
                left -= inside;
                while inside > 0 {
                    inside -= splice(read.as_fd(), target.as_fd(), inside.min(7777));
                }
            }
            assert_eq!(fs::read(stand.path("target")).unwrap(), data);
        }
    });
}

#[test] // S15
fn a_write_that_asks_to_be_durable_is_so_whoever_carries_it() {
    in_private_namespace(|| {
        // Here "durable" means in the global store, where the test can see it.
        let stand = Stand::new(How { rule: Some("fsync=global"), ..DIRECT });
        let below = |text: &[u8]| fs::read(stand.below("file")).unwrap() == text;
        let mut file = OpenOptions::new().write(true).create_new(true).open(stand.path("file")).unwrap();
        file.write_all(b"one").unwrap();
        assert!(!below(b"one"), "an ordinary write stays in the burst buffer while the file is open");
        let part = libc::iovec { iov_base: b"two".as_ptr().cast_mut().cast(), iov_len: 3 };
        // SAFETY: one vector over three bytes that live through the call and are only read.
        let written = unsafe { libc::pwritev2(file.as_raw_fd(), &raw const part, 1, 0, libc::RWF_DSYNC) };
        assert_eq!(written, 3, "{}", std::io::Error::last_os_error());
        assert!(below(b"two"), "RWF_DSYNC");
        drop(file);
        let mut options = OpenOptions::new();
        let file = options.write(true).custom_flags(libc::O_DSYNC).open(stand.path("file")).unwrap();
        file.write_all_at(b"six", 0).unwrap();
        assert!(below(b"six"), "O_DSYNC");
    });
}
