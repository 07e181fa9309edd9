//! `slowfs`: shows a directory through FUSE, slowed to a promised bandwidth and latency. It stands for the global store
//! where there is none: in demonstrations, tests and measurements.

mod attributes;
mod command;
mod handles;
mod limits;
mod listing;
mod lower;
mod nodes;
mod service;
mod shape;
mod slow_fs;
mod units;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let command = command::Command::parse();
    let outcome = if command.foreground { service::serve(&command) } else { service::start(&command) };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("slowfs: {error}");
            ExitCode::FAILURE
        }
    }
}
