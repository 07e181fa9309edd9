//! A regular file that somebody has open: its local file, and whether that was written.
//!
//! The kernel writes local files without telling anybody. A local file with the time [`UNWRITTEN`], or with the time and size
//! that the tree has, was not written since it was settled. The first open for writing sets [`UNWRITTEN`], so any write
//! afterwards shows.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use concurrency::{Mutex, MutexGuard};
use data_store::{OpenHow, Overlay};
use delegation::{DataPlace, DelegatedTree, NodeNumber, NotedContent};
use global_store::posix::lease::{self, Nobody};
use rustix::fs::Stat;
use rustix::io::Errno;
use types::{HasErrno, Step, Timestamp, Version};

use super::contents;
use super::dating::Dating;
use super::directory::{LocalDirectory, LocalFile, UNWRITTEN, mtime_of, times_with};
use super::limits;
use super::packs::{PackedFile, Source};

/// A regular file while somebody has it open. All its handles share one descriptor.
pub(super) struct OpenNode {
    pub number: NodeNumber,
    /// Handles, changed under the lock of the table.
    pub handles: AtomicU32,
    /// Held while the local file is made, or given up.
    pub(super) making: Mutex<()>,
    pub using: Mutex<NodeUse>,
    /// Held by an append, which needs the position of the descriptor for writing.
    pub appending: Mutex<()>,
    pub dating: Dating,
}

/// State of an open file.
#[derive(Default)]
pub(super) struct NodeUse {
    pub local: Option<LocalFile>,
    /// The content in the pack, while nobody needs a local file.
    pub packed: Option<PackedFile>,
    /// The local file, open for reading and writing, once that was needed.
    fd: Option<Arc<OwnedFd>>,
    /// Handles that may write, and one for the kernel while `is_mapped`.
    pub writers: u32,
    /// Whether the kernel may have written without the agent, and may have mapped the file, since nobody could.
    pub is_bypassed: bool,
    /// Whether the file may still be mapped, although the last handle that could write was closed. Also if the log did not take its size.
    is_mapped: bool,
    /// Whether the last name is gone.
    pub unlinked: bool,
    /// Whether the data was dropped, although the node may still say where it was.
    pub is_dropped: bool,
    /// Place of the data when the last name went, if somebody was about to open or to move the data then.
    pub left: Option<DataPlace>,
    /// Whether the local file is new or was written, so that it may go into the pack after the last close.
    pub may_pack: bool,
    /// Size and time of the local file that the tree has got since the first open for writing.
    noted: Option<(u64, Timestamp)>,
    /// Whether bytes were copied to the global store since then, so that a write within one tick of the clock could be missed.
    pub copied: bool,
}

/// The tree and the local files to which an open file belongs.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub tree: &'a DelegatedTree,
    pub directory: &'a Arc<LocalDirectory>,
}

impl Place<'_> {
    /// Drops a file of which nobody will ask any more, once the log has durably that no node has it.
    pub fn drop_file(self, number: u64) {
        self.drop_data(DataPlace::Replica(number));
    }

    /// Drops data that was in this place, as [`drop_file`](Place::drop_file) does.
    pub fn drop_data(self, data: DataPlace) {
        self.directory.drop_data(data, self.tree.log().end());
    }
}

impl OpenNode {
    pub fn new(number: NodeNumber) -> OpenNode {
        OpenNode {
            number,
            handles: AtomicU32::new(0),
            making: Mutex::default(),
            using: Mutex::default(),
            appending: Mutex::default(),
            dating: Dating::default(),
        }
    }

    /// Opens or makes the local file, unless another open has done that. The log has its number before this returns.
    pub fn prepare(&self, place: Place<'_>, how: &OpenHow, interrupted: &dyn Fn() -> bool) -> io::Result<()> {
        let _making = self.wait_for_maker(interrupted)?;
        {
            let using = self.using.lock();
            if using.local.is_some() || using.packed.is_some() && !how.truncate {
                return Ok(());
            }
        }
        if !how.truncate
            && let Some(packed) = self.find_packed(place)?
        {
            self.using.lock().packed = Some(packed);
            return Ok(());
        }
        let file = self.find_or_make(place, how, interrupted)?;
        let mut using = self.using.lock();
        using.may_pack |= file.is_new;
        // From here on, those who read the pack read the local file as well.
        (using.local, using.packed) = (Some(file), None);
        Ok(())
    }

