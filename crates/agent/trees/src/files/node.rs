//! A regular file that somebody has open: its local file, and whether that was written.
//!
//! The kernel writes local files without telling anybody. A local file with the time [`UNWRITTEN`], or with the time and size
//! that the tree has, was not written since it was settled. The first open for writing sets [`UNWRITTEN`], so any write
//! afterwards shows.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use concurrency::{Mutex, MutexGuard};
use data_store::{OpenHow, Overlay};
use delegation::{BelowState, DataPlace, DelegatedTree, NodeNumber, NotedContent};
use rustix::fs::{OFlags, Stat};
use rustix::io::Errno;
use types::{HasErrno, Step, Timestamp, Version};

use super::contents;
use super::directory::{LocalDirectory, UNWRITTEN, mtime_of, times_with};
use super::limits;

/// A regular file while somebody has it open. All its handles share one descriptor.
pub(super) struct OpenNode {
    pub number: NodeNumber,
    /// Handles, changed under the lock of the table.
    pub handles: AtomicU32,
    /// Held while the local file is made.
    making: Mutex<()>,
    pub using: Mutex<NodeUse>,
    /// Held by an append, which needs the position of the descriptor for writing.
    pub appending: Mutex<()>,
}

/// State of an open file.
#[derive(Default)]
pub(super) struct NodeUse {
    pub local: Option<LocalFile>,
    /// Handles that may write.
    pub writers: u32,
    /// Whether the last name is gone.
    pub unlinked: bool,
    /// Size and time of the local file that the tree has got since the first open for writing.
    noted: Option<(u64, Timestamp)>,
    /// Whether bytes were copied to the global store since then, so that a write within one tick of the clock could be missed.
    pub copied: bool,
}

/// The local file of an open file.
pub(super) struct LocalFile {
    pub number: u64,
    /// Open for reading.
    pub fd: Arc<OwnedFd>,
    /// Open for both, once a write was made through the agent.
    writing: Option<Arc<OwnedFd>>,
    /// Whether nobody could write since the file was made.
    is_new: bool,
}

/// The tree and the local files to which an open file belongs.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub tree: &'a DelegatedTree,
    pub directory: &'a LocalDirectory,
}

impl OpenNode {
    pub fn new(number: NodeNumber) -> OpenNode {
        OpenNode {
            number,
            handles: AtomicU32::new(0),
            making: Mutex::default(),
            using: Mutex::default(),
            appending: Mutex::default(),
        }
    }

    /// Opens or makes the local file, unless another open has done that. The log has its number before this returns.
    pub fn prepare(&self, place: Place<'_>, how: &OpenHow, interrupted: &dyn Fn() -> bool) -> io::Result<()> {
        let _making = self.wait_for_maker(interrupted)?;
        if self.using.lock().local.is_some() {
            return Ok(());
        }
        let (number, fd, is_new) = self.find_or_make(place, how, interrupted)?;
        self.using.lock().local = Some(LocalFile { number, fd: Arc::new(fd), writing: None, is_new });
        Ok(())
    }

    fn wait_for_maker(&self, interrupted: &dyn Fn() -> bool) -> io::Result<MutexGuard<'_, ()>> {
        loop {
            if let Some(making) = self.making.try_lock() {
                return Ok(making);
            }
            if interrupted() {
                return Err(Errno::INTR.into());
            }
            concurrency::sleep(limits::MAKER_POLL);
        }
    }

    fn find_or_make(
        &self,
        place: Place<'_>,
        how: &OpenHow,
        interrupted: &dyn Fn() -> bool,
    ) -> io::Result<(u64, OwnedFd, bool)> {
        let Place { tree, directory } = place;
        let content = tree.content(self.number).ok_or(Errno::NOENT)?;
        let (number, fd) = match content.place {
            DataPlace::Replica(number) => {
                let opened = directory.open_file(number, OFlags::RDONLY);
                return match opened {
                    Ok(fd) => Ok((number, fd, false)),
                    // Whoever removed the last name has dropped the data.
                    Err(error) if error.errno() == Some(libc::ENOENT) && content.has_name => {
                        Err(io::Error::from_raw_os_error(libc::EIO)).step("find the local file")
                    }
                    Err(error) => Err(error),
                };
            }
            DataPlace::None => self.make(place, content.size)?,
            DataPlace::BelowOnly if how.truncate => directory.create(OFlags::RDONLY)?,
            DataPlace::BelowOnly => contents::copy_in(place, self.number, content.size, interrupted)?,
            DataPlace::Packed(_) => return Err(Errno::IO.into()),
        };
        match tree.set_place(self.number, DataPlace::Replica(number)) {
            Ok(()) => Ok((number, fd, true)),
            Err(error) => {
                directory.remove(number);
                Err(error)
            }
        }
    }

    /// Makes a local file that is one hole of `size` bytes.
    fn make(&self, Place { directory, .. }: Place<'_>, size: u64) -> io::Result<(u64, OwnedFd)> {
        if size == 0 {
            return directory.create(OFlags::RDONLY);
        }
        let (number, fd) = directory.create(OFlags::RDWR)?;
        let sized = rustix::fs::ftruncate(&fd, size).and_then(|()| rustix::fs::futimens(&fd, &times_with(UNWRITTEN)));
        if let Err(error) = sized {
            directory.remove(number);
            return Err(error.into());
        }
        Ok((number, fd))
    }

    /// Counts a handle that may write. From now on, each write shows in the time of the local file.
    pub fn begin_writing(&self, place: Place<'_>) -> io::Result<()> {
        let mut using = self.using.lock();
        if using.writers == 0 {
            let local = using.local.as_mut().ok_or(Errno::IO)?;
            if !std::mem::take(&mut local.is_new) {
                using.settle(place, self.number, false)?;
                using.mark()?;
            }
            (using.noted, using.copied) = (None, false);
        }
        using.writers += 1;
        Ok(())
    }

    /// Ends a handle that may write. The last one leaves size and time in the tree.
    pub fn end_writing(&self, place: Place<'_>) {
        let mut using = self.using.lock();
        if using.writers == 1 {
            if !using.unlinked
                && let Err(error) = using.settle(place, self.number, true)
            {
                tracing::warn!(%error, node = self.number.0, "size and time of a closed file were not noted");
            }
            if let Some(local) = &mut using.local {
                local.writing = None;
            }
        }
        using.writers -= 1;
    }

    /// Returns the number of the local file.
    pub fn version(&self) -> io::Result<Version> {
        Ok(Version(self.using.lock().local.as_ref().ok_or(Errno::IO)?.number))
    }

    /// Drops the local file, if nobody has opened it and the global store has all of it.
    pub fn evict(&self, Place { tree, directory }: Place<'_>) -> io::Result<bool> {
        // Whoever opens the file meanwhile waits, and copies it again.
        let _making = self.making.lock();
        if self.using.lock().local.is_some() {
            return Ok(false);
        }
        let Some(content) = tree.content(self.number) else { return Ok(false) };
        let DataPlace::Replica(number) = content.place else { return Ok(false) };
        let is_below = matches!(tree.state(self.number), Some(state)
            if matches!(&state.below, BelowState::At(copy) if copy.identity.is_some()));
        if content.is_pending || !content.has_name || !is_below {
            return Ok(false);
        }
        tree.set_place(self.number, DataPlace::BelowOnly)?;
        directory.remove(number);
        Ok(true)
    }

    /// Returns the descriptor for reading.
    pub fn reading_fd(&self) -> io::Result<Arc<OwnedFd>> {
        let using = self.using.lock();
        Ok(Arc::clone(&using.local.as_ref().ok_or(Errno::IO)?.fd))
    }

    /// Returns the descriptor for writing, which is opened at the first need. Nobody but this agent may use it.
    pub fn writing_fd(&self, directory: &LocalDirectory) -> io::Result<Arc<OwnedFd>> {
        let mut using = self.using.lock();
        let local = using.local.as_mut().ok_or(Errno::IO)?;
        if local.writing.is_none() {
            local.writing = Some(Arc::new(directory.open_file(local.number, OFlags::RDWR)?));
        }
        Ok(Arc::clone(local.writing.as_ref().expect("just opened")))
    }
}

