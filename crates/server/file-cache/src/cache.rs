//! The state that all files share, and the table of files in memory.

mod budget;
mod counters;
mod expiry;
mod identity_attributes;
mod queue;
mod ready;
mod refusal;
mod removals;
mod threads;
mod throttle;
mod withdrawal;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use catalogue::{Catalogue, Change, Durability, Record, State};
use concurrency::Mutex;
use global_store::{Anchor, GlobalStore};
use types::Identity;

use crate::burst_buffer::replica::Replicas;
use crate::burst_buffer::space::Spaces;
use crate::burst_buffer::superblock::Superblock;
use crate::clock::Clock;
use crate::limits::IDLE_FILES;
use crate::residency::{Body, File, Gate, Live};
use crate::settings::Settings;
use data_store::ChangeObserver;

pub(crate) use budget::DescriptorBudget;
pub(crate) use counters::CacheCounters;
pub(crate) use expiry::Expiry;
pub(crate) use identity_attributes::Unmarked;
pub(crate) use queue::{FetchQueue, FileQueue};
pub(crate) use ready::ReadyReplicas;
pub(crate) use refusal::{REMEDY, Refusal};
pub(crate) use removals::{Removals, RemovedFile};
pub(crate) use threads::Threads;
pub(crate) use throttle::Throttle;
pub(crate) use withdrawal::{Doubts, is_void};

/// Small files and growing ones, whose stage-outs wait for others.
#[derive(Default)]
pub(crate) struct Gathering {
    /// Time until which no other worker takes small files.
    pub(crate) turn: Mutex<Duration>,
    /// Files that wait until the files of their policy hold enough bytes.
    pub(crate) closed: Mutex<(u64, Vec<Arc<File>>)>,
    /// Files that were opened for writing under `stage_out=size:N`, until they are closed.
    pub(crate) growing: Mutex<Vec<Arc<File>>>,
}

#[derive(Default)]
pub(crate) struct Evictions {
    /// Lets one eviction run at a time. Holds the time before which none begins.
    pub(crate) not_before: Mutex<Duration>,
    /// Whether other places are being asked for room, and the time before which they are not asked again.
    pub(crate) asking: AtomicBool,
    pub(crate) asked: Mutex<Duration>,
}

/// Numbers of commits.
#[derive(Default)]
pub(crate) struct Commits {
    /// Commits done, and those of them known to be on the medium.
    pub(crate) done: AtomicU64,
    pub(crate) synced: AtomicU64,
    /// Commits done when housekeeping last looked.
    pub(crate) seen: AtomicU64,
    /// The last commit of a clean record whose file was forgotten since.
    pub(crate) forgotten: AtomicU64,
}

/// State shared by all files, which the functions of all modules act on.
pub(crate) struct Inner {
    pub(crate) settings: Settings,
    pub(crate) store: Arc<dyn GlobalStore>,
    pub(crate) catalogue: Arc<dyn Catalogue>,
    pub(crate) replicas: Replicas,
    pub(crate) on_change: OnceLock<ChangeObserver>,
    pub(crate) superblock: Superblock,
    pub(crate) spaces: Spaces,
    pub(crate) clock: Clock,
    pub(crate) queue: FileQueue,
    pub(crate) fetches: FetchQueue,
    pub(crate) expiry: Expiry,
    pub(crate) removals: Arc<Removals>,
    pub(crate) doubts: Doubts,
    pub(crate) refusal: Refusal,
    pub(crate) throttle: Throttle,
    pub(crate) counters: CacheCounters,
    pub(crate) gathering: Gathering,
    pub(crate) evictions: Evictions,
    pub(crate) quiesced: AtomicBool,
    pub(crate) commits: Commits,
    /// Nothing may be changed any more: the process counts as dead.
    pub(crate) dead: AtomicBool,
    /// Whether a file was opened whose policy has reads noted.
    pub(crate) notes_reads: AtomicBool,
    /// Whether a thread is writing the access times of open files to the global store.
    pub(crate) settling: AtomicBool,
    /// Whether the burst buffer's file system supports extended attributes, as far as noticed.
    pub(crate) xattrs: AtomicBool,
    pub(crate) unmarked: Mutex<Unmarked>,
    pub(crate) ready: ReadyReplicas,
    pub(crate) threads: Threads,
    pub(crate) table: Mutex<Table>,
}

