//! Simulated machine with persistent memory and a disk, which records the possible states of both after a crash.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::io;
use std::rc::Rc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use testkit::Random;
use window::layout::HEADER_BYTES;
use window::memory::{Heap, Memory};
use window::recover::Replay;

use crate::common::FILE;

const LINE: usize = 64;
const PAGE: usize = 4096;
/// Number of steps per moment whose images are kept.
const MOMENTS: u64 = 500;
/// Images of one moment: all lines as old as possible, all as new as possible, and mixtures.
const IMAGES: u64 = 4;
/// Number of the memory of the mark of applied records, after three rings and the sequence counter.
const MARK: usize = 4;

/// Kind of flushed data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Format,
    Payload,
    Header,
    Published,
    Retracted,
    Released,
    Mark,
}

impl Kind {
    pub const ALL: [Kind; 7] =
        [Kind::Format, Kind::Payload, Kind::Header, Kind::Published, Kind::Retracted, Kind::Released, Kind::Mark];
}

/// Step that the code under test omits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Omitted {
    Nothing,
    Flush(Kind),
    /// Fence after a flush of that kind. The flushed data is complete with the next fence.
    Fence(Kind),
    /// Sync of the replica before the mark.
    Sync,
}

impl Omitted {
    /// All steps but `Nothing`. The fence of a payload is that of its header.
    pub const ALL: [Omitted; 14] = [
        Omitted::Flush(Kind::Format),
        Omitted::Flush(Kind::Payload),
        Omitted::Flush(Kind::Header),
        Omitted::Flush(Kind::Published),
        Omitted::Flush(Kind::Retracted),
        Omitted::Flush(Kind::Released),
        Omitted::Flush(Kind::Mark),
        Omitted::Fence(Kind::Format),
        Omitted::Fence(Kind::Header),
        Omitted::Fence(Kind::Published),
        Omitted::Fence(Kind::Retracted),
        Omitted::Fence(Kind::Released),
        Omitted::Fence(Kind::Mark),
        Omitted::Sync,
    ];
}

/// State of the media after a crash, and the expected content of the file.
pub struct Image {
    pub step: u64,
    pub memories: Vec<Vec<u8>>,
    pub replica: Vec<u8>,
    /// File with all acknowledged writes in order.
    pub acknowledged: Vec<u8>,
    /// Write in progress, if any.
    pub under_way: Option<(usize, Vec<u8>)>,
    /// Kinds of data flushed by then.
    pub flushed: BTreeSet<Kind>,
}

type Interruption = (u64, Box<dyn FnOnce(&Machine)>);

struct State {
    rng: RefCell<Random>,
    omitted: Omitted,
    steps: Cell<u64>,
    granted: Cell<bool>,
    memories: RefCell<Vec<Rc<Medium>>>,
    /// Line that was returned last and may have been stored to.
    touched: RefCell<Option<(usize, usize)>>,
    interruption: RefCell<Option<Interruption>>,
    replica: RefCell<Vec<u8>>,
    synced: RefCell<Vec<u8>>,
    acknowledged: RefCell<Vec<u8>>,
    under_way: RefCell<Option<(usize, Vec<u8>)>>,
    flushed: RefCell<BTreeSet<Kind>>,
    images: RefCell<Vec<Image>>,
}

/// Simulated machine.
#[derive(Clone)]
pub struct Machine(Rc<State>);

/// Former content of a line: number, bytes.
type Version = (u64, [u8; LINE]);

struct Medium {
    heap: Heap,
    /// Possible contents of each line on the medium: (number, bytes). The last one is the content in the cache.
    lines: RefCell<Vec<Vec<Version>>>,
    /// Flushed but not fenced lines: line, and the number of its content then.
    started: RefCell<Vec<(usize, u64, Kind)>>,
}

/// Memory of a [`Machine`].
pub struct Lines {
    machine: Machine,
    medium: Rc<Medium>,
    number: usize,
}

