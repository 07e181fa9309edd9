//! All messages in one table: number, fields in wire order, and purpose of each.
//!
//! The client chooses the number of a handle, which is unique within its session. An open that is sent again therefore
//! opens nothing twice. After a restart of the server the client opens the handle anew under the same number.

use std::time::Duration;

use types::{Identity, Timestamp};

use crate::code::Code;
use crate::codec::{Path, Piece, Text};
use crate::table::messages;
use crate::values::TimeChange;

messages! {
    /// First frame of a client.
    Hello = 1 {
        /// Oldest version that the client speaks.
        min: u16,
        /// Newest version that the client speaks.
        max: u16,
        /// Session of the client, random. All connections of one agent have the same session.
        session: [u8; 16],
        /// Nonce for the server's proof, random.
        nonce: [u8; 32],
        /// Identity of the accelerated directory, in hex.
        store: Text,
        /// Name of the client, for people.
        agent: Text,
    }
    /// Answer of the server to `Hello`.
    Challenge = 2 {
        /// Version that both sides speak from now on.
        version: u16,
        /// Nonce for the client's proof, random.
        nonce: [u8; 32],
        /// Whether both sides must prove that they have the secret.
        secret: bool,
    }
    /// Proof of the client; zeros if no secret is used.
    Proof = 3 {
        /// Keyed hash of both nonces.
        proof: [u8; 32],
    }
    /// End of the handshake: the connection may be used.
    Welcome = 4 {
        /// Random number of this run of the server. A new run has forgotten all handles.
        instance: [u8; 16],
        /// Keyed hash of both nonces; zeros if no secret is used.
        proof: [u8; 32],
    }

    /// Opens a file; answered by `Opened`. Repeating it for an open handle opens nothing.
    Open = 32 {
        /// Handle, chosen by the client.
        handle: u64,
        /// Bits of [`open`](crate::open).
        flags: u32,
        /// Identity of the file.
        identity: Identity,
        /// Last known path of the file.
        hint: Path,
        /// Policy of the file, as `KEY=VALUE` lines of TOML.
        policy: Text,
    }
    /// Closes a handle. A handle that is not open is no error.
    Close = 33 {
        /// Handle to close.
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
        /// With `again`: offset below which the lost request has written nothing.
        end: u64,
        /// Whether a server that has ended may have executed the append already. The server then looks first at the
        /// data from `end` onwards.
        again: bool,
    }
    /// Sets the size of a file (`ftruncate`).
    SetLen = 37 {
        /// A handle open for writing.
        handle: u64,
        /// New size, bytes.
        len: u64,
    }
    /// Changes the allocation of a range (`fallocate`).
    Allocate = 38 {
        /// A handle open for writing.
        handle: u64,
        /// Bits `FALLOC_FL_*`, which have the same values on every architecture.
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
        /// Byte at which the search begins.
        offset: u64,
        /// A value of [`seek`](crate::seek).
        target: u8,
    }
    /// Makes a file durable (`fsync`).
    Sync = 40 {
        /// An open handle.
        handle: u64,
        /// Whether to leave out attributes (`fdatasync`).
        data_only: bool,
        /// Whether to cover only writes acknowledged before, for a window. Such a sync stages nothing out and reports
        /// no failed stage-out.
        acknowledged: bool,
    }
    /// Reports that a program closed a descriptor (FUSE's flush).
    Flush = 41 {
        /// An open handle.
        handle: u64,
    }
    /// Asks for the size of a handle's file as its writers see it; answered by `Position`.
    End = 42 {
        /// An open handle.
        handle: u64,
    }

    /// Writes data that a program wrote some time ago, and sets the file's time of modification to that moment; answered
    /// by `Written`.
    WriteBackdated = 43 {
        /// A handle open for writing.
        handle: u64,
        /// First byte.
        offset: u64,
        /// Age of the data, ns. An age and not a time, because the clocks of nodes may differ.
        age_ns: u64,
    }

    /// Asks for the attributes that `stat` must show; answered by `Overlay`.
    Attributes = 48 {
        /// Identity of the file.
        identity: Identity,
    }
    /// Sets the size of a file by its identity (`truncate(2)`).
    Truncate = 49 {
        /// Identity of the file.
        identity: Identity,
        /// Last known path of the file.
        hint: Path,
        /// Policy of the file.
        policy: Text,
        /// New size, bytes.
        len: u64,
    }
    /// Sets the times of a file (`utimens`). The client has checked that the caller may.
    SetTimes = 50 {
        /// Identity of the file.
        identity: Identity,
        /// Last known path of the file.
        hint: Path,
        /// Time of last access.
        atime: TimeChange,
        /// Time of last modification.
        mtime: TimeChange,
    }
    /// Reports that the client changed the file's names or attributes.
    OwnChange = 51 {
        /// Identity of the file.
        identity: Identity,
        /// Path of the file now.
        hint: Path,
    }
    /// Reports that the client removed the last name of a file.
    Unlinked = 52 {
        /// Identity of the file.
        identity: Identity,
    }
    /// Asks where a file's data is; answered by `Resides`.
    State = 53 {
        /// Identity of the file.
        identity: Identity,
    }
    /// Begins a job that may take long. Repeating it for a known job begins nothing.
    Begin = 54 {
        /// Number of the job, chosen by the client.
        job: u64,
        /// A value of [`job`](crate::job).
        verb: u8,
        /// Identity of the file.
        identity: Identity,
        /// Last known path of the file.
        hint: Path,
        /// Policy of the file.
        policy: Text,
    }
    /// Waits a moment for a job. Answered by `Pending` or by the job's outcome, which the server then forgets.
    Poll = 55 {
        /// Number of the job.
        job: u64,
    }
    /// Drops a clean replica.
    Evict = 56 {
        /// Identity of the file.
        identity: Identity,
    }
    /// Pins or unpins a replica.
    Pin = 57 {
        /// Identity of the file.
        identity: Identity,
        /// Whether to pin (true) or to unpin.
        pinned: bool,
    }
    /// Asks for the server's counters; answered by `Report`.
    Status = 58 { }
    /// Checks the connection; answered by `Done`.
    Ping = 59 { }
    /// Announces that the client is about to remove the last name of a file.
    Removing = 60 {
        /// Identity of the file.
        identity: Identity,
    }

    /// Attaches a node that does not see the global store, with the features that its kernel offers; answered by
    /// `Relayed`.
    Attach = 61 {
        /// Architecture of the machine, because a kernel's messages are in its own numbers.
        machine: Text,
        /// INIT message of the kernel, whole.
        init: Piece,
    }
    /// Passes on a message of the node's kernel. Answered by `Relayed`, or by `Unknown` if nothing is attached.
    /// Answered by `Pending` if the answer comes as an event or if there is none.
    Relay = 62 {
        /// A value of [`pace`](crate::pace).
        pace: u8,
        /// Number of the message, given by the node: rising and never used twice.
        number: u64,
        /// Lowest of these numbers that the node has not finished with.
        oldest: u64,
        /// Groups of the caller, four bytes each.
        groups: Piece,
        /// Message, or its beginning; the rest is the frame's data.
        head: Piece,
    }
    /// Waits a moment for events after `after`; answered by `Heard`. The server forgets the events up to `after`.
    Listen = 63 {
        /// Number of the last event that the node has handled.
        after: u64,
    }
    /// Withdraws a request that the node has given up, whose answer the kernel never received. The server takes back
    /// what the request was given.
    Withdraw = 64 {
        /// Number of the request.
        number: u64,
    }
    /// Reports that the node has unmounted. The server closes all that the node had open.
    Detach = 65 { }
    /// `Attach` of a kernel that has node and handle numbers of an earlier connection. Requests of the kernel are
    /// answered by `Unknown` before `Reclaimed`. A node that is attached already is not attached again.
    AttachAgain = 66 {
        /// Architecture of the machine.
        machine: Text,
        /// INIT message of the kernel, whole.
        init: Piece,
    }
    /// Claims a number of the kernel, so that it means the same file as before. Answered by `Done`, also if it does
    /// already. Errors: `ESTALE` if the file does not exist any more.
    Reclaim = 67 {
        /// Node id of a file or directory.
        node: u64,
        /// Number of lookups by the kernel that it has not forgotten.
        lookups: u64,
        /// Identity of the file.
        identity: Identity,
        /// Last known path of the file.
        hint: Path,
        /// Number of an open handle of the file; 0: none.
        handle: u64,
        /// Flags of that open as in open(2), without those that act only during the open.
        flags: u32,
    }
    /// Ends reclaiming: all numbers are claimed, and the kernel's requests follow.
    Reclaimed = 68 { }
    /// Claims a lock that the kernel holds (its SETLK), or gives a claim back that was not needed (its RELEASE).
    /// Allowed on claimed numbers, before the kernel's requests. Answered by `Done`. Errors: `ESTALE` if another owner
    /// may have the lock by now.
    ReclaimLock = 69 {
        /// Message of the kernel, whole.
        head: Piece,
    }
    /// Ends the claims of locks: all locks that the node wants to keep are claimed. Answered by `Done`. Errors:
    /// `ESTALE` if the grace period is over; the node then has no lock.
    LocksReclaimed = 70 { }

    /// Asks for the ranges of a file that others have changed since a client with windows on it fell silent. That
    /// client is an earlier run of the one that asks. Answered by `Bytes`, with two numbers of eight bytes for each
    /// range: its first byte and the byte after its last. Answered by `Unknown` if the changes are not known, because
    /// the server was started again.
    Since = 71 {
        /// Identity of the file.
        identity: Identity,
        /// Session of the silent client.
        session: [u8; 16],
    }
    /// Reports that no more `Since` will be asked about a client. Answered by `Done`.
    Gone = 72 {
        /// Session of that client.
        session: [u8; 16],
    }
    /// Asks for the boot number of the server's machine; answered by `Lives`.
    AskBootVerifier = 73 { }
    /// Reports that the session has finished with all requests below `below`, whether answered or given up. Exceptions
    /// are the requests whose numbers are the frame's data, eight bytes each. Answered by `Done`.
    DoneWith = 74 {
        /// Number above all requests that were sent.
        below: u64,
    }

    /// Success without a value.
    Done = 128 { }
    /// Failure of a request or of the handshake.
    Failed = 129 {
        /// Error code, for programs.
        code: Code,
        /// Reason, for people.
        reason: Text,
    }
    /// Answer to a handle or job that the server does not know. The server was started again, or has closed the handles
    /// of a silent client.
    Unknown = 130 { }
    /// Answer to `Open`: the file is open.
    Opened = 131 {
        /// Version number of the file's data. Equal numbers mean equal data.
        version: u64,
        /// Boot number of the server's machine. A different number than before means that the machine has crashed;
        /// writes not synced may be lost.
        boot_verifier: u64,
    }
    /// Answer to a write: all of the data was written.
    Written = 132 {
        /// Offset at which the data begins.
        offset: u64,
    }
    /// Answer with a position in a file.
    Position = 133 {
        /// Offset, bytes.
        offset: u64,
    }
    /// Answer with the frame's data. Less data than asked for means the end of the file.
    Bytes = 134 { }
    /// Attributes that the replica knows better than the global store.
    Overlay = 135 {
        /// Number of times that a global copy has become the current version of a file again.
        staged_count: u64,
        /// Whether the replica is ahead of the global copy. If not, `ctime` is shown as long as the global copy's
        /// change time is `mtime`. Zeros mean the global copy's own change time.
        known: bool,
        /// Size, bytes.
        size: u64,
        /// Allocated blocks of 512 bytes.
        blocks: u64,
        /// Time of last modification.
        mtime: Timestamp,
        /// Time of last change.
        ctime: Timestamp,
    }
    /// Answer to `State`: where a file's data is.
    Resides = 136 {
        /// Number of the residency, 0 to 7 in the order of the file cache's list.
        state: u8,
        /// Whether the replica is, or may be, ahead of the global copy.
        dirty: bool,
    }
    /// Answer to `Poll`: the job is not finished.
    Pending = 137 { }
    /// Outcome of a stage-out that failed.
    Stuck = 138 {
        /// Identity of the file.
        identity: Identity,
        /// Last known path of the file.
        hint: Path,
        /// Number of the residency.
        state: u8,
        /// Whether the file was not found in the global store.
        orphaned: bool,
        /// Error code, for programs.
        code: Code,
        /// Reason, for people.
        reason: Text,
        /// Path of the data on the server.
        replica: Path,
    }
    /// Answer to `Status`: the frame's data is the status as JSON.
    Report = 139 { }
    /// Answer for a kernel.
    Relayed = 140 {
        /// Answer, or its header; the rest is the frame's data.
        head: Piece,
    }
    /// Answer to `Listen`: the frame's data are messages for a kernel, one after the other.
    Heard = 141 {
        /// Number of the last of these messages.
        last: u64,
    }
    /// `Relayed` for a request that opened or truncated a file or looked up a directory. Names that file or directory.
    RelayedOf = 142 {
        /// Answer, or its header; the rest is the frame's data.
        head: Piece,
        /// Identity of the file or directory.
        identity: Identity,
        /// Last known path of the file or directory.
        hint: Path,
    }
    /// Answer during the grace period, while locks of a former server are being claimed. The client sends the lock
    /// request again in a moment.
    Grace = 143 { }
    /// Answer to `Life`.
    BootVerifierIs = 144 {
        /// Boot number of the server's machine. A different number than before means that the machine has crashed;
        /// writes not synced may be lost.
        boot_verifier: u64,
    }
}

impl Message {
    /// Makes a `Failed` from an errno and a reason.
    pub fn failed(errno: i32, reason: impl Into<String>) -> Message {
        Message::Failed { code: Code::from_errno(errno), reason: Text::cut(reason) }
    }
}

impl Message {
    /// Returns the message as it must be sent `by` after it was made. `None` means unchanged: only the age in
    /// `WriteBackdated` grows.
    pub fn later(&self, by: Duration) -> Option<Message> {
        let Message::WriteBackdated { handle, offset, age_ns } = *self else { return None };
        let by = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
        Some(Message::WriteBackdated { handle, offset, age_ns: age_ns.saturating_add(by) })
    }
}
