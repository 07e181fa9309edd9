//! Stage-in: steps P0 to P4.
//!
//! A replica is filled by blocks, in the order in which readers ask, otherwise in file order. A reader of a missing
//! block copies it itself. The replica has no record until it is complete and the global copy was found unchanged, so
//! a crash leaves only garbage. If the global copy changed meanwhile, open files continue in the global store.

mod fetches;

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use catalogue::{Durability, Record, State};
use global_store::limits::ONE_READ_BYTES;
use global_store::{Access, Anchor, StoreAttributes, StoreFile};
use rustix::fs::OFlags;
use types::{ByteRange, Epoch, Fingerprint, Moved, RangeSet, Timestamp};

use crate::burst_buffer::replica;
use crate::burst_buffer::sums::{self, Sums};
use crate::cache::{CacheCounters, Inner};
use crate::clock::wall_s;
use crate::errors::{is_full, os};
use crate::fault;
use crate::limits::{FETCH_TRIES, GAP_BYTES, POLL, RACY_SLACK, SMALL_BYTES};
use crate::residency::{Fetch, File};
use global_store::now_of_files;

pub(crate) struct BlockClaim {
    block: u64,
    range: ByteRange,
    source: Arc<dyn StoreFile>,
    replica: Arc<OwnedFd>,
}

impl BlockClaim {
    /// Claims a block. Returns `None` if another thread has it.
    pub(crate) fn of(fetch: &mut Fetch, block: u64) -> Option<BlockClaim> {
        let range = sums::block_range(block, fetch.base.size);
        let fresh = fetch.claimed.insert(block);
        fresh.then(|| BlockClaim {
            block,
            range,
            source: Arc::clone(&fetch.source),
            replica: Arc::clone(&fetch.replica),
        })
    }
}

/// The side whose error ended a copy.
enum Broken {
    Source(io::Error),
    /// The burst buffer's error.
    Replica(io::Error),
}

impl Inner {
    /// Does P0 for a large file. Gate held.
    pub(crate) fn begin_fetch(&self, file: &File, anchor: &Arc<dyn Anchor>, base: Fingerprint) -> io::Result<()> {
        let source: Arc<dyn StoreFile> = Arc::from(anchor.open(Access::Read)?);
        let version = self.superblock.next_version()?;
        let replica = self.replicas.create(version)?;
        // The agent notes reads of the source itself where they are to be noted. Only the owner may set this flag.
        let _ = rustix::fs::fcntl_setfl(&replica, OFlags::NOATIME);
        if let Err(error) = rustix::fs::ftruncate(&replica, base.size) {
            self.replicas.remove(version)?;
            return Err(error.into());
        }
        fault::point("p0.replica");
        let fetch = Fetch {
            version,
            base,
            racy: self.is_racy(&base, now_of_files(), RACY_SLACK),
            present: RangeSet::new(),
            claimed: BTreeSet::new(),
            wanted: 0,
            ahead: VecDeque::new(),
            fetchers: 0,
            fetchers_max: 1,
            sums: vec![0; sums::blocks_of(base.size) as usize],
            source,
            replica: Arc::new(replica),
            started: false,
            commanded: false,
        };
        file.live.lock().begin_fetch(fetch);
        Ok(())
    }

    /// Does P0 to P4 for a small file. Returns false if the file cannot be read in one piece, if there is no room, or
    /// if the burst buffer cannot keep the replica and the opener only reads. Gate held.
    pub(crate) fn fetch_small(
        &self,
        file: &File,
        anchor: &Arc<dyn Anchor>,
        found: &StoreAttributes,
        write: bool,
    ) -> io::Result<bool> {
        let _working = self.counters.fetching.enter();
        let (mut base, mut looked) = (found.fingerprint, now_of_files());
        for _ in 0..FETCH_TRIES {
            if base.size > SMALL_BYTES {
                return Ok(false);
            }
            match self.fetch_once(file, anchor, &mut base, looked) {
                Ok(false) => looked = now_of_files(),
                Ok(true) => {
                    CacheCounters::add(&self.counters.in_bytes, base.size);
                    CacheCounters::add(&self.counters.in_files, 1);
                    return Ok(true);
                }
                Err(Broken::Replica(error)) if is_full(&error) || (!write && !self.refuses(&error)) => {
                    tracing::debug!(%error, file = %file.identity, "could not keep a staged-in replica: the file is served from the global store");
                    return Ok(false);
                }
                Err(Broken::Source(error) | Broken::Replica(error)) => return Err(error),
            }
        }
        Ok(false)
    }

