//! Workload patterns: the presets of IOR and IO500, and their changes.

use std::fmt;

use clap::ValueEnum;
use clap::builder::PossibleValue;
use serde::{Deserialize, Serialize};

use crate::bounds::TRANSFER_MAX;

/// Named patterns. Sizes are those of the io500 suite's configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Preset {
    /// New files, one for each process, in one directory, sequential writes of 1 MiB: the paper's checkpoint
    Stream,
    /// A file for each process, sequential transfers of 2 MiB, written then read by another process
    IorEasy,
    /// One shared file, interleaved transfers of 47,008 bytes, written then read
    IorHard,
    /// Empty files in a directory of each process: create, stat, delete
    MdtestEasy,
    /// Files of 3,901 bytes in one shared directory: create, stat, read, delete
    MdtestHard,
    /// Every process walks another's directory, and looks at each file in it
    Find,
}

/// Which file a process writes, and where in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Layout {
    /// Each process has its own file
    FilePerProcess,
    /// One file; each process has one contiguous part
    Segmented,
    /// One file; the processes' transfers alternate
    Strided,
}

/// When written data is made durable. It counts in the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sync {
    /// Never: the page cache answers
    Never,
    /// fsync before close
    Close,
    /// After each write (O_DSYNC)
    Each,
}

/// Advice that a reader gives the kernel about its reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReadAhead {
    /// No advice.
    #[default]
    Unsaid,
    /// Reads are random: no read-ahead.
    Off,
    /// Reads are sequential: twice the read-ahead.
    More,
}

/// Kind of a timed phase.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Writing data to new files.
    #[default]
    Write,
    /// Reading data that another process wrote.
    Read,
    /// Creating small or empty files.
    Create,
    /// Reading attributes of another process's files.
    Stat,
    /// Opening, reading and closing another process's small files.
    Fetch,
    /// Unlinking the process's own files.
    Delete,
    /// Reading another process's directory, and the attributes of each entry.
    Walk,
}

impl Kind {
    /// Returns whether the rate is in bytes per second; otherwise it is in operations per second.
    pub fn is_data(self) -> bool {
        matches!(self, Kind::Write | Kind::Read)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.to_possible_value().as_ref().map_or("", PossibleValue::get_name))
    }
}

/// A complete pattern. Sizes in bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pattern {
    pub name: String,
    /// Timed phases, in order.
    pub phases: Vec<Kind>,
    /// Size of one read or write; for small files, the size of a file (0: empty).
    pub transfer: u64,
    /// Most bytes that a process writes in one phase; usually the deadline comes first.
    pub size_max: u64,
    /// Most files that a process creates in one phase.
    pub files_max: u64,
    pub layout: Layout,
    /// Whether all small files are in one directory.
    pub shared_directory: bool,
    /// Whether transfers are in scattered instead of ascending order.
    pub random: bool,
    /// Whether files are opened with O_DIRECT.
    pub direct: bool,
    pub sync: Sync,
    #[serde(default)]
    pub read_ahead: ReadAhead,
}

impl Pattern {
    /// Returns a preset as its benchmark suite defines it.
    pub fn preset(preset: Preset) -> Pattern {
        let data = |name: &str, transfer, layout, phases: &[Kind]| Pattern {
            name: name.to_string(),
            phases: phases.to_vec(),
            transfer,
            size_max: 1 << 50,
            files_max: u64::MAX,
            layout,
            shared_directory: true,
            random: false,
            direct: false,
            sync: Sync::Close,
            read_ahead: ReadAhead::Unsaid,
        };
        let small = |name: &str, size, shared_directory, phases: &[Kind]| Pattern {
            shared_directory,
            files_max: 10_000_000,
            sync: Sync::Never,
            ..data(name, size, Layout::FilePerProcess, phases)
        };
        match preset {
            Preset::Stream => data("stream", 1 << 20, Layout::FilePerProcess, &[Kind::Write]),
            Preset::IorEasy => data("ior-easy", 2 << 20, Layout::FilePerProcess, &[Kind::Write, Kind::Read]),
            Preset::IorHard => data("ior-hard", 47_008, Layout::Strided, &[Kind::Write, Kind::Read]),
            Preset::MdtestEasy => small("mdtest-easy", 0, false, &[Kind::Create, Kind::Stat, Kind::Delete]),
            Preset::MdtestHard => {
                small("mdtest-hard", 3_901, true, &[Kind::Create, Kind::Stat, Kind::Fetch, Kind::Delete])
            }
            Preset::Find => small("find", 0, false, &[Kind::Create, Kind::Walk]),
        }
    }

    /// Returns the bytes that a small file may need in the target: at least a block, and space for its name in a
    /// directory.
    pub fn small_file_bytes(&self) -> u64 {
        self.transfer.next_multiple_of(4096) + 4096
    }

    /// Returns the reason why the pattern is impossible, as a sentence; `None` if it is possible.
    pub fn fault(&self) -> Option<String> {
        let data = self.phases.iter().any(|kind| kind.is_data());
        if data && self.transfer == 0 {
            return Some("--transfer must be at least 1 byte".to_string());
        }
        if self.transfer > TRANSFER_MAX {
            return Some(format!("--transfer is above {TRANSFER_MAX} bytes: each process holds that much memory"));
        }
        if data && self.size_max < self.transfer {
            return Some(format!("--size {} is less than one transfer of {} bytes", self.size_max, self.transfer));
        }
        if self.direct && !self.transfer.is_multiple_of(4096) {
            return Some(format!("--direct needs transfers in multiples of 4096 bytes, not {}", self.transfer));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_have_the_suites_sizes() {
        assert_eq!(Pattern::preset(Preset::IorEasy).transfer, 2 << 20);
        let hard = Pattern::preset(Preset::IorHard);
        assert_eq!((hard.transfer, hard.layout), (47_008, Layout::Strided));
        let hard = Pattern::preset(Preset::MdtestHard);
        assert_eq!((hard.transfer, hard.shared_directory), (3_901, true));
        assert!(!Pattern::preset(Preset::MdtestEasy).shared_directory);
    }

    #[test]
    fn what_cannot_run_is_refused() {
        let mut pattern = Pattern::preset(Preset::IorHard);
        pattern.direct = true;
        assert!(pattern.fault().unwrap().contains("multiples of 4096"));
        pattern.direct = false;
        pattern.size_max = 10;
        assert!(pattern.fault().unwrap().contains("less than one transfer"));
        pattern.transfer = 0;
        assert!(pattern.fault().unwrap().contains("at least 1 byte"));
    }
}
