//! Pages that this node's kernel has read of files which programs of several nodes lock and map.
//!
//! The kernel writes back whole pages, including bytes that another node may have changed since they were read.
//! SQLite's index of a write-ahead log is such a case: one page contains words of all users, each under its own lock.
//! So pages that were read are remembered, and of a page written back only the bytes that differ are sent.
//!
//! G1. A remembered page equals the kernel's at its last read or write. Each read of the page replaces it, each write
//! of this node changes it. Truncation and other kinds of writes make it forgotten.
//! G2. A page that is not remembered is written whole.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use concurrency::{Mutex, MutexGuard};

use crate::limits::{PAGE_RUNS_MAX, PAGES_FILES_MAX, PAGES_KEPT, PAGES_READ_MAX};

const PAGE: usize = 4096;

/// Remembered pages of all files that were locked or synced here.
#[derive(Default)]
pub struct Pages {
    /// Whether any file was ever added. If not, no request takes the lock.
    any: AtomicBool,
    files: Mutex<HashMap<u64, FilePages>>,
}

/// Pages of one file. `order`: their numbers, oldest first.
#[derive(Default)]
struct FilePages {
    pages: HashMap<u64, Vec<u8>>,
    order: VecDeque<u64>,
}

/// Splits `bytes` at `offset` by pages. Returns for each part its page number, its start within the page, and its
/// range in `bytes`.
fn parts(offset: u64, bytes: &[u8]) -> impl Iterator<Item = (u64, usize, Range<usize>)> {
    let (len, mut done) = (bytes.len(), 0);
    std::iter::from_fn(move || {
        let at = offset + done as u64;
        let within = (at % PAGE as u64) as usize;
        let part = done..len.min(done + PAGE - within);
        done = part.end;
        (!part.is_empty()).then_some((at / PAGE as u64, within, part))
    })
}

