//! Attributes of files: reading and changing them.

use std::io;

use data_store::NewTime;
use namespace::{Caller, FileAttributes, FileSystemSpace, Mode};

use crate::agent::Agent;
use crate::limits;
use crate::node::Node;
use crate::open_file::OpenFile;
use crate::overlay::lay_over;

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
    pub(crate) fn stat(&self, node: &Node) -> io::Result<FileAttributes> {
        self.names.attributes(node.inode())
    }

    /// Returns a node's attributes: those of the global store, with the replica's newer values in their place.
    pub fn attributes(&self, node: &Node) -> io::Result<FileAttributes> {
        let before = self.data.staged_count();
        self.overlaid(node, before, self.stat(node)?)
    }

    /// Returns the attributes of an open file whose data is an older version. Size, blocks and modification time are
    /// those of that version; the rest is the file's.
    pub fn attributes_of_version(&self, open: &OpenFile) -> io::Result<FileAttributes> {
        self.look(open.node(), &mut |_| Ok(()))?;
        let mut attributes = self.stat(open.node())?;
        if let Some(replica) = open.backing() {
            let version = FileAttributes::of(&replica)?;
            (attributes.size, attributes.blocks, attributes.mtime) = (version.size, version.blocks, version.mtime);
        }
        Ok(attributes)
    }

    /// Returns `attributes` with the replica's newer values in their place. `before`: the cache's `staged_count` before
    /// the global store was asked for `attributes`.
    pub(crate) fn overlaid(
        &self,
        node: &Node,
        before: u64,
        mut attributes: FileAttributes,
    ) -> io::Result<FileAttributes> {
        if !node.is_regular() {
            // The first query that an agent gets by itself is for a directory; a test kills the agent here.
            faults::pass("directory.asked");
            return Ok(attributes);
        }
        if !self.may_hold(node)? {
            // A replica of this file may have been staged out and dropped since the global store was asked.
            return if self.data.staged_count() == before { Ok(attributes) } else { Ok(self.stat(node)?) };
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
                overlay.iter().for_each(|overlay| lay_over(&mut attributes, overlay));
                let now = self.data.staged_count();
                if now == before || overlay.is_some_and(|overlay| overlay.ahead) {
                    break;
                }
                // The stage-out since then may have been this file's, with its data or its access time.
                attributes = self.stat(node)?;
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
    ) -> io::Result<FileAttributes> {
        if node.is_regular() {
            self.may_hold(node)?;
        }
        let cuts_by_name = new.size.is_some() && open.is_none();
        if cuts_by_name && node.is_regular() {
            // Permission is checked in the global store first, because the changes that follow are not undone.
            self.names.check_open(caller, node.inode(), Mode { write: true, ..Mode::default() })?;
        }
        // Set times must come after all earlier writes. Records that cannot be applied now would change the times
        // later.
        match self.windows.get() {
            Some(windows) if new.sets_times_alone() => windows.apply(node.identity())?,
            _ => self.look(node, &mut |_| Ok(()))?,
        }
        if new.uid.is_some() || new.gid.is_some() {
            self.as_ours(node, || self.names.set_owner(caller, node.inode(), new.uid, new.gid))?;
        }
        if let Some(mode) = new.mode {
            if mode & 0o6000 != 0 {
                self.settle_before_privileges(node);
            }
            self.as_ours(node, || self.names.set_mode(caller, node.inode(), mode))?;
        }
        if let Some(size) = new.size {
            self.cut_to(node, open, size, new.clear_set_id, interrupted)?;
        }
        if new.sets_times() {
            self.set_times(caller, node, new)?;
            self.windows.get().map_or(Ok(()), |windows| windows.keep(node.identity()).map(drop))?;
        }
        self.attributes(node)
    }

    /// Truncates or extends a regular file. Privileges that a truncation removes are removed first, and restored if it
    /// fails: bytes once cut off could not be restored.
    fn cut_to(
        &self,
        node: &Node,
        open: Option<&OpenFile>,
        size: u64,
        clear_set_id: bool,
        interrupted: &dyn Fn() -> bool,
    ) -> io::Result<()> {
        if !node.is_regular() {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        let taken = self.take_privileges_of(node, clear_set_id)?;
        let cut = match open {
            Some(open) => open.set_len(size),
            None => self.cut(node, size, &mut || {
                self.data.set_len(&self.anchor(node)?, size, &self.policy_for_change(node)?, interrupted)
            }),
        };
        if cut.is_err() {
            self.give_back(node, taken);
        }
        cut
    }

    fn set_times(&self, caller: &Caller, node: &Node, new: &NewAttributes) -> io::Result<()> {
        let mut apply = || self.names.set_times(caller, node.inode(), [new.atime, new.mtime]);
        if !node.is_regular() {
            return apply();
        }
        if self.is_shared() {
            self.check_times(caller, node, new)?;
        }
        self.data.set_times(&self.anchor(node)?, [new.atime, new.mtime], &mut apply)
    }

    /// Checks that the caller may set times where the server sets them. The owner may set any; a caller with write
    /// permission may set both to now. Errors: `EPERM`, `EACCES`.
    fn check_times(&self, caller: &Caller, node: &Node, new: &NewAttributes) -> io::Result<()> {
        if caller.uid == 0 || caller.uid == self.stat(node)?.uid {
            return Ok(());
        }
        if new.atime != Some(NewTime::Now) || new.mtime != Some(NewTime::Now) {
            return Err(io::Error::from_raw_os_error(libc::EPERM));
        }
        self.names.check_open(caller, node.inode(), Mode { write: true, ..Mode::default() })
    }

    /// The space of the file system that keeps the names.
    pub fn space(&self) -> io::Result<FileSystemSpace> {
        self.names.space()
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
    use namespace::NewMode;
    use posix_namespace::PosixNamespace;
    use rustix::fs::{self, OFlags};

    use super::*;
    use crate::PolicyTable;

    const LEN: u64 = 1000;

    fn create(agent: &Agent, name: &str) -> Arc<Node> {
        let how = Mode { read: true, write: true, ..Mode::default() };
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
        let root = fs::open(&data, OFlags::PATH | OFlags::DIRECTORY, fs::Mode::empty()).unwrap();
        let store = PosixStore::new(root, StoreOptions::default()).unwrap();
        let cache = FileCache::open(Settings::new(&buffer, std::sync::Arc::new(store.clone()), "test")).unwrap();
        let policies = PolicyTable::load(Policy::default(), buffer.join("policies.toml")).unwrap();
        let agent = Agent::new(Arc::new(cache), Arc::new(PosixNamespace::new(store).unwrap()), policies).unwrap();
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
