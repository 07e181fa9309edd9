//! Supervision of the command: signals to it, its stops and its end, and the processes that it leaves behind.

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal as OsSignal, WaitOptions, WaitStatus, kill_process, wait};

use crate::exit::say;
use crate::holders::{self, Holder};
use crate::limits::{NAMESPACE_END, POLL};
use crate::mounts::Mount;
use crate::signals::{Signal, Signals};

/// Longest wait for a signal. Nothing depends on it; it bounds the harm of a lost signal.
const LOOK: Duration = Duration::from_secs(1);
/// Interval between two looks at the processes left behind: each reads much of `/proc`.
const LOOK_FOR_HOLDERS: Duration = Duration::from_millis(500);

pub struct Supervised<'a> {
    pid: Pid,
    signals: &'a Signals,
    code: Option<u8>,
    /// Whether a request to end arrived when no command was left to receive it.
    asked: bool,
}

impl<'a> Supervised<'a> {
    pub fn new(pid: Pid, signals: &'a Signals) -> Supervised<'a> {
        Supervised { pid, signals, code: None, asked: false }
    }

    /// Waits until the command has ended. Returns its exit status, or 128 + the signal that killed it.
    ///
    /// The command is in our process group, so what the terminal sends reaches it without us; what another process
    /// sends to us is passed on. When the terminal stops it we stop too, since the shell waits for us.
    pub fn wait(&mut self) -> u8 {
        loop {
            self.reap();
            if let Some(code) = self.code {
                self.forget_keys();
                return code;
            }
            if let Some(signal) = self.signals.next(LOOK) {
                self.pass_on(signal);
            }
        }
    }

    /// Forgets signals that the terminal sent while the command lived: the Ctrl-C that ended the command is not meant
    /// for the drain. Keeps signals that another process sent to us and that the command never got.
    fn forget_keys(&mut self) {
        while let Some(signal) = self.signals.next(Duration::ZERO) {
            self.asked |= signal.asks_to_end() && !signal.from_kernel;
        }
    }

    fn pass_on(&self, signal: Signal) {
        if signal.number == libc::SIGCHLD || signal.number == libc::SIGTTOU || signal.from_kernel {
            return;
        }
        if let Some(signal) = OsSignal::from_named_raw(signal.number) {
            // An ended command is found by the next reap.
            let _ = kill_process(self.pid, signal);
        }
    }

    /// Takes the status of every child that has one, adopted ones included.
    fn reap(&mut self) {
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
            if pid != self.pid {
                continue;
            }
            if let Some(signal) = status.stopping_signal() {
                self.stop_with_command(signal);
            } else {
                self.code = code_of(status);
            }
        }
    }

    /// Stops this process with the command. Only for a stop by the terminal, whose SIGCONT reaches the whole group.
    /// After SIGSTOP to the command alone, nobody would wake this process, nor the files that it serves.
    fn stop_with_command(&self, signal: i32) {
        if signal == libc::SIGSTOP {
            return;
        }
        let _ = kill_process(rustix::process::getpid(), OsSignal::STOP);
        let _ = kill_process(self.pid, OsSignal::CONT);
    }

    /// Waits for processes that the command left behind with open files, at most `linger` (`None`: until they end or
    /// somebody interrupts). `mounts`: ours, as the command saw them. `ended` returns whether the namespace is gone,
    /// so that nobody can be left.
    pub fn linger(
        &mut self,
        mounts: &[Mount],
        linger: Option<Duration>,
        quiet: bool,
        ended: &dyn Fn() -> bool,
    ) -> Lingered {
        let start = Instant::now();
        let mut looked: Option<Instant> = None;
        let mut told = false;
        let mut left = Vec::new();
        loop {
            self.reap();
            if ended() {
                return Lingered { left: Vec::new(), took: start.elapsed(), asked: self.asked };
            }
            if start.elapsed() >= NAMESPACE_END && looked.is_none_or(|at| at.elapsed() >= LOOK_FOR_HOLDERS) {
                left = mounts.iter().flat_map(|mount| holders::of(&mount.device)).collect();
                looked = Some(Instant::now());
                if !left.is_empty() && !told && !quiet {
                    tell(&left);
                }
                told |= !left.is_empty();
                let bound = linger.is_some_and(|bound| start.elapsed() >= bound);
                if left.is_empty() || bound {
                    return Lingered { left, took: start.elapsed(), asked: self.asked };
                }
            }
            let step = if looked.is_some() { POLL } else { POLL / 25 };
            self.asked |= self.signals.next(step).is_some_and(Signal::asks_to_end);
            if told && self.asked {
                // The request was meant for this wait.
                return Lingered { left, took: start.elapsed(), asked: false };
            }
        }
    }
}

/// Outcome of the wait for processes that the command left behind.
#[derive(Debug)]
pub struct Lingered {
    pub left: Vec<Holder>,
    pub took: Duration,
    /// Whether a request to end arrived that has had no effect yet.
    pub asked: bool,
}

fn tell(left: &[Holder]) {
    say!("forebay: the command ended and left processes that hold files; waiting for them (Ctrl-C: do not wait)");
    say!("{}", holders::listed(left));
}

fn code_of(status: WaitStatus) -> Option<u8> {
    let of_signal = status.terminating_signal().map(|signal| 128 + signal);
    status.exit_status().or(of_signal).map(|code| code as u8)
}
