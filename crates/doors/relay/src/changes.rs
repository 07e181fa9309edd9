//! What programs of this node changed and nobody has synced since, which a crash of the server's machine may take: docs/semantics.md, S41.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use agent::Unsynced;
use fuse_protocol::{Envelope, Opcode};
use parking_lot::Mutex;

use crate::manner;

#[derive(Default)]
struct File {
    unsynced: Unsynced,
    /// Open files for writing, and what of its losses each was told.
    told: HashMap<u64, u64>,
}

/// Of all files that are open for writing.
#[derive(Default)]
pub(crate) struct Changes {
    /// That of the server's machine.
    life: AtomicU64,
    files: Mutex<HashMap<u64, File>>,
}

/// A request that is about to be sent.
#[derive(Clone, Copy)]
pub(crate) struct Sent {
    life: u64,
    changes: u64,
}

/// The file that a request changes.
fn changes(envelope: &Envelope, message: &[u8]) -> Option<u64> {
    const COPIED_TO: std::ops::Range<usize> = 56..64;
    match envelope.opcode? {
        Opcode::Write if manner::writes_durably(message) => None,
        Opcode::Write | Opcode::Fallocate => Some(envelope.node),
        Opcode::Setattr if manner::sets_size(envelope) => Some(envelope.node),
        Opcode::CopyFileRange | Opcode::CopyFileRange64 => {
            Some(u64::from_ne_bytes(message.get(COPIED_TO)?.try_into().ok()?))
        }
        _ => None,
    }
}

impl Changes {
    /// A server whose machine lives this life is to be asked. How many files may have lost something.
    pub fn meets(&self, life: u64) -> usize {
        self.life.store(life, Ordering::Release);
        self.files.lock().values().filter(|file| file.unsynced.meets(life)).count()
    }

    /// A file was opened for writing; `cut`: and emptied.
    pub fn opened(&self, node: u64, handle: u64, cut: bool) {
        let (life, mut files) = (self.life.load(Ordering::Acquire), self.files.lock());
        let file = files.entry(node).or_default();
        file.unsynced.meets(life);
        if cut {
            file.unsynced.changed(life);
        }
        file.told.insert(handle, file.unsynced.losses());
    }

    /// It is closed.
    pub fn closed(&self, node: u64, handle: u64) {
        let mut files = self.files.lock();
        let Some(file) = files.get_mut(&node) else { return };
        file.told.remove(&handle);
        if file.told.is_empty() {
            files.remove(&node);
        }
    }

    /// Before a request is sent.
    pub fn sent(&self, envelope: &Envelope) -> Sent {
        let life = self.life.load(Ordering::Acquire);
        let syncs = envelope.opcode == Some(Opcode::Fsync);
        let changes = || self.files.lock().get(&envelope.node).map_or(0, |file| file.unsynced.changes());
        Sent { life, changes: if syncs { changes() } else { 0 } }
    }

    /// It was done.
    pub fn done(&self, sent: Sent, envelope: &Envelope, message: &[u8]) {
        if envelope.opcode == Some(Opcode::Fsync) {
            self.files.lock().get(&envelope.node).into_iter().for_each(|file| file.unsynced.synced(sent.changes));
        } else if let Some(node) = changes(envelope, message) {
            self.files.lock().get(&node).into_iter().for_each(|file| _ = file.unsynced.changed(sent.life));
        }
    }

    /// Whether its program is to be told, once for each open file, that something may be lost.
    pub fn tells(&self, envelope: &Envelope) -> bool {
        if !matches!(envelope.opcode, Some(Opcode::Write | Opcode::Fsync | Opcode::Flush)) {
            return false;
        }
        let mut files = self.files.lock();
        let Some(file) = files.get_mut(&envelope.node) else { return false };
        let losses = file.unsynced.losses();
        file.told.get_mut(&envelope.first).is_some_and(|told| std::mem::replace(told, losses) != losses)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn envelope(opcode: Opcode, node: u64, first: u64) -> Envelope {
        Envelope { opcode: Some(opcode), unique: 2, node, uid: 0, gid: 0, pid: 1, first }
    }

    #[test]
    fn each_open_file_that_may_have_lost_something_is_told_once() {
        let all = Changes::default();
        assert_eq!(all.meets(1), 0);
        all.opened(7, 70, false);
        all.opened(7, 71, false);
        all.opened(8, 80, false);
        let done = |opcode, node, message: &[u8]| {
            let envelope = envelope(opcode, node, 0);
            all.done(all.sent(&envelope), &envelope, message);
        };
        done(Opcode::Write, 7, &[]);
        done(Opcode::Fsync, 7, &[]);
        assert_eq!(all.meets(2), 0);
        let mut durable = vec![0; 80];
        durable[72..76].copy_from_slice(&libc::O_DSYNC.to_ne_bytes());
        done(Opcode::Write, 7, &durable);
        assert_eq!(all.meets(20), 0, "it was on the medium when it was answered");
        done(Opcode::Fallocate, 8, &[]);
        let mut copy = vec![0; 64];
        copy[56] = 7;
        done(Opcode::CopyFileRange, 9, &copy);
        done(Opcode::CopyFileRange, 9, &copy[..60]);
        assert_eq!(all.meets(20), 0, "its process died");
        assert_eq!(all.meets(3), 2);
        assert!(!all.tells(&envelope(Opcode::Read, 7, 70)));
        for (handle, opcode) in [(70, Opcode::Flush), (71, Opcode::Write)] {
            assert!(all.tells(&envelope(opcode, 7, handle)) && !all.tells(&envelope(opcode, 7, handle)));
        }
        assert!(!all.tells(&envelope(Opcode::Fsync, 7, 72)), "who has not written is not");
        all.opened(8, 81, true);
        assert!(!all.tells(&envelope(Opcode::Fsync, 8, 81)), "nor who came later");
        assert!(all.tells(&envelope(Opcode::Fsync, 8, 80)));
        assert_eq!(all.meets(4), 1, "it was emptied");
        for (node, handle) in [(7, 70), (7, 71), (8, 80), (8, 81), (9, 90)] {
            all.closed(node, handle);
        }
        assert!(all.files.lock().is_empty());
    }
}