    /// Tries once. Returns false if the file was changed meanwhile; `base` is its new fingerprint.
    fn fetch_once(
        &self,
        file: &File,
        anchor: &Arc<dyn Anchor>,
        base: &mut Fingerprint,
        looked: Timestamp,
    ) -> Result<bool, Broken> {
        let version = self.superblock.next_version().map_err(Broken::Replica)?;
        let copied = self.copy_small(&**anchor, version, base);
        // A single read that meets a change after the first look sees all of it. The replica then has the older
        // fingerprint, so the next look at the file finds the change.
        let one = base.size <= ONE_READ_BYTES;
        let look = || if one { anchor.attributes_in_memory() } else { anchor.attributes() };
        let after = |sum| Ok((sum, look().map_err(Broken::Source)?));
        let fetched = copied.and_then(after).and_then(|(sum, after)| {
            if base.moved(&after.fingerprint) != Moved::Nothing {
                *base = after.fingerprint;
                return Ok(false);
            }
            fault::point("p3.checked");
            let racy = self.is_racy(base, looked, RACY_SLACK);
            let sum = Some(sum);
            let shown = file.live.lock().shown_of(base);
            let record = Record { racy, sum, shown, ..clean_record(&**anchor, version, after.fingerprint) };
            self.commit_record(file, &record, Durability::Process).map_err(Broken::Replica)?;
            fault::point("p4.clean");
            file.live.lock().staged_in(version, Some(record), Some(self.now()));
            Ok(true)
        });
        if !matches!(fetched, Ok(true)) {
            // The replica is garbage now. If this fails, the next start's sweep removes it.
            let _ = self.replicas.remove(version);
        }
        fetched
    }

    fn copy_small(&self, anchor: &dyn Anchor, version: types::Version, base: &Fingerprint) -> Result<u64, Broken> {
        let replica = self.replicas.create(version).map_err(Broken::Replica)?;
        fault::point("p0.replica");
        let (mut sum, mut end) = (sums::sum(&[]), 0);
        if base.size > 0 {
            let source = anchor.open(Access::Read).map_err(Broken::Source)?;
            let fetched = copy_block(&*source, &replica, ByteRange::new(0, base.size))?;
            (sum, end) = (fetched.sum, fetched.end);
        }
        fault::point("p1.range");
        if end != base.size {
            rustix::fs::ftruncate(&replica, base.size).map_err(|error| Broken::Replica(error.into()))?;
        }
        replica::set_mtime(replica.as_fd(), base.mtime).map_err(Broken::Replica)?;
        Ok(sum)
    }

    /// Fetches one block, or waits for the thread that does. Returns false if the file is not being fetched any more.
    pub(crate) fn fetch_block(&self, file: &Arc<File>, block: u64) -> io::Result<bool> {
        let claim = {
            let mut live = file.live.lock();
            loop {
                let Some(fetch) = live.fetch_mut() else { return Ok(false) };
                if fetch.has_block(block) {
                    return Ok(true);
                }
                if let Some(claim) = BlockClaim::of(fetch, block) {
                    break claim;
                }
                file.moved.wait_for(&mut live, POLL);
            }
        };
        self.fetch_claimed(file, claim)
    }

