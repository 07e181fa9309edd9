//! Byte ranges that others change in files on which a silent client had windows.
//!
//! A client that falls silent may have been killed while it held acknowledged writes that have not arrived. When it
//! runs again, it sends them. By then others may have written the same bytes. Their data is newer and must not be
//! overwritten. So the server remembers, for each of these files, the ranges that others write. It begins when the
//! client's last connection is lost. It ends when the client reconnects, or when its successor (the client's next run)
//! has asked for the ranges and is done.
//!
//! All of this is logged ([`kept`]) for a server that is killed and started again. After its start all clients are
//! silent. Nobody can have changed anything while it was down.

mod kept;
mod windowed;

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use concurrency::RwLock;
use types::{ByteRange, Identity};
use wire::limits::DATA_BYTES_MAX;

use self::kept::{DepartureEvent, DepartureLog};
use self::windowed::Windowed;
use crate::boot_verifier::BootVerifier;
use crate::limits::{DEPARTED_FILES_MAX, DEPARTED_RANGES_MAX};

/// Id of a client's session, chosen by the client.
pub(crate) type ClientSessionId = [u8; 16];

/// Returns the mark that tells a client's own changes from those of others.
pub(crate) fn mark_of(client: &ClientSessionId) -> u64 {
    u64::from_le_bytes([client[0], client[1], client[2], client[3], client[4], client[5], client[6], client[7]]) | 1
}

/// Most ranges in one answer.
const ANSWERED_MAX: usize = DATA_BYTES_MAX as usize / 16;

#[derive(Default)]
struct Table {
    windowed: BTreeMap<u64, Windowed>,
    /// For each client and file, the number of its entry in `windowed`.
    clients: HashMap<ClientSessionId, HashMap<Identity, u64>>,
    /// For each file, the numbers of its silent entries.
    silent: HashMap<Identity, Vec<u64>>,
    /// Numbers of the silent entries, by the order in which they fell silent, the oldest first.
    order: BTreeMap<u64, u64>,
    /// Larger than every number and every place in `order` given so far.
    next: u64,
    /// Sum of the entries' `count`.
    ranges: usize,
    kept: Option<DepartureLog>,
}

/// The clients with windows, and which of them are silent or were forgotten while they were silent.
#[derive(Default)]
pub(crate) struct Departed {
    table: RwLock<Table>,
    /// Number of files of silent clients. While all clients are connected, a server reads only this word.
    known: AtomicUsize,
}

impl Departed {
    /// Opens the log at `path` and restores what an earlier server knew, if the boot verifier is still the one of that
    /// server.
    pub fn open(path: &Path, boot_verifier: &BootVerifier) -> Departed {
        let (kept, events) = DepartureLog::open(path, (boot_verifier.believed(), boot_verifier.number()));
        let mut table = Table::default();
        events.into_iter().for_each(|event| table.learn(event));
        let all: Vec<u64> = table.windowed.keys().copied().collect();
        // First: entries that are dropped because there are too many must be logged as well, in case the log cannot be
        // rewritten.
        table.kept = Some(kept);
        all.into_iter().for_each(|number| table.falls_silent(number));
        table.write_anew();
        let known = AtomicUsize::new(table.silent.len());
        Departed { table: RwLock::new(table), known }
    }

    fn update(&self, change: impl FnOnce(&mut Table)) {
        let mut table = self.table.write();
        change(&mut table);
        self.known.store(table.silent.len(), Ordering::Release);
    }

    /// Records that a client has opened a file for windows.
    pub fn opened(&self, client: &ClientSessionId, handle: u64, identity: &Identity) {
        self.update(|table| table.opened(client, handle, identity));
    }

    /// Records that a client has closed a file, also if only an earlier server knows the handle. The client has no
    /// window on the file that is not applied.
    pub fn closed(&self, client: &ClientSessionId, handle: u64) {
        self.update(|table| table.closed(client, handle));
    }

    /// Records that a client's last connection is lost.
    pub fn leaves(&self, client: &ClientSessionId) {
        self.update(|table| table.of(client).into_iter().for_each(|number| table.falls_silent(number)));
    }

    /// Records that a client is connected again. What it sends is its own.
    pub fn returns(&self, client: &ClientSessionId) {
        self.update(|table| table.hear(client, DepartureEvent::Returned { client: *client }));
    }

    /// Forgets a client: nobody will ask for its ranges any more.
    pub fn forget(&self, client: &ClientSessionId) {
        self.update(|table| table.hear(client, DepartureEvent::Gone { client: *client }));
    }

