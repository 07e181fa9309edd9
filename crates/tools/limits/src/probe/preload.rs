//! Cost of the preload library for a call on a file that is not accelerated: equal calls of one program, with and
//! without it.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::{Component, Measurement, Unit, printed};
use crate::clock::now_ns;
use crate::failure::Failure;
use crate::workload::Launcher;

/// File name of the library, which is searched beside the program and where packages install it.
const FILE: &str = "libforebay_preload.so";
/// Number of calls in one batch, over which the clock's own time is spread.
const CALLS: u32 = 1000;
/// Number of turns, alternately with and without the library.
const TURNS: u32 = 5;

/// Measures the extra time of each call. Errors: the reason why that is impossible here.
pub fn measure(launcher: &Launcher, time: Duration) -> Result<Vec<Measurement>, String> {
    let library = library(launcher.program()).ok_or_else(|| format!("{FILE} is not installed beside the program"))?;
    let mut best: Vec<(String, [f64; 2])> = Vec::new();
    for turn in 0..2 * TURNS {
        let side = (turn % 2) as usize;
        let preloaded = (side == 1).then_some(library.as_path());
        for (name, ns) in side_of(launcher, preloaded, time / (2 * TURNS))? {
            let at = best.iter().position(|(known, _)| *known == name).unwrap_or_else(|| {
                best.push((name, [f64::INFINITY; 2]));
                best.len() - 1
            });
            best[at].1[side] = best[at].1[side].min(ns);
        }
    }
    let measurement = |(name, [without, with]): (String, [f64; 2])| {
        let what = format!("preload library, {name}: {without:.0} ns without it, extra");
        Measurement::new(Component::Crossing, what, (with - without).max(0.0), Unit::Nanoseconds)
    };
    Ok(best.into_iter().map(measurement).collect())
}

fn library(program: &Path) -> Option<PathBuf> {
    let beside = program.parent()?;
    [beside.join(FILE), beside.join("../lib/forebay").join(FILE)].into_iter().find(|path| path.exists())
}

fn side_of(launcher: &Launcher, library: Option<&Path>, time: Duration) -> Result<Vec<(String, f64)>, String> {
    let mut command = Command::new(launcher.program());
    command.args(launcher.words()).arg("--calls").arg(time.as_nanos().to_string()).stdin(Stdio::null());
    match library {
        Some(path) => command.env("LD_PRELOAD", path),
        None => command.env_remove("LD_PRELOAD"),
    };
    printed(&command.output().map_err(|error| error.to_string())?)
}

/// Runs the child process: nanoseconds of a call, the best batch of each kind. Calls go through the C library, which is
/// what the preload library replaces.
pub fn serve(time: Duration) -> Result<Vec<(String, f64)>, Failure> {
    let failed = |error: io::Error| Failure::unavailable(format!("calls on a file: {error}"));
    let path = std::env::temp_dir().join(format!("forebay-limits-calls.{}", std::process::id()));
    let outcome = fs::write(&path, [7; 4096]).and_then(|()| batches(&path, time));
    let _ = fs::remove_file(&path);
    outcome.map_err(failed)
}

fn batches(path: &Path, time: Duration) -> io::Result<Vec<(String, f64)>> {
    let file = File::open(path)?;
    let mut room = [0; 4096];
    let read = best(time / 2, || file.read_exact_at(&mut room, 0))?;
    let open = best(time / 2, || File::open(path).map(drop))?;
    Ok(vec![("read of 4 KiB".to_string(), read), ("open and close".to_string(), open)])
}

fn best(time: Duration, mut call: impl FnMut() -> io::Result<()>) -> io::Result<f64> {
    let (began, mut best) = (Instant::now(), f64::INFINITY);
    while best.is_infinite() || began.elapsed() < time {
        let before = now_ns();
        for _ in 0..CALLS {
            call()?;
        }
        best = best.min((now_ns() - before) as f64 / f64::from(CALLS));
    }
    Ok(best)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_take_time_and_a_missing_library_is_told() {
        let found = serve(Duration::from_millis(10)).unwrap();
        assert_eq!(
            found.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(),
            ["read of 4 KiB", "open and close"]
        );
        assert!(found.iter().all(|(_, ns)| *ns > 0.0 && ns.is_finite()), "{found:?}");
        let empty = tempfile::tempdir().unwrap();
        let launcher = Launcher::new(empty.path().join("forebay"), &[]);
        assert!(measure(&launcher, Duration::ZERO).unwrap_err().contains("libforebay_preload.so is not installed"));
    }

    /// A library that does nothing costs almost nothing; both figures come from equal calls.
    #[test]
    fn both_sides_are_asked_and_compared() {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("forebay");
        std::os::unix::fs::symlink("/bin/sh", &program).unwrap();
        let script = r#"[ "$1 $2" = 'worker --calls' ] || exit 9
            case $LD_PRELOAD in *libforebay_preload.so) echo '[["read",150.0]]';; *) echo '[["read",100.0]]';; esac"#;
        // The file is not a library: the loader prints a message and continues.
        fs::write(directory.path().join(FILE), "").unwrap();
        let launcher = Launcher::new(&program, &["-c", script, "sh"]);
        let [found] = &measure(&launcher, Duration::ZERO).unwrap()[..] else { panic!("one call") };
        assert_eq!((found.value, found.what.as_str()), (50.0, "preload library, read: 100 ns without it, extra"));
    }
}
