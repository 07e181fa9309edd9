//! What was acknowledged, kept outside the mount: a mark before each step and one after it.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;

/// Written by the program, one byte a mark: it dies without a buffer.
pub struct Ledger(File);

impl Ledger {
    /// A new one.
    pub fn create(path: &Path) -> Ledger {
        Ledger(OpenOptions::new().create(true).append(true).open(path).expect("the ledger"))
    }

    /// A step begins.
    pub fn begun(&mut self) {
        self.0.write_all(b"(").expect("write the ledger");
    }

    /// It has returned with success.
    pub fn acknowledged(&mut self) {
        self.0.write_all(b")").expect("write the ledger");
    }
}

/// What a ledger says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reading {
    /// Steps that returned with success.
    pub acknowledged: usize,
    /// One more began; nobody knows how far it came.
    pub unknown: bool,
}

/// Reads a ledger; one that does not exist yet says nothing.
pub fn read(path: &Path) -> Reading {
    let marks = std::fs::read(path).unwrap_or_default();
    let acknowledged = marks.iter().filter(|mark| **mark == b')').count();
    Reading { acknowledged, unknown: marks.len() > 2 * acknowledged }
}
