//! Group commit: one writer at a time for all callers.
//!
//! A caller writes its own commit if it needs no sync and nobody else writes: two thread switches would cost more than
//! the write. Other commits go to a thread, which takes all waiting commits at once. These include commits that arrived
//! while a caller was writing.
//!
//! fjall has a trap. A commit that finds too many unwritten memtables waits for them in a loop. The loop never ends if
//! the threads that should write them have died of an error. So a group is handed to fjall only when there is room for
//! it. The committing thread itself waits for room and checks for that error meanwhile. Callers wait a bounded time.

use std::collections::HashMap;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use concurrency::{Condvar, Instant, Mutex};
use fjall::{AbstractTree, PersistMode};
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
    /// Signals a new commit, or the end.
    work: Condvar,
    /// Signals that a group is done, or that the thread has ended.
    done: Condvar,
}

/// Queue of commits. Holds at most one entry per committing thread, because committing waits.
#[derive(Default)]
struct Queue {
    waiting: Vec<Commit>,
    /// Number of commits accepted so far; the number of the next commit.
    taken_in: u64,
    /// Number of commits answered. All commits with a lower number have succeeded, unless `failed` says why not.
    answered: u64,
    failed: Option<Arc<str>>,
    /// Identities that the failed group would have changed.
    undecided: Vec<Identity>,
    /// Whether a group is being written now.
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
        concurrency::spawn("catalogue", move || {
            // Even a panic inside the database must not leave callers waiting.
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
    /// Returns why commits are refused; `None` if they are accepted.
    pub(super) fn failure(&self) -> Option<Arc<str>> {
        self.shared.queue.lock().failed.clone()
    }

    /// Returns the identities that the failed commits would have changed. `None` while a thread may still write, or if
    /// nothing failed.
    pub(super) fn undecided(&self) -> Option<Vec<Identity>> {
        let queue = self.shared.queue.lock();
        (queue.failed.is_some() && queue.ended && !queue.writing).then(|| queue.undecided.clone())
    }
}

impl Drop for Committer {
    /// Waits until the thread has written its commits and ended. Leaves a thread behind that hangs in the disk.
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
            // The writer notifies when it is done.
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
            // A commit that is too large on its own goes alone, because a commit is never split.
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

/// Records the outcome of a group and wakes its callers.
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

/// Waits until enough tables are written that fjall will not wait. Errors: a dead table writer, or no room within
/// [`COMMIT_WAIT`].
fn wait_for_room(database: &Database) -> Result<(), String> {
    let deadline = Instant::now() + COMMIT_WAIT;
    let has_room = |keyspace: &fjall::Keyspace| {
        keyspace.sealed_memtable_count() <= SEALED_MEMTABLES_MAX && keyspace.tree.l0_run_count() <= UNMERGED_RUNS_MAX
    };
    while !(has_room(&database.records) && has_room(&database.unclean)) {
        // Fails if a thread that writes tables died.
        database.db.persist(PersistMode::Buffer).map_err(|error| error.to_string())?;
        if Instant::now() > deadline {
            return Err("tables are not written in time".into());
        }
        concurrency::sleep(ROOM_POLL);
    }
    Ok(())
}

/// Writes a group as one batch, with only the last change of each identity. A batch has one sequence number, under
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
        // Nothing to write, but earlier commits may have to be made durable.
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
            // Most identities are not listed. If the lookup fails, removing an absent key does no harm.
            _ if !database.unclean.contains_key(key).unwrap_or(true) => {}
            _ => batch.remove(&database.unclean, key),
        }
    }
    database.replay.fetch_add(bytes as u64, Ordering::Relaxed);
    let committed = batch.commit().map_err(|error| error.to_string());
    database.room.used(bytes as u64 + COMMIT_BYTES);
    committed
}
