//! The end of data that no node has any more: an object of the pack goes, and a local file is emptied for the next node.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use delegation::DataPlace;
use global_store::posix::lease::{self, Nobody};
use global_store::posix::reopen_as_path;
use types::Version;

use super::directory::{LocalDirectory, LocalFile, UNWRITTEN, name_of, next_number, share_of, times_with};
use super::keeper::{self, Chore};
use super::limits::{READY_MAX, SPARE_MAX};
use crate::fault;

impl LocalDirectory {
    /// Drops data of which nobody will ask any more, in this place. It stays until the log is durable up to `after`: a crash of the
    /// machine may give it back to a node.
    pub fn drop_data(&self, data: DataPlace, after: u64) {
        match data {
            DataPlace::Replica(number) => {
                drop(self.claim(number));
                self.dropping.fetch_add(1, Ordering::Relaxed);
            }
            DataPlace::Packed(_) => _ = self.packs.dropping.fetch_add(1, Ordering::Relaxed),
            DataPlace::None | DataPlace::BelowOnly | DataPlace::Outside => return,
        }
        self.dropped.lock().push_back((after, data));
    }

    /// Drops data that has waited for the log, which is durable up to `upto`, as the pack is. Nobody waits for that, unless too much
    /// is to be dropped.
    pub fn names_synced(self: &Arc<LocalDirectory>, upto: u64) {
        loop {
            let next = self.dropped.lock().pop_front_if(|(after, _)| *after <= upto);
            match next {
                None => return,
                Some((_, DataPlace::Packed(number))) => {
                    self.packs.remove(number);
                    self.packs.dropping.fetch_sub(1, Ordering::Relaxed);
                    fault::point("unpack.removed");
                }
                Some((_, DataPlace::Replica(number))) => {
                    fault::point("pack.durable");
                    if !keeper::give(Chore::Drop(Arc::clone(self), number)) {
                        self.drop_waiting(number);
                    }
                }
                Some(_) => {}
            }
        }
    }

    /// Drops a file that has waited for that, unless the directory is not used any more: it is about to be removed.
    pub fn drop_waiting(&self, number: u64) {
        let closed = self.closed.lock();
        if !*closed {
            self.drop_now(number);
        }
        drop(closed);
        self.dropping.fetch_sub(1, Ordering::Relaxed);
    }

    /// Empties a file for a next node, or removes it.
    pub(super) fn drop_now(&self, number: u64) {
        if let Some(tell) = self.removals.get() {
            tell(Version(number));
        }
        if self.spare.lock().len() < SPARE_MAX
            && let Ok(fd) = self.open_file(number)
            // A mapping outlives the last close. Whoever has one would see the next file, and write it.
            && lease::probe(fd.as_fd(), Nobody::Uses).unwrap_or(false)
            // Nor has it a second name, under which it was saved.
            && rustix::fs::fstat(&fd).is_ok_and(|stat| stat.st_nlink == 1)
            && let Ok(emptied) = self.empty(number, fd)
        {
            if self.ready.lock().len() < share_of(READY_MAX) {
                self.keep_ready(emptied);
            } else {
                self.spare.lock().push(emptied.number);
            }
            return;
        }
        self.remove(number);
    }

    /// Empties a file and gives it a new number. The old one may stand in what a crash of the machine leaves of the log.
    fn empty(&self, number: u64, fd: OwnedFd) -> io::Result<LocalFile> {
        rustix::fs::ftruncate(&fd, 0)?;
        rustix::fs::futimens(&fd, &times_with(UNWRITTEN))?;
        let new = next_number();
        rustix::fs::renameat(&self.fd, name_of(number), &self.fd, name_of(new))?;
        self.has_new_names.store(true, Ordering::Release);
        let path = reopen_as_path(fd.as_fd());
        if path.is_err() {
            self.remove(new);
        }
        // Ext4 writes back a file that was cut to nothing at its next close (`auto_da_alloc`). That is this one.
        drop(fd);
        fault::point("pack.emptied");
        Ok(LocalFile { number: new, path: Arc::new(path?), is_new: true })
    }
}
