//! `forebay doctor`: checks what works here, and says how to fix the rest.

mod fuse;
mod left;
mod machine;
mod medium;
pub mod probe;

use std::path::Path;

use agent::WindowMedium;
use global_store::GlobalStore;
use global_store::posix::{PosixStore, StoreOptions};
use serde::Serialize;
use types::Shown;
use window::environment::{SOCKET, WISH, Wish};

use crate::args::DoctorArgs;
use crate::exit::{self, Failure, out, reason};
use crate::preload::{self, Library};
use crate::ring_memory::RingMemory;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    Ok,
    /// Working, but slower or with a restriction.
    Limited,
    /// Missing; Forebay cannot work without it.
    Missing,
}

#[derive(Debug, Clone, Serialize)]
pub struct Check {
    pub name: &'static str,
    pub verdict: Verdict,
    pub found: String,
    /// Remedy, in words; empty if nothing needs to be done.
    pub remedy: String,
}

impl Check {
    fn ok(name: &'static str, found: impl Into<String>) -> Check {
        Check { name, verdict: Verdict::Ok, found: found.into(), remedy: String::new() }
    }

    fn limited(name: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Check {
        Check { name, verdict: Verdict::Limited, found: found.into(), remedy: remedy.into() }
    }

    fn missing(name: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Check {
        Check { name, verdict: Verdict::Missing, found: found.into(), remedy: remedy.into() }
    }
}

/// Runs all checks. Returns 69 if something is missing that Forebay needs.
pub fn run(args: &DoctorArgs) -> Result<u8, Failure> {
    let buffer = args.burst_buffer.get();
    let mut checks = vec![machine::kernel(), machine::privileges(), machine::user_namespaces()];
    checks.extend(fuse::checks(buffer.as_deref()));
    checks.extend([machine::memory(), machine::open_files(), library(), windows(args.window.as_deref())]);
    checks.extend(left::checks(args.window.as_deref()));
    checks.push(locks(&args.dir));
    match &buffer {
        Some(dir) => checks.extend(medium::checks(dir)),
        None => checks.push(Check::ok("burst buffer", "none named; add --burst-buffer BB to look at one")),
    }
    let worst = checks.iter().map(|check| check.verdict).max().unwrap_or(Verdict::Ok);
    if args.json {
        exit::out_json(&serde_json::json!({ "verdict": worst, "checks": checks }))?;
    } else {
        print(&checks);
    }
    Ok(if worst == Verdict::Missing { exit::UNAVAILABLE } else { 0 })
}

/// Checks whether locks exclude programs of other nodes.
fn locks(dir: &Path) -> Check {
    let name = "locks";
    let store = crate::lower::open(dir).and_then(|below| PosixStore::new(below, StoreOptions::default()));
    let store = match store {
        Ok(store) => store,
        Err(error) => return Check::ok(name, format!("cannot look at {}: {}", dir.shown(), reason(&error))),
    };
    let shown = dir.shown();
    match (store.is_shared(), store.locks_across_nodes()) {
        (false, Ok(())) => Check::ok(name, format!("{shown} is on a file system of this machine")),
        (_, Err(why)) => Check::limited(
            name,
            format!("fcntl and flock in {shown} exclude programs of one node alone: {why}"),
            "programs of several nodes that need locks: nodes with --names server; lock=refuse has locks fail",
        ),
        (true, Ok(())) => Check::limited(
            name,
            format!(
                "in {shown} they exclude the programs of all nodes that use a server (--server), and without one those of one node"
            ),
            "programs of several nodes that need locks: forebay serve; lock=refuse has locks fail where there is no server",
        ),
    }
}

fn library() -> Check {
    let name = "preload library";
    match preload::find() {
        Library::Ours(path) => Check::ok(name, path.shown().to_string()),
        Library::Other(path) => {
            let found = format!("{} is of another version", path.shown());
            Check::limited(
                name,
                found,
                "install the library that came with this command; until then writes go through the kernel",
            )
        }
        Library::Missing => {
            let remedy = "put libforebay_preload.so beside this command or in ../lib/forebay; until then writes go through the kernel";
            Check::limited(name, "none", remedy)
        }
    }
}

/// Checks where windows would lie, and how durable an acknowledged write would be there.
fn windows(named: Option<&Path>) -> Check {
    let name = "windows";
    let worth = "what is acknowledged there survives programs and agents, and the machine after a sync";
    let memory = RingMemory::look();
    let by_default = by_default(&memory);
    let (dir, why) = match (named, &memory) {
        (Some(dir), _) => (dir.to_owned(), String::new()),
        (None, RingMemory::Shared { why }) => (memory.dir(), format!("; no huge pages: {why}; {by_default}")),
        (None, RingMemory::Own { mounted }) => {
            let state = if *mounted { "is mounted" } else { "is mounted by the first agent with windows" };
            let found = format!("{}, with huge pages, {state}: {worth}; {by_default}", memory.dir().shown());
            return Check::ok(name, found);
        }
    };
    if let Err(error) = agent::fits_windows(&dir) {
        let found = format!("cannot use {}: {}", dir.shown(), reason(&error));
        return Check::limited(name, found, crate::window::WHERE);
    }
    match WindowMedium::of(&dir) {
        Ok(medium) if medium.is_durable() => {
            let worth = "what is acknowledged there survives a crash of the machine without a sync";
            Check::ok(name, format!("{} is persistent memory: {worth}", dir.shown()))
        }
        Ok(_) if let Some(kind) = crate::window::not_in_memory(&dir) => {
            let found = format!("{} is on {kind} and not in memory", dir.shown());
            Check::limited(name, found, "windows there are slow: name a directory on a tmpfs or on persistent memory")
        }
        Ok(_) => Check::ok(name, format!("{} is no persistent memory: {worth}{why}", dir.shown())),
        Err(error) => {
            let found = format!("cannot write in {}: {}", dir.shown(), reason(&error));
            Check::limited(name, found, crate::window::WHERE)
        }
    }
}

/// Describes whether `forebay run`, started here, would serve windows by default.
fn by_default(memory: &RingMemory) -> String {
    let why = match crate::window::wished() {
        Ok(Wish::Off) => format!("{WISH}=off is set"),
        _ if std::env::var_os(SOCKET).is_some() => return format!("programs here have those of the agent of {SOCKET}"),
        Ok(Wish::Bytes(_)) => return format!("`forebay run` has them, as {WISH} is set"),
        _ if !preload::is_there() => "there is no preload library of this version".to_owned(),
        _ => match memory.lasts() {
            Ok(()) => return "`forebay run` has them by itself".to_owned(),
            Err(why) => why,
        },
    };
    format!("`forebay run` has them with --window alone, for {why}")
}

fn print(checks: &[Check]) {
    for check in checks {
        let verdict = match check.verdict {
            Verdict::Ok => "ok     ",
            Verdict::Limited => "limited",
            Verdict::Missing => "missing",
        };
        out!("{verdict}  {:<16} {}", check.name, check.found);
        if !check.remedy.is_empty() {
            out!("{:26}-> {}", "", check.remedy);
        }
    }
}
