//! Consequences of the close of a file.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use catalogue::{Durability, State};
use config::{Cache, KeepAfter, StageOut};

use crate::cache::{DescriptorBudget, Inner};
use crate::clock::wall_s;
use crate::limits::{FETCH_ON_BYTES, USED_GRAIN_S};
use crate::residency::{Body, File, Removal};

impl Inner {
    pub(crate) fn release(self: &Arc<Inner>, file: &Arc<File>, write: bool, passthrough: bool) {
        if write && passthrough {
            self.counters.kernel_writers.fetch_sub(1, Ordering::Relaxed);
        }
        if write {
            self.counters.open_for_writing.fetch_sub(1, Ordering::Relaxed);
        }
        let (last_writer, last) = file.peek(|live| {
            let last_writer = live.users.close(write, passthrough);
            if last_writer {
                live.fds.write = None;
            }
            if !live.is_open() {
                live.fds.take_replicas();
            }
            (last_writer, !live.is_open())
        });
        if self.is_dead() {
            return;
        }
        if last_writer && file.live.lock().is_unclean() {
            self.schedule_stage_out(file);
        }
        if last {
            self.end_watch(file);
            self.spare_descriptors(file);
            self.rest(file);
        }
    }

    /// Releases anchors of closed dirty files, which would otherwise hold all descriptors of the process. Beyond a
    /// bound the files are found again when they are staged out.
    fn spare_descriptors(&self, file: &File) {
        let by_identity = self.store.finds_by_identity();
        let budget = DescriptorBudget::now(self.settings.streams);
        let kept = if by_identity { budget.anchors } else { budget.anchors_by_path };
        if self.table.lock().files.len() <= kept {
            return;
        }
        // The holder of the gate may be opening the file, with its anchor.
        let Some(_gate) = file.try_gate() else { return };
        let hint = file.live.lock().record().map(|record| record.hint.clone()).unwrap_or_default();
        if !by_identity && !matches!(self.store.locate(&file.identity, &hint, false), Ok(Some(_))) {
            return;
        }
        let mut live = file.live.lock();
        if !live.is_open() {
            live.anchor = None;
            live.spared = !by_identity;
        }
    }

    /// Queues the stage-out of a dirty file that nobody is writing any more, as its policy says.
    pub(crate) fn schedule_stage_out(&self, file: &Arc<File>) {
        let (policy, since) = file.peek(|live| (Arc::clone(&live.policy), live.dirty_since));
        if policy.cache == Cache::Scratch {
            return;
        }
        match policy.stage_out {
            StageOut::Close => self.queue.push(file, Duration::ZERO),
            StageOut::Idle(wait) => {
                self.queue.remove(file);
                self.queue.push(file, self.now().saturating_add(wait));
            }
            StageOut::Age(wait) => self.queue.push(file, since.saturating_add(wait)),
            StageOut::Size(limit) => self.gather(file, limit),
            StageOut::Manual | StageOut::Exit => {}
        }
    }

    fn gather(&self, file: &Arc<File>, limit: u64) {
        let Some(version) = file.live.lock().version() else { return };
        let bytes = self.replicas.stat(version).map_or(0, |stat| stat.st_size as u64);
        let due = {
            let mut gathering = self.gathering.closed.lock();
            if gathering.1.iter().any(|known| Arc::ptr_eq(known, file)) {
                return;
            }
            gathering.0 += bytes;
            gathering.1.push(Arc::clone(file));
            if gathering.0 <= limit { Vec::new() } else { std::mem::take(&mut *gathering).1 }
        };
        due.iter().for_each(|file| self.queue.push(file, Duration::ZERO));
    }

    /// Counts the growth of files under `stage_out=size:N` that are open for writing like that of closed ones, for a
    /// job may keep its file open until its end.
    pub(crate) fn look_after_growing(&self) {
        let mut growing = std::mem::take(&mut *self.gathering.growing.lock());
        growing.sort_unstable_by_key(Arc::as_ptr);
        growing.dedup_by(|one, other| Arc::ptr_eq(one, other));
        let (mut grown, mut least) = (0, u64::MAX);
        growing.retain(|file| {
            let (version, copied, limit) = {
                let live = file.live.lock();
                match live.policy.stage_out {
                    StageOut::Size(limit) if live.is_written() && live.is_unclean() => {
                        (live.version(), live.copies.bytes, limit)
                    }
                    _ => return false,
                }
            };
            let size =
                version.and_then(|version| self.replicas.stat(version).ok()).map_or(0, |stat| stat.st_size as u64);
            (grown, least) = (grown + size.saturating_sub(copied), least.min(limit));
            true
        });
        let closed = {
            let mut gathering = self.gathering.closed.lock();
            let due = grown > 0 && grown + gathering.0 > least;
            due.then(|| std::mem::take(&mut *gathering).1)
        };
        if let Some(closed) = closed {
            closed.iter().chain(&growing).for_each(|file| self.queue.push(file, Duration::ZERO));
        }
        self.gathering.growing.lock().append(&mut growing);
    }

    /// Decides about a file after its last close.
    fn rest(self: &Arc<Inner>, file: &Arc<File>) {
        enum Then {
            Drop,
            DropClean,
            Stop,
            Keep,
            Nothing,
        }
        let then = file.peek(|live| match live.body() {
            _ if live.is_unlinked() || live.is_retired() => Then::Drop,
            _ if live.is_through() => Then::Stop,
            Body::Fetching(fetch) => {
                let size = fetch.base.size;
                let goes_on = size <= FETCH_ON_BYTES || fetch.present.len() >= size / 2 || fetch.commanded;
                if goes_on && fetch.started && self.settings.background { Then::Nothing } else { Then::Drop }
            }
            Body::Clean(_) if !live.stays_clean() => Then::DropClean,
            Body::Clean(_) | Body::Unrecorded(_) => Then::Keep,
            _ => Then::Nothing,
        });
        if matches!(then, Then::Nothing) {
            return;
        }
        let _gate = file.gate();
        if file.live.lock().is_open() {
            return;
        }
        match then {
            Then::Drop => {
                let kept = file.peek(|live| live.is_unclean() || live.removal == Removal::Kept);
                if !kept && self.drop_replica(file).is_ok() {
                    let gone = file.live.lock().is_unlinked();
                    if gone {
                        self.retire(file);
                    }
                }
            }
            Then::Stop => file.live.lock().end_through(),
            Then::DropClean => self.drop_clean(file),
            Then::Keep => self.keep(file),
            Then::Nothing => {}
        }
        file.live.lock().anchor = None;
    }

    /// Keeps a clean replica until it expires or is evicted. Gate held.
    pub(crate) fn keep(&self, file: &File) {
        let (record, policy) = file.peek(|live| (live.record().cloned(), Arc::clone(&live.policy)));
        let Some(mut record) = record.filter(|record| record.state == State::Clean) else { return };
        if let KeepAfter::For(keep) = policy.keep_after
            && !record.pinned
        {
            self.expiry.set(&file.identity, self.now().saturating_add(keep));
        }
        let now = wall_s();
        if now.abs_diff(record.used_s) > USED_GRAIN_S {
            record.used_s = now;
            // Only the order of eviction after a restart depends on this.
            let _ = self.put(file, record, Durability::Process);
        }
    }
}
