//! Damaged burst buffers: nothing panics, readable data arrives, lost data is named, and each refusal says what to
//! do.

mod common;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use common::{BOUND, Bench, Done, call};
use testkit::{in_private_namespace, wait_until};

const DIRTY: &str = "dirty data";
const CLEAN: &str = "clean data";
const BIG_BYTES: usize = 100_000;

/// Outcome for the dirty file `f`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// `check --repair` and `recover` bring everything out.
    Whole,
    /// The replica is missing: that is reported, and resolved by command. The other dirty file arrives.
    Gone,
    /// The replica has other bytes, which nobody can detect.
    Changed,
}

/// A burst buffer in a damaged state: two dirty files, `f` and `big`, and a clean one.
struct Damaged {
    bench: Bench,
}

impl Damaged {
    fn new(damage: impl FnOnce(&Path)) -> Damaged {
        let bench = Bench::new();
        fs::write(bench.dir.join("clean"), CLEAN).unwrap();
        let script = format!(
            "cat clean >/dev/null; printf '{DIRTY}' > f; head -c {BIG_BYTES} /dev/zero | tr '\\0' x > big; \
             kill -KILL $PPID; sleep 0.1"
        );
        let done = bench.run(&["--policy", "stage_out=manual"], &script);
        assert_eq!(done.code, 137, "{done:?}");
        assert_eq!(bench.read("f"), "", "nothing is staged out yet");
        damage(&bench.buffer);
        Damaged { bench }
    }

    fn call(&self, words: &[&str]) -> Done {
        let done = call(words.iter().copied().chain(["--dir", self.bench.dir.to_str().unwrap()]));
        assert!([0, 66, 69, 73, 75].contains(&done.code), "{words:?}: {done:?}");
        assert!(!done.err.contains("panicked"), "{words:?}: {done:?}");
        done
    }

    /// Checks, repairs and recovers, and compares the result with `outcome`.
    fn recovered(&self, name: &str, outcome: Outcome) {
        let buffer = self.bench.buffer.to_str().unwrap();
        self.call(&["check", buffer]);
        self.call(&["check", buffer, "--repair"]);
        let done = self.call(&["recover", buffer]);
        assert_eq!(self.bench.read("big").len(), BIG_BYTES, "{name}: {done:?}");
        assert_eq!(self.bench.read("clean"), CLEAN, "{name}");
        match outcome {
            Outcome::Whole => assert_eq!((done.code, self.bench.read("f").as_str()), (0, DIRTY), "{name}: {done:?}"),
            Outcome::Changed => assert_eq!(done.code, 0, "{name}: {done:?}"),
            Outcome::Gone => {
                assert_eq!(done.code, 75, "{name}: {done:?}");
                for part in [self.bench.dir.join("f").to_str().unwrap(), "its data is gone", "--keep global"] {
                    assert!(done.err.contains(part), "{name}: no `{part}` in {done:?}");
                }
                let file = self.bench.dir.join("f");
                let resolve = ["resolve", file.to_str().unwrap(), "--keep", "global", "--burst-buffer", buffer];
                assert_eq!(call(resolve).code, 0, "{name}");
                assert_eq!(self.call(&["recover", buffer]).code, 0, "{name}");
            }
        }
        let checked = call(["check", buffer]);
        assert_eq!(checked.code, 0, "{name}: {checked:?}");
        let again = self.bench.run(&[], "cat clean f | wc -c");
        assert_eq!(again.code, 0, "{name}: {again:?}");
    }
}

/// A damage, and the word that names the damaged part.
type Told = (fn(&Path), &'static str);

/// A damage and its outcome.
type Damage = (&'static str, fn(&Path), Outcome);

fn suffer(damages: &[Damage]) {
    for (name, damage, outcome) in damages {
        Damaged::new(damage).recovered(name, *outcome);
    }
}

/// Returns every file below `dir` whose name ends with `end`.
fn files(dir: &Path, end: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(files(&path, end));
        } else if path.to_str().unwrap().ends_with(end) {
            found.push(path);
        }
    }
    found
}