    /// Finds the content of a file that is in the pack. Whoever writes it makes it a local file first.
    fn find_packed(&self, Place { tree, directory }: Place<'_>) -> io::Result<Option<PackedFile>> {
        match tree.content(self.number) {
            None => Err(Errno::NOENT.into()),
            Some(NotedContent { place: DataPlace::Packed(number), has_name, .. }) => {
                // Whoever dropped the last handle after the last name has dropped the data.
                if !has_name {
                    return Err(Errno::NOENT.into());
                }
                directory.packs.find(number).map(Some).ok_or(Errno::IO.into()).step("find the packed file")
            }
            Some(_) => Ok(None),
        }
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

    fn find_or_make(&self, place: Place<'_>, how: &OpenHow, interrupted: &dyn Fn() -> bool) -> io::Result<LocalFile> {
        let Place { tree, directory } = place;
        let content = tree.content(self.number).ok_or(Errno::NOENT)?;
        let file = match content.place {
            // Whoever dropped the last handle after the last name has dropped the data.
            DataPlace::Replica(_) if !content.has_name => return Err(Errno::NOENT.into()),
            DataPlace::Replica(number) => {
                if let Some(file) = directory.claim(number) {
                    return Ok(file);
                }
                return match directory.find(number) {
                    Ok(file) => Ok(file),
                    Err(error) if error.errno() == Some(libc::ENOENT) => {
                        Err(io::Error::from_raw_os_error(libc::EIO)).step("find the local file")
                    }
                    Err(error) => Err(error),
                };
            }
            DataPlace::None => self.make(place, content.size)?,
            DataPlace::BelowOnly if how.truncate => directory.take()?,
            DataPlace::BelowOnly => contents::copy_in(place, self.number, content.size, interrupted)?,
            DataPlace::Packed(_) if !content.has_name && self.using.lock().packed.is_none() => {
                return Err(Errno::NOENT.into());
            }
            DataPlace::Packed(number) => return self.unpack(place, number, how.truncate),
            DataPlace::Outside => return Err(Errno::IO.into()),
        };
        match tree.set_place(self.number, DataPlace::Replica(file.number)) {
            Ok(()) => Ok(file),
            Err(error) => {
                directory.remove(file.number);
                Err(error)
            }
        }
    }

    /// Makes a local file that is one hole of `size` bytes.
    fn make(&self, Place { directory, .. }: Place<'_>, size: u64) -> io::Result<LocalFile> {
        let file = directory.take()?;
        if size == 0 {
            return Ok(file);
        }
        let sized = directory.open_file(file.number).and_then(|fd| {
            rustix::fs::ftruncate(&fd, size)?;
            Ok(rustix::fs::futimens(&fd, &times_with(UNWRITTEN))?)
        });
        if let Err(error) = sized {
            directory.remove(file.number);
            return Err(error);
        }
        Ok(file)
    }

    /// Counts a handle that may write. From now on, each write shows in the time of the local file.
    pub fn begin_writing(&self, place: Place<'_>) -> io::Result<()> {
        let mut using = self.using.lock();
        if using.writers == 0 {
            let is_old = using.local.as_mut().is_some_and(|local| !std::mem::take(&mut local.is_new));
            if is_old {
                using.settle(place, self.number, false)?;
                using.mark(place)?;
            }
            (using.noted, using.copied) = (None, false);
            using.may_pack |= using.local.is_some();
        }
        using.writers += 1;
        Ok(())
    }

    /// Ends a handle that may write. The last one leaves size and time in the tree. If a program may have the file mapped, the kernel
    /// goes on as one more handle: returns true if so. `later`: that is not looked at now.
    pub fn end_writing(&self, place: Place<'_>, later: bool) -> bool {
        let mut using = self.using.lock();
        let is_last = using.writers == 1;
        let may_be_mapped = is_last && !using.unlinked && (later || using.is_bypassed && !using.is_alone(place));
        if may_be_mapped || is_last && !using.end(place, self.number) {
            using.is_mapped = true;
            return true;
        }
        using.writers -= 1;
        false
    }

    /// Looks whether a file without handles that write is still mapped. Returns true if it was so far, and is not any more. The
    /// kernel's handle is to be released then.
    pub fn is_unmapped_now(&self, place: Place<'_>) -> bool {
        let mut using = self.using.lock();
        if !using.is_mapped || !(using.unlinked || !using.is_bypassed || using.is_alone(place)) {
            return false;
        }
        if using.writers == 1 && !using.end(place, self.number) {
            return false;
        }
        using.is_mapped = false;
        using.writers -= 1;
        true
    }

    /// Whether the file has a local one that nobody but this agent has open or mapped.
    pub fn is_alone(&self, place: Place<'_>) -> bool {
        let mut using = self.using.lock();
        using.local.is_some() && using.is_alone(place)
    }

    /// Whether the kernel has a handle of the file.
    pub fn is_mapped(&self) -> bool {
        self.using.lock().is_mapped
    }

    /// Returns the number of the local file, and that of the content in the pack: one of both.
    pub fn versions(&self) -> (Option<Version>, Option<Version>) {
        let using = self.using.lock();
        let local = using.local.as_ref().map(|local| Version(local.number));
        (local, using.packed.as_ref().map(|packed| Version(packed.number)))
    }

    /// Returns where the bytes are to be read.
    pub fn source(&self, place: Place<'_>) -> io::Result<Source> {
        let mut using = self.using.lock();
        match &using.packed {
            Some(packed) => Ok(Source::Packed(packed.clone())),
            None => Ok(Source::Local(using.fd(place)?)),
        }
    }

    /// Notes that the last name may be gone. Drops the data if nobody has the file open.
    pub fn unlinked(&self, place: Place<'_>) {
        let making = self.making.try_lock();
        let mut using = self.using.lock();
        let content = place.tree.content(self.number);
        using.unlinked = content.is_none_or(|content| !content.has_name);
        if let Some(content) = content.filter(|content| !content.has_name) {
            using.give_up(place, content.place, making.is_some());
        }
    }

    /// Notes that the tree has dropped the node, with this place of its data. Drops that if nobody has it open.
    pub fn dropped(&self, place: Place<'_>, data: DataPlace) {
        let making = self.making.try_lock();
        let mut using = self.using.lock();
        using.unlinked = true;
        using.give_up(place, data, making.is_some());
    }

    /// Returns the descriptor of the local file, for reading and writing.
    pub fn fd(&self, place: Place<'_>) -> io::Result<Arc<OwnedFd>> {
        self.using.lock().fd(place)
    }

    /// Returns a descriptor of the local file that stands in no lease's way.
    pub fn path(&self) -> Option<Arc<OwnedFd>> {
        self.using.lock().local.as_ref().map(|local| Arc::clone(&local.path))
    }
}

impl NodeUse {
    /// Whether nobody has opened the data.
    pub fn is_unused(&self) -> bool {
        self.local.is_none() && self.packed.is_none()
    }

