//! Work for one node that a thread does by itself: the log has what it needs, and no other node's place matters.

use std::io;
use std::sync::Arc;

use namespace::Inode;
use rustix::fs::RenameFlags;
use types::{HasErrno, Identity};

use super::Hands;
use super::acting::{changing, os};
use super::below::is_absent;
use super::creating::{Creation, kind_of};
use super::dressing::Dressing;
use crate::fault;
use crate::state::{NodeKind, NodeName, NodeNumber, NodeState};

/// A name and its directory in the store.
pub(super) type Place = (Arc<Inode>, NodeName);

/// Work for one node.
pub(super) enum Job {
    /// Create it under a hidden name.
    Create(Creation),
    /// Bring it to its names, and bring content and attributes.
    Settle(Settling),
    /// Give a directory its attributes.
    Finish(Arc<NodeState>, Arc<Inode>, Dressing),
    /// Set a directory's times again.
    SetTimes(Arc<NodeState>, Arc<Inode>),
    /// Remove it from the store.
    Remove(Removal),
}

/// A node of the store that is to have these names.
pub(super) struct Settling {
    pub state: Arc<NodeState>,
    pub identity: Identity,
    /// Names at which the node is, or may be.
    pub at: Vec<Place>,
    pub wanted: Vec<Place>,
    /// Wanted names that a file without a name may have in the store, which it loses.
    pub vacated: Vec<(NodeName, Identity)>,
    /// The node, if it is known to be at all names of `at`.
    pub inode: Option<Arc<Inode>>,
    /// Whether it has its content and attributes.
    pub dressed: bool,
    /// Whether size and time do not tell the store's content.
    pub doubtful: bool,
}

/// A node that is to leave the store.
pub(super) struct Removal {
    pub state: Arc<NodeState>,
    /// `None`: all names are its own hidden ones.
    pub identity: Option<Identity>,
    /// Names at which the node may be.
    pub at: Vec<Place>,
}

/// Outcome of a job.
pub(super) enum Outcome {
    /// The node is under its hidden name.
    Created(Arc<Inode>),
    /// The node has its names and, unless it is a directory, its content and attributes. Names in these directories were changed.
    Settled(Arc<Inode>, Vec<NodeNumber>),
    /// A name is taken, or the node was not found.
    Contested,
    /// The directory has its attributes.
    Finished,
    /// The node has no name in the store any more. Names in these directories were changed.
    Removed(Vec<NodeNumber>),
}

impl Job {
    pub(super) fn number(&self) -> NodeNumber {
        match self {
            Job::Create(creation) => creation.state.number,
            Job::Settle(settling) => settling.state.number,
            Job::Finish(state, ..) | Job::SetTimes(state, _) => state.number,
            Job::Remove(removal) => removal.state.number,
        }
    }

    /// Returns the directory in which the work changes a name first, or that is changed itself.
    pub(super) fn directory(&self) -> NodeNumber {
        let first = |places: &[Place]| places.first().map(|place| place.1.parent);
        let directory = match self {
            Job::Create(creation) => Some(creation.name.parent),
            Job::Settle(settling) => first(&settling.wanted),
            Job::Finish(..) | Job::SetTimes(..) => None,
            Job::Remove(removal) => first(&removal.at),
        };
        directory.unwrap_or_else(|| self.number())
    }

    /// Returns the directory in which the work begins with a change of a name.
    pub(super) fn turn_in(&self) -> Option<NodeNumber> {
        match self {
            Job::Create(_) | Job::Remove(_) => Some(self.directory()),
            Job::Settle(Settling { at, wanted, .. }) => {
                let stays =
                    at.len() == wanted.len() && wanted.iter().all(|(_, name)| at.iter().any(|(_, at)| at == name));
                (!stays).then(|| self.directory())
            }
            Job::Finish(..) | Job::SetTimes(..) => None,
        }
    }

    /// Whether the work begins with a new name in a directory that nobody sees yet.
    pub(super) fn is_within(&self) -> bool {
        matches!(self, Job::Create(creation) if creation.is_within)
    }

    /// Whether the work may be left undone when the caller ends the apply. What was begun is brought to its end.
    pub(super) fn is_beginning(&self) -> bool {
        match self {
            Job::Create(_) | Job::Remove(_) => true,
            Job::Settle(settling) => settling.inode.is_none(),
            Job::Finish(..) | Job::SetTimes(..) => false,
        }
    }
}

