//! One crash over one server. A program on each of two nodes tells a story, and another on the first node writes
//! records. One process dies at a fault point, and others with it. The dead are started again, and the result is
//! judged.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};

use rustix::process::Signal;
use testkit::{ProcessGuard, wait_until};

use crate::cluster::{BOUND, Cluster};
use crate::program::{AGENT_GONE, AT_SERVER};
use crate::programs::{Orphans, PROGRAMS, Program, first_files, may_orphan};
use crate::writer::Writer;

/// Ways in which programs write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Door {
    /// Through the kernel.
    Kernel,
    /// Through windows.
    Preload,
}

/// Process that dies: the server, or the first node's agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Falls {
    Server,
    Agent,
}

/// Processes that are killed as soon as that one is dead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum With {
    Nobody,
    /// The other one of server and agent.
    Peer,
    /// The first node's programs.
    Programs,
    All,
}

/// Moment of death.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// At a fault point of the process.
    AtPoint(&'static str),
    /// After this number of acknowledged records.
    Acknowledged(usize),
}

/// Plan of one crash.
#[derive(Debug, Clone, Copy)]
pub struct Round {
    pub falls: Falls,
    pub when: When,
    pub door: Door,
    pub with: With,
    pub rules: &'static [&'static str],
    pub seed: u64,
}

/// Summary of one round.
#[derive(Debug, Clone, Copy, Default)]
pub struct Played {
    /// Whether a process died.
    pub fallen: bool,
    /// Acknowledged records that were judged.
    pub records: usize,
}

/// Number of records that the writer writes.
pub const RECORDS: usize = 1000;

/// The node of the first program, whose agent may die.
const FIRST: usize = 1;

/// Round that is being played.
struct Stage<'a> {
    round: &'a Round,
    cluster: Cluster,
    /// One program for each node.
    programs: Vec<Program>,
    /// Writer beside the first program.
    writer: Option<Writer>,
    /// Whether this process has killed the victim.
    killed: bool,
    /// Whether the victim is dead, and the actions afterwards were taken.
    fallen: bool,
    /// Whether the first agent is dead, and its mount with it.
    agent_is_dead: bool,
}

impl Round {
    /// Plays the round. Errors: the promise that was broken.
    pub fn play(&self) -> Result<Played, String> {
        let mut stage = Stage::set(self);
        stage.play().map_err(|why| {
            let told: String =
                stage.programs.iter().map(Program::told).chain(stage.writer.iter().map(Writer::told)).collect();
            format!("{self:?}:\n{why}\n{}{told}", stage.logs())
        })?;
        Ok(Played { fallen: stage.fallen, records: stage.acknowledged() })
    }

    fn options(&self, cluster: &Cluster) -> Vec<String> {
        let windows =
            (self.door == Door::Preload).then(|| format!("--window={}", cluster.tree.path("rings").display()));
        let rules = self.rules.iter().flat_map(|rule| ["--policy".to_owned(), (*rule).to_owned()]);
        windows.into_iter().chain(rules).collect()
    }

    fn takes(&self, who: With) -> bool {
        self.with == who || self.with == With::All
    }
}

