//! `forebay policy`: rules of directories.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use agent::control::ControlRequest;
use config::{KEYS, PolicySet};
use types::Shown;

use crate::args::PolicyCommand;
use crate::exit::{self, Failure, out};
use crate::link;

pub fn run(command: &PolicyCommand) -> Result<u8, Failure> {
    match command {
        PolicyCommand::Get { path, key } => get(path, key.as_deref()),
        PolicyCommand::Set { path, rules } => {
            let mut all = PolicySet::new();
            rules.iter().for_each(|rule| all.extend(rule));
            let (mut link, inside) = link::to(path, None)?;
            let set = link.ask(&ControlRequest::PolicySet { path: inside, rules: all }, |_| {});
            set.map(|_| 0).map_err(|failure| of_path(path, failure))
        }
        PolicyCommand::Unset { path, keys } => {
            keys.iter().try_for_each(|name| known(name))?;
            let (mut link, path) = link::to(path, None)?;
            link.ask(&ControlRequest::PolicyUnset { path, keys: keys.clone() }, |_| {}).map(|_| 0)
        }
        PolicyCommand::List { keys: true, .. } => {
            list_keys();
            Ok(0)
        }
        PolicyCommand::List { path, .. } => list(path),
    }
}

/// Adds the path to a failure that the agent reported.
fn of_path(path: &Path, failure: Failure) -> Failure {
    let message = format!("cannot set rules of {}: {}", path.shown(), failure.message);
    let remedy = if path.is_file() { "rules are those of directories: name the one that the file is in" } else { "" };
    Failure { message, ..failure }.remedy(remedy)
}

fn known(name: &str) -> Result<(), Failure> {
    config::key(name).map(|_| ()).map_err(|error| Failure::new(exit::USAGE, error.to_string()))
}

fn get(path: &Path, key: Option<&str>) -> Result<u8, Failure> {
    key.map_or(Ok(()), known)?;
    let (mut link, path) = link::to(path, None)?;
    let holds: PolicySet = read(link.ask(&ControlRequest::PolicyGet { path }, |_| {})?)?;
    match key {
        Some(key) => out!("{}", holds.get(key).unwrap_or_default()),
        None => holds.iter().for_each(|(name, value)| out!("{name}={value}")),
    }
    Ok(0)
}

fn list(path: &Path) -> Result<u8, Failure> {
    let (mut link, _) = link::to(path, None)?;
    let all: BTreeMap<PathBuf, PolicySet> = read(link.ask(&ControlRequest::PolicyList, |_| {})?)?;
    for (path, rules) in all {
        let words: Vec<String> = rules.iter().map(|(name, value)| format!("{name}={value}")).collect();
        out!("{}  {}", link.dir.join(path).components().collect::<PathBuf>().shown(), words.join(" "));
    }
    Ok(0)
}

fn read<T: serde::de::DeserializeOwned>(value: serde_json::Value) -> Result<T, Failure> {
    serde_json::from_value(value).map_err(|e| Failure::new(exit::SOFTWARE, format!("the agent's answer: {e}")))
}

/// Every key, from the table that the parser uses.
fn list_keys() {
    for key in &KEYS {
        out!("{:<20} {}", key.name, key.syntax);
        out!("{:<20} {}; default {}", "", key.meaning, key.default);
    }
}
