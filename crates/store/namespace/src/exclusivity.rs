//! Whether one agent alone changes a tree of files.

use std::sync::atomic::{AtomicBool, Ordering};

/// The hold of one agent on a tree of files. While it lasts, nobody else changes the tree's names and attributes, and every
/// change comes through the kernel of the agent's machine. All inodes of the tree share it.
#[derive(Debug, Default)]
pub struct Exclusivity {
    ended: AtomicBool,
}

impl Exclusivity {
    /// Ends the hold for ever. Whoever noted something under a lock, and then found the hold to last, noted it before the end:
    /// who takes that lock after this call finds the note.
    pub fn end(&self) {
        self.ended.store(true, Ordering::Release);
    }

    /// Whether the hold has ended.
    pub fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }
}
