//! Consequences of the close of a file.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::cache::{DescriptorBudget, Inner};
use crate::limits::FETCH_ON_BYTES;
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
}
