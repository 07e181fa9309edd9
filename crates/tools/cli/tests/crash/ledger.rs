//! Ledger of acknowledged steps, kept outside the mount: a mark before each step and one after it.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;

/// Ledger that the program writes, one byte per mark and without a buffer, since the program may die at any time.
pub struct Ledger(File);

impl Ledger {
    /// Creates a ledger.
    pub fn create(path: &Path) -> Ledger {
        Ledger(OpenOptions::new().create(true).append(true).open(path).expect("the ledger"))
    }

    /// Notes that a step begins.
    pub fn begun(&mut self) {
        self.0.write_all(b"(").expect("write the ledger");
    }

    /// Notes that the step has returned with success.
    pub fn acknowledged(&mut self) {
        self.0.write_all(b")").expect("write the ledger");
    }
}

/// Contents of a ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reading {
    /// Steps that returned with success.
    pub acknowledged: usize,
    /// Whether one more step began, whose effect is unknown.
    pub unknown: bool,
}

/// Reads a ledger. One that does not exist yet is empty.
pub fn read(path: &Path) -> Reading {
    let marks = std::fs::read(path).unwrap_or_default();
    let acknowledged = marks.iter().filter(|mark| **mark == b')').count();
    Reading { acknowledged, unknown: marks.len() > 2 * acknowledged }
}
