//! Attributes of files: reading and changing them.

use std::io;

use data_store::{NewTime, OpenData};
use global_store::calls::StoreCall;
use rustix::fs::{self, AtFlags, Gid, Mode, Stat, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, Uid};
use rustix::io::Errno;

use crate::agent::Agent;
use crate::caller::{Caller, Judge};
use crate::limits;
use crate::node::Node;
use crate::open_file::OpenFile;
use crate::stat::{Attributes, FileSystemSpace, of_stat};

/// Changes of attributes. `None` leaves an attribute unchanged.
#[derive(Debug, Clone, Copy, Default)]
#[allow(missing_docs, reason = "the fields of stat(3type)")]
pub struct NewAttributes {
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub size: Option<u64>,
    pub atime: Option<NewTime>,
    pub mtime: Option<NewTime>,
    /// The size is changed by a caller that may not keep the set-id bits.
    pub clear_set_id: bool,
}

impl NewAttributes {
    /// Whether times are set explicitly. A truncation comes with the current time, and the file system updates the time
    /// anyway.
    fn sets_times(&self) -> bool {
        let moves_itself = self.size.is_some() && self.atime.is_none() && self.mtime == Some(NewTime::Now);
        !moves_itself && (self.atime.is_some() || self.mtime.is_some())
    }

    fn sets_times_alone(&self) -> bool {
        self.size.is_none() && self.sets_times()
    }
}

impl Agent {
    /// Reads a node's attributes in the global store.
    pub(crate) fn stat(&self, node: &Node) -> io::Result<Stat> {
        let said = self.below(StoreCall::Attributes, || fs::fstat(node.fd()));
        let is_gone = said.as_ref().map_or_else(|error| *error == Errno::NOENT, |stat| stat.st_nlink == 0);
        self.check_place(node, is_gone)?;
        Ok(said?)
    }

    /// Returns a node's attributes: those of the global store, with the replica's newer values in their place.
    pub fn attributes(&self, node: &Node) -> io::Result<Attributes> {
        let before = self.data.staged_count();
        self.overlaid(node, before, of_stat(&self.stat(node)?))
    }

    /// Returns the attributes of an open file whose data is an older version. Size, blocks and modification time are
    /// those of that version; the rest is the file's.
    pub fn attributes_of_version(&self, open: &OpenFile) -> io::Result<Attributes> {
        self.look(open.node(), &mut |_| Ok(()))?;
        let mut attributes = of_stat(&self.stat(open.node())?);
        if let Some(replica) = open.backing() {
            let version = of_stat(&fs::fstat(&replica)?);
            (attributes.size, attributes.blocks, attributes.mtime) = (version.size, version.blocks, version.mtime);
        }
        Ok(attributes)
    }

    /// Returns `attributes` with the replica's newer values in their place. `before`: the cache's `staged_count` before
    /// the global store was asked for `attributes`.
    pub(crate) fn overlaid(&self, node: &Node, before: u64, mut attributes: Attributes) -> io::Result<Attributes> {
        if !node.is_regular() {
            // The first query that an agent gets by itself is for a directory; a test kills the agent here.
            faults::pass("directory.asked");
            return Ok(attributes);
        }
        if !self.may_hold(node)? {
            // A replica of this file may have been staged out and dropped since the global store was asked.
            return if self.data.staged_count() == before { Ok(attributes) } else { Ok(of_stat(&self.stat(node)?)) };
        }
        self.look(node, &mut |pending| {
            let mut before = before;
            for _ in 0..limits::SETTLED_TRIES {
                // The access time comes first: once the global copy has it, the stage-out that took it there is over
                // too.
                if let Some(index) = self.data.extensions().index {
                    attributes.atime = index.accessed(node.identity(), attributes.atime);
                }
                let below = (self.data.staged_count() == before).then(|| attributes.fingerprint());
                let overlay = self.data.attributes(node.identity(), below.as_ref())?;
                overlay.iter().for_each(|overlay| attributes.lay_over(overlay));
                let now = self.data.staged_count();
                if now == before || overlay.is_some_and(|overlay| overlay.ahead) {
                    break;
                }
                // The stage-out since then may have been this file's, with its data or its access time.
                attributes = of_stat(&self.stat(node)?);
                before = now;
            }
            attributes.size = attributes.size.max(pending.map_or(0, |pending| pending.end()));
            Ok(attributes)
        })
    }

