//! Waits that a signal ends.

mod support;

use std::cell::Cell;

use file_cache::Residency;
use global_store::memory::{Fault, Operation};
use support::{MIB, World};

/// Says "interrupted" when it is asked for the third time.
fn third() -> impl Fn() -> bool {
    let asked = Cell::new(0);
    move || {
        asked.set(asked.get() + 1);
        asked.get() > 2
    }
}

#[test]
fn a_signal_ends_the_wait_for_another_nodes_mark() {
    let world = World::new();
    world.store.set_shared(true);
    world.store.put("f", b"data");
    world.store.put_mark("f", Some(b"another 7")).unwrap();
    let refused = world.cache.open_unless(world.anchor("f"), world.how(true), &third()).err().unwrap();
    assert_eq!(refused.raw_os_error(), Some(libc::EINTR));
    let cut = world.cache.set_len(&world.anchor("f"), 0, &world.policy, &third());
    assert_eq!(cut.err().unwrap().raw_os_error(), Some(libc::EINTR));
    world.store.put_mark("f", None).unwrap();
    world.open("f", true).write_at(b"ours", 0, false).unwrap();
}

/// A profiler's signals come all the time; the copy ends by itself.
#[test]
fn a_signal_does_not_end_the_wait_for_a_copy() {
    let world = World::new();
    world.store.put("f", &vec![5; 8 * MIB]);
    let handle = world.cache.open_unless(world.anchor("f"), world.how(true), &|| true).unwrap();
    assert!(handle.backing().is_some());
    assert_eq!(support::read(&handle, 8 * MIB), vec![5; 8 * MIB]);
}

#[test]
fn an_open_for_writing_whose_copy_fails_leaves_nothing_behind() {
    let world = World::new();
    world.store.put("f", &vec![5; 8 * MIB]);
    let matching = |operation: &Operation| matches!(operation, Operation::Read(_));
    world.store.fail(Fault { after: 2, matching, ..Fault::default() });
    let refused = world.cache.open_file(world.anchor("f"), world.how(true)).err().unwrap();
    assert_eq!(refused.raw_os_error(), Some(libc::EIO));
    assert_eq!((world.state("f"), world.replicas()), (Residency::Absent, 0));
    assert_eq!(support::read(&world.open("f", true), 8 * MIB), vec![5; 8 * MIB]);
}