    /// Fetches a block that this thread has claimed. Returns false if the file is not being fetched any more.
    pub(crate) fn fetch_claimed(&self, file: &Arc<File>, claim: BlockClaim) -> io::Result<bool> {
        let BlockClaim { block, range, source, replica } = claim;
        let copied = {
            let _working = self.counters.fetching.enter();
            copy_block(&*source, &replica, range)
        };
        fault::point("p1.range");
        CacheCounters::add(&self.counters.in_bytes, range.len());
        let complete = {
            let mut live = file.live.lock();
            let ours = live.fetch_mut().filter(|fetch| Arc::ptr_eq(&fetch.replica, &replica));
            let Some(fetch) = ours else { return Ok(false) };
            fetch.claimed.remove(&block);
            if let Ok(fetched) = &copied {
                fetch.sums[block as usize] = fetched.sum;
                fetch.present.insert(range);
                fetch.skip(fetched.hole);
            }
            fetch.is_complete()
        };
        drop(replica);
        file.moved.notify_all();
        match copied {
            Ok(_) if complete => self.finish_fetch(file).map(|()| false),
            Ok(_) => Ok(true),
            Err(Broken::Source(error)) => Err(error),
            Err(Broken::Replica(error)) => {
                tracing::debug!(%error, "no room to stage a file in: it is served from the global store");
                let _gate = file.gate();
                self.abandon_fetch(file);
                Ok(false)
            }
        }
    }

    fn finish_fetch(&self, file: &Arc<File>) -> io::Result<()> {
        let _gate = file.gate();
        let Err(error) = self.complete(file) else { return Ok(()) };
        // Readers continue in the global store, and so do writers if only room is lacking.
        self.abandon_fetch(file);
        if is_full(&error) || self.refuses(&error) { Ok(()) } else { Err(error) }
    }

    /// Does P3 and P4 of a large file. Gate held.
    fn complete(&self, file: &Arc<File>) -> io::Result<()> {
        let ((base, racy), version, replica, sums, anchor) = {
            let live = file.live.lock();
            let Some(fetch) = live.fetch() else { return Ok(()) };
            if !fetch.is_complete() {
                // The fetch that ended was dropped meanwhile, and this is its successor.
                return Ok(());
            }
            let sums = Sums { size: fetch.base.size, blocks: fetch.sums.clone() };
            ((fetch.base, fetch.racy), fetch.version, Arc::clone(&fetch.replica), sums, live.anchor.clone())
        };
        let Some(anchor) = anchor else {
            self.abandon_fetch(file);
            return Ok(());
        };
        let after = anchor.attributes();
        fault::point("p3.checked");
        if !matches!(&after, Ok(after) if after.fingerprint.same_content(&base)) {
            self.abandon_fetch(file);
            return Ok(());
        }
        // A change that kept size and time is found by the next open, which compares the bytes.
        let doubted = !matches!(&after, Ok(after) if base.moved(&after.fingerprint) == Moved::Nothing);
        replica::set_mtime(replica.as_fd(), base.mtime)?;
        drop(replica);
        sums.keep(&self.replicas.sums_path(version));
        fault::point("p3.sums");
        let (unlinked, shown) = file.peek(|live| (live.is_unlinked(), live.shown_of(&base)));
        let record = (!unlinked).then(|| Record { racy, shown, ..clean_record(&*anchor, version, base) });
        record.iter().try_for_each(|record| self.commit_record(file, record, Durability::Process))?;
        fault::point("p4.clean");
        CacheCounters::add(&self.counters.in_files, 1);
        let unused = file.peek(|live| {
            live.staged_in(version, record, (!doubted).then(|| self.now()));
            if !live.is_open() {
                live.anchor = None;
            }
            !live.is_open()
        });
        file.moved.notify_all();
        if unused {
            self.keep(file);
        }
        Ok(())
    }

    /// Ends the fetch without a replica: open files continue in the global store. Gate held.
    pub(crate) fn abandon_fetch(&self, file: &File) {
        let abandoned = file.live.lock().abandon_fetch();
        let Some(version) = abandoned else { return };
        file.moved.notify_all();
        let _ = self.replicas.remove(version);
    }

