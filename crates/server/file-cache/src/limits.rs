//! The bounds of the file cache, each with the reason for its number.

use std::time::Duration;

/// Unit of fetching, of checksums and of "what changed": large enough that a slow store's latency is hidden, small
/// enough that one changed byte does not send much.
pub const BLOCK_BYTES: u64 = 1 << 20;
/// Page size: the kernel stops a write of a process that is killed between two pages.
pub const PAGE_BYTES: u64 = 4096;
/// Most bytes searched for an append that may have been done: as much as many others could have appended meanwhile.
pub const APPEND_SEARCHED_BYTES: u64 = 8 << 20;
/// Most blocks that readers of one file are expected to want next: the read-ahead of a few streams.
pub const AHEAD_BLOCKS_MAX: usize = 128;
/// Most background fetchers of one file, so that others have theirs too: four requests under way hide a round trip.
pub const FETCHERS_PER_FILE_MAX: u32 = 4;
/// Files up to this size are fetched inside `open` and staged out in batches; they have no checksum file.
pub const SMALL_BYTES: u64 = BLOCK_BYTES;

/// An absent file up to this size is staged in before a writer gets it; a larger one is written in the global store.
pub const WHOLE_FIRST_BYTES: u64 = 64 << 20;

/// How far a stage-out's writes may be ahead of the store's medium. It keeps a disk or a network busy all the time: 16
/// MiB were 5 % slower, 64 MiB no faster. Bytes further behind leave memory. Programs need that memory more, and fresh
/// memory is expensive: on a virtual machine that gives its free memory back, 1 GB of it costs two seconds.
pub const BEHIND_BYTES: u64 = 32 << 20;
/// Unit in which a new hole is compared with bytes that were read before it was one: a page.
pub const GAP_BYTES: usize = 4096;
/// Files in one batch of small ones, which share their syncs and commits; three descriptors a file are open at once.
pub const BATCH_FILES: usize = 2048;
/// Most files of a batch whose records become clean in one commit. An open of one of them meanwhile waits for a call
/// or two of the global store for each. A commit for so many costs each file next to nothing.
pub const CONCLUDED_FILES: usize = 32;
/// A drain of many small files is cut into batches for all streams, but not into smaller ones than this: each costs two
/// syncs and a commit that is synced.
pub const DRAIN_BATCH_FILES_MIN: usize = 256;

/// Longest time in which one worker alone takes small files: those closed meanwhile make the next batch. After it a
/// store that does not answer blocks nobody else.
pub const TURN_MAX: Duration = Duration::from_secs(1);
/// Longest pause between two batches of small files. It is as long as the batch took: syncs without end would stop the
/// programs that write meanwhile, and what they write in the pause shares the next sync.
pub const TURN_PAUSE_MAX: Duration = Duration::from_millis(200);

/// Computing time per resting time of a stage-out beside programs that write. Equal work and rest would cost it more
/// than half of its rate.
pub const RESTS_FOR: u32 = 2;
/// Computing time below which the load is not checked. A small file takes less, and its batches have pauses.
pub const RESTS_AFTER: Duration = Duration::from_micros(200);
/// Longest rest of a stage-out after a block, beside programs that write. One block takes less than a tenth of that.
pub const REST_MAX: Duration = Duration::from_millis(20);
/// Bytes in one batch of small files.
pub const BATCH_BYTES: u64 = 64 << 20;

/// First wait after a failed stage-out. It doubles with each failure.
pub const BACKOFF_MIN: Duration = Duration::from_secs(1);
/// Longest wait between two tries of a stage-out.
pub const BACKOFF_MAX: Duration = Duration::from_secs(60);
/// Failures in a row after which a file is recorded as `Failed`. It is still tried every `BACKOFF_MAX`.
pub const FAILURES_MAX: u32 = 5;

/// How long removed files are kept before the store is asked for a sync: its own journal usually has the removal by
/// then, and a program that removes files one after the other pays one sync for all.
pub const REMOVALS_AFTER: Duration = Duration::from_secs(5);
/// Most removed files that are kept. With more of them the store is asked at once.
pub const REMOVALS_MAX: usize = 4096;
/// Share of the free room that removed files may take before the store is asked at once, as a divisor.
pub const REMOVALS_SHARE: u64 = 4;
/// Failed syncs of the store after which the kept files are given up: a store that cannot be written fails again.
pub const REMOVALS_TRIES: u32 = 3;
/// Longest wait for the store's sync of removals, of a thread that needs room and of the agent's end.
pub const REMOVALS_WAIT: Duration = Duration::from_secs(2);

