//! Every bound of the file cache, with the reason for its number.

use std::time::Duration;

/// Unit of fetching, of checksums and of "what changed": large enough that a slow store's latency is hidden, small
/// enough that one changed byte does not send much.
pub const BLOCK_BYTES: u64 = 1 << 20;

/// Where the kernel stops a write of a process that is killed: between two pages.
pub const PAGE_BYTES: u64 = 4096;

/// Most bytes that are searched for an append that may have been done: what many others could have appended meanwhile.
pub const APPEND_SEARCHED_BYTES: u64 = 8 << 20;

/// Blocks that readers of one file are expected to want next: the read-ahead of a few streams.
pub const AHEAD_BLOCKS_MAX: usize = 128;

/// Background fetchers that one file has at most, so that others have theirs too: four requests under way hide most of
/// a round trip.
pub const FETCHERS_PER_FILE_MAX: u32 = 4;

/// Files up to this size are fetched inside `open` and staged out in batches; they have no checksum file.
pub const SMALL_BYTES: u64 = BLOCK_BYTES;

/// A file up to this size is read in one request, so that what was read is of one moment, after the attributes were
/// asked for: the kernel's read-ahead.
pub const ONE_READ_BYTES: u64 = 128 << 10;

/// An absent file up to this size is staged in before a writer gets it; a larger one is written in the global store.
pub const WHOLE_FIRST_BYTES: u64 = 64 << 20;

/// How far a stage-out's writes may be ahead of the store's medium. Enough for a disk or a network to be busy all the
/// time: 16 MiB were 5 % slower, 64 MiB no faster. What lies behind leaves memory, for programs need it more, and
/// because fresh memory is dear: on a virtual machine that gives its free memory back, 1 GB of it costs two seconds.
pub const BEHIND_BYTES: u64 = 32 << 20;

/// Unit in which a new hole is compared with bytes that were read before it was one: a page.
pub const GAP_BYTES: usize = 4096;

/// Files in one batch of small ones, which share their syncs and commits; three descriptors a file are open at once.
pub const BATCH_FILES: usize = 2048;

/// Files of a batch whose records say together that they are clean. Whoever opens one of them meanwhile waits for a
/// call or two of the global store for each; a commit for so many costs next to nothing for one.
pub const CONCLUDED_FILES: usize = 32;

/// A drain of many small files is cut into batches for all streams, but not into smaller ones than this: each costs two
/// syncs and a commit that is synced.
pub const DRAIN_BATCH_FILES_MIN: usize = 256;

/// Longest time in which one worker alone takes small files: those closed meanwhile make the next batch. After it a
/// store that does not answer holds up nobody else.
pub const TURN_MAX: Duration = Duration::from_secs(1);

/// Longest pause between two batches of small files. It is as long as the batch took: syncs without end would stop the
/// programs that write meanwhile, and what they write in the pause shares the next sync.
pub const TURN_PAUSE_MAX: Duration = Duration::from_millis(200);

/// A stage-out beside programs that write rests a moment for so many that it computes. As much rest as work cost it
/// more than half of its rate.
pub const RESTS_FOR: u32 = 2;

/// Less work than this is not worth looking at the load for. A small file is done in less; its batches have pauses of
/// their own.
pub const RESTS_AFTER: Duration = Duration::from_micros(200);

/// Longest rest of a stage-out after a block, beside programs that write: it computes less than a tenth of that for
/// one.
pub const REST_MAX: Duration = Duration::from_millis(20);

/// Bytes in one batch of small files.
pub const BATCH_BYTES: u64 = 64 << 20;

/// First wait after a failed stage-out; doubles.
pub const BACKOFF_MIN: Duration = Duration::from_secs(1);

/// Longest wait between two tries of a stage-out.
pub const BACKOFF_MAX: Duration = Duration::from_secs(60);

/// Failures in a row after which a file is recorded as `Failed`. It is still tried every `BACKOFF_MAX`.
pub const FAILURES_MAX: u32 = 5;

/// How long files that were removed are kept before the store is asked to make that last: its own journal mostly has it
/// by then, and who removes one after the other pays one sync for all.
pub const REMOVALS_AFTER: Duration = Duration::from_secs(5);

/// Removed files that are kept; with more of them the store is asked at once.
pub const REMOVALS_MAX: usize = 4096;

/// The share of the free room that they may take before the store is asked at once, as a divisor.
pub const REMOVALS_SHARE: u64 = 4;

