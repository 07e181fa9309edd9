//! Opening of a file: the choice of its route.

mod intent;
mod release;

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use catalogue::{Record, State};
use config::{Atime, Cache, Policy, StageOut};
use global_store::{Access, Anchor};
use types::{ByteRange, Fingerprint, HasErrno, Moved, Step as _, Version};

use crate::burst_buffer::lease::{self, Nobody};
use crate::burst_buffer::replica::How;
use crate::cache::{CacheCounters, Inner};
use crate::errors::{is_damage, is_full, os};
use crate::global_copy::content::ContentOwner;
use crate::global_copy::marks;
use crate::handle::FileHandle;
use crate::limits::{BLOCK_BYTES, FETCH_TRIES, RACY_SLACK, SMALL_BYTES, WHOLE_FIRST_BYTES};
use crate::residency::{Body, Compared, File, Live};
use data_store::OpenHow;
use global_store::now_of_files;

enum Step {
    Opened(FileHandle),
    /// The file changed its body: try again.
    Again,
    /// The file must be fetched completely first.
    Fetch(Arc<File>),
    /// The replica must first be compared with the checksums that an orderly end left.
    CheckEnd(Arc<File>),
    /// The bytes of the global copy, which has this fingerprint, must first be compared with the record.
    Compare(Arc<File>, Box<Record>, Fingerprint),
}

#[derive(Default)]
struct Tries {
    fetches: u32,
    /// Fingerprint of the global copy at the last comparison, and whether it held the recorded bytes.
    compared: Option<(Fingerprint, bool)>,
}

/// One try of an open.
#[derive(Clone, Copy)]
pub(crate) struct Opening<'a> {
    file: &'a Arc<File>,
    anchor: &'a Arc<dyn Anchor>,
    how: &'a OpenHow,
    /// Whether somebody has the file open.
    in_use: bool,
    tries: &'a Tries,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Absent,
    Through,
    Fetching,
    Clean,
    Ahead,
    Lost,
}

impl Inner {
    /// Opens a file, and tells the observer of changes of a truncation.
    pub(crate) fn open_file(
        self: &Arc<Inner>,
        anchor: &Arc<dyn Anchor>,
        mut how: OpenHow,
        interrupted: &dyn Fn() -> bool,
    ) -> io::Result<FileHandle> {
        how.write |= how.truncate;
        let opened = self.open_untold(anchor, &how, interrupted);
        // An open that failed may have truncated the file.
        if let (true, Some(tell)) = (how.truncate, self.on_change.get()) {
            tell(anchor.identity(), ByteRange::new(0, u64::MAX), 0);
        }
        opened
    }

    fn open_untold(
        self: &Arc<Inner>,
        anchor: &Arc<dyn Anchor>,
        how: &OpenHow,
        interrupted: &dyn Fn() -> bool,
    ) -> io::Result<FileHandle> {
        if self.store.is_shared()
            && !how.created
            && marks::wait(&**anchor, &self.settings.agent_id, &how.policy, interrupted)
                .step("wait until another agent has staged the file out")?
        {
            // A mark of ours without a record: the agent died between the two steps.
            let unmark =
                |file: &Arc<File>| if file.peek(|live| live.is_unclean()) { Ok(()) } else { anchor.set_mark(None) };
            self.gated(anchor.identity(), false, |file, _| unmark(file))??;
        }
        if how.sync
            && how.write
            && let Some(file) = self.known(anchor.identity())
        {
            // Syncing the name also writes back data that is being staged out. Nobody shall wait at the gate for that.
            file.sync_name()?;
        }
        let mut tries = Tries::default();
        loop {
            let took_writes = self.refusal().is_none();
            let step = self.gated(anchor.identity(), how.created, |file, _| {
                self.try_open(file, anchor, how, &tries).inspect_err(|_| self.leave_unopened(file))
            });
            match step.flatten() {
                // The refusal is known now, so the file goes through.
                Err(error) if took_writes && self.refuses(&error) => {}
                Err(error) => return Err(error),
                Ok(Step::Opened(handle)) => return Ok(handle),
                Ok(Step::Again) => {}
                Ok(Step::Fetch(file)) => {
                    tries.fetches += 1;
                    // The fetch ends by itself. No program expects EINTR here: one that gets signals all the time
                    // would never open the file.
                    self.fetch_rest(&file, &|| self.is_dead())
                        .inspect_err(|_| self.leave_fetch(&file))
                        .step("stage in")?
                }
                Ok(Step::CheckEnd(file)) => self.check_end(&file, interrupted)?,
                Ok(Step::Compare(file, record, found)) => {
                    let bytes = self.whose_bytes(&record, &**anchor, found.size);
                    if let Err(error) = &bytes {
                        tracing::debug!(%error, file = %file.identity, "could not compare a global copy with its record: it counts as another version");
                    }
                    tries.compared = Some((found, matches!(bytes, Ok(ContentOwner::Base | ContentOwner::Replica))));
                }
            }
        }
    }

