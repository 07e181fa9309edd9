//! Appends of this thread that are not finished: those that a handler of signals which runs now has interrupted, and its own.
//!
//! A child that the handler forks goes on with them. So their windows end before it does.

use core::cell::Cell;
use core::ffi::c_int;
use core::sync::atomic::{Ordering::SeqCst, compiler_fence};
use std::time::Instant;

use window::ring::AppendRefused;

use crate::descriptors::OpenEntry;
use crate::limits::{APPENDS_NOTED_MAX, REVOCATION_WAITED_FOR};
use crate::signals::KeptErrno;

/// The last ones. Who leaves one by a jump leaves it here, with the hold on what it was of: it is overwritten in its turn.
struct Unfinished {
    count: Cell<usize>,
    of: [Cell<Option<&'static OpenEntry>>; APPENDS_NOTED_MAX],
}

thread_local! {
    static UNFINISHED: Unfinished =
        const { Unfinished { count: Cell::new(0), of: [const { Cell::new(None) }; APPENDS_NOTED_MAX] } };
}

/// Appends to the window of an open file, which the caller holds.
pub fn while_it_lasts(
    open: &'static OpenEntry,
    append: impl FnOnce() -> Result<(), AppendRefused>,
) -> Result<(), AppendRefused> {
    UNFINISHED.with(|unfinished| {
        let place = unfinished.count.get();
        let of = &unfinished.of[place % APPENDS_NOTED_MAX];
        // Of a handler in between none of the two is seen without the hold.
        unfinished.count.set(place + 1);
        compiler_fence(SeqCst);
        of.set(Some(open));
        compiler_fence(SeqCst);
        let appended = append();
        compiler_fence(SeqCst);
        of.set(None);
        compiler_fence(SeqCst);
        unfinished.count.set(place);
        appended
    })
}

/// Before `fork` and its like.
pub extern "C" fn before_fork() {
    UNFINISHED.with(|unfinished| {
        if unfinished.count.get() > 0 {
            end(unfinished);
        }
    });
}

#[cold]
fn end(unfinished: &Unfinished) {
    let _errno = KeptErrno::here();
    let windows = || unfinished.of.iter().filter_map(|of| Some((of, of.get()?.window()?)));
    windows().for_each(|(_, window)| window.end_before_fork());
    let end = Instant::now() + REVOCATION_WAITED_FOR;
    // One that was left for good is not waited for again.
    windows().filter(|(_, window)| !window.has_ended(end)).for_each(|(of, _)| of.set(None));
}

/// Before `clone(2)` by `syscall(2)`: a child that has memory of its own goes on where its parent is.
pub fn before_clone(flags: c_int) {
    if flags & libc::CLONE_VM == 0 {
        before_fork();
    }
}
