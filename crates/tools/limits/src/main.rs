//! `forebay limits` as a separate program, for hosts without the rest of Forebay.

use std::process::ExitCode;

use clap::Parser;

#[derive(Parser)]
#[command(name = "forebay-limits", version, about, max_term_width = 120)]
struct Words {
    #[command(subcommand)]
    args: limits::args::LimitsArgs,
}

fn main() -> ExitCode {
    limits::run(Words::parse().args)
}
