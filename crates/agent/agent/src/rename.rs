//! Renames, with the policies of renamed directories and the replaced files.

use std::ffi::OsStr;
use std::io;
use std::path::PathBuf;
use types::HasErrno;

use data_store::FileChange;
use global_store::calls::StoreCall;
use namespace::Caller;
use rustix::fs::RenameFlags;
use types::Shown;

use crate::agent::Agent;
use crate::node::Node;

impl Agent {
    /// Renames; `flags` are those of renameat2(2). Under the policy `rename = commit`, a dirty source is staged out
    /// before it replaces an existing file, so that the loss of a burst buffer never takes both. `EINTR` if
    /// `interrupted` returns true meanwhile.
    pub fn rename(
        &self,
        caller: &Caller,
        from: (&Node, &OsStr),
        to: (&Node, &OsStr),
        flags: u32,
        interrupted: &dyn Fn() -> bool,
    ) -> io::Result<()> {
        let flags = RenameFlags::from_bits_retain(flags);
        let replaces = !flags.intersects(RenameFlags::NOREPLACE | RenameFlags::EXCHANGE);
        let source = self.look_up(from.0, from.1)?.node;
        let target = match self.look_up(to.0, to.1) {
            Ok(found) => Some(found),
            Err(error) if error.errno() == Some(libc::ENOENT) => None,
            Err(error) => return Err(error),
        };
        let replaced = target.as_ref().filter(|_| replaces);
        if let Some(target) = replaced.filter(|target| target.node.is_regular()) {
            if self.must_commit(&source) {
                self.commit_before_replacing(&source, interrupted)?;
            }
            self.loses_a_name(target);
        }
        let exchange = flags.contains(RenameFlags::EXCHANGE);
        let moves = source.is_directory() || exchange && target.as_ref().is_some_and(|found| found.node.is_directory());
        let held = if moves { self.below(StoreCall::Rename, || self.policies.moving()) } else { None };
        let places = held.as_ref().and_then(|_| self.places(from, to));
        let began = self.begin_own(&source);
        let (old, new) = ((from.0.inode(), from.1), (to.0.inode(), to.1));
        let done = self.beyond_windows(|| self.names.rename(caller, old, new, flags.bits()));
        let moved = target.iter().map(|found| &found.node).chain([&source]);
        moved.for_each(|node| self.data.note(node.identity(), FileChange::Attributes(began)));
        if let Err(error) = done {
            replaced.map_or(Ok(()), |target| self.lost_a_name(target, to.1, false))?;
            return Err(error);
        }
        if let Some((old, new)) = places
            && let Err(error) = self.policies.moved(&old, &new, exchange)
        {
            // The rules apply now, but a restart loads those written last.
            tracing::error!(
                %error,
                from = %old.shown(),
                to = %new.shown(),
                "could not save the policies of a renamed directory; set them again before a restart"
            );
        }
        drop(held);
        self.changed(&source)?;
        match &target {
            Some(target) if replaces => self.lost_a_name(target, to.1, true),
            Some(target) => self.changed(&target.node),
            None => Ok(()),
        }
    }

    fn must_commit(&self, source: &Node) -> bool {
        source.is_regular()
            && source.is_identified()
            && self.data.state(source.identity()).dirty
            && self.policy_for(source).rename_commits
    }

    /// Returns the paths of two names. `None` if one is outside the accelerated directory, where no rules apply.
    fn places(&self, from: (&Node, &OsStr), to: (&Node, &OsStr)) -> Option<(PathBuf, PathBuf)> {
        Some((self.path_of(from.0)?.join(from.1), self.path_of(to.0)?.join(to.1)))
    }

    fn commit_before_replacing(&self, source: &Node, interrupted: &dyn Fn() -> bool) -> io::Result<()> {
        self.apply_window(source)?;
        self.data.drain_file(source.identity(), interrupted).map_err(|stuck| {
            tracing::warn!(
                path = %stuck.path_hint.shown(),
                reason = stuck.reason,
                "could not rename: the file cannot be staged out first"
            );
            io::Error::from_raw_os_error(if stuck.errno > 0 { stuck.errno } else { libc::EIO })
        })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use config::PolicySet;
    use namespace::NewMode;

    use super::*;
    use crate::names::tests::agent_of;

    #[test] // S34
    fn directories_that_are_renamed_at_once_keep_their_rules() {
        let tree = tempfile::tempdir().unwrap();
        let (agent, _) = agent_of(tree.path());
        let (root, new) = (Arc::clone(agent.root()), NewMode { mode: 0o755, umask: 0 });
        let above = agent.make_directory(&Caller::own(), &root, "a".as_ref(), new).unwrap().node;
        agent.make_directory(&Caller::own(), &above, "x".as_ref(), new).unwrap();
        agent.policies.set(Path::new("a/x"), &PolicySet::parse(["cache=through"]).unwrap()).unwrap();
        let renames = |parent: &Node, names: [&str; 2]| {
            for turn in 0..301 {
                let [from, to] = [names[turn % 2], names[(turn + 1) % 2]].map(OsStr::new);
                agent.rename(&Caller::own(), (parent, from), (parent, to), 0, &|| false).unwrap();
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| renames(&root, ["a", "b"]));
            scope.spawn(|| renames(&above, ["x", "y"]));
        });
        assert_eq!(agent.policies.list().keys().collect::<Vec<_>>(), [Path::new("b/y")]);
        // Names in a directory outside have no path here.
        agent.policies.set(Path::new("y"), &PolicySet::parse(["verify=full"]).unwrap()).unwrap();
        std::fs::rename(tree.path().join("data/b"), tree.path().join("outside")).unwrap();
        agent.rename(&Caller::own(), (&above, "y".as_ref()), (&above, "z".as_ref()), 0, &|| false).unwrap();
        assert_eq!(agent.policies.list().keys().collect::<Vec<_>>(), [Path::new("b/y"), Path::new("y")]);
    }
}
