//! Bounds of this crate, each with its reason.

use std::time::Duration;

/// Smallest ring, bytes: sixteen of the smallest useful writes, so that tests can fill one.
#[cfg(not(loom))]
pub const CAPACITY_MIN: u64 = 64 << 10;
/// Smallest ring in the model, bytes: two small records, because each word costs the model checker.
#[cfg(loom)]
pub const CAPACITY_MIN: u64 = 256;

/// Largest ring, bytes. Recovery checks every 64 bytes of a ring, which takes a few seconds at this size.
pub const CAPACITY_MAX: u64 = 16 << 30;

/// Divisor of a ring's capacity for its longest record, so that one write never waits until the whole ring has been
/// applied.
pub const PAYLOAD_SHARE: u64 = 4;

/// Longest payload of one record in bytes, in any ring. A longer write gains nothing from the window.
pub const PAYLOAD_MAX: u64 = 64 << 20;

/// Bytes copied and checksummed at a time. The copy is still in the first-level cache when its checksum is computed.
pub const COPY_CHUNK: usize = 16 << 10;

/// Bytes of zeroes written at a time to a new ring on persistent memory.
pub const ZERO_CHUNK: usize = 1 << 20;

/// Longest write in bytes that takes its file position before the copy. Copying a longer one takes some microseconds,
/// so it takes its position afterwards.
pub const PLACED_FIRST_MAX: u64 = 64 << 10;

/// Number of checks of the tail before a writer without room sleeps. About the time that the agent needs to apply one
/// batch.
pub const ROOM_SPINS: u32 = 200;

/// Longest sleep of a writer without room or of an idle reader before it checks again. A lost wake-up or a dead partner
/// costs at most this time.
pub const SLEEP_MAX: Duration = Duration::from_millis(50);

/// Neighbouring bytes that are gathered before records are applied for which nobody waits: the burst buffer's efficient
/// request.
pub const MERGE_BYTES_MIN: u64 = 1 << 20;

/// Alignment in bytes of the end of a run that continues. As large as the largest folios, with which the page cache
/// takes a write fastest, so that no folio is filled by two writes.
pub const DRAIN_ALIGN: u64 = 256 << 10;

/// Bytes of one file applied before the next file has its turn; also the longest merged write.
pub const BATCH_BYTES_MAX: u64 = 8 << 20;

/// Limit of a batch in bytes if none of its bytes have neighbours. Such a batch costs in proportion to its bytes, and
/// other requests for the file wait that long: a millisecond or two.
pub const LONE_BYTES_MAX: u64 = 2 << 20;

/// Records of one batch. Bounds the planner's work for tiny writes.
pub const BATCH_RECORDS_MAX: usize = 16 << 10;

/// Bytes that one call of the reader examines before it returns to its caller, which has other rings.
pub const TAKE_BYTES_MAX: u64 = 8 << 20;

/// Size of a block of the burst buffer, bytes: the smallest read-ahead.
pub const BLOCK: u64 = 1 << 20;

/// Streams distinguished in one open file. Programs rarely interleave more through one descriptor.
pub const STREAMS_MAX: usize = 4;

/// Requests outside of all streams that are remembered to find new streams. Among sixteen there are three of one
/// stream, even if four streams and as much noise are interleaved.
pub const ORPHANS_MAX: usize = 16;

/// Distance in bytes from the end of a sequential stream within which a request continues it. Threads overtake each
/// other, and readers skip headers. The value is Lustre's eight pages.
pub const LOOSE: u64 = 32 << 10;

/// Bytes kept behind a sequential reader for small steps back, as in mountpoint-s3.
pub const BACK_WINDOW: u64 = 1 << 20;

/// Blocks fetched around random misses before their benefit is judged.
pub const RANDOM_CREDIT: u64 = 32;

/// Number of random misses without benefit after which one block is tried, in case the program has changed.
pub const RANDOM_PROBE: u64 = 64;

/// Largest read-ahead window of one stream, bytes: Lustre's limit for one file.
pub const AHEAD_MAX: u64 = 64 << 20;

/// Maximum number of requests that a stride stream looks ahead. Bounds the list of ranges of one answer.
pub const STRIDES_AHEAD_MAX: u64 = 64;

/// Time that a program waits for the agent's answer on the socket before it continues without windows. The answer needs
/// no disk.
pub const AGENT_ANSWERS_WITHIN: Duration = Duration::from_secs(5);

/// Time that a program waits to learn whether the agent answers at all. The request that follows has no time limit and
/// is made with signals blocked. No longer than a person takes to press a key twice, and much longer than a busy node
/// keeps an agent from running.
pub const AGENT_IS_THERE_WITHIN: Duration = Duration::from_millis(500);

/// Maximum number of descriptors in one message: ring and counter, and space to detect a third.
pub const DESCRIPTORS_PER_MESSAGE: usize = 4;

/// Mappings guarded against truncation at once: rings, counters and pages of a busy node. Each SIGBUS searches all of
/// them.
pub const GUARDED_MAX: usize = 4096;
