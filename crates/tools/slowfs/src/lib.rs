//! `slowfs`: shows a directory through FUSE, as slow as a store that is promised on the command line. It stands for the
//! global store where there is none: in demonstrations, tests and measurements.
//!
//! [`model`] is that store without a mount and without a clock: experiments that must not depend on the machine's mood run it in
//! a time of its own.

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

/// The store that options describe, without a mount. What is wrong with them, in a sentence.
pub fn planned(options: &[String]) -> Result<model::Spec, String> {
    let words = ["slowfs", "LOWER", "MOUNTPOINT"].into_iter().chain(options.iter().map(String::as_str));
    command::Command::try_parse_from(words).map(|command| command.spec()).map_err(|error| error.to_string())
}

/// The program.
pub fn main() -> ExitCode {
    run(std::env::args_os())
}

/// The program with these words, its own name first.
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
