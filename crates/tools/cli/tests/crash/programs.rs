//! Programs that tell stories, and what one may find wrong with what they left.

use std::fs;
use std::path::{Path, PathBuf};

use testkit::ProcessGuard;

use crate::ledger;
use crate::program;
use crate::story::{Model, NAMES, Step};
use crate::verdict;

/// Programs at once, each in a directory of its own.
pub const PROGRAMS: u64 = 2;
/// Steps of each.
const STEPS: usize = 70;

/// One that runs, or has ended.
pub struct Program {
    pub process: ProcessGuard,
    /// Its files, as it sees them.
    pub dir: PathBuf,
    pub seed: u64,
    pub ledger: PathBuf,
    log: PathBuf,
}

impl Program {
    /// Starts one below `dir`, where [`first_files`] are. `beside`: places for what is not its data; `how`: as [`program::play`]
    /// knows them, in front the variables of its environment.
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

    /// What to say of an end that nothing explains.
    pub fn ended_badly(&mut self) -> String {
        let (log, status) = (fs::read_to_string(&self.log).unwrap_or_default(), self.process.ended());
        format!("the program of seed {} ended with {status:?}:\n{log}", self.seed)
    }

    /// Compares what is in `dir` with what its ledger promises.
    pub fn judge(&self, dir: &Path, r#where: &str) -> Result<(), String> {
        verdict::judge(dir, self.seed, ledger::read(&self.ledger))
            .map_err(|why| format!("{}, the program of seed {}: {why}", r#where, self.seed))
    }

    fn steps(&self) -> Vec<Step> {
        let reading = ledger::read(&self.ledger);
        verdict::steps(self.seed, reading.acknowledged + usize::from(reading.unknown))
    }

    /// What it did, for a message.
    pub fn told(&self) -> String {
        let reading = ledger::read(&self.ledger);
        format!("{}, {reading:?}:\n{}\n", self.dir.display(), verdict::print(&self.steps()))
    }
}

/// The files that a program finds.
pub fn first_files(dir: &Path, seed: u64) {
    fs::create_dir_all(dir.join("sub")).expect("a directory");
    let model = Model::first(seed);
    for (name, file) in &model.names {
        fs::write(dir.join(NAMES[*name]), &model.files[file]).expect("a first file");
    }
}

/// A crash between the end of a name below and that of its record leaves dirty data whose file is gone: it is kept
/// until somebody decides. That is only so while a step that ends a name was on its way.
pub fn may_orphan(programs: &[Program]) -> bool {
    programs.iter().any(|program| {
        let ends_a_name = matches!(program.steps().last(), Some(Step::Unlink { .. } | Step::Rename { .. }));
        ends_a_name && ledger::read(&program.ledger).unknown
    })
}

/// Files that a command lists as being gone from the global store.
pub struct Orphans(Vec<String>);

impl Orphans {
    /// Those in what a command said; `Err`: something else is left too.
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

    /// Decides against them; whether there were any. `forebay` runs a command: its status, and what it said.
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
