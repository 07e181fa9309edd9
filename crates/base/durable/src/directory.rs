//! The names in a directory, on the medium.

use std::fs::File;
use std::io;
use std::path::Path;

/// Makes the names in `dir` durable: entries added, renamed or removed before the call survive a crash of the machine.
///
/// Errors: those of open(2) and fsync(2).
pub fn sync_directory(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}
