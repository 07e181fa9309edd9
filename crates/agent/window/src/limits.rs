//! Every bound of this crate, with its reason.

use std::time::Duration;

/// Smallest ring in bytes: sixteen of the smallest useful writes, so that tests can fill one.
#[cfg(not(loom))]
pub const CAPACITY_MIN: u64 = 64 << 10;
/// Two small records: each word costs the model checker.
#[cfg(loom)]
pub const CAPACITY_MIN: u64 = 256;

/// Largest ring in bytes. Recovery looks at each 64 bytes of one, which at this size takes a few seconds.
pub const CAPACITY_MAX: u64 = 16 << 30;

/// A record holds at most this share of its ring, so that one write never waits for the whole ring to drain.
pub const PAYLOAD_SHARE: u64 = 4;

/// Longest payload of one record in bytes, whatever the ring: a longer write gains nothing from the window.
pub const PAYLOAD_MAX: u64 = 64 << 20;

/// Bytes copied and checksummed at a time: the copy is still in the first-level cache when its checksum is taken.
pub const COPY_CHUNK: usize = 16 << 10;

/// Bytes of zeroes written at a time to a new ring on persistent memory.
pub const ZERO_CHUNK: usize = 1 << 20;

/// A longer write takes some microseconds to be copied, and learns its place after that.
pub const PLACED_FIRST_MAX: u64 = 64 << 10;

/// Looks at the tail before a writer that has no room sleeps. About the time a drain engine needs for one batch.
pub const ROOM_SPINS: u32 = 200;

/// How long a writer without room, or an idle reader, sleeps before it looks up from the bell: a lost wake-up or a dead
/// partner costs this much and no more.
pub const SLEEP_MAX: Duration = Duration::from_millis(50);

/// Neighbouring bytes gathered before a drain that nobody waits for begins: the burst buffer's efficient request.
pub const MERGE_BYTES_MIN: u64 = 1 << 20;

/// Where runs are left that go on behind: as large as the largest folios with which the page cache takes a write fastest, so that none is
/// filled by two.
pub const DRAIN_ALIGN: u64 = 256 << 10;

/// Bytes of one file drained before the next file has its turn, and the longest merged write.
pub const BATCH_BYTES_MAX: u64 = 8 << 20;

/// The same of bytes without neighbours, where a batch costs nothing but its bytes: whoever has something else to ask of the file waits for
/// that long, a millisecond or two.
pub const LONE_BYTES_MAX: u64 = 2 << 20;

/// Records of one batch: bounds the planner's work for tiny writes.
pub const BATCH_RECORDS_MAX: usize = 16 << 10;

/// Bytes that one call of the reader looks through before it returns to the caller, who has other rings.
pub const TAKE_BYTES_MAX: u64 = 8 << 20;

/// A block of the burst buffer, the least that read-ahead fetches.
pub const BLOCK: u64 = 1 << 20;

/// Streams told apart in one open file. Programs rarely interleave more through one descriptor.
pub const STREAMS_MAX: usize = 4;

/// Requests outside of every stream that are remembered to find new streams: three of a stream are among sixteen even
/// when four streams and as much noise are interleaved.
pub const ORPHANS_MAX: usize = 16;

/// A request this many bytes off the end of a sequential stream still continues it: threads overtake each other, and
/// readers skip headers. As Lustre's eight pages.
pub const LOOSE: u64 = 32 << 10;

/// Bytes kept behind a sequential reader for small steps back, as mountpoint-s3 does.
pub const BACK_WINDOW: u64 = 1 << 20;

/// Blocks fetched around random misses before their yield is judged.
pub const RANDOM_CREDIT: u64 = 32;

/// Of the random misses that earn nothing every so many tries a block, in case the program has changed.
pub const RANDOM_PROBE: u64 = 64;

/// Largest read-ahead window of one stream in bytes; as Lustre's limit for one file.
pub const AHEAD_MAX: u64 = 64 << 20;

/// Requests that a stride stream looks ahead at most: bounds the list of ranges of one answer.
pub const STRIDES_AHEAD_MAX: u64 = 64;

/// How long a program waits for the agent's answer on the socket before it does without windows: the answer needs no disk.
pub const AGENT_ANSWERS_WITHIN: Duration = Duration::from_secs(5);

/// How long a program waits to learn whether the agent answers at all, before it asks what it would wait for however long, with
/// signals blocked: no longer than a person takes to press a key twice, and much longer than a busy node keeps an agent from running.
pub const AGENT_IS_THERE_WITHIN: Duration = Duration::from_millis(500);

/// Descriptors that come with one message at most: ring and counter, and room to notice a third.
pub const DESCRIPTORS_PER_MESSAGE: usize = 4;

/// Mappings that are guarded against truncation at once: rings, counters and pages of a busy node. Each SIGBUS looks
/// through all.
pub const GUARDED_MAX: usize = 4096;