impl Hands {
    /// Does a job. Calls `changed` when no more names are to be changed.
    pub(super) fn take(&self, job: &Job, changed: &dyn Fn()) -> io::Result<Outcome> {
        match job {
            Job::Create(creation) => self.carry_out(creation, changed).map(Outcome::Created),
            Job::Settle(settling) => self.settle(settling, changed),
            Job::Finish(state, inode, how) => self.finish_directory(inode, state, *how).map(|()| Outcome::Finished),
            Job::SetTimes(state, inode) => self.dress_times(inode, state).map(|()| Outcome::Finished),
            Job::Remove(removal) => self.remove(removal),
        }
    }

    /// Returns those of some places where a node is, and the node.
    fn find<'a>(&self, identity: &Identity, at: &'a [Place]) -> io::Result<(Vec<&'a Place>, Option<Arc<Inode>>)> {
        let (mut places, mut inode) = (Vec::new(), None);
        for place in at {
            match self.lookup_at((&place.0, &place.1)) {
                Ok(found) if found.inode.identity() == identity => {
                    places.push(place);
                    inode = Some(Arc::new(found.inode));
                }
                Ok(_) => {}
                Err(error) if is_absent(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok((places, inode))
    }

    fn settle(&self, settling: &Settling, changed: &dyn Fn()) -> io::Result<Outcome> {
        let (places, inode) = match &settling.inode {
            Some(inode) => (settling.at.iter().collect(), Some(Arc::clone(inode))),
            None => self.find(&settling.identity, &settling.at)?,
        };
        let Some(inode) = inode else { return Ok(Outcome::Contested) };
        let Settling { state, wanted, .. } = settling;
        let is_wanted = |place: &Place| wanted.iter().any(|wanted| wanted.1 == place.1);
        let mut surplus: Vec<&Place> = places.iter().copied().filter(|place| !is_wanted(place)).collect();
        let missing = wanted.iter().filter(|wanted| !places.iter().any(|place| place.1 == wanted.1));
        let mut touched = Vec::new();
        for place in missing {
            let named = match surplus.pop() {
                Some(from) => {
                    touched.push(from.1.parent);
                    let flags = RenameFlags::NOREPLACE.bits();
                    let renamed = match self.rename_at(&state.creator, (&from.0, &from.1), (&place.0, &place.1), flags)
                    {
                        Err(error) if error.errno() == Some(libc::EEXIST) => self.replace(settling, from, place, error),
                        renamed => renamed,
                    };
                    renamed.inspect(|()| fault::point("apply.renamed"))
                }
                None => changing(&state.creator, &|caller| {
                    self.store.namespace.link(caller, &inode, &place.0, os(&place.1))
                })
                .inspect(|()| fault::point("apply.linked")),
            };
            touched.push(place.1.parent);
            match named {
                Err(error) if error.errno() == Some(libc::EEXIST) => return Ok(Outcome::Contested),
                named => named?,
            }
        }
        for place in surplus {
            self.remove_name(state, place)?;
            fault::point("apply.unlinked");
            touched.push(place.1.parent);
        }
        changed();
        if !settling.dressed && state.kind != NodeKind::Directory {
            self.finish(&inode, state, settling.doubtful)?;
        }
        Ok(Outcome::Settled(inode, touched))
    }

    /// Renames over a file that is to be removed. Errors: `taken` if somebody else has the name.
    fn replace(&self, settling: &Settling, from: &Place, to: &Place, taken: io::Error) -> io::Result<()> {
        let Some((_, victim)) = settling.vacated.iter().find(|(name, _)| *name == to.1) else { return Err(taken) };
        match self.lookup_at((&to.0, &to.1)) {
            Ok(found) if found.inode.identity() == victim => {
                self.rename_at(&settling.state.creator, (&from.0, &from.1), (&to.0, &to.1), 0)
            }
            Err(error) if !is_absent(&error) => Err(error),
            _ => Err(taken),
        }
    }

    fn remove(&self, removal: &Removal) -> io::Result<Outcome> {
        let places = match &removal.identity {
            Some(identity) => self.find(identity, &removal.at)?.0,
            None => removal.at.iter().collect(),
        };
        let (creator, kind) = (&removal.state.creator, kind_of(&removal.state));
        for place in &places {
            // What has no identity yet and is a directory may have something in it that nobody has seen.
            let cleared = match removal.identity {
                Some(_) => self.remove_name(&removal.state, place),
                None => self.clear(creator, (&place.0, &place.1), kind),
            };
            cleared.or_else(|error| if is_absent(&error) { Ok(()) } else { Err(error) })?;
            fault::point("apply.removed");
        }
        Ok(Outcome::Removed(places.iter().map(|place| place.1.parent).collect()))
    }

    /// Removes a name, which may be gone.
    fn remove_name(&self, state: &NodeState, (parent, name): &Place) -> io::Result<()> {
        match self.remove_at(&state.creator, (parent, name), kind_of(state)) {
            Err(error) if !is_absent(&error) => Err(error),
            _ => Ok(()),
        }
    }
}
