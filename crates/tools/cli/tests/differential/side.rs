//! One of the two trees of a story: its open descriptors and mappings, and the execution of operations on it.

use std::collections::HashSet;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{self, AtFlags, CWD, FileType, Mode, OFlags, SeekFrom, Timespec, Timestamps};
use rustix::io::Errno;

use crate::mapping::{Mapping, Wanted};
use crate::mounted::chance::payload;
use crate::op::{MAPS, Op, PATHS, SLOTS, TARGETS};
use crate::outcome::{Mtime, Outcome, Stat};

/// Function for the commands that only one side has: `stage out` and `evict` of a path.
pub type Command<'a> = Box<dyn Fn(&str, &Path) + 'a>;
pub type Answer = Result<Outcome, Errno>;

pub struct Slot {
    pub fd: OwnedFd,
    /// Inode number at the open.
    inode: u64,
}

/// Tree, with its open descriptors and mappings.
pub struct Side<'a> {
    pub root: PathBuf,
    /// Path of the tree past the mount, if there is a mount.
    below: Option<PathBuf>,
    command: Option<Command<'a>>,
    pub slots: [Option<Slot>; SLOTS],
    pub maps: [Option<Mapping>; MAPS],
    /// Inode numbers of files stored to through a mapping since their time was last set.
    pub stored: HashSet<u64>,
}

pub const DONE: Answer = Ok(Outcome::Value(0));

