//! From words to results: each subcommand in a few lines.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use crate::args::{FactorsArgs, LimitsArgs, PlanArgs, ProbeArgs, ReportArgs, SweepArgs, WatchArgs};
use crate::cluster::Cluster;
use crate::experiments;
use crate::factors::{self, Factors};
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::plan::{self, Plan};
use crate::probe::{self, Probe};
use crate::progress::Progress;
use crate::report::Report;
use crate::results::{self, Results, Stage};
use crate::sweep::{self, Sweep};
use crate::wanted;
use crate::watch;
use crate::workload::{self, Launcher};

/// Runs a subcommand, prints its results or what is wrong.
pub fn run(args: LimitsArgs) -> ExitCode {
    match execute(args) {
        Ok(code) => code,
        Err(failure) => {
            let _ = writeln!(std::io::stderr(), "forebay limits: {failure}");
            ExitCode::from(failure.code)
        }
    }
}

fn execute(args: LimitsArgs) -> Result<ExitCode, Failure> {
    match args {
        LimitsArgs::Plan(args) => plan(&args),
        LimitsArgs::Sweep(args) => sweep(&args),
        LimitsArgs::Probe(args) => probe(&args),
        LimitsArgs::Watch(args) => watch(&args),
        LimitsArgs::Factors(args) => factors(&args),
        LimitsArgs::Report(args) => report(&args),
        LimitsArgs::Experiments(args) => {
            Ok(if experiments::run(&args, &print)? { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        LimitsArgs::Peer { listen } => {
            let told = |address| print(&format!("listening on {address}"));
            probe::serve_peer(&listen, &told).map(|()| ExitCode::SUCCESS)
        }
        LimitsArgs::Worker { crossing: Some(ns), .. } => told(&probe::serve_crossing(Duration::from_nanos(ns))?),
        LimitsArgs::Worker { calls: Some(ns), .. } => told(&probe::serve_calls(Duration::from_nanos(ns))?),
        LimitsArgs::Worker { .. } => workload::serve(&Launcher::own()?).map(|()| ExitCode::SUCCESS),
    }
}

fn plan(args: &PlanArgs) -> Result<ExitCode, Failure> {
    let cluster = cluster(&args.cluster)?;
    let plan = Plan::of(&cluster, &args.what_if).map_err(|error| Failure::usage(error.to_string()))?;
    let text = plan::render(&plan);
    show(Stage::Plan(plan), &text, args.json, args.output.as_deref())
}

fn sweep(args: &SweepArgs) -> Result<ExitCode, Failure> {
    let options = wanted::options(args)?;
    if let Some(fault) = options.fault() {
        return Err(Failure::usage(fault));
    }
    if args.dry_run {
        print(&sweep::estimate(&options).render(&options));
        return Ok(ExitCode::SUCCESS);
    }
    let launcher = Launcher::own()?.on(&wanted::hosts(args)?).seeing(&wanted::io_nodes(args)?);
    let earlier = args.output.as_deref().filter(|path| path.exists());
    let sweep = match earlier {
        Some(path) => Sweep::resume(path, options)?,
        None => Sweep::new(options),
    };
    let mut results = Results::new(Stage::Sweep(sweep.clone()));
    let mut sweep = sweep;
    let mut save = |sweep: &Sweep| {
        results.stage = Stage::Sweep(sweep.clone());
        args.output.as_deref().map_or(Ok(()), |path| results.save(path))
    };
    let mut bar = Progress::new(args.quiet);
    let interrupt = Interrupt::expect();
    let outcome = sweep.run(&launcher, &interrupt, &mut save, &mut |done, all, what| bar.update(done, all, what));
    bar.finish();
    outcome?;
    let text = if args.json { results.text()? } else { sweep::render(&sweep) };
    print(&text);
    Ok(if sweep.complete { ExitCode::SUCCESS } else { ExitCode::from(Failure::INCOMPLETE) })
}

fn probe(args: &ProbeArgs) -> Result<ExitCode, Failure> {
    let cluster = args.cluster.as_deref().map(cluster).transpose()?;
    let mut media = args.media.clone();
    let documented = cluster.iter().flat_map(|cluster| &cluster.media).filter_map(|medium| medium.dir.clone());
    media.extend(documented.filter(|directory| !args.media.contains(directory)));
    if let Some(missing) = media.iter().find(|directory| !directory.is_dir()) {
        return Err(Failure::input(format!("{} is no directory: --media and media.dir need one", missing.display())));
    }
    let options = probe::Options {
        media,
        devices: args.device.clone(),
        peers: args.peer.clone(),
        time: args.time,
        launcher: Launcher::own()?,
        size_max: args.size,
    };
    if args.dry_run {
        print(&options.estimate());
        return Ok(ExitCode::SUCCESS);
    }
    let mut bar = Progress::new(args.quiet);
    let found = Probe::run(&options, cluster.as_ref(), &mut |done, all, what| bar.update(done, all, what));
    bar.finish();
    let (text, whole) = (probe::render(&found), found.is_whole());
    let shown = show(Stage::Probe(found), &text, args.json, args.output.as_deref())?;
    Ok(if whole { shown } else { ExitCode::from(Failure::INCOMPLETE) })
}

/// What a child measured, for its parent.
fn told<T: serde::Serialize>(found: &T) -> Result<ExitCode, Failure> {
    print(&serde_json::to_string(found).map_err(|error| Failure::defect(error.to_string()))?);
    Ok(ExitCode::SUCCESS)
}

fn watch(args: &WatchArgs) -> Result<ExitCode, Failure> {
    if args.interval.is_zero() {
        return Err(Failure::usage("--interval must be above zero"));
    }
    let _interrupt = Interrupt::expect();
    let seen = watch::watch(&args.command, args.interval)?;
    let (status, text) = (seen.status, watch::render(&seen));
    let results = Results::new(Stage::Watch(seen));
    let text = if args.json { results.text()? } else { text };
    let _ = writeln!(std::io::stderr(), "{}", text.trim_end());
    if let Some(path) = &args.output {
        results.save(path)?;
    }
    Ok(ExitCode::from(status))
}

fn factors(args: &FactorsArgs) -> Result<ExitCode, Failure> {
    if !args.target.is_dir() {
        return Err(Failure::input(format!("{} is no directory: --target needs one", args.target.display())));
    }
    if args.repeat == 0 || args.size < 16 << 20 {
        return Err(Failure::usage("--repeat must be at least 1 and --size at least 16MiB"));
    }
    let options =
        factors::Options { target: args.target.clone(), time: args.time, repeat: args.repeat, size_max: args.size };
    if args.dry_run {
        print(&options.estimate());
        return Ok(ExitCode::SUCCESS);
    }
    let mut bar = Progress::new(args.quiet);
    let outcome = Factors::run(&options, &mut |done, all, what| bar.update(done, all, what));
    bar.finish();
    let found = outcome?;
    let text = factors::render(&found);
    show(Stage::Factors(found), &text, args.json, args.output.as_deref())
}

fn report(args: &ReportArgs) -> Result<ExitCode, Failure> {
    let report = Report::read(&args.results)?;
    match &args.output {
        Some(path) => {
            results::save(path, report.form(path)?.as_bytes())?;
            report.verdict.iter().for_each(|words| print(words));
        }
        None if args.json => print(&report.json()?),
        None => print(&report.text()),
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn cluster(path: &Path) -> Result<Cluster, Failure> {
    Cluster::read(path).map_err(|error| Failure::input(error.to_string()))
}

/// Prints text or JSON, and writes the file.
fn show(stage: Stage, text: &str, json: bool, output: Option<&Path>) -> Result<ExitCode, Failure> {
    let results = Results::new(stage);
    let text = if json { results.text()? } else { text.to_string() };
    print(&text);
    if let Some(path) = output {
        results.save(path)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A closed pipe (`| head`) is no error.
fn print(text: &str) {
    let _ = writeln!(std::io::stdout(), "{}", text.trim_end());
}
