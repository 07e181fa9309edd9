//! Block checksums of a replica's clean content: later changes are found without reading the global store.
//!
//! CRC-64/NVME over blocks of 1 MiB. A changed block keeps its checksum with odds of 2^-64; every change within 64
//! consecutive bits is certain to be found. `verify = full` does not rely on them.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::LazyLock;

use crc_fast::{CrcAlgorithm, checksum};

use super::extents::Extents;
use super::replica::make_parent;
use crate::errors::os;
use crate::limits::BLOCK_BYTES;

const MAGIC: &[u8; 8] = b"fbsums01";

/// The checksums of one content of `size` bytes, one per block; the last block may be short.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Sums {
    pub(crate) size: u64,
    pub(crate) blocks: Vec<u64>,
}

pub(crate) fn sum(block: &[u8]) -> u64 {
    checksum(CrcAlgorithm::Crc64Nvme, block)
}

/// Returns the checksum of a hole of `len` bytes, at most a block.
pub(crate) fn of_zeros(len: u64) -> u64 {
    static OF_A_BLOCK: LazyLock<u64> = LazyLock::new(|| sum(&vec![0; BLOCK_BYTES as usize]));
    if len == BLOCK_BYTES { *OF_A_BLOCK } else { sum(&vec![0; len as usize]) }
}

pub(crate) fn of_replica(fd: &OwnedFd, size: u64) -> io::Result<Sums> {
    of_replica_while(fd, size, &|| false)
}

/// Returns the checksums of a replica's present content. Errors: `EINTR` once `over` says so, before each block.
pub(crate) fn of_replica_while(fd: &OwnedFd, size: u64, over: &dyn Fn() -> bool) -> io::Result<Sums> {
    let mut block = vec![0; BLOCK_BYTES as usize];
    let mut blocks = Vec::with_capacity(blocks_of(size) as usize);
    let mut extents = Extents::new(fd, size);
    for index in 0..blocks_of(size) {
        if over() {
            return os(libc::EINTR);
        }
        let range = block_range(index, size);
        if extents.is_hole(range)? {
            blocks.push(of_zeros(range.len()));
            continue;
        }
        let read = super::replica::read_full(fd, &mut block[..range.len() as usize], range.start)?;
        blocks.push(sum(&block[..read]));
    }
    Ok(Sums { size, blocks })
}

pub(crate) fn blocks_of(size: u64) -> u64 {
    size.div_ceil(BLOCK_BYTES)
}

pub(crate) fn block_range(index: u64, size: u64) -> types::ByteRange {
    let start = index * BLOCK_BYTES;
    types::ByteRange::new(start, (start + BLOCK_BYTES).min(size))
}

impl Sums {
    /// Writes the checksums to a file. A torn write is detected when they are read.
    pub(crate) fn store(&self, path: &Path) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(24 + self.blocks.len() * 8);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&self.size.to_le_bytes());
        self.blocks.iter().for_each(|sum| bytes.extend_from_slice(&sum.to_le_bytes()));
        bytes.extend_from_slice(&sum(&bytes).to_le_bytes());
        match std::fs::write(path, &bytes) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                make_parent(path)?;
                std::fs::write(path, &bytes)
            }
            result => result,
        }
    }

    /// Writes the checksums if there is room. Without them a change is found by reading the global copy. Returns
    /// whether they were written.
    pub(crate) fn keep(&self, path: &Path) -> bool {
        let stored = self.store(path).inspect_err(|error| {
            tracing::warn!(%error, "could not write the checksums of a replica: its next stage-out reads the global copy instead");
            // The checksums of an earlier content must not be taken for these.
            let _ = std::fs::remove_file(path);
        });
        stored.is_ok()
    }

    /// Reads checksums; returns `None` if they are missing or damaged.
    pub(crate) fn load(path: &Path) -> Option<Sums> {
        let bytes = std::fs::read(path).ok()?;
        let (body, check) = bytes.split_last_chunk::<8>()?;
        if sum(body) != u64::from_le_bytes(*check) {
            return None;
        }
        let rest = body.strip_prefix(MAGIC)?;
        let (size, rest) = rest.split_first_chunk::<8>()?;
        let size = u64::from_le_bytes(*size);
        let blocks: Vec<u64> = rest.as_chunks::<8>().0.iter().map(|chunk| u64::from_le_bytes(*chunk)).collect();
        (blocks.len() as u64 == blocks_of(size)).then_some(Sums { size, blocks })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_read_back_and_a_damaged_byte_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b");
        let sums = Sums { size: 3 * BLOCK_BYTES + 1, blocks: vec![1, 2, 3, 4] };
        sums.store(&path).unwrap();
        assert_eq!(Sums::load(&path), Some(sums));
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[17] ^= 1;
        std::fs::write(&path, bytes).unwrap();
        assert_eq!(Sums::load(&path), None);
    }

    /// The catalogue of parametrised CRC algorithms gives this check value for CRC-64/NVME.
    #[test]
    fn the_checksum_is_crc_64_nvme() {
        assert_eq!(sum(b"123456789"), 0xae8b_1486_0a79_9888);
    }
}
