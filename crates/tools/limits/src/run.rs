//! From words to results: each subcommand in a few lines.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use crate::args::{LimitsArgs, PlanArgs};
use crate::cluster::Cluster;
use crate::failure::Failure;
use crate::plan::{self, Plan};
use crate::results::{Results, Stage};

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
    }
}

fn plan(args: &PlanArgs) -> Result<ExitCode, Failure> {
    let cluster = cluster(&args.cluster)?;
    let plan = Plan::of(&cluster, &args.what_if).map_err(|error| Failure::usage(error.to_string()))?;
    let text = plan::render(&plan);
    show(Stage::Plan(plan), &text, args.json, args.output.as_deref())
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
