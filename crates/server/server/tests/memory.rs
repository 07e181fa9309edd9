//! The service over a data store in memory: a server serves whatever stands behind the seam.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use config::{Policy, PolicySet};
use global_store::posix::{PosixStore, StoreOptions};
use models::MemoryDataStore;
use server::{BootVerifier, Files};
use testkit::TempTree;
use transport::Service;
use wire::{Message, Path, Text, job, open};

#[test]
fn requests_are_served_by_any_data_store() {
    let tree = TempTree::new();
    tree.dir("data");
    let root: OwnedFd = File::open(tree.path("data")).unwrap().into();
    let store = PosixStore::new(root, StoreOptions::default()).unwrap();
    let boot = BootVerifier::begin(tree.root());
    let data = Arc::new(MemoryDataStore::default());
    let files = Files::new(data, store, "id", &tree.path("departed"), &boot).unwrap();
    let session = files.begin(&[0; 16], "id", "test").unwrap();
    let ask = |message: Message, data: &[u8]| {
        let mut out = Vec::new();
        (files.handle(&session, message, data, &mut out), out)
    };
    let created: OwnedFd = File::create(tree.path("data/file")).unwrap().into();
    let identity = PosixStore::identity_of(created.as_fd()).unwrap();
    let hint = Path::new(b"file").unwrap();
    let policy = Text::cut(PolicySet::of(&Policy::default()).to_toml());
    let flags = open::READ | open::WRITE;
    let opened = ask(Message::Open { handle: 1, flags, identity: identity.clone(), hint: hint.clone(), policy }, &[]);
    assert!(matches!(opened.0, Message::Opened { .. }), "{opened:?}");
    assert_eq!(ask(Message::Write { handle: 1, offset: 0 }, b"four").0, Message::Written { offset: 0 });
    let again = Message::Append { handle: 1, end: 4, again: false };
    assert_eq!(ask(again, b"more").0, Message::Written { offset: 4 });
    assert_eq!(ask(Message::Read { handle: 1, offset: 2, len: 100 }, &[]), (Message::Bytes {}, b"urmore".to_vec()));
    assert_eq!(ask(Message::End { handle: 1 }, &[]).0, Message::Position { offset: 8 });
    let state = ask(Message::State { identity: identity.clone() }, &[]).0;
    assert!(matches!(state, Message::Resides { dirty: true, .. }), "{state:?}");
    assert_eq!(ask(Message::Close { handle: 1 }, &[]).0, Message::Done {});
    let begin = Message::Begin { job: 1, verb: job::STAGE_OUT, identity, hint, policy: Text::default() };
    assert_eq!(ask(begin, &[]).0, Message::Done {});
    assert_eq!(ask(Message::Poll { job: 1 }, &[]).0, Message::Done {});
    assert_eq!(std::fs::read(tree.path("data/file")).unwrap(), b"fourmore");
}
