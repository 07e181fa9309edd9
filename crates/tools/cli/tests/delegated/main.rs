//! Delegated directories that meet bad luck, as their user sees it.

mod borders;
#[path = "../common/mod.rs"]
mod common;
mod holders;
mod lease;
mod lost;
mod names;
mod packed;
mod room;
mod windows;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{BOUND, Bench, Done, Mounted, call, forebay, kill, ok, start};
use rustix::fs::XattrFlags;
use rustix::mount::{MountFlags, UnmountFlags};
use testkit::{in_private_namespace, wait_until};

const MARK: &str = "user.forebay.delegated";
const WAITING: &str = "user.forebay.waiting";
/// Nothing is brought to the global store but by a drain.
const RULES: [&str; 6] =
    ["--policy", "delegate=new", "--policy", "stage_out=manual", "--policy", "passthrough_reserve=1%"];

/// A bench whose global store is also seen at another path, which no agent's mount covers.
struct Bed {
    bench: Bench,
    below: PathBuf,
}

impl Bed {
    fn new() -> Bed {
        Bed::of(Bench::new())
    }

    fn of(bench: Bench) -> Bed {
        let below = bench.tree.dir("below");
        bind(&bench.dir, &below);
        Bed { bench, below }
    }

    fn mount(&self) -> Mounted<'_> {
        self.bench.mount(&RULES)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.bench.dir.join(name)
    }

    /// Writes files through the mount, each with its directory.
    fn ours<const N: usize>(&self, names: [&str; N]) {
        names.iter().for_each(|name| write(&self.path(name), "ours"));
    }

    /// Writes files as somebody does who uses no agent.
    fn theirs<const N: usize>(&self, names: [&str; N]) {
        names.iter().for_each(|name| write(&self.below.join(name), "theirs"));
    }

    /// Reads a file of the global store.
    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.below.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    fn drain(&self) -> Done {
        call([Path::new("drain"), "--wait".as_ref(), &self.bench.dir])
    }

    fn umount(&self) -> Done {
        call([Path::new("umount"), &self.bench.dir])
    }

    fn recover(&self) -> Done {
        call([Path::new("recover"), &self.bench.buffer])
    }

    fn check(&self) -> Done {
        call([Path::new("check"), &self.bench.buffer])
    }

    fn resolve(&self, what: impl AsRef<Path>, keep: &str) -> Done {
        let buffer = &self.bench.buffer;
        call([Path::new("resolve"), what.as_ref(), "--keep".as_ref(), keep.as_ref(), "--burst-buffer".as_ref(), buffer])
    }

    fn status(&self) -> serde_json::Value {
        let told = ok(call([Path::new("status"), &self.bench.dir, "--json".as_ref()]));
        serde_json::from_str::<serde_json::Value>(&told).unwrap()[0]["status"].clone()
    }

    /// Kills the agent, and takes its dead mount away.
    fn crash(&self, mounted: &Mounted<'_>) {
        kill(mounted.agent(), libc::SIGKILL);
        wait_until("the agent is gone", BOUND, || call([Path::new("status"), &self.bench.dir]).code == 69);
        let left = self.umount();
        assert!(left.code == 75 && left.err.contains(" not in the global store"), "{left:?}");
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.below, UnmountFlags::DETACH);
    }
}

fn bind(from: &Path, to: &Path) {
    rustix::mount::mount(from, to, c"", MountFlags::BIND, None).unwrap();
}

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn has(text: &str, parts: &[&str]) {
    parts.iter().for_each(|part| assert!(text.contains(part), "no `{part}` in {text}"));
}
