//! One crash: programs tell stories in a mounted directory, something dies, and what is left is recovered and judged.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};

use rustix::process::Signal;
use testkit::{ProcessGuard, wait_until};

use crate::ledger;
use crate::mounted::{Agent, BOUND, Place};
use crate::program::{self, AGENT_GONE};
use crate::story::{Model, NAMES, Step};
use crate::verdict;

/// Programs at once, each in a directory of its own.
const PROGRAMS: u64 = 2;
/// Steps of each.
const STEPS: usize = 70;

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

struct Program {
    process: ProcessGuard,
    dir: PathBuf,
    seed: u64,
    ledger: PathBuf,
    log: PathBuf,
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
        let mut programs: Vec<Program> = (0..PROGRAMS).map(|number| self.start(place, number)).collect();
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

    fn start(&self, place: &Place, number: u64) -> Program {
        let (dir, seed) = (place.dir.join(format!("program-{number}")), self.seed + number);
        let (ledger, log) = (place.beside(&format!("ledger-{number}")), place.beside(&format!("program-{number}.log")));
        let text = |path: &PathBuf| path.to_str().expect("a path of ours").to_owned();
        let words = ["story", &text(&dir), &seed.to_string(), &STEPS.to_string(), &text(&ledger)];
        Program { process: program::start(&words, &log), dir, seed, ledger, log }
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
        let log = fs::read_to_string(&program.log).unwrap_or_default();
        Err(format!("the program of seed {} ended with {status}:\n{log}", program.seed))
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
        if may_orphan(programs) && discard_orphans(place, &ended.text)? {
            ended = place.recover(&[]);
        }
        judge(programs, "in the global store").map_err(|why| format!("{why}\nrecover said:\n{}", ended.text))?;
        if ended.code != 0 {
            return Err(format!("recover ended with {}:\n{}", ended.code, ended.text));
        }
        place.check()
    }
}

impl Program {
    /// What it did, for a message.
    fn told(&self) -> String {
        let reading = ledger::read(&self.ledger);
        let steps = verdict::steps(self.seed, reading.acknowledged + usize::from(reading.unknown));
        format!("{}, {reading:?}:\n{}\n", self.dir.display(), verdict::print(&steps))
    }
}

/// The files that a program finds.
pub fn first_files(dir: &Path, seed: u64) {
    fs::create_dir_all(dir.join("sub")).expect("a directory");
    let model = Model::first(seed);
    for (name, file) in &model.names {
        fs::write(dir.join(NAMES[*name]), &model.files[file]).expect("a first file");
    }
}

/// A crash between the end of a name below and that of its record leaves dirty data whose file is gone: it is kept
/// until somebody decides. That is only so while a step that ends a name was on its way.
fn may_orphan(programs: &[Program]) -> bool {
    programs.iter().any(|program| {
        let reading = ledger::read(&program.ledger);
        let steps = verdict::steps(program.seed, reading.acknowledged + usize::from(reading.unknown));
        reading.unknown && matches!(steps.last(), Some(Step::Unlink { .. } | Step::Rename { .. }))
    })
}

/// Decides against the orphans that `recover` lists; whether there were any.
fn discard_orphans(place: &Place, said: &str) -> Result<bool, String> {
    let orphans = said.matches(": orphaned: ").count();
    let commands = said.lines().filter_map(|line| line.split_once("forebay resolve "));
    let identities: Vec<&str> = commands.filter_map(|(_, rest)| rest.split(' ').next()).collect();
    if identities.len() != orphans {
        return Err(format!("not only orphans are left:\n{said}"));
    }
    for identity in &identities {
        let buffer = place.burst_buffer.to_str().expect("a path of ours");
        let ended = place.forebay(&["resolve", identity, "--keep", "global", "--burst-buffer", buffer], &[]);
        if ended.code != 0 {
            return Err(format!("resolve ended with {}:\n{}", ended.code, ended.text));
        }
    }
    Ok(orphans > 0)
}

fn judge(programs: &[Program], r#where: &str) -> Result<(), String> {
    for program in programs {
        let reading = ledger::read(&program.ledger);
        verdict::judge(&program.dir, program.seed, reading)
            .map_err(|why| format!("{}, the program of seed {}: {why}", r#where, program.seed))?;
    }
    Ok(())
}
