//! An agent over data in memory, with names in a directory or in memory as well: files mean what they mean over a burst
//! buffer.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use agent::{Agent, Caller, Mode, NewAttributes, NewMode, PolicyTable, WriteHow};
use config::Policy;
use data_store::{NewTime, Residency, StoreCommand};
use global_store::posix::{PosixStore, StoreOptions};
use models::{MemoryDataStore, MemoryNamespace};
use namespace::Namespace;
use posix_namespace::PosixNamespace;
use testkit::TempTree;
use types::Timestamp;

fn how() -> Mode {
    Mode { read: true, write: true, ..Mode::default() }
}

/// Returns the bytes of a file in the global store, by its name.
type Bytes = dyn Fn(&str) -> Vec<u8>;

/// An agent, and a look at a file of its global store.
struct World {
    agent: Agent,
    bytes: Box<Bytes>,
}

fn in_both(story: impl Fn(&World)) {
    let tree = TempTree::new();
    let agent = |names: Arc<dyn Namespace>| {
        let policies = PolicyTable::load(Policy::default(), tree.path("policies.toml")).unwrap();
        Agent::new(Arc::new(MemoryDataStore::default()), names, policies).unwrap()
    };
    let data = tree.dir("data");
    let root: OwnedFd = File::open(&data).unwrap().into();
    let store = PosixStore::new(root, StoreOptions::default()).unwrap();
    let below = agent(Arc::new(PosixNamespace::new(store).unwrap()));
    story(&World { agent: below, bytes: Box::new(move |name| std::fs::read(data.join(name)).unwrap()) });
    let Caller { uid, gid, .. } = Caller::own();
    let names = Arc::new(MemoryNamespace::new(uid, gid));
    let memory = agent(Arc::clone(&names) as Arc<dyn Namespace>);
    story(&World { agent: memory, bytes: Box::new(move |name| names.bytes(name.as_ref()).unwrap()) });
}

#[test]
fn files_are_written_read_cut_and_drained() {
    in_both(|World { agent, bytes }| {
        let (caller, new, name) = (Caller::own(), NewMode { mode: 0o644, umask: 0 }, OsStr::new("file"));
        let (found, open) = agent.create(&caller, agent.root(), Some(name), new, true, how()).unwrap();
        let end = WriteHow { append: true, ..WriteHow::default() };
        assert_eq!(agent.write(&open, b"hello", 0, WriteHow::default()).unwrap(), 5);
        assert_eq!(agent.write(&open, b" world", 0, end).unwrap(), 6);
        let mut read = [0; 20];
        assert_eq!(open.read(&mut read, 6).unwrap(), 5);
        assert_eq!((&read[..5], agent.attributes(&found.node).unwrap().size), (&b"world"[..], 11));
        assert_eq!(bytes("file"), b"", "nothing is staged out yet");
        let time = Timestamp { seconds: 1000, nanos: 5 };
        let cut = NewAttributes { size: Some(4), ..NewAttributes::default() };
        let dated = NewAttributes { mtime: Some(NewTime::At(time)), ..NewAttributes::default() };
        for new in [cut, dated] {
            agent.set_attributes(&caller, &found.node, None, &new, &|| false).unwrap();
        }
        drop(open);
        assert!(agent.data().drain(None, &mut |_| {}, &|| false).is_empty());
        assert_eq!(bytes("file"), b"hell");
        let attributes = agent.attributes(&found.node).unwrap();
        assert_eq!((attributes.size, attributes.mtime), (4, time));
        let identity = agent.identity_of(&found.node).unwrap();
        assert_eq!(agent.data().state(&identity).residency, Residency::Clean);
        agent.data().command(StoreCommand::Evict(&identity)).unwrap();
        assert_eq!(agent.data().state(&identity).residency, Residency::Absent);
    });
}

#[test]
fn data_of_a_removed_file_stays_until_the_last_close_and_is_never_staged_out() {
    in_both(|World { agent, .. }| {
        let (caller, new, name) = (Caller::own(), NewMode { mode: 0o644, umask: 0 }, OsStr::new("file"));
        let (found, open) = agent.create(&caller, agent.root(), Some(name), new, true, how()).unwrap();
        agent.write(&open, b"data", 0, WriteHow::default()).unwrap();
        let identity = agent.identity_of(&found.node).unwrap();
        agent.unlink(&caller, agent.root(), name).unwrap();
        let mut read = [0; 4];
        assert_eq!((open.read(&mut read, 0).unwrap(), &read), (4, b"data"));
        drop(open);
        assert_eq!(agent.data().state(&identity).residency, Residency::Absent);
    });
}
