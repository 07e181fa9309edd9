//! The server's state of one node.

use std::collections::BTreeMap;
use std::sync::Arc;

use concurrency::{Mutex, RwLock};
use fuse::Remote;
use fuse_protocol::{Envelope, Given};

use crate::events::EventQueue;
use crate::recovery_records::{LockHold, Locker, Name, RecoveryRecords};

struct Attached {
    remote: Arc<Remote>,
    /// Whether the kernel may send requests: everything that it had at an earlier server has been claimed.
    open: bool,
    init: Vec<u8>,
    answer: Vec<u8>,
}

/// State of one node: its kernel, once attached, and the answers that the kernel may not have received.
pub(crate) struct RelayNode {
    /// Name of the node and its unique client number.
    pub locker: Locker,
    /// Name of the node, for messages.
    pub name: String,
    recovery_records: Arc<RecoveryRecords>,
    pub events: Arc<EventQueue>,
    attached: RwLock<Option<Attached>>,
    given: Mutex<BTreeMap<u64, Given>>,
}

impl RelayNode {
    /// Creates the state of a node. `start`: above all event numbers that an earlier session instance of the node can
    /// have used.
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

    /// Returns the kernel, if it is attached and may send requests.
    pub fn remote(&self) -> Option<Arc<Remote>> {
        self.attached.read().as_ref().filter(|attached| attached.open).map(|attached| Arc::clone(&attached.remote))
    }

    /// Returns the kernel, if it is attached and may not send requests yet.
    pub fn claiming(&self) -> Option<Arc<Remote>> {
        self.attached.read().as_ref().filter(|attached| !attached.open).map(|attached| Arc::clone(&attached.remote))
    }

    /// Lets the attached kernel send requests. Returns false if none is attached.
    pub fn open(&self) -> bool {
        self.attached.write().as_mut().map(|attached| attached.open = true).is_some()
    }

    /// Attaches the kernel and returns the answer to its INIT. If `open`, the kernel may send requests at once. An
    /// attached kernel is not attached again: its answer is returned, or `None` if `init` differs from before.
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

    /// Detaches the kernel, which is gone.
    pub fn detach(&self) {
        let gone = self.attached.write().take();
        self.recovery_records.gone(&self.locker, gone.map(|attached| attached.remote as LockHold));
    }

    /// Notes the lookups and handles in the answer to a request. `oldest`: the node is done with requests below this
    /// number.
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

    /// Withdraws a request that the node has given up: the lookups and handles of its answer are taken back.
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
