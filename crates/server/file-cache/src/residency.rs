//! The residency of a file: where the data of one version is, and whether its replica may differ from the global copy.
//!
//! [`Body`] has one value for each legal state. Only the functions named here take a file from one to another, with its
//! gate held. Each is a method of [`Live`].
//!
//! ```text
//!               go_through                  begin_fetch
//!  Through <--------------------- Absent -----------------> Fetching     abandon_fetch: back to Absent,
//!     |     ----------------------> | |                        |         or to Through if it is open
//!     |         end_through         | |                        |
//!     |                             | +------ staged_in -----+ | staged_in (a removed file: to Unrecorded)
//!     | begin_fresh     begin_fresh |                        v v
//!     +------------> Fresh <--------+                       Clean
//!                    |   |                                   | ^
//!       withdraw:    |   | fill_fresh               recorded  | | recorded
//!       back to <----+   |                                   v |
//!       where it was     +-------------------------------> Unclean
//!
//!  Clean, Unclean -- disowned --> Unrecorded        whole states -- lost --> Lost        all -- dropped --> Absent
//! ```
//!
//! `recorded` follows each commit of a record. Within `Unclean` the record says how far the stage-out is:
//!
//! ```text
//!            record_intent           announce, announce_all (also from Failed)
//!  (Clean) ------------------> Dirty ----------------------> Draining      record_conflict: from each to Conflict
//!     ^                         ^ ^                            |  |        count_failure: from both to Failed
//!     |                         | +---- concluded, changed ----+  |        resolve_gated: from all to Dirty
//!     |                         +------ record_intent ------------+
//!     +--------------------------- concluded, quiet --------------+
//! ```
//!
//! `load` and `adopt` begin with what the catalogue says: `Clean`, `Unclean`, or `Lost` if the replica is missing.

mod below;
mod change_time;
mod copies;
mod fetch;
mod file;
mod invariants;
mod medium;
mod name;
mod told;
mod users;

use std::sync::Arc;
use std::time::Duration;

use catalogue::{Record, State};
use global_store::{Access, StoreFile};
use types::Version;

use data_store::Residency;

pub(crate) use below::{Below, earlier};
pub(crate) use change_time::VisibleChangeTime;
pub(crate) use copies::{Compared, Copies, Untouched};
pub(crate) use fetch::Fetch;
use file::Tenure;
pub(crate) use file::{Descriptors, File, Gate, Live, Watched};
pub(crate) use medium::{Medium, Synced};
pub(crate) use name::Removal;
pub(crate) use told::Told;
pub(crate) use users::Users;

/// Where the data of a version is, in each legal state.
#[derive(Default)]
pub(crate) enum Body {
    /// Only in the global store.
    #[default]
    Absent,
    /// Only in the global store, which open files read and write directly.
    Through,
    /// Being staged in. There is no record.
    Fetching(Box<Fetch>),
    /// An empty replica of a new or truncated file, whose open is not answered yet. Never seen after the gate is free.
    Fresh {
        version: Version,
        /// The record, once it is committed.
        intent: Option<Record>,
        /// Whether open files read and write the global copy until then.
        through: bool,
    },
    /// A complete replica, equal to the global copy.
    Clean(Record),
    /// A complete replica that holds, or may hold, bytes that the global copy lacks.
    Unclean(Record),
    /// A complete replica without a record in memory: the file was removed, or another version has replaced it.
    Unrecorded(Version),
    /// The replica is missing, although only it had the bytes.
    Lost { version: Version, record: Option<Record> },
}

impl Body {
    /// Returns the body of a file of which the catalogue has a record. `there`: its replica exists.
    pub(crate) fn of(record: Record, there: bool) -> Body {
        match record.state {
            _ if !there => Body::Lost { version: record.version, record: Some(record) },
            State::Clean => Body::Clean(record),
            State::Dirty | State::Draining | State::Conflict | State::Failed => Body::Unclean(record),
        }
    }
}

