//! Where one request on an open file goes.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use global_store::OpenFile;

use super::{FileHandle, errno};
use crate::file::Body;
use crate::replica::How;

/// Where one request goes.
pub(super) enum Route {
    Replica(Arc<OwnedFd>),
    Partial,
    Global(Arc<dyn OpenFile>),
}

impl FileHandle {
    pub(super) fn route(&self, write: bool) -> io::Result<Route> {
        if write && !self.write {
            return errno(libc::EBADF);
        }
        let version = {
            let live = self.file.live.lock();
            match &live.body {
                Body::Through => {
                    let global = live.fds.global.as_ref().map(|(_, global)| Arc::clone(global));
                    return global.map(Route::Global).ok_or_else(|| io::Error::from_raw_os_error(libc::EIO));
                }
                Body::Partial(_) => return Ok(Route::Partial),
                Body::Empty => {
                    // The file moves to another body under its gate.
                    drop(live);
                    drop(self.file.gate.lock());
                    let still = matches!(self.file.live.lock().body, Body::Empty);
                    return if still { errno(libc::EIO) } else { self.route(write) };
                }
                Body::Lost => return errno(libc::EIO),
                Body::Whole => {}
            }
            let held = if write { &live.fds.write } else { &live.fds.read };
            if let Some(fd) = held {
                return Ok(Route::Replica(Arc::clone(fd)));
            }
            live.version
        };
        let Some(version) = version else { return errno(libc::EIO) };
        let how = if write { How::Write } else { How::Read };
        let fd = match self.inner.replicas.open_as(version, how) {
            // It was dropped for another body meanwhile: look again.
            Err(error) if error.kind() == io::ErrorKind::NotFound && self.file.live.lock().version != Some(version) => {
                return self.route(write);
            }
            result => Arc::new(result?),
        };
        let mut live = self.file.live.lock();
        if live.version == Some(version) {
            let held = if write { &mut live.fds.write } else { &mut live.fds.read };
            return Ok(Route::Replica(Arc::clone(held.get_or_insert(fd))));
        }
        drop(live);
        self.route(write)
    }
}
