//! Bounds of sockets, sessions and waits, each with its reason.

use std::time::Duration;

/// Longest time that a call sleeps in the kernel before it checks its deadline and whether it was interrupted.
pub const TICK: Duration = Duration::from_millis(100);

/// Longest duration of a whole handshake: a few round trips on a loaded machine.
pub const HANDSHAKE: Duration = Duration::from_secs(10);

/// Longest duration of a frame from first byte to last: 1 MiB at 35 KB/s. A slower peer holds a thread for nothing.
pub const FRAME: Duration = Duration::from_secs(30);

/// Longest wait for a connection before the try counts as failed and is repeated.
pub const CONNECT: Duration = Duration::from_secs(5);

/// First and longest pause between two tries to connect. A restarted server is found at once, and one that is away
/// gets few tries.
pub const RETRY: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(500));

/// Most connections of one client, by lane. A connection is made when all others of its lane are in use. Quick requests
/// need no disk and are short. Data, small or large, may have to be read from a hanging global store, and some of the
/// 64 threads of a FUSE session then wait for it. Slow requests wait for disks by their nature, so there is a
/// connection for every other thread.
pub const LANE_CONNECTIONS: [usize; 4] = [4, 24, 16, 32];

/// Most data, bytes, of a request in the lane of small ones, read or written. 16 KiB pass a 10 Gb/s network in the
/// time of one round trip.
pub const SMALL_BYTES: usize = 16 << 10;

/// Most connections of clients to one server, each with a thread. This is enough for some 27 nodes that use all of
/// theirs, or hundreds of quiet ones.
pub const CONNECTIONS_MAX: usize = 2048;

/// Most connections in their handshake at once: enough for the clients that return when a server restarts. A further
/// one may replace another.
pub const STRANGERS_MAX: usize = 256;

/// Time for which a begun handshake keeps its slot while others arrive: many times its duration on a loaded machine.
pub const STRANGER_SPOKEN: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 2 });

/// Threads beyond those of clients: for connections in their handshake, and for as many closed ones whose threads
/// have not ended yet.
pub const THREADS_ENDING_MAX: usize = 2 * STRANGERS_MAX;

/// Time after which an unused connection is closed, if its client has another one in that lane. Also the time after
/// which the server frees the buffers of a quiet connection. Making a connection takes two round trips.
pub const IDLE: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 5 });

/// Most sessions of one server.
pub const SESSIONS_MAX: usize = 512;

/// Time for which a session without a connection is remembered. A running client reconnects within [`RETRY`]. One
/// that comes later opens its files again.
pub const SESSION_IDLE: Duration = Duration::from_secs(10);

/// Most answers that one session remembers, about 100 bytes each: far more than a client can wait for at once.
pub const ANSWERS_MAX: usize = 4096;

/// Stack of a connection's thread on the server, bytes. The file cache's calls are shallow.
pub const STACK_BYTES: usize = 512 << 10;

/// Read buffer of a connection, bytes: a small request arrives with one call.
pub const BUFFER_BYTES: usize = 24 << 10;

/// Bytes of a file copied at a time, where its file system does not support sendfile(2) to a socket.
pub const FILE_COPY_BYTES: usize = 128 << 10;

/// Keep-alive of TCP: idle time before the first probe, time between probes, and their number. A machine that
/// vanished is noticed within half a minute.
pub const KEEP_ALIVE: (Duration, Duration, u32) = (Duration::from_secs(10), Duration::from_secs(5), 3);

/// Longest time that sent bytes may stay unacknowledged by the other machine, milliseconds.
pub const UNCONFIRMED_MS: u32 = 25_000;

/// Shortest secret, bytes. 16 random bytes cannot be guessed.
pub const SECRET_BYTES_MIN: usize = 16;

/// Bytes of a secret file that are read at most: a secret is a key, not a document.
pub const SECRET_BYTES_MAX: u64 = 4096;

/// Most open requests that a client lists in [`wire::Message::DoneWith`]. Each has a waiting thread.
pub const OPEN_MAX: usize = 1 << 14;
