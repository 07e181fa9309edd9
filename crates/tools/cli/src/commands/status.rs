//! `forebay status`: shows which directories are accelerated, what is cached, and what is still to be drained.

use std::path::Path;

use agent::control::ControlRequest;
use indicatif::HumanBytes;
use serde_json::{Value, json};
use telemetry::{self as metric, Metric};
use types::Shown;

use crate::args::StatusArgs;
use crate::count::files;
use crate::delegated;
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
        exit::out_json(&states)?;
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
    let n = |one| number(status, one);
    let opens = n(metric::HITS) + n(metric::MISSES);
    let hit_rate = (opens > 0).then(|| n(metric::HITS) as f64 / opens as f64);
    let rate = |bytes, us| report::rate(n(bytes) as f64, n(us) as f64 / 1e6);
    let out = rate(metric::STAGED_OUT_BYTES, metric::STAGED_OUT_US);
    let into = rate(metric::STAGED_IN_BYTES, metric::STAGED_IN_US);
    status[metric::HIT_RATE.name] = json!(hit_rate);
    status[metric::STAGED_OUT_BYTES_PER_S.name] = json!(out);
    status[metric::STAGED_IN_BYTES_PER_S.name] = json!(into);
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

/// Returns the value of a metric in a status; null where the status has none.
fn value(status: &Value, metric: Metric) -> &Value {
    metric.keys().fold(status, |at, key| &at[key])
}

/// Returns the value of a metric that counts; 0 where the status has none.
fn number(status: &Value, metric: Metric) -> u64 {
    value(status, metric).as_u64().unwrap_or(0)
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
    out!("  agent {}{}", state["agent"], if value(status, metric::QUIESCED) == true { ", quiesced" } else { "" });
    print_store(status);
    if let Some(why) = status["locks"]["why"].as_str() {
        out!("  fcntl and flock exclude programs of this node alone: {why} (policy lock)");
    }
    if print_server(status) {
        print_counts(status);
        print_windows(status);
        print_trouble(status);
    }
}

/// Prints a directory whose names and data are at a server.
fn print_relay(state: &Value) {
    let status = &state["status"];
    out!("{}  names and data at a server", text(&state["dir"]).shown().shown());
    out!("  agent {}", state["agent"]);
    let address = text(&status["server"]["address"]);
    if value(status, metric::SERVER_ANSWERS) == true {
        return out!("  server {address} answers; its counters: forebay status there");
    }
    let since = away(status);
    out!(
        "  server {address} does not answer{since}: writes to open files wait for it, the rest fails after io_timeout"
    );
}

/// Prints calls that have waited long for the global store, if there are any.
fn print_store(status: &Value) {
    let unanswered = number(status, metric::STORE_UNANSWERED);
    let none = Vec::new();
    let calls = status["store"]["calls"].as_array().unwrap_or(&none);
    let Some(longest) = calls.first() else { return };
    let (seconds, plural) = (longest["for_s"].as_u64().unwrap_or(0), if unanswered == 1 { "" } else { "s" });
    out!("  the global store does not answer: {unanswered} call{plural}, the longest for {seconds} s now");
    for one in calls.iter().take(LISTED_MAX) {
        let file = one["file"].as_str().map_or(String::new(), |file| format!(" of {}", plain(file).shown()));
        out!("    {}{file}, for {} s", text(&one["call"]), one["for_s"].as_u64().unwrap_or(0));
    }
}

/// How long the server has been away, as a part of a sentence.
fn away(status: &Value) -> String {
    value(status, metric::SERVER_AWAY_S).as_u64().map_or(String::new(), |seconds| format!(", for {seconds} s now"))
}

/// The server with the burst buffer, if there is one; whether there are counters.
fn print_server(status: &Value) -> bool {
    let Some(address) = status["server"]["address"].as_str() else { return true };
    if value(status, metric::SERVER_ANSWERS) == true {
        out!("  server {address} answers; what follows is of all that it serves");
        return true;
    }
    let since = away(status);
    out!("  server {address} does not answer{since}: what changes data waits for it, reads fail after io_timeout");
    false
}

fn print_counts(status: &Value) {
    let n = |one| number(status, one);
    let bytes = |one| HumanBytes(n(one));
    let rate = |one| HumanBytes(value(status, one).as_f64().unwrap_or(0.0) as u64);
    out!(
        "  burst buffer: {} of {} free; {} evicted",
        bytes(metric::FREE_BYTES),
        bytes(metric::TOTAL_BYTES),
        n(metric::EVICTED)
    );
    let pinned = if n(metric::PINNED) > 0 { format!(", {} pinned", n(metric::PINNED)) } else { String::new() };
    out!(
        "  files: {} kept{pinned}, {} clean, {} dirty ({}), {} open",
        n(metric::FILES),
        n(metric::CLEAN),
        n(metric::DIRTY),
        bytes(metric::DIRTY_BYTES),
        n(metric::OPEN)
    );
    if n(metric::DELEGATED_TREES) > 0 {
        out!(
            "  delegated directories: {}; {} for the global store",
            n(metric::DELEGATED_TREES),
            delegated::names_wait(n(metric::WAITING_NAMES))
        );
    }
    if n(metric::REMOVED) > 0 {
        out!("  of these {} are removed, and go when the global store has that on its medium", n(metric::REMOVED));
    }
    if n(metric::WITHOUT_IDENTITY_ATTRIBUTE) > 0 {
        out!(
            "  of the dirty ones {} would not be found again if the catalogue were lost now; agent.log says why",
            n(metric::WITHOUT_IDENTITY_ATTRIBUTE)
        );
    }
    out!(
        "  now: {} queued, {} being staged out, {} being staged in",
        n(metric::QUEUED),
        n(metric::DRAINING),
        n(metric::FETCHING)
    );
    out!(
        "  since the start: out {}, {} at {}/s; in {}, {} at {}/s",
        files(n(metric::STAGED_OUT_FILES)),
        bytes(metric::STAGED_OUT_BYTES),
        rate(metric::STAGED_OUT_BYTES_PER_S),
        files(n(metric::STAGED_IN_FILES)),
        bytes(metric::STAGED_IN_BYTES),
        rate(metric::STAGED_IN_BYTES_PER_S)
    );
    let hits =
        value(status, metric::HIT_RATE).as_f64().map_or(String::new(), |rate| format!(" ({:.0} %)", rate * 100.0));
    out!(
        "  opens: {} found their data here{hits}, {} did not, {} went to the global store",
        n(metric::HITS),
        n(metric::MISSES),
        n(metric::THROUGH)
    );
}

