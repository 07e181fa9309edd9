//! Calls on an open file that are given up, or of which the store takes only a part.

use global_store::calls::{RequestId, Store};
use models::global::{Fault, StoreOperation};
use testkit::{PATIENCE, wait_until};
use types::HasErrno;

use super::*;
use crate::world::World;

/// Runs `call` and gives it up while it waits for the lock of `guard`. Returns its errno.
fn given_up<G>(guard: G, call: impl FnOnce() -> io::Result<()> + Send) -> Option<i32> {
    let request = RequestId { asker: Store::mint(), number: 2 };
    std::thread::scope(|scope| {
        let caller = scope.spawn(move || {
            request.begin();
            call().map_err(|error| error.errno().unwrap())
        });
        wait_until("it is begun", PATIENCE, || request.working().is_some());
        request.give_up();
        drop(guard);
        caller.join().unwrap().err()
    })
}

#[test] // S51
fn what_was_given_up_while_it_waited_for_its_file_does_not_happen() {
    let world = World::new();
    world.store.put("f", b"data");
    let handle = world.open(true, false).unwrap();
    let io = || handle.file.io.write();
    let refused = [
        given_up(io(), || handle.write(b"DATA", 0).map(|_| ())),
        given_up(io(), || handle.set_len(1)),
        given_up(io(), || handle.fallocate(0, 0, 100)),
        given_up(handle.file.append.lock(), || handle.append(b"more").map(|_| ())),
        given_up(handle.file.append.lock(), || handle.append_again(b"more", 4).map(|_| ())),
    ];
    assert_eq!(refused, [Some(libc::EIO); 5]);
    let mut found = [0; 100];
    assert_eq!(handle.read_at(&mut found, 0).unwrap(), 4);
    assert_eq!(&found[..4], b"data");
    assert_eq!(given_up(io(), || handle.write_acknowledged(b"kept", 0)), None, "what was acknowledged is owed");
    handle.read_at(&mut found, 0).unwrap();
    assert_eq!(&found[..4], b"kept");
}

#[test] // S11
fn an_append_that_fills_the_global_store_says_how_much_of_it_stands_there() {
    let world = World::new();
    world.store.put("f", b"data");
    let policy = Arc::new(Policy { cache: config::Cache::Through, ..Policy::default() });
    let how = OpenHow { read: true, write: true, policy, ..OpenHow::default() };
    let handle = world.cache.inner.open_file(&world.store.anchor("f").unwrap(), how, &|| false).unwrap();
    let matching = |operation: &StoreOperation| matches!(operation, StoreOperation::Write(_));
    world.store.fail(Fault { matching, errno: libc::ENOSPC, torn: true, ..Fault::default() });
    let result = handle.append(&[7; 100]).unwrap();
    assert_eq!((result.offset, result.written), (4, 50));
    assert_eq!(world.store.attributes("f").unwrap().fingerprint.size, 54);
    world.store.fail(Fault { matching, errno: libc::ENOSPC, ..Fault::default() });
    let refused = handle.append(&[7; 50]).unwrap_err();
    assert_eq!(refused.errno(), Some(libc::ENOSPC), "nothing of it stands");
}

/// The part that stands is where the file begins now, not where the file ended then.
#[test] // S45
fn an_append_that_is_tried_again_is_completed_in_a_file_that_was_cut_since() {
    let world = World::new();
    let data: Vec<u8> = (0..5000_u32).map(|number| number as u8).collect();
    world.store.put("f", &data[..4096]);
    let handle = world.open(true, false).unwrap();
    let result = handle.append_again(&data, 8192).unwrap();
    assert_eq!((result.offset, result.written), (0, data.len()));
    let mut found = vec![0; 6000];
    assert_eq!(handle.read_at(&mut found, 0).unwrap(), data.len());
    assert!(found[..data.len()] == data);
}
