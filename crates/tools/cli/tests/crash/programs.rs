//! Programs that tell stories, and the judgment of what they left.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use testkit::ProcessGuard;

use crate::ledger;
use crate::program;
use crate::story::{Model, NAMES, Step};
use crate::verdict;

/// Number of programs at once, each in its own directory.
pub const PROGRAMS: u64 = 2;
/// Steps of each program.
const STEPS: usize = 70;

/// Program that runs or has ended.
pub struct Program {
    pub process: ProcessGuard,
    /// Directory of the program's files, as the program sees it.
    pub dir: PathBuf,
    pub seed: u64,
    pub ledger: PathBuf,
    log: PathBuf,
}

impl Program {
    /// Starts a program below `dir`, which contains [`first_files`]. `beside`: places for files that are not its
    /// data. `how`: arguments for [`program::play`], preceded by environment variables.
    pub fn start(
        dir: &Path,
        number: u64,
        seed: u64,
        beside: &dyn Fn(&str) -> PathBuf,
        how: &[(&str, &str)],
    ) -> Program {
        let (dir, seed) = (dir.join(format!("program-{number}")), seed + number);
        let (ledger, log) = (beside(&format!("ledger-{number}")), beside(&format!("program-{number}.log")));
        let text = |path: &PathBuf| path.to_str().expect("a path of ours").to_owned();
        let words = ["story", &text(&dir), &seed.to_string(), &STEPS.to_string(), &text(&ledger)];
        Program { process: program::start(&words, &log, how), dir, seed, ledger, log }
    }

    /// Returns a message about an end that nothing explains.
    pub fn ended_badly(&mut self) -> String {
        let (log, status) = (fs::read_to_string(&self.log).unwrap_or_default(), self.process.ended());
        format!("the program of seed {} ended with {status:?}:\n{log}", self.seed)
    }

    /// Compares the contents of `dir` with the ledger of the program.
    pub fn judge(&self, dir: &Path, r#where: &str) -> Result<(), String> {
        verdict::judge(dir, self.seed, ledger::read(&self.ledger))
            .map_err(|why| format!("{}, the program of seed {}: {why}", r#where, self.seed))
    }

    fn steps(&self) -> Vec<Step> {
        let reading = ledger::read(&self.ledger);
        verdict::steps(self.seed, reading.acknowledged + usize::from(reading.unknown))
    }

    /// Returns the program's output, for a message.
    pub fn told(&self) -> String {
        let reading = ledger::read(&self.ledger);
        format!("{}, {reading:?}:\n{}\n", self.dir.display(), verdict::print(&self.steps()))
    }
}

/// Creates the files that a program finds.
pub fn first_files(dir: &Path, seed: u64) -> io::Result<()> {
    fs::create_dir_all(dir.join("sub"))?;
    let model = Model::first(seed);
    model.names.iter().try_for_each(|(name, file)| fs::write(dir.join(NAMES[*name]), &model.files[file]))
}

/// Returns whether orphans may be left. A crash between the removal of a name below and that of its record leaves
/// dirty data without a file, which is kept until somebody decides. That needs a step that removes a name to be under
/// way.
pub fn may_orphan(programs: &[Program]) -> bool {
    programs.iter().any(|program| {
        let ends_a_name = matches!(program.steps().last(), Some(Step::Unlink { .. } | Step::Rename { .. }));
        ends_a_name && ledger::read(&program.ledger).unknown
    })
}

/// Files that a command lists as being gone from the global store.
pub struct Orphans(Vec<String>);

impl Orphans {
    /// Reads the orphans from the output of a command. Errors: something else is left, too.
    pub fn listed(said: &str) -> Result<Orphans, String> {
        let orphans = said.matches(": orphaned: ").count();
        let commands = said.lines().filter_map(|line| line.split_once("forebay resolve "));
        let identities: Vec<String> =
            commands.filter_map(|(_, rest)| rest.split(' ').next().map(str::to_owned)).collect();
        if identities.len() == orphans {
            Ok(Orphans(identities))
        } else {
            Err(format!("not only orphans are left:\n{said}"))
        }
    }

    /// Discards the orphans. Returns whether there were any. `forebay` runs a command and returns its status and
    /// output.
    pub fn discard(self, buffer: &Path, forebay: &dyn Fn(&[&str]) -> (i32, String)) -> Result<bool, String> {
        let buffer = buffer.to_str().expect("a path of ours");
        for identity in &self.0 {
            let (code, said) = forebay(&["resolve", identity, "--keep", "global", "--burst-buffer", buffer]);
            if code != 0 {
                return Err(format!("resolve ended with {code}:\n{said}"));
            }
        }
        Ok(!self.0.is_empty())
    }
}
