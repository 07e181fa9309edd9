//! Names that others have made in the store, and that a node may take because the caller gives them up.

use std::io;
use std::sync::Arc;

use namespace::{Inode, NameKind};
use rustix::fs::FileType;
use types::{HasErrno, reported};

use super::Run;
use super::acting::At;
use super::creating::kind_of;
use super::placing::Room;
use crate::state::{NodeName, NodeNumber};

impl Run<'_> {
    /// Makes room where others have made a file. Errors: `EEXIST` unless the caller gives that up; `ENOTEMPTY` for a directory of
    /// theirs with names, where ours is none.
    pub(super) fn room_of_others(
        &mut self,
        number: NodeNumber,
        at: At<'_>,
        theirs: Inode,
        may_replace: bool,
    ) -> io::Result<Room> {
        if !(self.request.replaces)(number) {
            return Err(reported(libc::EEXIST, "somebody else has made this name in the store"));
        }
        let (ours, is_directory) = (self.item(number).is_directory(), theirs.kind() == FileType::Directory);
        match (ours, is_directory) {
            (true, true) => return Ok(Room::Joined(theirs)),
            (false, false) if may_replace => return Ok(Room::GivenUp),
            _ => {}
        }
        let creator = Arc::clone(&self.item(number).state.creator);
        let what = if is_directory { NameKind::Directory } else { NameKind::File };
        self.hands.remove_at(&creator, at, what)?;
        Ok(Room::Free)
    }

    /// Lets a directory go on in one of others, which has its name. What is in its own moves there, and that is removed. Errors:
    /// `EEXIST` if a name is in both.
    pub(super) fn join(&mut self, number: NodeNumber, from: &NodeName, to: &NodeName, theirs: Inode) -> io::Result<()> {
        let (parent, state) = (self.parent_of(from)?, Arc::clone(&self.item(number).state));
        let (creator, ours) = (&state.creator, self.directory(number)?);
        match (self.hands.remove_at(creator, (&parent, from), kind_of(&state)), ours) {
            (Err(error), Some(ours)) if matches!(error.errno(), Some(libc::ENOTEMPTY | libc::EEXIST)) => {
                self.hands.move_names(creator, &ours, &theirs)?;
                self.hands.remove_at(creator, (&parent, from), kind_of(&state))?;
            }
            (removed, _) => removed?,
        }
        let (identity, theirs) = (theirs.identity().clone(), Arc::new(theirs));
        self.owners.insert(identity.clone(), number);
        self.keep_open(number, Arc::clone(&theirs));
        self.touched.extend([from.parent, to.parent]);
        let item = self.item_mut(number);
        (item.identity, item.names, item.inode, item.located) = (Some(identity), vec![to.clone()], Some(theirs), true);
        self.note_durably(number, &[]).map(drop)
    }
}
