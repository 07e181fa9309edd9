//! The table of policy keys: name, syntax, default, meaning, how a value is read and how it is written.

use std::fmt;
use std::time::Duration;

use crate::policy::{Atime, Cache, KeepAfter, Lock, OnConflict, Policy, StageOut, Verify, WindowPolicy};
use crate::units::{format_duration, format_size, parse_duration, parse_size};

/// One key of a policy.
#[derive(Debug)]
pub struct Key {
    /// As written in `KEY=VALUE`.
    pub name: &'static str,
    /// The values it takes; `T` is a duration, `N` a size.
    pub syntax: &'static str,
    /// The value that holds where nobody says otherwise.
    pub default: &'static str,
    /// One line.
    pub meaning: &'static str,
    /// Reads a value into a policy; the error is a sentence for a person.
    pub(crate) read: fn(&mut Policy, &str) -> Result<(), String>,
    /// Writes the policy's value, in the form that `read` takes.
    pub(crate) write: fn(&Policy) -> String,
}

/// Why a key or its value was not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyError {
    /// There is no such key.
    Unknown {
        /// What was written.
        name: String,
        /// The key that looks most like it, if one does.
        nearest: Option<&'static str>,
    },
    /// The key is planned and does nothing yet; taking it would promise what is not there.
    Absent {
        /// Which.
        name: String,
    },
    /// The value is not one of the key's.
    Value {
        /// Which key.
        name: &'static str,
        /// A sentence.
        reason: String,
        /// What it takes.
        syntax: &'static str,
    },
    /// `KEY=VALUE` without the equals sign.
    Shape {
        /// What was written.
        text: String,
    },
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeyError::Unknown { name, nearest: Some(nearest) } => {
                write!(f, "there is no policy key `{name}`; did you mean `{nearest}`?")
            }
            KeyError::Unknown { name, nearest: None } => {
                write!(f, "there is no policy key `{name}`; `forebay policy list --keys` shows them all")
            }
            KeyError::Absent { name } => write!(f, "the policy key `{name}` is not available in this version"),
            KeyError::Value { name, reason, syntax } => write!(f, "policy {name}: {reason} ({name}={syntax})"),
            KeyError::Shape { text } => write!(f, "`{text}` is no policy: write KEY=VALUE, for example cache=preload"),
        }
    }
}

impl std::error::Error for KeyError {}

/// Planned keys, which are refused rather than ignored.
pub(crate) const ABSENT: [&str; 3] = ["small_file", "hot_extents", "redundancy"];

/// Largest edit distance at which another key is offered for a mistyped one.
const TYPO_DISTANCE_MAX: usize = 3;

/// Finds a key by name.
pub fn key(name: &str) -> Result<&'static Key, KeyError> {
    if let Some(found) = KEYS.iter().find(|key| key.name == name) {
        return Ok(found);
    }
    if ABSENT.contains(&name) {
        return Err(KeyError::Absent { name: name.to_string() });
    }
    let written = name.to_lowercase().replace('-', "_");
    let nearest = KEYS.iter().map(|key| (distance(&written, key.name), key.name)).min();
    let close =
        |(d, key): (usize, &'static str)| (d <= TYPO_DISTANCE_MAX && d < key.len().min(name.len())).then_some(key);
    Err(KeyError::Unknown { name: name.to_string(), nearest: nearest.and_then(close) })
}

/// Levenshtein's edit distance, in characters.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(row[j + 1] + 1);
        }
    }
    row[b.len()]
}

/// Reads one of a few words.
fn word<T: Copy>(text: &str, words: &[(&str, T)]) -> Result<T, String> {
    let found = words.iter().find(|(name, _)| *name == text);
    found.map(|(_, value)| *value).ok_or_else(|| format!("`{text}` is not one of its values"))
}

/// Writes the word for a value; every value is in its list.
fn name<T: Copy + PartialEq>(value: T, words: &[(&str, T)]) -> String {
    words.iter().find(|(_, v)| *v == value).map_or_else(String::new, |(name, _)| (*name).to_string())
}