impl Medium {
    fn record(&self, line: usize) {
        let mut now = [0; LINE];
        self.heap.read(line * LINE, &mut now);
        let versions = &mut self.lines.borrow_mut()[line];
        let (number, last) = *versions.last().expect("a line is something");
        if now != last {
            versions.push((number + 1, now));
        }
    }
}

impl Machine {
    pub fn new(seed: u64, omitted: Omitted) -> Machine {
        let file = || RefCell::new(vec![0; FILE]);
        Machine(Rc::new(State {
            rng: RefCell::new(Random(seed ^ 0x5eed)),
            omitted,
            steps: Cell::new(0),
            granted: Cell::new(false),
            memories: RefCell::default(),
            touched: RefCell::default(),
            interruption: RefCell::default(),
            replica: file(),
            synced: file(),
            acknowledged: file(),
            under_way: RefCell::default(),
            flushed: RefCell::default(),
            images: RefCell::default(),
        }))
    }

    /// Makes zeroed memory, which is on the medium.
    pub fn memory(&self, len: usize) -> Lines {
        let lines = RefCell::new(vec![vec![(0, [0; LINE])]; len / LINE]);
        let medium = Rc::new(Medium { heap: Heap::zeroed(len), lines, started: RefCell::default() });
        let mut memories = self.0.memories.borrow_mut();
        memories.push(medium.clone());
        Lines { machine: self.clone(), medium, number: memories.len() - 1 }
    }

    /// Notes that from now on there is something to recover.
    pub fn granted(&self) {
        self.0.granted.set(true);
    }

    /// Notes that a write begins.
    pub fn begins(&self, offset: usize, bytes: &[u8]) {
        *self.0.under_way.borrow_mut() = Some((offset, bytes.to_vec()));
    }

    /// Notes that the write has ended, acknowledged or not.
    pub fn ended(&self, acknowledged: bool) {
        self.0.interruption.take();
        let Some((offset, bytes)) = self.0.under_way.take() else { return };
        if acknowledged {
            self.0.acknowledged.borrow_mut()[offset..offset + bytes.len()].copy_from_slice(&bytes);
        }
    }

    /// Gives another party a turn after this many accesses.
    pub fn interrupt_after(&self, steps: u64, work: Box<dyn FnOnce(&Machine)>) {
        *self.0.interruption.borrow_mut() = Some((self.0.steps.get() + steps, work));
    }

    /// Returns the file in the burst buffer.
    pub fn replica(&self) -> Disk {
        Disk(self.clone())
    }

    pub fn images(&self) -> Vec<Image> {
        self.0.images.take()
    }

    /// Counts an access; called before each access. A crash happens only here.
    fn step(&self) {
        let state = &*self.0;
        state.steps.set(state.steps.get() + 1);
        if let Some((memory, line)) = state.touched.take() {
            state.memories.borrow()[memory].record(line);
        }
        if state.granted.get() && state.rng.borrow_mut().below(MOMENTS) == 0 {
            (0..IMAGES).for_each(|which| state.images.borrow_mut().push(self.image(which)));
        }
        let due = state.interruption.borrow().as_ref().is_some_and(|(at, _)| *at <= state.steps.get());
        if due && let Some((_, work)) = state.interruption.take() {
            work(self);
        }
    }

    fn image(&self, which: u64) -> Image {
        let state = &*self.0;
        let pick = |of: usize| match which {
            0 => 0,
            1 => of - 1,
            _ => state.rng.borrow_mut().below(of as u64) as usize,
        };
        let mut memories = Vec::new();
        for medium in state.memories.borrow().iter() {
            let lines = medium.lines.borrow();
            memories.push(lines.iter().flat_map(|versions| versions[pick(versions.len())].1).collect());
        }
        let (old, new) = (state.synced.borrow(), state.replica.borrow());
        let pages = old.chunks(PAGE).zip(new.chunks(PAGE));
        Image {
            step: state.steps.get(),
            memories,
            replica: pages.flat_map(|(old, new)| if pick(2) == 0 { old } else { new }).copied().collect(),
            acknowledged: state.acknowledged.borrow().clone(),
            under_way: state.under_way.borrow().clone(),
            flushed: state.flushed.borrow().clone(),
        }
    }
}

