//! `forebay stage`, `drain`, `quiesce`: moving data by hand.

use std::cell::Cell;
use std::path::{Path, PathBuf};

use agent::control::{ControlRequest, Counts, Reply, Verb};
use types::Shown;

use crate::args::{DrainArgs, QuiesceArgs, StageArgs, StageCommand};
use crate::exit::{self, Failure, out, say};
use crate::link::{self, Link};
use crate::progress::{Progress, State};

pub fn run(command: &StageCommand) -> Result<u8, Failure> {
    let (verb, args) = match command {
        StageCommand::In(args) => (Verb::In, args),
        StageCommand::Out(args) => (Verb::Out, args),
        StageCommand::Evict(args) => (Verb::Evict, args),
        StageCommand::Pin(args) => (Verb::Pin, args),
        StageCommand::Unpin(args) => (Verb::Unpin, args),
        StageCommand::State(args) => (Verb::State, args),
    };
    let mut links: Vec<(Link, Vec<PathBuf>)> = Vec::new();
    for path in &args.paths {
        let (target, inside) = link::target(path, args.burst_buffer.get().as_deref())?;
        match links.iter_mut().find(|(link, _)| link.burst_buffer == target.burst_buffer) {
            Some((_, paths)) => paths.push(inside),
            None => links.push((link::connect(target)?, vec![inside])),
        }
    }
    let mut code = 0;
    for (mut link, paths) in links {
        code = stage(&mut link, verb, paths, args)?.max(code);
    }
    Ok(code)
}

fn stage(link: &mut Link, verb: Verb, paths: Vec<PathBuf>, args: &StageArgs) -> Result<u8, Failure> {
    let dir = link.dir.clone();
    let failed = Cell::new(false);
    let wait = args.wait;
    let request = ControlRequest::Stage { verb, paths, recursive: args.recursive, wait };
    let mut progress = Progress::of_files("staging", verb == Verb::State);
    let result = link.ask(&request, |reply| {
        State::of(reply).into_iter().for_each(|state| progress.update(state));
        let Reply::Item(item) = reply else { return };
        let path = dir.join(&item.path);
        progress.aside(|| match &item.error {
            Some(error) => {
                failed.set(true);
                say!(
                    "forebay: {}: {} ({})",
                    path.shown(),
                    error.split(" (os error").next().unwrap_or(error),
                    item.state
                );
            }
            None => {
                let pinned = if item.pinned { ",pinned" } else { "" };
                out!("{:<10} {}", format!("{}{pinned}", item.state), path.shown())
            }
        });
    });
    progress.finish();
    let result = result?;
    let counts: Counts = serde_json::from_value(result).unwrap_or_default();
    Ok(match (failed.get() || counts.failed > 0, verb) {
        (false, _) => 0,
        (true, Verb::Out) => exit::UNDRAINED,
        (true, _) => exit::UNAVAILABLE,
    })
}

pub fn drain(args: &DrainArgs) -> Result<u8, Failure> {
    let (mut link, inside) = link::to(&args.dir, args.burst_buffer.get().as_deref())?;
    if args.wait {
        return drain_and_list(&mut link, &inside);
    }
    let path = (!inside.as_os_str().is_empty()).then_some(inside);
    link.ask(&ControlRequest::Drain { path, wait: false, patience_ms: None }, |_| {}).map(|_| 0)
}

fn drain_and_list(link: &mut Link, inside: &Path) -> Result<u8, Failure> {
    let stuck = link.drain(inside, None)?;
    if stuck.is_empty() {
        return Ok(0);
    }
    link.list(&stuck);
    Ok(exit::UNDRAINED)
}

pub fn quiesce(args: &QuiesceArgs) -> Result<u8, Failure> {
    let (mut link, _) = link::to(&args.dir, args.burst_buffer.get().as_deref())?;
    if args.resume {
        return link.ask(&ControlRequest::Resume, |_| {}).map(|_| 0);
    }
    link.ask(&ControlRequest::Quiesce, |_| {})?;
    drain_and_list(&mut link, Path::new(""))
}