/// Longest wait for the files under way after a drain was given up: a store that answers needs no longer.
pub const GIVEN_UP_WAIT: Duration = Duration::from_secs(1);
/// Longest wait of the agent's end for threads that a call into the store holds: as long as for a sync of the store.
pub const STOP_WAIT: Duration = Duration::from_secs(2);
/// Longest wait of a decision about a file for its stage-out. Most are over by then, and others are told.
pub const RESOLVE_WAIT: Duration = Duration::from_secs(5);

/// Tries of a stage-in whose global copy changes under it, before the file is served from the global store.
pub const FETCH_TRIES: u32 = 3;
/// Margin for the times of a file that is staged in: a later change is certain to show only if the file was last
/// changed this long before the kernel's last tick. It covers the time between the look at the file and the stage-in,
/// and two ticks of the slowest clock.
pub const RACY_SLACK: Duration = Duration::from_millis(30);

/// Bytes that must be writable before a burst buffer that refused writes counts as repaired: our writes are larger.
pub const PROBE_BYTES: usize = 4096;
/// Most replicas that were dropped while the burst buffer took no writes and whose records are remembered meanwhile:
/// as many as programs write in a day of that state. Some 100 bytes each.
pub const DISOWNED: usize = 1 << 20;
/// Most fresh replicas of failed opens that this process removes once the catalogue takes changes: the rest wait.
pub const DOUBTS: usize = 4096;

/// Closed clean files remembered in memory, so that opening one again reads no catalogue.
pub const IDLE_FILES: usize = 4096;
/// Empty replicas that are made ready once a file was created, with a descriptor each. More are made while programs create files
/// faster, up to [`READY_MAX`].
pub const READY_MIN: usize = 4;
/// Most of them: as many as a program creates in some ten milliseconds.
pub const READY_MAX: usize = 64;
/// Divisor for the share of the descriptors free of open files that they may take. With fewer descriptors none is made ready.
pub const READY_SHARE: u64 = 32;
/// Versions reserved by one write of the superblock.
pub const VERSIONS_RESERVED: u64 = 1 << 20;
/// How old the last use in a record may be, in seconds: each update is a commit.
pub const USED_GRAIN_S: u64 = 60;

/// How long one answer about free space is believed: short, for writers fill a small burst buffer in milliseconds.
pub const SPACE_AGE: Duration = Duration::from_millis(1);
/// Share of the burst buffer's file system in use at which eviction starts, in thousandths.
pub const HIGH_WATER: u64 = 900;
/// Share in use at which eviction stops, in thousandths.
pub const LOW_WATER: u64 = 800;
/// Most replicas evicted in one round.
pub const EVICT_ROUND: usize = 4096;

/// Most entries of a status list.
pub const STUCK_LISTED: usize = 1000;
/// Delay after a start before the search for replicas without a record, which reads all records.
pub const SWEEP_AFTER: Duration = Duration::from_secs(1);
/// Pause between two rounds of expiry, eviction and trimming.
pub const ROUND: Duration = Duration::from_secs(1);
/// Pause between two rounds while the kernel writes replicas by itself and less than twice the reserve is free. At 1
/// GB/s a reserve of 5 % of 10 GB lasts half a second.
pub const ROUND_SHORT: Duration = Duration::from_millis(50);
/// Dirty replicas whose identity attribute was refused that are tried again in one round. A lack of room refuses all
/// of them. Each costs an open and up to two calls, together a few milliseconds.
pub const IDENTITY_ATTRIBUTES_ROUND: usize = 256;
/// How often an interruptible wait checks whether it was interrupted.
pub const POLL: Duration = Duration::from_millis(20);

/// Size beyond which a fetch without readers stops, unless half of the file is there.
pub const FETCH_ON_BYTES: u64 = 256 << 20;

/// Most bytes of a path kept as a hint in a replica's extended attribute: ext4 gives all attributes 4 KiB.
pub const HINT_BYTES: usize = 1024;
/// Size of a replica's identity attribute where hints only help people: as much as fits, under its name, beside an
/// ext4 inode of the usual 256 bytes. One byte more takes a block of its own, and the file system's journal has to
/// record each such block.
pub const IDENTITY_ATTRIBUTE_BYTES: usize = 56;
/// Size of a replica's identity attribute where files are found only by their hints. Also the room to read the
/// attribute of any version.
pub const IDENTITY_ATTRIBUTE_BYTES_MAX: usize = HINT_BYTES + 512;

