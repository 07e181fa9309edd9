//! Child processes that get equal commands and whose replies are combined.

use std::env;
use std::ffi::OsString;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command as Program, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use super::host::Host;
use super::message::{Command, Reply, receive, send};
use crate::bounds::{CLOCK_QUESTIONS, PATIENCE, PHASE_PATIENCE};
use crate::clock::now_ns;
use crate::counters::Counters;
use crate::failure::Failure;

/// Command for starting another process of this program.
#[derive(Debug, Clone)]
pub struct Launcher {
    program: PathBuf,
    words: Vec<OsString>,
    /// Hosts of the groups, in turn; empty: this machine.
    hosts: Vec<Host>,
    observed: Vec<Host>,
}

impl Launcher {
    pub fn new(program: impl Into<PathBuf>, words: &[&str]) -> Launcher {
        let words = words.iter().chain(&["worker"]).map(OsString::from).collect();
        Launcher { program: program.into(), words, hosts: Vec::new(), observed: Vec::new() }
    }

    /// Returns this launcher with groups on these hosts, in turn.
    pub fn on(mut self, hosts: &[Host]) -> Launcher {
        self.hosts = hosts.to_vec();
        self
    }

    pub fn seeing(mut self, hosts: &[Host]) -> Launcher {
        self.observed = hosts.to_vec();
        self
    }

    /// Returns the launcher for observing processes; `None` if no host is observed.
    pub fn observing(&self) -> Option<Launcher> {
        (!self.observed.is_empty()).then(|| Launcher { hosts: self.observed.clone(), ..self.clone() })
    }

    /// Returns the name of a group's host, and the command for the group.
    fn command(&self, number: usize) -> (String, Program) {
        match self.hosts.get(number % self.hosts.len().max(1)) {
            Some(host) => (format!(" on {host}"), host.command(&self.program, &self.words)),
            None => {
                let mut command = Program::new(&self.program);
                command.args(&self.words);
                (String::new(), command)
            }
        }
    }

    pub fn program(&self) -> &Path {
        &self.program
    }

    pub fn words(&self) -> &[OsString] {
        &self.words
    }

    /// Returns the arguments of another stage of this program: `limits STAGE`, or `STAGE` for the separate program.
    pub fn stage(&self, name: &str) -> Vec<OsString> {
        let within = self.words.iter().filter(|word| *word != "worker").cloned();
        within.chain([OsString::from(name)]).collect()
    }

    /// Creates a launcher for this program: `forebay limits worker`, or `forebay-limits worker` for the separate
    /// program.
    pub fn own() -> Result<Launcher, Failure> {
        let program =
            env::current_exe().map_err(|error| Failure::unavailable(format!("cannot find myself: {error}")))?;
        // Use the form in which this process was called, because the program file may have any name.
        let within = env::args_os().nth(1).is_some_and(|word| word == "limits");
        Ok(Launcher::new(program, if within { &["limits"] } else { &[] }))
    }
}

/// Returns a command for the user to type, which shows whether this program can be started there.
fn by_hand(program: &Program) -> String {
    let words = std::iter::once(program.get_program()).chain(program.get_args());
    words.map(|word| word.to_string_lossy().into_owned()).chain(["--help".to_string()]).collect::<Vec<_>>().join(" ")
}

struct Member {
    name: String,
    child: Child,
    /// Standard input of the child; `None` once the child is lost.
    to: Option<ChildStdin>,
    replies: Receiver<Result<Reply, String>>,
    /// Nanoseconds by which the child's clock is ahead of ours.
    ahead_ns: i64,
    /// Command to try by hand, for a child on a host that has not answered yet.
    unheard: Option<String>,
}

/// Child processes of one kind. Dropping the fleet closes their standard input, and they end.
pub struct Fleet {
    members: Vec<Member>,
    lost: Vec<String>,
}

impl Fleet {
    /// Starts a child for each name and sends its first command. Errors: a child cannot be started; those already
    /// started end.
    pub fn start(launcher: &Launcher, begin: impl IntoIterator<Item = (String, Command)>) -> Result<Fleet, Failure> {
        let mut fleet = Fleet { members: Vec::new(), lost: Vec::new() };
        for (number, (name, command)) in begin.into_iter().enumerate() {
            let (place, mut program) = launcher.command(number);
            let name = name + &place;
            let mut child = program
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .map_err(|error| Failure::unavailable(format!("cannot start {name}: {error}")))?;
            let (to, from) = (child.stdin.take(), child.stdout.take());
            let (sender, replies) = channel();
            // One thread for each pipe, so that a silent child uses up only its own time limit. The thread ends with
            // the pipe, at the latest when the child ends.
            thread::spawn(move || {
                let Some(mut from) = from.map(BufReader::new) else { return };
                while let Some(message) = receive::<Reply>(&mut from).map_err(|failure| failure.message).transpose()
                    && sender.send(message).is_ok()
                {}
            });
            let unheard = (!place.is_empty()).then(|| by_hand(&program));
            let mut member = Member { name, child, to, replies, ahead_ns: 0, unheard };
            if let Some(to) = &mut member.to {
                // If the child died at once, gathering reports that.
                let _ = send(to, &command);
            }
            fleet.members.push(member);
        }
        Ok(fleet)
    }

