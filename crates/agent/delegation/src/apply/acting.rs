//! Acting as those whose changes are brought to the store, and names that may be hidden.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use global_store::hidden::{self, is_hidden};
use namespace::{Caller, Found, Inode, NameKind, groups_set, set_groups_of_callers};
use types::HasErrno;

use super::Hands;
use crate::short_name::ShortName;
use crate::state::{Credentials, NodeName, NodeNumber};

/// Groups of this thread's callers, which are those of before again when this is dropped.
struct ActingGroups(Option<Arc<[u32]>>);

impl ActingGroups {
    fn set(groups: Arc<[u32]>) -> ActingGroups {
        let before = groups_set();
        set_groups_of_callers(Some(groups));
        ActingGroups(before)
    }
}

impl Drop for ActingGroups {
    fn drop(&mut self) {
        set_groups_of_callers(self.0.take());
    }
}

fn is_refused<T>(result: &io::Result<T>) -> bool {
    matches!(result, Err(error) if matches!(error.errno(), Some(libc::EACCES | libc::EPERM)))
}

fn as_creator<T>(creator: &Credentials, run: &dyn Fn(&Caller) -> io::Result<T>) -> io::Result<T> {
    let _groups = ActingGroups::set(Arc::clone(&creator.groups));
    run(&Caller { uid: creator.uid, gid: creator.gid, pid: 0 })
}

/// Creates something as its creator, or as the agent where the store refuses that: permissions may have changed since.
pub(super) fn creating<T>(creator: &Credentials, run: &dyn Fn(&Caller) -> io::Result<T>) -> io::Result<T> {
    let result = as_creator(creator, run);
    if is_refused(&result) { run(&Caller::own()) } else { result }
}

/// Changes something as the agent, or as its creator where the store does not trust the agent.
pub(super) fn changing<T>(creator: &Credentials, run: &dyn Fn(&Caller) -> io::Result<T>) -> io::Result<T> {
    let result = run(&Caller::own());
    if is_refused(&result) { as_creator(creator, run) } else { result }
}

pub(super) fn os(name: &NodeName) -> &OsStr {
    OsStr::from_bytes(name.name.as_bytes())
}

pub(super) fn is_hidden_name(name: &NodeName) -> bool {
    is_hidden(os(name))
}

/// A place in the store: a directory and a name in it.
pub(super) type At<'a> = (&'a Inode, &'a NodeName);

impl Hands {
    /// Returns the hidden name of a node in a directory.
    pub(super) fn hidden_in(&self, parent: NodeNumber, number: NodeNumber) -> NodeName {
        let name = hidden::name(&self.store.agent, number.0);
        NodeName { parent, name: ShortName::new(name.as_bytes()).expect("a hidden name is one of a file") }
    }

    pub(super) fn lookup_at(&self, (parent, name): At<'_>) -> io::Result<Found> {
        let below = &self.store.namespace;
        let found = if is_hidden_name(name) {
            below.hidden_files().find_hidden(parent, os(name))?
        } else {
            below.lookup(parent, os(name))?
        };
        below.identify(&found.inode, &|_| true)?;
        Ok(found)
    }

    pub(super) fn rename_at(&self, who: &Credentials, from: At<'_>, to: At<'_>, flags: u32) -> io::Result<()> {
        let below = &self.store.namespace;
        let (old, new) = ((from.0, os(from.1)), (to.0, os(to.1)));
        changing(who, &|caller| match is_hidden_name(from.1) || is_hidden_name(to.1) {
            true => below.hidden_files().rename_hidden(caller, old, new, flags),
            false => below.rename(caller, old, new, flags),
        })
    }

    pub(super) fn remove_at(&self, who: &Credentials, (parent, name): At<'_>, what: NameKind) -> io::Result<()> {
        let below = &self.store.namespace;
        changing(who, &|caller| match is_hidden_name(name) {
            true => below.hidden_files().remove_hidden(caller, parent, os(name), what),
            false => below.remove(caller, parent, os(name), what),
        })
    }
}