    /// Cleans up after an open that failed, because no release follows. Gate held.
    fn leave_unopened(&self, file: &Arc<File>) {
        let unwritten = file.peek(|live| {
            if !live.is_open() && !live.is_unclean() {
                live.anchor = None;
            }
            !live.is_written() && live.is_unclean()
        });
        if unwritten {
            self.schedule_stage_out(file);
        }
    }

    /// Tries to open the file once. Gate held.
    fn try_open(
        self: &Arc<Inner>,
        file: &Arc<File>,
        anchor: &Arc<dyn Anchor>,
        how: &OpenHow,
        tries: &Tries,
    ) -> io::Result<Step> {
        let (kind, in_use, ended, damaged) = {
            let mut live = file.live.lock();
            if live.anchor.is_none() || how.created {
                live.anchor = Some(Arc::clone(anchor));
            }
            live.policy = Arc::clone(&how.policy);
            let damaged = live.record().is_some_and(|record| record.damaged);
            (kind_of(&live), live.is_open(), live.compared == Compared::AwaitsEnd, damaged)
        };
        let whole = matches!(kind, Kind::Clean | Kind::Ahead);
        if whole && !in_use && !self.has_replica(file)? {
            return if kind == Kind::Clean { self.outdated(file, false).map(|()| Step::Again) } else { os(libc::EIO) };
        }
        if damaged {
            return os(libc::EIO);
        }
        if whole && ended {
            return Ok(Step::CheckEnd(Arc::clone(file)));
        }
        // An open that comes again after a fetch was counted already. A new or truncated file has no data to find.
        let counts = tries.fetches == 0 && !how.created && !how.truncate;
        let missed = match kind {
            Kind::Absent | Kind::Fetching => counts,
            Kind::Through => counts && !in_use,
            Kind::Clean | Kind::Ahead | Kind::Lost => false,
        };
        CacheCounters::add(&self.counters.misses, u64::from(missed));
        let open = &Opening { file, anchor, how, in_use, tries };
        match kind {
            Kind::Lost => os(libc::EIO),
            Kind::Through if in_use => self.open_through(file, anchor, how),
            Kind::Through => {
                file.live.lock().end_through();
                self.open_absent(open)
            }
            Kind::Absent => self.open_absent(open),
            Kind::Fetching => self.open_partial(open),
            Kind::Clean => self.open_clean(open),
            Kind::Ahead => self.open_ahead(open),
        }
    }

    /// Returns whether the replica exists and a copied one has its former length: a cleaner of temporary files may
    /// have been at work. Dirty data without its replica is lost. Gate held.
    fn has_replica(&self, file: &File) -> io::Result<bool> {
        let mut live = file.live.lock();
        let Some(version) = live.version() else { return Ok(true) };
        match self.replicas.stat(version) {
            Ok(stat) => {
                let copied = live.record().filter(|record| record.state == State::Clean);
                Ok(copied.is_none_or(|record| record.base.size == stat.st_size as u64 && self.reads(version)))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if live.is_ahead() {
                    tracing::error!(file = %file.identity, "the replica of a dirty file is missing in the burst buffer: its unsaved data is lost");
                    live.lost();
                }
                Ok(false)
            }
            Err(error) => {
                let clean = !live.is_unclean();
                drop(live);
                if clean && self.refuses(&error) { Ok(false) } else { Err(error) }
            }
        }
    }

    fn takes_writes(&self, policy: &Policy) -> bool {
        matches!(policy.cache, Cache::Both | Cache::WriteCache | Cache::Scratch)
            && !self.quiesced.load(Ordering::Relaxed)
            && self.refusal().is_none()
    }

    /// Returns whether the burst buffer may take `bytes` more. Evicts for that. For a writer it waits for the store.
    fn has_room(&self, bytes: u64, policy: &Policy, write: bool) -> bool {
        if write && !self.catalogue.has_room() {
            return false;
        }
        self.spaces.admit(bytes, policy)
            || (self.evict_bytes(bytes.max(BLOCK_BYTES)) > 0 && self.spaces.admit(bytes, policy))
            || (write && self.settle_removals(self.spaces.lacks(bytes, policy)) && self.spaces.admit(bytes, policy))
    }

