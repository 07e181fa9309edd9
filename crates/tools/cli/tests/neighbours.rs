//! Directories that share a burst buffer: the clean data of one makes room for another.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use common::{Bench, Done, call, forebay, kill, ok, start};
use testkit::{in_private_namespace, wait_until};

/// A burst buffer of 16 MiB, and two directories with 12 files of 1 MiB each.
struct Shared {
    bench: Bench,
    other: PathBuf,
}

impl Shared {
    fn new() -> Shared {
        let mut bench = Bench::new();
        bench.buffer = bench.tree.mount_tmpfs("small", 16 << 20);
        let other = bench.tree.dir("other");
        for dir in [&bench.dir, &other] {
            (0..12).for_each(|number| fs::write(dir.join(format!("f{number}")), vec![number; 1 << 20]).unwrap());
        }
        Shared { bench, other }
    }

    /// Runs a job in the other directory.
    fn run_there(&self, script: &str) -> Done {
        let mut command = forebay();
        command.args(["run", "--quiet", "--burst-buffer"]).arg(&self.bench.buffer).arg("--dir").arg(&self.other);
        start(command.args(["--", "sh", "-c", script]).current_dir(&self.other), "").wait()
    }

    fn free(&self) -> u64 {
        let now = rustix::fs::statvfs(&self.bench.buffer).unwrap();
        now.f_bavail * now.f_frsize
    }

    /// Fills the burst buffer except half a MiB.
    fn fill_up(&self) {
        fs::write(self.bench.buffer.join("filler"), vec![1; (self.free() - (512 << 10)) as usize]).unwrap();
    }

    /// Counts clean and dirty replicas of the first directory.
    fn counts(&self) -> [usize; 2] {
        let checked = call([Path::new("check"), &self.bench.buffer]).out;
        let count = |what: &str| {
            let before = checked.lines().next().and_then(|line| line.split_once(what)).expect("a count").0;
            before.rsplit(' ').next().and_then(|number| number.parse().ok()).expect("a number")
        };
        [count(" clean"), count(" dirty")]
    }
}

#[test] // S58
fn clean_data_of_ended_runs_makes_room_for_the_next_job_and_dirty_data_stays() {
    in_private_namespace(|| {
        let shared = Shared::new();
        let script = "cat f* >/dev/null; echo dirty >> f0; kill -KILL $PPID; sleep 0.1";
        assert_eq!(shared.bench.run(&["--policy", "stage_out=manual"], script).code, 137);
        let before = shared.counts();
        assert!(before[0] >= 8 && before[1] == 1, "{before:?}");
        shared.fill_up();
        ok(shared.run_there("cat f1 f2 f3 > new; echo there"));
        let after = shared.counts();
        assert!(after[0] <= before[0] - 2 && after[1] == 1, "{before:?} {after:?}");
        assert_eq!(fs::metadata(shared.other.join("new")).unwrap().len(), 3 << 20);
        ok(call([Path::new("recover"), &shared.bench.buffer]));
        assert!(shared.bench.read("f0").ends_with("dirty\n"));
    });
}

#[test] // S58
fn an_agent_that_lives_gives_its_clean_data_for_another_and_one_that_hangs_holds_nobody_up() {
    in_private_namespace(|| {
        let shared = Shared::new();
        let mounted = shared.bench.mount(&[]);
        let fill = || {
            for number in 0..12 {
                drop(fs::read(shared.bench.dir.join(format!("f{number}"))).unwrap());
            }
            wait_until("it is full", Duration::from_secs(20), || shared.free() < 3 << 20);
        };
        fill();
        let asked = Instant::now();
        kill(mounted.agent(), libc::SIGSTOP);
        ok(shared.run_there("echo beside > beside"));
        let took = asked.elapsed();
        kill(mounted.agent(), libc::SIGCONT);
        assert!(took < Duration::from_secs(10), "{took:?}");
        let cleaned = call([
            "clean",
            shared.bench.buffer.to_str().unwrap(),
            "--dir",
            shared.bench.dir.to_str().unwrap(),
            "--json",
        ]);
        let told: serde_json::Value = serde_json::from_str(&ok(cleaned)).unwrap();
        assert!(told[0]["files"].as_u64().unwrap() >= 8 && told[0]["bytes"].as_u64().unwrap() >= 8 << 20, "{told}");
        fill();
        ok(shared.run_there("cat f1 f2 f3 > new"));
        assert!(shared.free() > 2 << 20, "{} free", shared.free());
        drop(fs::read(shared.bench.dir.join("f1")).unwrap());
        ok(call([Path::new("umount"), &shared.bench.dir]));
    });
}

#[test] // S58
fn clean_frees_what_it_says_and_nothing_that_is_dirty_pinned_or_too_young() {
    in_private_namespace(|| {
        let shared = Shared::new();
        let script =
            "cat f1 f2 f3 >/dev/null; forebay stage pin f3 >/dev/null; echo dirty >> f0; kill -KILL $PPID; sleep 0.1";
        let path =
            format!("PATH={}:$PATH; {script}", Path::new(env!("CARGO_BIN_EXE_forebay")).parent().unwrap().display());
        let buffer = shared.bench.buffer.to_str().unwrap();
        let script = path.replace("pin f3", &format!("pin f3 --burst-buffer {buffer}"));
        assert_eq!(shared.bench.run(&["--policy", "stage_out=manual"], &script).code, 137);
        let clean = |more: &[&str]| {
            let said = ok(call([&["clean", buffer, "--json"], more].concat()));
            let told: serde_json::Value = serde_json::from_str(&said).unwrap();
            (told[0]["files"].as_u64().unwrap(), told[0]["bytes"].as_u64().unwrap())
        };
        assert_eq!(clean(&["--older", "1h"]), (0, 0));
        assert_eq!(clean(&["--dry-run"]), (2, 2 << 20));
        let before = shared.free();
        assert_eq!(clean(&[]), (2, 2 << 20));
        assert!(shared.free() >= before + (2 << 20));
        assert_eq!(clean(&[]), (0, 0));
        assert_eq!(shared.counts(), [1, 1]);
        assert_eq!(call(["clean", buffer, "--dir", "/nowhere"]).code, 66);
        ok(call(["recover", buffer]));
        assert!(shared.bench.read("f0").ends_with("dirty\n"));
    });
}