    /// Drops data that no node has any more, unless somebody has opened it. `now`: nobody makes or moves it; who does drops it at the
    /// last close, without a wait here.
    fn give_up(&mut self, place: Place<'_>, data: DataPlace, now: bool) {
        if !now {
            self.left = Some(data);
        } else if self.is_unused() {
            self.is_dropped = true;
            place.drop_data(data);
        }
    }

    fn fd(&mut self, Place { directory, .. }: Place<'_>) -> io::Result<Arc<OwnedFd>> {
        if self.fd.is_none() {
            let number = self.local.as_ref().ok_or(Errno::IO)?.number;
            self.fd = Some(Arc::new(directory.open_file(number)?));
        }
        Ok(Arc::clone(self.fd.as_ref().expect("just opened")))
    }

    /// Whether nobody but this agent has the local file open or mapped. Descriptors and mappings of the kernel count.
    fn is_alone(&mut self, place: Place<'_>) -> bool {
        let alone = |fd: Arc<OwnedFd>| lease::probe(fd.as_fd(), Nobody::Uses);
        self.local.is_none() || self.fd(place).and_then(alone).unwrap_or(false)
    }

    /// Settles a file that nobody can write any more, unless its last name is gone. Returns false if the log does not take that now.
    fn end(&mut self, place: Place<'_>, node: NodeNumber) -> bool {
        if !self.unlinked
            && let Err(error) = self.settle(place, node, true)
        {
            tracing::warn!(%error, node = node.0, "size and time of a closed file cannot be noted now");
            return false;
        }
        self.is_bypassed = false;
        true
    }

    /// Marks the local file as unwritten: the tree has its size, and the time that counts.
    pub fn mark(&mut self, Place { directory, .. }: Place<'_>) -> io::Result<()> {
        if let Some(local) = &self.local {
            directory.mark(local.number)?;
        }
        self.noted = None;
        Ok(())
    }

    /// Brings size and time of what was written into the tree. `ends`: the last handle that may write is being closed.
    pub fn settle(&mut self, at: Place<'_>, node: NodeNumber, ends: bool) -> io::Result<()> {
        let (Some(local), tree) = (&self.local, at.tree) else { return Ok(()) };
        let stat = local.stat()?;
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
            self.mark(at)?;
        }
        Ok(())
    }

    /// Returns what `stat` must show; `None` if the tree says it.
    pub fn overlay(&self, content: &NotedContent) -> io::Result<Option<Overlay>> {
        let Some(local) = self.local.as_ref().filter(|_| self.writers > 0) else { return Ok(None) };
        let stat = local.stat()?;
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