    fn open_absent(self: &Arc<Inner>, open: &Opening<'_>) -> io::Result<Step> {
        let Opening { file, anchor, how, tries, .. } = *open;
        let found = anchor.attributes()?;
        let size = found.fingerprint.size;
        if found.links == 0 && !how.created {
            // The file's data is dropped, or will be: there is nothing to keep.
            return self.open_through(file, anchor, how);
        }
        if found.append_only {
            // A stage-out would be refused: neither changed bytes nor a time can be set.
            return self.open_through(file, anchor, how);
        }
        if how.write {
            let fresh = how.truncate || how.created || size == 0;
            let room = if fresh { BLOCK_BYTES } else { size };
            if !self.takes_writes(&how.policy)
                || (!fresh && (size > WHOLE_FIRST_BYTES || tries.fetches >= FETCH_TRIES))
                || !self.has_room(room, &how.policy, true)
            {
                return self.open_through(file, anchor, how);
            }
            if fresh {
                return match self.begin_fresh(open, &found) {
                    Err(error) if is_full(&error) || is_damage(&error) => self.open_through(file, anchor, how),
                    result => result.and_then(|()| self.opened(file, how)),
                };
            }
        } else if !matches!(how.policy.cache, Cache::Both | Cache::Preload)
            || self.refusal().is_some()
            || !self.has_room(size, &how.policy, false)
        {
            return self.open_through(file, anchor, how);
        }
        if size > SMALL_BYTES {
            return match self.begin_fetch(file, anchor, found.fingerprint) {
                Err(error) if is_full(&error) || is_damage(&error) => self.open_through(file, anchor, how),
                Err(error) => Err(error),
                Ok(()) if how.write => Ok(Step::Fetch(Arc::clone(file))),
                Ok(()) => self.opened(file, how),
            };
        }
        if !self.fetch_small(file, anchor, &found, how.write)? {
            return self.open_through(file, anchor, how);
        }
        if how.write {
            self.intend(open, None)?
        }
        self.opened(file, how)
    }

    fn open_partial(self: &Arc<Inner>, open: &Opening<'_>) -> io::Result<Step> {
        let Opening { file, anchor, how, in_use, tries } = *open;
        if !how.write {
            return self.opened(file, how);
        }
        let size = file.live.lock().fetch().map(|fetch| fetch.base.size);
        let Some(size) = size else { return Ok(Step::Again) };
        if tries.fetches < FETCH_TRIES && !how.truncate && size <= WHOLE_FIRST_BYTES && self.takes_writes(&how.policy) {
            return Ok(Step::Fetch(Arc::clone(file)));
        }
        // Readers continue in the global store, whatever becomes of this open. Running copies continue into the
        // replica that is dropped here, and are lost with it.
        self.abandon_fetch(file);
        if how.truncate || !in_use { self.open_absent(open) } else { self.open_through(file, anchor, how) }
    }

    fn open_clean(self: &Arc<Inner>, open: &Opening<'_>) -> io::Result<Step> {
        let Opening { file, anchor, how, in_use, tries } = *open;
        let (record, checked, lacks_some, doubted) = {
            let live = file.live.lock();
            let Some(record) = live.record() else { return Ok(Step::Again) };
            (record.clone(), live.below.checked, live.medium.lacks_some(), live.below.doubted)
        };
        let (version, size) = (record.version, record.base.size);
        let now = self.now();
        let trusted = !lacks_some
            && !doubted
            && !how.write
            && checked.is_some_and(|then| now.saturating_sub(then) < how.policy.revalidate);
        if !trusted {
            let looked = now_of_files();
            let attributes = anchor.attributes()?;
            let found = attributes.fingerprint;
            if attributes.append_only {
                return self.outdated(file, in_use).map(|()| Step::Again);
            }
            let changed = match self.moved_below(file, &record, &found) {
                Moved::Nothing => {
                    file.live.lock().believe(&found);
                    false
                }
                Moved::Content => true,
                // A truncation needs no old bytes, and reading many takes long: the file counts as another version.
                Moved::ChangeTime if !in_use && (how.truncate || (size > WHOLE_FIRST_BYTES && !record.pinned)) => true,
                Moved::ChangeTime => match tries.compared {
                    None => return Ok(Step::Compare(Arc::clone(file), Box::new(record), found)),
                    Some((then, same)) => !same || then.moved(&found) != Moved::Nothing,
                },
            };
            // A truncation needs no old bytes, but a crash before it must not bring them over newer ones.
            if lacks_some || changed || (!how.truncate && !self.is_sound(file, version, size)) {
                return self.outdated(file, in_use).map(|()| Step::Again);
            }
            if tries.compared.is_some() {
                self.remember(file, &found, self.is_racy(&found, looked, RACY_SLACK));
            }
            file.live.lock().below.looked = Some(now);
            if how.write {
                let has_room = || record.pinned || self.has_room(BLOCK_BYTES, &how.policy, true);
                let takes_it = self.takes_writes(&how.policy) && has_room();
                if !takes_it && (!in_use || self.may_move(file, version)?) {
                    self.drop_replica(file)?;
                    return self.open_through(file, anchor, how);
                }
                if how.truncate && !in_use && self.is_better_fresh(file, version)? {
                    self.drop_replica(file)?;
                    return Ok(Step::Again);
                }
                self.intend(open, Some(found))?;
            }
            file.live.lock().below.checked = Some(now);
        }
        CacheCounters::add(&self.counters.hits, u64::from(tries.fetches == 0));
        self.opened(file, how)
    }

