//! Reads of files that are being staged in: which thread waits for which block, and which blocks are fetched first.
//! Waits are counted, not timed; the store has a round trip.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use data_store::{Fared, ReadNotice};
use models::DataStoreExt;
use models::global::StoreOperation;
use parking_lot::Mutex;
use support::{MIB, World, read, until};
use types::ByteRange;

const BLOCKS: u64 = 64;

/// Round trip to the store. It is long compared with the work for a block.
const ROUND_TRIP: Duration = Duration::from_millis(20);

/// Time that a program spends on a quarter of a block.
const THINKS: Duration = Duration::from_millis(2);

/// Makes a world whose store takes a round trip for each read, with a file `f` of [`BLOCKS`] blocks. Also returns the
/// first blocks that were read.
fn far_away(fetches: usize) -> (World, Arc<Mutex<Vec<u64>>>) {
    let world = World::with(|settings| (settings.background, settings.fetches) = (true, fetches));
    world.store.put("f", &vec![7; BLOCKS as usize * MIB]);
    let order: Arc<Mutex<Vec<u64>>> = Arc::default();
    let seen = Arc::clone(&order);
    world.store.set_hook(Some(Arc::new(move |operation, _| {
        if let StoreOperation::Read(range) = operation {
            seen.lock().push(range.start / MIB as u64);
            std::thread::sleep(ROUND_TRIP);
        }
    })));
    (world, order)
}

fn waits(world: &World) -> u64 {
    let status = world.cache.counters();
    status.read_late + status.read_misses
}

#[test] // S8
fn a_reader_that_outruns_its_fetcher_gets_more_of_them_and_waits_less() {
    let counted = [1, 8].map(|fetches| {
        let (world, _) = far_away(fetches);
        let handle = world.open("f", false);
        let mut buffer = vec![0; MIB / 4];
        for part in 0..BLOCKS * 4 {
            assert_eq!(handle.read_at(&mut buffer, part * MIB as u64 / 4).unwrap(), MIB / 4);
            assert!(buffer.iter().all(|byte| *byte == 7));
            std::thread::sleep(THINKS);
        }
        let (status, waits) = (world.cache.counters(), waits(&world));
        assert!(status.read_hits + waits <= BLOCKS * 4);
        drop(handle);
        world.cache.shutdown();
        waits
    });
    println!("waits of a reader of {BLOCKS} blocks, with one fetcher and with several: {counted:?}");
    assert!(counted[1] * 2 < counted[0], "{counted:?}");
}

#[test] // S8
fn what_a_reader_is_expected_to_want_is_fetched_before_the_rest() {
    let (world, order) = far_away(1);
    let handle = world.open("f", false);
    let at = |block: u64| ByteRange::at(block * MIB as u64, 100);
    let mut told = None;
    handle.read_ahead(at(0), None, &mut |size, fared, _, absent| {
        told = Some((size, fared, absent(ByteRange::new(0, u64::MAX)).len() as u64));
        ReadNotice { following: vec![at(50), at(20), at(40)], spent: None }
    });
    assert_eq!(told, Some((BLOCKS * MIB as u64, Fared::Miss, BLOCKS)));
    assert_eq!(read(&handle, 10), [7; 10]);
    until("the fetcher", || order.lock().len() >= 6);
    let first: Vec<u64> = order.lock()[..6].iter().copied().filter(|block| *block != 0).collect();
    assert_eq!(first[..4], [50, 20, 40, 1]);
    // A present block is neither absent nor missed.
    until("the block", || {
        let mut found = None;
        handle.read_ahead(at(40), None, &mut |_, fared, _, absent| {
            found = Some((fared, absent(at(40)).len()));
            ReadNotice::default()
        });
        found == Some((Fared::Hit, 0))
    });
    drop(handle);
    world.cache.shutdown();
}

#[test] // S8
fn beside_a_read_that_nobody_expected_one_fetcher_works() {
    let (world, _) = far_away(8);
    let under_way = Arc::new((AtomicU64::new(0), AtomicU64::new(0)));
    let counts = Arc::clone(&under_way);
    world.store.set_hook(Some(Arc::new(move |operation, _| {
        if matches!(operation, StoreOperation::Read(_)) {
            counts.1.fetch_max(counts.0.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            std::thread::sleep(ROUND_TRIP);
            counts.0.fetch_sub(1, Ordering::SeqCst);
        }
    })));
    let handle = world.open("f", false);
    let mut buffer = [0; 100];
    let mut read = |block: u64| assert_eq!(handle.read_at(&mut buffer, block * MIB as u64).unwrap(), 100);
    (0..8).for_each(&mut read);
    let several = under_way.1.load(Ordering::SeqCst);
    assert!((3..=6).contains(&several), "{several} reads of the store at once");
    // Fetches that have begun end.
    [60, 51, 43].into_iter().for_each(&mut read);
    until("the end of what was begun", || under_way.0.load(Ordering::SeqCst) <= 1);
    under_way.1.store(0, Ordering::SeqCst);
    [57, 47, 39].into_iter().for_each(&mut read);
    let few = under_way.1.load(Ordering::SeqCst);
    assert!(few <= 2, "{few}: the reader's own and one more");
    drop(handle);
    world.cache.shutdown();
}
