//! The route of one request on an open file.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use config::Atime;
use global_store::StoreFile;
use global_store::calls::still_wanted;
use types::Step;

use super::FileHandle;
use crate::burst_buffer::replica::{self, How};
use crate::clock::wall;
use crate::errors::os;
use crate::residency::{Body, Live};

/// The place where one request is served.
pub(super) enum Route {
    Replica(Arc<OwnedFd>),
    Partial,
    Global(Arc<dyn StoreFile>),
}

impl Route {
    /// Writes all of `data` at `offset`.
    pub(super) fn write(&self, data: &[u8], offset: u64) -> io::Result<()> {
        match self {
            Route::Replica(fd) => replica::write_full(fd, data, offset).step("write the replica"),
            Route::Global(global) => {
                still_wanted()?;
                global.write_at(data, offset).step("write to the global store")
            }
            Route::Partial => os(libc::EIO),
        }
    }
}

/// Returns whether the file is moving to another body, under its gate.
fn is_nowhere(live: &Live) -> bool {
    matches!(live.body(), Body::Absent | Body::Fresh { through: false, .. })
}

impl FileHandle {
    /// Returns how reads through the agent are noted.
    fn noted(&self) -> Atime {
        if self.unnoted { Atime::No } else { self.policy.atime }
    }

    /// Notes a read that moves no replica's access time.
    pub(super) fn note_read(&self) {
        if self.noted() != Atime::No {
            self.file.live.lock().reads.asked = Some(wall());
        }
    }

    pub(super) fn route(&self, write: bool) -> io::Result<Route> {
        if write && !self.write {
            return os(libc::EBADF);
        }
        let how = match self.noted() {
            _ if write => How::Write,
            Atime::No => How::Read,
            atime => How::Noted(atime),
        };
        let version = {
            let live = self.file.live.lock();
            match live.body() {
                _ if live.is_through() => {
                    let global = live.fds.global.as_ref().map(|(_, global)| Arc::clone(global));
                    return global.map_or_else(|| os(libc::EIO), |global| Ok(Route::Global(global)));
                }
                Body::Fetching(_) => return Ok(Route::Partial),
                _ if is_nowhere(&live) => {
                    drop(live);
                    drop(self.file.gate());
                    let still = is_nowhere(&self.file.live.lock());
                    return if still { os(libc::EIO) } else { self.route(write) };
                }
                Body::Lost { .. } => {
                    return os(libc::EIO).step("find the replica, whose data is lost from the burst buffer");
                }
                _ => {}
            }
            let held = match how {
                How::Write => &live.fds.write,
                How::Noted(_) => &live.fds.noted,
                _ => &live.fds.read,
            };
            if let Some(fd) = held {
                return Ok(Route::Replica(Arc::clone(fd)));
            }
            live.version()
        };
        let Some(version) = version else { return os(libc::EIO) };
        let fd = match self.inner.replicas.open_as(version, how) {
            // The replica was dropped for another body meanwhile: look again.
            Err(error)
                if error.kind() == io::ErrorKind::NotFound && self.file.live.lock().version() != Some(version) =>
            {
                return self.route(write);
            }
            result => Arc::new(result.step("open the replica")?),
        };
        self.inner.keeps_one();
        let mut live = self.file.live.lock();
        if live.version() == Some(version) {
            let held = match how {
                How::Write => &mut live.fds.write,
                How::Noted(_) => &mut live.fds.noted,
                _ => &mut live.fds.read,
            };
            return Ok(Route::Replica(Arc::clone(held.get_or_insert(fd))));
        }
        drop(live);
        self.route(write)
    }
}
