//! Stories of the program under test: operations drawn from a seed, and the model of their effects. The checker draws
//! the story from the seed again, so the ledger only contains a number of steps.

use std::collections::BTreeMap;

use crate::mounted::chance::{Chance, payload};

/// Names of a program's files, in a directory of its own.
pub const NAMES: [&str; 8] = ["n0", "n1", "n2", "n3", "sub/n4", "sub/n5", "old-small", "old-large"];
/// Descriptors of a program.
pub const SLOTS: usize = 4;

/// One step with one acknowledgement.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// `open` for reading and writing, creating.
    Open {
        slot: usize,
        name: usize,
        truncate: bool,
    },
    Pwrite {
        slot: usize,
        at: u64,
        len: usize,
        seed: u64,
    },
    /// A store through a shared mapping of the file's present bytes, then `munmap`.
    Store {
        slot: usize,
        at: u64,
        len: usize,
        seed: u64,
    },
    Fsync {
        slot: usize,
    },
    Ftruncate {
        slot: usize,
        len: u64,
    },
    Punch {
        slot: usize,
        at: u64,
        len: u64,
    },
    Close {
        slot: usize,
    },
    Truncate {
        name: usize,
        len: u64,
    },
    Rename {
        from: usize,
        to: usize,
    },
    Link {
        from: usize,
        to: usize,
    },
    Unlink {
        name: usize,
    },
    /// Reads a whole file, which must be what the model says.
    Read {
        name: usize,
    },
}

/// Effects of a story so far: names, the files behind them, and open descriptors.
#[derive(Debug, Clone, Default)]
pub struct Model {
    pub names: BTreeMap<usize, usize>,
    pub files: BTreeMap<usize, Vec<u8>>,
    pub slots: [Option<usize>; SLOTS],
    next_file: usize,
}

impl Model {
    /// With the files that are there before the mount.
    pub fn first(seed: u64) -> Model {
        let mut model = Model::default();
        model.create(6, payload(seed, 5000));
        model.create(7, payload(seed + 1, (5 << 20) / 2));
        model
    }

    fn create(&mut self, name: usize, content: Vec<u8>) {
        self.files.insert(self.next_file, content);
        self.names.insert(name, self.next_file);
        self.next_file += 1;
    }

    /// The content behind a name.
    pub fn content(&self, name: usize) -> Option<&Vec<u8>> {
        self.names.get(&name).map(|file| &self.files[file])
    }

    /// The content behind a descriptor.
    pub fn open(&mut self, slot: usize) -> &mut Vec<u8> {
        let file = self.slots[slot].expect("stories use open descriptors");
        self.files.get_mut(&file).expect("an open file")
    }

    /// Whether a step is about an open file that has no name any more.
    pub fn is_nameless(&self, step: &Step) -> bool {
        let (Step::Pwrite { slot, .. }
        | Step::Store { slot, .. }
        | Step::Fsync { slot }
        | Step::Ftruncate { slot, .. }
        | Step::Punch { slot, .. }
        | Step::Close { slot }) = *step
        else {
            return false;
        };
        self.slots[slot].is_some_and(|file| !self.names.values().any(|named| *named == file))
    }

    /// Does a step that succeeds.
    pub fn apply(&mut self, step: &Step) {
        match *step {
            Step::Open { slot, name, truncate } => {
                if !self.names.contains_key(&name) {
                    self.create(name, Vec::new());
                }
                let file = self.names[&name];
                self.slots[slot] = Some(file);
                if truncate {
                    self.open(slot).clear();
                }
            }
            Step::Pwrite { slot, at, len, seed } | Step::Store { slot, at, len, seed } => {
                let (content, end) = (self.open(slot), at as usize + len);
                if content.len() < end {
                    content.resize(end, 0);
                }
                content[at as usize..end].copy_from_slice(&payload(seed, len));
            }
            Step::Ftruncate { slot, len } => self.open(slot).resize(len as usize, 0),
            Step::Punch { slot, at, len } => {
                let content = self.open(slot);
                let (at, end) = ((at as usize).min(content.len()), ((at + len) as usize).min(content.len()));
                content[at..end].fill(0);
            }
            Step::Close { slot } => self.slots[slot] = None,
            Step::Truncate { name, len } => {
                let file = self.names[&name];
                self.files.get_mut(&file).expect("a file").resize(len as usize, 0);
            }
            Step::Rename { from, to } => {
                // Two names of one file: rename does nothing.
                if self.names.get(&from) != self.names.get(&to) {
                    let file = self.names.remove(&from).expect("a name");
                    self.names.insert(to, file);
                }
            }
            Step::Link { from, to } => {
                let file = self.names[&from];
                self.names.insert(to, file);
            }
            Step::Unlink { name } => {
                self.names.remove(&name);
            }
            Step::Fsync { .. } | Step::Read { .. } => {}
        }
    }

    /// Returns the contents of all names.
    pub fn tree(&self) -> BTreeMap<String, &Vec<u8>> {
        self.names.iter().map(|(name, file)| (NAMES[*name].to_owned(), &self.files[file])).collect()
    }
}

/// Generator of a story's steps, each possible in the current state.
pub struct Story {
    chance: Chance,
    pub model: Model,
    seeds: u64,
}

impl Story {
    /// Creates the story of a seed.
    pub fn new(seed: u64) -> Story {
        Story { chance: Chance::new(seed), model: Model::first(seed), seeds: seed << 20 }
    }

    /// Returns the next step. The caller applies it to the model once it is acknowledged.
    pub fn next(&mut self) -> Step {
        loop {
            let kind = self.chance.below(24);
            if let Some(step) = self.try_kind(kind) {
                return step;
            }
        }
    }

    fn try_kind(&mut self, kind: u64) -> Option<Step> {
        let name = self.chance.below(NAMES.len() as u64) as usize;
        let slot = self.chance.below(SLOTS as u64) as usize;
        let open = self.model.slots[slot].is_some();
        let exists = self.model.names.contains_key(&name);
        self.seeds += 1;
        match kind {
            0..=4 if !open => Some(Step::Open { slot, name, truncate: self.chance.once_in(4) }),
            5..=10 if open => {
                let (at, len) = (self.chance.size(2 << 20), self.chance.size(1 << 19) as usize + 1);
                Some(Step::Pwrite { slot, at, len, seed: self.seeds })
            }
            11 if open => {
                let size = self.model.open(slot).len() as u64;
                let at = self.chance.below(size.max(1));
                let len = self.chance.size(1 << 16).min(size - at.min(size)) as usize;
                (len > 0).then_some(Step::Store { slot, at, len, seed: self.seeds })
            }
            12 if open => Some(Step::Fsync { slot }),
            13 if open => Some(Step::Ftruncate { slot, len: self.chance.size(2 << 20) }),
            14 if open => Some(Step::Punch { slot, at: self.chance.size(1 << 20), len: self.chance.size(1 << 19) + 1 }),
            15..=17 if open => Some(Step::Close { slot }),
            18 if exists => Some(Step::Truncate { name, len: self.chance.size(2 << 20) }),
            19 | 20 if exists => {
                let to = self.chance.below(NAMES.len() as u64) as usize;
                (to != name).then_some(Step::Rename { from: name, to })
            }
            21 if exists => Some(Step::Unlink { name }),
            22 if exists => Some(Step::Read { name }),
            23 if exists => {
                let to = self.chance.below(NAMES.len() as u64) as usize;
                (!self.model.names.contains_key(&to)).then_some(Step::Link { from: name, to })
            }
            _ => None,
        }
    }
}
