//! The experiment book: declarative files that state a bed, its rate limits, workloads, a baseline and a required
//! result (bar).
//!
//! Each run first measures what the bed can deliver, then the product on it. The result is compared with the bar and
//! with the paper's figure.
//!
//! X1. Baseline and product use equal files, transfers and rate limits, in alternating turns.
//! X2. A rate above the measured limit of the bed is rejected, never averaged.
//! X3. Every figure is stored with the machine's load at the time; nothing is overwritten.

mod ablation;
mod accelerate;
mod bed;
mod book;
mod grid;
mod locks;
mod page;
mod place;
mod planted;
mod remote;
mod row;
mod share;
mod through;
mod unfinished;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::geteuid;

pub use book::{Book, Experiment};
pub use row::Row;
use unfinished::Unfinished;

use crate::args::ExperimentsArgs;
use crate::failure::Failure;
use crate::results;
use crate::table::Table;
use crate::units::format_seconds;
use crate::workload::Launcher;

/// Environment variable set for the process that runs in private namespaces.
const INSIDE: &str = "FOREBAY_LIMITS_EXPERIMENTS";

pub struct Run<'a> {
    pub book: &'a Book,
    /// Whether the run is smaller and shorter, for continuous integration; its figures say less.
    pub quick: bool,
}

/// Runs the chosen experiments and returns whether all met their bars.
pub fn run(args: &ExperimentsArgs, print: &dyn Fn(&str)) -> Result<bool, Failure> {
    if let Some(output) = &args.report {
        let rows = row::read(&args.results)?;
        results::save(output, page::html(&rows).as_bytes())?;
        print(&format!("{} figures in {}", rows.len(), output.display()));
        return Ok(true);
    }
    let books = chosen(args)?;
    if args.dry_run {
        let mut all = 0.0;
        for book in &books {
            let seconds = book.seconds(args.quick);
            all += seconds;
            print(&format!("{}: {}; about {}", book.id, book.title, format_seconds(seconds)));
        }
        print(&format!("about {} in all", format_seconds(all)));
        return Ok(true);
    }
    if std::env::var_os(INSIDE).is_none() {
        return alone();
    }
    let mut unfinished = Unfinished::take_up(&args.results, &books, args.quick);
    if !unfinished.done().is_empty() {
        let done = unfinished.done().join(", ");
        print(&format!("going on after {done}, whose figures are in {}", args.results.display()));
    }
    for book in &books {
        if unfinished.done().contains(&book.id) {
            continue;
        }
        let run = Run { book, quick: args.quick };
        print(&format!("\n{}: {}", book.id, book.title));
        let rows = run.rows(&mut |words| print(&format!("  {words}")))?;
        row::append(&args.results, &rows)?;
        print(&table(&rows).render());
        unfinished.finish(&book.id, rows.iter().all(Row::is_kept))?;
    }
    print(&format!("appended to {}", args.results.display()));
    Ok(unfinished.end())
}

impl Run<'_> {
    fn rows(&self, tell: &mut dyn FnMut(&str)) -> Result<Vec<Row>, Failure> {
        match &self.book.experiment {
            Experiment::Accelerate(wanted) => accelerate::run(self, wanted, tell),
            Experiment::Share(wanted) => share::run(self, wanted, tell),
            Experiment::Planted(wanted) => planted::run(self, wanted, tell),
            Experiment::Locks(wanted) => Ok(locks::run(self, wanted)),
            Experiment::Sweep(wanted) => through::run(self, wanted, tell),
            Experiment::Remote(wanted) => remote::run(self, wanted, tell),
            Experiment::Windows(wanted) => remote::run_windows(self, wanted, tell),
            Experiment::Ablation(wanted) => ablation::run(self, wanted, tell),
            Experiment::Grid(wanted) => grid::run(self, wanted, tell),
        }
    }
}

/// Runs the wire of an experiment, until the process is killed.
pub fn wire(words: &str) -> Result<(), Failure> {
    let wire: remote::Wire = serde_json::from_str(words).map_err(Failure::usage)?;
    remote::serve_wire(&wire).map_err(|error| Failure::unavailable(format!("the wire: {error}")))
}

