//! Tests of locks of several owners: which are granted, which wait, which are refused.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, channel};

use super::*;
use crate::locks::owner;

fn file(name: u8) -> Identity {
    Identity::new(vec![name]).unwrap()
}

fn exclusive(start: u64, end: u64, owner: LockOwner) -> LockRequest {
    LockRequest::range(start, end, LockKind::Exclusive, owner, 0, owner as u64)
}

fn shared(start: u64, end: u64, owner: LockOwner) -> LockRequest {
    LockRequest::range(start, end, LockKind::Shared, owner, 0, owner as u64)
}

fn wait(table: &LockTable, file: &Identity, request: LockRequest) -> (Option<LockTicket>, Receiver<Result<(), Errno>>) {
    let (send, receive) = channel();
    let ticket = table.lock(file, request, Box::new(move |outcome| send.send(outcome).unwrap()));
    (ticket, receive)
}

#[test]
fn a_waiter_is_granted_when_the_holder_lets_go() {
    let table = LockTable::default();
    table.try_lock(&file(1), exclusive(0, 9, 1)).unwrap();
    assert_eq!(table.try_lock(&file(1), shared(5, 5, 2)), Err(Errno::AGAIN));
    let (ticket, outcome) = wait(&table, &file(1), exclusive(5, 20, 2));
    assert!(ticket.is_some());
    assert_eq!(outcome.try_recv(), Err(TryRecvError::Empty));
    table.unlock(&file(1), 1, 0, 9);
    assert_eq!(outcome.try_recv(), Ok(Ok(())));
    assert_eq!(table.test(&file(1), &exclusive(0, 99, 1).range).unwrap().owner, 2);
}

#[test] // S12
fn waiters_are_served_in_order() {
    let table = LockTable::default();
    table.try_lock(&file(1), exclusive(0, 9, 1)).unwrap();
    let (_, first) = wait(&table, &file(1), exclusive(0, 9, 2));
    let (_, second) = wait(&table, &file(1), exclusive(0, 9, 3));
    table.unlock(&file(1), 1, 0, 9);
    assert_eq!(first.try_recv(), Ok(Ok(())));
    assert_eq!(second.try_recv(), Err(TryRecvError::Empty));
    table.unlock(&file(1), 2, 0, u64::MAX);
    assert_eq!(second.try_recv(), Ok(Ok(())));
}

#[test]
fn downgrading_lets_shared_waiters_in() {
    let table = LockTable::default();
    table.try_lock(&file(1), exclusive(0, 9, 1)).unwrap();
    let (_, outcome) = wait(&table, &file(1), shared(0, 9, 2));
    table.try_lock(&file(1), shared(0, 9, 1)).unwrap();
    assert_eq!(outcome.try_recv(), Ok(Ok(())));
}

#[test]
fn a_circle_of_waits_over_two_files_is_refused() {
    let table = LockTable::default();
    table.try_lock(&file(1), exclusive(0, 0, 1)).unwrap();
    table.try_lock(&file(2), exclusive(0, 0, 2)).unwrap();
    let (_, first) = wait(&table, &file(2), exclusive(0, 0, 1));
    assert_eq!(first.try_recv(), Err(TryRecvError::Empty));
    let (ticket, second) = wait(&table, &file(1), exclusive(0, 0, 2));
    assert_eq!(ticket, None);
    assert_eq!(second.try_recv(), Ok(Err(Errno::DEADLK)));
    table.unlock(&file(2), 2, 0, 0);
    assert_eq!(first.try_recv(), Ok(Ok(())));
}

#[test]
fn a_circle_of_three_through_shared_holders_is_refused() {
    let table = LockTable::default();
    table.try_lock(&file(1), shared(0, 0, 1)).unwrap();
    table.try_lock(&file(1), shared(0, 0, 2)).unwrap();
    table.try_lock(&file(2), exclusive(0, 0, 3)).unwrap();
    let (_, third) = wait(&table, &file(1), exclusive(0, 0, 3));
    assert_eq!(third.try_recv(), Err(TryRecvError::Empty));
    let (_, second) = wait(&table, &file(2), exclusive(0, 0, 2));
    assert_eq!(second.try_recv(), Ok(Err(Errno::DEADLK)));
}

#[test]
fn an_interrupted_waiter_hears_eintr_once_and_holds_nothing() {
    let table = LockTable::default();
    table.try_lock(&file(1), exclusive(0, 9, 1)).unwrap();
    let (ticket, outcome) = wait(&table, &file(1), exclusive(0, 9, 2));
    table.cancel(&file(1), ticket.unwrap());
    assert_eq!(outcome.try_recv(), Ok(Err(Errno::INTR)));
    table.cancel(&file(1), ticket.unwrap());
    table.unlock(&file(1), 1, 0, 9);
    assert_eq!(outcome.try_recv(), Err(TryRecvError::Disconnected));
    assert!(table.is_empty());
}

#[test]
fn flocks_and_ranges_do_not_know_each_other() {
    let table = LockTable::default();
    table.try_lock(&file(1), LockRequest::flock(LockKind::Exclusive, 1, 0, 1)).unwrap();
    table.try_lock(&file(1), exclusive(0, 9, 2)).unwrap();
    assert_eq!(table.try_lock(&file(1), LockRequest::flock(LockKind::Shared, 3, 0, 3)), Err(Errno::AGAIN));
    table.unlock_flock(&file(1), 1);
    table.try_lock(&file(1), LockRequest::flock(LockKind::Shared, 3, 0, 3)).unwrap();
}

