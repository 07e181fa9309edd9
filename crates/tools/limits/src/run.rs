//! Execution of the subcommands.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use crate::args::{FactorsArgs, LimitsArgs, PlanArgs, ProbeArgs, ReportArgs, SweepArgs, WatchArgs};
use crate::bounds::{BLOCK_MAX, BLOCK_MIN};
use crate::cluster::Cluster;
use crate::experiments;
use crate::factors::{self, Factors};
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::kept::Kept;
use crate::plan::{self, Plan};
use crate::probe::{self, Probe};
use crate::progress::Progress;
use crate::report::Report;
use crate::results::{self, Stage};
use crate::sweep::{self, Sweep};
use crate::wanted;
use crate::watch;
use crate::workload::{self, Launcher};

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
        LimitsArgs::Worker { wire: Some(words), .. } => experiments::wire(&words).map(|()| ExitCode::SUCCESS),
        LimitsArgs::Worker { program: Some(words), rank, .. } => {
            if let Some(account) = experiments::program(&words, rank)? {
                told(&account)?;
            }
            Ok(ExitCode::SUCCESS)
        }
        LimitsArgs::Worker { .. } => workload::serve(&Launcher::own()?).map(|()| ExitCode::SUCCESS),
    }
}

fn plan(args: &PlanArgs) -> Result<ExitCode, Failure> {
    let mut kept = Kept::new(args.output.as_deref());
    kept.only(|stage| matches!(stage, Stage::Plan(_)))?;
    let cluster = Cluster::read(&args.cluster)?;
    let plan = Plan::of(&cluster, &args.what_if)?;
    let text = plan::render(&plan);
    let saved = kept.save(Stage::Plan(plan));
    print(&if args.json { kept.text()? } else { text });
    saved.map(|()| ExitCode::SUCCESS)
}

fn sweep(args: &SweepArgs) -> Result<ExitCode, Failure> {
    let options = wanted::options(args)?;
    if let Some(fault) = options.fault() {
        return Err(Failure::usage(fault));
    }
    if args.stage.dry_run {
        print(&sweep::estimate(&options).render(&options));
        return Ok(ExitCode::SUCCESS);
    }
    let launcher =
        Launcher::own()?.on(&wanted::hosts(args, &args.hosts)?).seeing(&wanted::hosts(args, &args.io_nodes)?);
    let mut kept = Kept::new(args.stage.output.as_deref());
    let take_up = |stage| if let Stage::Sweep(sweep) = stage { Some(sweep.resume(&options)) } else { None };
    let mut sweep = kept.earlier("a sweep", take_up)?.unwrap_or_else(|| Sweep::new(options.clone()));
    tell_finished(args.stage.quiet || !sweep.is_done(), args.stage.output.as_deref());
    let mut bar = Progress::new(args.stage.quiet);
    let interrupt = Interrupt::once();
    let mut save = |sweep: &Sweep| kept.save(Stage::Sweep(sweep.clone()));
    let outcome = sweep.run(&launcher, &interrupt, &mut save, &mut |done, all, what| bar.update(done, all, what));
    bar.finish();
    outcome?;
    print(&if args.stage.json { kept.text()? } else { sweep::render(&sweep) });
    Ok(if sweep.complete { ExitCode::SUCCESS } else { ExitCode::from(Failure::INCOMPLETE) })
}

fn probe(args: &ProbeArgs) -> Result<ExitCode, Failure> {
    let cluster = args.cluster.as_deref().map(Cluster::read).transpose()?;
    let mut media = args.media.clone();
    let documented = cluster.iter().flat_map(|cluster| &cluster.media).filter_map(|medium| medium.dir.clone());
    media.extend(documented.filter(|directory| !args.media.contains(directory)));
    if let Some(missing) = media.iter().find(|directory| !directory.is_dir()) {
        return Err(Failure::input(format!("{} is no directory: --media and media.dir need one", missing.display())));
    }
    let (devices, peers) = (args.device.clone(), args.peer.clone());
    let options = probe::Options { media, devices, peers, seconds: args.time.as_secs_f64(), size_max: args.size };
    if args.stage.dry_run {
        print(&options.estimate());
        return Ok(ExitCode::SUCCESS);
    }
    let mut kept = Kept::new(args.stage.output.as_deref());
    let take_up = |stage| if let Stage::Probe(probe) = stage { Some(probe.resume(&options)) } else { None };
    let mut found = kept.earlier("a probe", take_up)?.unwrap_or_else(|| Probe::new(options.clone()));
    tell_finished(args.stage.quiet || !found.left.is_empty(), args.stage.output.as_deref());
    let mut bar = Progress::new(args.stage.quiet);
    let interrupt = Interrupt::once();
    let mut save = |probe: &Probe| kept.save(Stage::Probe(probe.clone()));
    let mut progress = |done, all, what: &str| bar.update(done, all, what);
    let outcome = found.run(&options, &Launcher::own()?, &interrupt, &mut save, &mut progress);
    bar.finish();
    outcome?;
    if let Some(cluster) = &cluster {
        found.compare(cluster);
        kept.save(Stage::Probe(found.clone()))?;
    }
    print(&if args.stage.json { kept.text()? } else { probe::render(&found) });
    Ok(if found.is_whole() { ExitCode::SUCCESS } else { ExitCode::from(Failure::INCOMPLETE) })
}