/// Questions about the residency.
impl Live {
    pub(crate) fn body(&self) -> &Body {
        &self.body
    }

    /// Returns the record as last committed.
    pub(crate) fn record(&self) -> Option<&Record> {
        match &self.body {
            Body::Clean(record) | Body::Unclean(record) => Some(record),
            Body::Fresh { intent: record, .. } | Body::Lost { record, .. } => record.as_ref(),
            Body::Absent | Body::Through | Body::Fetching(_) | Body::Unrecorded(_) => None,
        }
    }

    /// Returns the record, for changes that the next commit of it takes along. The state is not changed this way.
    pub(crate) fn record_mut(&mut self) -> Option<&mut Record> {
        match &mut self.body {
            Body::Clean(record) | Body::Unclean(record) => Some(record),
            Body::Fresh { intent: record, .. } | Body::Lost { record, .. } => record.as_mut(),
            Body::Absent | Body::Through | Body::Fetching(_) | Body::Unrecorded(_) => None,
        }
    }

    pub(crate) fn version(&self) -> Option<Version> {
        match &self.body {
            Body::Absent | Body::Through => None,
            Body::Fetching(fetch) => Some(fetch.version),
            Body::Clean(record) | Body::Unclean(record) => Some(record.version),
            Body::Fresh { version, .. } | Body::Unrecorded(version) | Body::Lost { version, .. } => Some(*version),
        }
    }

    pub(crate) fn fetch(&self) -> Option<&Fetch> {
        if let Body::Fetching(fetch) = &self.body { Some(fetch) } else { None }
    }

    pub(crate) fn fetch_mut(&mut self) -> Option<&mut Fetch> {
        if let Body::Fetching(fetch) = &mut self.body { Some(fetch) } else { None }
    }

    pub(crate) fn is_whole(&self) -> bool {
        matches!(self.body, Body::Clean(_) | Body::Unclean(_) | Body::Unrecorded(_))
    }

    /// Returns whether open files read and write the global copy directly.
    pub(crate) fn is_through(&self) -> bool {
        matches!(self.body, Body::Through | Body::Fresh { through: true, .. })
    }

    /// Returns whether the record says that the replica holds, or may hold, bytes that the global copy lacks.
    pub(crate) fn is_unclean(&self) -> bool {
        self.record().is_some_and(|record| record.state != State::Clean)
    }

    /// Returns whether the replica, not the global copy, is authoritative for the file.
    pub(crate) fn is_ahead(&self) -> bool {
        self.is_whole() && (self.is_unclean() || self.is_unlinked())
    }

    /// Returns whether the replica is missing although only it had the bytes.
    pub(crate) fn is_lost(&self) -> bool {
        matches!(self.body, Body::Lost { .. })
    }

    pub(crate) fn is_loaded(&self) -> bool {
        self.tenure != Tenure::Unread
    }

    /// Returns whether another version has taken this one's place, or will.
    pub(crate) fn is_retired(&self) -> bool {
        self.tenure == Tenure::Retired
    }

    pub(crate) fn residency(&self) -> Residency {
        let Some(record) = self.record() else {
            return if self.fetch().is_some() { Residency::Fetching } else { Residency::Absent };
        };
        match record.state {
            State::Clean => Residency::Clean,
            State::Dirty if self.is_written() => Residency::Dirty,
            State::Dirty => Residency::Queued,
            State::Draining => Residency::Draining,
            State::Conflict if record.damaged => Residency::Failed,
            State::Conflict => Residency::Conflict,
            State::Failed => Residency::Failed,
        }
    }
}

/// The transitions. Gate held.
impl Live {
    /// Begins with what the catalogue knows.
    pub(crate) fn found(&mut self, body: Body) {
        (self.tenure, self.body) = (Tenure::Current, body);
        self.shown = self.record().and_then(VisibleChangeTime::of);
    }

    /// Lets another version take this one's place, whatever becomes of the replica.
    pub(crate) fn retire(&mut self) {
        self.tenure = Tenure::Retired;
    }

