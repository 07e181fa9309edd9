//! Every message, in one table: its number, its fields in their order on the wire, and what it asks or answers.
//!
//! A handle is chosen by the client, unique within its session: an open that is sent again opens nothing twice, and
//! after the server was started again the same handle is opened anew under the same number.

use std::time::Duration;

use types::{Identity, Timestamp};

use crate::code::Code;
use crate::codec::{Path, Piece, Text};
use crate::table::messages;
use crate::values::TimeChange;

messages! {
    /// The client's first frame.
    Hello = 1 {
        /// Oldest version that it speaks.
        min: u16,
        /// Newest.
        max: u16,
        /// Its session, random; every connection of an agent has the same.
        session: [u8; 16],
        /// Random, for the server's proof.
        nonce: [u8; 32],
        /// Identity of the accelerated directory, in hex.
        store: Text,
        /// Who it is, for people.
        agent: Text,
    }
    /// The server's answer.
    Challenge = 2 {
        /// The version that is spoken from now on.
        version: u16,
        /// Random, for the client's proof.
        nonce: [u8; 32],
        /// Whether both sides must prove that they have the secret.
        secret: bool,
    }
    /// The client's proof; zeros where none is wanted.
    Proof = 3 {
        /// Keyed hash of both nonces.
        proof: [u8; 32],
    }
    /// The connection may be used.
    Welcome = 4 {
        /// This run of the server, random: another one has forgotten every handle.
        instance: [u8; 16],
        /// Keyed hash of both nonces; zeros where none is wanted.
        proof: [u8; 32],
    }

    /// Opens a file; answered by `Opened`. Sent again for a handle that is open, it opens nothing.
    Open = 32 {
        /// Chosen by the client.
        handle: u64,
        /// Bits of [`open`](crate::open).
        flags: u32,
        /// Which file.
        identity: Identity,
        /// Where it was last seen.
        hint: Path,
        /// Its rules, `KEY=VALUE` lines of TOML.
        policy: Text,
    }
    /// Closes a handle; one that is not open is no error.
    Close = 33 {
        /// Which.
        handle: u64,
    }
    /// Reads; answered by `Bytes`.
    Read = 34 {
        /// An open handle.
        handle: u64,
        /// First byte.
        offset: u64,
        /// Bytes, at most `DATA_BYTES_MAX`.
        len: u32,
    }
    /// Writes the frame's data; answered by `Written`.
    Write = 35 {
        /// A handle open for writing.
        handle: u64,
        /// First byte.
        offset: u64,
    }
    /// Writes the frame's data at the end of the file; answered by `Written`.
    Append = 36 {
        /// A handle open for writing.
        handle: u64,
        /// With `again`: no byte before this one was written by the lost request.
        end: u64,
        /// A server that has ended may have done it already: what is there from `end` onwards is looked at first.
        again: bool,
    }
    /// `ftruncate`
    SetLen = 37 {
        /// A handle open for writing.
        handle: u64,
        /// Bytes.
        len: u64,
    }
    /// `fallocate`
    Allocate = 38 {
        /// A handle open for writing.
        handle: u64,
        /// `FALLOC_FL_*`, which are the same on every machine.
        mode: u32,
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
    }
    /// Finds data or a hole; answered by `Position`.
    Seek = 39 {
        /// An open handle.
        handle: u64,
        /// From where.
        offset: u64,
        /// A value of [`seek`](crate::seek).
        target: u8,
    }
    /// `fsync`
    Sync = 40 {
        /// An open handle.
        handle: u64,
        /// `fdatasync`
        data_only: bool,
        /// Of what was acknowledged before, and nothing else: nothing is staged out for it, and no failed stage-out told.
        acknowledged: bool,
    }
    /// A descriptor is closed.
    Flush = 41 {
        /// An open handle.
        handle: u64,
    }
    /// The size of a handle's file as its writers see it; answered by `Position`.
    End = 42 {
        /// An open handle.
        handle: u64,
    }

    /// `Write` of what a program wrote a while ago, which the file's time is to be; answered by `Written`.
    WriteBackdated = 43 {
        /// A handle open for writing.
        handle: u64,
        /// First byte.
        offset: u64,
        /// How long ago, ns: the clocks of nodes may differ.
        age_ns: u64,
    }

    /// What `stat` must say; answered by `Overlay`.
    Attributes = 48 {
        /// Which file.
        identity: Identity,
    }
    /// `truncate(2)`
    Truncate = 49 {
        /// Which file.
        identity: Identity,
        /// Where it was last seen.
        hint: Path,
        /// Its rules.
        policy: Text,
        /// Bytes.
        len: u64,
    }
    /// `utimens`, which the client has found to be allowed.
    SetTimes = 50 {
        /// Which file.
        identity: Identity,
        /// Where it was last seen.
        hint: Path,
        /// Last access.
        atime: TimeChange,
        /// Last modification.
        mtime: TimeChange,
    }
    /// The client changed names or attributes.
    OwnChange = 51 {
        /// Which file.
        identity: Identity,
        /// Where it is now.
        hint: Path,
    }
    /// The client removed the last name.
    Unlinked = 52 {
        /// Which file.
        identity: Identity,
    }
    /// Where a file's data is; answered by `Resides`.
    State = 53 {
        /// Which file.
        identity: Identity,
    }
    /// Begins what may take long; a number that is there already begins nothing.
    Begin = 54 {
        /// Chosen by the client.
        job: u64,
        /// A value of [`job`](crate::job).
        verb: u8,
        /// Which file.
        identity: Identity,
        /// Where it was last seen.
        hint: Path,
        /// Its rules.
        policy: Text,
    }
    /// Waits for a job for a moment; answered by `Pending`, or by its outcome, which is then forgotten.
    Poll = 55 {
        /// Which.
        job: u64,
    }
    /// Drops a clean replica.
    Evict = 56 {
        /// Which file.
        identity: Identity,
    }
    /// Pins or unpins a replica.
    Pin = 57 {
        /// Which file.
        identity: Identity,
        /// Pins.
        pinned: bool,
    }
    /// The server's counters; answered by `Report`.
    Status = 58 { }
    /// Answered by `Done`.
    Ping = 59 { }
    /// The client is about to remove the last name.
    Removing = 60 {
        /// Which file.
        identity: Identity,
    }

    /// A node that does not see the global store begins: what its kernel offers. Answered by `Relayed`.
    Attach = 61 {
        /// The kind of machine: a kernel's messages are in its own numbers.
        machine: Text,
        /// The kernel's INIT, whole.
        init: Piece,
    }
    /// A message of the node's kernel; answered by `Relayed`, by `Pending` if the answer comes as an event or not at all, or
    /// by `Unknown` where nothing is attached.
    Relay = 62 {
        /// A value of [`pace`](crate::pace).
        pace: u8,
        /// Its number, which the node gives: rising, never used twice.
        number: u64,
        /// The lowest of these that the node has not done with.
        oldest: u64,
        /// The caller's groups, four bytes each.
        groups: Piece,
        /// The message, or its beginning; the rest is the frame's data.
        head: Piece,
    }
    /// Waits a moment for events after this one; answered by `Heard`. Those up to it are forgotten.
    Listen = 63 {
        /// The last event that the node has dealt with.
        after: u64,
    }
    /// The kernel never got the answer to a request that the node has given up: what that gave is taken back.
    Withdraw = 64 {
        /// The request's number.
        number: u64,
    }
    /// The node has unmounted: what it has open is closed.
    Detach = 65 { }
    /// As `Attach`, of a kernel that has numbers of an earlier memory of this node: it is asked nothing (`Unknown`) before
    /// `Reclaimed`. One that is attached already is not attached again.
    AttachAgain = 66 {
        /// The kind of machine.
        machine: Text,
        /// The kernel's INIT, whole.
        init: Piece,
    }
    /// What a number meant to an earlier memory of this node it shall mean again. Answered by `Done`, also where it does already;
    /// `ESTALE`: the file is not there any more.
    Reclaim = 67 {
        /// The number of a file or directory.
        node: u64,
        /// How often the kernel has looked it up and not forgotten.
        lookups: u64,
        /// Which file.
        identity: Identity,
        /// Where it was last seen.
        hint: Path,
        /// The number of an open file of it; 0: none.
        handle: u64,
        /// How that was opened, as open(2) has it, without what was done then.
        flags: u32,
    }
    /// Everything is claimed: the kernel's requests follow.
    Reclaimed = 68 { }
    /// A SETLK or a RELEASE of the kernel's, on numbers that were claimed, before it may ask: claims a lock that it holds, or gives back
    /// what was claimed in vain. Answered by `Done`; `ESTALE`: the lock may be somebody else's by now.
    ReclaimLock = 69 {
        /// The message, whole.
        head: Piece,
    }
    /// All locks are claimed that the node wants to keep. Answered by `Done`; `ESTALE`: too late, it has none.
    LocksReclaimed = 70 { }

    /// What others have changed of a file since a client fell silent that had windows on it, an earlier life of this one: answered by `Bytes`,
    /// whose data are the ranges, first byte and the one after the last of each, eight bytes little-endian; by `Unknown` where nobody
    /// knows, for the server was started again.
    Since = 71 {
        /// Which file.
        identity: Identity,
        /// That client's session.
        session: [u8; 16],
    }
    /// Of that client nothing will be asked any more. Answered by `Done`.
    Gone = 72 {
        /// Its session.
        session: [u8; 16],
    }
    /// Which life the server's machine lives; answered by `Lives`.
    Life = 73 { }
    /// Of the session's own requests: all below are done with, answered or given up, but those whose numbers are the frame's data, eight bytes
    /// little-endian each. Answered by `Done`.
    DoneWith = 74 {
        /// Above all that were sent.
        below: u64,
    }

    /// It is done.
    Done = 128 { }
    /// It failed; also the end of a handshake.
    Failed = 129 {
        /// Why, for programs.
        code: Code,
        /// Why, for people.
        reason: Text,
    }
    /// The server does not know the handle or the job: it was started again, or has closed what a silent client left.
    Unknown = 130 { }
    /// A file is open.
    Opened = 131 {
        /// Which version of its data: equal numbers are one version.
        version: u64,
        /// Another number than before, and what was not synced may be lost: the server's machine has crashed.
        life: u64,
    }
    /// All of the data was written.
    Written = 132 {
        /// Where it begins.
        offset: u64,
    }
    /// A position in a file.
    Position = 133 {
        /// Byte.
        offset: u64,
    }
    /// The frame's data; fewer bytes than asked only at the end of the file.
    Bytes = 134 { }
    /// What the replica knows better than the global store.
    Overlay = 135 {
        /// How often a global copy became the truth about a file again.
        settled: u64,
        /// Whether the replica is ahead. If not, `ctime` is what is shown while the global copy's is `mtime`; zeros: itself.
        known: bool,
        /// Bytes.
        size: u64,
        /// Of 512 bytes.
        blocks: u64,
        /// Last modification.
        mtime: Timestamp,
        /// Last change.
        ctime: Timestamp,
    }
    /// Where a file's data is.
    Resides = 136 {
        /// Number of the residency.
        state: u8,
        /// Ahead of the global copy, or may be.
        dirty: bool,
    }
    /// The job is not done.
    Pending = 137 { }
    /// A stage-out that did not end well.
    Stuck = 138 {
        /// Which file.
        identity: Identity,
        /// Where it was last seen.
        hint: Path,
        /// Number of the residency.
        state: u8,
        /// Not found in the global store.
        orphaned: bool,
        /// Why, for programs.
        code: Code,
        /// Why, for people.
        reason: Text,
        /// Where the data is, on the server.
        replica: Path,
    }
    /// The frame's data is the server's status as JSON.
    Report = 139 { }
    /// An answer for a kernel.
    Relayed = 140 {
        /// The answer, or its header; the rest is the frame's data.
        head: Piece,
    }
    /// The frame's data are messages for a kernel, one after the other.
    Heard = 141 {
        /// The number of the last of them.
        last: u64,
    }
    /// As `Relayed`, to a request that opened a file, or looked up a directory, or cut a file: which that is.
    RelayedOf = 142 {
        /// The answer, or its header.
        head: Piece,
        /// Which file.
        identity: Identity,
        /// Where it was last seen.
        hint: Path,
    }
    /// Locks of a former server are being claimed: a request for one is sent again in a moment.
    Grace = 143 { }
    /// Which life the server's machine lives.
    Lives = 144 {
        /// Another number than before: it has crashed, and what was not synced may be lost.
        life: u64,
    }
}

impl Message {
    /// A failure as it is told.
    pub fn failed(errno: i32, reason: impl Into<String>) -> Message {
        Message::Failed { code: Code::from_errno(errno), reason: Text::cut(reason) }
    }
}

impl Message {
    /// What it is when it is sent `by` so much later than it was made; `None`: the same.
    pub fn later(&self, by: Duration) -> Option<Message> {
        let Message::WriteBackdated { handle, offset, age_ns } = *self else { return None };
        let by = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
        Some(Message::WriteBackdated { handle, offset, age_ns: age_ns.saturating_add(by) })
    }
}
