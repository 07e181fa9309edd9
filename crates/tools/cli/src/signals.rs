//! Signals as events: blocked everywhere, taken one by one by the main thread.
//!
//! Blocking instead of handling leaves every disposition as the caller set it (`nohup` stays `nohup`), so a command
//! started later needs only its mask back.

use std::mem::MaybeUninit;
use std::time::Duration;

use crate::aside::aside;
use crate::exit::{self, Failure};
use crate::limits::START_LOOK;

const TAKEN: [i32; 9] = [
    libc::SIGCHLD,
    libc::SIGINT,
    libc::SIGTERM,
    libc::SIGHUP,
    libc::SIGQUIT,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGTSTP,
    libc::SIGTTOU,
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Signal {
    /// Number: `SIGINT`, ...
    pub number: i32,
    /// Whether the terminal or the kernel sent it, to the whole foreground group. Otherwise a process sent it to this
    /// one.
    pub from_kernel: bool,
}

impl Signal {
    pub fn asks_to_end(self) -> bool {
        matches!(self.number, libc::SIGINT | libc::SIGTERM | libc::SIGHUP | libc::SIGQUIT)
    }
}

/// Blocked signals, and the mask from before.
#[derive(Clone, Copy)]
pub struct Signals {
    taken: libc::sigset_t,
    before: libc::sigset_t,
}

impl Signals {
    /// Blocks the signals in this thread and all threads that it will start. Must be called before any thread starts.
    pub fn block() -> Signals {
        let mut taken = MaybeUninit::uninit();
        let mut before = MaybeUninit::uninit();
        // SAFETY: sigemptyset initialises the set before the other calls read it; pthread_sigmask fills `before`.
        unsafe {
            libc::sigemptyset(taken.as_mut_ptr());
            for signal in TAKEN {
                libc::sigaddset(taken.as_mut_ptr(), signal);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, taken.as_ptr(), before.as_mut_ptr());
            Signals { taken: taken.assume_init(), before: before.assume_init() }
        }
    }

    /// Waits for a signal for at most `timeout`; `Duration::ZERO` looks without waiting.
    pub fn next(&self, timeout: Duration) -> Option<Signal> {
        let spec = libc::timespec {
            tv_sec: timeout.as_secs().min(i32::MAX as u64) as libc::time_t,
            tv_nsec: timeout.subsec_nanos().into(),
        };
        let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
        // SAFETY: all three pointers are valid for the call; `info` is zeroed, so reading it is defined either way.
        let (number, info) = unsafe {
            let number = libc::sigtimedwait(&self.taken, info.as_mut_ptr(), &spec);
            (number, info.assume_init())
        };
        (number > 0).then_some(Signal { number, from_kernel: info.si_code == libc::SI_KERNEL })
    }

    /// Runs `work`, which may wait for a global store, in a thread of its own. A request to end abandons it, and this
    /// process should then end. The failure is then silent, with the status that shells give a program that a signal
    /// ended.
    pub fn unless_asked_to_end<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        let mut asked = None;
        let mut leave = || {
            asked = self.next(Duration::ZERO).filter(|signal| signal.asks_to_end());
            asked.is_some()
        };
        match (aside("start", START_LOOK, work, &mut leave), asked) {
            (Ok(Some(result)), _) => result,
            (Ok(None), Some(signal)) => Err(Failure::silent((128 + signal.number) as u8)),
            (Ok(None), None) | (Err(_), _) => Err(Failure::new(exit::SOFTWARE, "the agent could not start")),
        }
    }

    /// Gives this thread the mask from before, and SIGPIPE its default, for a child that is about to become another
    /// program.
    pub fn restore(&self) {
        // SAFETY: `before` was filled by pthread_sigmask; SIG_DFL is a valid disposition.
        unsafe {
            libc::signal(libc::SIGPIPE, libc::SIG_DFL);
            libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, std::ptr::null_mut());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_from_a_process_is_taken_once_and_is_not_the_kernels() {
        let signals = Signals::block();
        // SAFETY: raises a signal that this thread has blocked.
        unsafe { libc::raise(libc::SIGUSR1) };
        let signal = signals.next(Duration::from_secs(60)).unwrap();
        assert_eq!(signal, Signal { number: libc::SIGUSR1, from_kernel: false });
        assert!(!signal.asks_to_end());
        assert_eq!(signals.next(Duration::ZERO), None);
    }
}