    /// Records that bytes of a file were changed by the client with the mark `by`.
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

    /// Returns the ranges of a file that others have changed since a client fell silent. The successor of that client
    /// asks, with the mark `heir`. Returns `None` if nothing is known of the file.
    pub fn since(&self, identity: &Identity, client: &ClientSessionId, heir: u64) -> Option<Vec<ByteRange>> {
        let mut table = self.table.write();
        let number = *table.clients.get(client)?.get(identity)?;
        let one = table.windowed.get_mut(&number).filter(|one| one.silent.is_some())?;
        let ranges = one.ranges.iter().collect();
        if std::mem::replace(&mut one.heir, heir) != heir {
            table.keep(&DepartureEvent::Heir { number, mark: heir });
        }
        Some(ranges)
    }
}

impl Table {
    /// Returns the numbers of a client's entries.
    fn of(&self, client: &ClientSessionId) -> Vec<u64> {
        self.clients.get(client).map(|files| files.values().copied().collect()).unwrap_or_default()
    }

    fn with(&mut self, number: u64, change: impl FnMut(&mut Windowed)) {
        self.windowed.get_mut(&number).into_iter().for_each(change);
    }

    fn hear(&mut self, client: &ClientSessionId, event: DepartureEvent) {
        if self.clients.contains_key(client) {
            self.learn(event.clone());
            self.keep(&event);
        }
    }

    /// Adds an entry. A client has one such handle on a file, and opens it again under the same number.
    fn opened(&mut self, client: &ClientSessionId, handle: u64, identity: &Identity) {
        let known = self.clients.get(client).and_then(|files| files.get(identity)).copied();
        if known.and_then(|number| self.windowed.get(&number)).is_some_and(|one| one.handle == handle) {
            return;
        }
        let number = known.unwrap_or(self.next);
        let joined = DepartureEvent::Joined { number, client: *client, handle, identity: identity.clone() };
        self.learn(joined.clone());
        self.keep(&joined);
    }

    fn closed(&mut self, client: &ClientSessionId, handle: u64) {
        let is_it = |number: &u64| self.windowed.get(number).is_some_and(|one| one.handle == handle);
        if let Some(number) = self.of(client).into_iter().find(is_it) {
            self.learn(DepartureEvent::Left { number });
            self.keep(&DepartureEvent::Left { number });
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
            self.learn(DepartureEvent::Left { number });
            self.keep(&DepartureEvent::Left { number });
        }
    }

    fn changed(&mut self, number: u64, range: ByteRange, by: u64) {
        let others = |one: &&mut Windowed| one.silent.is_some() && ![mark_of(&one.client), one.heir].contains(&by);
        let Some(one) = self.windowed.get_mut(&number).filter(others) else { return };
        if !one.ranges.contains(range) {
            self.learn(DepartureEvent::Changed { number, range });
            self.keep(&DepartureEvent::Changed { number, range });
        }
    }

    /// Applies an event, either a new one or one that an earlier server logged.
    fn learn(&mut self, event: DepartureEvent) {
        match event {
            DepartureEvent::Joined { number, handle, .. } if self.windowed.contains_key(&number) => {
                self.with(number, |one| one.handle = handle);
            }
            DepartureEvent::Joined { number, client, handle, identity } => {
                self.next = self.next.max(number.saturating_add(1));
                self.clients.entry(client).or_default().insert(identity.clone(), number);
                self.windowed.insert(number, Windowed::new(client, handle, identity));
            }
            DepartureEvent::Left { number } => self.remove(number),
            DepartureEvent::Changed { number, range } => {
                let Some(one) = self.windowed.get_mut(&number) else { return };
                let others = self.ranges - one.count;
                one.add(range, DEPARTED_RANGES_MAX.saturating_sub(others).min(ANSWERED_MAX));
                self.ranges = others + one.count;
            }
            DepartureEvent::Heir { number, mark } => self.with(number, |one| one.heir = mark),
            DepartureEvent::Returned { client } => self.of(&client).into_iter().for_each(|number| self.speaks(number)),
            DepartureEvent::Gone { client } => self.of(&client).into_iter().for_each(|number| self.remove(number)),
        }
    }

    /// Ends the silence of an entry and drops its ranges.
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

    /// Logs an event that is already applied.
    fn keep(&mut self, event: &DepartureEvent) {
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
mod tests;
