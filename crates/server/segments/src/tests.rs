//! Tests on a simulated medium: crashes of the machine, failures of each operation, damaged bytes, and orders of threads.

#[cfg(not(feature = "shuttle"))]
mod bytes;
#[cfg(not(feature = "shuttle"))]
mod crash;
#[cfg(not(feature = "shuttle"))]
mod failing;
#[cfg(not(feature = "shuttle"))]
mod model;
#[cfg(not(feature = "shuttle"))]
mod removal;
#[cfg_attr(feature = "shuttle", allow(dead_code, reason = "the stories use a part"))]
mod simulated;
#[cfg(feature = "shuttle")]
mod stories;

use testkit::Random;

use crate::{CompactionStep, ObjectKey, SegmentSettings, SegmentStore};
use simulated::SimulatedMedium;

/// Small segments, so that a test has many.
const SETTINGS: SegmentSettings = SegmentSettings { segment_bytes: 32 << 10, compact_below_percent: 50 };

fn key(number: u64) -> ObjectKey {
    ObjectKey(u128::from(number).to_be_bytes())
}

fn open(medium: &SimulatedMedium) -> SegmentStore {
    SegmentStore::open_on(Box::new(medium.clone()), SETTINGS).unwrap()
}

/// Bytes of one version of an object: of any length, also none, and seldom longer than a page.
#[cfg_attr(feature = "shuttle", allow(dead_code, reason = "the stories have their own"))]
fn value(random: &mut Random) -> Vec<u8> {
    let most = if random.below(8) == 0 { 9000 } else { 900 };
    let len = random.below(most) as usize;
    random.bytes(len)
}

fn get(store: &SegmentStore, key: &ObjectKey) -> Option<Vec<u8>> {
    store.get(key).map(|object| object.read_verified().unwrap())
}

/// Runs compaction steps until nothing is left to do.
fn compact(store: &SegmentStore) -> Vec<CompactionStep> {
    let steps = std::iter::repeat_with(|| store.compact_step().unwrap());
    let steps: Vec<_> = steps.take_while(|step| *step != CompactionStep::Nothing).take(10_000).collect();
    assert!(steps.len() < 10_000, "compaction ends");
    steps
}
