//! What others change of files on which a client had windows when it fell silent.
//!
//! The client may have been killed, and hold acknowledged writes that have not come yet: its next life brings them. By then others may have
//! written the same bytes, which is newer, and must not be written over. So from the moment in which the last connection of a client goes,
//! until it comes back itself or its next life has asked and is done, the ranges that others write are kept, of each of these files.
//!
//! All of it is written down ([`kept`]), for a server that is killed and started again: to that all clients are silent, and nobody can have
//! changed anything meanwhile.

mod kept;
mod windowed;

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::RwLock;
use types::{ByteRange, Identity};
use wire::limits::DATA_BYTES_MAX;

use self::kept::{Event, Kept};
use self::windowed::Windowed;
use crate::limits::{DEPARTED_FILES_MAX, DEPARTED_RANGES_MAX};

/// A client's session, as it names itself.
pub(crate) type Client = [u8; 16];

/// How a client's own changes are told from those of others.
pub(crate) fn mark_of(client: &Client) -> u64 {
    u64::from_le_bytes([client[0], client[1], client[2], client[3], client[4], client[5], client[6], client[7]]) | 1
}

/// Ranges in one answer.
const ANSWERED_MAX: usize = DATA_BYTES_MAX as usize / 16;

#[derive(Default)]
struct Table {
    windowed: BTreeMap<u64, Windowed>,
    /// The numbers of each client's.
    clients: HashMap<Client, HashMap<Identity, u64>>,
    /// The numbers of the silent ones of each file.
    silent: HashMap<Identity, Vec<u64>>,
    /// The same, the oldest first.
    order: BTreeMap<u64, u64>,
    /// Above all numbers and places that were given.
    next: u64,
    /// The counts of all.
    ranges: usize,
    kept: Option<Kept>,
}

/// The clients with windows, and which of them are silent, or were forgotten while they were.
#[derive(Default)]
pub(crate) struct Departed {
    table: RwLock<Table>,
    /// Files of silent clients: a server whose clients are all there looks at one word.
    known: AtomicUsize,
}

impl Departed {
    /// What an earlier server knew in the same `life` of the machine, and where it is kept.
    pub fn open(path: &Path, life: u64) -> Departed {
        let (kept, events) = Kept::open(path, life);
        let mut table = Table::default();
        events.into_iter().for_each(|event| table.learn(event));
        let all: Vec<u64> = table.windowed.keys().copied().collect();
        all.into_iter().for_each(|number| table.falls_silent(number));
        table.kept = Some(kept);
        table.write_anew();
        let known = AtomicUsize::new(table.silent.len());
        Departed { table: RwLock::new(table), known }
    }

    fn update(&self, change: impl FnOnce(&mut Table)) {
        let mut table = self.table.write();
        change(&mut table);
        self.known.store(table.silent.len(), Ordering::Release);
    }

    /// A client has opened a file for windows.
    pub fn opened(&self, client: &Client, handle: u64, identity: &Identity) {
        self.update(|table| table.opened(client, handle, identity));
    }

    /// Or closed it, also if only an earlier server knows by which handle: it has none on it that is not drained.
    pub fn closed(&self, client: &Client, handle: u64) {
        self.update(|table| table.closed(client, handle));
    }

    /// Its last connection has gone.
    pub fn leaves(&self, client: &Client) {
        self.update(|table| table.of(client).into_iter().for_each(|number| table.falls_silent(number)));
    }

    /// It is there again, and what it brings is its own.
    pub fn returns(&self, client: &Client) {
        self.update(|table| table.hear(client, Event::Returned { client: *client }));
    }

    /// Nobody will ask any more.
    pub fn forget(&self, client: &Client) {
        self.update(|table| table.hear(client, Event::Gone { client: *client }));
    }

    /// Somebody with this mark has changed bytes of a file.
    pub fn changed(&self, identity: &Identity, range: ByteRange, by: u64) {
        if self.known.load(Ordering::Acquire) == 0 {
            return;
        }
        let of_file = self.table.read().silent.get(identity).cloned();
        if let Some(numbers) = of_file {
            let mut table = self.table.write();
            numbers.into_iter().for_each(|number| table.changed(number, range, by));
        }
    }

