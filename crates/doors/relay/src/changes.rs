//! Changes by programs of this node that nobody has synced since. A crash of the server's machine may lose them:
//! docs/semantics.md, S41.

use std::collections::HashMap;

use concurrency::Mutex;
use fuse_protocol::{Envelope, Opcode};
use peer::{Boots, LossReports, TellWith, Unsynced};
use transport::SessionInstance;

use crate::manner;

#[derive(Default)]
struct File {
    unsynced: Unsynced,
    /// Files that are open for writing by handle, with the losses that were reported through each.
    told: HashMap<u64, LossReports>,
}

/// Unsynced changes of all files that are open for writing.
#[derive(Default)]
pub(crate) struct Changes(Mutex<Table>);

#[derive(Default)]
struct Table {
    boots: Boots,
    files: HashMap<u64, File>,
}

/// Number of changes that a sync makes durable, taken when the sync is sent.
#[derive(Clone, Copy)]
pub(crate) struct Sent(u64);

/// Returns the file that a request changes.
fn changed(envelope: &Envelope, message: &[u8]) -> Option<u64> {
    match envelope.opcode? {
        Opcode::Write if manner::writes_durably(message) => None,
        Opcode::Write => Some(envelope.node),
        _ => manner::changes_otherwise(envelope, message),
    }
}

impl Changes {
    /// Notes the server that will get the next requests. Returns the number of files that may have lost changes.
    pub fn meets(&self, server: SessionInstance, boot_verifier: u64) -> usize {
        let mut table = self.0.lock();
        table.boots.meets(server, boot_verifier);
        table.files.values_mut().map(|file| usize::from(file.unsynced.meets(boot_verifier))).sum()
    }

    /// Notes that a file was opened for writing. `cut`: the open also truncated it.
    pub fn opened(&self, node: u64, handle: u64, cut: bool) {
        let mut table = self.0.lock();
        let boot_verifier = table.boots.last();
        let file = table.files.entry(node).or_default();
        file.unsynced.meets(boot_verifier);
        if cut {
            file.unsynced.changed(Some(boot_verifier));
        }
        file.told.insert(handle, LossReports::after(file.unsynced.losses()));
    }

    /// Notes that an open file was closed.
    pub fn closed(&self, node: u64, handle: u64) {
        let files = &mut self.0.lock().files;
        let Some(file) = files.get_mut(&node) else { return };
        file.told.remove(&handle);
        if file.told.is_empty() {
            files.remove(&node);
        }
    }

    /// Notes that a request is about to be sent.
    pub fn sent(&self, envelope: &Envelope) -> Sent {
        let syncs = envelope.opcode == Some(Opcode::Fsync);
        let changes = || self.0.lock().files.get(&envelope.node).map_or(0, |file| file.unsynced.changes());
        Sent(if syncs { changes() } else { 0 })
    }

    /// Notes that a server with this session instance has executed a request.
    pub fn done(&self, Sent(changes): Sent, server: SessionInstance, envelope: &Envelope, message: &[u8]) {
        let syncs = envelope.opcode == Some(Opcode::Fsync);
        let Some(node) = changed(envelope, message).or_else(|| syncs.then_some(envelope.node)) else { return };
        let mut table = self.0.lock();
        let (boot_verifier, last) = (table.boots.of(server), table.boots.last());
        match table.files.get_mut(&node) {
            None => {}
            Some(file) if !syncs => _ = file.unsynced.changed(boot_verifier),
            // The sync may not cover changes lost with an earlier boot, which are counted as losses.
            Some(file) => file.unsynced.synced(if boot_verifier == Some(last) { changes } else { 0 }),
        }
    }

