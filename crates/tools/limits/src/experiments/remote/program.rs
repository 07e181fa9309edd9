//! The program of the experiments: processes that each write or read a file, as in the papers, and measure the time. It
//! does not know Forebay. It calls the C library, so that the preload library can intercept the calls.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::{now_ns, wait_until};
use crate::counters::Counters;
use crate::workload::{Block, Launcher};

/// Time between the start message and the common start, in nanoseconds; all processes have read the message by then.
const START_NS: u64 = 5_000_000;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Work {
    pub directory: PathBuf,
    pub processes: u64,
    /// Bytes of a request.
    pub transfer: u64,
    pub requests: u64,
    /// Size of each process's file in bytes.
    pub size: u64,
    /// Whether requests are in random order, in which some places occur more than once.
    pub random: bool,
    pub reads: bool,
    /// Whether writers call fsync before close.
    pub sync: bool,
    /// Numbers of requests and of microseconds: after so many requests the program computes for so long.
    pub pause: Option<(u64, u64)>,
    /// Number that distinguishes the data of one run from that of another.
    pub salt: u64,
    /// Directories of earlier runs, to be removed first.
    pub remove: Vec<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Done {
    /// Time from the first open to the last close, seconds.
    pub seconds: f64,
    /// Longest total pause of a process, seconds.
    pub paused_s: f64,
    /// Time until all written data has reached the burst buffer, so that other readers of the files get it. In seconds.
    pub reached_s: f64,
    /// Busy share of all processors until the last close.
    pub busy: f64,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Lap {
    began_ns: u64,
    ended_ns: u64,
    paused_ns: u64,
}

impl Work {
    /// Returns the bytes that all processes move together.
    pub fn bytes(&self) -> u64 {
        self.processes * self.requests * self.transfer
    }

    fn file(&self, directory: &Path, rank: u64) -> PathBuf {
        directory.join(rank.to_string())
    }

    fn owner(&self, rank: u64) -> u64 {
        self.salt << 16 | rank
    }

    fn place(&self, rank: u64, number: u64) -> u64 {
        let places = (self.size / self.transfer).max(1);
        let mix = slowfs::model::splitmix;
        (if self.random { mix(number ^ mix(rank)) } else { number }) % places * self.transfer
    }

    pub fn run(&self, launcher: &Launcher) -> io::Result<Done> {
        for directory in &self.remove {
            fs::remove_dir_all(directory)?;
        }
        if !self.reads {
            fs::create_dir_all(&self.directory)?;
        }
        let mut children =
            (0..self.processes).map(|rank| self.start(launcher, rank)).collect::<io::Result<Vec<_>>>()?;
        let mut said =
            children.iter_mut().filter_map(|child| child.stdout.take()).map(BufReader::new).collect::<Vec<_>>();
        for one in &mut said {
            one.read_line(&mut String::new())?;
        }
        let start = now_ns() + START_NS;
        for child in &mut children {
            writeln!(child.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?, "{start}")?;
        }
        let before = Counters::now();
        let mut laps = Vec::new();
        for (one, child) in said.iter_mut().zip(&mut children) {
            let mut line = String::new();
            one.read_line(&mut line)?;
            if !child.wait()?.success() {
                return Err(io::Error::other("a process of the program failed"));
            }
            laps.push(serde_json::from_str::<Lap>(&line)?);
        }
        let cpu = Counters::now().since(&before).cpu;
        let busy = (cpu.user + cpu.system) as f64 / cpu.total().max(1) as f64;
        let began = laps.iter().map(|lap| lap.began_ns).min().unwrap_or(0);
        let ended = laps.iter().map(|lap| lap.ended_ns).max().unwrap_or(0);
        let paused = laps.iter().map(|lap| lap.paused_ns).max().unwrap_or(0);
        let since = |end: u64| end.saturating_sub(began + paused) as f64 / 1e9;
        let mut reached = ended;
        if !self.reads {
            for rank in 0..self.processes {
                File::open(self.file(&self.directory, rank))?.read_exact_at(&mut [0], self.place(rank, 0))?;
            }
            reached = now_ns();
        }
        Ok(Done { seconds: since(ended), paused_s: paused as f64 / 1e9, reached_s: since(reached), busy })
    }

    fn start(&self, launcher: &Launcher, rank: u64) -> io::Result<Child> {
        let mut command = Command::new(launcher.program());
        command.args(launcher.words()).arg("--program").arg(serde_json::to_string(self)?);
        command.arg("--rank").arg(rank.to_string());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()
    }

    /// Runs one process: prints a line when ready, and starts when told to.
    pub fn serve(&self, rank: u64) -> io::Result<()> {
        let mut block = Block::new(self.transfer, rank);
        let mut out = io::stdout();
        writeln!(out, "ready")?;
        let mut line = String::new();
        io::stdin().read_line(&mut line)?;
        wait_until(line.trim().parse().map_err(io::Error::other)?);
        let lap = self.lap(rank, &mut block)?;
        writeln!(out, "{}", serde_json::to_string(&lap)?)
    }

    fn lap(&self, rank: u64, block: &mut Block) -> io::Result<Lap> {
        let began_ns = now_ns();
        let mut paused_ns = 0;
        let path = self.file(&self.directory, rank);
        let file = match self.reads {
            true => File::open(path)?,
            false => OpenOptions::new().write(true).create(true).truncate(false).open(path)?,
        };
        for number in 0..self.requests {
            let at = self.place(rank, number);
            if self.reads {
                self.check(&file, rank, at, block)?;
            } else {
                file.write_all_at(block.fill(self.owner(rank), at, number), at)?;
            }
            if let Some((_, us)) = self.pause.filter(|(requests, _)| (number + 1).is_multiple_of(*requests)) {
                let before = now_ns();
                thread::sleep(Duration::from_micros(us));
                paused_ns += now_ns() - before;
            }
        }
        if self.sync && !self.reads {
            file.sync_all()?;
        }
        drop(file);
        Ok(Lap { began_ns, ended_ns: now_ns(), paused_ns })
    }

    fn check(&self, file: &File, rank: u64, at: u64, block: &mut Block) -> io::Result<()> {
        file.read_exact_at(block.room(), at)?;
        if block.is(self.transfer as usize, self.owner(rank), at) {
            return Ok(());
        }
        Err(io::Error::other(format!("the bytes of process {rank} at {at} are not what was written")))
    }

    /// Compares the files in `directory` with the written data, at the stamped bytes. Errors: a difference.
    pub fn compare(&self, directory: &Path) -> io::Result<()> {
        let mut block = Block::new(self.transfer, 0);
        for rank in 0..self.processes {
            let file = File::open(self.file(directory, rank))?;
            for number in 0..self.requests {
                self.check(&file, rank, self.place(rank, number), &mut block)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(directory: &Path) -> Work {
        let directory = directory.to_path_buf();
        let (processes, transfer, requests, size) = (2, 8192, 20, 1 << 20);
        let (random, reads, sync, pause, salt, remove) = (false, false, true, None, 3, Vec::new());
        Work { directory, processes, transfer, requests, size, random, reads, sync, pause, salt, remove }
    }

    #[test]
    fn what_was_written_is_found_and_another_byte_or_run_is_not() {
        let directory = tempfile::tempdir().unwrap();
        for random in [false, true] {
            let work = Work { random, pause: Some((10, 1000)), ..work(directory.path()) };
            let mut block = Block::new(work.transfer, 0);
            for rank in 0..work.processes {
                let lap = work.lap(rank, &mut block).unwrap();
                assert!(lap.paused_ns >= 2_000_000 && lap.ended_ns - lap.began_ns > lap.paused_ns);
                Work { reads: true, ..work.clone() }.lap(rank, &mut block).unwrap();
            }
            work.compare(directory.path()).unwrap();
            let other = Work { salt: 4, ..work.clone() };
            assert!(other.compare(directory.path()).unwrap_err().to_string().contains("not what was written"));
        }
        let work = work(directory.path());
        fs::write(directory.path().join("1"), vec![0; 1 << 20]).unwrap();
        assert!(work.compare(directory.path()).is_err());
        assert_eq!(work.bytes(), 2 * 20 * 8192);
    }

    #[test]
    fn random_places_are_spread_and_each_process_has_its_own() {
        let work = Work { random: true, requests: 1000, size: 8192 * 1000, ..work(Path::new("/")) };
        let places = |rank| (0..1000).map(|number| work.place(rank, number)).collect::<Vec<_>>();
        let distinct = places(0).into_iter().collect::<std::collections::BTreeSet<_>>().len();
        // Of a thousand random draws about 632 are distinct.
        assert!((580..680).contains(&distinct), "{distinct}");
        assert_ne!(places(0), places(1));
        assert!(places(0).iter().all(|place| *place < work.size && place % 8192 == 0));
    }
}