/// Returns the replica that starts with these bytes.
fn replica(buffer: &Path, starts: &str) -> PathBuf {
    let is = |path: &PathBuf| fs::read(path).unwrap().starts_with(starts.as_bytes());
    files(&buffer.join("replicas"), "").into_iter().find(is).expect("a replica")
}

fn journals(buffer: &Path) -> Vec<PathBuf> {
    files(&buffer.join("catalogue"), ".jnl")
}

fn cut(path: &Path, len: u64) {
    File::options().write(true).open(path).unwrap().set_len(len).unwrap();
}

fn overwrite(path: &Path, at: u64, bytes: &[u8]) {
    File::options().write(true).open(path).unwrap().write_all_at(bytes, at).unwrap();
}

#[test] // S17
fn a_damaged_superblock_is_made_anew() {
    in_private_namespace(|| {
        suffer(&[
            ("deleted", |bb| fs::remove_file(bb.join("superblock")).unwrap(), Outcome::Whole),
            ("empty", |bb| fs::write(bb.join("superblock"), "").unwrap(), Outcome::Whole),
            ("garbage", |bb| fs::write(bb.join("superblock"), "garbage").unwrap(), Outcome::Whole),
            ("cut", |bb| cut(&bb.join("superblock"), 40), Outcome::Whole),
            (
                "deleted with the catalogue",
                |bb| {
                    fs::remove_file(bb.join("superblock")).unwrap();
                    fs::remove_dir_all(bb.join("catalogue")).unwrap();
                },
                Outcome::Whole,
            ),
        ]);
    });
}

#[test] // S17
fn a_damaged_catalogue_is_rebuilt_from_the_dirty_replicas() {
    in_private_namespace(|| {
        suffer(&[
            ("deleted", |bb| fs::remove_dir_all(bb.join("catalogue")).unwrap(), Outcome::Whole),
            (
                "emptied",
                |bb| {
                    fs::remove_dir_all(bb.join("catalogue")).unwrap();
                    fs::create_dir(bb.join("catalogue")).unwrap();
                },
                Outcome::Whole,
            ),
            ("journal cut", |bb| journals(bb).iter().for_each(|path| cut(path, 200)), Outcome::Whole),
            ("journal emptied", |bb| journals(bb).iter().for_each(|path| cut(path, 0)), Outcome::Whole),
            (
                "journal deleted",
                |bb| journals(bb).iter().for_each(|path| fs::remove_file(path).unwrap()),
                Outcome::Whole,
            ),
            (
                "journal overwritten",
                |bb| journals(bb).iter().for_each(|path| overwrite(path, 300, &[0xff; 9])),
                Outcome::Whole,
            ),
            (
                "every file garbage",
                |bb| files(&bb.join("catalogue"), "").iter().for_each(|path| fs::write(path, [0x5a; 500]).unwrap()),
                Outcome::Whole,
            ),
            ("no format", |bb| fs::remove_file(bb.join("catalogue/FORMAT")).unwrap(), Outcome::Whole),
            ("database gone", |bb| fs::remove_dir_all(bb.join("catalogue/db")).unwrap(), Outcome::Whole),
        ]);
    });
}

