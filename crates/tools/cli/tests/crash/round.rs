//! One crash: programs tell stories in a mounted directory, something dies, and what is left is recovered and judged.

use std::os::unix::process::ExitStatusExt;

use rustix::process::Signal;
use testkit::wait_until;

use crate::ledger;
use crate::mounted::{Agent, BOUND, Place};
use crate::program::AGENT_GONE;
use crate::programs::{Orphans, PROGRAMS, Program, first_files, may_orphan};

/// Who is killed, and when.
#[derive(Debug, Clone, Copy)]
pub enum Death {
    /// The agent, or the recovery after it, where a fault point says: `name:nth`.
    AtPoint(&'static str, u32),
    /// The agent, once the first program has so many acknowledgements.
    OfAgent(usize),
    /// The first program, likewise.
    OfProgram(usize),
}

/// What follows a crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Afterwards {
    /// `forebay recover`
    Recover,
    /// The directory is mounted again, judged through the mount, and unmounted.
    MountAgain,
}

/// A crash to be.
#[derive(Debug, Clone, Copy)]
pub struct Round {
    pub death: Death,
    pub afterwards: Afterwards,
    pub rules: &'static [&'static str],
    pub seed: u64,
}

impl Round {
    /// Plays it. Whether its fault point was hit; `Err` says which promise was broken.
    pub fn play(&self) -> Result<bool, String> {
        let place = Place::new();
        let log = place.beside("fault");
        let armed = match self.death {
            Death::AtPoint(name, nth) => format!("{name}:{nth}"),
            _ => String::new(),
        };
        let mut environment = vec![("FOREBAY_FAULT_LOG", log.to_str().expect("a path of ours"))];
        if !armed.is_empty() {
            environment.push(("FOREBAY_FAULT", &armed));
        }
        let why = |why: String| format!("{self:?}:\n{why}\n{}", place.agent_log());
        let programs = self.run(&place, &environment).map_err(why)?;
        let told = || programs.iter().map(Program::told).collect::<String>();
        self.recover(&place, if log.exists() { &[] } else { &environment }, &programs)
            .map_err(|broken| format!("{}\n{}", why(broken), told()))?;
        Ok(log.exists())
    }

    /// From the first files to the death of the agent, or to the unmount if it lives.
    fn run(&self, place: &Place, environment: &[(&str, &str)]) -> Result<Vec<Program>, String> {
        for number in 0..PROGRAMS {
            first_files(&place.dir.join(format!("program-{number}")), self.seed + number);
        }
        let mut agent = match place.try_mount(self.rules, environment) {
            Ok(agent) => agent,
            // A fault point in the start itself: no program has run.
            Err(_) if place.beside("fault").exists() => return Ok(Vec::new()),
            Err(said) => return Err(format!("no mount: {said}")),
        };
        let mut programs: Vec<Program> = (0..PROGRAMS)
            .map(|number| Program::start(&place.dir, number, self.seed, &|name| place.beside(name), &[]))
            .collect();
        let mut killed = false;
        wait_until("the end of the agent or of the programs", BOUND, || {
            let acknowledged = ledger::read(&programs[0].ledger).acknowledged;
            match self.death {
                Death::OfAgent(after) if acknowledged >= after && !killed => {
                    agent.kill();
                    killed = true;
                }
                Death::OfProgram(after) if acknowledged >= after && !killed => {
                    programs[0].process.signal(Signal::KILL);
                    killed = true;
                }
                _ => {}
            }
            agent.has_ended() || programs.iter_mut().all(|program| program.process.ended().is_some())
        });
        for program in &mut programs {
            self.end_of(program)?;
        }
        self.end(place, agent)?;
        Ok(programs)
    }

    /// A program may end well, by the agent's death, or by the signals that explains.
    fn end_of(&self, program: &mut Program) -> Result<(), String> {
        let status = program.process.wait(BOUND);
        let explained = match (status.code(), status.signal()) {
            (Some(0), _) => true,
            (Some(AGENT_GONE), _) | (_, Some(libc::SIGBUS)) => !matches!(self.death, Death::OfProgram(_)),
            (_, Some(libc::SIGKILL)) => matches!(self.death, Death::OfProgram(_)),
            _ => false,
        };
        if explained {
            return Ok(());
        }
        Err(program.ended_badly())
    }

    /// The agent's end if it still lives: replicas are dropped and everything is drained, which may reach the point.
    fn end(&self, place: &Place, mut agent: Agent<'_>) -> Result<(), String> {
        if !agent.has_ended() {
            agent.evict_all();
            let unmounted = agent.unmount();
            if !place.beside("fault").exists() {
                unmounted?;
            }
        }
        place.detach();
        Ok(())
    }

    fn recover(&self, place: &Place, environment: &[(&str, &str)], programs: &[Program]) -> Result<(), String> {
        if self.afterwards == Afterwards::MountAgain {
            let agent = place.try_mount(self.rules, environment);
            if let Ok(agent) = agent {
                let judged = judge(programs, "through the new mount");
                let unmounted = agent.unmount();
                if !place.beside("fault").exists() {
                    judged?;
                    unmounted.or_else(|why| if may_orphan(programs) { Ok(()) } else { Err(why) })?;
                }
            }
            place.detach();
        } else {
            place.recover(environment);
        }
        // The recovery itself may have died; the next one succeeds.
        let mut ended = place.recover(&[]);
        if may_orphan(programs) && Orphans::listed(&ended.text)?.discard(&place.burst_buffer, &forebay(place))? {
            ended = place.recover(&[]);
        }
        judge(programs, "in the global store").map_err(|why| format!("{why}\nrecover said:\n{}", ended.text))?;
        if ended.code != 0 {
            return Err(format!("recover ended with {}:\n{}", ended.code, ended.text));
        }
        place.check()
    }
}

fn forebay(place: &Place) -> impl Fn(&[&str]) -> (i32, String) {
    |words| {
        let ended = place.forebay(words, &[]);
        (ended.code, ended.text)
    }
}

fn judge(programs: &[Program], r#where: &str) -> Result<(), String> {
    programs.iter().try_for_each(|program| program.judge(&program.dir, r#where))
}
