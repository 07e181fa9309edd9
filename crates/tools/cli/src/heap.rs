//! The heap of a serving process.

use crate::limits::{HEAP_ARENAS_MAX, HEAP_KEPT_BYTES, HEAP_MAPPED_BYTES};

/// Limits the heap's size; called before there are threads. The C library would give each of dozens of threads its
/// own arena, and keep copy buffers there. Memory freed in one arena is not available to the others.
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