/// Prints that a finished run is not repeated, unless `silent`.
fn tell_finished(silent: bool, output: Option<&Path>) {
    if let (false, Some(path)) = (silent, output) {
        let path = path.display();
        let _ = writeln!(
            std::io::stderr(),
            "forebay limits: {path} is finished: nothing is run; another file measures anew"
        );
    }
}

/// Prints the measurements of a child process for its parent.
fn told<T: serde::Serialize>(found: &T) -> Result<ExitCode, Failure> {
    print(&serde_json::to_string(found).map_err(Failure::defect)?);
    Ok(ExitCode::SUCCESS)
}

fn watch(args: &WatchArgs) -> Result<ExitCode, Failure> {
    if args.interval.is_zero() {
        return Err(Failure::usage("--interval must be above zero"));
    }
    let mut kept = Kept::new(args.output.as_deref());
    kept.only(|stage| matches!(stage, Stage::Watch(_)))?;
    let _interrupt = Interrupt::expect();
    let seen = watch::watch(&args.command, args.interval)?;
    let (status, text) = (seen.status, watch::render(&seen));
    let saved = kept.save(Stage::Watch(seen));
    let text = if args.json { kept.text()? } else { text };
    let _ = writeln!(std::io::stderr(), "{}", text.trim_end());
    saved?;
    Ok(ExitCode::from(status))
}

fn factors(args: &FactorsArgs) -> Result<ExitCode, Failure> {
    if !args.target.is_dir() {
        return Err(Failure::input(format!("{} is no directory: --target needs one", args.target.display())));
    }
    if args.repeat == 0 || args.size < 16 << 20 {
        return Err(Failure::usage("--repeat must be at least 1 and --size at least 16MiB"));
    }
    let target = args.target.canonicalize().unwrap_or_else(|_| args.target.clone());
    let block = args.block.unwrap_or_else(|| factors::block_of(&target));
    if !(BLOCK_MIN..=BLOCK_MAX).contains(&block) {
        return Err(Failure::usage(format!("--block must lie between {BLOCK_MIN} B and {} MiB", BLOCK_MAX >> 20)));
    }
    let seconds = args.time.as_secs_f64();
    let options = factors::Options { target, seconds, repeat: args.repeat, size_max: args.size, block };
    if args.stage.dry_run {
        print(&options.estimate());
        return Ok(ExitCode::SUCCESS);
    }
    let mut kept = Kept::new(args.stage.output.as_deref());
    let take_up = |stage| if let Stage::Factors(found) = stage { Some(found.resume(&options)) } else { None };
    let mut found = kept.earlier("factors", take_up)?.unwrap_or_else(|| Factors::new(options.clone()));
    tell_finished(args.stage.quiet || !found.left.is_empty(), args.stage.output.as_deref());
    let mut bar = Progress::new(args.stage.quiet);
    let interrupt = Interrupt::once();
    let mut save = |found: &Factors| kept.save(Stage::Factors(found.clone()));
    let outcome = found.run(&options, &interrupt, &mut save, &mut |done, all, what| bar.update(done, all, what));
    bar.finish();
    outcome?;
    print(&if args.stage.json { kept.text()? } else { factors::render(&found) });
    Ok(if found.left.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(Failure::INCOMPLETE) })
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

/// Prints a text; a closed pipe (`| head`) is not an error.
fn print(text: &str) {
    let _ = writeln!(std::io::stdout(), "{}", text.trim_end());
}
