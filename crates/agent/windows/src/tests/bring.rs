//! Tests of applying records to a replica.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;

use window::memory::Heap;
use window::ring::Writer;
use window::sequence::Sequence;
use window::{Memory, sequence};

use super::recorder::{Event, drain_on, drain_to, ring};
use super::*;
use crate::budget::WindowBudget;

#[test] // S39
fn writes_that_overlap_in_rings_that_wrap_come_out_of_them_in_their_order() {
    let capacities = [64u64 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 64 << 10, 64 << 10, 1 << 20];
    for (seed, capacity) in capacities.into_iter().enumerate() {
        let tree = tempfile::tempdir().unwrap();
        let (mut drain, recorder) = drain_to(tree.path(), WindowMedium::Volatile, seed > 4);
        // One ring, and one of twice its size by another program on the same file.
        let writers = [ring(&mut drain, 1, capacity), ring(&mut drain, 2, 2 * capacity)];
        let fails = seed % 2 == 1;
        *recorder.fails.lock() = fails.then_some(Random(seed as u64));
        let mut random = Random(seed as u64 + 1);
        // First come more small records in a row than the system takes in one call.
        let (mut model, mut written, mut at) = (random.bytes(30_000), 0, 0);
        for (number, bytes) in model.chunks(10).enumerate() {
            let mut drains = || drain.take() && drain.batch(true, None).unwrap();
            writers[0].append(number as u64 * 10, bytes, &mut drains).unwrap();
        }
        while written < 12 * capacity {
            let longest = [100, 5_000, capacity / 4, capacity / 4][random.below(4) as usize];
            let len = 1 + random.below(longest);
            if random.below(3) == 0 || at > 6 * capacity {
                at = random.below(6 * capacity);
            }
            let bytes = random.bytes(len as usize);
            writers[random.below(2) as usize]
                .append(at, &bytes, &mut || {
                    drain.take();
                    drain.batch(true, None).unwrap()
                })
                .unwrap();
            model.resize(model.len().max((at + len) as usize), 0);
            model[at as usize..(at + len) as usize].copy_from_slice(&bytes);
            (written, at) = (written + len, at + len);
            if random.below(20) == 0 {
                drain.take();
                drain.batch(random.below(2) == 0, None).unwrap();
            }
        }
        drain.apply().unwrap();
        assert!(std::fs::read(tree.path().join("replica")).unwrap() == model, "seed {seed}, {capacity} bytes");
        let copied = recorder.events.lock().iter().filter(|event| matches!(event, Event::Copied(_))).count();
        assert_eq!(copied > 0, fails, "seed {seed}: {copied} were copied");
    }
}

#[test] // S39
fn a_ring_that_is_cut_while_it_is_drained_loses_what_was_cut_off_and_that_is_noted() {
    // At page boundaries, within pages, and between the first and the second record.
    let cuts = [0, 100, 4096, 44_160, 50_000, 65_536, 90_112];
    let ways = |cut| [(cut, true, false), (cut, false, false), (cut, true, true), (cut, false, true)];
    for (cut, taken, remote) in cuts.into_iter().flat_map(ways) {
        let tree = tempfile::tempdir().unwrap();
        let (mut drain, recorder) = drain_to(tree.path(), WindowMedium::Volatile, remote);
        recorder.replica.write_all_at(&[9; 200_000], 0).unwrap();
        let (bad, good) = (ring(&mut drain, 1, 256 << 10), ring(&mut drain, 2, 256 << 10));
        for number in 1..=3u8 {
            bad.append(u64::from(number - 1) * 40_000, &[number; 40_000], &mut || false).unwrap();
        }
        good.append(120_000, &[4; 40_000], &mut || false).unwrap();
        if taken {
            drain.take();
        }
        OpenOptions::new().write(true).open(drain.place().ring(0)).unwrap().set_len(cut).unwrap();
        std::mem::forget(bad); // the memory is gone
        assert_eq!(taken, drain.batch(true, None).unwrap(), "there is an end");
        drain.apply().unwrap();
        assert!(drain.damages() > 0, "cut to {cut}, taken {taken}");
        assert_eq!(drain.windows(), 1, "that of the other program goes on");
        good.append(160_000, &[5; 40_000], &mut || false).unwrap();
        drain.apply().unwrap();
        let replica = std::fs::read(tree.path().join("replica")).unwrap();
        for (number, part) in (1..).zip(replica.chunks(40_000)) {
            let lost = number < 4;
            let left = part.iter().filter(|byte| u64::from(**byte) != number).count();
            assert!(part.iter().all(|byte| [9, number].contains(&(*byte).into())), "cut to {cut}: part {number}");
            assert!(lost || left == 0, "cut to {cut}: {left} bytes of part {number} are not there");
        }
    }
}

#[test] // S39
fn a_program_that_publishes_for_ever_keeps_nobody_waiting() {
    const HEAD: usize = 128;
    for _ in 0..10 {
        let tree = tempfile::tempdir().unwrap();
        let (mut drain, _) = drain_on(tree.path(), WindowMedium::Volatile);
        let granted = drain.add(1, WindowBudget::new(1 << 20).take(64 << 10).unwrap()).unwrap();
        // The program publishes the first sequence number again and again, which can always be applied, and sometimes a
        // number that never comes.
        let counter = Arc::new(Heap::zeroed(sequence::WORD_BYTES));
        let memory = Arc::clone(&granted.ring);
        let writer =
            Writer::new(granted.ring, granted.id, granted.capacity, Sequence::new(Arc::clone(&counter))).unwrap();
        memory.word(HEAD).store(u64::MAX, Relaxed);
        let program = std::thread::spawn(move || {
            let mut head = 0;
            for number in 0.. {
                counter.word(0).store(if number % 100 == 7 { 1 << 40 } else { 0 }, Relaxed);
                memory.word(HEAD).store(head, Relaxed);
                if writer.append(0, &[1; 100], &mut || true).is_err() {
                    break;
                }
                head = memory.word(HEAD).load(Relaxed);
                memory.word(HEAD).store(u64::MAX, Relaxed);
            }
        });
        let (told, tells) = std::sync::mpsc::channel();
        let settles = std::thread::spawn(move || {
            while drain.windows() > 0 {
                told.send(drain.apply().is_ok()).unwrap();
            }
        });
        tells.recv_timeout(PATIENCE).expect("an end");
        settles.join().unwrap();
        program.join().unwrap();
    }
}
