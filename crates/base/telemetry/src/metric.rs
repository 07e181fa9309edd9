//! One metric, described.

/// The description of a number or flag that `forebay status` shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metric {
    /// Path of the value in the `status` of `forebay status --json`, its keys joined by dots.
    pub name: &'static str,
    /// Unit of the value.
    pub unit: Unit,
    /// Meaning of the value, in plain sentences.
    pub help: &'static str,
    /// Promise about the name and the meaning.
    pub stability: Stability,
}

impl Metric {
    /// Returns the keys that lead from the status to the value, the outermost first.
    pub fn keys(&self) -> impl Iterator<Item = &'static str> {
        self.name.split('.')
    }
}

/// The unit of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Number of files or replicas.
    Files,
    /// Bytes.
    Bytes,
    /// Bytes per second.
    BytesPerSecond,
    /// Number of events or things that are no files.
    Count,
    /// Microseconds.
    Microseconds,
    /// Seconds.
    Seconds,
    /// Share between 0 and 1.
    Ratio,
    /// True or false.
    Flag,
    /// Error number of the C library; 0 for none.
    Errno,
}

impl Unit {
    /// Returns the word for the unit in documentation.
    pub fn word(self) -> &'static str {
        match self {
            Unit::Files => "files",
            Unit::Bytes => "bytes",
            Unit::BytesPerSecond => "bytes/s",
            Unit::Count => "count",
            Unit::Microseconds => "us",
            Unit::Seconds => "s",
            Unit::Ratio => "0 to 1",
            Unit::Flag => "flag",
            Unit::Errno => "errno",
        }
    }
}

/// The promise about a metric's name and meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stability {
    /// Name, unit and meaning change only with an entry in the change log.
    Stable,
    /// The metric describes how Forebay works inside, and may change or vanish with any version.
    Internal,
}

impl Stability {
    /// Returns the word for the promise in documentation.
    pub fn word(self) -> &'static str {
        match self {
            Stability::Stable => "stable",
            Stability::Internal => "internal",
        }
    }
}