    /// What others have changed of a file since a client fell silent, for its next life with this mark; `None`: nobody knows.
    pub fn since(&self, identity: &Identity, client: &Client, heir: u64) -> Option<Vec<ByteRange>> {
        let mut table = self.table.write();
        let number = *table.clients.get(client)?.get(identity)?;
        let one = table.windowed.get_mut(&number).filter(|one| one.silent.is_some())?;
        let ranges = one.ranges.iter().collect();
        if std::mem::replace(&mut one.heir, heir) != heir {
            table.keep(&Event::Heir { number, mark: heir });
        }
        Some(ranges)
    }
}

impl Table {
    /// The numbers of a client's.
    fn of(&self, client: &Client) -> Vec<u64> {
        self.clients.get(client).map(|files| files.values().copied().collect()).unwrap_or_default()
    }

    fn with(&mut self, number: u64, change: impl FnMut(&mut Windowed)) {
        self.windowed.get_mut(&number).into_iter().for_each(change);
    }

    fn hear(&mut self, client: &Client, event: Event) {
        if self.clients.contains_key(client) {
            self.learn(event.clone());
            self.keep(&event);
        }
    }

    /// A file has one such handle, which the client opens again by its number.
    fn opened(&mut self, client: &Client, handle: u64, identity: &Identity) {
        let known = self.clients.get(client).and_then(|files| files.get(identity)).copied();
        if known.and_then(|number| self.windowed.get(&number)).is_some_and(|one| one.handle == handle) {
            return;
        }
        let number = known.unwrap_or(self.next);
        let joined = Event::Joined { number, client: *client, handle, identity: identity.clone() };
        self.learn(joined.clone());
        self.keep(&joined);
    }

    fn closed(&mut self, client: &Client, handle: u64) {
        let is_it = |number: &u64| self.windowed.get(number).is_some_and(|one| one.handle == handle);
        if let Some(number) = self.of(client).into_iter().find(is_it) {
            self.learn(Event::Left { number });
            self.keep(&Event::Left { number });
        }
    }

    fn falls_silent(&mut self, number: u64) {
        let place = self.next;
        let Some(one) = self.windowed.get_mut(&number).filter(|one| one.silent.is_none()) else { return };
        one.silent = Some(place);
        self.next = place.saturating_add(1);
        self.silent.entry(one.identity.clone()).or_default().push(number);
        self.order.insert(place, number);
        if self.order.len() > DEPARTED_FILES_MAX
            && let Some((_, number)) = self.order.pop_first()
        {
            self.learn(Event::Left { number });
            self.keep(&Event::Left { number });
        }
    }

    fn changed(&mut self, number: u64, range: ByteRange, by: u64) {
        let others = |one: &&mut Windowed| one.silent.is_some() && ![mark_of(&one.client), one.heir].contains(&by);
        let Some(one) = self.windowed.get_mut(&number).filter(others) else { return };
        if !one.ranges.contains(range) {
            self.learn(Event::Changed { number, range });
            self.keep(&Event::Changed { number, range });
        }
    }

    /// Takes an event in, of now or of an earlier server.
    fn learn(&mut self, event: Event) {
        match event {
            Event::Joined { number, handle, .. } if self.windowed.contains_key(&number) => {
                self.with(number, |one| one.handle = handle);
            }
            Event::Joined { number, client, handle, identity } => {
                self.next = self.next.max(number.saturating_add(1));
                self.clients.entry(client).or_default().insert(identity.clone(), number);
                self.windowed.insert(number, Windowed::new(client, handle, identity));
            }
            Event::Left { number } => self.remove(number),
            Event::Changed { number, range } => {
                let Some(one) = self.windowed.get_mut(&number) else { return };
                let others = self.ranges - one.count;
                one.add(range, DEPARTED_RANGES_MAX.saturating_sub(others).min(ANSWERED_MAX));
                self.ranges = others + one.count;
            }
            Event::Heir { number, mark } => self.with(number, |one| one.heir = mark),
            Event::Returned { client } => self.of(&client).into_iter().for_each(|number| self.speaks(number)),
            Event::Gone { client } => self.of(&client).into_iter().for_each(|number| self.remove(number)),
        }
    }

