//! Making a log durable: one caller syncs for all who wait.

use std::io;
use std::sync::atomic::Ordering;

use concurrency::{Condvar, Mutex};
use rustix::io::Errno;

use super::NameLog;
use crate::fault::point;

/// State of syncs: whether one runs, and how far the log is durable.
pub(super) struct Syncing {
    state: Mutex<SyncState>,
    ended: Condvar,
}

struct SyncState {
    durable: u64,
    is_running: bool,
    /// Whether a sync has failed. The kernel may have dropped what was to be written, so no later sync proves anything.
    has_failed: bool,
}

impl Syncing {
    pub fn new(durable: u64) -> Syncing {
        Syncing {
            state: Mutex::new(SyncState { durable, is_running: false, has_failed: false }),
            ended: Condvar::new(),
        }
    }

    /// Errors: `EIO` after a failed sync.
    pub fn check(&self) -> io::Result<()> {
        if self.state.lock().has_failed { Err(Errno::IO.into()) } else { Ok(()) }
    }
}

impl NameLog {
    /// Returns the sequence of the last transaction; 0 if there is none.
    pub fn end(&self) -> u64 {
        self.writer.lock().next_sequence - 1
    }

    /// Makes transactions up to this sequence durable. Callers at one time share one sync.
    ///
    /// Errors: those of the files. After one, what was not durable may be lost; every later sync and append fails with `EIO`.
    pub fn sync(&self, upto: u64) -> io::Result<()> {
        let mut state = self.syncing.state.lock();
        loop {
            if state.durable >= upto {
                return Ok(());
            }
            if state.has_failed {
                return Err(Errno::IO.into());
            }
            if !state.is_running {
                break;
            }
            self.syncing.ended.wait(&mut state);
        }
        state.is_running = true;
        drop(state);
        let result = self.sync_all();
        let mut state = self.syncing.state.lock();
        state.is_running = false;
        match &result {
            Ok(end) => {
                state.durable = *end;
                self.durable.store(*end, Ordering::Release);
            }
            Err(_) => state.has_failed = true,
        }
        drop(state);
        self.syncing.ended.notify_all();
        point("names.synced");
        result.map(drop)
    }

    /// Syncs all that was appended. Returns the sequence of the last transaction.
    fn sync_all(&self) -> io::Result<u64> {
        let (end, former, current, has_new_name) = {
            let writer = self.writer.lock();
            let current = writer.current.file.clone();
            (writer.next_sequence - 1, writer.unsynced.clone(), current, writer.has_new_name)
        };
        for file in former.iter().chain([&current]) {
            file.sync()?;
        }
        if has_new_name {
            self.directory.sync()?;
        }
        let mut writer = self.writer.lock();
        writer.unsynced.drain(..former.len());
        // A file that was begun meanwhile is not synced yet.
        if has_new_name && writer.unsynced.is_empty() {
            writer.has_new_name = false;
        }
        Ok(end)
    }
}
