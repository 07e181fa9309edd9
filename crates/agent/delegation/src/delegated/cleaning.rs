//! Cleaning of the log: what is still needed of its oldest file is appended again, and the file is removed.
//!
//! A file is removed after everything that was appended is durable. So no state is lost that a newer one had superseded only in
//! the page cache.

use std::io;

use super::{DelegatedTree, Inner, Shared};
use crate::fault::point;
use crate::limits;
use crate::log::FileUse;
use crate::state::LogRecord;

/// Outcome of one step of cleaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cleaning {
    /// Nothing is to be cleaned now.
    Idle,
    /// Something was done, and there may be more to do.
    Progress,
}

impl DelegatedTree {
    /// Does one bounded step of cleaning: appends some records of the oldest file again, or removes it.
    ///
    /// The oldest file is cleaned if its live share, or that of all files, is below the setting. Errors: those of the log. Then the
    /// step can be tried again.
    pub fn clean(&self) -> io::Result<Cleaning> {
        let shared = &self.shared;
        let mut cleaning = shared.cleaning.lock();
        let files = shared.log.files();
        let [oldest, _, ..] = files[..] else { return Ok(Cleaning::Idle) };
        {
            let mut inner = shared.change();
            if inner.tree.live(oldest.number) > 0 {
                if cleaning.is_none() && !self.is_worthwhile(&inner, &files) {
                    return Ok(Cleaning::Idle);
                }
                let from = cleaning.unwrap_or(0);
                *cleaning = Some(append_again(shared, &mut inner, oldest.number, from)?);
            }
            if inner.tree.live(oldest.number) > 0 {
                return Ok(Cleaning::Progress);
            }
        }
        shared.log.sync(shared.log.end())?;
        point("names.settled");
        shared.log.remove_oldest(oldest.number)?;
        *cleaning = None;
        Ok(Cleaning::Progress)
    }

    /// Whether the oldest file, which has live records, is to be cleaned.
    fn is_worthwhile(&self, inner: &Inner, files: &[FileUse]) -> bool {
        let percent = self.shared.settings.live_percent;
        let is_below = |live: u64, records: u64| live.saturating_mul(100) < records.saturating_mul(percent);
        let oldest = files[0];
        let all = files.iter().map(|file| file.records).sum();
        is_below(inner.tree.live(oldest.number), oldest.records) || is_below(inner.tree.live_total(), all)
    }
}

/// Appends some live records of a file again. Returns the slot to go on from.
fn append_again(shared: &Shared, inner: &mut Inner, file: u32, from: u32) -> io::Result<u32> {
    let (numbers, next) = inner.tree.live_in(file, from, limits::CLEAN_NODES, limits::CLEAN_RECORDS);
    let (mut draft, mut bytes) = (inner.draft(shared), 0);
    let mut next = next.unwrap_or(0);
    for slot in numbers.iter().filter_map(|number| inner.tree.slot_of(*number)) {
        let state = inner.tree.state(slot);
        bytes += state.log_bytes_max();
        if bytes > limits::CLEAN_BYTES && !draft.records.is_empty() {
            next = slot;
            break;
        }
        draft.records.push(LogRecord::State(Box::new(state)));
    }
    if !draft.records.is_empty() {
        inner.commit(shared, draft)?;
        inner.unchanging += 1;
        point("names.copied");
    }
    Ok(next)
}