const CACHES: [(&str, Cache); 5] = [
    ("both", Cache::Both),
    ("write-cache", Cache::WriteCache),
    ("preload", Cache::Preload),
    ("through", Cache::Through),
    ("scratch", Cache::Scratch),
];
const ATIME: [(&str, Atime); 3] = [("no", Atime::No), ("relative", Atime::Relative), ("strict", Atime::Strict)];
const LOCK: [(&str, Lock); 3] = [("auto", Lock::Auto), ("local", Lock::Local), ("refuse", Lock::Refuse)];
const DURABLE_AT: [(&str, bool); 2] = [("fsync", false), ("close", true)];
const CLOSE: [(&str, bool); 2] = [("drain", false), ("lazy", true)];
const RW_CONFLICT: [(&str, bool); 2] = [("invalidate", false), ("disable", true)];
const WRITE_BACK: [(&str, bool); 2] = [("early", true), ("kernel", false)];
const FSYNC: [(&str, bool); 2] = [("burst-buffer", false), ("global", true)];
const RENAME: [(&str, bool); 2] = [("commit", true), ("lazy", false)];
const PUBLISH: [(&str, bool); 2] = [("in-place", false), ("atomic", true)];
const VERIFY: [(&str, Verify); 2] = [("counts", Verify::Counts), ("full", Verify::Full)];
const ON_CONFLICT: [(&str, OnConflict); 2] = [("keep", OnConflict::Keep), ("dirty-wins", OnConflict::DirtyWins)];

fn read_stage_out(text: &str) -> Result<StageOut, String> {
    match text.split_once(':') {
        Some(("idle", t)) => parse_duration(t).map(StageOut::Idle),
        Some(("age", t)) => parse_duration(t).map(StageOut::Age),
        Some(("size", n)) => parse_size(n).map(StageOut::Size),
        _ => word(text, &[("close", StageOut::Close), ("manual", StageOut::Manual), ("exit", StageOut::Exit)]),
    }
}

fn write_stage_out(value: StageOut) -> String {
    match value {
        StageOut::Close => "close".to_string(),
        StageOut::Idle(t) => format!("idle:{}", format_duration(t)),
        StageOut::Age(t) => format!("age:{}", format_duration(t)),
        StageOut::Size(n) => format!("size:{}", format_size(n)),
        StageOut::Manual => "manual".to_string(),
        StageOut::Exit => "exit".to_string(),
    }
}

/// A key that has one value: `$why` every other is refused.
macro_rules! only {
    ($name:literal = $value:literal, $meaning:literal, $why:literal) => {
        Key {
            name: $name,
            syntax: $value,
            default: $value,
            meaning: $meaning,
            read: |_, text| match text {
                $value => Ok(()),
                _ => Err(format!(concat!("`{}` is not available in this version: ", $why), text)),
            },
            write: |_| $value.to_string(),
        }
    };
}

/// Shorter waits would fail calls of a store that is only slow: its own retries take that long.
const UNAVAILABLE_MIN: Duration = Duration::from_secs(1);

fn read_unavailable(text: &str) -> Result<Option<Duration>, String> {
    match text {
        "hang" => Ok(None),
        _ => match parse_duration(text)? {
            t if t < UNAVAILABLE_MIN => Err(format!("`{text}` is too short: 1s at least, or `hang`")),
            t => Ok(Some(t)),
        },
    }
}

fn read_share(text: &str) -> Result<u32, String> {
    let wrong = || format!("`{text}` is no share: write for example 5% or 2.5%");
    let percent: f64 = text.strip_suffix('%').ok_or_else(wrong)?.trim().parse().map_err(|_| wrong())?;
    if !(0.0..=90.0).contains(&percent) {
        return Err(format!("`{text}` is not between 0% and 90%"));
    }
    Ok((percent * 10.0).round() as u32)
}

fn write_share(thousandths: u32) -> String {
    match (thousandths / 10, thousandths % 10) {
        (whole, 0) => format!("{whole}%"),
        (whole, tenth) => format!("{whole}.{tenth}%"),
    }
}

fn read_rate(text: &str) -> Result<u64, String> {
    if text == "unlimited" {
        return Ok(0);
    }
    match parse_size(text.strip_suffix("/s").unwrap_or(text))? {
        0 => Err("a rate of 0 would never finish: write `unlimited` for no limit".to_string()),
        bytes => Ok(bytes),
    }
}

fn write_rate(bytes: u64) -> String {
    if bytes == 0 { "unlimited".to_string() } else { format!("{}/s", format_size(bytes)) }
}