    /// It is not silent any more.
    fn speaks(&mut self, number: u64) {
        let Some(one) = self.windowed.get_mut(&number) else { return };
        one.silent.take().map(|place| self.order.remove(&place));
        self.ranges -= std::mem::take(&mut one.count);
        (one.ranges, one.heir) = (Default::default(), mark_of(&one.client));
        if let Some(numbers) = self.silent.get_mut(&one.identity) {
            numbers.retain(|other| *other != number);
            if numbers.is_empty() {
                self.silent.remove(&one.identity);
            }
        }
    }

    fn remove(&mut self, number: u64) {
        self.speaks(number);
        let Some(one) = self.windowed.remove(&number) else { return };
        if let Some(files) = self.clients.get_mut(&one.client) {
            files.remove(&one.identity);
            if files.is_empty() {
                self.clients.remove(&one.client);
            }
        }
    }

    /// Writes down what is known already.
    fn keep(&mut self, event: &Event) {
        if self.kept.as_mut().is_some_and(|kept| !kept.append(event)) {
            self.write_anew();
        }
    }

    fn write_anew(&mut self) {
        let Some(mut kept) = self.kept.take() else { return };
        kept.rewrite(self.windowed.iter().flat_map(|(number, one)| one.events(*number)));
        self.kept = Some(kept);
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

    const RANGE: ByteRange = ByteRange { start: 10, end: 20 };

    /// It has these open for windows, and its last connection goes.
    fn leaves(departed: &Departed, client: &Client, files: impl IntoIterator<Item = Identity>) {
        let handle = |identity: &Identity| u64::from(identity.as_bytes()[0]);
        files.into_iter().for_each(|identity| departed.opened(client, handle(&identity), &identity));
        departed.leaves(client);
    }

    fn is_empty(departed: &Departed) -> bool {
        let table = departed.table.read();
        let none = table.windowed.is_empty() && table.clients.is_empty() && table.silent.is_empty();
        none && table.order.is_empty() && table.ranges == 0 && departed.known.load(Ordering::Relaxed) == 0
    }

    #[test]
    fn what_others_change_while_a_client_is_silent_is_known_until_it_comes_back() {
        let departed = Departed::default();
        departed.opened(&ONE, 1, &file(1));
        departed.changed(&file(1), ByteRange::new(0, 5), 0);
        assert_eq!(departed.since(&file(1), &ONE, 5), None, "it was there");
        leaves(&departed, &ONE, [file(2)]);
        departed.changed(&file(1), RANGE, mark_of(&OTHER));
        departed.changed(&file(1), ByteRange::new(30, 40), mark_of(&ONE));
        departed.changed(&file(3), RANGE, 0);
        assert_eq!(departed.since(&file(1), &ONE, 5), Some(vec![RANGE]), "its own are its own");
        assert_eq!(departed.since(&file(2), &ONE, 5), Some(vec![]));
        assert_eq!((departed.since(&file(3), &ONE, 5), departed.since(&file(1), &OTHER, 5)), (None, None));
        // Its next life brings what it has, and may be killed as well.
        departed.changed(&file(1), ByteRange::new(50, 60), 5);
        assert_eq!(departed.since(&file(1), &ONE, 7), Some(vec![RANGE]));
        // It falls silent once more before anybody asked.
        departed.leaves(&ONE);
        assert_eq!(departed.since(&file(1), &ONE, 5), Some(vec![RANGE]));
        departed.returns(&ONE);
        assert_eq!(departed.since(&file(1), &ONE, 5), None);
        departed.changed(&file(1), RANGE, 0);
        departed.leaves(&ONE);
        assert_eq!(departed.since(&file(1), &ONE, 5), Some(vec![]), "what was before it came does not matter");
        departed.forget(&ONE);
        assert_eq!(departed.since(&file(1), &ONE, 5), None);
        assert!(is_empty(&departed));
    }

    #[test]
    fn a_file_is_known_until_its_handle_is_closed_whichever_server_has_opened_it() {
        let departed = Departed::default();
        leaves(&departed, &ONE, [file(1), file(2)]);
        departed.returns(&ONE);
        departed.closed(&ONE, 3);
        departed.closed(&ONE, 2);
        departed.leaves(&ONE);
        assert_eq!((departed.since(&file(1), &ONE, 5), departed.since(&file(2), &ONE, 5)), (Some(vec![]), None));
        departed.returns(&ONE);
        // By another, before the close of the first has come.
        departed.opened(&ONE, 9, &file(1));
        departed.closed(&ONE, 1);
        departed.leaves(&ONE);
        assert!(departed.since(&file(1), &ONE, 5).is_some());
        departed.returns(&ONE);
        departed.closed(&ONE, 9);
        assert!(is_empty(&departed));
    }

    #[test]
    fn a_server_that_is_started_again_knows_what_the_one_before_it_knew() {
        let tree = testkit::TempTree::new();
        let open = || Departed::open(&tree.path("departed"), 1);
        let first = open();
        leaves(&first, &ONE, [file(1), file(2)]);
        first.changed(&file(1), RANGE, 0);
        first.opened(&OTHER, 1, &file(1));
        assert_eq!(first.since(&file(1), &ONE, 9), Some(vec![RANGE]));
        first.opened(&[3; 16], 1, &file(1));
        first.closed(&[3; 16], 1);
        leaves(&first, &[4; 16], [file(1)]);
        first.forget(&[4; 16]);
        drop(first);
        let second = open();
        let more = ByteRange::new(100, 110);
        // To it all are silent, and whose next life asked is known.
        second.changed(&file(1), more, 9);
        second.changed(&file(1), more, mark_of(&OTHER));
        assert_eq!(second.since(&file(1), &ONE, 9), Some(vec![RANGE, more]));
        assert_eq!(second.since(&file(1), &OTHER, 5), Some(vec![more]));
        assert_eq!(second.since(&file(2), &ONE, 5), Some(vec![]));
        assert_eq!((second.since(&file(1), &[3; 16], 5), second.since(&file(1), &[4; 16], 5)), (None, None));
        second.returns(&OTHER);
        assert_eq!(second.since(&file(1), &OTHER, 5), None);
        drop(second);
        let third = open();
        third.changed(&file(1), RANGE, mark_of(&ONE));
        assert_eq!(third.since(&file(1), &OTHER, 5), Some(vec![RANGE]), "what it found when it came does not matter");
        assert_eq!(third.since(&file(1), &ONE, 5), Some(vec![RANGE, more]));
        third.forget(&ONE);
        third.forget(&OTHER);
        drop(third);
        assert!(is_empty(&open()));
        leaves(&open(), &ONE, [file(1)]);
        assert!(is_empty(&Departed::open(&tree.path("departed"), 2)), "the machine has crashed");
    }

    #[test]
    fn what_was_asked_is_forgotten_and_of_too_many_files_the_oldest() {
        let departed = Departed::default();
        leaves(&departed, &ONE, [file(1), file(2)]);
        leaves(&departed, &OTHER, [file(1)]);
        departed.forget(&ONE);
        assert_eq!((departed.since(&file(1), &ONE, 5), departed.since(&file(2), &ONE, 5)), (None, None));
        leaves(&departed, &ONE, [file(2)]);
        assert!(departed.since(&file(1), &OTHER, 5).is_some());
        let many = (0..DEPARTED_FILES_MAX as u64).map(|n| Identity::new(n.to_le_bytes().to_vec()).unwrap());
        leaves(&departed, &[3; 16], many);
        assert_eq!(departed.since(&file(2), &ONE, 5), None);
        assert_eq!(departed.table.read().order.len(), DEPARTED_FILES_MAX);
        departed.forget(&[3; 16]);
        assert!(is_empty(&departed));
    }

    #[test]
    fn too_many_ranges_become_one_that_holds_them_all() {
        let departed = Departed::default();
        leaves(&departed, &ONE, [file(1)]);
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
