//! One commits at a time, for all who wait.
//!
//! A commit for which nobody waits on the medium is written by its caller when nobody else writes: two switches of
//! threads would cost more than the write. Everything else goes to a thread, which takes all that waits at once; whoever
//! came while a caller wrote is among them.
//!
//! fjall has a trap: a commit that finds too many memtables unwritten waits for them in a loop that never ends if the
//! threads that should write them have died of an error. So a group is only handed to fjall when there is room for it,
//! this thread waits for room itself and looks for that error while it does, and callers wait a bounded time.

use std::collections::HashMap;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Instant;

use fjall::{AbstractTree, PersistMode};
use parking_lot::{Condvar, Mutex};
use types::Identity;

use super::Database;
use super::journal::ITEM_BYTES;
use crate::limits::{COMMIT_BYTES, COMMIT_WAIT, GROUP_CHANGES_MAX, ROOM_POLL, SEALED_MEMTABLES_MAX, UNMERGED_RUNS_MAX};
use crate::{Change, Durability, Error, State, layout};

pub(super) struct Committer {
    shared: Arc<Shared>,
    database: Database,
}

struct Shared {
    queue: Mutex<Queue>,
    /// Something to commit, or the end.
    work: Condvar,
    /// A group is done, or the thread ended.
    done: Condvar,
}

/// Holds at most one entry per thread that commits, because committing waits.
#[derive(Default)]
struct Queue {
    waiting: Vec<Commit>,
    /// Commits ever taken in: the number of the next one.
    taken_in: u64,
    /// Commits answered; all with a lower number have succeeded or `failed` says why not.
    answered: u64,
    failed: Option<Arc<str>>,
    /// Whom the failed group would have changed.
    undecided: Vec<Identity>,
    /// Somebody writes a group now.
    writing: bool,
    closing: bool,
    ended: bool,
}

struct Commit {
    changes: Vec<Change>,
    durability: Durability,
}

impl Committer {
    pub(super) fn start(database: &Database) -> io::Result<Committer> {
        let shared =
            Arc::new(Shared { queue: Mutex::new(Queue::default()), work: Condvar::new(), done: Condvar::new() });
        let (thread_shared, ours, database) = (shared.clone(), database.clone(), database.clone());
        thread::Builder::new().name("catalogue".into()).spawn(move || {
            // Not even a panic inside the database may leave callers waiting.
            let outcome = catch_unwind(AssertUnwindSafe(|| run(&thread_shared, &database)));
            drop(database);
            let mut queue = thread_shared.queue.lock();
            queue.ended = true;
            if outcome.is_err() {
                queue.failed = Some("the database panicked".into());
            }
            thread_shared.done.notify_all();
        })?;
        Ok(Committer { shared, database: ours })
    }

    pub(super) fn commit(&self, changes: Vec<Change>, durability: Durability) -> Result<(), Error> {
        let fail = |reason: &str| Err(Error::Io { step: "commit", reason: reason.into() });
        let mut queue = self.shared.queue.lock();
        if let Some(reason) = &queue.failed {
            return fail(&format!("an earlier commit failed: {reason}"));
        }
        let number = queue.taken_in;
        queue.taken_in += 1;
        let commit = Commit { changes, durability };
        if durability == Durability::Process && !queue.writing && queue.waiting.is_empty() {
            queue.writing = true;
            drop(queue);
            let group = [commit];
            let outcome = catch_unwind(AssertUnwindSafe(|| write_when_there_is_room(&self.database, &group)))
                .unwrap_or_else(|_| Err("the database panicked".into()));
            let mut queue = self.shared.queue.lock();
            answer(&self.shared, &mut queue, &group, outcome);
            return queue.failed.clone().map_or(Ok(()), |reason| fail(&reason));
        }
        queue.waiting.push(commit);
        if !queue.writing {
            self.shared.work.notify_one();
        }
        let deadline = Instant::now() + COMMIT_WAIT + COMMIT_WAIT;
        loop {
            if queue.answered > number {
                return Ok(());
            }
            if let Some(reason) = queue.failed.clone() {
                return fail(&reason);
            }
            if self.shared.done.wait_until(&mut queue, deadline).timed_out() && queue.answered <= number {
                queue.failed.get_or_insert_with(|| "the disk does not answer".into());
            }
        }
    }
}

impl Committer {
    /// Why commits are refused, if they are.
    pub(super) fn failure(&self) -> Option<Arc<str>> {
        self.shared.queue.lock().failed.clone()
    }

    /// Whom the failed commits would have changed; `None` while somebody may still write, or nothing failed.
    pub(super) fn undecided(&self) -> Option<Vec<Identity>> {
        let queue = self.shared.queue.lock();
        (queue.failed.is_some() && queue.ended && !queue.writing).then(|| queue.undecided.clone())
    }
}