impl Lines {
    /// Returns the purpose of a flush.
    fn kind(&self, at: usize, len: usize) -> Kind {
        if self.number == MARK {
            return Kind::Mark;
        }
        match (at, len) {
            (0, HEADER_BYTES) => Kind::Format,
            (_, 8) if at < HEADER_BYTES => Kind::Released,
            // The low bits of a commit word are its state.
            (_, 8) if self.medium.heap.word(at).load(std::sync::atomic::Ordering::Relaxed) & 0x3f == 0x09 => {
                Kind::Retracted
            }
            (_, 8) => Kind::Published,
            (_, LINE) => Kind::Header,
            _ => Kind::Payload,
        }
    }
}

impl Memory for Lines {
    fn len(&self) -> usize {
        self.medium.heap.len()
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        self.machine.step();
        *self.machine.0.touched.borrow_mut() = Some((self.number, at / LINE));
        self.medium.heap.word(at)
    }

    /// Copies line by line, the halves of each in any order, as a real copy may.
    fn write(&self, at: usize, bytes: &[u8]) {
        let (mut done, mut halves) = (0, Vec::new());
        while done < bytes.len() {
            let here = at + done;
            let end = (here / (LINE / 2) + 1) * (LINE / 2);
            let len = (end - here).min(bytes.len() - done);
            halves.push((here, done, len));
            done += len;
        }
        let backwards = self.machine.0.rng.borrow_mut().below(2) == 0;
        for pair in halves.chunk_by_mut(|one, other| one.0 / LINE == other.0 / LINE) {
            if backwards {
                pair.reverse();
            }
            for (here, from, len) in pair.iter() {
                self.machine.step();
                self.medium.heap.write(*here, &bytes[*from..from + len]);
                self.medium.record(here / LINE);
            }
        }
    }

    fn read(&self, at: usize, bytes: &mut [u8]) {
        self.medium.heap.read(at, bytes);
    }

    fn flush(&self, at: usize, len: usize) {
        self.machine.step();
        let kind = self.kind(at, len);
        self.machine.0.flushed.borrow_mut().insert(kind);
        if self.machine.0.omitted == Omitted::Flush(kind) {
            return;
        }
        let lines = self.medium.lines.borrow();
        let numbered = |line: usize| (line, lines[line].last().expect("a line is something").0, kind);
        self.medium.started.borrow_mut().extend((at / LINE..(at + len).div_ceil(LINE)).map(numbered));
    }

    fn fence(&self) {
        self.machine.step();
        let mut started = self.medium.started.borrow_mut();
        let last = started.last().map(|(_, _, kind)| *kind);
        if last.is_some_and(|kind| self.machine.0.omitted == Omitted::Fence(kind)) {
            return;
        }
        let mut lines = self.medium.lines.borrow_mut();
        for (line, number, _) in started.drain(..) {
            lines[line].retain(|(version, _)| *version >= number);
        }
    }

    fn sleep(&self, _at: usize, _value: u32, _timeout: Duration) {}

    fn wake(&self, _at: usize) {}
}

/// Replica on its disk.
pub struct Disk(Machine);

impl Replay for Disk {
    fn write(&mut self, offset: u64, bytes: &[u8], _: u64) -> io::Result<()> {
        self.0.step();
        self.0.0.replica.borrow_mut()[offset as usize..offset as usize + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        self.0.step();
        if self.0.0.omitted != Omitted::Sync {
            self.0.0.synced.borrow_mut().copy_from_slice(&self.0.0.replica.borrow());
        }
        Ok(())
    }
}
