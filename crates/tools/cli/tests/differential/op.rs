//! Operations of stories. Their arguments have a meaning in every state, so any part of a story is a story.

use rustix::fs::OFlags;

use crate::mounted::chance::Chance;

/// The names that stories use: few, so that they meet; some are directories at first, some never exist.
pub const PATHS: [&str; 22] = [
    "a",
    "b",
    "a/c",
    "x0",
    "x1",
    "x2",
    "x3",
    "a/x0",
    "a/x1",
    "a/x2",
    "b/x0",
    "b/x1",
    "a/c/x0",
    "a/c/x1",
    "big",
    "a/big",
    "link",
    "a/link",
    "new",
    "b/new",
    "missing/x",
    "x0/below",
];
/// Those of them that are files at first.
const FILES: [u8; 6] = [3, 4, 8, 10, 14, 15];
/// Where symbolic links point.
pub const TARGETS: [&str; 5] = ["x1", "a/x0", "nowhere", "c/x0", "link"];
/// Descriptors of one side.
pub const SLOTS: usize = 6;
/// Mappings of one side.
pub const MAPS: usize = 3;

/// One operation. `path` counts in [`PATHS`]; `slot` and `map` count what is open.
#[derive(Debug, Clone, PartialEq)]
pub enum Op {
    Open { slot: u8, path: u8, flags: u32 },
    Reopen { slot: u8, from: u8, flags: u32 },
    Dup { slot: u8, from: u8 },
    Close { slot: u8 },
    Pread { slot: u8, at: u64, len: u32 },
    Pwrite { slot: u8, at: u64, len: u32, seed: u64 },
    Read { slot: u8, len: u32 },
    Write { slot: u8, len: u32, seed: u64 },
    SeekTo { slot: u8, at: u64 },
    SeekEnd { slot: u8 },
    Holes { slot: u8 },
    Ftruncate { slot: u8, len: u64 },
    Truncate { path: u8, len: u64 },
    Fallocate { slot: u8, mode: u32, at: u64, len: u64 },
    Sync { slot: u8, data_only: bool },
    Rename { from: u8, to: u8, flags: u32 },
    Link { from: u8, to: u8 },
    Symlink { target: u8, path: u8 },
    Readlink { path: u8 },
    Unlink { path: u8 },
    Mkdir { path: u8, mode: u32 },
    Rmdir { path: u8 },
    Mkfifo { path: u8 },
    Chmod { path: u8, mode: u32 },
    Fchmod { slot: u8, mode: u32 },
    Chown { path: u8, uid: u32 },
    Utimens { path: u8, seconds: Option<i64> },
    Futimens { slot: u8, seconds: Option<i64> },
    Stat { path: u8 },
    Lstat { path: u8 },
    Fstat { slot: u8 },
    Readdir { path: u8 },
    ReadFile { path: u8 },
    WriteFile { path: u8, len: u32, seed: u64 },
    Map { map: u8, slot: u8, at: u64, len: u32, shared: bool, writable: bool },
    MapRead { map: u8, at: u64, len: u32 },
    MapStore { map: u8, at: u64, len: u32, seed: u64 },
    Msync { map: u8 },
    Unmap { map: u8 },
    SetXattr { path: u8, name: u8, len: u32, seed: u64, flags: u32 },
    GetXattr { path: u8, name: u8 },
    ListXattr { path: u8 },
    RemoveXattr { path: u8, name: u8 },
    CopyRange { from: u8, from_at: u64, to: u8, to_at: u64, len: u32 },
    Flock { slot: u8, how: u8 },
    StageOut { path: u8 },
    Evict { path: u8 },
}

/// Number of kinds that [`Generator`] draws from.
const KINDS: usize = 47;

/// Bits of `fallocate`'s mode that stories use.
const FALLOCATE_MODES: [u32; 5] = [
    0,
    libc::FALLOC_FL_KEEP_SIZE as u32,
    (libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE) as u32,
    libc::FALLOC_FL_ZERO_RANGE as u32,
    (libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE) as u32,
];

/// Generator of operations. Each story has its own preferences: some kinds come often, some never.
pub struct Generator {
    chance: Chance,
    weights: [u64; KINDS],
    /// Largest file, bytes.
    size_max: u64,
    next_seed: u64,
}

impl Generator {
    /// Creates the generator of a story. `commands`: also draws `stage out` and `evict`.
    pub fn new(seed: u64, size_max: u64, commands: bool) -> Generator {
        let mut chance = Chance::new(seed);
        let mut weights = [0; KINDS];
        for weight in &mut weights {
            *weight = chance.of(&[0, 1, 1, 2, 2, 4, 8]);
        }
        for always in [0, 0, 4, 5, 7, 30, 34, 35, 36] {
            weights[always] += 6;
        }
        for command in [45, 46] {
            weights[command] = if commands { 2 } else { 0 };
        }
        Generator { chance, weights, size_max, next_seed: seed << 20 }
    }

    /// The next operation.
    pub fn next(&mut self) -> Op {
        let mut left = self.chance.below(self.weights.iter().sum());
        let mut kind = 0;
        while left >= self.weights[kind] {
            left -= self.weights[kind];
            kind += 1;
        }
        match kind {
            0..=10 => self.of_descriptors(kind),
            11..=22 => self.of_names(kind),
            23..=33 => self.of_attributes(kind),
            _ => self.of_mappings_and_others(kind),
        }
    }

