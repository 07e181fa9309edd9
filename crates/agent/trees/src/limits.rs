//! Bounds of delegated trees.

use std::time::Duration;

/// Trees of one accelerated directory at most. A directory that is made while there are so many is not delegated.
pub const TREES_MAX: usize = 256;
/// Bytes of one file of a tree's name log.
pub const LOG_FILE_BYTES: u64 = 4 << 20;
/// Time between two syncs of the name logs, so that a crash of the machine loses no more than that.
pub const SYNC_EVERY: Duration = Duration::from_secs(1);
/// Time between two looks whether a tree is to be brought to the global store.
pub const APPLY_LOOK: Duration = Duration::from_secs(1);
/// Time without a change after which a tree is brought to the global store.
pub const QUIET: Duration = Duration::from_secs(5);
/// Time without a change after which the small files of a tree are packed. An apply, which begins earlier, counts as a change of the
/// tree while it goes on.
pub const PACK_QUIET: Duration = Duration::from_secs(10);
/// Closed files of a tree below which it is not worth a segment.
pub const PACKED_AT_LEAST: usize = 256;
/// Closed files of a tree from which on half of them are packed although programs change it, so that its inodes stay bounded.
pub const PACKED_AT_MOST: usize = 1 << 20;
/// Small files that are packed before it is looked again whether somebody changes the tree.
pub const PACKED_AT_ONCE: usize = 256;
/// Age of the oldest change at which a tree is brought to the global store at the latest.
pub const APPLIED_WITHIN: Duration = Duration::from_secs(30);
/// Age of the oldest change at which a tree's directory says how many names wait, and time until it says so again. Most trees are brought
/// to the global store before, and each note is a request.
pub const WAITING_NOTED: Duration = Duration::from_secs(10);
/// Time for which the room in the global store counts as known. Shorter than that between two looks whether a tree is to be applied.
pub const SPACE_KNOWN: Duration = Duration::from_millis(500);
/// Time between two looks for the mark of another agent.
pub const MARK_POLL: Duration = Duration::from_millis(50);
/// Time after which a holder that has not given a directory back is asked again.
pub const RECALL_EVERY: Duration = Duration::from_secs(2);
/// Directories that are remembered to have no mark.
pub const UNMARKED_MAX: usize = 4096;
/// Applies of one tree that is to be given back while programs go on changing it.
pub const GIVE_BACK_TRIES: usize = 16;
/// Bytes of an existing file at most whose data a tree takes up. The global store goes on answering for larger ones.
pub const TAKEN_UP_BYTES: u64 = 4 << 20;
/// Locks of directories that are being read.
pub const READING_LOCKS: usize = 16;
/// Bytes of a file at most that is copied ahead of its open.
pub const AHEAD_BYTES: u64 = 64 << 10;
/// Files of a directory that are copied ahead at once: up to 16 MiB.
pub const AHEAD_FILES: usize = 256;
/// Names of a directory that are looked up before more threads help.
pub const LOOKED_UP_ALONE: usize = 1;
/// Time of one lookup above which more threads help.
pub const SLOW_LOOKUP: Duration = Duration::from_micros(200);
/// Directories above one another that are gone through for a path.
pub const DEPTH_MAX: usize = 4096;
/// Directories that are remembered to have been in use. After so many no existing directory becomes a tree any more.
pub const MET_MAX: usize = 1 << 20;
/// Free room below which no directory becomes a tree, in reserves of the policy.
pub const BEGIN_RESERVES: u64 = 1;
/// Part of the global store's bytes and inodes below which names are not delegated: one of so many parts.
pub const STORE_MARGIN_PART: u64 = 64;
/// Free room below which local data is dropped that the global store has, in reserves of the policy.
pub const EVICT_RESERVES: u64 = 2;
/// Files that are dropped before the room is looked at again.
pub const EVICTED_AT_ONCE: usize = 64;
/// Steps of cleaning a log between two syncs at most.
pub const CLEAN_STEPS: usize = 2000;
/// Names of one tree of which it is remembered why they could not be brought to the global store.
pub const STUCK_KEPT: usize = 1000;
/// Entries of a status list at most, as of other files.
pub const STUCK_LISTED: usize = 1000;