/// The files in memory: all that are open, not clean or being fetched, and some that were used lately.
#[derive(Default)]
pub(crate) struct Table {
    pub(crate) files: HashMap<Identity, Arc<File>>,
    order: VecDeque<Identity>,
}

/// Logs an error of the catalogue and returns it as callers see it: `EIO`.
pub(crate) fn broken(error: catalogue::Error) -> io::Error {
    tracing::error!(%error, "the catalogue failed");
    io::Error::from_raw_os_error(libc::EIO)
}

impl Inner {
    /// Returns how many files are open, and how many handles they have.
    pub(crate) fn open_counts(&self) -> (u64, u64) {
        let table = self.table.lock();
        table.files.values().fold((0, 0), |(files, handles), file| {
            let held = u64::from(file.live.lock().users.handles());
            (files + u64::from(held > 0), handles + held)
        })
    }

    pub(crate) fn now(&self) -> Duration {
        (self.clock)()
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Acquire)
    }

    /// Changes records. Errors: `ENOSPC` if the catalogue has no room; `EIO` if it takes no changes otherwise.
    pub(crate) fn commit(&self, changes: Vec<Change>, durability: Durability) -> io::Result<()> {
        let done = self.commits.done.load(Ordering::Acquire);
        self.catalogue.commit(changes, durability).map_err(|error| {
            let broken = broken(error);
            if self.catalogue.has_room() { broken } else { io::Error::from_raw_os_error(libc::ENOSPC) }
        })?;
        self.commits.done.fetch_add(1, Ordering::AcqRel);
        if durability == Durability::Machine {
            // No more than these: a commit that ended meanwhile may have been written after this one's sync.
            self.commits.synced.fetch_max(done, Ordering::AcqRel);
        }
        Ok(())
    }

    pub(crate) fn has_synced(&self, commits: u64) -> bool {
        commits <= self.commits.synced.load(Ordering::Acquire)
    }

    /// Returns the durability for removing the record of a clean file. If the medium may still call the file dirty, a
    /// crash of the machine must not find that record without its replica.
    pub(crate) fn leaving(&self, clean_commit: u64) -> Durability {
        if self.has_synced(clean_commit) { Durability::Process } else { Durability::Machine }
    }

    pub(crate) fn sync_commits(&self, commits: u64) -> io::Result<()> {
        if self.has_synced(commits) { Ok(()) } else { self.commit(Vec::new(), Durability::Machine) }
    }

    /// Returns the file in memory, and makes it if it is not there.
    pub(crate) fn file_for(&self, identity: &Identity) -> Arc<File> {
        let mut table = self.table.lock();
        if let Some(file) = table.files.get(identity) {
            return Arc::clone(file);
        }
        let file = Arc::new(File::new(identity.clone(), Arc::clone(&self.settings.policy), self.now()));
        table.insert(&file, &self.commits.forgotten);
        file
    }

    pub(crate) fn known(&self, identity: &Identity) -> Option<Arc<File>> {
        self.table.lock().files.get(identity).cloned()
    }

    /// Runs `work` on the newest version of a file with its gate locked and its record read. `fresh`: the file was
    /// created just now and has no record.
    pub(crate) fn gated<R>(
        &self,
        identity: &Identity,
        fresh: bool,
        work: impl FnOnce(&Arc<File>, &Gate<'_>) -> R,
    ) -> io::Result<R> {
        loop {
            let file = self.file_for(identity);
            let gate = file.gate();
            if file.live.lock().is_retired() {
                continue;
            }
            self.load(&file, fresh)?;
            return Ok(work(&file, &gate));
        }
    }

    pub(crate) fn load(&self, file: &File, fresh: bool) -> io::Result<()> {
        if file.live.lock().is_loaded() {
            return Ok(());
        }
        let mut record = if fresh { None } else { self.record_of(&file.identity)? };
        record = record.filter(|found| !self.doubts.has(&file.identity, found.version));
        let body = match &record {
            None => Body::Absent,
            Some(found) => match self.replicas.stat(found.version) {
                // The removal of a void replica is tried until it succeeds.
                Ok(stat) if is_void(&stat) => {
                    record = None;
                    Body::Absent
                }
                Ok(_) => Body::of(found.clone(), true),
                Err(error) if found.state == State::Clean && self.refuses(&error) => Body::Absent,
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                Err(_) if found.state == State::Clean => Body::Absent,
                Err(_) => Body::of(found.clone(), false),
            },
        };
        if let Some(record) = record.as_ref().filter(|_| matches!(body, Body::Absent)) {
            self.disown(&file.identity, Some((record.version, false)), Durability::Process)?;
        }
        let mut live = file.live.lock();
        live.clean_commit = self.commits.forgotten.load(Ordering::Acquire);
        live.found(body);
        Ok(())
    }

    /// Puts a file that recovery found into the table, and returns it. `there`: its replica exists.
    pub(crate) fn adopt(&self, identity: Identity, record: Record, there: bool) -> Arc<File> {
        let file = Arc::new(File::new(identity, Arc::clone(&self.settings.policy), self.now()));
        let mut live = file.live.lock();
        live.synced.lacks_name = record.base.size == 0;
        live.found(Body::of(record, there));
        drop(live);
        self.table.lock().insert(&file, &self.commits.forgotten);
        file
    }

    pub(crate) fn unclean_files(&self) -> Vec<Arc<File>> {
        let files: Vec<Arc<File>> = self.table.lock().files.values().cloned().collect();
        files.into_iter().filter(|file| file.live.lock().is_unclean()).collect()
    }

    pub(crate) fn replica_size(&self, file: &File) -> u64 {
        let version = file.live.lock().version();
        version.and_then(|version| self.replicas.stat(version).ok()).map_or(0, |stat| stat.st_size as u64)
    }

    /// Commits a record and keeps it in memory. Gate held.
    pub(crate) fn put(&self, file: &File, record: Record, durability: Durability) -> io::Result<()> {
        self.commit_record(file, &record, durability)?;
        file.live.lock().recorded(record);
        Ok(())
    }

    pub(crate) fn commit_record(&self, file: &File, record: &Record, durability: Durability) -> io::Result<()> {
        self.commit(vec![Change::Put(file.identity.clone(), record.clone())], durability)
    }

    /// Takes a file out of the table: the next open makes another `File`. Gate held.
    pub(crate) fn retire(&self, file: &Arc<File>) {
        let mut table = self.table.lock();
        if table.files.get(&file.identity).is_some_and(|known| Arc::ptr_eq(known, file)) {
            table.files.remove(&file.identity);
        }
        file.live.lock().retire();
    }

    /// Returns the file's anchor, and looks for the file in the store if no anchor is held. Returns `None` if the file
    /// is not in the store.
    pub(crate) fn anchor_of(&self, file: &File, scan: bool) -> io::Result<Option<Arc<dyn Anchor>>> {
        let (hint, spared) = {
            let live = file.live.lock();
            if let Some(anchor) = &live.anchor {
                return Ok(Some(Arc::clone(anchor)));
            }
            (live.record().map(|record| record.hint.clone()).unwrap_or_default(), live.spared)
        };
        let anchor = self.store.locate(&file.identity, &hint, scan || spared)?;
        let mut live = file.live.lock();
        // A thread that opened the file meanwhile knows its present name.
        Ok(live.anchor.clone().or_else(|| {
            live.anchor = anchor;
            live.anchor.clone()
        }))
    }
}

