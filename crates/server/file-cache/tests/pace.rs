//! Stage-outs give way to programs that write, and only to them.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use file_cache::FileHandle;
use file_cache::limits::UNFELT_BLOCKS;
use support::{MIB, World, kernel_file, kernel_write};

/// Those after which a stage-out rests, if it does.
const BLOCKS: usize = 4;

/// All of a file: so many more are copied before anybody would feel it.
const ALL_BLOCKS: usize = UNFELT_BLOCKS as usize + BLOCKS;

/// A cache whose clock stands in the last millisecond of a cycle, where stage-outs rest beside programs that write.
struct Stage {
    world: World,
    now_ms: Arc<AtomicU64>,
}

impl Stage {
    fn new() -> Stage {
        let now_ms = Arc::new(AtomicU64::new(9_999));
        let clock = Arc::clone(&now_ms);
        let world = World::with(|settings| {
            settings.clock = Some(Arc::new(move || Duration::from_millis(clock.load(Ordering::Relaxed))));
        });
        world.write_new("f", b"x");
        Stage { world, now_ms }
    }

    /// Changes all blocks of `f`, as a program of long ago.
    fn change(&self) {
        self.change_blocks(ALL_BLOCKS);
    }

    fn change_blocks(&self, blocks: usize) {
        let handle = self.world.open("f", true);
        kernel_write(&handle, &vec![self.now_ms.load(Ordering::Relaxed) as u8; blocks * MIB], 0);
        drop(handle);
        // No multiple of 256: other bytes each time.
        self.now_ms.fetch_add(3_000, Ordering::Relaxed);
    }

    /// How often a stage-out rested, if nobody waits for it.
    fn rests(&self) -> usize {
        self.change();
        self.rests_of(|| self.world.cache.stage_out(&self.world.identity("f"), &|| false).unwrap())
    }

    fn rests_of(&self, stage_out: impl FnOnce()) -> usize {
        let rested = || self.world.cache.status().staged_out_rests as usize;
        let before = rested();
        stage_out();
        rested() - before
    }
}

fn writer(world: &World) -> FileHandle {
    let writer = world.create("written");
    assert!(writer.use_passthrough());
    writer
}

/// It is being written, however long the test takes.
fn make_new(writer: &FileHandle) {
    kernel_file(writer).set_modified(SystemTime::now() + Duration::from_secs(60)).unwrap();
}

fn make_old(writer: &FileHandle) {
    kernel_file(writer).set_modified(SystemTime::now() - Duration::from_secs(60)).unwrap();
}

#[test]
fn a_stage_out_rests_after_each_block_beside_a_program_that_writes_and_beside_no_other() {
    let stage = Stage::new();
    assert_eq!(stage.rests(), 0, "nobody writes");
    let writer = writer(&stage.world);
    make_new(&writer);
    assert_eq!(stage.rests(), BLOCKS);
    make_old(&writer);
    assert_eq!(stage.rests(), 0, "it is open and nothing is written");
    stage.change();
    writer.write_at(b"y", 0, false).unwrap();
    make_old(&writer);
    let identity = stage.world.identity("f");
    assert_eq!(
        stage.rests_of(|| stage.world.cache.stage_out(&identity, &|| false).unwrap()),
        BLOCKS,
        "through the agent"
    );
    drop(writer);
    assert_eq!(stage.rests(), 0, "it was closed long ago");
}

#[test]
fn nobody_rests_while_a_program_waits_for_a_stage_out_or_needs_the_room() {
    let stage = Stage::new();
    let (world, writer) = (&stage.world, writer(&stage.world));
    stage.change();
    make_new(&writer);
    assert_eq!(stage.rests_of(|| world.cache.drain_file(&world.identity("f"), &|| false).unwrap()), 0);
    stage.change();
    make_new(&writer);
    let free = world.free.swap((1 << 40) / 20, Ordering::Relaxed);
    assert_eq!(stage.rests_of(|| world.cache.stage_out(&world.identity("f"), &|| false).unwrap()), 0);
    world.free.store(free, Ordering::Relaxed);
    make_new(&writer);
    assert_eq!(stage.rests(), BLOCKS, "it is not so by itself");
}

#[test]
fn a_stage_out_works_most_of_the_time_whoever_writes() {
    let stage = Stage::new();
    let writer = writer(&stage.world);
    stage.now_ms.fetch_sub(999, Ordering::Relaxed);
    make_new(&writer);
    assert_eq!(stage.rests(), 0, "a cycle begins with work");
}

#[test]
fn what_nobody_feels_does_not_rest() {
    let stage = Stage::new();
    let writer = writer(&stage.world);
    stage.change_blocks(UNFELT_BLOCKS as usize);
    make_new(&writer);
    assert_eq!(stage.rests_of(|| stage.world.cache.stage_out(&stage.world.identity("f"), &|| false).unwrap()), 0);
    assert_eq!(stage.rests(), BLOCKS, "it is not so by itself");
}
