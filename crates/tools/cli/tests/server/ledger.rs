//! Programs that remember every acknowledgement, and check each byte of it afterwards.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Bytes of one record of a writer.
pub const RECORD_BYTES: usize = 5000;

/// Ends all writers when its scope ends, even by a failure.
pub struct EndOfAll<'a>(pub &'a AtomicBool);

impl Drop for EndOfAll<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Writes records side by side.
pub struct Writer {
    file: Option<File>,
    name: String,
    number: u64,
    acknowledged: Arc<AtomicU64>,
}

pub fn record(writer: u64, number: u64) -> Vec<u8> {
    let mut state = writer.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ number;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..RECORD_BYTES).map(|_| next()).collect()
}

impl Writer {
    pub fn new(dir: &Path, number: u64) -> Writer {
        let name = format!("written-{number}");
        let file = File::create(dir.join(&name)).expect("a new file");
        Writer { file: Some(file), name, number, acknowledged: Arc::default() }
    }

    pub fn run(&mut self, end: &AtomicBool) {
        let file = self.file.as_ref().expect("an open file");
        while !end.load(Ordering::SeqCst) {
            let at = self.acknowledged.load(Ordering::SeqCst);
            file.write_all_at(&record(self.number, at), at * RECORD_BYTES as u64).expect("a write");
            self.acknowledged.store(at + 1, Ordering::SeqCst);
        }
    }

    /// Writes until the mount dies.
    pub fn run_to_its_death(&mut self, end: &AtomicBool) {
        let file = self.file.as_ref().expect("an open file");
        while !end.load(Ordering::SeqCst) {
            let at = self.acknowledged.load(Ordering::SeqCst);
            match file.write_all_at(&record(self.number, at), at * RECORD_BYTES as u64) {
                Ok(()) => self.acknowledged.store(at + 1, Ordering::SeqCst),
                Err(error) => return assert!(is_dead(&error), "{error}"),
            }
        }
    }

    /// Checks that every acknowledged record is there, whatever happened to the unacknowledged one.
    pub fn check_acknowledged(&self, dir: &Path) {
        check_acknowledged(&dir.join(&self.name), self.number, self.acknowledged());
    }

    pub fn count(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.acknowledged)
    }

    pub fn acknowledged(&self) -> u64 {
        self.acknowledged.load(Ordering::SeqCst)
    }

    pub fn close(&mut self) {
        self.file = None;
    }

    /// Checks that every acknowledged record is there, and nothing else.
    pub fn check(&self, dir: &Path) {
        let bytes = std::fs::read(dir.join(&self.name)).expect("the written file");
        assert_eq!(bytes.len() as u64, self.acknowledged() * RECORD_BYTES as u64, "{}", self.name);
        for (at, found) in bytes.chunks(RECORD_BYTES).enumerate() {
            assert!(found == record(self.number, at as u64), "{}: record {at} in {}", self.name, dir.display());
        }
    }
}

/// Checks that every acknowledged record of a writer is in its file. The unacknowledged one may be.
pub fn check_acknowledged(file: &Path, writer: u64, acknowledged: u64) {
    let bytes = std::fs::read(file).expect("the written file");
    let (file, acknowledged) = (file.display(), acknowledged as usize);
    assert!(bytes.len() >= acknowledged * RECORD_BYTES, "{file}: {} bytes of {acknowledged} records", bytes.len());
    assert!(
        bytes.len() <= (acknowledged + 1) * RECORD_BYTES,
        "{file}: {} bytes of {acknowledged} records",
        bytes.len()
    );
    for (at, found) in bytes.chunks(RECORD_BYTES).take(acknowledged).enumerate() {
        assert!(found == record(writer, at as u64), "{file}: record {at}");
    }
}

/// Returns whether the error is that of a mount whose agent was killed.
fn is_dead(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOTCONN | libc::ECONNABORTED | libc::EINTR | libc::EIO))
}

/// Appends numbered lines.
pub struct Appender {
    file: Option<File>,
    acknowledged: Arc<AtomicU64>,
}

impl Appender {
    pub fn new(dir: &Path) -> Appender {
        let file = File::options().create_new(true).append(true).open(dir.join("appended")).expect("a new file");
        Appender { file: Some(file), acknowledged: Arc::default() }
    }

    pub fn acknowledged(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.acknowledged)
    }

    pub fn run(&mut self, end: &AtomicBool) {
        let file = self.file.as_mut().expect("an open file");
        while !end.load(Ordering::SeqCst) {
            let at = self.acknowledged.load(Ordering::SeqCst);
            file.write_all(format!("line {at}\n").as_bytes()).expect("an append");
            self.acknowledged.store(at + 1, Ordering::SeqCst);
        }
    }

    pub fn close(&mut self) {
        self.file = None;
    }

    /// Checks that each line is there once, in order.
    pub fn check(&self, dir: &Path) {
        let text = std::fs::read_to_string(dir.join("appended")).expect("the appended file");
        let mut lines = 0;
        for (at, line) in text.lines().enumerate() {
            assert_eq!(line, format!("line {at}"), "in {}", dir.display());
            lines += 1;
        }
        assert_eq!(lines, self.acknowledged.load(Ordering::SeqCst));
    }
}