impl Pages {
    fn files(&self) -> Option<MutexGuard<'_, HashMap<u64, FilePages>>> {
        self.any.load(Ordering::Relaxed).then(|| self.files.lock())
    }

    /// Starts remembering the pages read of a file that a program of this node has locked or synced.
    pub fn shared(&self, node: u64) {
        self.any.store(true, Ordering::Relaxed);
        let mut files = self.files.lock();
        if files.len() >= PAGES_FILES_MAX && !files.contains_key(&node) {
            // Pages of the dropped files are written whole, like those of files that nobody locks.
            files.clear();
        }
        files.entry(node).or_default();
    }

    /// Removes a file that the kernel has forgotten.
    pub fn forgotten(&self, node: u64) {
        self.files().and_then(|mut files| files.remove(&node));
    }

    /// Drops the pages of a file that is truncated or changed in a way that is not followed here.
    pub fn changed(&self, node: u64) {
        if let Some(mut files) = self.files()
            && let Some(kept) = files.get_mut(&node)
        {
            *kept = FilePages::default();
        }
    }

    /// Returns whether pages read of a file are remembered.
    pub fn follows(&self, node: u64) -> bool {
        self.files().is_some_and(|files| files.contains_key(&node))
    }

    /// Returns whether any page of a file is remembered.
    pub fn has_any(&self, node: u64) -> bool {
        self.files().is_some_and(|files| files.get(&node).is_some_and(|kept| !kept.pages.is_empty()))
    }

    /// Remembers bytes that the kernel is about to read. A large read drops its pages instead: page faults read less.
    pub fn read(&self, node: u64, offset: u64, bytes: &[u8]) {
        let Some(mut files) = self.files() else { return };
        let Some(kept) = files.get_mut(&node) else { return };
        let is_large = bytes.len() > PAGES_READ_MAX;
        if is_large && kept.pages.is_empty() {
            return;
        }
        for (page, within, part) in parts(offset, bytes) {
            if within > 0 || is_large {
                kept.pages.remove(&page);
                continue;
            }
            if kept.pages.insert(page, bytes[part].to_vec()).is_none() {
                kept.order.push_back(page);
            }
            while kept.order.len() > PAGES_KEPT {
                kept.order.pop_front().map(|oldest| kept.pages.remove(&oldest));
            }
        }
    }

    /// Updates remembered pages with bytes that were written.
    pub fn written(&self, node: u64, offset: u64, bytes: &[u8]) {
        let Some(mut files) = self.files() else { return };
        let Some(kept) = files.get_mut(&node) else { return };
        for (page, within, part) in parts(offset, bytes) {
            let Some(known) = kept.pages.get_mut(&page) else { continue };
            let end = within + part.len();
            if within > known.len() {
                kept.pages.remove(&page);
                continue;
            }
            known.resize(known.len().max(end), 0);
            known[within..end].copy_from_slice(&bytes[part]);
        }
    }

    /// Returns the ranges of a written-back `bytes` that programs of this node have changed. `None`: a page is not
    /// remembered, or there are too many ranges; then all bytes are to be written.
    pub fn differing(&self, node: u64, offset: u64, bytes: &[u8]) -> Option<Vec<Range<usize>>> {
        let files = self.files()?;
        let kept = files.get(&node)?;
        let mut runs: Vec<Range<usize>> = Vec::new();
        for (page, within, part) in parts(offset, bytes) {
            let known = kept.pages.get(&page)?.get(within..).unwrap_or_default();
            for at in part.clone() {
                if known.get(at - part.start) == Some(&bytes[at]) {
                    continue;
                }
                let is_full = runs.len() == PAGE_RUNS_MAX;
                match runs.last_mut() {
                    Some(run) if run.end == at => run.end += 1,
                    _ if is_full => return None,
                    _ => runs.push(at..at + 1),
                }
            }
        }
        Some(runs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_bytes_that_this_node_changed_are_written() {
        let pages = Pages::default();
        let was: Vec<u8> = (0..2 * PAGE + 100).map(|at| at as u8).collect();
        pages.read(7, 0, &was);
        assert_eq!(pages.differing(7, 0, &was), None, "nobody shares it");
        pages.shared(7);
        assert_eq!(pages.differing(7, 0, &was), None, "nothing was read since");
        pages.read(7, 0, &was);
        assert_eq!(pages.differing(7, 0, &was), Some(vec![]));
        let mut now = was.clone();
        for at in [0, 5, 6, PAGE - 1, PAGE, 2 * PAGE + 99] {
            now[at] ^= 1;
        }
        now.push(0);
        let runs = vec![0..1, 5..7, PAGE - 1..PAGE + 1, 2 * PAGE + 99..2 * PAGE + 101];
        assert_eq!(pages.differing(7, 0, &now), Some(runs));
        assert_eq!(pages.differing(7, PAGE as u64, &now[PAGE..]).map(|runs| runs.len()), Some(2));
        pages.written(7, 0, &now);
        assert_eq!(pages.differing(7, 0, &now), Some(vec![]));
        pages.written(7, 10, b"by a call");
        pages.written(7, 30, b"twice!");
        assert_eq!(pages.differing(7, 0, &now), Some(vec![10..19, 30..36]));
        pages.changed(7);
        assert_eq!(pages.differing(7, 0, &now), None);
    }

    #[test]
    fn what_takes_too_many_pieces_or_is_too_old_is_written_whole() {
        let pages = Pages::default();
        pages.shared(7);
        pages.read(7, 0, &[0; PAGE]);
        let every_other: Vec<u8> = (0..PAGE).map(|at| (at % 2) as u8).collect();
        assert_eq!(pages.differing(7, 0, &every_other), None);
        for page in 1..=PAGES_KEPT as u64 {
            pages.read(7, page * PAGE as u64, &[0; PAGE]);
        }
        assert_eq!(pages.differing(7, 0, &[0; PAGE]), None);
        assert_eq!(pages.differing(7, PAGE as u64, &[0; PAGE]), Some(vec![]));
        pages.read(7, 0, &vec![0; PAGES_READ_MAX + PAGE]);
        assert_eq!(pages.differing(7, PAGE as u64, &[0; PAGE]), None, "a large read");
        pages.read(7, 0, &vec![0; PAGES_READ_MAX]);
        assert_eq!(pages.differing(7, PAGE as u64, &[0; PAGE]), Some(vec![]));
        pages.forgotten(7);
        assert_eq!(pages.differing(7, PAGE as u64, &[0; PAGE]), None);
    }
}
