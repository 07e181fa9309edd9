//! A place in a burst buffer, and how places are told from other directories.

use std::fs;
use std::path::{Path, PathBuf};

/// Name of the file that shows that a directory is a burst buffer of ours.
pub const MARKER: &str = "superblock";

/// A directory and the burst buffer that its mount names as its source.
#[derive(Debug, Clone)]
pub struct Place {
    /// Canonical path.
    pub dir: PathBuf,
    /// Canonical path.
    pub burst_buffer: PathBuf,
}

/// The burst buffers in a directory: itself, its subdirectories, or none.
pub fn formatted(buffer: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = Vec::new();
    if is_formatted(buffer) {
        found.push(buffer.to_path_buf());
    }
    let entries = fs::read_dir(buffer).into_iter().flatten().flatten();
    let mut below: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(|path| is_formatted(path)).collect();
    below.sort();
    found.extend(below);
    found
}

/// One that lost its superblock may hold data all the same.
pub fn is_formatted(path: &Path) -> bool {
    path.join(MARKER).exists() || file_cache::is_damaged(path) && path.join("replicas").exists()
}

/// Whether a place is called as those are that lie in a burst buffer beside others.
pub fn is_subdirectory(place: &Path) -> bool {
    let name = place.file_name().unwrap_or_default().as_encoded_bytes();
    let hash = name.rsplit(|byte| *byte == b'-').next().filter(|hash| hash.len() < name.len());
    hash.is_some_and(|hash| hash.len() == 16 && hash.iter().all(u8::is_ascii_hexdigit))
}

/// `NAME-HASH` of a directory.
pub(crate) fn subdirectory(dir: &Path, identity: &str) -> String {
    let hash = hash(identity.bytes().chain(dir.as_os_str().as_encoded_bytes().iter().copied()));
    let name = dir.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    format!("{name}-{hash:016x}")
}

/// FNV-1a: stable for ever, unlike the standard library's hasher.
pub fn hash(bytes: impl Iterator<Item = u8>) -> u64 {
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}
