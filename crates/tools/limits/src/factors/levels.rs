//! The factors and their levels, as patterns.

use crate::workload::{Kind, Layout, Pattern, Preset, ReadAhead, Sync};

/// Writers in the factors that concern sharing.
const SHARERS: u64 = 4;

pub struct Plan {
    pub name: &'static str,
    pub settings: Vec<Setting>,
}

pub struct Setting {
    pub name: String,
    pub pattern: Pattern,
    pub phases: Vec<Kind>,
    pub measured: Kind,
    pub streams: u64,
    /// Number of files that are in the directory beforehand.
    pub filled: u64,
    pub space: bool,
}

/// Returns all factors for a file system with this block size; no level writes more than `size_max` bytes.
pub fn all(size_max: u64, block: u64) -> Vec<Plan> {
    let stream = Pattern { size_max, ..Pattern::preset(Preset::Stream) };
    let mut plans = data(&stream);
    plans.push(sub_blocks(size_max, block));
    plans.push(sharing(&stream));
    plans.extend(names());
    plans
}

fn level(name: impl Into<String>, pattern: Pattern, phases: &[Kind]) -> Setting {
    let measured = phases.last().copied().unwrap_or(Kind::Write);
    Setting { name: name.into(), pattern, phases: phases.to_vec(), measured, streams: 1, filled: 0, space: false }
}

pub fn size_name(bytes: u64) -> String {
    match bytes {
        _ if bytes > 0 && bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        _ if bytes > 0 && bytes.is_multiple_of(1 << 10) => format!("{} KiB", bytes >> 10),
        _ => format!("{bytes} B"),
    }
}

/// Returns the factor of sub-blocks: files of a part of a block, of a block, and of a block and a part.
///
/// Small files and ends of files may be stored in parts of a block, for example a thirty-second. That saves space and
/// should cost no time.
fn sub_blocks(size_max: u64, block: u64) -> Plan {
    const PARTS: u64 = 32;
    let of = |name: &str, size: u64| {
        // Bytes written, at least one page, plus the file itself: no file system allocates less.
        let files_max = (size_max / (size.next_multiple_of(4096) + 4096)).clamp(1, 100_000);
        let pattern = Pattern { transfer: size, files_max, ..Pattern::preset(Preset::MdtestHard) };
        Setting { space: true, ..level(format!("{name} ({})", size_name(size)), pattern, &[Kind::Create]) }
    };
    let part = block / PARTS;
    Plan {
        name: "sub-blocks, creating",
        settings: vec![of("1/32 of a block", part), of("a block", block), of("33/32 of a block", block + part)],
    }
}

fn data(stream: &Pattern) -> Vec<Plan> {
    const WRITE: &[Kind] = &[Kind::Write];
    const READ: &[Kind] = &[Kind::Write, Kind::Read];
    let sizes = [4 << 10, 64 << 10, 1 << 20, 4 << 20, 16 << 20].into_iter().filter(|size| *size <= stream.size_max);
    let sized = |phases: &'static [Kind]| {
        let each = move |transfer| level(size_name(transfer), Pattern { transfer, ..stream.clone() }, phases);
        sizes.clone().map(each).collect::<Vec<_>>()
    };
    let small = Pattern { transfer: 128 << 10, ..stream.clone() };
    let ahead = |name, read_ahead| level(name, Pattern { read_ahead, ..small.clone() }, READ);
    let synced = |name, sync| level(name, Pattern { sync, ..stream.clone() }, WRITE);
    let direct = |name, direct| level(name, Pattern { direct, ..stream.clone() }, WRITE);
    let page = Pattern { transfer: 4096, ..stream.clone() };
    let order = |name, random| level(name, Pattern { random, ..page.clone() }, READ);
    vec![
        Plan { name: "block size, writing", settings: sized(WRITE) },
        Plan { name: "block size, reading", settings: sized(READ) },
        Plan {
            name: "read-ahead, 128 KiB reads",
            settings: vec![
                ahead("default", ReadAhead::Unsaid),
                ahead("off", ReadAhead::Off),
                ahead("more", ReadAhead::More),
            ],
        },
        Plan {
            name: "write cache",
            settings: vec![
                synced("fsync at close", Sync::Close),
                synced("never durable", Sync::Never),
                synced("each write durable", Sync::Each),
            ],
        },
        Plan { name: "page cache, writing", settings: vec![direct("through it", false), direct("O_DIRECT", true)] },
        Plan { name: "order of 4 KiB reads", settings: vec![order("rising", false), order("scattered", true)] },
    ]
}

/// Returns the factor that shows lock modes: writers of one file against writers of separate files.
fn sharing(stream: &Pattern) -> Plan {
    let shared = |name: &str, layout, transfer| {
        let pattern = Pattern { layout, transfer, size_max: stream.size_max / SHARERS, ..stream.clone() };
        Setting { streams: SHARERS, ..level(name, pattern, &[Kind::Write]) }
    };
    Plan {
        name: "lock mode, 4 writers",
        settings: vec![
            shared("own files", Layout::FilePerProcess, 1 << 20),
            shared("one file, own parts", Layout::Segmented, 1 << 20),
            shared("one file, alternating", Layout::Strided, 1 << 20),
            shared("one file, alternating, 47008 B", Layout::Strided, 47_008),
        ],
    }
}

fn names() -> Vec<Plan> {
    let small = Pattern { transfer: 3_901, files_max: 100_000, ..Pattern::preset(Preset::MdtestHard) };
    let filled = |filled: u64| {
        let name = if filled == 0 { "empty".to_string() } else { format!("{filled} others") };
        Setting { filled, ..level(name, small.clone(), &[Kind::Create]) }
    };
    let log = |name: &str, sync| level(name, Pattern { sync, ..small.clone() }, &[Kind::Create]);
    let apart = |name: &str, shared_directory| {
        let pattern = Pattern { shared_directory, files_max: 100_000 / SHARERS, ..small.clone() };
        Setting { streams: SHARERS, ..level(name, pattern, &[Kind::Create]) }
    };
    vec![
        Plan { name: "large directory, creating", settings: vec![filled(0), filled(1_000), filled(10_000)] },
        Plan {
            name: "metadata log, creating",
            settings: vec![log("when the system likes", Sync::Never), log("fsync of each file", Sync::Close)],
        },
        Plan {
            name: "one directory, 4 creators",
            settings: vec![apart("own directories", false), apart("one directory", true)],
        },
    ]
}
