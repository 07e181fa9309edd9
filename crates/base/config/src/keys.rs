//! The table of policy keys: name, syntax, default, meaning, and the functions that parse and format a value.

use std::fmt;
use std::time::Duration;

use crate::policy::{Atime, Cache, Delegate, KeepAfter, Lock, OnConflict, Policy, StageOut, Verify, WindowPolicy};
use crate::units::{format_duration, format_size, parse_duration, parse_size};

/// One key of a policy.
#[derive(Debug)]
pub struct Key {
    /// Name, as written in `KEY=VALUE`.
    pub name: &'static str,
    /// Accepted values, separated by `|`; `T` is a duration, `N` a size in bytes, `COUNT` a number.
    pub syntax: &'static str,
    /// Value that applies if no directory and no option sets the key.
    pub default: &'static str,
    /// Meaning, in one line.
    pub meaning: &'static str,
    /// Parses a value into a policy. Errors: a sentence for the user.
    pub(crate) read: Read,
    /// Formats the policy's value in the syntax that `read` accepts.
    pub(crate) write: Write,
}

type Read = fn(&mut Policy, &str) -> Result<(), String>;
type Write = fn(&Policy) -> String;

/// Reason why a key or its value was rejected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyError {
    /// No key has this name.
    Unknown {
        /// Name as the user wrote it.
        name: String,
        /// Key with the most similar name, if one is similar enough.
        nearest: Option<&'static str>,
    },
    /// The key is planned but has no effect yet, so accepting it would be misleading.
    Absent {
        /// Name of the planned key.
        name: String,
    },
    /// The value is not valid for the key.
    Value {
        /// Name of the key.
        name: &'static str,
        /// Reason, as a sentence.
        reason: String,
        /// Accepted values, as in [`Key::syntax`].
        syntax: &'static str,
    },
    /// The equals sign of `KEY=VALUE` is missing.
    Shape {
        /// Text as the user wrote it.
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

/// Planned keys, which are rejected rather than ignored.
pub(crate) const ABSENT: [&str; 2] = ["hot_extents", "redundancy"];

/// Largest edit distance at which a mistyped key is answered with a suggestion.
const TYPO_DISTANCE_MAX: usize = 3;

/// Finds a key by name. Errors: [`KeyError::Absent`] for a planned key, [`KeyError::Unknown`] for any other name.
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

/// Returns Levenshtein's edit distance, in characters.
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

/// Parses a value that is one of a few words. Errors: a sentence for the user.
fn word<T: Copy>(text: &str, words: &[(&str, T)]) -> Result<T, String> {
    let found = words.iter().find(|(name, _)| *name == text);
    found.map(|(_, value)| *value).ok_or_else(|| format!("`{text}` is not one of its values"))
}

/// Returns the word for a value. `words` must contain the value.
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
const DELEGATE_ORDER: [(&str, bool); 2] = [("batch", false), ("strict", true)];
const DELEGATE: [(&str, Delegate); 3] = [("off", Delegate::Off), ("new", Delegate::New), ("lease", Delegate::Lease)];
const LOCK: [(&str, Lock); 3] = [("auto", Lock::Auto), ("local", Lock::Local), ("refuse", Lock::Refuse)];
const DURABLE_AT: [(&str, bool); 2] = [("fsync", false), ("close", true)];
const CLOSE: [(&str, bool); 2] = [("drain", false), ("lazy", true)];
const RW_CONFLICT: [(&str, bool); 2] = [("invalidate", false), ("disable", true)];
const WRITE_BACK: [(&str, bool); 2] = [("early", true), ("kernel", false)];
const FSYNC: [(&str, bool); 2] = [("burst-buffer", false), ("global", true)];
const RENAME: [(&str, bool); 2] = [("commit", true), ("lazy", false)];
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

fn read_keep_after(text: &str) -> Result<KeepAfter, String> {
    if text == "delete" { Ok(KeepAfter::Delete) } else { parse_duration(text).map(KeepAfter::For) }
}

fn write_keep_after(value: KeepAfter) -> String {
    match value {
        KeepAfter::For(t) => format_duration(t),
        KeepAfter::Delete => "delete".to_string(),
    }
}

/// Shortest accepted wait. The store's own retries take this long, so shorter waits would fail calls to a store that is
/// merely slow.
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

fn write_unavailable(wait: Option<Duration>) -> String {
    wait.map_or_else(|| "hang".to_string(), format_duration)
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

/// Most requests at a time that a policy may ask for.
const STREAMS_MAX: usize = 1024;

fn read_streams(text: &str) -> Result<usize, String> {
    let streams = text.parse().ok().filter(|streams| (1..=STREAMS_MAX).contains(streams));
    streams.ok_or_else(|| format!("`{text}` is not a number from 1 to {STREAMS_MAX}"))
}

/// Largest `small_file`, in bytes: what a segment of the burst buffer takes as one object.
const SMALL_FILE_MAX: u64 = 1 << 20;

fn read_small_file(text: &str) -> Result<u64, String> {
    match parse_size(text)? {
        bytes if bytes <= SMALL_FILE_MAX => Ok(bytes),
        _ => Err(format!("`{text}` is more than {}", format_size(SMALL_FILE_MAX))),
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

/// Makes the table of keys from rows `name: syntax = default, meaning, value`.
///
/// A value is one of a table of `words` kept in a field, a field with two `functions` that parse and format it, or
/// `only` the default, with the reason why every other is rejected.
macro_rules! keys {
    ($($name:literal: $syntax:literal = $default:literal, $meaning:literal, $kind:ident($($value:tt)*);)*) => {
        /// All keys, in the order of the documentation.
        pub static KEYS: [Key; [$($name),*].len()] = [$({
            let (read, write) = keys!(@$kind $default, $($value)*);
            Key { name: $name, syntax: $syntax, default: $default, meaning: $meaning, read, write }
        }),*];
    };
    (@words $default:literal, $field:ident, $words:ident) => {
        keys!(@functions $default, $field, |text| word(text, &$words), |value| name(value, &$words))
    };
    (@functions $default:literal, $field:ident, $parse:expr, $format:expr) => {{
        const READ: Read = |policy, text| $parse(text).map(|value| policy.$field = value);
        const WRITE: Write = |policy| $format(policy.$field);
        (READ, WRITE)
    }};
    (@only $default:literal, $why:literal) => {{
        const READ: Read = |_, text| match text {
            $default => Ok(()),
            _ => Err(format!(concat!("`{}` is not available in this version: ", $why), text)),
        };
        const WRITE: Write = |_| $default.to_string();
        (READ, WRITE)
    }};
}

keys! {
    "cache": "both|write-cache|preload|through|scratch" = "both",
        "which data is accelerated: written and read, written only, read only, none; scratch is written and read, and staged out only by a command or the end of the mount",
        words(cache, CACHES);
    "stage_out": "close|idle:T|age:T|size:N|manual|exit" = "close",
        "what starts the copy to the global store: the last close, no use for T, T after the first change, N undrained bytes, a command, the end of the mount; a file that is held open is copied meanwhile under age and size alone (S67)",
        functions(stage_out, read_stage_out, write_stage_out);
    "keep_after": "T|delete" = "1h",
        "how long a clean replica stays in the burst buffer after its last use",
        functions(keep_after, read_keep_after, write_keep_after);
    "consistency": "close-to-open" = "close-to-open",
        "what other nodes see: what was staged out before they open the file",
        only("nodes meet in the global store alone");
    "close": "drain|lazy" = "drain",
        "whether close waits until what a window acknowledged is in the burst buffer; lazy: whoever opens or looks at the file next waits for that",
        words(close_lazy, CLOSE);
    "durable_at": "fsync|close" = "fsync",
        "the call after which data survives a machine crash",
        words(durable_at_close, DURABLE_AT);
    "fsync": "burst-buffer|global" = "burst-buffer",
        "where data is durable when fsync returns",
        words(fsync_global, FSYNC);
    "rename": "commit|lazy" = "commit",
        "whether a dirty file is staged out before it replaces an existing name",
        words(rename_commits, RENAME);
    "verify": "counts|full" = "counts",
        "how a stage-out is checked: by bytes written, fsync and a final stat, or by reading back",
        words(verify, VERIFY);
    "revalidate": "T" = "1s",
        "how long attributes and clean replicas are trusted before the global store is asked again",
        functions(revalidate, parse_duration, format_duration);
    "negative_timeout": "T" = "0s",
        "how long a name that was not there is taken for absent without asking the global store; it hides what others make meanwhile",
        functions(negative_timeout, parse_duration, format_duration);
    "on_conflict": "keep|dirty-wins" = "keep",
        "what happens when the global copy changed under a dirty file: stop and report, or overwrite it",
        words(on_conflict, ON_CONFLICT);
    "unavailable": "hang|T" = "hang",
        "what a call does that needs a global store which does not answer: it waits, as on a hard mount, or fails with EIO after T, of 1s or more, as on a soft one",
        functions(unavailable, read_unavailable, write_unavailable);
    "atime": "no|relative|strict" = "no",
        "whether reading a file moves its time of last access: never, as `relatime` does (once after each change, and once a day), or always; the global copy gets it when the file is closed, which moves its ctime",
        words(atime, ATIME);
    "lock": "auto|local|refuse" = "auto",
        "whom `fcntl` and `flock` locks exclude: programs of all nodes where that can be kept, else of this node alone; of this node alone; or of all nodes, and where that cannot be kept the call fails with ENOLCK",
        words(lock, LOCK);
    "window": "auto|off|N" = "auto",
        "the memory in which a preloaded program's writes to an open file are acknowledged, where the agent serves windows (docs/window.md)",
        functions(window, WindowPolicy::parse, WindowPolicy::format);
    "rw_conflict": "invalidate|disable" = "invalidate",
        "what becomes of a file's windows when it is read: they go on, or the first read ends them until everybody has closed it, and as long as somebody may have one nothing is read ahead but what is asked for (`POSIX_FADV_WILLNEED`)",
        words(read_ends_windows, RW_CONFLICT);
    "write_back": "early|kernel" = "early",
        "when what a program writes in sequence through a window goes on to the burst buffer's medium: 32 MiB behind it, so that a sync finds most of it done, or when the kernel likes, which spares the medium what is removed or written again within half a minute",
        words(write_back_early, WRITE_BACK);
    "read_ahead": "auto|off|N" = "auto",
        "how far ahead of a pattern of reads a file that is being staged in is fetched before anything else, and one at a server at all; off: in file order from where it was read last, and from a server not",
        functions(read_ahead, WindowPolicy::parse, WindowPolicy::format);
    "remote_wait": "T" = "1m",
        "how long an open waits for another node that holds the file dirty",
        functions(remote_wait, parse_duration, format_duration);
    "io_timeout": "T" = "30s",
        "how long a read waits for the server of a burst buffer before it fails with ETIMEDOUT",
        functions(io_timeout, parse_duration, format_duration);
    "passthrough_reserve": "PERCENT" = "5%",
        "share of the burst buffer that stays free for writes in progress",
        functions(reserve_thousandths, read_share, write_share);
    "delegate": "off|new|lease" = "off",
        "which directories are delegated, with all below them: none, those that are made through the mount, or existing ones as well from their first use on; in a delegated directory names and attributes are answered from memory and a log, and the global store gets them later, 30 s at the latest unless `stage_out` says manual or exit",
        words(delegate, DELEGATE);
    "delegate_order": "batch|strict" = "batch",
        "in which order names of a delegated directory appear in the global store: in any within one batch, or as the program has made them, for workflows that wait for one file to tell that others are there",
        words(delegate_strict, DELEGATE_ORDER);
    "name_streams": "COUNT" = "32",
        "most requests at a time that bring names of a delegated directory to the global store",
        functions(name_streams, read_streams, |streams: usize| streams.to_string());
    "small_file": "N" = "256KiB",
        "size, of 1MiB at most, up to which files of a delegated directory lie many to a file in the burst buffer, once nobody has changed anything in it for some seconds; 0: each keeps a file of its own",
        functions(small_file_bytes, read_small_file, format_size);
    "rate": "unlimited|N/s" = "unlimited",
        "most bytes a second that are staged out",
        functions(rate_bytes_per_s, read_rate, write_rate);
}

#[cfg(test)]
mod tests;
