//! Appends of this thread that are in progress: those interrupted by a signal handler that runs now, and the handler's
//! own.
//!
//! A child that the handler forks continues these appends. Their windows therefore end before the fork.

use core::cell::Cell;
use core::ffi::c_int;
use core::sync::atomic::{Ordering::SeqCst, compiler_fence};
use std::time::Instant;

use window::ring::AppendRefused;

use crate::descriptors::OpenEntry;
use crate::limits::{APPENDS_NOTED_MAX, REVOCATION_WAITED_FOR};
use crate::signals::KeptErrno;

/// Most recent appends in progress. An append that a handler leaves by a jump stays here, with its hold on the open
/// file, until it is overwritten.
struct Unfinished {
    count: Cell<usize>,
    of: [Cell<Option<&'static OpenEntry>>; APPENDS_NOTED_MAX],
}

thread_local! {
    static UNFINISHED: Unfinished =
        const { Unfinished { count: Cell::new(0), of: [const { Cell::new(None) }; APPENDS_NOTED_MAX] } };
}

/// Runs `append` and notes meanwhile that it is in progress on `open`, which the caller must hold.
pub fn while_it_lasts(
    open: &'static OpenEntry,
    append: impl FnOnce() -> Result<(), AppendRefused>,
) -> Result<(), AppendRefused> {
    UNFINISHED.with(|unfinished| {
        let place = unfinished.count.get();
        let of = &unfinished.of[place % APPENDS_NOTED_MAX];
        // A handler that runs in between never sees a note whose open file is not held.
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

/// Ends the windows of appends in progress; to be called before `fork` and similar calls.
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
    // Forget an append that was left for good, so that it is not waited for again.
    windows().filter(|(_, window)| !window.has_ended(end)).for_each(|(of, _)| of.set(None));
}

/// Prepares for `clone(2)` by `syscall(2)`. A child with its own memory continues where its parent is.
pub fn before_clone(flags: c_int) {
    if flags & libc::CLONE_VM == 0 {
        before_fork();
    }
}
