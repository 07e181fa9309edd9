//! Outcomes of operations, as far as a program may rely on them.

use std::fmt;

/// Outcome on one side.
#[derive(Clone, PartialEq)]
pub enum Outcome {
    /// Nothing was open for the operation.
    Skipped,
    /// A failure.
    Errno(i32),
    /// A count, an offset, or 0 for plain success.
    Value(u64),
    /// Data, or names joined by NUL.
    Bytes(Vec<u8>),
    /// Attributes.
    Stat(Stat),
    /// The side contradicts itself; equal to no outcome.
    Broken(String),
}

/// Attributes that must agree.
#[derive(Debug, Clone, PartialEq)]
pub struct Stat {
    pub mode: u32,
    pub links: u64,
    pub uid: u32,
    pub gid: u32,
    /// Size, bytes; 0 for a directory, whose size differs between file systems.
    pub size: u64,
    pub mtime: Mtime,
    /// Whether each open descriptor is the same file, by inode number.
    pub same_as: Vec<bool>,
}

/// Modification time, as far as it can be compared.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Mtime {
    /// Set by `utimens`, in seconds.
    Explicit(i64),
    /// The time of a change.
    Recent,
    /// The file was stored to through a mapping; file systems differ in when that changes the time.
    Unknown,
}

impl Outcome {
    /// Returns whether two outcomes agree.
    pub fn agrees(&self, other: &Outcome) -> bool {
        match (self, other) {
            (Outcome::Broken(_), _) | (_, Outcome::Broken(_)) => false,
            (Outcome::Stat(one), Outcome::Stat(two)) => one.agrees(two),
            _ => self == other,
        }
    }
}

impl Stat {
    fn agrees(&self, other: &Stat) -> bool {
        let mut other = other.clone();
        if self.mtime == Mtime::Unknown || other.mtime == Mtime::Unknown {
            other.mtime = self.mtime;
        }
        *self == other
    }
}

/// Describes where two byte strings differ.
pub fn first_difference(one: &[u8], two: &[u8]) -> String {
    let at = one.iter().zip(two).position(|(a, b)| a != b);
    let around = |bytes: &[u8], at: usize| format!("{:02x?}", &bytes[at..bytes.len().min(at + 8)]);
    match at {
        Some(at) => {
            let count = one.iter().zip(two).filter(|(a, b)| a != b).count();
            format!("byte {at}: {} against {}, {count} bytes differ", around(one, at), around(two, at))
        }
        None => format!("{} against {} bytes", one.len(), two.len()),
    }
}

impl fmt::Debug for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Skipped => write!(f, "skipped"),
            Outcome::Errno(errno) => write!(f, "{:?}", rustix::io::Errno::from_raw_os_error(*errno)),
            Outcome::Value(value) => write!(f, "{value}"),
            Outcome::Bytes(bytes) if bytes.len() <= 80 => write!(f, "{:?}", String::from_utf8_lossy(bytes)),
            Outcome::Bytes(bytes) => write!(f, "{} bytes", bytes.len()),
            Outcome::Stat(stat) => write!(f, "{stat:?}"),
            Outcome::Broken(why) => write!(f, "BROKEN: {why}"),
        }
    }
}
