//! Main loop of a process or group leader: commands arrive on standard input, replies go to standard output.

use std::io::{self, BufReader, Write};

use super::fleet::{Fleet, Launcher};
use super::message::{Command, Reply, Task, receive, send};
use super::pattern::Kind;
use super::phase::Worker;
use super::processor::Place;
use crate::clock::{now_ns, wait_until};
use crate::counters::Counters;
use crate::failure::Failure;

/// Time before the start, in nanoseconds, in which a process may leave its assigned processor. More than the call
/// takes, less than the scheduler's period.
const PLACE_LEFT: u64 = 50_000;

/// Serves until standard input ends. The first command determines whether this is a group leader or a process.
pub fn serve(launcher: &Launcher) -> Result<(), Failure> {
    let mut from = BufReader::new(io::stdin());
    let mut to = io::stdout();
    match receive::<Command>(&mut from)? {
        Some(Command::Work { rank, task }) => {
            send(&mut to, &Reply::Ready { resident: None })?;
            work(&mut from, &mut to, Worker::new(rank, task))
        }
        Some(Command::Lead { group, task }) => lead(&mut from, &mut to, launcher, group, &task),
        Some(_) => Err(Failure::defect("the first command was none to begin with")),
        None => Ok(()),
    }
}

fn work(from: &mut impl io::BufRead, to: &mut impl Write, mut worker: Worker) -> Result<(), Failure> {
    let mut kind = None;
    while let Some(command) = receive::<Command>(from)? {
        let reply = match command {
            Command::Prepare { kind: next, common } => {
                kind = Some(next);
                match worker.prepare(next, common) {
                    Ok(resident) => Reply::Ready { resident },
                    Err(error) => Reply::Failed { what: format!("preparing {next}: {error}") },
                }
            }
            Command::Clock => Reply::Clock { now_ns: now_ns() },
            Command::Look => Reply::Seen { counters: Counters::now() },
            Command::Go { at_ns, until_ns } => go(&mut worker, kind.take(), at_ns, until_ns),
            Command::Work { .. } | Command::Lead { .. } => Reply::Failed { what: "told to begin twice".to_string() },
        };
        send(to, &reply)?;
    }
    Ok(())
}

fn go(worker: &mut Worker, kind: Option<Kind>, at_ns: u64, until_ns: u64) -> Reply {
    let Some(kind) = kind else { return Reply::Failed { what: "told to go unprepared".to_string() } };
    let place = Place::of(worker.rank());
    wait_until(at_ns.saturating_sub(PLACE_LEFT));
    place.leave();
    wait_until(at_ns);
    Reply::Done { samples: vec![worker.run(kind, until_ns)], lost: Vec::new() }
}

fn lead(
    from: &mut impl io::BufRead,
    to: &mut impl Write,
    launcher: &Launcher,
    group: u64,
    task: &Task,
) -> Result<(), Failure> {
    let ranks = (0..task.processes).map(|process| group * task.processes + process);
    let begin = ranks.map(|rank| (format!("process {rank}"), Command::Work { rank, task: task.clone() }));
    let mut fleet = Fleet::start(launcher, begin)?;
    send(to, &fleet.gather(None))?;
    while let Some(command) = receive::<Command>(from)? {
        // The leader's processes are on this host, and share its clock and counters.
        let reply = match &command {
            Command::Clock => Reply::Clock { now_ns: now_ns() },
            Command::Look => Reply::Seen { counters: Counters::now() },
            _ => {
                fleet.tell(&command);
                fleet.gather(Some(&command))
            }
        };
        send(to, &reply)?;
    }
    Ok(())
}
