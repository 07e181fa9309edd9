//! The ring as programs and agent use it, over mapped files, and with threads.

mod common;

use std::io::IoSlice;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use common::{COUNTER, Drain, FILE, grant, ring_bytes};
use testkit::Random;
use window::ring::{AppendRefused, Backpressure, RingItem, RingReader, Stop, Writer};
use window::sequence::Sequence;
use window::{Mapping, WindowMedium};

const CAPACITY: u64 = 64 << 10;

fn map(dir: &Path, name: &str) -> Arc<Mapping> {
    Arc::new(Mapping::open(&dir.join(name), WindowMedium::Volatile).unwrap())
}

/// Makes a directory with `rings` rings of one file, and their agent.
fn agent(rings: usize) -> (tempfile::TempDir, Drain<Arc<Mapping>>) {
    let dir = tempfile::tempdir().unwrap();
    let create =
        |name: &str, len| Arc::new(Mapping::create(&dir.path().join(name), len, WindowMedium::Volatile).unwrap());
    let readers = (0..rings)
        .map(|ring| RingReader::create(create(&format!("{ring}"), ring_bytes(CAPACITY)), grant(ring as u128, CAPACITY)))
        .collect::<Result<Vec<_>, _>>()
        .unwrap();
    let drain = Drain::new(readers, Arc::new(create("sequence", COUNTER)), create("drained", COUNTER));
    (dir, drain)
}

fn program(dir: &Path, ring: usize) -> Writer<Arc<Mapping>, Arc<Mapping>> {
    let sequence = Sequence::new(map(dir, "sequence"));
    Writer::new(map(dir, &ring.to_string()), grant(ring as u128, CAPACITY).ring, CAPACITY, sequence).unwrap()
}

#[test]
fn an_appended_write_is_taken_drained_and_its_room_given_back() {
    let (dir, mut agent) = agent(1);
    let program = program(dir.path(), 0);
    program.append(100, b"one write", &mut || false).unwrap();
    program.append(104, b"over it", &mut || false).unwrap();
    assert_eq!(agent.take(0), Stop::Unpublished);
    let mut file = [0; 120];
    let mut apply = |offset, bytes: &[u8]| file[offset as usize..offset as usize + bytes.len()].copy_from_slice(bytes);
    assert!(!agent.batch(false, &mut apply), "too little to hurry");
    assert!(agent.batch(true, &mut apply));
    assert_eq!(&file[100..111], b"one over it");
    assert_eq!((agent.readers[0].used(), agent.readers[0].held()), (0, 0));
}

/// Allocating new memory takes longer than filling it.
#[test]
fn neither_the_beginning_nor_the_end_of_a_ring_touches_memory_that_nobody_used() {
    use std::os::unix::fs::MetadataExt;
    const CAPACITY: u64 = 16 << 20;
    let file = tempfile::tempfile_in("/dev/shm").unwrap();
    file.set_len(ring_bytes(CAPACITY) as u64).unwrap();
    let map = |file: &std::fs::File| Arc::new(Mapping::of(file.try_clone().unwrap(), WindowMedium::Volatile).unwrap());
    let mut reader = RingReader::create(map(&file), grant(1, CAPACITY)).unwrap();
    let counter = tempfile::tempfile_in("/dev/shm").unwrap();
    counter.set_len(COUNTER as u64).unwrap();
    let program = Writer::new(map(&file), grant(1, CAPACITY).ring, CAPACITY, Sequence::new(map(&counter))).unwrap();
    for number in 0..3_u64 {
        program.append(number, &[7; 5000], &mut || false).unwrap();
    }
    let mut found = 0;
    reader.take_rest(&mut |one| found += usize::from(matches!(one, RingItem::Record(_))));
    assert_eq!((found, program.append(0, b"late", &mut || false)), (3, Err(AppendRefused::Revoked)));
    let touched = file.metadata().unwrap().blocks() * 512;
    assert!(touched <= 64 << 10, "{touched} bytes");
}

/// Pieces of the checksum, buffers of the program and the ring's end are misaligned in every way.
#[test]
fn a_write_of_many_buffers_is_one_record_wherever_it_lies_in_the_ring() {
    const CAPACITY: u64 = 256 << 10;
    let dir = tempfile::tempdir().unwrap();
    let create =
        |name: &str, len| Arc::new(Mapping::create(&dir.path().join(name), len, WindowMedium::Volatile).unwrap());
    let (ring, counter) = (create("ring", ring_bytes(CAPACITY)), create("sequence", COUNTER));
    let mut reader = RingReader::create(ring.clone(), grant(1, CAPACITY)).unwrap();
    let program = Writer::new(ring, grant(1, CAPACITY).ring, CAPACITY, Sequence::new(counter)).unwrap();
    let mut random = Random(7);
    let all = random.bytes(FILE);
    for _ in 0..200 {
        let length = random.below(FILE as u64 - 1) as usize + 1;
        let mut cuts: Vec<usize> = (0..random.below(6)).map(|_| random.below(length as u64 + 1) as usize).collect();
        cuts.extend([0, length]);
        cuts.sort_unstable();
        let parts: Vec<_> = cuts.windows(2).map(|cut| IoSlice::new(&all[cut[0]..cut[1]])).collect();
        program.append_parts(0, &parts, &mut || false).unwrap();
        let mut taken = None;
        reader.take(&mut |found| taken = Some(found));
        let Some(RingItem::Record(record)) = taken else { panic!("{length} bytes cut at {cuts:?}: {taken:?}") };
        let mut bytes = vec![0; length];
        assert!(reader.copy(&record, 0, &mut bytes));
        assert!(bytes == all[..length], "{length} bytes cut at {cuts:?}");
        reader.release(record.end);
    }
}

