//! `slowfs`: shows a directory through FUSE, with the speed of a store that is described on the command line. Replaces
//! a real global store in demonstrations, tests and measurements.
//!
//! [`model`] is that store without a mount and without a real clock. Experiments that must not depend on the machine's
//! load run the model in simulated time.

mod attributes;
mod command;
mod faults;
mod handles;
mod limits;
mod listing;
mod lower;
pub mod model;
mod nodes;
mod options;
mod service;
mod shape;
mod slow_fs;
mod units;

use std::process::ExitCode;

use clap::Parser;

pub use options::options;

/// Parses options and returns the store that they describe, without mounting. Errors: the reason, in a sentence.
pub fn planned(options: &[String]) -> Result<model::Spec, String> {
    let words = ["slowfs", "LOWER", "MOUNTPOINT"].into_iter().chain(options.iter().map(String::as_str));
    command::Command::try_parse_from(words).map(|command| command.spec()).map_err(|error| error.to_string())
}

/// Runs the program with this process's arguments.
pub fn main() -> ExitCode {
    run(std::env::args_os())
}

/// Runs the program with these arguments, of which the first is the program's name.
pub fn run(words: impl IntoIterator<Item = std::ffi::OsString>) -> ExitCode {
    let command = command::Command::parse_from(words);
    let outcome = if command.foreground { service::serve(&command) } else { service::start(&command) };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("slowfs: {error}");
            ExitCode::FAILURE
        }
    }
}
