//! Data of a delegated tree's files, with many threads at once.

mod support;

use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use data_store::{OpenHow, WriteWhere};
use delegation::DataPlace;
use support::{Bed, MemoryFile, content_of, reading, writing};
use testkit::Random;

/// Bytes that say whose they are.
fn bytes_of(owner: u64, length: usize) -> Vec<u8> {
    owner.to_le_bytes().iter().copied().cycle().take(length).collect()
}

/// Panics if the bytes are not a file's own, or holes of its own.
fn assert_own(owner: u64, bytes: &[u8]) {
    let own = bytes_of(owner, bytes.len());
    assert!(bytes.iter().zip(&own).all(|(byte, own)| byte == own || *byte == 0), "bytes of another file");
}

#[test]
fn no_file_ever_shows_bytes_of_another_one_while_files_come_and_go_on_all_threads() {
    all_come_and_go(&Arc::new(Bed::new()));
}

#[test] // S71
fn no_file_shows_bytes_of_another_one_while_all_are_packed_as_they_come_and_go() {
    let bed = Arc::new(Bed::new());
    let is_over = Arc::new(AtomicBool::new(false));
    let packer = {
        let (bed, is_over) = (Arc::clone(&bed), Arc::clone(&is_over));
        std::thread::spawn(move || {
            let mut packed = 0;
            while !is_over.load(Ordering::Acquire) {
                packed += bed.files.pack(256 << 10, 64).unwrap().packed;
                bed.files.sync_pack().unwrap();
                bed.sync_names();
                bed.files.tidy_pack().unwrap();
            }
            packed
        })
    };
    all_come_and_go(&bed);
    is_over.store(true, Ordering::Release);
    assert!(packer.join().unwrap() > 0);
}

fn all_come_and_go(bed: &Arc<Bed>) {
    let threads: Vec<_> = (0..6u64)
        .map(|thread| {
            let bed = Arc::clone(bed);
            std::thread::spawn(move || {
                let mut random = Random(thread + 1);
                for round in 0..300 {
                    come_and_go(&bed, &mut random, thread << 32 | round | 1 << 60);
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    bed.files.settle_all().unwrap();
    bed.tree.assert_invariants();
    let usage = bed.files.usage();
    assert_eq!((usage.files, usage.open, usage.handles), (0, 0, 0));
}

/// One file is made, written past the agent or through it, read, copied, perhaps left mapped, and removed while it may be open.
fn come_and_go(bed: &Bed, random: &mut Random, owner: u64) {
    let name = owner.to_string();
    let (inode, number, data) = bed.create(&name);
    assert_eq!(content_of(&*data), b"");
    let bytes = bytes_of(owner, 8 * (1 + random.below(1000) as usize));
    let passthrough = data.passthrough().unwrap();
    let mut mapping = None;
    if random.below(2) == 0 {
        assert!(passthrough.begin());
        let backing = passthrough.backing().unwrap();
        let path = format!("/proc/self/fd/{}", backing.as_raw_fd());
        let file = std::fs::File::options().read(true).write(true).open(path);
        let file = mapping.insert(file.unwrap());
        file.write_all_at(&bytes, 0).unwrap();
    } else {
        data.write_at(&bytes, WriteWhere::At(0)).unwrap();
    }
    if random.below(2) == 0 {
        drop(data);
        assert_eq!(bed.stat(&inode).size, bytes.len() as u64);
        let into = MemoryFile::default();
        bed.files.contents().write(number, DataPlace::None, &into).unwrap();
        assert_eq!(*into.bytes.lock().unwrap(), bytes);
    }
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for how in [reading(), writing(), OpenHow { truncate: true, ..writing() }] {
                // The file may be gone, and its data with it.
                let Ok(data) = bed.files.open_data(number, &how, &|| false) else { continue };
                assert_own(owner, &content_of(&*data));
                if how.write {
                    data.write_at(&bytes, WriteWhere::At(0)).unwrap();
                    assert_own(owner, &content_of(&*data));
                }
            }
        });
        if random.below(2) == 0 {
            mapping.take();
        }
        bed.remove(&name, number);
    });
    if let Some(file) = mapping {
        let mut there = vec![0; bytes.len()];
        let read = file.read_at(&mut there, 0).unwrap();
        assert_own(owner, &there[..read]);
    }
}
