//! The `forebay` program.

mod args;
mod channel;
mod doctor;
mod exit;
mod guest;
mod holders;
mod limits;
mod log;
mod lower;
mod mounts;
mod open_files;
mod place;
mod privilege;
mod progress;
mod signals;

use std::process::ExitCode;

use args::Command;
use exit::{Failure, say};

fn main() -> ExitCode {
    let cli = match args::parse() {
        Ok(cli) => cli,
        Err(code) => return ExitCode::from(code),
    };
    match dispatch(&cli.command) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            if !failure.message.is_empty() {
                say!("{failure}");
            }
            ExitCode::from(failure.code)
        }
    }
}

fn dispatch(command: &Command) -> Result<u8, Failure> {
    match command {
        Command::Doctor(args) => doctor::run(args),
        Command::Probe { name } => doctor::probe::run(name),
        Command::Completions { shell } => {
            args::completions(*shell);
            Ok(0)
        }
        Command::Man { dir } => args::man(dir.as_deref()).map(|()| 0),
        _ => Err(Failure::silent(exit::SOFTWARE)),
    }
}