#[test]
fn sizes_that_no_record_can_have_are_refused_and_leave_no_trace() {
    let (dir, agent) = agent(1);
    let program = program(dir.path(), 0);
    let long = vec![0; program.payload_max() as usize + 1];
    assert_eq!(program.append(0, &long, &mut || false), Err(AppendRefused::Size));
    assert_eq!(program.append(i64::MAX as u64, b"x", &mut || false), Err(AppendRefused::Size));
    assert_eq!(program.append(u64::MAX, b"x", &mut || false), Err(AppendRefused::Size));
    assert_eq!(program.append(0, b"", &mut || false), Ok(()));
    assert_eq!(agent.readers[0].used(), 0);
}

#[test]
fn a_full_ring_waits_for_room_or_for_the_whole_queue() {
    for (rule, batches) in [(Backpressure::OwnBytes, 1), (Backpressure::WholeQueue, 4)] {
        let (dir, mut agent) = agent(1);
        let program = program(dir.path(), 0).with_backpressure(rule);
        let mut number = 0;
        // 16 KiB and a header: three fit, the fourth does not.
        for _ in 0..3 {
            program.append(number, &[1; 16 << 10], &mut || panic!("there is room")).unwrap();
            number += 100;
        }
        let mut released = 0;
        program
            .append(number, &[2; 16 << 10], &mut || {
                // Gives back one record at a time.
                if agent.readers[0].held() == 0 {
                    agent.readers[0].take(&mut |found| assert!(matches!(found, RingItem::Record(_))));
                }
                released += 1;
                agent.readers[0].release(released * (64 + (16 << 10)));
                true
            })
            .unwrap();
        assert_eq!(released, batches.min(3), "{rule:?}");
    }
}

#[test]
fn a_writer_that_will_not_wait_ends_the_ring_and_what_it_was_told_stays() {
    let (dir, mut agent) = agent(1);
    let program = program(dir.path(), 0);
    let mut told = 0;
    let refused = loop {
        match program.append(0, &[told; 5000], &mut || false) {
            Ok(()) => told += 1,
            Err(refused) => break refused,
        }
    };
    assert_eq!(refused, AppendRefused::Impatient);
    assert_eq!(program.append(0, b"more", &mut || true), Err(AppendRefused::Revoked));
    assert_eq!(agent.take(0), Stop::Revoke);
    agent.end(0);
    let mut file = vec![0xff; 5000];
    while agent.batch(true, &mut |_, bytes| file.copy_from_slice(bytes)) {}
    assert_eq!(file, [told - 1; 5000]);
}

/// Threads of two programs write while the agent applies records; then the rings are revoked meanwhile.
#[test]
fn threads_and_programs_lose_nothing_while_the_agent_drains_and_then_revokes() {
    const THREADS: usize = 4;
    const SHARE: usize = FILE / THREADS;
    for seed in 0..10 {
        let (dir, mut agent) = agent(2);
        let programs: Vec<_> = (0..2).map(|ring| Arc::new(program(dir.path(), ring))).collect();
        let stop = Arc::new(AtomicBool::new(false));
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (program, stop) = (programs[thread % 2].clone(), stop.clone());
                std::thread::spawn(move || {
                    let (mut rng, mut part) = (Random(seed * 100 + thread as u64), vec![0; SHARE]);
                    let mut told = 0u64;
                    while !stop.load(SeqCst) {
                        let len = 1 + rng.below(6000) as usize;
                        let at = rng.below((SHARE - len) as u64) as usize;
                        let bytes = rng.bytes(len);
                        match program.append((thread * SHARE + at) as u64, &bytes, &mut || true) {
                            Ok(()) => part[at..at + len].copy_from_slice(&bytes),
                            Err(refused) => {
                                assert_eq!(refused, AppendRefused::Revoked);
                                break;
                            }
                        }
                        told += 1;
                    }
                    (part, told)
                })
            })
            .collect();
        let mut file = vec![0; FILE];
        let mut apply =
            |offset, bytes: &[u8]| file[offset as usize..offset as usize + bytes.len()].copy_from_slice(bytes);
        let (mut drained, end) = (0, Instant::now() + Duration::from_secs(60));
        while drained < 40 {
            assert!(Instant::now() < end, "the drain stands still");
            (0..2).for_each(|ring| assert_ne!(agent.take(ring), Stop::Revoke));
            drained += u32::from(agent.batch(true, &mut apply));
        }
        agent.end(0); // one during its writes, the other idle
        agent.end(1);
        stop.store(true, SeqCst);
        let parts: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        while agent.batch(true, &mut apply) {}
        assert!(agent.queue.is_empty());
        assert!(parts.iter().map(|(_, told)| told).sum::<u64>() > 0);
        for (thread, (part, _)) in parts.iter().enumerate() {
            assert!(file[thread * SHARE..(thread + 1) * SHARE] == *part, "seed {seed}, thread {thread}");
        }
    }
}
