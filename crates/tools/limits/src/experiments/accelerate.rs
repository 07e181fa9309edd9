//! Equal programs directly on the store, on the burst buffer itself, and on the store through Forebay.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::bed::{Bed, Slow};
use super::book::Accelerate;
use super::{Row, Run};
use crate::bounds::LIMIT_SLACK;
use crate::failure::Failure;
use crate::sweep::median;
use crate::units::format_rate;
use crate::workload::{Kind, Layout, Pattern, Preset, Sync, Task, together};

/// Rates of one side, one value for each turn.
#[derive(Default)]
struct Side {
    write: Vec<f64>,
    read: Vec<f64>,
}

struct Sides {
    store: Side,
    buffer: Side,
    accelerated: Side,
}

/// Streams for measuring a side's limit: enough that no disk arm waits for work while others have several requests.
const STREAMS: u64 = 16;
const LIMIT_TIME: Duration = Duration::from_secs(2);

pub fn run(run: &Run<'_>, wanted: &Accelerate, tell: &mut dyn FnMut(&str)) -> Result<Vec<Row>, Failure> {
    let mut bed = Bed::new()?;
    let store = bed.slow("store", &wanted.store)?;
    let buffer = bed.slow("buffer", &wanted.burst_buffer)?;
    let pattern = pattern(wanted);
    let limits = [limit(&store, &pattern)?, limit(&buffer, &pattern)?];
    tell(&format!("the store gives at most {}, the burst buffer {}", format_rate(limits[0]), format_rate(limits[1])));
    let counts = if run.quick { &wanted.processes[..1] } else { &wanted.processes[..] };
    let mut rows = Vec::new();
    for processes in counts.iter().copied() {
        let sides = turns(run, &bed, wanted, (&store, &buffer), processes, &pattern)?;
        rows.extend(judge(run, wanted, processes, &sides, limits));
    }
    Ok(rows)
}

fn pattern(wanted: &Accelerate) -> Pattern {
    Pattern {
        name: "experiment".to_string(),
        phases: vec![Kind::Write, Kind::Read],
        transfer: wanted.transfer,
        size_max: wanted.size,
        layout: Layout::FilePerProcess,
        random: wanted.random,
        // Direct I/O, so that no cache of this machine answers on any side.
        direct: true,
        sync: Sync::Close,
        ..Pattern::preset(Preset::Stream)
    }
}

fn task(directory: PathBuf, pattern: &Pattern, processes: u64, seed: u64) -> Result<Task, Failure> {
    fs::create_dir_all(&directory).map_err(Failure::unavailable)?;
    Ok(Task { pattern: pattern.clone(), directory, across: Vec::new(), processes, ranks: processes, seed })
}

fn phases(task: &Task, time: Duration) -> Result<(f64, f64), Failure> {
    let rates = together(task, &[Kind::Write, Kind::Read], time)
        .map_err(|error| Failure::unavailable(format!("{}: {error}", task.directory.display())))?;
    Ok((rates[0].0, rates[1].0))
}

/// Returns the best rate of a side, with the experiment's own transfers and many streams.
fn limit(slow: &Slow, pattern: &Pattern) -> Result<f64, Failure> {
    let directory = slow.shown.join("limit");
    let (write, read) = phases(&task(directory.clone(), pattern, STREAMS, 99)?, LIMIT_TIME)?;
    let _ = fs::remove_dir_all(directory);
    Ok(write.max(read))
}