/// Syncs of the store that fail before they are given up: a store that cannot be written will not tell otherwise.
pub const REMOVALS_TRIES: u32 = 3;

/// Longest that who needs their room waits for the store to make their removal last, and the end of the agent.
pub const REMOVALS_WAIT: Duration = Duration::from_secs(2);

/// Longest that who has given up a drain waits for the files that are under way: what a store that answers needs to end
/// a call.
pub const GIVEN_UP_WAIT: Duration = Duration::from_secs(1);

/// Longest that the end of the agent waits for threads that a call into the store holds: as long as for a sync of it.
pub const STOP_WAIT: Duration = Duration::from_secs(2);

/// Longest that a decision about a file waits for its stage-out: most are over by then, and who decides is to hear of
/// one that is not.
pub const RESOLVE_WAIT: Duration = Duration::from_secs(5);

/// Tries of a stage-in whose global copy changes under it, before the file is served from the global store.
pub const FETCH_TRIES: u32 = 3;

/// Margin for the times of a file that is staged in: a later change is certain to show only if the file was last
/// changed this long before the kernel's last tick. It covers the time between the look at the file and the stage-in,
/// and two ticks of the slowest clock.
pub const RACY_SLACK: Duration = Duration::from_millis(30);

/// Bytes that must be writable before a burst buffer that refused writes counts as repaired: any write of ours is
/// larger.
pub const PROBE_BYTES: usize = 4096;

/// Replicas that were dropped while the burst buffer took no writes, and whose records are remembered until it does:
/// all that programs write in a day of that. Some 100 bytes each.
pub const DISOWNED: usize = 1 << 20;

/// Fresh replicas of failed opens that are removed again by this process, once the catalogue takes changes: the others
/// wait for the next start.
pub const DOUBTS: usize = 4096;

/// Closed clean files remembered in memory, so that opening one again reads no catalogue.
pub const IDLE_FILES: usize = 4096;

/// Versions reserved by one write of the superblock.
pub const VERSIONS_RESERVED: u64 = 1 << 20;

/// How old the last use in a record may be, in seconds: each update is a commit.
pub const USED_GRAIN_S: u64 = 60;

/// How long one answer about free space is believed: short, for writers fill a small burst buffer in milliseconds.
pub const SPACE_AGE: Duration = Duration::from_millis(1);

/// Eviction starts when this share of the burst buffer's file system is used, in thousandths...
pub const HIGH_WATER: u64 = 900;

/// ...and goes on down to this.
pub const LOW_WATER: u64 = 800;

/// Replicas evicted in one round.
pub const EVICT_ROUND: usize = 4096;

/// Entries of a status list.
pub const STUCK_LISTED: usize = 1000;

/// How long after a start replicas without a record are looked for: all records are read for it.
pub const SWEEP_AFTER: Duration = Duration::from_secs(1);

/// Pause between two rounds of expiry, eviction and trimming.
pub const ROUND: Duration = Duration::from_secs(1);

/// Pause between two rounds while the kernel writes replicas by itself and less than twice the reserve is free. At 1
/// GB/s a reserve of 5 % of 10 GB lasts half a second.
pub const ROUND_SHORT: Duration = Duration::from_millis(50);

/// Dirty replicas whose identity attribute was refused that are tried again in one round. A lack of room refuses all
/// of them. Each costs an open and up to two calls, together a few milliseconds.
pub const IDENTITY_ATTRIBUTES_ROUND: usize = 256;

/// How often a wait that can be interrupted looks whether it was.
pub const POLL: Duration = Duration::from_millis(20);

/// Past this size a fetch that nobody reads any more stops, unless half of the file is there.
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

/// The share of the descriptors that no open file holds which those of replicas may hold, as a divisor. The kernel's
/// nodes may hold a half.
pub const KEPT_SHARE: u64 = 4;

/// How often a batch waits for others to close descriptors before it takes some of the last: a second in all.
pub const ROOM_TRIES: u32 = 50;

/// How often in a row a stage-out that found no descriptor waits so before it is told as a failure.
pub const ROOM_ROUNDS: u32 = 10;

/// Descriptors that the process may have open: four batches of three each, the anchors and the programs' files.
pub const DESCRIPTORS: u64 = 65536;

/// The share of them that anchors may hold, as a divisor: each is one or two, and the kernel's nodes get half of all.
pub const ANCHORS_SHARE: u64 = 32;