    /// Changes attributes as the caller, through the open file if there is one, and returns the new ones. `EINTR` if
    /// `interrupted` returns true while a truncation waits.
    pub fn set_attributes(
        &self,
        caller: &Caller,
        node: &Node,
        open: Option<&OpenFile>,
        new: &NewAttributes,
        interrupted: &dyn Fn() -> bool,
    ) -> io::Result<Attributes> {
        if node.is_regular() {
            self.may_hold(node)?;
        }
        let cuts_by_name = new.size.is_some() && open.is_none();
        if cuts_by_name && node.is_regular() {
            // Permission is checked in the global store first, because the changes that follow are not undone.
            self.check_access(caller, node, crate::Mode { write: true, ..crate::Mode::default() })?;
        }
        // Set times must come after all earlier writes. Records that cannot be applied now would change the times
        // later.
        match self.windows.get() {
            Some(windows) if new.sets_times_alone() => windows.apply(node.identity())?,
            _ => self.look(node, &mut |_| Ok(()))?,
        }
        if new.uid.is_some() || new.gid.is_some() {
            let _steady = self.steady(node)?;
            let (uid, gid) = (new.uid.map(Uid::from_raw), new.gid.map(Gid::from_raw));
            // The store decides by the caller's groups, so the groups are read first.
            let judge = if new.gid.is_some() { Judge::Groups } else { Judge::Node(node, 0) };
            let change = || fs::chownat(node.fd(), "", uid, gid, AtFlags::EMPTY_PATH);
            let change = || Ok(self.change_below(StoreCall::Change, change)?);
            self.as_ours(node, || self.impersonator.act(caller, judge, change))?;
        }
        if let Some(mode) = new.mode {
            if mode & 0o6000 != 0 {
                self.settle_before_privileges(node);
            }
            let _steady = self.steady(node)?;
            let mode = Mode::from_raw_mode(mode & 0o7777);
            let name = self.descriptor_name(node);
            // For a caller outside the file's group, the store clears set-group-id without an error. So the groups are
            // read first.
            let judge = if mode.contains(Mode::SGID) { Judge::Groups } else { Judge::Node(node, 0) };
            let change = || fs::chmodat(&self.descriptors, &name, mode, AtFlags::empty());
            let change = || Ok(self.change_below(StoreCall::Change, change)?);
            self.as_ours(node, || self.impersonator.act(caller, judge, change))?;
        }
        let in_use = match new.size {
            Some(size) => self.cut_to(node, open, size, new.clear_set_id, interrupted)?,
            None => None,
        };
        if new.sets_times() {
            self.set_times(caller, node, new)?;
            // Must not run while names are held steady.
            self.windows.get().map_or(Ok(()), |windows| windows.keep(node.identity()).map(drop))?;
        }
        let attributes = self.attributes(node);
        // The file is kept in use until here, so that another file that takes its place is not truncated again.
        drop(in_use);
        attributes
    }

