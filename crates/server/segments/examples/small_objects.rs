//! How fast small objects are put, read, opened and compacted, beside plain files of the same sizes in the same directory.
//!
//! `cargo run --release -p segments --example small_objects -- [DIRECTORY [OBJECTS [ROUNDS]]]`: everything is made in a new
//! directory below this one (default: that of temporary files) and removed at the end. Each round (default 3) puts, reads and
//! removes so many objects and files of 4 KiB (default 100,000), turn about; the medians and the extremes are printed. Openings
//! are measured with so many objects, and once with ten times as many of 256 bytes.
//!
//! Reads are of pages in memory, in random order. A file is opened, read and closed; an object is looked up and read.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use segments::{CompactionStep, ObjectKey, SegmentSettings, SegmentStore};

const SIZE: usize = 4096;
const SMALL: usize = 256;
/// Files of one directory.
const FILES: u64 = 1000;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn key(number: u64) -> ObjectKey {
    ObjectKey(u128::from(number.wrapping_mul(0x9e37_79b9_7f4a_7c15)).to_le_bytes())
}

/// The numbers below `count`, in an order that looks random.
fn shuffled(count: u64) -> impl Iterator<Item = u64> {
    (0..count).map(move |number| (number.wrapping_mul(0x9e37_79b1) ^ number >> 3) % count)
}

fn seconds(work: impl FnOnce() -> Outcome<()>) -> Outcome<f64> {
    let begin = Instant::now();
    work()?;
    Ok(begin.elapsed().as_secs_f64())
}

/// Opens the store and returns the seconds that it took.
fn open(root: &Path) -> Outcome<(SegmentStore, f64)> {
    let begin = Instant::now();
    let store = SegmentStore::open(root, SegmentSettings::default())?;
    Ok((store, begin.elapsed().as_secs_f64()))
}

/// One measure of each round.
struct Measure {
    name: &'static str,
    unit: &'static str,
    values: Vec<f64>,
}

#[derive(Default)]
struct Table(Vec<Measure>);

impl Table {
    fn add(&mut self, name: &'static str, unit: &'static str, value: f64) {
        match self.0.iter_mut().find(|measure| measure.name == name) {
            Some(measure) => measure.values.push(value),
            None => self.0.push(Measure { name, unit, values: vec![value] }),
        }
    }

    fn print(&mut self) {
        for Measure { name, unit, values } in &mut self.0 {
            values.sort_by(f64::total_cmp);
            let (low, high) = (values[0], values[values.len() - 1]);
            println!("{name:52} {:>12.1} {unit:9} ({low:.1} to {high:.1})", values[values.len() / 2]);
        }
    }
}

fn file(root: &Path, number: u64) -> PathBuf {
    root.join(format!("{}/{number}", number / FILES))
}

fn put_files(root: &Path, objects: u64, bytes: &[u8]) -> Outcome<()> {
    for number in 0..objects {
        if number % FILES == 0 {
            fs::create_dir_all(root.join((number / FILES).to_string()))?;
        }
        File::create(file(root, number))?.write_all(bytes)?;
    }
    Ok(())
}

fn files_round(root: &Path, objects: u64, table: &mut Table) -> Outcome<()> {
    let (count, mut buffer) = (objects as f64, vec![7; SIZE]);
    table.add("files created, 1 thread", "/s", count / seconds(|| put_files(root, objects, &buffer))?);
    let synced = seconds(|| Ok(rustix::fs::syncfs(File::open(root)?)?))?;
    table.add("their sync (syncfs)", "ms", synced * 1e3);
    let read = seconds(|| {
        for number in shuffled(objects) {
            File::open(file(root, number))?.read_exact_at(&mut buffer, 0)?;
        }
        Ok(())
    })?;
    table.add("files opened, read and closed, 1 thread", "/s", count / read);
    let listed = seconds(|| {
        for entry in fs::read_dir(root)? {
            for file in fs::read_dir(entry?.path())? {
                file?.metadata()?;
            }
        }
        Ok(())
    })?;
    table.add("files listed, with sizes", "ms", listed * 1e3);
    let removed = seconds(|| Ok(fs::remove_dir_all(root)?))?;
    table.add("files removed", "/s", count / removed);
    Ok(())
}