impl<'a> Stage<'a> {
    fn set(round: &'a Round) -> Stage<'a> {
        let mut cluster = Cluster::without_server(PROGRAMS as usize);
        for number in 0..PROGRAMS {
            first_files(&cluster.data.join(format!("program-{number}")), round.seed + number).expect("the first files");
        }
        let point = match round.when {
            When::AtPoint(point) => Some(point),
            When::Acknowledged(_) => None,
        };
        let point_of = |falls: Falls| point.filter(|_| round.falls == falls);
        let fault = point_of(Falls::Server).map(|point| format!("FOREBAY_FAULT={point}"));
        cluster.start_server_with(fault.as_deref().unwrap_or_default());
        let options = round.options(&cluster);
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        let log = cluster.tree.path("agent.fault").display().to_string();
        let armed = point_of(Falls::Agent).map(|point| [("FOREBAY_FAULT", point), ("FOREBAY_FAULT_LOG", &log)]);
        cluster.mount_with(FIRST, &options, armed.as_ref().map_or(&[], |armed| &armed[..]));
        (FIRST + 1..=PROGRAMS as usize).for_each(|node| _ = cluster.mount(node, &options));
        Stage { round, cluster, programs: Vec::new(), writer: None, killed: false, fallen: false, agent_is_dead: false }
    }

    fn play(&mut self) -> Result<(), String> {
        self.start();
        self.watch("the end of the programs", |stage| stage.processes().all(ended));
        self.see_ends()?;
        self.judge_on_nodes()?;
        let dir = self.cluster.node(FIRST).display().to_string();
        let mut evicts = self.cluster.spawn(FIRST, &["stage", "evict", "--recursive", &dir]);
        self.watch("the end of the eviction", |_| ended(&mut evicts));
        self.judge_on_nodes()?;
        self.end()
    }

    fn start(&mut self) {
        let beside = |name: &str| self.cluster.tree.path(name);
        let started: Vec<_> = (0..PROGRAMS)
            .map(|number| {
                let node = FIRST + number as usize;
                let mut how = vec![(AT_SERVER, String::new())];
                if self.round.door == Door::Preload {
                    let variables = ["FOREBAY_WINDOW_SOCKET", "LD_PRELOAD"];
                    how.extend(variables.map(|variable| (variable, self.cluster.exported(node, variable))));
                }
                let how: Vec<_> = how.iter().map(|(name, value)| (*name, value.as_str())).collect();
                let dir = self.cluster.node(node);
                let writer = (node == FIRST).then(|| Writer::start(&dir, RECORDS as u64, &beside, &how));
                (Program::start(&dir, number, self.round.seed, &beside, &how), writer)
            })
            .collect();
        for (program, writer) in started {
            self.programs.push(program);
            self.writer = self.writer.take().or(writer);
        }
    }

    fn processes(&mut self) -> impl Iterator<Item = &mut ProcessGuard> {
        let stories = self.programs.iter_mut().map(|program| &mut program.process);
        stories.chain(self.writer.iter_mut().map(|writer| &mut writer.process))
    }

    /// Waits until `done`, and acts if the victim dies meanwhile.
    fn watch(&mut self, what: &str, mut done: impl FnMut(&mut Stage<'_>) -> bool) {
        wait_until(what, BOUND, || {
            self.see_to_the_fallen();
            done(self)
        });
    }

    /// Returns the number of records that the writer has acknowledged.
    fn acknowledged(&self) -> usize {
        self.writer.iter().map(Writer::acknowledged).sum()
    }

    /// Kills the victim if the moment has come.
    fn kill_in_time(&mut self) {
        let When::Acknowledged(records) = self.round.when else { return };
        if !self.fallen && self.acknowledged() >= records {
            self.killed = true;
            match self.round.falls {
                Falls::Server => self.cluster.kill_server(),
                Falls::Agent => self.cluster.kill_agent(FIRST),
            }
        }
    }

    fn see_to_the_fallen(&mut self) {
        self.kill_in_time();
        let falls = match self.round.falls {
            Falls::Server => self.cluster.server_status().is_some(),
            Falls::Agent => self.cluster.agent_has_ended(FIRST),
        };
        if self.fallen || !falls {
            return;
        }
        self.fallen = true;
        match self.round.when {
            When::AtPoint(point) if self.round.falls == Falls::Agent => {
                assert!(self.cluster.tree.path("agent.fault").exists(), "{point} was not reached: {}", self.logs());
            }
            When::AtPoint(_) => {}
            When::Acknowledged(_) => assert!(self.killed, "{:?} ended by itself: {}", self.round.falls, self.logs()),
        }
        let (of_server, peer) = (self.round.falls == Falls::Server, self.round.takes(With::Peer));
        if of_server {
            assert_eq!(self.cluster.server_status().as_deref(), Some("137\n"), "{}", self.logs());
        } else if peer {
            self.cluster.kill_server();
        }
        if !of_server || peer {
            self.cluster.kill_agent(FIRST);
            self.agent_is_dead = true;
        }
        if self.round.takes(With::Programs) {
            self.programs.iter().take(1).for_each(|program| program.process.signal(Signal::KILL));
            self.writer.iter().for_each(|writer| writer.process.signal(Signal::KILL));
        }
        if of_server || peer {
            self.cluster.start_server();
        }
    }

    /// Checks ended programs: success, death of the agent or our signal explains an end.
    fn see_ends(&mut self) -> Result<(), String> {
        let badly = self.processes().any(|process| !process.wait(BOUND).success());
        if badly && !self.fallen && self.round.falls == Falls::Agent {
            // Its programs may be seen to have ended before it is.
            self.watch("the agent's death", |stage| stage.fallen);
        }
        let (dead, killed) = (self.agent_is_dead, self.fallen && self.round.takes(With::Programs));
        let is_explained = |first: bool, process: &mut ProcessGuard| {
            let status = process.wait(BOUND);
            match (status.code(), status.signal()) {
                (Some(0), _) => true,
                (Some(AGENT_GONE), _) | (_, Some(libc::SIGBUS)) => first && dead,
                (_, Some(libc::SIGKILL)) => first && killed,
                _ => false,
            }
        };
        for (number, program) in self.programs.iter_mut().enumerate() {
            if !is_explained(number == 0, &mut program.process) {
                return Err(program.ended_badly());
            }
        }
        let writer = self.writer.iter_mut().all(|writer| is_explained(true, &mut writer.process));
        if writer { Ok(()) } else { Err("the writer ended badly".to_owned()) }
    }

    /// Judges the view of each node. A node whose agent died gets a new one first.
    fn judge_on_nodes(&mut self) -> Result<(), String> {
        if std::mem::take(&mut self.agent_is_dead) {
            self.cluster.unmount(FIRST);
            let options = self.round.options(&self.cluster);
            self.cluster.mount(FIRST, &options.iter().map(String::as_str).collect::<Vec<_>>());
        }
        for node in FIRST..=PROGRAMS as usize {
            let dir = self.cluster.node(node);
            self.judge(&dir, &format!("on node {node}"))?;
        }
        Ok(())
    }

    fn judge(&self, dir: &Path, r#where: &str) -> Result<(), String> {
        for (number, program) in self.programs.iter().enumerate() {
            program.judge(&dir.join(format!("program-{number}")), r#where)?;
        }
        let written = self.writer.iter().try_for_each(|writer| writer.judge(dir));
        written.map_err(|why| format!("{}: {why}", r#where))
    }

    /// Ends the server and checks that everything is in the global store.
    fn end(&mut self) -> Result<(), String> {
        if self.agent_is_dead {
            // The point was hit by the eviction, with the agent in its company.
            self.judge_on_nodes()?;
        }
        let mut status = self.cluster.end_server_by(Signal::TERM);
        if status == "137\n" && self.round.falls == Falls::Server && !self.fallen {
            self.fallen = true;
            self.cluster.start_server();
            status = self.cluster.end_server_by(Signal::TERM);
        }
        let burst_buffer = self.burst_buffer();
        let buffer = burst_buffer.to_str().expect("a path of ours");
        if status != "0\n" && may_orphan(&self.programs) {
            let (_, said) = self.forebay(&["recover", buffer]);
            Orphans::listed(&said)?.discard(&burst_buffer, &|words| self.forebay(words))?;
        } else if status != "0\n" {
            return Err(format!("the server ended with {status}"));
        }
        self.judge(&self.cluster.data, "in the global store")?;
        let (code, said) = self.forebay(&["check", buffer]);
        let sound = code == 0 && said.contains(", 0 dirty, 0 need a decision");
        if sound { Ok(()) } else { Err(format!("check ended with {code}:\n{said}")) }
    }

    fn burst_buffer(&self) -> PathBuf {
        self.cluster.tree.path("bb")
    }

    /// Runs a command on the server's machine.
    fn forebay(&self, words: &[&str]) -> (i32, String) {
        let done = self.cluster.command(0, words);
        let said = [done.stdout, done.stderr].concat();
        (done.status.code().unwrap_or(-1), String::from_utf8_lossy(&said).into_owned())
    }

    fn logs(&self) -> String {
        let mut names = vec!["server.log".to_owned(), "bb/agent.log".to_owned()];
        names.extend((FIRST..=PROGRAMS as usize).map(|node| format!("node{node}.log")));
        let tail = |name: String| {
            let text = std::fs::read_to_string(self.cluster.tree.path(&name)).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            format!("{name}:\n{}\n", lines[lines.len().saturating_sub(30)..].join("\n"))
        };
        names.into_iter().map(tail).collect()
    }
}

fn ended(process: &mut ProcessGuard) -> bool {
    process.ended().is_some()
}
