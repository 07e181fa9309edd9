//! What the server keeps for one node.

use std::collections::BTreeMap;
use std::sync::Arc;

use concurrency::{Mutex, RwLock};
use fuse::Remote;
use fuse_protocol::{Envelope, Given};

use crate::events::EventQueue;
use crate::recovery_records::{LockHold, Locker, Name, RecoveryRecords};

struct Attached {
    remote: Arc<Remote>,
    /// Its kernel may ask: what it had of an earlier memory has been claimed.
    open: bool,
    init: Vec<u8>,
    answer: Vec<u8>,
}

/// One node: its kernel, once it is attached, and what that was given and may not have got.
pub(crate) struct RelayNode {
    /// What it calls itself, and its number, which no other has.
    pub locker: Locker,
    /// For people.
    pub name: String,
    recovery_records: Arc<RecoveryRecords>,
    pub events: Arc<EventQueue>,
    attached: RwLock<Option<Attached>>,
    given: Mutex<BTreeMap<u64, Given>>,
}

impl RelayNode {
    /// `start`: above all numbers that an earlier memory of a node has given to events.
    pub fn new(
        client: u64,
        (own, name): (&Name, &str),
        start: u64,
        recovery_records: Arc<RecoveryRecords>,
    ) -> RelayNode {
        let (attached, given) = (RwLock::default(), Mutex::default());
        let events = Arc::new(EventQueue::after(start));
        let locker = Locker { name: *own, client };
        RelayNode { locker, name: name.into(), recovery_records, events, attached, given }
    }

    /// Its kernel, if it is attached and may ask.
    pub fn remote(&self) -> Option<Arc<Remote>> {
        self.attached.read().as_ref().filter(|attached| attached.open).map(|attached| Arc::clone(&attached.remote))
    }

    /// The same, while it may not ask yet.
    pub fn claiming(&self) -> Option<Arc<Remote>> {
        self.attached.read().as_ref().filter(|attached| !attached.open).map(|attached| Arc::clone(&attached.remote))
    }

    /// From now on it may ask; false: it is not attached.
    pub fn open(&self) -> bool {
        self.attached.write().as_mut().map(|attached| attached.open = true).is_some()
    }

    /// Attaches its kernel, which may ask at once if it is `open`; one that is attached is not attached again. `None`: it was with
    /// another offer.
    pub fn attach<E>(
        &self,
        init: &[u8],
        open: bool,
        make: impl FnOnce(Arc<EventQueue>) -> Result<(Remote, Vec<u8>), E>,
    ) -> Result<Option<Vec<u8>>, E> {
        let mut attached = self.attached.write();
        if let Some(attached) = &*attached {
            return Ok((attached.init == init).then(|| attached.answer.clone()));
        }
        let (remote, answer) = make(Arc::clone(&self.events))?;
        *attached = Some(Attached { remote: Arc::new(remote), open, init: init.to_vec(), answer: answer.clone() });
        Ok(Some(answer))
    }

    /// Its kernel is gone.
    pub fn detach(&self) {
        let gone = self.attached.write().take();
        self.recovery_records.gone(&self.locker, gone.map(|attached| attached.remote as LockHold));
    }

    /// Notes what the answer to a request gave. `oldest`: the node has done with requests below it.
    pub fn note(&self, envelope: &Envelope, answer: &[u8], (number, oldest): (u64, u64)) {
        let given = Given::by(envelope, answer);
        let mut all = self.given.lock();
        if all.first_key_value().is_some_and(|(first, _)| *first < oldest) {
            let kept = all.split_off(&oldest);
            *all = kept;
        }
        if let Some(given) = given {
            all.insert(number, given);
        }
    }

    /// The node has given up a request: what its answer gave is taken back.
    pub fn withdraw(&self, number: u64) {
        let given = self.given.lock().remove(&number);
        if let (Some(given), Some(remote)) = (given, self.remote()) {
            remote.take_back(&given);
        }
    }
}

impl Drop for RelayNode {
    fn drop(&mut self) {
        self.detach();
    }
}
