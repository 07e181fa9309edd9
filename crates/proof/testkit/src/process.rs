//! Processes that do not outlive their test.

use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, kill_process_group, set_parent_process_death_signal};

use crate::wait::wait_for;

/// How long to wait for a killed process. A process that is stuck in the kernel is then left behind.
const KILL_PATIENCE: Duration = Duration::from_secs(10);

/// A child process that leads its own process group. The group is killed when the guard is dropped or the test dies.
pub struct ProcessGuard {
    child: Child,
}

impl ProcessGuard {
    /// Starts `command`.
    ///
    /// # Panics
    ///
    /// If the process cannot be started.
    pub fn spawn(command: &mut Command) -> ProcessGuard {
        command.process_group(0);
        // SAFETY: between fork and exec only one system call is made; nothing is allocated and no lock is taken.
        unsafe {
            command.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::KILL))?));
        }
        let child = command.spawn().unwrap_or_else(|error| panic!("start {command:?}: {error}"));
        ProcessGuard { child }
    }

    /// Returns the process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the process, for access to its pipes.
    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Sends a signal to the process alone.
    pub fn signal(&self, signal: Signal) {
        // Failing because the process has already ended is fine: the caller sees that in its status.
        let _ = kill_process(self.os_pid(), signal);
    }

    /// Returns the exit status if the process has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("wait for a child")
    }

    /// Waits until the process ends and returns its exit status.
    ///
    /// # Panics
    ///
    /// If the process still runs after `bound`.
    #[track_caller]
    pub fn wait(&mut self, bound: Duration) -> ExitStatus {
        wait_for("the end of a child process", bound, || self.child.try_wait().expect("wait for a child"))
    }

    /// Kills the process and its group with SIGKILL, as a crash would, and waits until the process is gone.
    pub fn kill(&mut self) {
        if self.ended().is_none() {
            let _ = kill_process_group(self.os_pid(), Signal::KILL);
            self.wait(KILL_PATIENCE);
        }
    }

    fn os_pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }
}

impl Drop for ProcessGuard {
    fn drop(&mut self) {
        // Kill the group even if the leader is gone, so that background processes end too.
        let _ = kill_process_group(self.os_pid(), Signal::KILL);
        if std::thread::panicking() {
            // A second panic would abort the test binary, so the status is ignored.
            let _ = self.child.try_wait();
            return;
        }
        self.wait(KILL_PATIENCE);
    }
}

/// Returns the value of a variable in the shell commands that a program printed (`export NAME=value`).
pub fn exported(said: &str, variable: &str) -> Option<String> {
    let (_, rest) = said.split_once(&format!("{variable}="))?;
    // The value is quoted only if a shell needs that. The old value of the variable may follow it.
    let (value, _) = match rest.strip_prefix('\'') {
        Some(quoted) => quoted.split_once('\'')?,
        None => rest.split_once(['\'', '"', ' ', '\n'])?,
    };
    Some(value.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_is_found_quoted_or_not() {
        let said = "export SOCKET='/a b/c'\nexport LOADED=/lib.so\"${LOADED:+:$LOADED}\"\nexport CUT=/li";
        assert_eq!(exported(said, "SOCKET").as_deref(), Some("/a b/c"));
        assert_eq!(exported(said, "LOADED").as_deref(), Some("/lib.so"));
        assert_eq!((exported(said, "CUT"), exported(said, "OTHER")), (None, None));
    }

    #[test]
    fn a_dropped_guard_leaves_no_process() {
        let guard = ProcessGuard::spawn(Command::new("sleep").arg("1000"));
        let pid = guard.os_pid();
        drop(guard);
        assert!(rustix::process::test_kill_process(pid).is_err());
    }

    #[test]
    fn a_status_is_returned_once_the_process_ends() {
        let mut guard = ProcessGuard::spawn(Command::new("sh").args(["-c", "exit 3"]));
        assert_eq!(guard.wait(crate::PATIENCE).code(), Some(3));
        assert_eq!(guard.ended().and_then(|status| status.code()), Some(3));
    }
}