    fn of_descriptors(&mut self, kind: usize) -> Op {
        let (slot, from) = (self.small(), self.small());
        match kind {
            0 => Op::Open { slot, path: self.path(), flags: self.flags() },
            1 => Op::Reopen { slot, from, flags: self.flags() },
            2 => Op::Dup { slot, from },
            3 => Op::Close { slot },
            4 => Op::Pread { slot, at: self.at(), len: self.len() },
            5 => Op::Pwrite { slot, at: self.at(), len: self.len(), seed: self.seed() },
            6 => Op::Read { slot, len: self.len() },
            7 => Op::Write { slot, len: self.len() / 4, seed: self.seed() },
            8 => Op::SeekTo { slot, at: self.at() },
            9 => Op::SeekEnd { slot },
            _ => Op::Holes { slot },
        }
    }

    fn of_names(&mut self, kind: usize) -> Op {
        let (slot, path) = (self.small(), self.path());
        match kind {
            11 => Op::Ftruncate { slot, len: self.at() },
            12 => Op::Truncate { path, len: self.at() },
            13 => Op::Fallocate {
                slot,
                mode: self.chance.of(&FALLOCATE_MODES),
                at: self.at(),
                len: u64::from(self.len()) + 1,
            },
            14 => Op::Sync { slot, data_only: self.chance.once_in(2) },
            15 => Op::Rename { from: path, to: self.path(), flags: self.chance.of(&[0, 0, 0, 1, 2]) },
            16 => Op::Link { from: path, to: self.path() },
            17 => Op::Symlink { target: self.chance.below(TARGETS.len() as u64) as u8, path },
            18 => Op::Readlink { path },
            19 => Op::Unlink { path },
            20 => Op::Mkdir { path, mode: self.mode() },
            21 => Op::Rmdir { path },
            _ => Op::Mkfifo { path },
        }
    }

    fn of_attributes(&mut self, kind: usize) -> Op {
        let (slot, path) = (self.small(), self.path());
        // Explicit times lie before 2001, so that they cannot be taken for the time of a write.
        let seconds = (!self.chance.once_in(4)).then_some(1000 * (self.next_seed % 900_000) as i64);
        match kind {
            23 => Op::Chmod { path, mode: self.mode() },
            24 => Op::Fchmod { slot, mode: self.mode() },
            25 => Op::Chown { path, uid: self.chance.below(3) as u32 },
            26 => Op::Utimens { path, seconds },
            27 => Op::Futimens { slot, seconds },
            28 => Op::Stat { path },
            29 => Op::Lstat { path },
            30 => Op::Fstat { slot },
            31 => Op::Readdir { path: self.chance.below(4) as u8 },
            32 => Op::ReadFile { path },
            _ => Op::WriteFile { path, len: self.len(), seed: self.seed() },
        }
    }

    fn of_mappings_and_others(&mut self, kind: usize) -> Op {
        let (slot, path, map, name) = (self.small(), self.path(), self.small(), self.chance.below(3) as u8);
        match kind {
            34 => Op::Map {
                map,
                slot,
                at: self.at() & !4095,
                len: self.len() + 1,
                shared: !self.chance.once_in(4),
                writable: !self.chance.once_in(3),
            },
            35 => Op::MapRead { map, at: self.at(), len: self.len() },
            36 => Op::MapStore { map, at: self.at(), len: self.len(), seed: self.seed() },
            37 => Op::Msync { map },
            38 => Op::Unmap { map },
            39 => {
                let (len, seed) = (self.chance.below(200) as u32, self.seed());
                Op::SetXattr { path, name, len, seed, flags: self.chance.of(&[0, 0, 1, 2]) }
            }
            40 => Op::GetXattr { path, name },
            41 => Op::ListXattr { path },
            42 => Op::RemoveXattr { path, name },
            43 => {
                let (from_at, to_at, len) = (self.at(), self.at(), self.len());
                Op::CopyRange { from: slot, from_at, to: self.small(), to_at, len }
            }
            44 => Op::Flock { slot, how: self.chance.below(3) as u8 },
            45 => Op::StageOut { path },
            _ => Op::Evict { path },
        }
    }

    fn small(&mut self) -> u8 {
        self.chance.below(8) as u8
    }

    fn path(&mut self) -> u8 {
        if self.chance.once_in(2) { self.chance.of(&FILES) } else { self.chance.below(PATHS.len() as u64) as u8 }
    }

    fn at(&mut self) -> u64 {
        self.chance.size(self.size_max * 3 / 4)
    }

    fn len(&mut self) -> u32 {
        self.chance.size(self.size_max / 4) as u32
    }

    fn mode(&mut self) -> u32 {
        self.chance.of(&[0o644, 0o600, 0o755, 0o444, 0o000, 0o4755, 0o2711])
    }

    fn seed(&mut self) -> u64 {
        self.next_seed += 1;
        self.next_seed
    }

    fn flags(&mut self) -> u32 {
        let mut flags = self.chance.of(&[OFlags::RDONLY, OFlags::WRONLY, OFlags::RDWR, OFlags::RDWR]);
        let extras = [OFlags::CREATE, OFlags::CREATE, OFlags::TRUNC, OFlags::APPEND, OFlags::EXCL, OFlags::NOFOLLOW];
        for (extra, rarity) in extras.into_iter().zip([2, 2, 6, 5, 12, 12]) {
            if self.chance.once_in(rarity) {
                flags |= extra;
            }
        }
        if self.chance.once_in(20) {
            flags |= OFlags::DIRECTORY;
        }
        flags.bits()
    }
}
