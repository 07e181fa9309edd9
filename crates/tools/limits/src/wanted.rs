//! Conversion of a sweep's arguments to options: the target, the pattern, the limits.

use std::path::Path;

use crate::args::{Length, PatternArgs, SweepArgs};
use crate::cluster::Cluster;
use crate::counters::Behind;
use crate::failure::Failure;
use crate::plan::Plan;
use crate::results::{Results, Stage};
use crate::sweep::{Known, Options, distinct, uncached_seconds};
use crate::workload::{Host, Kind, Pattern};

/// Returns the options of a sweep. Errors: the argument and the problem.
pub fn options(args: &SweepArgs) -> Result<Options, Failure> {
    let target = args.target.canonicalize().map_err(|error| {
        Failure::input(format!("cannot use {}: {error}; --target must be an existing directory", args.target.display()))
    })?;
    if let Some(missing) = args.across.iter().find(|directory| !target.join(directory).is_dir()) {
        let (missing, target) = (missing.display(), target.display());
        return Err(Failure::input(format!(
            "{missing} is no directory in {target}: --across takes directories of the target"
        )));
    }
    let known = known(args, &target)?;
    let mut options = Options {
        target,
        across: args.across.clone(),
        groups: distinct(args.groups.iter().copied()),
        processes: distinct(args.processes.iter().copied()),
        pattern: pattern(Pattern::preset(args.pattern), &args.change)?,
        seconds: if let Length::Of(time) = args.time { time.as_secs_f64() } else { 0.0 },
        repeat: args.repeat,
        warm_up: args.warm_up,
        seed: args.seed,
        known,
        hosts: args.hosts.clone(),
        io_nodes: args.io_nodes.clone(),
    };
    if args.time == Length::Uncached {
        options.seconds = uncached_seconds(&options).ok_or_else(|| {
            Failure::usage(
                "--time uncached needs a pattern that writes or reads data, and --limit, --plan or --probe: how fast can it be?",
            )
        })?;
    }
    Ok(options)
}

/// Returns the named hosts of a sweep, groups' or I/O nodes, each with its program.
pub fn hosts(args: &SweepArgs, named: &[String]) -> Result<Vec<Host>, Failure> {
    let program = args.remote_program.as_deref();
    named.iter().map(|host| Host::parse(host, program).map_err(Failure::usage)).collect()
}

fn pattern(mut pattern: Pattern, change: &PatternArgs) -> Result<Pattern, Failure> {
    pattern.transfer = change.transfer.unwrap_or(pattern.transfer);
    pattern.size_max = change.size.unwrap_or(pattern.size_max);
    pattern.files_max = change.files.unwrap_or(pattern.files_max);
    pattern.layout = change.layout.unwrap_or(pattern.layout);
    pattern.sync = change.sync.unwrap_or(pattern.sync);
    pattern.random |= change.random;
    pattern.direct |= change.direct;
    if change.read && !pattern.phases.contains(&Kind::Read) {
        if !pattern.phases.contains(&Kind::Write) {
            return Err(Failure::usage(format!(
                "--read goes with patterns that write data, not with {}",
                pattern.name
            )));
        }
        pattern.phases.push(Kind::Read);
    }
    Ok(pattern)
}

fn known(args: &SweepArgs, target: &Path) -> Result<Known, Failure> {
    if let Some(limit) = args.limit.map(|limit| limit.bytes_per_s()) {
        let both = Some(limit);
        let source = "--limit".to_string();
        return Ok(Known { write_bytes_per_s: both, read_bytes_per_s: both, client_bytes_per_s: None, source });
    }
    if let Some(path) = &args.probe {
        return measured(path, target);
    }
    let Some(path) = &args.plan else { return Ok(Known::default()) };
    let plan = Plan::of(&Cluster::read(path)?, &[])?;
    Ok(Known::of_plan(&plan, path))
}

/// Returns the limits that a probe of the target's file system measured.
fn measured(path: &Path, target: &Path) -> Result<Known, Failure> {
    let Stage::Probe(probe) = Results::load(path)?.stage else {
        return Err(Failure::input(format!("{} holds no results of `probe`", path.display())));
    };
    let behind = Behind::of(target);
    let medium = probe.media.iter().find(|medium| medium.behind == behind).ok_or_else(|| {
        let (path, mount) = (path.display(), behind.mount.display());
        Failure::input(format!("{path} measured no directory of {mount}: run `probe --media {}`", target.display()))
    })?;
    Ok(Known {
        write_bytes_per_s: Some(medium.write_bytes_per_s).filter(|rate| *rate > 0.0),
        read_bytes_per_s: Some(medium.read_bytes_per_s).filter(|rate| *rate > 0.0),
        client_bytes_per_s: None,
        source: path.display().to_string(),
    })
}
