//! Tests of the memory store's own functions for tests.

use std::sync::Arc;

use global_store::{Access, GlobalStore};
use models::global::{Fault, MemoryStore, StoreOperation};
use types::{ByteRange, Timestamp};

#[test]
fn the_nth_matching_operation_fails_and_may_leave_garbage() {
    let store = MemoryStore::new();
    store.put("a", &[1; 100]);
    let file = store.anchor("a").unwrap().open(Access::Write).unwrap();
    let matching = |operation: &StoreOperation| matches!(operation, StoreOperation::Write(_));
    store.fail(Fault { after: 1, times: 1, errno: libc::ENOSPC, torn: true, matching, identity: None });
    file.write_at(&[2; 50], 0).unwrap();
    file.read_at(&mut [0; 8], 0).unwrap();
    let error = file.write_at(&[3; 50], 50).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENOSPC));
    file.write_at(&[4; 1], 99).unwrap();
    let bytes = store.read("a").unwrap();
    assert_eq!(bytes, [&[2; 50][..], &[0xee; 25], &[1; 24], &[4]].concat());
}

#[test]
fn a_crash_keeps_what_was_synced() {
    let store = MemoryStore::new();
    let anchor = {
        store.put("a", b"old");
        store.anchor("a").unwrap()
    };
    let file = anchor.open(Access::Write).unwrap();
    file.write_at(b"new", 0).unwrap();
    file.sync().unwrap();
    file.write_at(b"lost", 0).unwrap();
    store.crash();
    assert_eq!(store.read("a").unwrap(), b"new");
    file.write_at(b"kept", 0).unwrap();
    store.sync().unwrap();
    store.crash();
    assert_eq!(store.read("a").unwrap(), b"kept");
}

#[test]
fn the_journal_tells_changes_and_syncs_in_order() {
    let store = MemoryStore::new();
    store.put("a", b"old");
    let anchor = store.anchor("a").unwrap();
    let file = anchor.open(Access::Write).unwrap();
    file.write_at(b"new", 0).unwrap();
    file.read_at(&mut [0; 8], 0).unwrap();
    file.set_len(2).unwrap();
    file.sync().unwrap();
    let told: Vec<_> = store.journal().into_iter().map(|event| event.operation).collect();
    assert_eq!(told, [StoreOperation::Write(ByteRange::new(0, 3)), StoreOperation::SetLen(2), StoreOperation::Sync]);
    assert_eq!(store.operations(), 5);
}

#[test]
fn a_clock_that_stands_still_makes_changes_look_alike() {
    let store = MemoryStore::new();
    store.set_clock(Timestamp { seconds: 77, nanos: 0 }, 0);
    store.put("a", b"old");
    let before = store.attributes("a").unwrap();
    store.write("a", b"new", 0).unwrap();
    assert_eq!(store.attributes("a").unwrap(), before);
    store.set_clock(Timestamp { seconds: 77, nanos: 999_999_999 }, 1);
    store.write("a", b"few", 0).unwrap();
    assert_eq!(store.attributes("a").unwrap().fingerprint.mtime, Timestamp { seconds: 78, nanos: 0 });
}

#[test]
fn a_hook_may_change_the_store_between_two_operations() {
    let store = MemoryStore::new();
    store.put("a", b"old");
    let outsider = store.clone();
    store.set_hook(Some(Arc::new(move |operation, _| {
        if matches!(operation, StoreOperation::Read(_)) {
            outsider.write("a", b"theirs", 0).unwrap();
        }
    })));
    let mut bytes = [0; 6];
    store.anchor("a").unwrap().open(Access::Read).unwrap().read_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"theirs");
}
