//! Random appends from several rings compared with a byte array, with crashes at every kind of moment.

mod common;

use std::sync::Arc;

use common::{COUNTER, Drain, FILE, Image, Stepped, World, grant, ring_bytes};
use testkit::Random;
use types::{ByteRange, Epoch};
use window::drained::{AppliedProgress, Drained};
use window::memory::Heap;
use window::recover::{Bounds, Fence, RecoveryReport, Why, recover};
use window::ring::{AppendRefused, RingReader, Stop, Writer};
use window::sequence::Sequence;

const CAPACITY: u64 = 64 << 10;
const RINGS: usize = 3;

/// Runs one story: three programs write one file, and the agent applies records now and then. Returns its world, which
/// kept the moment `crash_at` if the story was that long.
fn story(seed: u64, crash_at: u64) -> Arc<World> {
    let mut rng = Random(seed);
    let world = World::new(crash_at);
    let rings: Vec<Arc<Stepped>> = (0..RINGS).map(|_| Arc::new(world.memory(ring_bytes(CAPACITY)))).collect();
    let sequence = Arc::new(Arc::new(world.memory(COUNTER)));
    let drained = Arc::new(world.memory(COUNTER));
    let readers: Vec<_> = (0..RINGS)
        .map(|ring| RingReader::create(rings[ring].clone(), grant(ring as u128 * 7919 + 1, CAPACITY)).unwrap())
        .collect();
    let writers: Vec<_> = (0..RINGS)
        .map(|ring| {
            let grant = grant(ring as u128 * 7919 + 1, CAPACITY);
            Writer::new(rings[ring].clone(), grant.ring, CAPACITY, Sequence::new(sequence.clone())).unwrap()
        })
        .collect();
    let mut drain = Drain::new(readers, sequence, drained);
    for _ in 0..60 {
        if rng.below(6) == 0 {
            pump(&mut drain, &world, &mut rng);
            continue;
        }
        let len = [1 + rng.below(200), 1 + rng.below(16 << 10)][rng.below(2) as usize] as usize;
        let offset = rng.below((FILE - len) as u64) as usize;
        let bytes = rng.bytes(len);
        let writer = &writers[rng.below(RINGS as u64) as usize];
        world.state.lock().unwrap().under_way = Some((offset, bytes.clone()));
        let patient = rng.below(8) != 0;
        let done = writer.append(offset as u64, &bytes, &mut || {
            (0..4).for_each(|_| pump(&mut drain, &world, &mut rng));
            patient
        });
        let mut state = world.state.lock().unwrap();
        state.under_way = None;
        match done {
            Ok(()) => state.acknowledged[offset..offset + len].copy_from_slice(&bytes),
            Err(refused) => {
                assert!(matches!(refused, AppendRefused::Impatient | AppendRefused::Revoked), "{refused:?}")
            }
        }
    }
    world
}

/// Makes one turn of the agent: examines one ring, ends it if it must, and applies a batch.
fn pump(drain: &mut Drain<Arc<Stepped>>, world: &Arc<World>, rng: &mut Random) {
    let ring = rng.below(RINGS as u64) as usize;
    if drain.take(ring) == Stop::Revoke {
        drain.end(ring);
    }
    drain.batch(rng.below(2) == 0, &mut |offset, bytes| {
        let at = offset as usize;
        world.state.lock().unwrap().replica.0[at..at + bytes.len()].copy_from_slice(bytes);
    });
}

/// Recovers from `memories`. Returns the replica afterwards and the report.
fn recovered(image: &Image, memories: &[Vec<u8>], fences: &[Fence]) -> (Vec<u8>, RecoveryReport) {
    let mut readers: Vec<_> = (0..RINGS)
        .map(|ring| {
            let memory = Heap::from_image(&memories[ring]);
            RingReader::left_behind(memory, grant(ring as u128 * 7919 + 1, CAPACITY)).unwrap()
        })
        .collect();
    let drained = Drained::left_behind(Heap::from_image(&memories[RINGS + 1]));
    let mut replica = image.replica.clone();
    let report = recover(&mut readers, &drained, Bounds { fences, cut: u64::MAX }, &mut replica).unwrap();
    assert_eq!(drained.progress(), Some(AppliedProgress::all_below(u64::MAX)));
    let before = replica.clone();
    let again = recover(&mut readers, &drained, Bounds { fences, cut: u64::MAX }, &mut replica).unwrap();
    assert!(before == replica && again.records == 0, "a second recovery does nothing");
    (replica.0, report)
}

/// Asserts that every acknowledged write is there and nothing else, except perhaps the write in progress.
fn check(image: &Image, memories: &[Vec<u8>], seed: u64) {
    let (replica, report) = recovered(image, memories, &[]);
    assert!(report.lost.is_empty(), "seed {seed}: {:?}", report.lost);
    if replica == image.acknowledged {
        return;
    }
    let (offset, bytes) = image.under_way.clone().unwrap_or_else(|| panic!("seed {seed}: the file differs"));
    let mut with = image.acknowledged.clone();
    with[offset..offset + bytes.len()].copy_from_slice(&bytes);
    assert!(replica == with, "seed {seed}: neither with nor without the write under way");
}

/// Chooses seeds and moments of their stories; a run without a crash gives a story's length.
fn crashes(count: u64, check: impl Fn(&Image, u64)) {
    let mut rng = Random(count);
    for seed in 0..count {
        let length = story(seed, u64::MAX).steps.load(std::sync::atomic::Ordering::Relaxed);
        for _ in 0..4 {
            let world = story(seed, rng.below(length));
            // A crash before the rings were made leaves nothing to recover.
            let image = world.crash.lock().unwrap().clone();
            if let Some(image) = image.filter(|image| image.memories.len() == RINGS + 2 && formatted(image)) {
                check(&image, seed);
            }
        }
    }
}

fn formatted(image: &Image) -> bool {
    (0..RINGS).all(|ring| {
        let memory = Heap::from_image(&image.memories[ring]);
        RingReader::left_behind(memory, grant(ring as u128 * 7919 + 1, CAPACITY)).is_ok()
    }) && Drained::left_behind(Heap::from_image(&image.memories[RINGS + 1])).progress().is_some()
}

#[test]
fn every_acknowledged_write_survives_a_kill_at_any_moment_and_nothing_else_appears() {
    crashes(60, |image, seed| check(image, &image.memories, seed));
}

#[test]
fn recovery_never_writes_over_a_newer_epoch_and_says_which_bytes_it_left() {
    let image = story(7, u64::MAX).image();
    let fence = Fence { range: ByteRange::new(1000, 30_000), epoch: Epoch(2) };
    let (replica, report) = recovered(&image, &image.memories, &[fence]);
    assert!(replica[1000..30_000] == image.replica.0[1000..30_000], "left alone");
    assert!(replica[30_000..] == image.acknowledged[30_000..], "the rest is replayed");
    assert!(!report.lost.is_empty());
    for loss in &report.lost {
        let range = loss.range.unwrap();
        assert!(range.start >= 1000 && range.end <= 30_000 && loss.why == Why::NewerEpoch, "{loss:?}");
    }
    let same = Fence { epoch: Epoch(1), ..fence };
    assert!(recovered(&image, &image.memories, &[same]).0 == image.acknowledged, "its own epoch is no fence");
}
