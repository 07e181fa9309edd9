//! Helpers of several tests: a file of several rings over memory that can crash at any moment.

#![allow(dead_code)] // each test binary uses a part

use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use types::{ByteRange, Epoch};
use window::drained::Drained;
use window::layout::{HEADER_BYTES, RingId};
use window::memory::{Heap, Memory};
use window::plan::{ApplyQueue, RingSlot};
use window::recover::Replay;
use window::ring::{RingGrant, RingItem, RingReader, Stop};
use window::sequence::{Sequence, WORD_BYTES};

/// Size of the file in the stories, bytes.
pub const FILE: usize = 64 << 10;

/// Replica: its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replica(pub Vec<u8>);

impl Replay for Replica {
    fn write(&mut self, offset: u64, bytes: &[u8], _: u64) -> io::Result<()> {
        let at = offset as usize;
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// State of all media at one moment.
#[derive(Clone)]
pub struct Image {
    pub memories: Vec<Vec<u8>>,
    pub replica: Replica,
    /// File with all acknowledged writes in order.
    pub acknowledged: Vec<u8>,
    /// Write in progress, if any.
    pub under_way: Option<(usize, Vec<u8>)>,
}

/// Simulated machine that keeps its state at one step.
pub struct World {
    pub steps: AtomicU64,
    pub crash_at: u64,
    pub state: Mutex<Image>,
    heaps: Mutex<Vec<Arc<Heap>>>,
    pub crash: Mutex<Option<Image>>,
}

impl World {
    pub fn new(crash_at: u64) -> Arc<World> {
        let image = Image {
            memories: Vec::new(),
            replica: Replica(vec![0; FILE]),
            acknowledged: vec![0; FILE],
            under_way: None,
        };
        let state = Mutex::new(image);
        Arc::new(World { steps: AtomicU64::new(0), crash_at, state, heaps: Mutex::default(), crash: Mutex::default() })
    }

    pub fn memory(self: &Arc<World>, len: usize) -> Stepped {
        let heap = Arc::new(Heap::zeroed(len));
        self.heaps.lock().unwrap().push(heap.clone());
        Stepped { world: self.clone(), heap }
    }

    /// Counts an access to shared memory; called before each access. A crash happens only here.
    fn step(&self) {
        if self.steps.fetch_add(1, Relaxed) == self.crash_at {
            *self.crash.lock().unwrap() = Some(self.image());
        }
    }

    /// Returns the present state.
    pub fn image(&self) -> Image {
        let mut image = self.state.lock().unwrap().clone();
        image.memories = self.heaps.lock().unwrap().iter().map(|heap| heap.image()).collect();
        image
    }
}

/// Memory of a [`World`].
pub struct Stepped {
    world: Arc<World>,
    heap: Arc<Heap>,
}

impl Memory for Stepped {
    fn len(&self) -> usize {
        self.heap.len()
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        self.world.step();
        self.heap.word(at)
    }

    fn write(&self, at: usize, bytes: &[u8]) {
        // In parts, so that a crash can tear a payload.
        for (number, chunk) in bytes.chunks(700).enumerate() {
            self.world.step();
            self.heap.write(at + number * 700, chunk);
        }
    }

    fn read(&self, at: usize, bytes: &mut [u8]) {
        self.heap.read(at, bytes);
    }

    fn flush(&self, _at: usize, _len: usize) {
        self.world.step();
    }

    fn fence(&self) {
        self.world.step();
    }

    fn sleep(&self, _at: usize, _value: u32, _timeout: Duration) {}

    fn wake(&self, _at: usize) {}
}

/// Returns the grant of every ring of the stories.
pub fn grant(ring: u128, capacity: u64) -> RingGrant {
    RingGrant { ring: RingId(ring), capacity, epochs: Epoch(1)..=Epoch(3), writable: ByteRange::new(0, FILE as u64) }
}

/// Returns the size of a ring's memory in bytes.
pub fn ring_bytes(capacity: u64) -> usize {
    HEADER_BYTES + capacity as usize
}

/// Agent's side of one file.
pub struct Drain<M: Memory> {
    pub readers: Vec<RingReader<M>>,
    pub queue: ApplyQueue,
    pub sequence: Sequence<Arc<M>>,
    pub drained: Drained<M>,
}

impl<M: Memory> Drain<M> {
    pub fn new(readers: Vec<RingReader<M>>, sequence: Arc<M>, drained: M) -> Drain<M> {
        // Small batches, so that sweeps take several.
        let mut queue = ApplyQueue::with_batches_of(20_000, 7_000);
        (0..readers.len()).for_each(|ring| queue.join(RingSlot(ring)));
        Drain { readers, queue, sequence: Sequence::new(sequence), drained: Drained::begin(drained) }
    }

    /// Takes records from one ring. Returns why it stopped.
    pub fn take(&mut self, ring: usize) -> Stop {
        let (queue, slot) = (&mut self.queue, RingSlot(ring));
        let mut found = |found| match found {
            RingItem::Record(record) => queue.offer(slot, record),
            RingItem::Damage(damage) => panic!("{damage:?}"),
        };
        let stop = self.readers[ring].take(&mut found);
        let known = self.readers[ring].known_below(&self.sequence);
        self.queue.advance_known(slot, known);
        stop
    }

    /// Ends one ring.
    pub fn end(&mut self, ring: usize) {
        let (queue, slot) = (&mut self.queue, RingSlot(ring));
        self.readers[ring].take_rest(&mut |found| match found {
            RingItem::Record(record) => queue.offer(slot, record),
            RingItem::Damage(damage) => panic!("{damage:?}"),
        });
        self.queue.leave(slot);
    }

    /// Applies one batch through `write`. Returns whether there was one.
    pub fn batch(&mut self, urgent: bool, write: &mut dyn FnMut(u64, &[u8])) -> bool {
        struct Unsynced<'a>(&'a mut dyn FnMut(u64, &[u8]));
        impl Replay for Unsynced<'_> {
            fn write(&mut self, offset: u64, bytes: &[u8], _: u64) -> io::Result<()> {
                (self.0)(offset, bytes);
                Ok(())
            }
            fn sync(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        self.batch_to(urgent, &mut Unsynced(write))
    }

    /// Applies one batch and syncs it before it is marked. Returns whether there was one.
    pub fn batch_to(&mut self, urgent: bool, to: &mut dyn Replay) -> bool {
        let Some(batch) = self.queue.batch(urgent) else { return false };
        for one in &batch.writes {
            let mut bytes = vec![0; one.range.len() as usize];
            for piece in &one.pieces {
                let start = (piece.range.start - one.range.start) as usize;
                let place = &mut bytes[start..start + piece.range.len() as usize];
                assert!(self.readers[piece.ring.0].copy(&piece.record, piece.skip(), place));
            }
            to.write(one.range.start, &bytes, one.written_ns()).unwrap();
        }
        to.sync().unwrap();
        self.drained.advance(batch.progress);
        for (ring, position) in self.queue.done(&batch) {
            self.readers[ring.0].release(position);
        }
        true
    }
}

/// Bytes of memory for a counter.
pub const COUNTER: usize = WORD_BYTES;
