//! The command line.

mod files;
mod left;
mod serve;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};
use config::PolicySet;
use types::Shown;

use crate::burst_buffer::BurstBuffer;
use crate::exit::{self, Failure};
use crate::server::ServerArgs;
use crate::window::WindowArgs;

pub use files::{DrainArgs, PolicyCommand, StageArgs, StageCommand};
pub use left::{CheckArgs, CleanArgs, RecoverArgs, UndelegateArgs};
pub use serve::ServeArgs;

/// The whole command line.
#[derive(Debug, Parser)]
#[command(name = "forebay", version, about = "Transparent storage acceleration for existing programs and paths")]
#[command(
    after_help = "Exit status: 64 usage, 66 no such input, 69 not available, 70 internal error, 73 cannot create,\n\
    75 data is not in the global store yet, 77 not permitted; `run` otherwise exits as its command does.\n\
    Environment: FOREBAY_BURST_BUFFER and FOREBAY_DIRS as the options; FOREBAY_LOG filters agent.log (warn, debug, ...)."
)]
#[command(max_term_width = 110)]
pub struct Cli {
    /// Subcommand.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run one command with directories accelerated, for it and its descendants alone
    #[command(after_help = "Example: forebay run --burst-buffer /nvme/buffer --dir /scratch/project -- make -j8\n\
        On a node that does not see the global store: forebay run --dir /scratch/project --server tcp:io1:4711 --secret /etc/forebay.key --names server -- make -j8")]
    Run(RunArgs),
    /// Accelerate a directory for the whole node
    #[command(
        after_help = "Example: forebay mount /scratch/project --burst-buffer /nvme/buffer --policy keep_after=1d\n\
        On a node that does not see the global store: forebay mount /scratch/project --server tcp:io1:4711 --secret /etc/forebay.key --names server"
    )]
    Mount(MountArgs),
    /// Keep the files' data of other processes' or machines' accelerated directories
    #[command(
        after_help = "Example: forebay serve /lustre/project --burst-buffer /nvme/buffer --listen tcp:0.0.0.0:4711 --secret /etc/forebay.key"
    )]
    Serve(ServeArgs),
    /// Drain an accelerated directory and end its acceleration
    #[command(after_help = "Example: forebay umount /scratch/project")]
    Umount(UmountArgs),
    /// End the delegation of a directory whose holder does not come back
    #[command(after_help = "Example: forebay undelegate /scratch/project/results")]
    Undelegate(UndelegateArgs),
    /// Show what is accelerated, what is cached and what is still to be drained
    #[command(after_help = "Example: forebay status /scratch/project --json")]
    Status(StatusArgs),
    /// Move files' data between the tiers, and pin it
    #[command(subcommand, after_help = "Example: forebay stage in data/ --recursive --wait")]
    Stage(StageCommand),
    /// Stage out everything dirty
    #[command(after_help = "Example: forebay drain /scratch/project --wait")]
    Drain(DrainArgs),
    /// Let new writes go to the global store and drain, for a backup or another machine
    #[command(after_help = "Example: forebay quiesce /scratch/project")]
    Quiesce(QuiesceArgs),
    /// Decide which copy stays when a file changed in both places, or could not be staged out
    #[command(after_help = "Example: forebay resolve result.h5 --keep burst-buffer")]
    Resolve(ResolveArgs),
    /// Show and change the rules of directories
    #[command(subcommand, after_help = "Example: forebay policy set results/ stage_out=idle:10m")]
    Policy(PolicyCommand),
    /// Drain what an agent that was killed, or a machine that crashed, left in a burst buffer
    #[command(after_help = "Example: forebay recover /nvme/buffer\n\
        Where windows lay on a file system that is gone: forebay recover /nvme/buffer --forget-windows /dev/shm")]
    Recover(RecoverArgs),
    /// Drop clean data from a burst buffer, longest unused first; what is not in the global store yet stays
    #[command(after_help = "Example: forebay clean /nvme/buffer --older 1d")]
    Clean(CleanArgs),
    /// Check a burst buffer that no agent uses
    #[command(after_help = "Example: forebay check /nvme/buffer")]
    Check(CheckArgs),
    /// Say what works on this machine and what to do about the rest
    #[command(after_help = "Example: forebay doctor --json")]
    Doctor(DoctorArgs),
    /// Measure what each part of this storage could do, does, and loses
    #[command(after_help = "Example: forebay limits probe --media /nvme --media /scratch")]
    Limits {
        /// Which step
        #[command(subcommand)]
        args: ::limits::args::LimitsArgs,
    },
    /// Print a completion script
    #[command(after_help = "Example: forebay completions bash >/etc/bash_completion.d/forebay")]
    Completions {
        /// For which shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page, or write a page for every command into a directory
    #[command(after_help = "Example: forebay man /usr/local/share/man/man1")]
    Man {
        /// Where to write the pages
        dir: Option<PathBuf>,
    },
    /// One probe of `doctor`, in a process of its own because it may hang
    #[command(hide = true)]
    Probe {
        /// Which
        name: String,
    },
}