/// Puts so many objects by so many threads and returns the seconds.
fn put_objects(store: &SegmentStore, objects: u64, threads: u64, bytes: &[u8]) -> Outcome<f64> {
    let begin = Instant::now();
    std::thread::scope(|scope| {
        let run =
            |thread| move || (thread..objects).step_by(threads as usize).try_for_each(|n| store.put(key(n), bytes));
        let begun: Vec<_> = (0..threads).map(|thread| scope.spawn(run(thread))).collect();
        begun.into_iter().try_for_each(|thread| thread.join().expect("a thread that puts"))
    })?;
    Ok(begin.elapsed().as_secs_f64())
}

fn compact(store: &SegmentStore, table: &mut Table) -> Outcome<()> {
    let (mut copied, mut freed) = (0, 0);
    let spent = seconds(|| {
        loop {
            match store.compact_step()? {
                CompactionStep::Nothing => return Ok(()),
                CompactionStep::Rewritten { bytes, freed_bytes, .. } => {
                    (copied, freed) = (copied + bytes, freed + freed_bytes);
                }
                _ => {}
            }
        }
    })?;
    table.add("compaction with a third alive: copied and synced", "MiB/s", copied as f64 / spent / f64::from(1 << 20));
    table.add("compaction with a third alive: freed", "MiB/s", freed as f64 / spent / f64::from(1 << 20));
    Ok(())
}

fn objects_round(root: &Path, objects: u64, table: &mut Table) -> Outcome<()> {
    let (count, mut buffer) = (objects as f64, vec![7; SIZE]);
    let store = open(root)?.0;
    table.add("objects put, 1 thread", "/s", count / put_objects(&store, objects, 1, &buffer)?);
    table.add("their sync", "ms", seconds(|| Ok(store.sync()?))? * 1e3);
    table.add("objects put again, 2 threads", "/s", count / put_objects(&store, objects, 2, &buffer)?);
    store.sync()?;
    let read = seconds(|| {
        for number in shuffled(objects) {
            store.get(&key(number)).ok_or("an object is gone")?.read_at(&mut buffer, 0)?;
        }
        Ok(())
    })?;
    table.add("objects looked up and read, 1 thread", "/s", count / read);
    let verified = seconds(|| {
        for number in shuffled(objects) {
            store.get(&key(number)).ok_or("an object is gone")?.read_verified()?;
        }
        Ok(())
    })?;
    table.add("objects looked up, read and verified, 1 thread", "/s", count / verified);
    let usage = store.usage();
    table.add("memory of the index", "B/object", usage.index_bytes as f64 / usage.objects as f64);
    drop(store);
    let (store, scanned) = open(root)?;
    table.add("opened after a kill, all segments scanned", "ms", scanned * 1e3);
    let sealed = seconds(|| Ok(store.close()?))?;
    table.add("closed: all segments sealed", "ms", sealed * 1e3);
    drop(store);
    let (store, opened) = open(root)?;
    table.add("opened by footers", "ms", opened * 1e3);
    let removed = seconds(|| {
        (0..objects).filter(|number| number % 3 > 0).for_each(|number| _ = store.remove(&key(number)));
        Ok(())
    })?;
    table.add("objects removed", "/s", count * 2.0 / 3.0 / removed);
    compact(&store, table)?;
    drop(store);
    Ok(fs::remove_dir_all(root)?)
}

fn many(root: &Path, objects: u64, table: &mut Table) -> Outcome<()> {
    let store = open(root)?.0;
    let spent = put_objects(&store, objects, 1, &[7; SMALL])?;
    table.add("ten times as many of 256 bytes put, 1 thread", "/s", objects as f64 / spent);
    let usage = store.usage();
    table.add("  memory of the index", "B/object", usage.index_bytes as f64 / usage.objects as f64);
    store.close()?;
    drop(store);
    let (store, opened) = open(root)?;
    drop(store);
    table.add("  opened by footers", "ms", opened * 1e3);
    Ok(fs::remove_dir_all(root)?)
}

fn main() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().map_or_else(std::env::temp_dir, PathBuf::from);
    let objects: u64 = arguments.next().map_or(Ok(100_000), |text| text.parse())?;
    let rounds: u64 = arguments.next().map_or(Ok(3), |text| text.parse())?;
    let root = directory.join(format!("small-objects-{}", std::process::id()));
    fs::create_dir_all(&root)?;
    let mut table = Table::default();
    for _ in 0..rounds {
        objects_round(&root.join("segments"), objects, &mut table)?;
        files_round(&root.join("files"), objects, &mut table)?;
    }
    many(&root.join("many"), objects * 10, &mut table)?;
    println!("{objects} objects and files of {SIZE} bytes, {rounds} rounds, median and extremes:");
    table.print();
    Ok(fs::remove_dir_all(root)?)
}