#[test] // S17
fn a_damaged_replica_costs_nothing_but_itself() {
    in_private_namespace(|| {
        suffer(&[
            ("deleted", |bb| fs::remove_file(replica(bb, DIRTY)).unwrap(), Outcome::Gone),
            (
                "a directory in its place",
                |bb| {
                    let path = replica(bb, DIRTY);
                    fs::remove_file(&path).unwrap();
                    fs::create_dir(path).unwrap();
                },
                Outcome::Gone,
            ),
            ("cut", |bb| cut(&replica(bb, DIRTY), 3), Outcome::Changed),
            ("overwritten", |bb| overwrite(&replica(bb, DIRTY), 0, b"X"), Outcome::Changed),
            ("a clean one deleted", |bb| fs::remove_file(replica(bb, CLEAN)).unwrap(), Outcome::Whole),
            ("a clean one cut", |bb| cut(&replica(bb, CLEAN), 3), Outcome::Whole),
            (
                "not permitted",
                |bb| {
                    use std::os::unix::fs::PermissionsExt;
                    fs::set_permissions(replica(bb, DIRTY), fs::Permissions::from_mode(0o000)).unwrap();
                },
                Outcome::Whole,
            ),
        ]);
    });
}

#[test]
fn a_clean_replica_with_other_bytes_is_found_by_a_repair() {
    in_private_namespace(|| {
        let damaged = Damaged::new(|bb| overwrite(&replica(bb, CLEAN), 0, b"X"));
        let buffer = damaged.bench.buffer.to_str().unwrap();
        let repaired = damaged.call(&["check", buffer, "--repair"]);
        assert!(repaired.out.contains("clean: its replica differs"), "{repaired:?}");
        assert_eq!(damaged.call(&["recover", buffer]).code, 0);
        assert_eq!(damaged.bench.run(&[], "cat clean").out, CLEAN);
    });
}

#[test]
fn foreign_and_damaged_files_of_other_kinds_stand_in_nobodys_way() {
    in_private_namespace(|| {
        suffer(&[
            (
                "foreign files",
                |bb| {
                    fs::write(bb.join("foreign"), "x").unwrap();
                    fs::create_dir(bb.join("folder")).unwrap();
                    fs::write(bb.join("replicas/foreign"), "x").unwrap();
                    fs::create_dir(bb.join("replicas/zz")).unwrap();
                    fs::write(bb.join("replicas/zz/00000000000000aa"), "x").unwrap();
                    fs::write(bb.join("replicas/zz/notes"), "x").unwrap();
                },
                Outcome::Whole,
            ),
            ("no note of the directory", |bb| fs::remove_file(bb.join("directory")).unwrap(), Outcome::Whole),
            ("a wrong note", |bb| fs::write(bb.join("directory"), "/no/such\n").unwrap(), Outcome::Whole),
            ("garbage in the lock", |bb| fs::write(bb.join("forebay.lock"), [0xff; 9]).unwrap(), Outcome::Whole),
            (
                "a file for the socket",
                |bb| {
                    let _ = fs::remove_file(bb.join("agent.sock"));
                    fs::write(bb.join("agent.sock"), "x").unwrap();
                },
                Outcome::Whole,
            ),
            (
                "a directory for the log",
                |bb| {
                    let _ = fs::remove_file(bb.join("agent.log"));
                    fs::create_dir(bb.join("agent.log")).unwrap();
                },
                Outcome::Whole,
            ),
            (
                "garbage for checksums",
                |bb| files(&bb.join("sums"), "").iter().for_each(|path| fs::write(path, "garbage").unwrap()),
                Outcome::Whole,
            ),
        ]);
    });
}

#[test] // S17
fn what_is_damaged_is_told_with_its_path_and_what_to_do() {
    in_private_namespace(|| {
        let damages: [Told; 4] = [
            (|bb| fs::remove_file(bb.join("superblock")).unwrap(), "superblock"),
            (|bb| fs::write(bb.join("superblock"), "{").unwrap(), "superblock"),
            (|bb| files(&bb.join("catalogue"), "").iter().for_each(|path| fs::write(path, "x").unwrap()), "catalogue"),
            (|bb| fs::remove_dir_all(bb.join("catalogue/db")).unwrap(), "catalogue"),
        ];
        for (damage, what) in damages {
            let damaged = Damaged::new(damage);
            let (buffer, dir) = (damaged.bench.buffer.to_str().unwrap(), &damaged.bench.dir);
            let checked = call(["check", buffer]);
            assert_eq!(checked.code, 69, "{checked:?}");
            for done in [checked, damaged.bench.run(&[], "cat f"), call(["recover", buffer])] {
                let said = format!("{}{}", done.out, done.err);
                for part in [what, buffer, "--repair"] {
                    assert!(said.contains(part), "no `{part}` in {done:?}");
                }
            }
            assert_eq!(fs::read_to_string(dir.join("f")).unwrap(), "", "nothing is guessed");
        }
    });
}

