//! Sync of all files (`syncfs`).

use std::io;
use std::os::fd::AsFd;

use crate::burst_buffer::replica::How;
use crate::cache::{FileCache, Inner};
use crate::residency::File;

impl FileCache {
    /// Returns when everything written to any file survives a crash of the machine. All files are tried. Errors: the
    /// first one.
    pub fn sync_all(&self) -> io::Result<()> {
        self.inner.unclean_files().iter().map(|file| self.inner.sync_unclean(file)).fold(Ok(()), Result::and)
    }
}

impl Inner {
    fn sync_unclean(&self, file: &File) -> io::Result<()> {
        let version = file.live.lock().record().map(|record| record.version);
        let Some(version) = version else { return Ok(()) };
        let replica = match self.replicas.open_as(version, How::Read) {
            // The replica has been staged out and evicted, or removed.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            opened => opened?,
        };
        // The name comes first. Otherwise a crash of the global store could make an orphan of a file whose data is on
        // the medium.
        file.sync_name()?;
        self.sync_replica(file, replica.as_fd(), false)?;
        self.sync_record(file)
    }
}
