//! The bounds of sockets, sessions and waits, each with its reason.

use std::time::Duration;

/// Longest that a call sleeps in the kernel before it looks at its deadline and whether it is interrupted.
pub const TICK: Duration = Duration::from_millis(100);

/// How long the whole handshake may take: a few round trips on a loaded machine.
pub const HANDSHAKE: Duration = Duration::from_secs(10);

/// How long a frame may take from its first byte to its last: 1 MiB at 35 KB/s. Who is slower holds a thread for nothing.
pub const FRAME: Duration = Duration::from_secs(30);

/// How long a client tries to connect before it counts as refused and is tried again.
pub const CONNECT: Duration = Duration::from_secs(5);

/// First and longest pause between two tries to connect: a server that starts again is found at once, one that is away
/// is not hammered.
pub const RETRY: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(500));

/// Most connections of one client by lane, each made when all others of its lane wait. What needs no disk is short; data may
/// have to come from a global store that hangs, with some of the 64 threads of a FUSE session waiting for it; what may wait
/// for disks by its nature has one for every other thread.
pub const LANE_CONNECTIONS: [usize; 4] = [4, 24, 16, 32];

/// A request with more data than this, asked or brought, takes the lane of large ones: 16 KiB passes a 10 Gb/s network in
/// the time of one round trip.
pub const SMALL_BYTES: usize = 16 << 10;

/// Connections of clients that one server has at most, each a thread: some twenty-seven nodes that use all of theirs, hundreds of quiet ones.
pub const CONNECTIONS_MAX: usize = 2048;

/// Connections in their handshake at once: as many as come when a server is there again. One that comes beyond may take another's place.
pub const STRANGERS_MAX: usize = 256;

/// How long a handshake that has begun keeps its place while others come: many times what it takes on a loaded machine.
pub const STRANGER_SPOKEN: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 2 });

/// Threads beyond those of clients: strangers, and as many that were closed and have not seen it yet.
pub const THREADS_ENDING_MAX: usize = 2 * STRANGERS_MAX;

/// How long a connection that nobody uses stays, if its client has another of its lane, and the memory of one that stays. Making one takes
/// two round trips.
pub const IDLE: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 5 });

/// Sessions that one server has at most.
pub const SESSIONS_MAX: usize = 512;

/// How long a session without a connection is remembered. A client that lives comes back within [`RETRY`]; what it had
/// open it opens anew when it comes later.
pub const SESSION_IDLE: Duration = Duration::from_secs(10);

/// Answers that one session remembers: far more than a client can wait for at once, and 100 bytes each.
pub const ANSWERS_MAX: usize = 4096;

/// Stack of a connection's thread on the server: the file cache's calls are shallow.
pub const STACK_BYTES: usize = 512 << 10;

/// Bytes of a connection's read buffer: a small request arrives with one call.
pub const BUFFER_BYTES: usize = 24 << 10;

/// Bytes of a file copied at a time where its file system does not lend its pages to a socket.
pub const FILE_COPY_BYTES: usize = 128 << 10;

/// Seconds without a sign of life before the kernel asks the other side, between two such questions, and their number:
/// a machine that vanished is noticed within half a minute.
pub const KEEP_ALIVE: (Duration, Duration, u32) = (Duration::from_secs(10), Duration::from_secs(5), 3);

/// How long sent bytes may stay unconfirmed by the other machine.
pub const UNCONFIRMED_MS: u32 = 25_000;

/// Shortest secret, bytes: 16 random bytes cannot be guessed.
pub const SECRET_BYTES_MIN: usize = 16;

/// Longest secret file, bytes: a key, not a document.
pub const SECRET_BYTES_MAX: u64 = 4096;

/// Requests that a client says it still waits for, when it tells what it is done with: each has a thread.
pub const OPEN_MAX: usize = 1 << 14;
