//! Creation of many regular files at once.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use concurrency::Mutex;
use namespace::Inode;
use rustix::fs::RenameFlags;
use types::HasErrno;

use super::creating::Creation;
use super::items::Progress;
use super::{Hands, Run};
use crate::fault;
use crate::limits;
use crate::state::NodeNumber;

/// A new file, and whether it has its first name; `None`: the node is gone.
type Outcome = io::Result<Option<(Arc<Inode>, bool)>>;

impl Run<'_> {
    /// Brings new regular files to the store, many at once. Their directories, and all other nodes, are settled.
    pub(super) fn create_files(&mut self, numbers: &[NodeNumber]) {
        for some in numbers.chunks(limits::CREATED_AT_ONCE) {
            let mut creations = Vec::with_capacity(some.len());
            for number in some {
                if !self.may_begin() {
                    break;
                }
                match self.begin(*number) {
                    Ok(creation) => creations.push(creation),
                    Err(error) => self.give_up(*number, &error),
                }
            }
            self.carry_out_all(creations);
        }
    }

    /// Carries out creations on as many threads as are wished, this one among them.
    fn carry_out_all(&mut self, creations: Vec<Creation>) {
        let threads = self.request.width.min(creations.len()).saturating_sub(1);
        let work = Arc::new(Work { todo: Mutex::new(creations.into()), done: Mutex::default() });
        let helper = |hands: Arc<Hands>, work: Arc<Work>| move || while work.step(&hands) {};
        // With fewer threads than wanted the work takes longer.
        let helpers: Vec<_> = (0..threads)
            .filter_map(|_| concurrency::spawn_joined("apply", helper(Arc::clone(&self.hands), Arc::clone(&work))).ok())
            .collect();
        loop {
            if !work.todo.lock().is_empty() && !self.may_begin() {
                work.todo.lock().clear();
            }
            let has_more = work.step(&self.hands);
            self.take_over(&work);
            if !has_more {
                break;
            }
        }
        for helper in helpers {
            if let Err(panic) = helper.join() {
                std::panic::resume_unwind(panic);
            }
        }
        self.take_over(&work);
    }

    /// Finishes what was created so far.
    fn take_over(&mut self, work: &Work) {
        let done = std::mem::take(&mut *work.done.lock());
        for (creation, outcome) in done {
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
                Ok(None) => {
                    self.item_mut(number).progress = Progress::Failed;
                    self.done(number);
                }
                Err(error) => self.give_up(number, &error),
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

/// Creations that threads share.
struct Work {
    todo: Mutex<VecDeque<Creation>>,
    done: Mutex<Vec<(Creation, Outcome)>>,
}

impl Work {
    /// Carries out the next creation. Returns false if there is none.
    fn step(&self, hands: &Hands) -> bool {
        let next = self.todo.lock().pop_front();
        let Some(creation) = next else { return false };
        let outcome = hands.create_named(&creation);
        self.done.lock().push((creation, outcome));
        true
    }
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
