//! The `forebay` program.

mod apart;
mod args;
mod burst_buffer;
mod channel;
mod commands;
mod dead;
mod delegated;
mod doctor;
mod drain;
mod ending;
mod exit;
mod findings;
mod forget;
mod guest;
mod heap;
mod holders;
mod leaving;
mod limits;
mod link;
mod log;
mod lower;
mod memory;
mod one_node;
mod open_files;
mod preload;
mod privilege;
mod progress;
mod relaying;
mod report;
mod ring_memory;
mod server;
mod serving;
mod shell;
mod signals;
mod supervise;
mod window;

use std::process::ExitCode;

use args::Command;
use exit::Failure;
// Modules of the library, under the names that the modules of this program use.
use placement::{aside, claim, count, left, mounts, neighbours, place, replaced, served};

fn main() -> ExitCode {
    let cli = match args::parse() {
        Ok(cli) => cli,
        Err(code) => return ExitCode::from(code),
    };
    dispatch(cli.command).unwrap_or_else(|failure| ExitCode::from(exit::status(Err(failure))))
}

fn dispatch(command: Command) -> Result<ExitCode, Failure> {
    let code = match &command {
        Command::Run(args) => commands::run::run(args),
        Command::Mount(args) => commands::mount::run(args),
        Command::Serve(args) => commands::serve::run(args),
        Command::Umount(args) => commands::umount::run(args),
        Command::Undelegate(args) => commands::undelegate::run(args),
        Command::Status(args) => commands::status::run(args),
        Command::Stage(command) => commands::stage::run(command),
        Command::Drain(args) => commands::stage::drain(args),
        Command::Quiesce(args) => commands::stage::quiesce(args),
        Command::Resolve(args) => commands::resolve::run(args),
        Command::Policy(command) => commands::policy::run(command),
        Command::Recover(args) => commands::recover::run(args),
        Command::Clean(args) => commands::clean::run(args),
        Command::Check(args) => commands::check::run(args),
        Command::Doctor(args) => doctor::run(args),
        Command::Probe { name } => doctor::probe::run(name),
        Command::Completions { shell } => args::completions(*shell).map(|()| 0),
        Command::Man { dir } => args::man(dir.as_deref()).map(|()| 0),
        Command::Limits { .. } => Ok(0),
    }?;
    match command {
        // This command has its own kind of exit status.
        Command::Limits { args } => Ok(::limits::run(args)),
        _ => Ok(ExitCode::from(code)),
    }
}