/// Every key, in the order of the documentation.
pub static KEYS: [Key; 24] = [
    Key {
        name: "cache",
        syntax: "both|write-cache|preload|through|scratch",
        default: "both",
        meaning: "which data is accelerated: written and read, written only, read only, none; scratch is written and read, and staged out only by a command or the end of the mount",
        read: |p, text| word(text, &CACHES).map(|value| p.cache = value),
        write: |p| name(p.cache, &CACHES),
    },
    Key {
        name: "stage_out",
        syntax: "close|idle:T|age:T|size:N|manual|exit",
        default: "close",
        meaning: "what starts the copy to the global store: the last close, no use for T, T after the first change, N undrained bytes, a command, the end of the mount; a file that is held open is copied meanwhile under age and size alone (S67)",
        read: |p, text| read_stage_out(text).map(|value| p.stage_out = value),
        write: |p| write_stage_out(p.stage_out),
    },
    Key {
        name: "keep_after",
        syntax: "T|delete",
        default: "1h",
        meaning: "how long a clean replica stays in the burst buffer after its last use",
        read: |p, text| {
            p.keep_after = if text == "delete" { KeepAfter::Delete } else { KeepAfter::For(parse_duration(text)?) };
            Ok(())
        },
        write: |p| match p.keep_after {
            KeepAfter::For(t) => format_duration(t),
            KeepAfter::Delete => "delete".to_string(),
        },
    },
    only!(
        "consistency" = "close-to-open",
        "what other nodes see: what was staged out before they open the file",
        "nodes meet in the global store alone"
    ),
    Key {
        name: "close",
        syntax: "drain|lazy",
        default: "drain",
        meaning: "whether close waits until what a window acknowledged is in the burst buffer; lazy: whoever opens or looks at the file next waits for that",
        read: |p, text| word(text, &CLOSE).map(|value| p.close_lazy = value),
        write: |p| name(p.close_lazy, &CLOSE),
    },
    Key {
        name: "durable_at",
        syntax: "fsync|close",
        default: "fsync",
        meaning: "the call after which data survives a machine crash",
        read: |p, text| word(text, &DURABLE_AT).map(|value| p.durable_at_close = value),
        write: |p| name(p.durable_at_close, &DURABLE_AT),
    },
    Key {
        name: "fsync",
        syntax: "burst-buffer|global",
        default: "burst-buffer",
        meaning: "where data is durable when fsync returns",
        read: |p, text| word(text, &FSYNC).map(|value| p.fsync_global = value),
        write: |p| name(p.fsync_global, &FSYNC),
    },
    Key {
        name: "rename",
        syntax: "commit|lazy",
        default: "commit",
        meaning: "whether a dirty file is staged out before it replaces an existing name",
        read: |p, text| word(text, &RENAME).map(|value| p.rename_commits = value),
        write: |p| name(p.rename_commits, &RENAME),
    },
    Key {
        name: "publish",
        syntax: "in-place|atomic",
        default: "in-place",
        meaning: "how staged-out bytes appear in the global store: written into the file, or all at once as another file that takes its name, once nobody has it open, where that can be done (S53); its replica goes then, and the next open stages it in again",
        read: |p, text| word(text, &PUBLISH).map(|value| p.publish_atomic = value),
        write: |p| name(p.publish_atomic, &PUBLISH),
    },
    Key {
        name: "verify",
        syntax: "counts|full",
        default: "counts",
        meaning: "how a stage-out is checked: by bytes written, fsync and a final stat, or by reading back",
        read: |p, text| word(text, &VERIFY).map(|value| p.verify = value),
        write: |p| name(p.verify, &VERIFY),
    },
    Key {
        name: "revalidate",
        syntax: "T",
        default: "1s",
        meaning: "how long attributes and clean replicas are trusted before the global store is asked again",
        read: |p, text| parse_duration(text).map(|value| p.revalidate = value),
        write: |p| format_duration(p.revalidate),
    },
    Key {
        name: "negative_timeout",
        syntax: "T",
        default: "0s",
        meaning: "how long a name that was not there is taken for absent without asking the global store; it hides what others make meanwhile",
        read: |p, text| parse_duration(text).map(|value| p.negative_timeout = value),
        write: |p| format_duration(p.negative_timeout),
    },
    Key {
        name: "on_conflict",
        syntax: "keep|dirty-wins",
        default: "keep",
        meaning: "what happens when the global copy changed under a dirty file: stop and report, or overwrite it",
        read: |p, text| word(text, &ON_CONFLICT).map(|value| p.on_conflict = value),
        write: |p| name(p.on_conflict, &ON_CONFLICT),
    },
    Key {
        name: "unavailable",
        syntax: "hang|T",
        default: "hang",
        meaning: "what a call does that needs a global store which does not answer: it waits, as on a hard mount, or fails with EIO after T, of 1s or more, as on a soft one",
        read: |p, text| read_unavailable(text).map(|value| p.unavailable = value),
        write: |p| p.unavailable.map_or_else(|| "hang".to_string(), format_duration),
    },
    Key {
        name: "atime",
        syntax: "no|relative|strict",
        default: "no",
        meaning: "whether reading a file moves its time of last access: never, as `relatime` does (once after each change, and once a day), or always; the global copy gets it when the file is closed, which moves its ctime",
        read: |p, text| word(text, &ATIME).map(|value| p.atime = value),
        write: |p| name(p.atime, &ATIME),
    },
    Key {
        name: "lock",
        syntax: "auto|local|refuse",
        default: "auto",
        meaning: "whom `fcntl` and `flock` locks exclude: programs of all nodes where that can be kept, else of this node alone; of this node alone; or of all nodes, and where that cannot be kept the call fails with ENOLCK",
        read: |p, text| word(text, &LOCK).map(|value| p.lock = value),
        write: |p| name(p.lock, &LOCK),
    },
    Key {
        name: "window",
        syntax: "auto|off|N",
        default: "auto",
        meaning: "the memory in which a preloaded program's writes to an open file are acknowledged, where the agent serves windows (docs/window.md)",
        read: |p, text| WindowPolicy::parse(text).map(|value| p.window = value),
        write: |p| p.window.format(),
    },
    Key {
        name: "rw_conflict",
        syntax: "invalidate|disable",
        default: "invalidate",
        meaning: "what becomes of a file's windows when it is read: they go on, or the first read ends them until everybody has closed it, and as long as somebody may have one nothing is read ahead but what is asked for (`POSIX_FADV_WILLNEED`)",
        read: |p, text| word(text, &RW_CONFLICT).map(|value| p.read_ends_windows = value),
        write: |p| name(p.read_ends_windows, &RW_CONFLICT),
    },
    Key {
        name: "write_back",
        syntax: "early|kernel",
        default: "early",
        meaning: "when what a program writes in sequence through a window goes on to the burst buffer's medium: 32 MiB behind it, so that a sync finds most of it done, or when the kernel likes, which spares the medium what is removed or written again within half a minute",
        read: |p, text| word(text, &WRITE_BACK).map(|value| p.write_back_early = value),
        write: |p| name(p.write_back_early, &WRITE_BACK),
    },
    Key {
        name: "read_ahead",
        syntax: "auto|off|N",
        default: "auto",
        meaning: "how far ahead of a pattern of reads a file that is being staged in is fetched before anything else, and one at a server at all; off: in file order from where it was read last, and from a server not",
        read: |p, text| WindowPolicy::parse(text).map(|value| p.read_ahead = value),
        write: |p| p.read_ahead.format(),
    },
    Key {
        name: "remote_wait",
        syntax: "T",
        default: "1m",
        meaning: "how long an open waits for another node that holds the file dirty",
        read: |p, text| parse_duration(text).map(|value| p.remote_wait = value),
        write: |p| format_duration(p.remote_wait),
    },
    Key {
        name: "io_timeout",
        syntax: "T",
        default: "30s",
        meaning: "how long a read waits for the server of a burst buffer before it fails with ETIMEDOUT",
        read: |p, text| parse_duration(text).map(|value| p.io_timeout = value),
        write: |p| format_duration(p.io_timeout),
    },
    Key {
        name: "passthrough_reserve",
        syntax: "PERCENT",
        default: "5%",
        meaning: "share of the burst buffer that stays free for writes in progress",
        read: |p, text| read_share(text).map(|value| p.reserve_thousandths = value),
        write: |p| write_share(p.reserve_thousandths),
    },
    Key {
        name: "rate",
        syntax: "unlimited|N/s",
        default: "unlimited",
        meaning: "most bytes a second that are staged out",
        read: |p, text| read_rate(text).map(|value| p.rate_bytes_per_s = value),
        write: |p| write_rate(p.rate_bytes_per_s),
    },
];

#[cfg(test)]
mod tests;