/// Measures every side in each turn, so that a drift of the machine affects all of them.
fn turns(
    run: &Run<'_>,
    bed: &Bed,
    wanted: &Accelerate,
    (store, buffer): (&Slow, &Slow),
    processes: u64,
    pattern: &Pattern,
) -> Result<Sides, Failure> {
    let mut sides = Sides { store: Side::default(), buffer: Side::default(), accelerated: Side::default() };
    let time = Duration::from_secs_f64(if run.quick { wanted.seconds.min(2.0) } else { wanted.seconds });
    for turn in 0..if run.quick { 1 } else { wanted.repeat } {
        for (slow, side) in [(store, &mut sides.store), (buffer, &mut sides.buffer)] {
            let directory = slow.shown.join(format!("bare.{processes}.{turn}"));
            let (write, read) = phases(&task(directory.clone(), pattern, processes, turn)?, time)?;
            side.write.push(write);
            side.read.push(read);
            let _ = fs::remove_dir_all(directory);
        }
        let name = format!("fast.{processes}.{turn}");
        let (directory, kept) = (store.shown.join(&name), buffer.shown.join(format!("replicas.{processes}.{turn}")));
        for directory in [&directory, &kept] {
            fs::create_dir(directory).map_err(Failure::unavailable)?;
        }
        bed.accelerate(&directory, &kept)?;
        let (write, read) = phases(&task(directory.join("files"), pattern, processes, turn)?, time)?;
        sides.accelerated.write.push(write);
        sides.accelerated.read.push(read);
        let before = contents(&directory.join("files"))?;
        bed.drain(&directory)?;
        if contents(&store.lower.join(&name).join("files"))? != before {
            return Err(Failure::defect(format!(
                "{}: the files after the drain differ from those that were written",
                store.lower.join(&name).display()
            )));
        }
        for directory in [directory, kept] {
            let _ = fs::remove_dir_all(directory);
        }
    }
    Ok(sides)
}

/// Returns name, length and checksum of each file.
fn contents(directory: &Path) -> Result<Vec<(String, u64, u64)>, Failure> {
    use crc_fast::{CrcAlgorithm, checksum};
    let failed = |error: std::io::Error| Failure::unavailable(format!("{}: {error}", directory.display()));
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let data = fs::read(&path).map_err(failed)?;
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        found.push((name, data.len() as u64, checksum(CrcAlgorithm::Crc32Iscsi, &data)));
    }
    found.sort();
    Ok(found)
}

fn judge(run: &Run<'_>, wanted: &Accelerate, processes: u64, sides: &Sides, limits: [f64; 2]) -> Vec<Row> {
    let mut rows = Vec::new();
    for is_write in [true, false] {
        let of = |side: &Side| median(if is_write { &side.write } else { &side.read });
        let (direct, native, fast) = (of(&sides.store), of(&sides.buffer), of(&sides.accelerated));
        let word = if is_write { "write" } else { "read" };
        let case = |what: &str| format!("{word}, {processes} processes, {what}");
        let gains = |bars: &super::book::Bars| if is_write { bars.write_gain } else { bars.read_gain };
        let gain = Row::new(run, case("gain over the store"), fast / direct, "x").judged(
            gains(&wanted.bar),
            gains(&wanted.paper),
            format!("{} against {}", format_rate(fast), format_rate(direct)),
        );
        let efficiency = Row::new(run, case("tier efficiency"), fast / native, "x").judged(
            wanted.bar.efficiency,
            wanted.paper.efficiency,
            format!("{} of the burst buffer's {}", format_rate(fast), format_rate(native)),
        );
        let eta = Row::new(run, case("eta"), fast / limits[1], "x").judged(
            wanted.bar.eta,
            wanted.paper.eta,
            format!("of the bed's {}", format_rate(limits[1])),
        );
        let above = [(direct, limits[0]), (native, limits[1]), (fast, limits[1])]
            .into_iter()
            .find(|(rate, limit)| *rate > limit * (1.0 + 3.0 * LIMIT_SLACK));
        let rejected = above.map(|(rate, limit)| {
            format!(
                "{} is above the {} that the bed gave: a cache, or a limit measured too low",
                format_rate(rate),
                format_rate(limit)
            )
        });
        for mut row in [gain, efficiency, eta] {
            row.rejected = rejected.clone().or(row.rejected);
            rows.push(row);
        }
    }
    rows
}