    /// Lets open files read and write the global copy.
    pub(crate) fn go_through(&mut self) {
        debug_assert!(self.version().is_none(), "a file with a replica goes through");
        self.body = Body::Through;
    }

    /// Ends that after the last close.
    pub(crate) fn end_through(&mut self) {
        if matches!(self.body, Body::Through) {
            self.body = Body::Absent;
            self.fds = Descriptors::default();
        }
    }

    pub(crate) fn begin_fetch(&mut self, fetch: Fetch) {
        debug_assert!(matches!(self.body, Body::Absent), "a file that is somewhere already is staged in");
        self.body = Body::Fetching(Box::new(fetch));
    }

    /// Ends a stage-in without a replica: open files continue in the global store. Returns the version given up.
    pub(crate) fn abandon_fetch(&mut self) -> Option<Version> {
        let fetch = self.fetch()?;
        let (version, source): (_, Arc<dyn StoreFile>) = (fetch.version, Arc::clone(&fetch.source));
        self.body = Body::Absent;
        if self.is_open() {
            self.fds.global = Some((Access::Read, source));
            self.body = Body::Through;
        }
        (self.fds.read, self.fds.noted) = (None, None);
        Some(version)
    }

    /// Ends a stage-in with a complete replica. `record`: as committed. `None`: the file was removed meanwhile.
    /// `looked`: when the global copy was found unchanged.
    pub(crate) fn staged_in(&mut self, version: Version, record: Option<Record>, looked: Option<Duration>) {
        debug_assert!(matches!(self.body, Body::Absent | Body::Fetching(_)), "a file with a replica was staged in");
        self.body = record.map_or(Body::Unrecorded(version), Body::Clean);
        (self.below.checked, self.below.looked) = (looked, looked);
        self.below.believe();
        (self.synced.content, self.compared) = (false, Compared::Yes);
    }

    /// Begins with an empty replica, of which no record says anything yet.
    pub(crate) fn begin_fresh(&mut self, version: Version) {
        debug_assert!(self.version().is_none(), "a file with a replica gets a fresh one");
        self.body = Body::Fresh { version, intent: None, through: self.is_through() };
    }

    /// Takes the fresh replica for the file's data: its record is committed.
    pub(crate) fn fill_fresh(&mut self) {
        if let Body::Fresh { intent: Some(record), .. } = std::mem::take(&mut self.body) {
            self.body = Body::Unclean(record);
        }
    }

    /// Forgets the fresh replica, whose open failed.
    pub(crate) fn withdraw(&mut self) {
        let through = self.is_through();
        self.body = if through { Body::Through } else { Body::Absent };
    }

    /// Follows the commit of a record.
    pub(crate) fn recorded(&mut self, record: Record) {
        match &mut self.body {
            Body::Fresh { intent: known, .. } | Body::Lost { record: known, .. } => *known = Some(record),
            body => {
                debug_assert!(matches!(body, Body::Clean(_) | Body::Unclean(_)), "a record without a replica");
                *body = Body::of(record, true);
            }
        }
    }

    /// Follows the removal of the record: the file was removed, or another version replaces this one.
    pub(crate) fn disowned(&mut self) {
        self.compared.end();
        match &mut self.body {
            Body::Lost { record, .. } => *record = None,
            Body::Clean(record) | Body::Unclean(record) => self.body = Body::Unrecorded(record.version),
            Body::Absent | Body::Through | Body::Fetching(_) | Body::Fresh { .. } | Body::Unrecorded(_) => {}
        }
    }

    /// Notes that the replica is missing.
    pub(crate) fn lost(&mut self) {
        if let Some(version) = self.version() {
            self.body = Body::Lost { version, record: self.record().cloned() };
        }
    }

    /// Forgets the replica, which is about to be removed, and all that is only known of it.
    pub(crate) fn dropped(&mut self) {
        self.body = Body::Absent;
        self.fds = Descriptors::default();
        (self.medium, self.compared) = (Medium::default(), Compared::No);
        self.synced.dropped();
    }
}