/// Share of the descriptors for anchors where files are found again only by their paths, as a divisor. It is larger,
/// for that costs a walk from the root, and a walk over everything if one was moved.
pub const ANCHORS_BY_PATH_SHARE: u64 = 8;

/// The share of them that all batches may hold together, as a divisor: a file of a batch has three.
pub const BATCHES_SHARE: u64 = 16;

/// Files in a batch however few descriptors there are: fewer would not be worth the sync they share.
pub const BATCH_FILES_MIN: usize = 8;

/// Bytes kept for a start in a burst buffer that is full: superblock, log and the records of what it stages out. 16 KiB
/// were enough in `what_is_in_a_full_burst_buffer_is_recovered` (crates/tools/cli/tests/places.rs).
pub const START_ROOM_BYTES: u64 = 256 << 10;

/// Longest that an orderly end sums dirty replicas: `umount --force` waits 6 s for that end.
pub const SUM_AT_END_MAX: Duration = Duration::from_secs(3);

/// The part of its length by which a synced replica must have grown for that to be noted again: a log that is appended
/// to and synced costs no commit each time.
pub const LENGTH_STEP: u64 = 16;

/// Records of clean replicas that are removed by one commit.
pub const CLEAN_BATCH: usize = 1024;

/// Longest that a place which nobody uses is held to drop clean data from it: an agent that starts there waits as long.
pub const CLEAN_TURN: Duration = Duration::from_secs(1);

/// Longest that a start waits for who drops clean data from its place: for the turn, with its look at the catalogue.
pub const CLEANED_WAIT: Duration = Duration::from_secs(5);

/// How often it looks.
pub const CLEANED_POLL: Duration = Duration::from_millis(5);

/// Pause before other places are asked for room again that had none: each question reads their catalogues.
pub const NEIGHBOURS_PAUSE: Duration = Duration::from_secs(10);

/// Commits that a start may have to read again after an agent was killed while nothing was changed: some tens of
/// milliseconds of it.
pub const REPLAY_BYTES_IDLE: u64 = 1 << 20;

/// Bytes of commits that a start may have to read again while files change all the time: a second of a start. Each
/// time the bound is reached, commits stop for some tens of milliseconds.
pub const REPLAY_BYTES_MAX: u64 = 16 << 20;

/// Units of time that file systems cut times of last access to, in nanoseconds: those of NTFS, of databases, of Lustre,
/// of FAT.
pub const UNITS_NS: [i128; 7] = [1, 100, 1_000, 1_000_000, 10_000_000, 1_000_000_000, 2_000_000_000];

/// How long a file that is to take another's place waits for changes of names to end, which wait for it meanwhile:
/// longer than a store takes for one, shorter than a program notices.
pub const NAMES_WAIT: Duration = Duration::from_millis(100);

/// How often it waits so before it gives up what it has written: five seconds in which every change of names took too
/// long.
pub const NAMES_TRIES: usize = 50;

/// How often who waits for another agent's mark asks whether the file still has a name: its mark stays for ever where
/// it lost that.
pub const NAME_ASKED: Duration = Duration::from_secs(1);

/// Bytes written to a replica at a time where nobody else writes meanwhile: data staged in, or applied from a window.
/// The system allocates memory for a write in pieces as large as the write. Pieces beyond 256 KiB are seldom free. On
/// a virtual machine that gives free memory back, ext4 of Linux 6.18 takes 2.5 to 4 GB/s at 64 to 256 KiB, and 0.4 to
/// 1.0 GB/s at 1 MiB. Measured with `dd if=/dev/zero of=FILE bs=64k count=16384` and so on, 1 GiB each, four times in
/// turn, at a load of 6.
pub const PIECE_BYTES: usize = 256 << 10;

/// Bytes of a file's name that a saved replica of it is called by, before a dot and its version: names have at most
/// 255.
pub const SAVED_NAME_BYTES: usize = 200;

/// Names that are tried for one saved file. Versions begin anew with each directory that is made anew at a path, so
/// names come again.
pub const SAVED_NAMES_MAX: u32 = 10_000;

/// The coarsest unit in which stores keep times.
pub(crate) const COARSE_SECONDS: i64 = 2;

/// Smallest delay of a write from a window for which its file gets the time of the write. A write that arrives sooner
/// has the time of its arrival, which saves two system calls. A tick of the clock from which the kernel takes times is
/// up to that long.
pub const BACKDATE_AFTER: Duration = Duration::from_millis(10);
