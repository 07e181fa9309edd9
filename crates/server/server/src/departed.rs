//! What others change of files on which a client had windows when it fell silent.
//!
//! The client may have been killed, and hold acknowledged writes that have not come yet: its next life brings them. By then others may have
//! written the same bytes, which is newer, and must not be written over. So from the moment in which the last connection of a client goes,
//! until it comes back itself or its next life has asked and is done, the ranges that others write are kept, of each of these files.
//! All of it is gone with the server's process.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use types::{ByteRange, Identity, RangeSet};

use wire::limits::DATA_BYTES_MAX;

use crate::limits::{DEPARTED_FILES_MAX, DEPARTED_RANGES_MAX};

/// A client's session, as it names itself.
pub(crate) type Client = [u8; 16];

/// How a client's own changes are told from those of others.
pub(crate) fn mark_of(client: &Client) -> u64 {
    u64::from_le_bytes([client[0], client[1], client[2], client[3], client[4], client[5], client[6], client[7]]) | 1
}

/// Ranges in one answer.
const ANSWERED_MAX: usize = DATA_BYTES_MAX as usize / 16;

/// What was changed of one file.
struct Since {
    client: Client,
    /// The mark of its next life, which asked last: what that brings is the client's own.
    heir: u64,
    ranges: RangeSet,
    /// At least as many as these.
    count: usize,
}

#[derive(Default)]
struct Table {
    files: HashMap<Identity, Vec<Since>>,
    /// The oldest first.
    order: VecDeque<(Identity, Client)>,
    /// The counts of all.
    ranges: usize,
}

/// The clients that are silent, or were forgotten while they were.
#[derive(Default)]
pub(crate) struct Departed {
    table: Mutex<Table>,
    /// Files in the table: a server whose clients are all there looks at one word.
    known: AtomicUsize,
}

impl Departed {
    /// The last connection of a client has gone, which had windows on these.
    pub fn leaves(&self, client: &Client, files: impl IntoIterator<Item = Identity>) {
        let mut table = self.table.lock();
        for identity in files {
            let known = table.files.entry(identity.clone()).or_default();
            if known.iter().any(|since| since.client == *client) {
                continue;
            }
            known.push(Since { client: *client, heir: mark_of(client), ranges: RangeSet::new(), count: 0 });
            table.order.push_back((identity, *client));
            if table.order.len() > DEPARTED_FILES_MAX
                && let Some((identity, client)) = table.order.pop_front()
            {
                table.take(&identity, &client);
            }
        }
        self.known.store(table.files.len(), Ordering::Release);
    }

    /// The client is there again, and what it brings is its own; or nobody will ask any more.
    pub fn forget(&self, client: &Client) {
        if self.known.load(Ordering::Acquire) == 0 {
            return;
        }
        let mut table = self.table.lock();
        let of_it: Vec<_> = table.order.iter().filter(|(_, one)| one == client).map(|(file, _)| file.clone()).collect();
        of_it.iter().for_each(|identity| table.take(identity, client));
        table.order.retain(|(_, one)| one != client);
        self.known.store(table.files.len(), Ordering::Release);
    }

    /// Somebody with this mark has changed bytes of a file.
    pub fn changed(&self, identity: &Identity, range: ByteRange, by: u64) {
        if self.known.load(Ordering::Acquire) == 0 {
            return;
        }
        let Table { files, ranges, .. } = &mut *self.table.lock();
        for since in files
            .get_mut(identity)
            .into_iter()
            .flatten()
            .filter(|since| ![mark_of(&since.client), since.heir].contains(&by))
        {
            let others = *ranges - since.count;
            since.add(range, DEPARTED_RANGES_MAX.saturating_sub(others).min(ANSWERED_MAX));
            *ranges = others + since.count;
        }
    }

    /// What others have changed of a file since a client fell silent, for its next life with this mark; `None`: nobody knows.
    pub fn since(&self, identity: &Identity, client: &Client, heir: u64) -> Option<Vec<ByteRange>> {
        let mut table = self.table.lock();
        let since = table.files.get_mut(identity)?.iter_mut().find(|since| since.client == *client)?;
        since.heir = heir;
        Some(since.ranges.iter().collect())
    }
}

