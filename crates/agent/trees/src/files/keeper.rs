//! The thread that makes local files ready and drops them, so that no program waits for that.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

use concurrency::{Condvar, Mutex};

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
    chores: Mutex<VecDeque<Chore>>,
    more: Condvar,
}

static KEEPER: OnceLock<Option<Keeper>> = OnceLock::new();

/// Leaves work to the thread. Returns false if so much waits that the caller should do it.
pub(super) fn give(chore: Chore) -> bool {
    let Some(keeper) = KEEPER.get_or_init(|| {
        let started = concurrency::spawn("local files", run);
        started.ok().map(|()| Keeper::default())
    }) else {
        return false;
    };
    let mut chores = keeper.chores.lock();
    if chores.len() >= limits::CHORES_MAX {
        return false;
    }
    chores.push_back(chore);
    keeper.more.notify_one();
    true
}

fn run() {
    // The thread may come before what started it has returned.
    let Some(keeper) = KEEPER.wait() else { return };
    loop {
        let chore = {
            let mut chores = keeper.chores.lock();
            while chores.is_empty() {
                keeper.more.wait(&mut chores);
            }
            chores.pop_front()
        };
        match chore {
            Some(Chore::Fill(directory)) => directory.fill(),
            Some(Chore::Drop(directory, number)) => directory.drop_waiting(number),
            None => {}
        }
    }
}