    /// Fetches everything that is missing, in this thread. Errors: `EINTR` between two blocks if `interrupted`.
    pub(crate) fn fetch_rest(&self, file: &Arc<File>, interrupted: &dyn Fn() -> bool) -> io::Result<()> {
        loop {
            if interrupted() {
                return os(libc::EINTR);
            }
            let block = {
                let mut live = file.live.lock();
                let Some(fetch) = live.fetch_mut() else { return Ok(()) };
                match fetch.next_block() {
                    Some(block) => block,
                    None => {
                        file.moved.wait_for(&mut live, POLL);
                        continue;
                    }
                }
            };
            self.fetch_block(file, block)?;
        }
    }

    /// Notes that nobody waits for the whole file any more: without readers the fetch ends.
    pub(crate) fn leave_fetch(&self, file: &File) {
        let _gate = file.gate();
        let goes_on =
            file.peek(|live| live.is_open() || live.fetch().is_some_and(|fetch| fetch.started || fetch.commanded));
        if !goes_on {
            self.abandon_fetch(file);
        }
    }
}

fn clean_record(anchor: &dyn Anchor, version: types::Version, base: Fingerprint) -> Record {
    Record {
        state: State::Clean,
        version,
        epoch: Epoch(1),
        base,
        was_clean: true,
        racy: false,
        sum: None,
        shown: None,
        pinned: false,
        orphaned: false,
        removing: false,
        synced: false,
        synced_len: 0,
        damaged: false,
        hint: anchor.path_hint(),
        used_s: wall_s(),
        reason: String::new(),
    }
}

struct Fetched {
    sum: u64,
    /// End of the block's last data; 0 if it has none.
    end: u64,
    /// Known hole behind the block.
    hole: ByteRange,
}

/// Copies one block and keeps its holes. Bytes that the source no longer has read as zeros: the check at the end finds
/// that it changed.
fn copy_block(source: &dyn StoreFile, replica: &OwnedFd, block: ByteRange) -> Result<Fetched, Broken> {
    let mut at = block.start;
    if block.len() <= ONE_READ_BYTES {
        // No hole is smaller than a page: only a page that reads as zeros can be one, and asking costs two requests.
        let mut buffer = vec![0_u8; block.len() as usize];
        let read = source.read_at(&mut buffer, at).map_err(Broken::Source)?;
        if buffer.chunks(GAP_BYTES).all(|page| page.iter().any(|byte| *byte != 0)) {
            replica::write_full(replica, &buffer[..read], at).map_err(Broken::Replica)?;
            let (sum, end) = (sums::sum(&buffer), at + read as u64);
            return Ok(Fetched { sum, end, hole: ByteRange::new(block.end, block.end) });
        }
    }
    let first = source.next_data(at).map_err(Broken::Source)?;
    let start = first.map_or(u64::MAX, |data| data.start);
    if start >= block.end {
        let hole = ByteRange::new(block.end, start);
        return Ok(Fetched { sum: sums::of_zeros(block.len()), end: 0, hole });
    }
    let mut buffer = vec![0_u8; block.len() as usize];
    let (mut end, mut next) = (0, first);
    while let Some(data) = next {
        let data = data.intersection(&ByteRange::new(at, block.end));
        if data.is_empty() {
            break;
        }
        let part = &mut buffer[(data.start - block.start) as usize..(data.end - block.start) as usize];
        let mut done = 0;
        while done < part.len() {
            match source.read_at(&mut part[done..], data.start + done as u64).map_err(Broken::Source)? {
                0 => break,
                read => done += read,
            }
        }
        replica::write_in_pieces(replica, part, data.start).map_err(Broken::Replica)?;
        (at, end) = (data.end, data.end);
        if at >= block.end {
            break;
        }
        next = source.next_data(at).map_err(Broken::Source)?;
    }
    Ok(Fetched { sum: sums::sum(&buffer), end, hole: ByteRange::new(block.end, block.end) })
}