impl Table {
    fn take(&mut self, identity: &Identity, client: &Client) {
        if let Some(known) = self.files.get_mut(identity) {
            let ranges = &mut self.ranges;
            known.retain(|since| {
                let stays = since.client != *client;
                *ranges -= if stays { 0 } else { since.count };
                stays
            });
            if known.is_empty() {
                self.files.remove(identity);
            }
        }
    }
}

impl Since {
    /// More than `most` become one: more is held back then than others wrote, and that is told.
    fn add(&mut self, range: ByteRange, most: usize) {
        if self.ranges.contains(range) {
            return;
        }
        self.ranges.insert(range);
        self.count += 1;
        if self.count > most {
            self.count = self.ranges.iter().count();
        }
        if self.count > most {
            let bounds = |(start, end): (u64, u64), one: ByteRange| (one.start.min(start), one.end.max(end));
            let (start, end) = self.ranges.iter().fold((u64::MAX, 0), bounds);
            self.ranges.insert(ByteRange::new(start, end));
            self.count = 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: u8) -> Identity {
        Identity::new(vec![name]).unwrap()
    }

    const ONE: Client = [1; 16];
    const OTHER: Client = [2; 16];

    #[test]
    fn what_others_change_while_a_client_is_silent_is_known_until_it_comes_back() {
        let (departed, range) = (Departed::default(), ByteRange::new(10, 20));
        departed.changed(&file(1), ByteRange::new(0, 5), 0);
        assert_eq!(departed.since(&file(1), &ONE, 5), None, "it was there");
        departed.leaves(&ONE, [file(1), file(2)]);
        departed.changed(&file(1), range, mark_of(&OTHER));
        departed.changed(&file(1), ByteRange::new(30, 40), mark_of(&ONE));
        departed.changed(&file(3), range, 0);
        assert_eq!(departed.since(&file(1), &ONE, 5), Some(vec![range]), "its own are its own");
        assert_eq!(departed.since(&file(2), &ONE, 5), Some(vec![]));
        assert_eq!((departed.since(&file(3), &ONE, 5), departed.since(&file(1), &OTHER, 5)), (None, None));
        // Its next life brings what it has, and may be killed as well.
        departed.changed(&file(1), ByteRange::new(50, 60), 5);
        assert_eq!(departed.since(&file(1), &ONE, 7), Some(vec![range]));
        // It falls silent once more before anybody asked.
        departed.leaves(&ONE, [file(1)]);
        assert_eq!(departed.since(&file(1), &ONE, 5), Some(vec![range]));
        departed.forget(&ONE);
        assert_eq!(departed.since(&file(1), &ONE, 5), None);
        assert!(departed.table.lock().order.is_empty() && departed.known.load(Ordering::Relaxed) == 0);
    }

    #[test]
    fn what_was_asked_is_forgotten_and_of_too_many_files_the_oldest() {
        let departed = Departed::default();
        departed.leaves(&ONE, [file(1), file(2)]);
        departed.leaves(&OTHER, [file(1)]);
        departed.forget(&ONE);
        assert_eq!((departed.since(&file(1), &ONE, 5), departed.since(&file(2), &ONE, 5)), (None, None));
        departed.leaves(&ONE, [file(2)]);
        assert!(departed.since(&file(1), &OTHER, 5).is_some());
        let many = (0..DEPARTED_FILES_MAX as u64).map(|n| Identity::new(n.to_le_bytes().to_vec()).unwrap());
        departed.leaves(&[3; 16], many);
        assert_eq!(departed.since(&file(2), &ONE, 5), None);
        assert_eq!(departed.table.lock().order.len(), DEPARTED_FILES_MAX);
    }

    #[test]
    fn too_many_ranges_become_one_that_holds_them_all() {
        let departed = Departed::default();
        departed.leaves(&ONE, [file(1)]);
        let all = ANSWERED_MAX as u64 + 1;
        // One after the other they are one anyhow.
        (0..2 * all).for_each(|n| departed.changed(&file(1), ByteRange::at(n, 1), 0));
        assert_eq!(departed.since(&file(1), &ONE, 5), Some(vec![ByteRange::new(0, 2 * all)]));
        (0..all).for_each(|n| departed.changed(&file(1), ByteRange::at(1 << 40 | n << 10, 1), 0));
        let end = 1 << 40 | (all - 1) << 10;
        assert!(departed.since(&file(1), &ONE, 5).unwrap().len() < 4, "memory is bounded");
        assert!(departed.since(&file(1), &ONE, 5).unwrap().last().unwrap().end > end);
    }
}
