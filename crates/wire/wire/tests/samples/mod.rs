//! One sample of every message.

use types::{Identity, Timestamp};
use wire::{Code, Message, Path, Piece, Text, TimeChange, job, open, pace, seek};

fn identity() -> Identity {
    Identity::new(vec![1, 2, 3, 0xff]).unwrap()
}

fn hint() -> Path {
    Path::new("dir/\u{e9}t\u{e9}.h5").unwrap()
}

fn piece() -> Piece {
    Piece::new([40, 0, 0, 0, 1, 0, 0, 0]).expect("a short piece")
}

fn policy() -> Text {
    Text::cut("cache = \"both\"\n")
}

fn time(seconds: i64) -> Timestamp {
    Timestamp { seconds, nanos: 999_999_999 }
}

/// Returns one sample of every message, with a value in every field.
pub fn samples() -> Vec<Message> {
    let mut all = handshake();
    all.extend(handle_requests());
    all.extend(file_requests());
    all.extend(answers());
    all
}

fn handshake() -> Vec<Message> {
    vec![
        Message::Hello {
            min: 1,
            max: 2,
            session: [7; 16],
            nonce: [8; 32],
            store: Text::cut("ab01"),
            agent: Text::cut("node a"),
        },
        Message::Challenge { version: 1, nonce: [9; 32], secret: true },
        Message::Proof { proof: [10; 32] },
        Message::Welcome { instance: [11; 16], proof: [12; 32] },
    ]
}

fn handle_requests() -> Vec<Message> {
    vec![
        Message::Open {
            handle: 1,
            flags: open::READ | open::WRITE | open::CREATED,
            identity: identity(),
            hint: hint(),
            policy: policy(),
        },
        Message::Close { handle: 2 },
        Message::Read { handle: 3, offset: 1 << 40, len: 1 << 20 },
        Message::Write { handle: 4, offset: 5 },
        Message::Append { handle: 5, end: 77, again: true },
        Message::SetLen { handle: 6, len: 0 },
        Message::Allocate { handle: 7, mode: 3, offset: 4096, len: 8192 },
        Message::Seek { handle: 8, offset: 9, target: seek::HOLE },
        Message::Sync { handle: 9, data_only: true, acknowledged: true },
        Message::Flush { handle: 10 },
        Message::End { handle: 11 },
        Message::WriteBackdated { handle: 12, offset: 13, age_ns: 1 << 33 },
    ]
}

fn file_requests() -> Vec<Message> {
    vec![
        Message::Attributes { identity: identity() },
        Message::Truncate { identity: identity(), hint: hint(), policy: policy(), len: 10 },
        Message::SetTimes {
            identity: identity(),
            hint: hint(),
            atime: TimeChange::Now,
            mtime: TimeChange::At(time(-1)),
        },
        Message::OwnChange { identity: identity(), hint: hint() },
        Message::Unlinked { identity: identity() },
        Message::State { identity: identity() },
        Message::Begin { job: 12, verb: job::STAGE_IN, identity: identity(), hint: hint(), policy: policy() },
        Message::Poll { job: 12 },
        Message::Evict { identity: identity() },
        Message::Pin { identity: identity(), pinned: true },
        Message::Status {},
        Message::Ping {},
        Message::Removing { identity: identity() },
        Message::Attach { machine: Text::cut("x86_64"), init: piece() },
        Message::Relay { pace: pace::LARGE, number: 24, oldest: 20, groups: Piece::default(), head: piece() },
        Message::Listen { after: 21 },
        Message::Withdraw { number: 22 },
        Message::Detach {},
        Message::AttachAgain { machine: Text::cut("aarch64"), init: piece() },
        Message::Reclaim { node: 25, lookups: 26, identity: identity(), hint: hint(), handle: 27, flags: 2 },
        Message::Reclaimed {},
        Message::ReclaimLock { head: piece() },
        Message::LocksReclaimed {},
        Message::Since { identity: identity(), session: [28; 16] },
        Message::Gone { session: [29; 16] },
        Message::AskBootVerifier {},
        Message::DoneWith { below: 1 << 40 },
    ]
}

fn answers() -> Vec<Message> {
    vec![
        Message::Done {},
        Message::Failed { code: Code::NoSpace, reason: Text::cut("no space") },
        Message::Unknown {},
        Message::Opened { version: 13, boot_verifier: 14 },
        Message::Written { offset: 14 },
        Message::Position { offset: 15 },
        Message::Bytes {},
        Message::Overlay { staged_count: 16, known: true, size: 17, blocks: 8, mtime: time(18), ctime: time(19) },
        Message::Resides { state: 3, dirty: true },
        Message::Pending {},
        Message::Stuck {
            identity: identity(),
            hint: hint(),
            state: 6,
            orphaned: false,
            code: Code::Busy,
            reason: Text::cut("in use"),
            replica: Path::new("/bb/files/1").unwrap(),
        },
        Message::Report {},
        Message::Relayed { head: piece() },
        Message::Heard { last: 23 },
        Message::RelayedOf { head: piece(), identity: identity(), hint: hint() },
        Message::Grace {},
        Message::BootVerifierIs { boot_verifier: 15 },
    ]
}
