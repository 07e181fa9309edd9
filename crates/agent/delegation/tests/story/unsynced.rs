//! A log in files that are not synced: enough where the machine lives on, and fast.

use std::io;
use std::path::Path;
use std::sync::Arc;

use delegation::log::{LogDirectory, LogFile, MountedLogDirectory};

/// A directory of log files that survive the death of a process alone.
pub struct Unsynced(MountedLogDirectory);

struct UnsyncedFile(Arc<dyn LogFile>);

impl Unsynced {
    pub fn new(path: &Path) -> Unsynced {
        Unsynced(MountedLogDirectory::new(path).unwrap())
    }
}

impl LogDirectory for Unsynced {
    fn list(&self) -> io::Result<Vec<u32>> {
        self.0.list()
    }

    fn create(&self, number: u32, bytes: u64) -> io::Result<Arc<dyn LogFile>> {
        Ok(Arc::new(UnsyncedFile(self.0.create(number, bytes)?)))
    }

    fn read(&self, number: u32) -> io::Result<Vec<u8>> {
        self.0.read(number)
    }

    fn cut(&self, number: u32, bytes: u64) -> io::Result<()> {
        self.0.cut(number, bytes)
    }

    fn remove(&self, number: u32) -> io::Result<()> {
        self.0.remove(number)
    }

    fn keep_damaged(&self, number: u32) -> io::Result<()> {
        self.0.keep_damaged(number)
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

impl LogFile for UnsyncedFile {
    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_at(data, offset)
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}