#[test]
fn a_flock_that_cannot_be_converted_is_lost_as_flock_says() {
    let table = LockTable::default();
    for owner in [1, 2] {
        table.try_lock(&file(1), LockRequest::flock(LockKind::Shared, owner, 0, owner as u64)).unwrap();
    }
    assert_eq!(table.try_lock(&file(1), LockRequest::flock(LockKind::Exclusive, 1, 0, 1)), Err(Errno::AGAIN));
    table.try_lock(&file(1), LockRequest::flock(LockKind::Exclusive, 2, 0, 2)).unwrap();
}

#[test]
fn an_open_files_locks_end_with_it_and_not_those_retaken_through_another() {
    let table = LockTable::default();
    table.try_lock(&file(1), LockRequest::range(0, 9, LockKind::Exclusive, 1, 0, 70)).unwrap();
    table.try_lock(&file(1), LockRequest::range(5, 9, LockKind::Exclusive, 1, 0, 71)).unwrap();
    table.release_handle(&file(1), 70);
    assert!(table.test(&file(1), &exclusive(0, 4, 2).range).is_none());
    assert!(table.test(&file(1), &exclusive(5, 5, 2).range).is_some());
}

#[test]
fn threads_that_take_turns_never_overlap() {
    let table = Arc::new(LockTable::default());
    let inside = Arc::new(std::sync::atomic::AtomicU32::new(0));
    let threads: Vec<_> = (1..=4)
        .map(|owner| {
            let (table, inside) = (table.clone(), inside.clone());
            std::thread::spawn(move || {
                for _ in 0..500 {
                    let (_, outcome) = wait(&table, &file(1), exclusive(0, 9, owner));
                    outcome.recv_timeout(std::time::Duration::from_secs(60)).unwrap().unwrap();
                    assert_eq!(inside.fetch_add(1, std::sync::atomic::Ordering::SeqCst), 0);
                    inside.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                    table.unlock(&file(1), owner, 0, 9);
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert!(table.is_empty());
}

#[test] // S48
fn equal_numbers_of_two_clients_are_two_owners_and_one_that_is_gone_holds_and_awaits_nothing() {
    let table = LockTable::default();
    let of = |client| owner(client, 7);
    table.try_lock(&file(1), exclusive(0, 9, of(1))).unwrap();
    assert_eq!(table.try_lock(&file(1), exclusive(0, 9, of(2))), Err(Errno::AGAIN));
    table.try_lock(&file(2), LockRequest::flock(LockKind::Exclusive, of(1), 0, 7)).unwrap();
    let (_, second) = wait(&table, &file(1), exclusive(0, 9, of(2)));
    let (_, own) = wait(&table, &file(1), exclusive(0, 9, owner(1, 8)));
    table.release_client(1);
    assert_eq!(second.try_recv(), Ok(Ok(())), "who waited for it gets it");
    assert_eq!(own.try_recv(), Ok(Err(Errno::INTR)), "and what it awaited itself is over");
    table.try_lock(&file(2), LockRequest::flock(LockKind::Exclusive, of(2), 0, 7)).unwrap();
    table.release_client(2);
    assert!(table.is_empty());
}

#[test] // S48
fn what_is_awaited_through_an_open_file_ends_with_it() {
    let table = LockTable::default();
    table.try_lock(&file(1), exclusive(0, 9, 1)).unwrap();
    let (_, outcome) = wait(&table, &file(1), exclusive(0, 9, 2));
    table.release_handle(&file(1), 2);
    assert_eq!(outcome.try_recv(), Ok(Err(Errno::INTR)));
    table.release_handle(&file(1), 1);
    assert!(table.is_empty());
}

/// The kernel sends the release of an open file after `close` has returned. A thread of ours may handle it later than
/// the next request for the lock.
#[test] // S12
fn a_lock_of_an_open_file_that_was_just_closed_is_waited_for_and_one_that_goes_on_is_refused() {
    const LONG: std::time::Duration = std::time::Duration::from_secs(60);
    let (table, file) = (LockTable::default(), file(1));
    let open_file = |handle| LockRequest::range(0, u64::MAX, LockKind::Exclusive, 70, 0, handle);
    for request in [LockRequest::flock(LockKind::Exclusive, 7, 0, 7), open_file(7)] {
        let wanted = LockRequest { range: RangeLock { owner: 8, handle: 8, ..request.range }, ..request };
        table.try_lock(&file, request).unwrap();
        assert_eq!(table.try_lock(&file, wanted), Err(Errno::AGAIN));
        table.close_descriptor(&file, 1, 7);
        std::thread::scope(|scope| {
            let comes = scope.spawn(|| table.try_lock(&file, wanted));
            let waits = || table.changed.notify_all() > 0 || comes.is_finished();
            testkit::wait_until("it waits for the end of the other", LONG, waits);
            table.unlock_flock(&file, 7);
            table.release_handle(&file, 7);
            assert_eq!(comes.join().unwrap(), Ok(()));
        });
        // A descriptor is left, such as a child's: the request is refused after a while, and the holder is shown.
        table.close_descriptor(&file, 1, 8);
        let third = LockRequest { range: RangeLock { owner: 9, handle: 9, ..request.range }, ..request };
        assert_eq!(table.try_lock(&file, third), Err(Errno::AGAIN));
        assert_eq!(table.test(&file, &third.range).is_some(), !request.flock);
        table.unlock_flock(&file, 8);
        table.release_handle(&file, 8);
        assert!(table.is_empty());
    }
}
