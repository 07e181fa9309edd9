//! `forebay status`: what is accelerated, what is cached, what is still to be drained.

use agent::control::Request;
use indicatif::HumanBytes;
use serde_json::{Value, json};

use crate::args::StatusArgs;
use crate::exit::{self, Failure, out};
use crate::limits::LISTED_MAX;
use crate::link::{self, Target};

/// Shows it. 69 if a directory has no agent.
pub fn run(args: &StatusArgs) -> Result<u8, Failure> {
    let buffer = args.burst_buffer.get();
    let targets = match &args.dir {
        Some(path) => vec![link::target(path, buffer.as_deref())?.0],
        None => link::targets(buffer.as_deref())?,
    };
    let states: Vec<Value> = targets.into_iter().map(state).collect();
    let dead = states.iter().any(|state| state["error"].is_string());
    if args.json {
        let text = serde_json::to_string_pretty(&states).map_err(|e| Failure::new(exit::SOFTWARE, e.to_string()))?;
        out!("{text}");
    } else if states.is_empty() {
        out!("nothing is accelerated here");
    } else {
        states.iter().for_each(print);
    }
    Ok(if dead { exit::UNAVAILABLE } else { 0 })
}

fn state(target: Target) -> Value {
    let (dir, buffer) = (target.dir.clone(), target.burst_buffer.clone());
    let asked = link::connect(target).and_then(|mut link| {
        let pid = link.ask(&Request::Ping, |_| {})?["pid"].clone();
        Ok((pid, link.ask(&Request::Status, |_| {})?))
    });
    match asked {
        Ok((pid, status)) => json!({ "dir": dir, "burst_buffer": buffer, "agent": pid, "status": status }),
        Err(failure) => json!({ "dir": dir, "burst_buffer": buffer, "error": failure.message }),
    }
}

fn print(state: &Value) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
    out!("{}  burst buffer {}", text(&state["dir"]), text(&state["burst_buffer"]));
    if let Some(error) = state["error"].as_str() {
        out!("  {error}");
        return;
    }
    let status = &state["status"];
    let n = |key: &str| status[key].as_u64().unwrap_or(0);
    let bytes = |key: &str| HumanBytes(n(key));
    out!("  agent {}{}", state["agent"], if status["quiesced"] == true { ", quiesced" } else { "" });
    out!(
        "  files: {} kept, {} clean, {} dirty ({}), {} open",
        n("files"),
        n("clean"),
        n("dirty"),
        bytes("dirty_bytes"),
        n("open")
    );
    out!("  now: {} queued, {} being staged out, {} being staged in", n("queued"), n("draining"), n("fetching"));
    out!(
        "  since the start: out {} files, {}; in {} files, {}",
        n("staged_out_files"),
        bytes("staged_out_bytes"),
        n("staged_in_files"),
        bytes("staged_in_bytes")
    );
    out!(
        "  opens: {} found their data here, {} did not, {} went to the global store",
        n("hits"),
        n("misses"),
        n("through")
    );
    out!("  space: {} of {} free", bytes("free_bytes"), bytes("total_bytes"));
    let none = Vec::new();
    let stuck = status["stuck"].as_array().unwrap_or(&none);
    for one in stuck.iter().take(LISTED_MAX) {
        out!("  {} {}: {}", text(&one["state"]), text(&one["path"]), text(&one["reason"]));
        out!("    data: {}; {}", text(&one["replica"]), text(&one["remedy"]));
    }
    if stuck.len() > LISTED_MAX {
        out!("  and {} more that need attention", stuck.len() - LISTED_MAX);
    }
}
