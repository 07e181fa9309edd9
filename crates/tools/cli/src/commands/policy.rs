//! `forebay policy`: the rules of directories.

use config::KEYS;

use crate::args::PolicyCommand;
use crate::exit::{Failure, out};

/// Shows or changes rules.
pub fn run(command: &PolicyCommand) -> Result<u8, Failure> {
    match command {
        PolicyCommand::List { keys: true, .. } => {
            keys();
            Ok(0)
        }
        _ => Err(Failure::silent(crate::exit::SOFTWARE)),
    }
}

/// Every key, from the table that the parser uses.
fn keys() {
    for key in &KEYS {
        out!("{:<20} {}", key.name, key.syntax);
        out!("{:<20} {}; default {}", "", key.meaning, key.default);
    }
}
