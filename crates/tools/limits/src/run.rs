//! From words to results: each subcommand in a few lines.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use crate::args::{LimitsArgs, PatternArgs, PlanArgs, SweepArgs};
use crate::cluster::Cluster;
use crate::failure::Failure;
use crate::plan::{self, Plan};
use crate::progress::Progress;
use crate::results::{Results, Stage};
use crate::sweep::{self, Known, Options, Sweep};
use crate::workload::{self, Kind, Launcher, Pattern};

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
        LimitsArgs::Worker => workload::serve(&Launcher::own()?).map(|()| ExitCode::SUCCESS),
    }
}

fn plan(args: &PlanArgs) -> Result<ExitCode, Failure> {
    let cluster = cluster(&args.cluster)?;
    let plan = Plan::of(&cluster, &args.what_if).map_err(|error| Failure::usage(error.to_string()))?;
    let text = plan::render(&plan);
    show(Stage::Plan(plan), &text, args.json, args.output.as_deref())
}

fn sweep(args: &SweepArgs) -> Result<ExitCode, Failure> {
    let options = options(args)?;
    if let Some(fault) = options.fault() {
        return Err(Failure::usage(fault));
    }
    if args.dry_run {
        print(&sweep::estimate(&options).render(&options));
        return Ok(ExitCode::SUCCESS);
    }
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
    let outcome = sweep.run(&Launcher::own()?, &mut save, &mut |done, all, what| bar.update(done, all, what));
    bar.finish();
    outcome?;
    let text = if args.json { results.text()? } else { sweep::render(&sweep) };
    print(&text);
    Ok(if sweep.complete { ExitCode::SUCCESS } else { ExitCode::from(Failure::INCOMPLETE) })
}

fn options(args: &SweepArgs) -> Result<Options, Failure> {
    let target = args.target.canonicalize().map_err(|error| {
        Failure::input(format!("cannot use {}: {error}; --target must be an existing directory", args.target.display()))
    })?;
    Ok(Options {
        target,
        groups: sorted(&args.groups),
        processes: sorted(&args.processes),
        pattern: pattern(Pattern::preset(args.pattern), &args.change)?,
        seconds: args.time.as_secs_f64(),
        repeat: args.repeat,
        warm_up: args.warm_up,
        seed: args.seed,
        known: known(args)?,
    })
}

fn sorted(values: &[u64]) -> Vec<u64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    sorted
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

fn known(args: &SweepArgs) -> Result<Known, Failure> {
    if let Some(limit) = args.limit.map(|limit| limit.bytes_per_s()) {
        let both = Some(limit);
        let source = "--limit".to_string();
        return Ok(Known { write_bytes_per_s: both, read_bytes_per_s: both, client_bytes_per_s: None, source });
    }
    let Some(path) = &args.plan else { return Ok(Known::default()) };
    let cluster = cluster(path)?;
    let plan = Plan::of(&cluster, &[]).map_err(|error| Failure::usage(error.to_string()))?;
    Ok(Known {
        write_bytes_per_s: Some(plan.write().minimum_bytes_per_s),
        read_bytes_per_s: Some(plan.read().minimum_bytes_per_s),
        client_bytes_per_s: cluster.clients.first().map(|clients| clients.link.data_bytes_per_s()),
        source: path.display().to_string(),
    })
}

fn cluster(path: &Path) -> Result<Cluster, Failure> {
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
