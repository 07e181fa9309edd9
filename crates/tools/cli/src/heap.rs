//! The heap of a process that serves.

use crate::limits::{HEAP_ARENAS_MAX, HEAP_KEPT_BYTES, HEAP_MAPPED_BYTES};

/// Keeps it small; before there are threads. The C library would give each of dozens of threads an arena of its own, none of
/// which hands to another what was freed in it, and keep copy buffers in them.
pub fn keep_small() {
    #[cfg(target_env = "gnu")]
    for (what, value) in [
        (libc::M_ARENA_MAX, HEAP_ARENAS_MAX),
        (libc::M_MMAP_THRESHOLD, HEAP_MAPPED_BYTES),
        (libc::M_TRIM_THRESHOLD, HEAP_KEPT_BYTES),
    ] {
        // SAFETY: sets a number of the C library's allocator; one that it refuses stays as it was.
        let _ = unsafe { libc::mallopt(what, value) };
    }
}
