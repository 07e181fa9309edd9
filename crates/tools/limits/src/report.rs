//! Report on the results of several stages, with a verdict in plain words.

mod csv;
mod html;
pub mod svg;
mod table_file;
mod verdict;

use std::path::{Path, PathBuf};

use serde::Serialize;

pub use csv::csv;
pub use html::{STYLE, html};

use crate::failure::Failure;
use crate::plan;
use crate::probe;
use crate::results::{Results, Stage};
use crate::sweep::{self, Known};
use crate::table::Table;
use crate::units::{format_rate, format_share};
use crate::{factors, watch};
use verdict::Step;

#[derive(Debug, Clone, Serialize)]
pub struct Source {
    pub path: PathBuf,
    pub results: Results,
}

#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Sentences in plain words, the most important first.
    pub verdict: Vec<String>,
    /// Stages from the specification to the program, with the share that each kept of the previous one.
    pub steps: Vec<Step>,
    pub sources: Vec<Source>,
}

impl Report {
    /// Reads results, and tables `M,N,MB/s` of other tools as CSV.
    pub fn read(paths: &[PathBuf]) -> Result<Report, Failure> {
        let mut sources = Vec::new();
        let (tables, results): (Vec<_>, Vec<_>) =
            paths.iter().partition(|path| path.extension().is_some_and(|extension| extension == "csv"));
        for path in results {
            sources.push(Source { path: path.clone(), results: Results::load(path)? });
        }
        let known = known(&sources);
        for path in tables {
            let sweep = table_file::read(path, known.clone())?;
            sources.push(Source { path: path.clone(), results: Results::new(Stage::Sweep(sweep)) });
        }
        let steps = verdict::steps(&sources);
        Ok(Report { verdict: verdict::words(&sources, &steps), steps, sources })
    }

    pub fn text(&self) -> String {
        let mut text = String::from("Verdict\n");
        self.verdict.iter().for_each(|words| text.push_str(&format!("  {words}\n")));
        if !self.steps.is_empty() {
            text.push_str(&format!("\n{}", steps_table(&self.steps).render()));
        }
        for source in &self.sources {
            let rule = "=".repeat(72);
            text.push_str(&format!("\n{rule}\n{} ({})\n\n", source.path.display(), source.results.host));
            text.push_str(&stage_text(&source.results.stage));
        }
        text
    }

    pub fn json(&self) -> Result<String, Failure> {
        serde_json::to_string_pretty(self).map_err(|error| Failure::defect(format!("cannot write a report: {error}")))
    }

    /// Returns the report in the format of the file name: `.html`, `.json`, `.csv`, `.txt`. Errors: another extension.
    pub fn form(&self, path: &Path) -> Result<String, Failure> {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("html" | "htm") => Ok(html(self)),
            Some("json") => self.json(),
            Some("csv") => Ok(csv(self)),
            Some("txt") => Ok(self.text()),
            _ => Err(Failure::usage(format!("{}: a report ends in .html, .json, .csv or .txt", path.display()))),
        }
    }
}

fn steps_table(steps: &[Step]) -> Table {
    let mut table = Table::new(["stage", "what", "write", "kept", "read", "kept"]);
    let rate = |rate: Option<f64>| rate.map_or(String::new(), format_rate);
    let share = |share: Option<f64>| share.map_or(String::new(), format_share);
    for step in steps {
        table.row([
            step.stage.clone(),
            step.what.clone(),
            rate(step.write_bytes_per_s),
            share(step.write_kept),
            rate(step.read_bytes_per_s),
            share(step.read_kept),
        ]);
    }
    table
}

fn stage_text(stage: &Stage) -> String {
    match stage {
        Stage::Plan(found) => plan::render(found),
        Stage::Probe(found) => probe::render(found),
        Stage::Sweep(found) => sweep::render(found),
        Stage::Watch(found) => watch::render(found),
        Stage::Factors(found) => factors::render(found),
    }
}

/// Returns the limits of a plan among the sources, for tables without limits.
fn known(sources: &[Source]) -> Known {
    let plan = sources.iter().find_map(|source| match &source.results.stage {
        Stage::Plan(plan) => Some((plan, source)),
        _ => None,
    });
    let Some((plan, source)) = plan else { return Known::default() };
    Known::of_plan(plan, &source.path)
}

#[cfg(test)]
mod tests;