impl<'a> Side<'a> {
    /// Creates a side on a plain directory.
    pub fn plain(root: &Path) -> Side<'a> {
        Side {
            root: root.to_owned(),
            below: None,
            command: None,
            slots: Default::default(),
            maps: Default::default(),
            stored: HashSet::new(),
        }
    }

    /// Creates a side on a mounted directory. `below`: the directory past the mount, with the same inode numbers.
    pub fn mounted(root: &Path, below: Option<PathBuf>, command: Command<'a>) -> Side<'a> {
        Side { below, command: Some(command), ..Side::plain(root) }
    }

    /// Executes an operation.
    pub fn apply(&mut self, op: &Op) -> Outcome {
        let answer = match op {
            Op::Open { .. } | Op::Reopen { .. } | Op::Dup { .. } | Op::Close { .. } => self.opening(op),
            Op::Map { .. } | Op::MapRead { .. } | Op::MapStore { .. } | Op::Msync { .. } | Op::Unmap { .. } => {
                self.mapping(op)
            }
            Op::StageOut { path } => self.command("stage-out", *path),
            Op::Evict { path } => self.command("evict", *path),
            _ => match self.slot_of(op) {
                Some(None) => Ok(Outcome::Skipped),
                Some(Some(slot)) => self.data(slot, op),
                None => self.names(op),
            },
        };
        answer.unwrap_or_else(|errno| Outcome::Errno(errno.raw_os_error()))
    }

    /// Closes and unmaps everything.
    pub fn close_all(&mut self) {
        self.slots = Default::default();
        self.maps = Default::default();
    }

    pub fn path(&self, path: u8) -> PathBuf {
        self.root.join(PATHS[path as usize % PATHS.len()])
    }

    fn command(&self, name: &str, path: u8) -> Answer {
        if let Some(command) = &self.command {
            command(name, &self.path(path));
        }
        DONE
    }

    /// Returns an occupied slot; `slot` counts the occupied ones.
    fn occupied(&self, slot: u8) -> Option<usize> {
        let open: Vec<usize> = (0..SLOTS).filter(|slot| self.slots[*slot].is_some()).collect();
        (!open.is_empty()).then(|| open[slot as usize % open.len()])
    }

    /// The slot an operation on a descriptor works with; the outer `None`: it is none.
    fn slot_of(&self, op: &Op) -> Option<Option<usize>> {
        use Op::*;
        match op {
            Pread { slot, .. }
            | Pwrite { slot, .. }
            | Read { slot, .. }
            | Write { slot, .. }
            | SeekTo { slot, .. }
            | SeekEnd { slot }
            | Holes { slot }
            | Ftruncate { slot, .. }
            | Fallocate { slot, .. }
            | Sync { slot, .. }
            | Fchmod { slot, .. }
            | Futimens { slot, .. }
            | Fstat { slot }
            | Flock { slot, .. } => Some(self.occupied(*slot)),
            CopyRange { from, .. } => Some(self.occupied(*from)),
            _ => None,
        }
    }

    pub fn fd(&self, slot: usize) -> BorrowedFd<'_> {
        self.slots[slot].as_ref().expect("an occupied slot").fd.as_fd()
    }

    fn put(&mut self, slot: u8, fd: OwnedFd) -> Answer {
        let inode = fs::fstat(&fd)?.st_ino;
        self.slots[slot as usize % SLOTS] = Some(Slot { fd, inode });
        DONE
    }

    fn opening(&mut self, op: &Op) -> Answer {
        let mode = Mode::from_raw_mode(0o640);
        // A FIFO must not block, and nothing may leak into commands.
        let base = OFlags::CLOEXEC | OFlags::NONBLOCK;
        match op {
            Op::Open { slot, path, flags } => {
                let fd = fs::open(self.path(*path), OFlags::from_bits_retain(*flags) | base, mode)?;
                self.put(*slot, fd)
            }
            Op::Reopen { slot, from, flags } => {
                let Some(from) = self.occupied(*from) else { return Ok(Outcome::Skipped) };
                let link = format!("/proc/self/fd/{}", self.fd(from).as_raw_fd());
                let flags = OFlags::from_bits_retain(*flags) - OFlags::NOFOLLOW;
                let fd = fs::open(link, flags | base, mode)?;
                self.put(*slot, fd)
            }
            Op::Dup { slot, from } => {
                let Some(from) = self.occupied(*from) else { return Ok(Outcome::Skipped) };
                let fd = rustix::io::fcntl_dupfd_cloexec(self.fd(from), 3)?;
                self.put(*slot, fd)
            }
            Op::Close { slot } => {
                let Some(slot) = self.occupied(*slot) else { return Ok(Outcome::Skipped) };
                let fd = self.slots[slot].take().expect("an occupied slot").fd.into_raw_fd();
                // SAFETY: the descriptor was ours and is forgotten.
                let result = unsafe { libc::close(fd) };
                if result < 0 {
                    Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO))
                } else {
                    DONE
                }
            }
            _ => unreachable!("not an opening"),
        }
    }

    fn mapping(&mut self, op: &Op) -> Answer {
        if let Op::Map { map, slot, at, len, shared, writable } = *op {
            let Some(slot) = self.occupied(slot) else { return Ok(Outcome::Skipped) };
            let wanted = Wanted { at, len: len as usize, shared, writable };
            let mapping = Mapping::new(self.fd(slot), wanted)?;
            self.maps[map as usize % MAPS] = Some(mapping);
            return DONE;
        }
        let (Op::MapRead { map, .. } | Op::MapStore { map, .. } | Op::Msync { map } | Op::Unmap { map }) = *op else {
            unreachable!("not of a mapping")
        };
        let alive: Vec<usize> = (0..MAPS).filter(|map| self.maps[*map].is_some()).collect();
        if alive.is_empty() {
            return Ok(Outcome::Skipped);
        }
        let map = alive[map as usize % alive.len()];
        let mapping = self.maps[map].as_ref().expect("a mapping");
        // If only the mapping leads to a file, nobody else can tell its length.
        let inode = mapping.inode()?;
        if !mapping.has_name()? && !self.slots.iter().flatten().any(|slot| slot.inode == inode) {
            self.maps[map] = None;
            return Ok(Outcome::Skipped);
        }
        match *op {
            Op::MapRead { at, len, .. } => Ok(Outcome::Bytes(mapping.read(at, len as usize)?)),
            Op::MapStore { at, len, seed, .. } => {
                self.stored.insert(inode);
                Ok(Outcome::Value(mapping.store(at, &payload(seed, len as usize))? as u64))
            }
            Op::Msync { .. } => mapping.sync().and(DONE),
            _ => {
                self.maps[map] = None;
                DONE
            }
        }
    }

    fn data(&mut self, slot: usize, op: &Op) -> Answer {
        let fd = self.fd(slot);
        match *op {
            Op::Pread { at, len, .. } => {
                let mut bytes = vec![0; len as usize];
                let read = rustix::io::pread(fd, &mut bytes, at)?;
                bytes.truncate(read);
                Ok(Outcome::Bytes(bytes))
            }
            Op::Read { len, .. } => {
                let mut bytes = vec![0; len as usize];
                let read = rustix::io::read(fd, &mut bytes)?;
                bytes.truncate(read);
                Ok(Outcome::Bytes(bytes))
            }
            Op::Pwrite { at, len, seed, .. } => value(rustix::io::pwrite(fd, &payload(seed, len as usize), at)?),
            Op::Write { len, seed, .. } => value(rustix::io::write(fd, &payload(seed, len as usize))?),
            Op::SeekTo { at, .. } => Ok(Outcome::Value(fs::seek(fd, SeekFrom::Start(at))?)),
            Op::SeekEnd { .. } if kind(fs::fstat(fd)?.st_mode) == FileType::Directory => Ok(Outcome::Skipped),
            Op::SeekEnd { .. } => Ok(Outcome::Value(fs::seek(fd, SeekFrom::End(0))?)),
            // Bytes stored through a mapping may not be visible to SEEK_DATA yet. The sides may then differ in errors
            // too, so only a contradiction counts.
            Op::Holes { .. } if self.stored.contains(&fs::fstat(fd)?.st_ino) => DONE,
            Op::Holes { .. } => crate::holes::check(fd).or(DONE),
            Op::Ftruncate { len, .. } => fs::ftruncate(fd, len).and(DONE),
            Op::Fallocate { mode, at, len, .. } => {
                fs::fallocate(fd, fs::FallocateFlags::from_bits_retain(mode), at, len).and(DONE)
            }
            Op::Sync { data_only: true, .. } => fs::fdatasync(fd).and(DONE),
            Op::Sync { .. } => fs::fsync(fd).and(DONE),
            Op::Fchmod { mode, .. } => fs::fchmod(fd, Mode::from_raw_mode(mode)).and(DONE),
            Op::Futimens { seconds, .. } => {
                fs::futimens(fd, &times(seconds))?;
                self.time_set(fs::fstat(fd)?.st_ino);
                DONE
            }
            Op::Fstat { .. } => self.stat_slot(slot),
            // A mapping may hold the description that holds a lock as long as it lives, but only in the plain
            // directory.
            Op::Flock { .. } if self.is_mapped(fs::fstat(fd)?.st_ino) => Ok(Outcome::Skipped),
            Op::Flock { how, .. } => {
                use fs::FlockOperation as How;
                let how = [How::NonBlockingLockShared, How::NonBlockingLockExclusive, How::Unlock][how as usize % 3];
                fs::flock(fd, how).and(DONE)
            }
            Op::CopyRange { from_at, to, to_at, len, .. } => {
                let Some(to) = self.occupied(to) else { return Ok(Outcome::Skipped) };
                copy(fd, from_at, self.fd(to), to_at, len as usize)
            }
            _ => unreachable!("not of a descriptor"),
        }
    }

    /// The time of a file was set: it can be compared, unless stores of a living mapping may still be on their way.
    fn time_set(&mut self, inode: u64) {
        if !self.is_mapped(inode) {
            self.stored.remove(&inode);
        }
    }

    fn is_mapped(&self, inode: u64) -> bool {
        self.maps.iter().flatten().any(|mapping| mapping.inode() == Ok(inode))
    }

    fn stat_slot(&self, slot: usize) -> Answer {
        let stat = fs::fstat(self.fd(slot))?;
        let opened = self.slots[slot].as_ref().map_or(0, |slot| slot.inode);
        if stat.st_ino != opened {
            return Ok(Outcome::Broken(format!("st_ino was {opened} at open and is {} now", stat.st_ino)));
        }
        Ok(self.attributes(&stat))
    }

    pub fn attributes(&self, stat: &fs::Stat) -> Outcome {
        let directory = kind(stat.st_mode) == FileType::Directory;
        let regular = kind(stat.st_mode) == FileType::RegularFile;
        let mtime = match stat.st_mtime {
            // The data of a FIFO goes no further than the kernel, which does not tell us of it.
            _ if self.stored.contains(&stat.st_ino) || !regular => Mtime::Unknown,
            seconds if seconds < 1_000_000_000 => Mtime::Explicit(seconds),
            _ => Mtime::Recent,
        };
        Outcome::Stat(Stat {
            mode: stat.st_mode,
            links: stat.st_nlink,
            uid: stat.st_uid,
            gid: stat.st_gid,
            size: if directory { 0 } else { stat.st_size as u64 },
            mtime,
            same_as: self.slots.iter().flatten().map(|slot| slot.inode == stat.st_ino).collect(),
        })
    }

    /// Attributes of a name, which must have the inode number that it has below.
    pub fn stat_name(&self, path: u8, follow: bool) -> Answer {
        let flags = if follow { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
        let stat = fs::statat(CWD, self.path(path), flags)?;
        if let Some(below) = self.below.as_ref().filter(|_| !follow) {
            let below = fs::statat(CWD, below.join(PATHS[path as usize % PATHS.len()]), flags);
            let below = below.map(|stat| stat.st_ino);
            if below != Ok(stat.st_ino) {
                return Ok(Outcome::Broken(format!("st_ino is {} and below {below:?}", stat.st_ino)));
            }
        }
        Ok(self.attributes(&stat))
    }

    fn names(&mut self, op: &Op) -> Answer {
        match op {
            Op::Symlink { target, path } => {
                fs::symlink(TARGETS[*target as usize % TARGETS.len()], self.path(*path)).and(DONE)
            }
            Op::Utimens { path, seconds } => {
                let path = self.path(*path);
                let inode = fs::stat(&path)?.st_ino;
                fs::utimensat(CWD, &path, &times(*seconds), AtFlags::empty())?;
                self.time_set(inode);
                DONE
            }
            _ => crate::names::apply(self, op),
        }
    }
}

fn value(count: usize) -> Answer {
    Ok(Outcome::Value(count as u64))
}

fn times(seconds: Option<i64>) -> Timestamps {
    let time = match seconds {
        Some(tv_sec) => Timespec { tv_sec, tv_nsec: 123_000_000 },
        None => Timespec { tv_sec: 0, tv_nsec: fs::UTIME_NOW as _ },
    };
    Timestamps { last_access: time, last_modification: time }
}

/// `copy_file_range` until nothing more comes: where a single call stops is nobody's promise.
fn copy(from: BorrowedFd<'_>, from_at: u64, to: BorrowedFd<'_>, to_at: u64, len: usize) -> Answer {
    let (mut from_at, mut to_at, mut copied) = (from_at, to_at, 0);
    while copied < len {
        match fs::copy_file_range(from, Some(&mut from_at), to, Some(&mut to_at), len - copied) {
            Ok(0) => break,
            Ok(count) => copied += count,
            Err(_) if copied > 0 => break,
            Err(errno) => return Err(errno),
        }
    }
    value(copied)
}

/// The kind of file in a mode.
pub fn kind(mode: u32) -> FileType {
    FileType::from_raw_mode(mode)
}