impl NodeUse {
    /// Marks the local file as unwritten: the tree has its size, and the time that counts.
    pub fn mark(&mut self) -> io::Result<()> {
        if let Some(local) = &self.local {
            rustix::fs::futimens(&local.fd, &times_with(UNWRITTEN))?;
        }
        self.noted = None;
        Ok(())
    }

    /// Brings size and time of what was written into the tree. `ends`: the last handle that may write is being closed.
    pub fn settle(&mut self, Place { tree, .. }: Place<'_>, node: NodeNumber, ends: bool) -> io::Result<()> {
        let Some(local) = &self.local else { return Ok(()) };
        let stat = rustix::fs::fstat(&local.fd)?;
        let Some(content) = tree.content(node) else { return Ok(()) };
        let found = (stat.st_size as u64, mtime_of(&stat));
        let is_equal = found == (content.size, content.mtime);
        let mtime = match found.1 {
            UNWRITTEN if found.0 == content.size => return Ok(()),
            UNWRITTEN => content.mtime,
            _ if self.writers == 0 && is_equal => return Ok(()),
            // A write of the same tick may have come after the copy: another time makes the store get it.
            mtime if self.noted == Some(found) => match (ends && self.copied, is_equal) {
                (false, _) => return Ok(()),
                (true, true) => mtime.next(),
                (true, false) => content.mtime.next(),
            },
            // It was written, in the tick in which it was written before.
            mtime if is_equal => mtime.next(),
            mtime => mtime,
        };
        let place = DataPlace::Replica(local.number);
        match tree.set_content(node, found.0, mtime, place) {
            Err(error) if error.errno() == Some(libc::ENOENT) => return Ok(()),
            done => done?,
        }
        (self.noted, self.copied) = (Some(found), false);
        if ends && mtime != found.1 {
            self.mark()?;
        }
        Ok(())
    }

    /// Returns what `stat` must show; `None` if the tree says it.
    pub fn overlay(&self, content: &NotedContent) -> io::Result<Option<Overlay>> {
        let Some(local) = self.local.as_ref().filter(|_| self.writers > 0) else { return Ok(None) };
        let stat = rustix::fs::fstat(&local.fd)?;
        let mtime = self.shown_mtime(&stat, content);
        let (size, blocks, ctime) = (stat.st_size as u64, stat.st_blocks as u64, content.ctime.max(mtime_shown(&stat)));
        Ok(Some(Overlay { ahead: true, size, blocks, mtime, ctime, below: None }))
    }

    fn shown_mtime(&self, stat: &Stat, content: &NotedContent) -> Timestamp {
        let found = (stat.st_size as u64, mtime_of(stat));
        if found.1 == UNWRITTEN || self.noted == Some(found) { content.mtime } else { found.1 }
    }
}

/// Returns the time of the last write, or the earliest of all times if there was none.
fn mtime_shown(stat: &Stat) -> Timestamp {
    let earliest = Timestamp { seconds: i64::MIN, nanos: 0 };
    Some(mtime_of(stat)).filter(|mtime| *mtime != UNWRITTEN).unwrap_or(earliest)
}