/// `KEY=VALUE` rules.
#[derive(Debug, Args)]
pub struct Rules {
    /// A rule for all files, for example cache=preload; `forebay policy list --keys` shows them
    #[arg(long = "policy", value_name = "KEY=VALUE", value_parser = rule)]
    rules: Vec<PolicySet>,
}

impl Rules {
    /// Returns all rules in one set; later ones win.
    pub fn set(&self) -> PolicySet {
        self.rules.iter().fold(PolicySet::new(), |mut all, rule| {
            all.extend(rule);
            all
        })
    }
}

fn rule(text: &str) -> Result<PolicySet, config::KeyError> {
    PolicySet::parse([text])
}

fn duration(text: &str) -> Result<Duration, String> {
    config::parse_duration(text)
}

/// `forebay run`
#[derive(Debug, Args)]
pub struct RunArgs {
    #[command(flatten)]
    pub burst_buffer: BurstBuffer,
    #[command(flatten)]
    pub server: ServerArgs,
    /// Directory to accelerate; may be repeated [default: the current one] [env: FOREBAY_DIRS, colon-separated]
    #[arg(long = "dir", value_name = "DIR")]
    pub dirs: Vec<PathBuf>,
    #[command(flatten)]
    pub rules: Rules,
    #[command(flatten)]
    pub window: WindowArgs,
    /// Do not load the library that writes through windows into the command; no windows then, but for other libraries with --window
    #[arg(long)]
    pub no_preload: bool,
    /// Write a report as JSON
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Wait at most this long for processes that the command left behind with open files [default: for ever]
    #[arg(long, value_name = "T", value_parser = duration)]
    pub linger: Option<Duration>,
    /// Say nothing unless something goes wrong
    #[arg(short, long)]
    pub quiet: bool,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

impl RunArgs {
    /// The directories: options, else environment, else the current one.
    pub fn dirs(&self) -> Vec<PathBuf> {
        if !self.dirs.is_empty() {
            return self.dirs.clone();
        }
        let value = std::env::var_os("FOREBAY_DIRS").unwrap_or_default();
        let dirs: Vec<PathBuf> = std::env::split_paths(&value).filter(|dir| !dir.as_os_str().is_empty()).collect();
        if dirs.is_empty() { vec![PathBuf::from(".")] } else { dirs }
    }
}

/// `forebay mount`
#[derive(Debug, Args)]
pub struct MountArgs {
    /// Directory to accelerate
    pub dir: PathBuf,
    #[command(flatten)]
    pub burst_buffer: BurstBuffer,
    #[command(flatten)]
    pub server: ServerArgs,
    #[command(flatten)]
    pub rules: Rules,
    #[command(flatten)]
    pub window: WindowArgs,
    /// No other machine changes the directory: leave no marks on files
    #[arg(long)]
    pub exclusive: bool,
    /// Stay in the foreground
    #[arg(long)]
    pub foreground: bool,
}

/// `forebay umount`
#[derive(Debug, Args)]
pub struct UmountArgs {
    /// Accelerated directory
    pub dir: PathBuf,
    /// End it even if data cannot be drained or files are in use; what stays in the burst buffer is listed
    #[arg(long)]
    pub force: bool,
}

/// `forebay status`
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// Accelerated directory, or any path inside [default: all]
    pub dir: Option<PathBuf>,
    #[command(flatten)]
    pub burst_buffer: BurstBuffer,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// `forebay quiesce`
#[derive(Debug, Args)]
pub struct QuiesceArgs {
    /// Accelerated directory
    pub dir: PathBuf,
    /// Take writes into the burst buffer again
    #[arg(long)]
    pub resume: bool,
    #[command(flatten)]
    pub burst_buffer: BurstBuffer,
}

/// Which copy stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum KeepArg {
    /// The burst buffer's copy replaces the global one
    BurstBuffer,
    /// The global copy stays; the burst buffer's is removed
    Global,
    /// The global copy stays; the burst buffer's is saved in the burst buffer, where is printed
    Both,
}

