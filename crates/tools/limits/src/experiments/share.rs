//! Share of a small read's time that the disk takes.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::time::Instant;

use rustix::fs::OFlags;
use slowfs::model::{Kind, splitmix};

use super::bed::{Bed, uses};
use super::book::Share;
use super::{Row, Run};
use crate::failure::Failure;
use crate::sweep::median;
use crate::units::format_nanoseconds;

/// Size of the file in bytes: far larger than one read, so that each read needs a seek.
const FILE: u64 = 256 << 20;

pub fn run(run: &Run<'_>, wanted: &Share, tell: &mut dyn FnMut(&str)) -> Result<Vec<Row>, Failure> {
    let mut bed = Bed::new()?;
    let store = bed.slow("store", &wanted.store)?;
    let failed = |error: std::io::Error| Failure::unavailable(format!("the file to read: {error}"));
    File::create(store.lower.join("file")).and_then(|file| file.set_len(FILE)).map_err(failed)?;
    let mut options = OpenOptions::new();
    let file =
        options.read(true).custom_flags(OFlags::DIRECT.bits() as i32).open(store.shown.join("file")).map_err(failed)?;
    tell("each read is elsewhere than the last");
    let reads = if run.quick { wanted.reads.min(10) } else { wanted.reads };
    let disk =
        || uses(&store.shown).unwrap_or_default().iter().find(|told| told.kind == Kind::Target).map_or(0, |it| it.busy);
    let mut rows = Vec::new();
    for size in wanted.sizes.iter().copied() {
        let mut room = vec![0; size as usize];
        let (mut whole, before) = (Vec::new(), disk());
        for number in 0..reads {
            let place = (splitmix(size ^ (number << 20)) % ((FILE - size) >> 12)) << 12;
            let began = Instant::now();
            file.read_exact_at(&mut room, place).map_err(failed)?;
            whole.push(began.elapsed().as_nanos() as f64);
        }
        let (disk, whole) = ((disk() - before) as f64 / reads as f64, median(&whole));
        let what = format!("{} of {}, the median", format_nanoseconds(disk), format_nanoseconds(whole));
        let mut row = Row::new(run, format!("read of {} KiB, the disk's share", size >> 10), disk / whole, "x");
        row = row.judged(Some(wanted.least), None, what);
        row.bar_most = Some(wanted.most);
        rows.push(row);
    }
    drop(file);
    let _ = fs::remove_file(store.lower.join("file"));
    Ok(rows)
}
