//! `forebay status`: shows which directories are accelerated, what is cached, and what is still to be drained.

use std::path::Path;

use agent::control::ControlRequest;
use indicatif::HumanBytes;
use serde_json::{Value, json};
use types::Shown;

use crate::args::StatusArgs;
use crate::count::files;
use crate::drain::plain;
use crate::exit::{self, Failure, out};
use crate::limits::LISTED_MAX;
use crate::link::{self, Target};
use crate::report;
use crate::shell;

/// Shows the status. Returns 69 if a directory has no agent.
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
        let pid = link.ask(&ControlRequest::Ping, |_| {})?["pid"].clone();
        Ok((pid, link.ask(&ControlRequest::Status, |_| {})?))
    });
    match asked {
        Ok((pid, mut status)) => {
            if status["names"].is_null() {
                derive(&mut status);
                status["stuck"].as_array_mut().into_iter().flatten().for_each(|one| name_in_remedy(one, &dir));
            }
            json!({ "dir": dir, "burst_buffer": buffer, "agent": pid, "status": status })
        }
        Err(failure) => {
            json!({ "dir": dir, "burst_buffer": buffer, "error": failure.message, "remedy": failure.remedy })
        }
    }
}

/// Adds values derived from the counters: `hit_rate` (0 to 1, null without opens), and bytes/s while something was
/// being staged out or in.
fn derive(status: &mut Value) {
    let n = |key: &str| status[key].as_u64().unwrap_or(0);
    let opens = n("hits") + n("misses");
    let hit_rate = (opens > 0).then(|| n("hits") as f64 / opens as f64);
    let rate = |bytes: &str, us: &str| report::rate(n(bytes) as f64, n(us) as f64 / 1e6);
    let (out, into) = (rate("staged_out_bytes", "staged_out_us"), rate("staged_in_bytes", "staged_in_us"));
    status["hit_rate"] = json!(hit_rate);
    status["staged_out_bytes_per_s"] = json!(out);
    status["staged_in_bytes_per_s"] = json!(into);
}