impl Table {
    fn insert(&mut self, file: &Arc<File>, forgotten: &AtomicU64) {
        self.files.insert(file.identity.clone(), Arc::clone(file));
        self.order.push_back(file.identity.clone());
        // Two for each file added, so that the table shrinks again after a burst of dirty files.
        for _ in 0..2 {
            if self.files.len() <= IDLE_FILES {
                break;
            }
            self.forget_one(forgotten);
        }
    }

    /// Forgets the oldest file if nothing is lost by that.
    fn forget_one(&mut self, forgotten: &AtomicU64) {
        let Some(identity) = self.order.pop_front() else { return };
        let Some(file) = self.files.get(&identity) else { return };
        let live = file.live.lock();
        let (idle, clean_commit) = (Arc::strong_count(file) == 1 && live.is_idle(), live.clean_commit);
        drop(live);
        if idle {
            forgotten.fetch_max(clean_commit, Ordering::AcqRel);
            self.files.remove(&identity);
        } else {
            self.order.push_back(identity);
        }
    }
}

impl Live {
    /// Returns whether nobody has the file open and the catalogue says all that is known of it.
    fn is_idle(&self) -> bool {
        let known = !self.is_unclean() && !self.is_unlinked() && !self.medium.lacks_some();
        !self.is_open() && known && (matches!(self.body(), Body::Absent) || self.is_whole())
    }
}
