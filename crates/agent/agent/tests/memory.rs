//! An agent over a data store in memory: files mean what they mean over a burst buffer.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use agent::{Agent, Caller, Mode, NewAttributes, NewMode, PolicyTable, WriteHow};
use config::Policy;
use data_store::{NewTime, Residency, StoreCommand};
use global_store::posix::{PosixStore, StoreOptions};
use models::MemoryStore;
use posix_namespace::PosixNamespace;
use testkit::TempTree;
use types::Timestamp;

fn how() -> Mode {
    Mode { read: true, write: true, ..Mode::default() }
}

fn agent(tree: &TempTree) -> Agent {
    tree.dir("data");
    let root: OwnedFd = File::open(tree.path("data")).unwrap().into();
    let store = PosixStore::new(root, StoreOptions::default()).unwrap();
    let policies = PolicyTable::load(Policy::default(), tree.path("policies.toml")).unwrap();
    Agent::new(Arc::new(MemoryStore::default()), Arc::new(PosixNamespace::new(store).unwrap()), policies).unwrap()
}

#[test]
fn files_are_written_read_cut_and_drained() {
    let tree = TempTree::new();
    let agent = agent(&tree);
    let (caller, new, name) = (Caller::own(), NewMode { mode: 0o644, umask: 0 }, OsStr::new("file"));
    let (found, open) = agent.create(&caller, agent.root(), Some(name), new, true, how()).unwrap();
    let end = WriteHow { append: true, ..WriteHow::default() };
    assert_eq!(agent.write(&open, b"hello", 0, WriteHow::default()).unwrap(), 5);
    assert_eq!(agent.write(&open, b" world", 0, end).unwrap(), 6);
    let mut read = [0; 20];
    assert_eq!(open.read(&mut read, 6).unwrap(), 5);
    assert_eq!((&read[..5], agent.attributes(&found.node).unwrap().size), (&b"world"[..], 11));
    assert_eq!(std::fs::read(tree.path("data/file")).unwrap(), b"", "nothing is staged out yet");
    let time = Timestamp { seconds: 1000, nanos: 5 };
    let cut = NewAttributes { size: Some(4), ..NewAttributes::default() };
    let dated = NewAttributes { mtime: Some(NewTime::At(time)), ..NewAttributes::default() };
    for new in [cut, dated] {
        agent.set_attributes(&caller, &found.node, None, &new, &|| false).unwrap();
    }
    drop(open);
    assert!(agent.data().drain(None, &mut |_| {}, &|| false).is_empty());
    assert_eq!(std::fs::read(tree.path("data/file")).unwrap(), b"hell");
    let attributes = agent.attributes(&found.node).unwrap();
    assert_eq!((attributes.size, attributes.mtime), (4, time));
    let identity = agent.identity_of(&found.node).unwrap();
    assert_eq!(agent.data().state(&identity).residency, Residency::Clean);
    agent.data().command(StoreCommand::Evict(&identity)).unwrap();
    assert_eq!(agent.data().state(&identity).residency, Residency::Absent);
}

#[test]
fn data_of_a_removed_file_stays_until_the_last_close_and_is_never_staged_out() {
    let tree = TempTree::new();
    let agent = agent(&tree);
    let (caller, new, name) = (Caller::own(), NewMode { mode: 0o644, umask: 0 }, OsStr::new("file"));
    let (found, open) = agent.create(&caller, agent.root(), Some(name), new, true, how()).unwrap();
    agent.write(&open, b"data", 0, WriteHow::default()).unwrap();
    let identity = agent.identity_of(&found.node).unwrap();
    agent.unlink(&caller, agent.root(), name).unwrap();
    let mut read = [0; 4];
    assert_eq!((open.read(&mut read, 0).unwrap(), &read), (4, b"data"));
    drop(open);
    assert_eq!(agent.data().state(&identity).residency, Residency::Absent);
}