/// A crash of the machine may take what nobody asked to keep; without one somebody else took it.
#[test] // S15
fn what_went_unsynced_with_a_crash_is_no_problem_of_a_check() {
    in_private_namespace(|| {
        for crashed in [true, false] {
            let damaged = Damaged::new(|buffer| {
                fs::remove_file(replica(buffer, DIRTY)).unwrap();
                if crashed {
                    let page = buffer.join("superblock");
                    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
                    let text = fs::read_to_string(&page).unwrap();
                    assert!(text.contains(boot.trim()));
                    fs::write(&page, text.replace(boot.trim(), "another boot")).unwrap();
                }
            });
            let buffer = damaged.bench.buffer.to_str().unwrap();
            let checked = damaged.call(&["check", buffer]);
            let lost = checked.out.contains("is missing here");
            assert_eq!((checked.code, lost), if crashed { (0, false) } else { (69, true) }, "{checked:?}");
            assert_eq!(checked.out.contains("1 file was written and not synced"), crashed, "{checked:?}");
            let recovered = damaged.call(&["recover", buffer]);
            assert_eq!(recovered.code, if crashed { 0 } else { 75 }, "{recovered:?}");
        }
    });
}

#[test] // S70
fn a_dirty_file_that_was_changed_between_two_agents_is_damaged() {
    in_private_namespace(|| {
        let bench = Bench::new();
        fs::write(bench.dir.join("f"), "old").unwrap();
        let mounted = bench.mount(&["--policy", "stage_out=manual"]);
        for name in ["f", "other"] {
            let file = File::create(bench.dir.join(name)).unwrap();
            file.write_all_at(DIRTY.as_bytes(), 0).unwrap();
            file.sync_all().unwrap();
        }
        let dir = bench.dir.to_str().unwrap();
        common::kill(mounted.agent(), libc::SIGKILL);
        wait_until("its agent is gone", BOUND, || call(["status", dir]).code == 69);
        rustix::mount::unmount(&bench.dir, rustix::mount::UnmountFlags::DETACH).unwrap();
        assert_eq!(bench.read("f"), "old");
        cut(&replica(&bench.buffer, DIRTY), DIRTY.len() as u64 - 1);
        let _mounted = bench.mount(&["--policy", "stage_out=manual"]);
        let file = bench.dir.join("f");
        let drained = call(["drain", "--wait", dir]);
        assert_eq!(drained.code, 75, "{drained:?}");
        let (damaged, whole) = if fs::read(&file).is_err() { ("f", "other") } else { ("other", "f") };
        let damaged = bench.dir.join(damaged);
        assert!(drained.err.contains("was changed in the burst buffer"), "{drained:?}");
        assert_eq!(fs::read(&damaged).unwrap_err().raw_os_error(), Some(libc::EIO));
        assert_eq!(fs::read_to_string(bench.dir.join(whole)).unwrap(), DIRTY);
        let status = call(["status", dir]);
        assert!(status.out.contains("damaged"), "{status:?}");
        let resolved = call(["resolve", damaged.to_str().unwrap(), "--keep", "burst-buffer"]);
        assert_eq!(resolved.code, 0, "{resolved:?}");
        assert_eq!(call(["drain", "--wait", dir]).code, 0);
        assert_eq!(fs::read(&damaged).unwrap(), b"dirty dat");
    });
}
