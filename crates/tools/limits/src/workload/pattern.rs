//! What the processes do: the presets of IOR and IO500, and what can be changed in them.

use std::fmt;

use clap::ValueEnum;
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

/// What a reader tells the kernel about its reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReadAhead {
    /// Nothing.
    #[default]
    Unsaid,
    /// They are scattered: nothing is read ahead.
    Off,
    /// They are sequential: twice as much is read ahead.
    More,
}

/// One timed phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Data into new files.
    Write,
    /// Data that another process wrote.
    Read,
    /// Small or empty new files.
    Create,
    /// Attributes of another process's files.
    Stat,
    /// Open, read, close of another process's small files.
    Fetch,
    /// Unlink one's own files.
    Delete,
    /// Read another process's directory, and the attributes of each entry.
    Walk,
}

impl Kind {
    /// Whether the rate is bytes a second; else operations a second.
    pub fn is_data(self) -> bool {
        matches!(self, Kind::Write | Kind::Read)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Write => "write",
            Kind::Read => "read",
            Kind::Create => "create",
            Kind::Stat => "stat",
            Kind::Fetch => "fetch",
            Kind::Delete => "delete",
            Kind::Walk => "walk",
        })
    }
}

/// A whole pattern. Sizes in bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pattern {
    /// The preset's name.
    pub name: String,
    /// Timed phases, in order.
    pub phases: Vec<Kind>,
    /// Bytes of one read or write; of a small file, its size (0: empty).
    pub transfer: u64,
    /// Most bytes a process writes in one phase; the deadline usually comes first.
    pub size_max: u64,
    /// Most files a process creates in one phase.
    pub files_max: u64,
    /// Which file, and where in it.
    pub layout: Layout,
    /// Whether all small files lie in one directory.
    pub shared_directory: bool,
    /// Whether transfers go in a scattered order instead of a rising one.
    pub random: bool,
    /// O_DIRECT.
    pub direct: bool,
    /// When data is made durable.
    pub sync: Sync,
    /// What a reader tells the kernel.
    #[serde(default)]
    pub read_ahead: ReadAhead,
}

impl Pattern {
    /// A preset as its suite defines it.
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

    /// Bytes that a small file may take in the target: a block at least, and its name takes room in a directory.
    pub fn small_file_bytes(&self) -> u64 {
        self.transfer.next_multiple_of(4096) + 4096
    }

    /// What makes it impossible, in a sentence.
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
