//! Creation of many regular files at once.

use std::io;
use std::sync::Arc;

use concurrency::Mutex;
use namespace::Inode;
use rustix::fs::RenameFlags;
use types::HasErrno;

use super::creating::Creation;
use super::{Hands, Progress, Run};
use crate::fault;
use crate::limits;
use crate::state::NodeNumber;

/// A new file, and whether it has its first name; `None`: the node is gone.
type Outcome = io::Result<Option<(Arc<Inode>, bool)>>;

impl Run {
    /// Brings new regular files to the store, `width` at once. Their directories, and all other nodes, are settled.
    pub(super) fn create_files(&mut self, numbers: &[NodeNumber], width: usize) {
        for some in numbers.chunks(limits::CREATED_AT_ONCE) {
            let mut creations = Vec::with_capacity(some.len());
            for number in some {
                match self.begin(*number) {
                    Ok(creation) => creations.push(creation),
                    Err(error) => self.give_up(*number, &error),
                }
            }
            for (creation, outcome) in all(&self.hands, creations, width) {
                let (number, target) = (creation.state.number, creation.state.names[0].clone());
                match outcome {
                    Ok(Some((inode, is_named))) => {
                        self.created(creation, inode);
                        if is_named {
                            self.item_mut(number).names = vec![target];
                        }
                        // The report has the error.
                        let _ = self.settle(number);
                    }
                    Ok(None) => self.item_mut(number).progress = Progress::Failed,
                    Err(error) => self.give_up(number, &error),
                }
            }
        }
    }

    fn begin(&mut self, number: NodeNumber) -> io::Result<Creation> {
        let state = Arc::clone(&self.item(number).state);
        state.names.iter().try_for_each(|name| self.settle_directory(name.parent))?;
        self.prepare(number)
    }

    fn give_up(&mut self, number: NodeNumber, error: &io::Error) {
        self.item_mut(number).progress = Progress::Failed;
        self.stuck(number, error);
    }
}

/// Carries out creations on `width` threads, this one among them.
fn all(hands: &Arc<Hands>, creations: Vec<Creation>, width: usize) -> Vec<(Creation, Outcome)> {
    let threads = width.min(creations.len()).saturating_sub(1);
    let work = Arc::new((Mutex::new(creations.into_iter()), Mutex::new(Vec::new())));
    let worker = |hands: Arc<Hands>, work: Arc<(Mutex<std::vec::IntoIter<Creation>>, Mutex<Vec<_>>)>| {
        move || {
            loop {
                let next = work.0.lock().next();
                let Some(creation) = next else { return };
                let outcome = hands.create_named(&creation);
                work.1.lock().push((creation, outcome));
            }
        }
    };
    // With fewer threads than wanted the work takes longer.
    let helpers: Vec<_> = (0..threads)
        .filter_map(|_| concurrency::spawn_joined("apply", worker(Arc::clone(hands), Arc::clone(&work))).ok())
        .collect();
    worker(Arc::clone(hands), Arc::clone(&work))();
    for helper in helpers {
        if let Err(panic) = helper.join() {
            std::panic::resume_unwind(panic);
        }
    }
    std::mem::take(&mut *work.1.lock())
}

impl Hands {
    /// Creates a file and gives it its first name, unless the store has that name.
    fn create_named(&self, creation: &Creation) -> Outcome {
        let Creation { state, parent, hidden } = creation;
        let Some(inode) = self.carry_out(creation)? else { return Ok(None) };
        let target = &state.names[0];
        if !self.note_at(state.number, Some(inode.identity().clone()), vec![hidden.clone(), target.clone()])? {
            return Ok(None);
        }
        let flags = RenameFlags::NOREPLACE.bits();
        match self.rename_at(&state.creator, (parent, hidden), (parent, target), flags) {
            Err(error) if error.errno() == Some(libc::EEXIST) => Ok(Some((inode, false))),
            renamed => {
                renamed?;
                fault::point("apply.renamed");
                Ok(Some((inode, true)))
            }
        }
    }
}