    /// Returns whether a replica that is to be truncated would have to be synced before, and nobody would miss it. An
    /// empty replica needs no sync. Gate held.
    fn is_better_fresh(&self, file: &File, version: Version) -> io::Result<bool> {
        {
            let live = file.live.lock();
            if live.synced.content || live.record().is_none_or(|record| record.pinned) {
                return Ok(false);
            }
        }
        lease::probe(self.replicas.open_as(version, How::Read)?.as_fd(), Nobody::Uses)
    }

    /// Opens a file whose replica is ahead of the global copy, or whose last name is gone.
    fn open_ahead(self: &Arc<Inner>, open: &Opening<'_>) -> io::Result<Step> {
        let Opening { file, how, tries, .. } = *open;
        CacheCounters::add(&self.counters.hits, u64::from(tries.fetches == 0));
        if how.write {
            if let Some(error) = self.refusal() {
                return Err(self.refused(file, error));
            }
            self.intend(open, None)?;
        }
        self.opened(file, how)
    }

    /// Opens a file whose open handles read and write the global copy. Gate held.
    fn open_through(self: &Arc<Inner>, file: &Arc<File>, anchor: &Arc<dyn Anchor>, how: &OpenHow) -> io::Result<Step> {
        CacheCounters::add(&self.counters.through, 1);
        let access = if how.write { Access::Write } else { Access::Read };
        let held =
            file.live.lock().fds.global.as_ref().is_some_and(|(held, _)| access == Access::Read || *held == access);
        if !held {
            let global = match anchor.open(access) {
                Err(error) if error.errno() == Some(libc::EPERM) && how.write && !how.truncate => {
                    anchor.open(Access::Append)
                }
                opened => opened,
            };
            let global = global.step("open in the global store")?;
            file.live.lock().fds.global = Some((access, Arc::from(global)));
        }
        if how.truncate {
            let global = file.live.lock().fds.global.as_ref().map(|(_, global)| Arc::clone(global));
            global.ok_or(io::ErrorKind::NotFound)?.set_len(0)?;
        }
        file.live.lock().go_through();
        file.moved.notify_all();
        self.opened(file, how)
    }

    /// Counts the handle and makes it. Gate held.
    fn opened(self: &Arc<Inner>, file: &Arc<File>, how: &OpenHow) -> io::Result<Step> {
        let (version, seen) = file.peek(|live| (live.version().filter(|_| live.is_whole()), live.told.error.0));
        let mut live = file.live.lock();
        let first = live.users.open(how.write);
        if how.write {
            if !how.appends || how.truncate {
                live.copies.untouched.wild();
            }
            self.counters.open_for_writing.fetch_add(1, Ordering::Relaxed);
            live.changes += 1;
        }
        let aged = match how.policy.stage_out {
            StageOut::Age(wait) if how.write && live.is_unclean() => Some(live.dirty_since.saturating_add(wait)),
            _ => None,
        };
        let grows = first && matches!(how.policy.stage_out, StageOut::Size(_));
        drop(live);
        if grows {
            self.gathering.growing.lock().push(Arc::clone(file));
        }
        if let Some(due) = aged {
            self.queue.push(file, due);
        }
        if how.policy.atime != Atime::No {
            self.watch_reads(file);
        }
        self.expiry.forget(&file.identity);
        Ok(Step::Opened(FileHandle::new(self, file, how, version, seen)))
    }
}

fn kind_of(live: &Live) -> Kind {
    match live.body() {
        Body::Absent | Body::Fresh { .. } => Kind::Absent,
        Body::Through => Kind::Through,
        Body::Fetching(_) => Kind::Fetching,
        Body::Clean(_) | Body::Unrecorded(_) if !live.is_unlinked() => Kind::Clean,
        Body::Clean(_) | Body::Unclean(_) | Body::Unrecorded(_) => Kind::Ahead,
        Body::Lost { .. } => Kind::Lost,
    }
}