    /// Returns whether the program must be told with this request that changes may be lost.
    pub fn tells(&self, envelope: &Envelope) -> bool {
        let with = match envelope.opcode {
            Some(Opcode::Write) => TellWith::Write,
            Some(Opcode::Fsync) => TellWith::Sync,
            Some(Opcode::Flush) => TellWith::Close,
            _ => return false,
        };
        let files = &mut self.0.lock().files;
        let Some(file) = files.get_mut(&envelope.node) else { return false };
        let losses = file.unsynced.losses();
        file.told.get_mut(&envelope.first).is_some_and(|told| told.tells(with, losses))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn envelope(opcode: Opcode, node: u64, first: u64) -> Envelope {
        Envelope { opcode: Some(opcode), unique: 2, node, uid: 0, gid: 0, pid: 1, first }
    }

    /// Returns the session instance of a test server whose machine has this boot verifier.
    fn of(boot_verifier: u64) -> SessionInstance {
        [boot_verifier as u8; 16]
    }

    #[test] // S41
    fn each_open_file_that_may_have_lost_something_is_told_once() {
        let all = Changes::default();
        let meets = |boot_verifier| all.meets(of(boot_verifier), boot_verifier);
        assert_eq!(meets(1), 0);
        all.opened(7, 70, false);
        all.opened(7, 71, false);
        all.opened(8, 80, false);
        let done_in = |boot_verifier, opcode, node, message: &[u8]| {
            let envelope = envelope(opcode, node, 0);
            all.done(all.sent(&envelope), of(boot_verifier), &envelope, message);
        };
        let done = |opcode, node, message: &[u8]| done_in(2, opcode, node, message);
        assert_eq!(meets(2), 0);
        done(Opcode::Write, 7, &[]);
        done(Opcode::Fsync, 7, &[]);
        assert_eq!(all.meets(of(22), 22), 0);
        assert_eq!(meets(2), 0);
        let mut durable = vec![0; 80];
        durable[72..76].copy_from_slice(&libc::O_DSYNC.to_ne_bytes());
        done(Opcode::Write, 7, &durable);
        assert_eq!(all.meets(of(22), 22), 0, "it was on the medium when it was answered");
        assert_eq!(meets(2), 0);
        done(Opcode::Fallocate, 8, &[]);
        let mut copy = vec![0; 96];
        copy[56] = 7;
        done(Opcode::CopyFileRange, 9, &copy);
        done(Opcode::CopyFileRange, 9, &copy[..60]);
        assert_eq!(meets(2), 0, "its process died");
        assert_eq!(meets(3), 2);
        assert!(!all.tells(&envelope(Opcode::Read, 7, 70)));
        assert!(all.tells(&envelope(Opcode::Write, 7, 71)) && !all.tells(&envelope(Opcode::Write, 7, 71)));
        for handle in [70, 71] {
            assert!(all.tells(&envelope(Opcode::Flush, 7, handle)), "a close may have nobody who looks");
            let sync = envelope(Opcode::Fsync, 7, handle);
            assert!(all.tells(&sync) && !all.tells(&sync), "nor may a part of a write");
            assert!(!all.tells(&envelope(Opcode::Flush, 7, handle)) && !all.tells(&envelope(Opcode::Write, 7, handle)));
        }
        assert!(!all.tells(&envelope(Opcode::Fsync, 7, 72)), "who has not written is not");
        all.opened(8, 81, true);
        assert!(!all.tells(&envelope(Opcode::Fsync, 8, 81)), "nor who came later");
        assert!(all.tells(&envelope(Opcode::Fsync, 8, 80)));
        assert_eq!(meets(4), 1, "it was emptied");
        for (node, handle) in [(7, 70), (7, 71), (8, 80), (8, 81), (9, 90)] {
            all.closed(node, handle);
        }
        assert!(all.0.lock().files.is_empty());
    }

    #[test] // S41
    fn what_is_under_way_when_a_machine_crashes_counts_where_it_was_answered() {
        let all = Changes::default();
        all.meets(of(1), 1);
        all.opened(7, 70, false);
        let (write, sync) = (envelope(Opcode::Write, 7, 70), envelope(Opcode::Fsync, 7, 70));
        let sent = all.sent(&write);
        assert_eq!(all.meets(of(2), 2), 0);
        all.done(sent, of(2), &write, &[]);
        assert!(!all.tells(&sync), "it was sent again, and is there");
        let synced = all.sent(&sync);
        all.done(synced, of(1), &sync, &[]);
        assert_eq!(all.meets(of(3), 3), 1, "another server's sync says nothing of it");
        assert!(all.tells(&sync));
        all.done(all.sent(&write), of(2), &write, &[]);
        assert!(all.tells(&sync), "answered by the one that crashed, and counted after it");
        all.meets(of(33), 3);
        all.done(all.sent(&write), of(3), &write, &[]);
        assert!(!all.tells(&sync), "its process died alone");
        all.done(all.sent(&write), of(1), &write, &[]);
        assert!(all.tells(&sync), "nobody knows by whom");
    }
}
