//! The table of metrics.

use crate::{Metric, Stability, Unit};

/// Makes a constant of each row, and the table of them all.
macro_rules! metrics {
    ($($constant:ident = $name:literal, $unit:ident, $stability:ident, $help:literal;)*) => {
        $(
            #[doc = $help]
            pub const $constant: Metric =
                Metric { name: $name, unit: Unit::$unit, help: $help, stability: Stability::$stability };
        )*

        /// Every metric, in the order of the documentation.
        pub static METRICS: &[Metric] = &[$($constant),*];
    };
}

metrics! {
    FILES = "files", Files, Stable, "Replicas in the burst buffer, whatever their state.";
    CLEAN = "clean", Files, Stable, "Replicas that equal their global copies.";
    PINNED = "pinned", Files, Stable, "Replicas that eviction must keep.";
    DIRTY = "dirty", Files, Stable,
        "Replicas with data that the global store lacks, those being staged out included. Files in conflict or failed are not counted.";
    QUEUED = "queued", Files, Stable, "Dirty files that nobody has open for writing and that wait for their stage-out.";
    DRAINING = "draining", Files, Stable, "Dirty files that are being staged out now.";
    FETCHING = "fetching", Files, Stable, "Files that are being staged in now.";
    CONFLICT = "conflict", Files, Stable, "Dirty files whose global copy was changed by somebody else.";
    FAILED = "failed", Files, Stable, "Files whose stage-out cannot finish.";
    ORPHANED = "orphaned", Files, Stable, "Dirty files that are no longer found in the global store.";
    REMOVED = "removed", Files, Stable,
        "Removed files whose synced data is kept until the global store has made the removal durable. They are counted in `files`.";
    DELEGATED_TREES = "delegated_trees", Count, Stable, "Delegated directories, without those below them.";
    WAITING_NAMES = "waiting_names", Files, Stable, "Files and directories of delegated directories of which the global store lacks changes. Counted in `dirty`.";
    PACKED_FILES = "packed_files", Files, Stable, "Small files of delegated directories that lie many to a file of the burst buffer. Counted in `files`.";
    OPEN = "open", Files, Stable, "Open files.";
    HANDLES = "handles", Count, Internal, "Open file descriptions.";
    DIRTY_BYTES = "dirty_bytes", Bytes, Stable, "Sizes of the replicas that wait for their stage-out, holes included.";
    TOTAL_BYTES = "total_bytes", Bytes, Stable, "Size of the burst buffer's file system.";
    FREE_BYTES = "free_bytes", Bytes, Stable, "Free space of the burst buffer's file system.";
    HITS = "hits", Count, Stable, "Opens that found a complete replica.";
    MISSES = "misses", Count, Stable, "Opens that found no complete replica.";
    HIT_RATE = "hit_rate", Ratio, Stable, "Share of opens that found a complete replica; null before the first open.";
    THROUGH = "through", Count, Stable, "Opens served from the global store.";
    READ_HITS = "read_hits", Count, Internal, "Reads of files being staged in that found their bytes in the burst buffer.";
    READ_LATE = "read_late", Count, Internal, "Reads of files being staged in that waited for bytes on their way.";
    READ_MISSES = "read_misses", Count, Internal, "Reads of files being staged in that had to request their bytes.";
    STAGED_IN_BYTES = "staged_in_bytes", Bytes, Stable, "Bytes copied from the global store.";
    STAGED_IN_FILES = "staged_in_files", Files, Stable, "Files copied from the global store.";
    STAGED_IN_US = "staged_in_us", Microseconds, Stable, "Time in which at least one file was being staged in.";
    STAGED_IN_BYTES_PER_S = "staged_in_bytes_per_s", BytesPerSecond, Stable,
        "Stage-in throughput: `staged_in_bytes` over `staged_in_us`.";
    STAGED_OUT_BYTES = "staged_out_bytes", Bytes, Stable, "Bytes copied to the global store.";
    STAGED_OUT_FILES = "staged_out_files", Files, Stable, "Stage-outs that finished, those of unchanged files included.";
    STAGED_OUT_US = "staged_out_us", Microseconds, Stable, "Time in which at least one file was being staged out.";
    STAGED_OUT_BYTES_PER_S = "staged_out_bytes_per_s", BytesPerSecond, Stable,
        "Stage-out throughput: `staged_out_bytes` over `staged_out_us`.";
    ERRORS = "errors", Count, Stable, "Stage-outs that failed and are tried again.";
    EVICTED = "evicted", Files, Stable, "Replicas evicted.";
    SPILLED = "spilled", Files, Stable, "Files that continued in the global store because the burst buffer was full.";
    FULL = "full", Count, Internal, "Looks at the burst buffer's free space that found none.";
    QUIESCED = "quiesced", Flag, Stable, "New writes go to the global store (`forebay quiesce`).";
    XATTRS = "xattrs", Flag, Internal, "Replicas carry their identity as an extended attribute, so that a lost catalogue can be rebuilt.";
    WITHOUT_IDENTITY_ATTRIBUTE = "without_identity_attribute", Files, Internal,
        "Dirty files whose replica lacks its identity attribute. A catalogue that is lost now would be rebuilt without them.";
    WINDOWS_DURABLE = "windows.durable", Flag, Stable,
        "Windows lie on persistent memory: acknowledged writes survive a crash of the machine without a sync.";
    WINDOWS_WINDOWS = "windows.windows", Count, Stable, "Windows open now.";
    WINDOWS_ATTACHED = "windows.attached", Count, Stable, "Windows opened, those open now included.";
    WINDOWS_REVOKED = "windows.revoked", Count, Stable,
        "Windows that the agent ended: somebody else opened the file, or its records could not be applied.";
    WINDOWS_WITHOUT_MEMORY = "windows.without_memory", Count, Stable,
        "Open files that got no window because all windows together use the memory allowed.";
    WINDOWS_WITHOUT_PLACE = "windows.without_place", Count, Stable, "Open files that got no window because its ring could not be created.";
    WINDOWS_WITHOUT_PLACE_ERRNO = "windows.without_place_errno", Errno, Stable, "Reason of the last ring that could not be created.";
    WINDOWS_WITHOUT_LIBRARY = "windows.without_library", Count, Stable,
        "Programs that got no windows because their preload library is of another version. The agents of one process count each program once.";
    WINDOWS_FAILING = "windows.failing", Files, Stable, "Files whose window records cannot be applied to their replicas now.";
    WINDOWS_ACKNOWLEDGED_WRITES = "windows.acknowledged_writes", Count, Stable, "Writes acknowledged by a window.";
    WINDOWS_ACKNOWLEDGED_BYTES = "windows.acknowledged_bytes", Bytes, Stable, "Bytes of the writes acknowledged by a window.";
    WINDOWS_WAITING_BYTES = "windows.waiting_bytes", Bytes, Stable, "Acknowledged bytes that are not applied to replicas yet.";
    WINDOWS_DRAINED_BYTES = "windows.drained_bytes", Bytes, Stable, "Bytes applied from windows to replicas.";
    WINDOWS_SUPERSEDED_BYTES = "windows.superseded_bytes", Bytes, Internal,
        "Acknowledged bytes that need not be applied: overwritten by newer ones, cut off, or their file removed.";
    WINDOWS_LOST_BYTES = "windows.lost_bytes", Bytes, Stable,
        "Acknowledged bytes that are lost: others removed the file or wrote there while the server or the former agent was away.";
    WINDOWS_DAMAGED = "windows.damaged", Count, Stable, "Acknowledged writes that were found damaged and are lost.";
    WINDOWS_WAITED_US = "windows.waited_us", Microseconds, Stable,
        "Time that programs waited for room in full windows, summed over their threads. Waits too short to sleep do not count.";
    STORE_UNANSWERED = "store.unanswered", Count, Stable, "Calls that the global store has not answered for two seconds.";
    SERVER_ANSWERS = "server.answers", Flag, Stable, "The server with the burst buffer answers.";
    SERVER_AWAY_S = "server.away_s", Seconds, Stable, "Time for which the server has not answered; null while it answers.";
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_name_stands_once_and_ends_in_its_unit() {
        let names: BTreeSet<&str> = METRICS.iter().map(|metric| metric.name).collect();
        assert_eq!(names.len(), METRICS.len());
        for Metric { name, unit, .. } in METRICS {
            let ends = |suffix| name.ends_with(suffix);
            match unit {
                Unit::BytesPerSecond => assert!(ends("_bytes_per_s"), "{name}"),
                Unit::Bytes => assert!(ends("_bytes"), "{name}"),
                Unit::Microseconds => assert!(ends("_us"), "{name}"),
                Unit::Seconds => assert!(ends("_s") && !ends("_per_s"), "{name}"),
                Unit::Ratio => assert!(ends("_rate"), "{name}"),
                Unit::Errno => assert!(ends("_errno"), "{name}"),
                Unit::Files | Unit::Count | Unit::Flag => {
                    assert!(!["_bytes", "_us", "_s", "_rate", "_errno"].iter().any(|unit| ends(unit)), "{name}");
                }
            }
        }
    }

    #[test]
    fn a_help_is_a_sentence_that_fits_into_a_table() {
        for Metric { name, help, .. } in METRICS {
            assert!(help.ends_with('.') && !help.contains(['|', '\n']), "{name}");
            assert!(help.split(". ").all(|sentence| sentence.split(' ').count() <= 30), "{name}");
        }
    }
}
