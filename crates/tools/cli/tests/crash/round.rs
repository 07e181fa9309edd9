//! One crash: programs tell stories in a mounted directory, something dies, and the remains are recovered and judged.

use std::os::unix::process::ExitStatusExt;

use rustix::process::Signal;
use testkit::wait_until;

use crate::ledger;
use crate::mounted::{Agent, BOUND, Place};
use crate::program::AGENT_GONE;
use crate::programs::{Orphans, PROGRAMS, Program, first_files, may_orphan};
use crate::writer::Writer;

/// Ways in which programs write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Door {
    /// Writes through the kernel.
    Kernel,
    /// Writes through windows, by the library.
    Preload,
}

/// Number of records written by the program that writes records beside the stories.
const RECORDS: u64 = 2000;

/// Victim of the crash, and its moment.
#[derive(Debug, Clone, Copy)]
pub enum Death {
    /// The agent, or the recovery after it, at a fault point: `name:nth`.
    AtPoint(&'static str, u32),
    /// The agent, after this number of acknowledgements of the first program.
    OfAgent(usize),
    /// The first program after this number of acknowledgements, together with the writer of records.
    OfProgram(usize),
    /// All of them, after this number of acknowledgements.
    OfAll(usize),
}

/// Action that follows a crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Afterwards {
    /// `forebay recover`
    Recover,
    /// The directory is mounted again, judged through the mount, and unmounted.
    MountAgain,
}

/// Plan of one crash.
#[derive(Debug, Clone, Copy)]
pub struct Round {
    pub door: Door,
    pub death: Death,
    pub afterwards: Afterwards,
    pub rules: &'static [&'static str],
    pub seed: u64,
}

/// Summary of one round.
#[derive(Debug, Clone, Copy, Default)]
pub struct Played {
    /// Whether the fault point was hit.
    pub hit: bool,
    /// Whether a live process was killed.
    pub killed: bool,
    /// Number of the writer's acknowledged records that were judged.
    pub records: usize,
}

/// Processes that run in the directory.
#[derive(Default)]
struct Cast {
    /// Programs that tell stories.
    programs: Vec<Program>,
    /// Program that writes records beside them; `None` until programs have run.
    writer: Option<Writer>,
    /// Whether they, or their agent, lived until they were killed.
    killed: bool,
}

impl Cast {
    fn start(place: &Place, agent: &Agent<'_>, door: Door, seed: u64) -> Cast {
        let variables = ["FOREBAY_WINDOW_SOCKET", "LD_PRELOAD"];
        let variables = if door == Door::Preload { &variables[..] } else { &[] };
        let how: Vec<_> = variables.iter().map(|variable| (*variable, agent.exported(variable))).collect();
        let how: Vec<_> = how.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let beside = |name: &str| place.beside(name);
        let programs = (0..PROGRAMS).map(|number| Program::start(&place.dir, number, seed, &beside, &how)).collect();
        let writer = Some(Writer::start(&place.dir, RECORDS, &beside, &how));
        Cast { programs, writer, killed: false }
    }

    fn kill(&self) {
        let processes = self.programs.iter().take(1).map(|program| &program.process);
        processes.chain(self.writer.iter().map(|writer| &writer.process)).for_each(|one| one.signal(Signal::KILL));
    }

    fn have_ended(&mut self) -> bool {
        self.programs.iter_mut().all(|program| program.process.ended().is_some())
            && self.writer.iter_mut().all(|writer| writer.process.ended().is_some())
    }

