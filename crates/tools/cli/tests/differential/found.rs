//! Failures that stories have found, each in its shortest form.

use testkit::in_private_namespace;

use crate::mounted::Place;
use crate::op::{Op, PATHS};
use crate::{DEFAULT, Setting, attempt};

/// Returns the number of a path in [`PATHS`].
fn at(path: &str) -> u8 {
    PATHS.iter().position(|known| *known == path).expect("a path of stories") as u8
}

fn open(slot: u8, path: &str, flags: i32) -> Op {
    Op::Open { slot, path: at(path), flags: flags as u32 }
}

#[track_caller]
fn agrees(setting: Setting, ops: &[Op]) {
    attempt(setting, ops).unwrap_or_else(|why| panic!("{why}"));
}

#[test]
fn a_mount_may_follow_an_unmount_at_once() {
    in_private_namespace(|| {
        let place = Place::new();
        for round in 0..8 {
            let agent = place.mount(&[]);
            std::fs::write(place.dir.join("file"), round.to_string()).unwrap();
            agent.unmount().unwrap_or_else(|why| panic!("round {round}: {why}"));
        }
        place.check().unwrap();
    });
}

#[test] // S3
fn a_time_set_on_a_file_without_a_name_is_told() {
    in_private_namespace(|| {
        let ops = [
            open(0, "big", libc::O_RDONLY),
            Op::Unlink { path: at("big") },
            Op::Futimens { slot: 0, seconds: Some(288_639_000) },
            Op::Reopen { slot: 1, from: 0, flags: libc::O_WRONLY as u32 },
            Op::Fstat { slot: 0 },
        ];
        agrees(DEFAULT, &ops);
    });
}

#[test]
fn room_and_zeros_are_made_in_a_file_that_is_not_cached() {
    in_private_namespace(|| {
        let fallocate = |mode, at, len| Op::Fallocate { slot: 0, mode, at, len };
        let ops = [
            open(0, "x1", libc::O_RDWR),
            fallocate(libc::FALLOC_FL_KEEP_SIZE as u32, 340, 2 << 20),
            fallocate(libc::FALLOC_FL_ZERO_RANGE as u32, 43_111, 8694),
            fallocate(0, 1 << 20, 5000),
            Op::Fstat { slot: 0 },
            Op::ReadFile { path: at("x1") },
        ];
        agrees(Setting { rules: &["cache=through"], ..DEFAULT }, &ops);
        agrees(Setting { rules: &["cache=preload"], ..DEFAULT }, &ops);
    });
}

#[test]
fn a_change_by_one_name_shows_by_the_other() {
    in_private_namespace(|| {
        // Written by one name and read by the other, the file gets two nodes in the kernel.
        let ops = [
            open(0, "b/x0", libc::O_WRONLY),
            Op::Close { slot: 0 },
            Op::ReadFile { path: at("x0") },
            Op::Chown { path: at("x0"), uid: 1 },
            Op::Lstat { path: at("b/x0") },
            open(0, "b/x0", libc::O_WRONLY | libc::O_APPEND),
            Op::Write { slot: 0, len: 8532, seed: 7 },
            open(1, "x0", libc::O_RDWR),
            Op::Fstat { slot: 1 },
            Op::Lstat { path: at("x0") },
        ];
        agrees(Setting { rules: &["cache=preload"], ..DEFAULT }, &ops);
    });
}
