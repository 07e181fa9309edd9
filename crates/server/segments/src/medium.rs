//! The file operations that the store needs, as a seam: the system's files, or simulated ones in tests.

mod system;

use std::io;
use std::path::Path;
use std::sync::Arc;

pub(crate) use system::SystemDirectory;

/// The directory of a store.
pub(crate) trait SegmentDirectory: Send + Sync {
    /// Returns the path of the directory, for messages.
    fn path(&self) -> &Path;
    /// Returns the names of all files in the directory.
    fn names(&self) -> io::Result<Vec<String>>;
    /// Creates a file that must not exist.
    fn create(&self, name: &str) -> io::Result<Arc<dyn SegmentFile>>;
    fn open(&self, name: &str) -> io::Result<Arc<dyn SegmentFile>>;
    fn remove(&self, name: &str) -> io::Result<()>;
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Makes names durable.
    fn sync(&self) -> io::Result<()>;
}

/// An open file of a store.
pub(crate) trait SegmentFile: Send + Sync {
    /// Reads at most `buffer.len()` bytes; fewer at the end of the file alone.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Writes two buffers, one behind the other. After an error any part may be written.
    fn write_at(&self, head: &[u8], body: &[u8], offset: u64) -> io::Result<()>;
    /// Gets blocks for the first `bytes` bytes and makes the file at least so long. Returns false if the file system cannot.
    fn allocate(&self, bytes: u64) -> io::Result<bool>;
    fn truncate(&self, bytes: u64) -> io::Result<()>;
    fn len(&self) -> io::Result<u64>;
    /// Makes the content durable.
    fn sync(&self) -> io::Result<()>;
}