impl Drop for Committer {
    /// Waits for the thread, which commits what it has; a thread that hangs in the disk is left behind.
    fn drop(&mut self) {
        let deadline = Instant::now() + COMMIT_WAIT;
        let mut queue = self.shared.queue.lock();
        queue.closing = true;
        self.shared.work.notify_one();
        while !queue.ended {
            if self.shared.done.wait_until(&mut queue, deadline).timed_out() {
                break;
            }
        }
    }
}

fn run(shared: &Shared, database: &Database) {
    loop {
        let group = {
            let mut queue = shared.queue.lock();
            // Who writes says when it is done.
            while queue.writing || (queue.waiting.is_empty() && !queue.closing && queue.failed.is_none()) {
                shared.work.wait(&mut queue);
            }
            if queue.waiting.is_empty() || queue.failed.is_some() {
                return;
            }
            let mut changes = 0;
            let fitting = queue.waiting.iter().take_while(|commit| {
                changes += commit.changes.len();
                changes <= GROUP_CHANGES_MAX
            });
            // One that is too large on its own goes alone: a commit is never split.
            let count = fitting.count().max(1);
            queue.writing = true;
            queue.waiting.drain(..count).collect::<Vec<_>>()
        };
        let outcome = write_when_there_is_room(database, &group);
        let mut queue = shared.queue.lock();
        answer(shared, &mut queue, &group, outcome);
        if queue.failed.is_some() {
            return;
        }
    }
}

fn write_when_there_is_room(database: &Database, group: &[Commit]) -> Result<(), String> {
    wait_for_room(database).and_then(|()| write(database, group))
}

/// The group is written, or not.
fn answer(shared: &Shared, queue: &mut Queue, group: &[Commit], outcome: Result<(), String>) {
    queue.writing = false;
    match outcome {
        Ok(()) if queue.failed.is_none() => queue.answered += group.len() as u64,
        outcome => {
            let changes = group.iter().flat_map(|commit| &commit.changes);
            queue.undecided.extend(changes.map(|change| change.identity().clone()));
            if let Err(reason) = outcome {
                queue.failed.get_or_insert(reason.into());
            }
        }
    }
    shared.done.notify_all();
    if !queue.waiting.is_empty() || queue.closing || queue.failed.is_some() {
        shared.work.notify_one();
    }
}

/// Waits until tables are written to such an extent that fjall will not wait.
fn wait_for_room(database: &Database) -> Result<(), String> {
    let deadline = Instant::now() + COMMIT_WAIT;
    let has_room = |keyspace: &fjall::Keyspace| {
        keyspace.sealed_memtable_count() <= SEALED_MEMTABLES_MAX && keyspace.tree.l0_run_count() <= UNMERGED_RUNS_MAX
    };
    while !(has_room(&database.records) && has_room(&database.unclean)) {
        // Says so when a thread that writes tables died.
        database.db.persist(PersistMode::Buffer).map_err(|error| error.to_string())?;
        if Instant::now() > deadline {
            return Err("tables are not written in time".into());
        }
        thread::sleep(ROOM_POLL);
    }
    Ok(())
}

/// Writes a group as one batch. Within it the last change of an identity counts: a batch has one sequence number, under
/// which a key must not appear twice.
fn write(database: &Database, group: &[Commit]) -> Result<(), String> {
    let machine = group.iter().any(|commit| commit.durability == Durability::Machine);
    let mode = if machine { PersistMode::SyncData } else { PersistMode::Buffer };
    let mut last: HashMap<&Identity, Option<&crate::Record>> = HashMap::new();
    for change in group.iter().flat_map(|commit| &commit.changes) {
        match change {
            Change::Put(identity, record) => last.insert(identity, Some(record)),
            Change::Remove(identity) => last.insert(identity, None),
        };
    }
    if last.is_empty() {
        // Nothing to write, but a promise about the commits before.
        return database.db.persist(mode).map_err(|error| error.to_string());
    }
    let mut batch = database.db.batch().durability(Some(mode));
    let mut bytes = 0;
    for (identity, record) in last {
        let key = identity.as_bytes();
        let value = record.map(|record| layout::encode(identity, record));
        bytes += 2 * (key.len() + ITEM_BYTES) + value.as_ref().map_or(0, Vec::len);
        match value {
            Some(value) => batch.insert(&database.records, key, value),
            None => batch.remove(&database.records, key),
        }
        match record {
            Some(record) if record.state != State::Clean => batch.insert(&database.unclean, key, []),
            // Most are not listed. When that cannot be found out, removing none does no harm.
            _ if !database.unclean.contains_key(key).unwrap_or(true) => {}
            _ => batch.remove(&database.unclean, key),
        }
    }
    database.replay.fetch_add(bytes as u64, Ordering::Relaxed);
    let committed = batch.commit().map_err(|error| error.to_string());
    database.room.used(bytes as u64 + COMMIT_BYTES);
    committed
}