/// Runs the program of an experiment, or one process of it. Returns the times of all processes.
pub fn program(words: &str, rank: Option<u64>) -> Result<Option<impl serde::Serialize + use<>>, Failure> {
    let failed = |error: std::io::Error| Failure::unavailable(format!("the program: {error}"));
    let work: remote::Work = serde_json::from_str(words).map_err(Failure::usage)?;
    match rank {
        Some(rank) => work.serve(rank).map(|()| None).map_err(failed),
        None => work.run(&Launcher::own()?).map(Some).map_err(failed),
    }
}

fn chosen(args: &ExperimentsArgs) -> Result<Vec<Book>, Failure> {
    let unreadable = |error| Failure::input(format!("cannot read {}: {error}", args.book.display()));
    let entries = fs::read_dir(&args.book).map_err(unreadable)?;
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.retain(|path| path.extension().is_some_and(|form| form == "toml"));
    paths.sort();
    let mut books = paths.iter().map(|path| Book::read(path)).collect::<Result<Vec<_>, _>>()?;
    for book in &mut books {
        if let (Experiment::Planted(planted), Some(count)) = (&mut book.experiment, args.mounted) {
            planted.mounted = count;
        }
    }
    if !args.only.is_empty() {
        // E4-1 selects all of its pages, including E4-1-eta.
        let is_of = |book: &Book, id: &str| {
            book.id.strip_prefix(id).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
        };
        if let Some(missing) = args.only.iter().find(|id| !books.iter().any(|book| is_of(book, id))) {
            let known = books.iter().map(|book| book.id.as_str()).collect::<Vec<_>>().join(", ");
            return Err(Failure::input(format!("there is no experiment {missing}; there are {known}")));
        }
        books.retain(|book| args.only.iter().any(|id| is_of(book, id)));
    }
    Ok(books)
}

/// Runs this program again in private mount and process namespaces, so that nothing it mounts or starts outlives it.
fn alone() -> Result<bool, Failure> {
    if !geteuid().is_root() {
        return Err(Failure { code: 77, message: "experiments mount file systems: run them as root".to_string() });
    }
    let program = std::env::current_exe().map_err(Failure::unavailable)?;
    // Killing this process, for example by Ctrl-C, must end everything: process 1 in the namespace receives no signal
    // itself.
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "unshare"]).args([
        "--mount",
        "--propagation",
        "private",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
        "--",
    ]);
    command.arg(program).args(std::env::args_os().skip(1)).env(INSIDE, "1");
    let status = command.status().map_err(|error| Failure::unavailable(format!("setpriv (util-linux): {error}")))?;
    match status.code() {
        Some(0) => Ok(true),
        Some(1) => Ok(false),
        // The program has printed the reason.
        _ => Err(Failure { code: 69, message: format!("the experiments ended early ({status})") }),
    }
}

/// Returns the path of a program in the directory of this one.
pub fn beside(name: &str) -> Result<PathBuf, Failure> {
    let own = std::env::current_exe().map_err(Failure::unavailable)?;
    let path = own.parent().unwrap_or(Path::new(".")).join(name);
    if path.exists() {
        Ok(path)
    } else {
        Err(Failure::unavailable(format!("{} is missing: make build", path.display())))
    }
}

fn table(rows: &[Row]) -> Table {
    let mut table = Table::new(["case", "measured", "bar", "paper", "kept", "what else"]);
    for row in rows {
        let kept = match row.bar {
            _ if row.rejected.is_some() => "rejected",
            Some(_) if row.is_kept() => "yes",
            Some(_) => "NO",
            None => "",
        };
        let number = |value: Option<f64>| value.map_or(String::new(), |value| format!("{value:.2}"));
        let (bar, paper) = (number(row.bar), number(row.paper));
        let what = row.rejected.as_ref().unwrap_or(&row.what).clone();
        table.row([row.case.clone(), format!("{:.2} {}", row.value, row.unit), bar, paper, kept.to_string(), what]);
    }
    table
}

fn warn(words: &str) {
    let _ = writeln!(std::io::stderr(), "forebay limits: {words}");
}