/// Dirty closed files whose anchors (one or two descriptors each) are kept; the others are found again by their
/// handles.
pub const ANCHORS_KEPT: usize = 1024;
/// Share of the descriptors that no open file holds for those of replicas, as a divisor. The kernel's nodes may hold a
/// half.
pub const KEPT_SHARE: u64 = 4;
/// Most waits of a batch for others to close descriptors, before it takes some of the last: a second in all.
pub const ROOM_TRIES: u32 = 50;
/// Most such waits in a row of a stage-out without descriptors, before it is reported as a failure.
pub const ROOM_ROUNDS: u32 = 10;
/// Descriptors that the process may have open: four batches of three each, the anchors and the programs' files.
pub const DESCRIPTORS: u64 = 65536;
/// Share of these descriptors for anchors, as a divisor: each anchor holds one or two, and the kernel's nodes get half.
pub const ANCHORS_SHARE: u64 = 32;
/// Share of the descriptors for anchors where files are found again only by their paths, as a divisor. It is larger,
/// for that costs a walk from the root, and a walk over everything if one was moved.
pub const ANCHORS_BY_PATH_SHARE: u64 = 8;
/// Share of these descriptors for all batches together, as a divisor: a file of a batch has three.
pub const BATCHES_SHARE: u64 = 16;
/// Smallest batch in files, however few descriptors there are: fewer would not be worth the sync they share.
pub const BATCH_FILES_MIN: usize = 8;

/// Bytes kept for a start in a burst buffer that is full: superblock, log and the records of what it stages out. 16 KiB
/// were enough in `what_is_in_a_full_burst_buffer_is_recovered` (crates/tools/cli/tests/places.rs).
pub const START_ROOM_BYTES: u64 = 256 << 10;
/// Longest time in which an orderly end sums dirty replicas: `umount --force` waits 6 s for that end.
pub const SUM_AT_END_MAX: Duration = Duration::from_secs(3);
/// Divisor of a synced replica's length: growth by this part is noted again. So a log that is appended and synced
/// costs no commit each time.
pub const LENGTH_STEP: u64 = 16;

/// Records of clean replicas that are removed by one commit.
pub const CLEAN_BATCH: usize = 1024;
/// Longest time for which an unused place is held to drop clean data from it: an agent that starts there waits.
pub const CLEAN_TURN: Duration = Duration::from_secs(1);
/// Longest wait of a start for a process that drops clean data from its place: the turn and its reading of the
/// catalogue.
pub const CLEANED_WAIT: Duration = Duration::from_secs(5);
/// Interval at which that wait checks the lock.
pub const CLEANED_POLL: Duration = Duration::from_millis(5);
/// Pause before other places that had no room are asked again: each request reads their catalogues.
pub const NEIGHBOURS_PAUSE: Duration = Duration::from_secs(10);

/// Bytes of commits that a start may have to read again if the agent was killed while nothing changed: tens of ms.
pub const REPLAY_BYTES_IDLE: u64 = 1 << 20;
/// Bytes of commits that a start may have to read again while files change all the time: a second of a start. Each
/// time the bound is reached, commits stop for some tens of milliseconds.
pub const REPLAY_BYTES_MAX: u64 = 16 << 20;
/// Units to which file systems truncate access times, in nanoseconds: those of NTFS, of databases, of Lustre, of FAT.
pub const UNITS_NS: [i128; 7] = [1, 100, 1_000, 1_000_000, 10_000_000, 1_000_000_000, 2_000_000_000];

/// How often a wait for another agent's mark checks whether the file still has a name: the mark stays forever on a
/// file without one.
pub const NAME_ASKED: Duration = Duration::from_secs(1);

/// Bytes written to a replica at a time where nobody else writes meanwhile: data staged in, or applied from a window.
/// The system allocates memory for a write in pieces as large as the write. Pieces beyond 256 KiB are seldom free. On
/// a virtual machine that gives free memory back, ext4 of Linux 6.18 takes 2.5 to 4 GB/s at 64 to 256 KiB, and 0.4 to
/// 1.0 GB/s at 1 MiB. Measured with `dd if=/dev/zero of=FILE bs=64k count=16384` and so on, 1 GiB each, four times in
/// turn, at a load of 6.
pub const PIECE_BYTES: usize = 256 << 10;
/// Most bytes of a file's name in the name of its saved replica, before a dot and the version: names have at most 255.
pub const SAVED_NAME_BYTES: usize = 200;
/// Most names tried for one saved file. Versions begin anew with each directory that is made anew at a path, so names
/// repeat.
pub const SAVED_NAMES_MAX: u32 = 10_000;
/// The coarsest unit in which stores keep times.
pub(crate) const COARSE_SECONDS: i64 = 2;

/// Smallest delay of a write from a window for which its file gets the time of the write. A write that arrives sooner
/// has the time of its arrival, which saves two system calls. A tick of the clock from which the kernel takes times is
/// up to that long.
pub(crate) const BACKDATE_AFTER: Duration = Duration::from_millis(10);