    pub fn tell(&mut self, command: &Command) {
        for member in &mut self.members {
            if let Some(to) = &mut member.to {
                let _ = send(to, &command.shifted(member.ahead_ns));
            }
        }
    }

    /// Compares the children's clocks with ours. Returns the largest uncertainty (half of the fastest round trip) and
    /// the child that has it.
    pub fn set_clocks(&mut self) -> (Duration, String) {
        let (mut worst, mut whose) = (0, String::new());
        for member in self.members.iter_mut().filter(|member| member.to.is_some()) {
            let mut best = u64::MAX;
            for _ in 0..CLOCK_QUESTIONS {
                let asked = now_ns();
                let Some(there) = member.clock() else { break };
                let trip = now_ns() - asked;
                if trip < best {
                    (best, member.ahead_ns) = (trip, there.wrapping_sub(asked + trip / 2).cast_signed());
                }
            }
            if best == u64::MAX {
                self.lost.push(member.lose("does not tell its clock"));
            } else if best / 2 >= worst {
                (worst, whose) = (best / 2, member.name.clone());
            }
        }
        (Duration::from_nanos(worst), whose)
    }

    /// Requests the host counters of all children at the same time. Lost children give `None`.
    pub fn look(&mut self) -> Vec<Option<Counters>> {
        self.tell(&Command::Look);
        let deadline = Instant::now() + PATIENCE;
        let Fleet { members, lost } = self;
        let seen = members.iter_mut().map(|member| {
            member.to.as_ref()?;
            let why = match member.answer(deadline) {
                Ok(Reply::Seen { counters }) => return Some(counters),
                Ok(_) => "does not tell its counters".to_string(),
                Err(why) => why,
            };
            lost.push(member.lose(&why));
            None
        });
        seen.collect()
    }

    /// Returns the children lost so far, with the reasons.
    pub fn lost(&self) -> &[String] {
        &self.lost
    }

    /// Combines all replies to a command into one. A child that does not reply in time is lost for good.
    pub fn gather(&mut self, to: Option<&Command>) -> Reply {
        let patience = match to {
            Some(Command::Go { until_ns, .. }) => {
                Duration::from_nanos(until_ns.saturating_sub(now_ns())) + PHASE_PATIENCE
            }
            _ => PATIENCE,
        };
        let deadline = Instant::now() + patience;
        let (mut samples, mut residents, mut failed) = (Vec::new(), Vec::new(), Vec::new());
        for member in self.members.iter_mut().filter(|member| member.to.is_some()) {
            match member.answer(deadline) {
                Ok(Reply::Done { samples: more, lost }) => {
                    samples.extend(more.into_iter().map(|sample| sample.in_our_time(member.ahead_ns)));
                    self.lost.extend(lost);
                }
                Ok(Reply::Ready { resident }) => residents.extend(resident),
                Ok(Reply::Clock { .. } | Reply::Seen { .. }) => {
                    failed.push(format!("{}: told what it was not asked", member.name));
                }
                Ok(Reply::Failed { what }) => failed.push(format!("{}: {what}", member.name)),
                Err(why) => self.lost.push(member.lose(&why)),
            }
        }
        if !failed.is_empty() {
            let more = if failed.len() > 1 { format!(" (and {} more)", failed.len() - 1) } else { String::new() };
            return Reply::Failed { what: format!("{}{more}", failed[0]) };
        }
        if matches!(to, Some(Command::Go { .. })) {
            // A leader reports the processes it lost in this phase; the coordinator counts them once.
            return Reply::Done { samples, lost: std::mem::take(&mut self.lost) };
        }
        let resident = (!residents.is_empty()).then(|| residents.iter().sum::<f64>() / residents.len() as f64);
        Reply::Ready { resident }
    }
}

impl Member {
    /// Gives the child up, and returns its name with the reason.
    fn lose(&mut self, why: &str) -> String {
        self.to = None;
        let _ = self.child.kill();
        format!("{} {why}", self.name)
    }

    fn clock(&mut self) -> Option<u64> {
        send(self.to.as_mut()?, &Command::Clock).ok()?;
        match self.answer(Instant::now() + PATIENCE) {
            Ok(Reply::Clock { now_ns }) => Some(now_ns),
            _ => None,
        }
    }

    /// Returns advice about a child that has never answered.
    fn hint(&mut self) -> String {
        let command = self.unheard.take();
        command.map_or(String::new(), |command| format!("; this must answer there, and ask nothing: {command}"))
    }

    fn answer(&mut self, deadline: Instant) -> Result<Reply, String> {
        match self.replies.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(reply) => {
                self.unheard = None;
                reply
            }
            Err(RecvTimeoutError::Timeout) => Err(format!("did not answer in time{}", self.hint())),
            Err(RecvTimeoutError::Disconnected) => {
                let why = self.child.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
                Err(format!("ended early ({why}){}", self.hint()))
            }
        }
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        let (mut alive, lost): (Vec<_>, Vec<_>) = self.members.iter_mut().partition(|member| member.to.is_some());
        alive.iter_mut().for_each(|member| member.to = None);
        for member in alive {
            // Closing standard input tells the child to end. Phases are bounded, and therefore this wait.
            let _ = member.child.wait();
        }
        for member in lost {
            // Killed; if the kernel still blocks the process, it is left to init.
            let _ = member.child.try_wait();
        }
    }
}