    fn judge(&self, place: &Place, r#where: &str) -> Result<(), String> {
        self.programs.iter().try_for_each(|program| program.judge(&program.dir, r#where))?;
        let written = self.writer.iter().try_for_each(|writer| writer.judge(&place.dir));
        written.map_err(|why| format!("{}: {why}", r#where))
    }

    fn told(&self) -> String {
        self.programs.iter().map(Program::told).chain(self.writer.iter().map(Writer::told)).collect()
    }
}

impl Round {
    /// Plays the round. Errors: the promise that was broken.
    pub fn play(&self) -> Result<Played, String> {
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
        let cast = self.run(&place, &environment).map_err(why)?;
        self.recover(&place, if log.exists() { &[] } else { &environment }, &cast)
            .map_err(|broken| format!("{}\n{}", why(broken), cast.told()))?;
        let records = cast.writer.iter().map(Writer::acknowledged).sum();
        Ok(Played { hit: log.exists(), killed: cast.killed, records })
    }

    fn mount<'a>(&self, place: &'a Place, environment: &[(&str, &str)]) -> Result<Agent<'a>, String> {
        let windows = format!("--window={}", place.beside("rings").display());
        let options = [windows.as_str()];
        let options = if self.door == Door::Preload { &options[..] } else { &[] };
        place.try_mount_with(options, self.rules, environment)
    }

    /// Plays from the first files to the death of the agent, or to the unmount if it lives.
    fn run(&self, place: &Place, environment: &[(&str, &str)]) -> Result<Cast, String> {
        let first = || {
            (0..PROGRAMS)
                .try_for_each(|number| first_files(&place.dir.join(format!("program-{number}")), self.seed + number))
        };
        // Directories that are made through the mount are delegated.
        let is_delegated = self.rules.contains(&"delegate=new");
        if !is_delegated {
            first().map_err(|error| format!("no first files: {error}"))?;
        }
        let mut agent = match self.mount(place, environment) {
            Ok(agent) => agent,
            // A fault point in the start itself: no program has run.
            Err(_) if place.beside("fault").exists() => return Ok(Cast::default()),
            Err(said) => return Err(format!("no mount: {said}")),
        };
        match if is_delegated { first() } else { Ok(()) } {
            // A fault point in the work on the first files: no program has run.
            Err(_) if place.beside("fault").exists() => {
                place.detach();
                return Ok(Cast::default());
            }
            Err(error) => return Err(format!("no first files: {error}")),
            Ok(()) => {}
        }
        let mut cast = Cast::start(place, &agent, self.door, self.seed);
        let (mut killed, mut agent_is_killed) = (false, false);
        wait_until("the end of the agent or of the programs", BOUND, || {
            let acknowledged = ledger::read(&cast.programs[0].ledger).acknowledged;
            let (of_agent, of_program) = match self.death {
                Death::OfAgent(after) => (acknowledged >= after, false),
                Death::OfProgram(after) => (false, acknowledged >= after),
                Death::OfAll(after) => (acknowledged >= after, acknowledged >= after),
                Death::AtPoint(..) => (false, false),
            };
            if of_program && !killed {
                cast.killed |= cast.programs[0].process.ended().is_none();
                cast.kill();
            }
            if of_agent && !killed && !agent.has_ended() {
                cast.killed = true;
                agent_is_killed = true;
                agent.kill();
            }
            killed |= of_agent || of_program;
            agent.has_ended() || cast.have_ended()
        });
        if agent.has_ended() && !agent_is_killed && !place.beside("fault").exists() {
            return Err("the agent ended by itself".to_owned());
        }
        self.see_ends(&mut cast)?;
        self.end(place, agent)?;
        Ok(cast)
    }

    fn see_ends(&self, cast: &mut Cast) -> Result<(), String> {
        let end = |status: std::process::ExitStatus| self.explains(status.code(), status.signal());
        for program in &mut cast.programs {
            if !end(program.process.wait(BOUND)) {
                return Err(program.ended_badly());
            }
        }
        let badly = cast.writer.iter_mut().find_map(|writer| (!end(writer.process.wait(BOUND))).then(|| writer.told()));
        badly.map_or(Ok(()), |told| Err(format!("the writer ended badly: {told}")))
    }

    /// Returns whether the planned death explains a program's end: success, the agent's death, or the signals sent.
    fn explains(&self, code: Option<i32>, signal: Option<i32>) -> bool {
        let killed = matches!(self.death, Death::OfProgram(_) | Death::OfAll(_));
        match (code, signal) {
            (Some(0), _) => true,
            (Some(AGENT_GONE), _) | (_, Some(libc::SIGBUS)) => !matches!(self.death, Death::OfProgram(_)),
            (_, Some(libc::SIGKILL)) => killed,
            _ => false,
        }
    }

    /// Ends a live agent: replicas are dropped and everything is drained, which may reach the point.
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

    fn recover(&self, place: &Place, environment: &[(&str, &str)], cast: &Cast) -> Result<(), String> {
        let programs = &cast.programs;
        if self.afterwards == Afterwards::MountAgain {
            match self.mount(place, environment) {
                Ok(agent) => {
                    let judged = cast.judge(place, "through the new mount");
                    let unmounted = agent.unmount();
                    if !place.beside("fault").exists() {
                        judged?;
                        unmounted.or_else(|why| if may_orphan(programs) { Ok(()) } else { Err(why) })?;
                    }
                }
                Err(said) if !place.beside("fault").exists() => return Err(format!("no new mount: {said}")),
                Err(_) => {}
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
        cast.judge(place, "in the global store").map_err(|why| format!("{why}\nrecover said:\n{}", ended.text))?;
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