/// `forebay resolve`
#[derive(Debug, Args)]
pub struct ResolveArgs {
    /// File in conflict, or that failed, or a delegated directory with such names; for one that is gone the identity that `status` shows
    pub path: PathBuf,
    /// Which copy stays
    #[arg(long, value_enum)]
    pub keep: KeepArg,
    #[command(flatten)]
    pub burst_buffer: BurstBuffer,
}

/// `forebay doctor`
#[derive(Debug, Args)]
pub struct DoctorArgs {
    #[command(flatten)]
    pub burst_buffer: BurstBuffer,
    /// Where windows would lie, if not in memory of the node
    #[arg(long, value_name = "DIR")]
    pub window: Option<PathBuf>,
    /// The directory to be accelerated: what its file system can do
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub dir: PathBuf,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// Reads the command line. `Err`: the exit status, everything else is said.
pub fn parse() -> Result<Cli, u8> {
    Cli::try_parse().map_err(|error| {
        // A closed stdout or stderr is no reason to fail differently.
        let _ = error.print();
        if error.use_stderr() { exit::USAGE } else { 0 }
    })
}

/// Writes the manual: one page to stdout, or all pages into a directory.
pub fn man(dir: Option<&Path>) -> Result<(), Failure> {
    if let Some(dir) = dir {
        let failed = |e: std::io::Error| Failure::io(format_args!("write the manual into {}", dir.shown()), &e);
        return clap_mangen::generate_to(Cli::command(), dir).map_err(failed);
    }
    let mut page = Vec::new();
    clap_mangen::Man::new(Cli::command()).render(&mut page).map_err(|e| Failure::io("make the manual", &e))?;
    print("the manual", &page)
}

/// Writes a completion script to stdout.
pub fn completions(shell: clap_complete::Shell) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "forebay", &mut script);
    print("the completion script", &script)
}

/// Prints to stdout. A reader that closes the pipe has read enough, so that is no error.
fn print(what: &str, text: &[u8]) -> Result<(), Failure> {
    use std::io::Write;
    match std::io::stdout().write_all(text) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::io(format_args!("write {what}"), &error))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_shows_an_example() {
        fn look(command: &clap::Command, path: &str) {
            let shown = command.get_subcommands().filter(|sub| !sub.is_hide_set() && sub.get_name() != "help");
            let mut leaf = true;
            for sub in shown {
                leaf = false;
                look(sub, &format!("{path} {}", sub.get_name()));
            }
            let example = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(!leaf || example.contains(&format!("Example: {}", path.trim())), "{path}: {example}");
        }
        look(&Cli::command(), "forebay");
    }

    #[test]
    fn options_after_the_command_belong_to_the_command() {
        let cli = Cli::try_parse_from(["forebay", "run", "--burst-buffer", "/bb", "--", "ls", "--dir", "-l"]).unwrap();
        let Command::Run(run) = cli.command else { panic!() };
        assert_eq!(run.command, ["ls", "--dir", "-l"]);
        assert_eq!(run.burst_buffer.get(), Some(PathBuf::from("/bb")));
    }

    #[test]
    fn a_mistyped_policy_is_refused_with_the_nearest_key() {
        let error = Cli::try_parse_from(["forebay", "run", "--policy", "cahce=both", "true"]).unwrap_err();
        assert!(error.to_string().contains("did you mean `cache`"), "{error}");
    }
}