fn print_windows(status: &Value) {
    let windows = &status["windows"];
    if windows.is_null() {
        return;
    }
    let n = |one| number(status, one);
    let durable = if value(status, metric::WINDOWS_DURABLE) == true { " on persistent memory" } else { "" };
    out!(
        "  windows{durable}: {} now, {} since the start, {} revoked; {} acknowledged, {} waiting, {} drained; programs waited {:.1} s for room",
        n(metric::WINDOWS_WINDOWS),
        n(metric::WINDOWS_ATTACHED),
        n(metric::WINDOWS_REVOKED),
        HumanBytes(n(metric::WINDOWS_ACKNOWLEDGED_BYTES)),
        HumanBytes(n(metric::WINDOWS_WAITING_BYTES)),
        HumanBytes(n(metric::WINDOWS_DRAINED_BYTES)),
        n(metric::WINDOWS_WAITED_US) as f64 / 1e6
    );
    let counted = serde_json::from_value(windows.clone()).unwrap_or_default();
    crate::window::troubles(&counted).iter().for_each(|why| out!("  {why}"));
    if n(metric::WINDOWS_LOST_BYTES) > 0 {
        out!(
            "  {} bytes that windows acknowledged are lost: others have removed their files or written there since; agent.log names them",
            n(metric::WINDOWS_LOST_BYTES)
        );
    }
    if n(metric::WINDOWS_FAILING) > 0 {
        out!(
            "  windows of {} cannot be brought to the burst buffer now and are tried again",
            files(n(metric::WINDOWS_FAILING))
        );
    }
}

/// Prints failures and files that need a decision; nothing if there are none.
fn print_trouble(status: &Value) {
    let n = |one| number(status, one);
    if n(metric::ERRORS) > 0 {
        out!("  errors: {} stage-outs failed and are tried again", n(metric::ERRORS));
        if let Some(path) = status["failure"][0].as_str() {
            out!("    the last: {}: {}", path.shown(), plain(text(&status["failure"][1])));
        }
    }
    if n(metric::SPILLED) + n(metric::FULL) > 0 {
        out!(
            "  full: {} went on in the global store, {} looks found no space at all",
            files(n(metric::SPILLED)),
            n(metric::FULL)
        );
    }
    let waiting = [(metric::CONFLICT, "in conflict"), (metric::FAILED, "failed"), (metric::ORPHANED, "orphaned")];
    let waiting: Vec<String> =
        waiting.into_iter().filter(|(key, _)| n(*key) > 0).map(|(key, word)| format!("{} {word}", n(key))).collect();
    if !waiting.is_empty() {
        out!("  to be decided: {}", waiting.join(", "));
    }
    let none = Vec::new();
    let stuck = status["stuck"].as_array().unwrap_or(&none);
    for one in stuck.iter().take(LISTED_MAX) {
        out!("  {} {}: {}", text(&one["state"]), text(&one["path"]).shown(), plain(text(&one["reason"])));
        let data = Some(text(&one["replica"])).filter(|data| !data.is_empty());
        let data = data.map_or(String::new(), |data| format!("data: {}; ", data.shown()));
        out!("    {data}{}", text(&one["remedy"]));
    }
    if stuck.len() > LISTED_MAX {
        out!("  and {} more that need attention", stuck.len() - LISTED_MAX);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The names of numbers and flags in `at`, as the table has them. What is in a list is of a file or a call.
    fn numbers(at: &Value, name: &str, found: &mut BTreeSet<String>) {
        match at {
            Value::Number(_) | Value::Bool(_) => _ = found.insert(name.to_owned()),
            Value::Object(fields) => fields.iter().for_each(|(key, value)| {
                numbers(value, &if name.is_empty() { key.clone() } else { format!("{name}.{key}") }, found);
            }),
            Value::Null | Value::String(_) | Value::Array(_) => {}
        }
    }

    #[test]
    fn each_number_of_a_status_has_a_row_and_each_row_is_shown() {
        let mut status = json!(data_store::Status { hits: 1, ..data_store::Status::default() });
        status["windows"] = json!(agent::WindowStatus::default());
        status["store"] = json!({ "unanswered": 0, "calls": [] });
        status["server"] = json!({ "address": "unix:/socket", "answers": false, "away_s": 1 });
        derive(&mut status);
        let mut shown = BTreeSet::new();
        numbers(&status, "", &mut shown);
        let described: BTreeSet<String> = metric::METRICS.iter().map(|metric| metric.name.to_owned()).collect();
        assert_eq!(shown, described);
    }
}
