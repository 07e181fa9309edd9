//! A burst buffer whose file system refuses writes: an error made it read-only, or its device fails.
//!
//! Data in it stays readable. New files go through the global store, and so do clean files that are opened for writing.
//! Nothing is staged in. The catalogue takes no changes then either. Until it does:
//!
//! 1. A clean record that is not true any more is in doubt (`withdrawal.rs`): nobody in this process believes it. A
//!    later process sees that the global copy is not what the record says.
//! 2. Dirty data is staged out, and stays dirty on disk and in memory. A file counts as clean only if it would also be
//!    clean after a crash. It cannot be opened for writing: a later start serves the replica, which must not be the
//!    older copy.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::Duration;

use catalogue::Record;
use concurrency::Mutex;
use types::{Identity, Shown, Version};

use super::{Inner, broken};
use crate::burst_buffer::lease::{self, Nobody};
use crate::burst_buffer::replica::How;
use crate::errors::{errno, is_refusal};
use crate::limits::{PROBE_BYTES, ROUND};
use crate::residency;

#[derive(Default)]
pub(crate) struct Refusal {
    /// The errno of the refusal. 0: the burst buffer takes writes, as far as noticed.
    errno: AtomicI32,
    /// When a look last found that writes work. One thread looks at a time.
    took_at: Mutex<Option<Duration>>,
    /// Whether all dirty files were queued since the refusal was noticed.
    rescued: AtomicBool,
    named_at: Mutex<Option<Duration>>,
}

/// Writes and syncs a file. There is no other test: a file system that made itself read-only may not say so.
fn probe(root: &Path) -> io::Result<()> {
    let path = root.join("probe");
    let mut file = File::create(&path)?;
    file.write_all(&[0; PROBE_BYTES])?;
    file.sync_data()?;
    std::fs::remove_file(&path)
}

impl Inner {
    /// Returns the error with which the burst buffer refuses writes, if it does.
    pub(crate) fn refusal(&self) -> Option<io::Error> {
        match self.refusal.errno.load(Ordering::Acquire) {
            0 => None,
            code => Some(io::Error::from_raw_os_error(code)),
        }
    }

    /// Returns whether an operation failed because the burst buffer takes no writes.
    pub(crate) fn refuses(&self, error: &io::Error) -> bool {
        // A global store that fails returns EIO again and again.
        let looked = || {
            let ago = (*self.refusal.took_at.lock()).map(|then| self.now().saturating_sub(then));
            errno(error) != libc::EROFS && ago.is_some_and(|ago| ago < ROUND)
        };
        is_refusal(error) && (self.refusal().is_some() || (!looked() && self.look_at_burst_buffer()))
    }

    /// Tests again, after a refusal was found. Returns whether the burst buffer still refuses.
    pub(crate) fn look_after_refusal(&self) -> bool {
        let refuses = self.refusal().is_some() && self.look_at_burst_buffer();
        if !self.refusal.rescued.swap(refuses, Ordering::AcqRel) && refuses {
            // Regardless of the policies: data that is only in memory is lost with the file system.
            self.unclean_files().iter().for_each(|file| self.queue.push(file, Duration::ZERO));
        }
        refuses
    }

    fn look_at_burst_buffer(&self) -> bool {
        let mut took_at = self.refusal.took_at.lock();
        let place = self.settings.burst_buffer.shown();
        let found = probe(&self.settings.burst_buffer).err().filter(is_refusal);
        let code = found.as_ref().map_or(0, errno);
        let before = self.refusal.errno.swap(code, Ordering::AcqRel);
        *took_at = found.is_none().then(|| self.now());
        match found {
            Some(error) if before == 0 => tracing::error!(
                "the burst buffer {place} takes no writes: {error}. What is in it stays readable, new files go through the global \
                 store. {REMEDY}"
            ),
            None if before != 0 => tracing::warn!("the burst buffer {place} takes writes again"),
            _ => {}
        }
        code != 0
    }

    /// Reads a file's record from the catalogue. If the catalogue cannot be read any more, the file is clean or
    /// unknown: every other file is in memory.
    pub(crate) fn record_of(&self, identity: &Identity) -> io::Result<Option<Record>> {
        let found = self.catalogue.get(identity).map_err(broken);
        found.or_else(|error| if self.refuses(&error) { Ok(None) } else { Err(error) })
    }

    /// Returns whether a replica can still be read. This is tested only under a refusal, for some file systems then
    /// return nothing either.
    pub(crate) fn reads(&self, version: Version) -> bool {
        self.refusal().is_none() || self.replicas.open_as(version, How::Read).is_ok()
    }

    /// Returns whether a complete clean file that somebody has open may continue in the global store. Errors: the
    /// burst buffer takes no writes, and the kernel or a mapping reads the replica without the agent and would not see
    /// the writes. Gate held.
    pub(crate) fn may_move(&self, file: &residency::File, version: Version) -> io::Result<bool> {
        let Some(error) = self.refusal() else { return Ok(false) };
        let past_us = file.peek(|live| {
            // Our own descriptors would refuse the lease.
            (live.fds.read, live.fds.noted) = (None, None);
            live.is_bypassed()
        });
        if !past_us && lease::probe(self.replicas.open_as(version, How::Read)?.as_fd(), Nobody::Uses)? {
            return Ok(true);
        }
        Err(self.refused(file, error))
    }

    /// Logs which file cannot be written, and what to do. Returns the error.
    pub(crate) fn refused(&self, file: &residency::File, error: io::Error) -> io::Error {
        {
            let now = self.now();
            let mut named = self.refusal.named_at.lock();
            if named.is_some_and(|then| now.saturating_sub(then) < ROUND) {
                return error;
            }
            *named = Some(now);
        }
        let hint = file.live.lock().record().map(|record| record.hint.clone()).unwrap_or_default();
        tracing::error!(
            file = %hint.shown(),
            "cannot be written while it is in the burst buffer {}, which takes no writes: {error}. {REMEDY}",
            self.settings.burst_buffer.shown()
        );
        error
    }
}

/// Advice for the operator. The next start would stage out whatever is dirty there, which may be older than the global
/// copies by then.
pub(crate) const REMEDY: &str = "Stage out what is dirty (forebay drain --wait DIR), end the mount or run, and mend its file system (the \
                                 kernel's log says what is wrong). What the drain named is in the global store: begin again with another \
                                 burst buffer, or first give up the old copies (forebay resolve PATH --keep global --burst-buffer BB)";
