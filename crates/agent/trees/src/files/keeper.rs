//! The thread that makes local files ready, drops them and settles closed ones, so that no program waits for that.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use concurrency::{Condvar, Instant, Mutex};

use super::Shared;
use super::directory::LocalDirectory;
use super::limits;

/// Work for the thread.
pub(super) enum Chore {
    /// Makes files ready.
    Fill(Arc<LocalDirectory>),
    /// Drops the file with this number.
    Drop(Arc<LocalDirectory>, u64),
}

/// The work that waits, of all trees of this process.
#[derive(Default)]
struct Keeper {
    work: Mutex<Work>,
    more: Condvar,
}

#[derive(Default)]
struct Work {
    chores: VecDeque<Chore>,
    /// Trees with closed files that are to be looked at, and when.
    looks: Vec<(Instant, Weak<Shared>)>,
}

static KEEPER: OnceLock<Option<Keeper>> = OnceLock::new();

fn keeper() -> Option<&'static Keeper> {
    let start = || concurrency::spawn("local files", run).ok().map(|()| Keeper::default());
    KEEPER.get_or_init(start).as_ref()
}

/// Leaves work to the thread. Returns false if so much waits that the caller should do it.
pub(super) fn give(chore: Chore) -> bool {
    let Some(keeper) = keeper() else { return false };
    let is_taken = keeper.work.lock().add(chore);
    keeper.more.notify_one();
    is_taken
}

/// Lets the thread look at the closed files of a tree soon. Returns false if there is no thread.
pub(super) fn look_soon(tree: &Arc<Shared>) -> bool {
    keeper().is_some_and(|keeper| keeper.look_after(limits::LOOK_AFTER, Arc::downgrade(tree)))
}

impl Work {
    /// Adds a chore. Returns false if too many wait.
    fn add(&mut self, chore: Chore) -> bool {
        match chore {
            // Programs wait for files, but for no drop: thousands of them may come before. A directory has one such chore at most.
            Chore::Fill(_) => self.chores.push_front(chore),
            Chore::Drop(..) if self.chores.len() >= limits::CHORES_MAX => return false,
            Chore::Drop(..) => self.chores.push_back(chore),
        }
        true
    }
}

impl Keeper {
    fn look_after(&self, pause: Duration, tree: Weak<Shared>) -> bool {
        let mut work = self.work.lock();
        let due = Instant::now() + pause;
        // A thread that waits for an earlier look finds this one then.
        if work.looks.iter().all(|(other, _)| *other > due) {
            self.more.notify_one();
        }
        match work.looks.iter_mut().find(|(_, other)| other.ptr_eq(&tree)) {
            Some((former, _)) => *former = due.min(*former),
            None => work.looks.push((due, tree)),
        }
        true
    }

    /// Waits for something to do. Returns the trees that are to be looked at, and a chore.
    fn next(&self) -> (Vec<Weak<Shared>>, Option<Chore>) {
        let mut work = self.work.lock();
        loop {
            let now = Instant::now();
            let due = work.looks.extract_if(.., |(due, _)| *due <= now).map(|(_, tree)| tree).collect::<Vec<_>>();
            let chore = work.chores.pop_front();
            if chore.is_some() || !due.is_empty() {
                return (due, chore);
            }
            match work.looks.iter().map(|(due, _)| *due).min() {
                Some(first) => _ = self.more.wait_until(&mut work, first),
                None => self.more.wait(&mut work),
            }
        }
    }
}

fn run() {
    // The thread may come before what started it has returned.
    let Some(keeper) = KEEPER.wait() else { return };
    loop {
        let (looks, chore) = keeper.next();
        for tree in looks {
            if tree.upgrade().is_some_and(|tree| tree.look_at_all()) {
                keeper.look_after(limits::LOOK_AGAIN_AFTER, tree);
            }
        }
        match chore {
            Some(Chore::Fill(directory)) => directory.fill(),
            Some(Chore::Drop(directory, number)) => directory.drop_waiting(number),
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // S71
    fn files_are_made_before_others_are_dropped_however_many_wait() {
        let scratch = tempfile::tempdir().unwrap();
        let (directory, _) = LocalDirectory::open(scratch.path()).unwrap();
        let (directory, mut work) = (Arc::new(directory), Work::default());
        let drops = (0..).take_while(|number| work.add(Chore::Drop(Arc::clone(&directory), *number))).count();
        assert_eq!(drops, limits::CHORES_MAX);
        assert!(work.add(Chore::Fill(Arc::clone(&directory))));
        assert!(matches!(work.chores.pop_front(), Some(Chore::Fill(_))));
        assert!(matches!(work.chores.pop_front(), Some(Chore::Drop(_, 0))));
        assert!(work.add(Chore::Drop(directory, 1)));
    }
}