/// Inserts file and identity into a remedy, so that the command can be given as printed.
fn name_in_remedy(one: &mut Value, dir: &Path) {
    let identity = text(&one["identity"]);
    if identity.is_empty() {
        // The entry concerns the burst buffer itself; its remedy names no file.
        return;
    }
    let file = shell::word(dir.join(text(&one["path"])));
    // An identity is hex, while a path may contain any text.
    let remedy = text(&one["remedy"]).replace("IDENTITY", identity).replace("PATH", &file);
    one["remedy"] = json!(remedy);
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn print(state: &Value) {
    if state["status"]["names"].is_string() {
        return print_relay(state);
    }
    out!("{}  burst buffer {}", text(&state["dir"]).shown(), text(&state["burst_buffer"]).shown());
    if let Some(error) = state["error"].as_str() {
        out!("  {error}");
        let remedy = text(&state["remedy"]);
        if !remedy.is_empty() {
            out!("  {remedy}");
        }
        return;
    }
    let status = &state["status"];
    out!("  agent {}{}", state["agent"], if status["quiesced"] == true { ", quiesced" } else { "" });
    print_store(&status["store"]);
    if let Some(why) = status["locks"]["why"].as_str() {
        out!("  fcntl and flock exclude programs of this node alone: {why} (policy lock)");
    }
    if print_server(&status["server"]) {
        print_counts(status);
        print_windows(&status["windows"]);
        print_trouble(status);
    }
}

/// Prints a directory whose names and data are at a server.
fn print_relay(state: &Value) {
    let server = &state["status"]["server"];
    out!("{}  names and data at a server", text(&state["dir"]).shown().shown());
    out!("  agent {}", state["agent"]);
    let address = text(&server["address"]);
    if server["answers"] == true {
        return out!("  server {address} answers; its counters: forebay status there");
    }
    let since = server["away_s"].as_u64().map_or(String::new(), |seconds| format!(", for {seconds} s now"));
    out!(
        "  server {address} does not answer{since}: writes to open files wait for it, the rest fails after io_timeout"
    );
}

/// Prints calls that have waited long for the global store, if there are any.
fn print_store(store: &Value) {
    let unanswered = store["unanswered"].as_u64().unwrap_or(0);
    let none = Vec::new();
    let calls = store["calls"].as_array().unwrap_or(&none);
    let Some(longest) = calls.first() else { return };
    let (seconds, plural) = (longest["for_s"].as_u64().unwrap_or(0), if unanswered == 1 { "" } else { "s" });
    out!("  the global store does not answer: {unanswered} call{plural}, the longest for {seconds} s now");
    for one in calls.iter().take(LISTED_MAX) {
        let file = one["file"].as_str().map_or(String::new(), |file| format!(" of {}", plain(file).shown()));
        out!("    {}{file}, for {} s", text(&one["call"]), one["for_s"].as_u64().unwrap_or(0));
    }
}

/// Prints the server that has the burst buffer, if there is one. Returns whether there are counters.
fn print_server(server: &Value) -> bool {
    let Some(address) = server["address"].as_str() else { return true };
    if server["answers"] == true {
        out!("  server {address} answers; what follows is of all that it serves");
        return true;
    }
    let since = server["away_s"].as_u64().map_or(String::new(), |seconds| format!(", for {seconds} s now"));
    out!("  server {address} does not answer{since}: what changes data waits for it, reads fail after io_timeout");
    false
}

fn print_counts(status: &Value) {
    let n = |key: &str| status[key].as_u64().unwrap_or(0);
    let bytes = |key: &str| HumanBytes(n(key));
    let rate = |key: &str| HumanBytes(status[key].as_f64().unwrap_or(0.0) as u64);
    out!("  burst buffer: {} of {} free; {} evicted", bytes("free_bytes"), bytes("total_bytes"), n("evicted"));
    let pinned = if n("pinned") > 0 { format!(", {} pinned", n("pinned")) } else { String::new() };
    out!(
        "  files: {} kept{pinned}, {} clean, {} dirty ({}), {} open",
        n("files"),
        n("clean"),
        n("dirty"),
        bytes("dirty_bytes"),
        n("open")
    );
    if n("removed") > 0 {
        out!("  of these {} are removed, and go when the global store has that on its medium", n("removed"));
    }
    if n("without_identity_attribute") > 0 {
        out!(
            "  of the dirty ones {} would not be found again if the catalogue were lost now; agent.log says why",
            n("without_identity_attribute")
        );
    }
    out!("  now: {} queued, {} being staged out, {} being staged in", n("queued"), n("draining"), n("fetching"));
    out!(
        "  since the start: out {}, {} at {}/s; in {}, {} at {}/s",
        files(n("staged_out_files")),
        bytes("staged_out_bytes"),
        rate("staged_out_bytes_per_s"),
        files(n("staged_in_files")),
        bytes("staged_in_bytes"),
        rate("staged_in_bytes_per_s")
    );
    let hits = status["hit_rate"].as_f64().map_or(String::new(), |rate| format!(" ({:.0} %)", rate * 100.0));
    out!(
        "  opens: {} found their data here{hits}, {} did not, {} went to the global store",
        n("hits"),
        n("misses"),
        n("through")
    );
}

/// Prints the counters of windows, if windows are served.
fn print_windows(windows: &Value) {
    if windows.is_null() {
        return;
    }
    let n = |key: &str| windows[key].as_u64().unwrap_or(0);
    let durable = if windows["durable"] == true { " on persistent memory" } else { "" };
    out!(
        "  windows{durable}: {} now, {} since the start, {} revoked; {} acknowledged, {} waiting, {} drained; programs waited {:.1} s for room",
        n("windows"),
        n("attached"),
        n("revoked"),
        HumanBytes(n("acknowledged_bytes")),
        HumanBytes(n("waiting_bytes")),
        HumanBytes(n("drained_bytes")),
        n("waited_us") as f64 / 1e6
    );
    let status = serde_json::from_value(windows.clone()).unwrap_or_default();
    crate::window::troubles(&status).iter().for_each(|why| out!("  {why}"));
    if n("lost_bytes") > 0 {
        out!(
            "  {} bytes that windows acknowledged are lost: others have removed their files or written there since; agent.log names them",
            n("lost_bytes")
        );
    }
    if n("failing") > 0 {
        out!("  windows of {} cannot be brought to the burst buffer now and are tried again", files(n("failing")));
    }
}

/// Prints failures and files that need a decision; nothing if there are none.
fn print_trouble(status: &Value) {
    let n = |key: &str| status[key].as_u64().unwrap_or(0);
    if n("errors") > 0 {
        out!("  errors: {} stage-outs failed and are tried again", n("errors"));
        if let Some(path) = status["failure"][0].as_str() {
            out!("    the last: {}: {}", path.shown(), plain(text(&status["failure"][1])));
        }
    }
    if n("spilled") + n("full") > 0 {
        out!("  full: {} went on in the global store, {} looks found no space at all", files(n("spilled")), n("full"));
    }
    let waiting = [("conflict", "in conflict"), ("failed", "failed"), ("orphaned", "orphaned")];
    let waiting: Vec<String> =
        waiting.iter().filter(|(key, _)| n(key) > 0).map(|(key, word)| format!("{} {word}", n(key))).collect();
    if !waiting.is_empty() {
        out!("  to be decided: {}", waiting.join(", "));
    }
    let none = Vec::new();
    let stuck = status["stuck"].as_array().unwrap_or(&none);
    for one in stuck.iter().take(LISTED_MAX) {
        out!("  {} {}: {}", text(&one["state"]), text(&one["path"]).shown(), plain(text(&one["reason"])));
        out!("    data: {}; {}", text(&one["replica"]).shown(), text(&one["remedy"]));
    }
    if stuck.len() > LISTED_MAX {
        out!("  and {} more that need attention", stuck.len() - LISTED_MAX);
    }
}