    /// Truncates or extends a regular file. Returns a handle that keeps the file in use. Privileges that a truncation
    /// removes are removed first, and restored if it fails: bytes once cut off could not be restored.
    fn cut_to(
        &self,
        node: &Node,
        open: Option<&OpenFile>,
        size: u64,
        clear_set_id: bool,
        interrupted: &dyn Fn() -> bool,
    ) -> io::Result<Option<Box<dyn OpenData>>> {
        if !node.is_regular() {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        let taken = self.take_privileges_of(node, clear_set_id)?;
        let cut = match open {
            Some(open) => open.set_len(size).map(|()| None),
            None => self.cut(node, size, &mut || {
                self.data.set_len(&node.anchor(&self.store)?, size, &self.policy_for_change(node)?, interrupted)
            }),
        };
        if cut.is_err() {
            self.give_back(node, taken);
        }
        cut
    }

    fn set_times(&self, caller: &Caller, node: &Node, new: &NewAttributes) -> io::Result<()> {
        let times = Timestamps { last_access: timespec(new.atime), last_modification: timespec(new.mtime) };
        let name = self.descriptor_name(node);
        let _steady = self.steady(node)?;
        let mut apply = || {
            self.impersonator.act(caller, Judge::Node(node, 2), || {
                let change = || fs::utimensat(&self.descriptors, &name, &times, AtFlags::empty());
                Ok(self.change_below(StoreCall::Change, change)?)
            })
        };
        if !node.is_regular() {
            return apply();
        }
        if self.is_shared() {
            self.check_times(caller, node, new)?;
        }
        self.data.set_times(&node.anchor(&self.store)?, [new.atime, new.mtime], &mut apply)
    }

    /// Checks that the caller may set times where the server sets them. The owner may set any; a caller with write
    /// permission may set both to now. Errors: `EPERM`, `EACCES`.
    fn check_times(&self, caller: &Caller, node: &Node, new: &NewAttributes) -> io::Result<()> {
        if caller.uid == 0 || caller.uid == self.stat(node)?.st_uid {
            return Ok(());
        }
        if new.atime != Some(NewTime::Now) || new.mtime != Some(NewTime::Now) {
            return Err(io::Error::from_raw_os_error(libc::EPERM));
        }
        self.check_access(caller, node, crate::Mode { write: true, ..crate::Mode::default() })
    }

    /// The global store's space.
    pub fn space(&self) -> io::Result<FileSystemSpace> {
        let stat = self.below(StoreCall::Attributes, || fs::fstatvfs(self.root().fd()))?;
        Ok(FileSystemSpace {
            blocks: stat.f_blocks,
            bfree: stat.f_bfree,
            bavail: stat.f_bavail,
            files: stat.f_files,
            ffree: stat.f_ffree,
            bsize: stat.f_bsize,
            namelen: stat.f_namemax,
            frsize: stat.f_frsize,
        })
    }
}

fn timespec(time: Option<NewTime>) -> Timespec {
    match time {
        None => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        Some(NewTime::Now) => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
        Some(NewTime::At(at)) => Timespec { tv_sec: at.seconds, tv_nsec: at.nanos.into() },
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::{Duration, Instant};

    use config::Policy;
    use data_store::Residency;
    use file_cache::{FileCache, Settings};
    use global_store::posix::{PosixStore, StoreOptions};
    use rustix::fs::OFlags;

    use super::*;
    use crate::{NewMode, PolicyTable};

    const LEN: u64 = 1000;

    fn create(agent: &Agent, name: &str) -> Arc<Node> {
        let how = crate::Mode { read: true, write: true, ..crate::Mode::default() };
        let new = NewMode { mode: 0o644, umask: 0 };
        let (found, open) =
            agent.create(&Caller::own(), agent.root(), Some(name.as_ref()), new, true, how).expect("a new name");
        agent.write(&open, &[1; LEN as usize], 0, crate::WriteHow::default()).expect("room for a little");
        found.node
    }

    /// Whether a stage-out falls between the two queries for another file is chance, so the test tries many times.
    #[test]
    fn a_file_that_becomes_clean_never_tells_an_older_size() {
        let directory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let (data, buffer) = (directory.path().join("data"), directory.path().join("buffer"));
        std::fs::create_dir_all(&data).unwrap();
        let root = fs::open(&data, OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
        let store = PosixStore::new(root, StoreOptions::default()).unwrap();
        let cache = FileCache::open(Settings::new(&buffer, std::sync::Arc::new(store.clone()), "test")).unwrap();
        let policies = PolicyTable::load(Policy::default(), buffer.join("policies.toml")).unwrap();
        let agent = Agent::new(Arc::new(cache), store, policies).unwrap();
        let (end, wrong) = (Instant::now() + Duration::from_secs(3), AtomicBool::new(false));
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let (agent, wrong) = (&agent, &wrong);
                scope.spawn(move || {
                    for number in 0.. {
                        let name = format!("{thread}-{number}");
                        let node = create(agent, &name);
                        while agent.data().state(node.identity()).residency != Residency::Clean && Instant::now() < end
                        {
                            let told = agent.attributes(&node).unwrap().size;
                            wrong.fetch_or(told != LEN, Ordering::Relaxed);
                        }
                        if Instant::now() >= end {
                            return;
                        }
                        agent.unlink(&Caller::own(), agent.root(), name.as_ref()).unwrap();
                    }
                });
            }
        });
        agent.data().shutdown();
        assert!(!wrong.load(Ordering::Relaxed), "a size was told that the file never had since its write");
    }
}
