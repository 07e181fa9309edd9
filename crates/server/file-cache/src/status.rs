//! Status for operators.

use std::sync::atomic::{AtomicU64, Ordering};

use catalogue::State;

use crate::cache::{Inner, REMEDY};
use crate::errors::Trouble;
use crate::limits::STUCK_LISTED;
use crate::residency::Removal;
use data_store::{Keep, ORPHANED, Status, StuckStatus};

impl Inner {
    /// Returns the full status. Reads the whole catalogue.
    pub(crate) fn status(&self) -> Status {
        let mut status = self.activity();
        let scanned = self.catalogue.scan(
            &mut |_, record| {
                status.files += 1;
                status.clean += u64::from(record.state == State::Clean);
                status.pinned += u64::from(record.pinned);
                true
            },
            &mut |error| tracing::error!(%error, "found a damaged record in the catalogue, see `forebay check`"),
        );
        if let Err(error) = scanned {
            tracing::error!(%error, "could not read the catalogue: the status is incomplete");
        }
        status
    }

    /// Returns the status without `files`, `clean` and `pinned`, which stay 0: activity and files that are not clean.
    /// The cost does not depend on the number of replicas.
    pub(crate) fn activity(&self) -> Status {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = &self.counters;
        let space = self.spaces.now();
        let (open, handles) = self.open_counts();
        let mut status = Status {
            open,
            handles,
            total_bytes: space.total,
            free_bytes: space.free,
            hits: read(&counters.hits),
            misses: read(&counters.misses),
            through: read(&counters.through),
            read_hits: read(&counters.read_hits),
            read_late: read(&counters.read_late),
            read_misses: read(&counters.read_misses),
            staged_in_bytes: read(&counters.in_bytes),
            staged_in_files: read(&counters.in_files),
            staged_in_us: read(&counters.fetching.total_us),
            staged_out_bytes: read(&counters.out_bytes),
            staged_out_files: read(&counters.out_files),
            staged_out_us: read(&counters.draining.total_us),
            errors: read(&counters.errors),
            failure: self.counters.failure.lock().clone(),
            evicted: read(&counters.evicted),
            spilled: read(&counters.spilled),
            full: read(&counters.full),
            quiesced: self.quiesced.load(Ordering::Relaxed),
            xattrs: self.xattrs.load(Ordering::Relaxed),
            without_identity_attribute: self.unmarked.lock().files.len() as u64,
            ..Status::default()
        };
        if let Some(error) = self.refusal() {
            status.stuck.push(StuckStatus {
                path: "(the burst buffer)".to_owned(),
                state: "failed".to_owned(),
                reason: format!(
                    "it takes no writes: {error}; what is in it stays readable, new files go through the global store"
                ),
                remedy: REMEDY.to_owned(),
                replica: self.settings.burst_buffer.to_string_lossy().into_owned(),
                ..StuckStatus::default()
            });
        } else if let Some(reason) = self.catalogue.trouble() {
            status.stuck.push(StuckStatus {
                path: "(the catalogue of the burst buffer)".to_owned(),
                state: "failed".to_owned(),
                reason,
                remedy:
                    "nothing can be opened for writing, staged in or marked clean: make room on the burst buffer's \
                         file system or mend what the reason names; it is tried again every second"
                        .to_owned(),
                replica: self.settings.burst_buffer.join("catalogue").to_string_lossy().into_owned(),
                ..StuckStatus::default()
            });
        }
        self.count_unclean(&mut status);
        status
    }

    fn count_unclean(&self, status: &mut Status) {
        let files: Vec<_> = self.table.lock().files.values().cloned().collect();
        for file in files {
            let live = file.live.lock();
            status.fetching += u64::from(live.fetch().is_some());
            status.removed += u64::from(live.removal == Removal::Kept);
            let Some(record) = live.record().filter(|record| record.state != State::Clean) else { continue };
            let (lost, failing) = (live.is_lost(), live.told.failing);
            let trouble = live.told.trouble.clone();
            let unrecorded = live.copies.unrecorded.is_some() && self.refusal().is_some();
            match record.state {
                State::Dirty | State::Clean => {
                    status.dirty += 1;
                    status.queued += u64::from(!live.is_written());
                }
                State::Draining => {
                    status.dirty += 1;
                    status.draining += 1;
                }
                State::Conflict if record.damaged => status.failed += 1,
                State::Conflict => status.conflict += 1,
                State::Failed => status.failed += 1,
            }
            status.orphaned += u64::from(record.orphaned);
            let record = record.clone();
            drop(live);
            status.dirty_bytes += self.replica_size(&file);
            let needs_attention = lost
                || failing
                || unrecorded
                || record.orphaned
                || matches!(record.state, State::Conflict | State::Failed);
            if !needs_attention || status.stuck.len() >= STUCK_LISTED {
                continue;
            }
            let (state, remedy) = match record.damaged {
                true => (
                    "damaged",
                    format!(
                        "put the replica's file back from a copy and keep it, or give it up: {}",
                        resolve_with(record.orphaned, !lost)
                    ),
                ),
                false => remedy(record.state, record.orphaned, lost),
            };
            let reason = match () {
                () if lost => "its data is not in the burst buffer".to_owned(),
                () => trouble.as_ref().map_or(&record.reason, |trouble| &trouble.reason).clone(),
            };
            let remedy = trouble.as_ref().and_then(Trouble::remedy).unwrap_or(remedy);
            status.stuck.push(StuckStatus {
                path: record.hint.to_string_lossy().into_owned(),
                identity: file.identity.to_string(),
                state: state.to_owned(),
                reason,
                remedy,
                replica: self.replicas.path(record.version).to_string_lossy().into_owned(),
            });
        }
    }
}

fn resolve_with(orphaned: bool, has_replica: bool) -> String {
    // An orphan has no path any more.
    let by = if orphaned { "IDENTITY" } else { "PATH" };
    format!("forebay resolve {by} --keep {}", Keep::choices(orphaned, has_replica))
}

fn remedy(state: State, orphaned: bool, lost: bool) -> (&'static str, String) {
    let resolve = || resolve_with(orphaned, !lost);
    match state {
        _ if lost => ("failed", format!("put the replica's file back from a copy, or give it up: {}", resolve())),
        _ if orphaned => (
            ORPHANED,
            format!("bring the global store back if it is away; else take the data out, or give it up: {}", resolve()),
        ),
        State::Conflict => ("conflict", format!("compare both copies, then: {}", resolve())),
        State::Failed => ("failed", "mend the reason; it is tried again every minute, at once by a drain".to_owned()),
        State::Draining => ("draining", AGAIN.to_owned()),
        State::Dirty | State::Clean => ("dirty", AGAIN.to_owned()),
    }
}

/// Advice for a failure that is tried again soon.
const AGAIN: &str = "it is tried again by itself; mend the reason if it stays";

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // S21
    fn an_orphan_is_called_by_its_identity_also_where_its_data_is_gone() {
        for (lost, keep) in [(false, "global|both"), (true, "global")] {
            let told = format!("forebay resolve IDENTITY --keep {keep}");
            assert!(remedy(State::Dirty, true, lost).1.ends_with(&told), "{lost}");
        }
        assert!(remedy(State::Conflict, false, true).1.ends_with("forebay resolve PATH --keep global"));
    }
}
