//! What bad luck gets in delegated directories, as its user meets it.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{BOUND, Bench, Done, Mounted, call, forebay, kill, ok, start};
use rustix::fs::XattrFlags;
use rustix::mount::{MountFlags, UnmountFlags};
use testkit::{in_private_namespace, wait_until};

const MARK: &str = "user.forebay.delegated";
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
        assert!(left.code == 75 && left.err.contains("are not in the global store"), "{left:?}");
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

#[test] // S71
fn a_name_that_others_have_made_waits_with_the_reason_until_somebody_decides() {
    in_private_namespace(|| {
        let bed = Bed::new();
        let _mounted = bed.mount();
        bed.ours(["d/one", "d/two", "d/three", "d/free"]);
        bed.theirs(["d/one", "d/two", "d/three"]);
        let drained = bed.drain();
        assert_eq!(drained.code, 75, "{drained:?}");
        let [one, two, three] = ["d/one", "d/two", "d/three"].map(|name| bed.path(name));
        let decide = format!("to decide: forebay resolve {} --keep burst-buffer|global|both", one.display());
        has(&drained.err, &["d/one: conflict: somebody else has made this name in the store", &decide]);
        assert_eq!(
            ["d/one", "d/two", "d/three", "d/free"].map(|name| bed.read(name)),
            ["theirs", "theirs", "theirs", "ours"]
        );
        let status = bed.status();
        assert_eq!((status["conflict"].as_u64(), status["stuck"].as_array().unwrap().len()), (Some(3), 3), "{status}");
        has(
            status["stuck"][0]["remedy"].as_str().unwrap(),
            &["forebay resolve /", "d/", "--keep burst-buffer|global|both"],
        );

        ok(bed.resolve(&one, "burst-buffer"));
        assert_eq!(bed.read("d/one"), "ours");
        let saved = ok(bed.resolve(&two, "both"));
        assert_eq!(fs::read_to_string(saved.trim()).unwrap(), "ours");
        assert!(saved.starts_with(bed.bench.buffer.join("saved").to_str().unwrap()), "{saved}");
        // The directory is still delegated, so the store's file does not show yet.
        assert!(!two.exists());
        ok(bed.resolve(&three, "global"));
        let seen = [&one, &two, &three].map(|path| fs::read_to_string(path).unwrap());
        assert_eq!(seen, ["ours", "theirs", "theirs"]);
        assert_eq!(bed.resolve(&three, "global").code, 66);
        ok(bed.umount());
        has(&ok(bed.check()), &[", 0 dirty, 0 need a decision"]);
    });
}

#[test] // S71
fn a_directory_goes_on_in_one_that_others_have_made_or_is_saved_with_all_in_it() {
    in_private_namespace(|| {
        let bed = Bed::new();
        let _mounted = bed.mount();
        bed.ours(["d/both/ours", "d/file/ours"]);
        bed.theirs(["d/both/theirs", "d/file"]);
        assert_eq!(bed.drain().code, 75);
        ok(bed.resolve(bed.path("d/both"), "burst-buffer"));
        assert_eq!(bed.drain().code, 75);
        assert_eq!(
            [bed.read("d/both/ours"), bed.read("d/both/theirs"), bed.read("d/file")],
            ["ours", "theirs", "theirs"]
        );
        let saved = ok(bed.resolve(bed.path("d/file"), "both"));
        assert_eq!(fs::read_to_string(Path::new(saved.trim()).join("ours")).unwrap(), "ours");
        assert_eq!(
            [bed.path("d/both/theirs"), bed.path("d/file")].map(|path| fs::read_to_string(path).unwrap()),
            ["theirs"; 2]
        );
        ok(bed.umount());
    });
}

#[test] // S71
fn all_names_that_wait_in_a_directory_are_decided_by_its_own() {
    in_private_namespace(|| {
        let bed = Bed::new();
        let _mounted = bed.mount();
        bed.ours(["d/a/one", "d/a/two", "d/three"]);
        assert_eq!(bed.drain().code, 0);
        bed.ours(["e/one", "e/two"]);
        bed.theirs(["e/one", "e/two"]);
        assert_eq!(bed.drain().code, 75);
        ok(bed.resolve(bed.path("e"), "burst-buffer"));
        assert_eq!([bed.read("e/one"), bed.read("e/two")], ["ours"; 2]);
        ok(bed.umount());
    });
}

#[test] // S71
fn a_directory_that_others_have_removed_is_made_again_with_all_in_it() {
    in_private_namespace(|| {
        let bed = Bed::new();
        let _mounted = bed.mount();
        bed.ours(["d/sub/changed", "d/sub/same"]);
        ok(call([Path::new("stage"), "out".as_ref(), "--recursive".as_ref(), "--wait".as_ref(), &bed.path("d")]));
        assert_eq!(bed.read("d/sub/same"), "ours");
        fs::remove_dir_all(bed.below.join("d/sub")).unwrap();
        fs::write(bed.path("d/sub/changed"), "changed").unwrap();
        let drained = bed.drain();
        assert_eq!(drained.code, 75, "{drained:?}");
        has(&drained.err, &["d/sub/changed: conflict: the directory is not there"]);
        ok(bed.resolve(bed.path("d/sub/changed"), "burst-buffer"));
        ok(bed.umount());
        assert_eq!([bed.read("d/sub/changed"), bed.read("d/sub/same")], ["changed", "ours"]);
    });
}

#[test] // S71
fn a_removal_that_the_store_refuses_can_be_given_up() {
    in_private_namespace(|| {
        let bed = Bed::new();
        let _mounted = bed.mount();
        bed.ours(["d/sub/file"]);
        ok(call([Path::new("stage"), "out".as_ref(), "--recursive".as_ref(), "--wait".as_ref(), &bed.path("d")]));
        bed.theirs(["d/sub/theirs"]);
        fs::remove_dir_all(bed.path("d/sub")).unwrap();
        let drained = bed.drain();
        assert_eq!(drained.code, 75, "{drained:?}");
        let sub = bed.path("d/sub");
        has(
            &drained.err,
            &["d/sub: conflict: Directory not empty", &format!("forebay resolve {} --keep global\n", sub.display())],
        );
        assert!(!drained.err.contains("data:"), "{drained:?}");
        ok(bed.resolve(&sub, "global"));
        assert_eq!(fs::read_to_string(sub.join("theirs")).unwrap(), "theirs");
        assert!(!sub.join("file").exists());
        ok(bed.umount());
    });
}

#[test] // S71
fn names_wait_while_the_store_refuses_them_and_go_when_it_does_not() {
    in_private_namespace(|| {
        let mut bench = Bench::new();
        bench.dir = bench.tree.mount_tmpfs("small", 1 << 20);
        let bed = Bed::of(bench);
        let _mounted = bed.mount();
        bed.ours(["d/small"]);
        fs::write(bed.path("d/large"), vec![b'x'; 4 << 20]).unwrap();
        let drained = bed.drain();
        assert_eq!(drained.code, 75, "{drained:?}");
        has(&drained.err, &["d/large: dirty: ", "No space left on device"]);
        let status = bed.status();
        has(&status["stuck"].to_string(), &["make room in the global store"]);
        let larger = c"size=64m";
        rustix::mount::mount_remount(&bed.below, MountFlags::empty(), larger).unwrap();
        ok(bed.umount());
        assert_eq!((bed.read("d/small").len(), bed.read("d/large").len()), (4, 4 << 20));
    });
}

#[test] // S71
fn names_wait_for_a_permission_that_was_taken_away() {
    in_private_namespace(|| {
        let bed = Bed::new();
        let _mounted = bed.mount();
        bed.ours(["d/file"]);
        let immutable = |on: &str| Command::new("chattr").arg(on).arg(bed.below.join("d")).status().unwrap().success();
        assert!(immutable("+i"));
        let drained = bed.drain();
        let told = bed.status();
        assert!(immutable("-i"));
        assert_eq!(drained.code, 75, "{drained:?}");
        has(&drained.err, &["d/file: failed: ", "Operation not permitted"]);
        has(&told["stuck"].to_string(), &["mend the reason"]);
        ok(bed.umount());
        assert_eq!(bed.read("d/file"), "ours");
    });
}

#[test] // S71
fn a_delegated_directory_that_others_have_removed_is_called_by_its_identity_and_saved() {
    in_private_namespace(|| {
        let bed = Bed::new();
        let _mounted = bed.mount();
        bed.ours(["d/file", "d/sub/file"]);
        fs::remove_dir(bed.below.join("d")).unwrap();
        let drained = bed.drain();
        assert_eq!(drained.code, 75, "{drained:?}");
        has(&drained.err, &["d: orphaned: the directory is gone from the global store, and ", "--keep global|both"]);
        let status = bed.status();
        let identity = status["stuck"][0]["identity"].as_str().unwrap().to_owned();
        has(
            status["stuck"][0]["remedy"].as_str().unwrap(),
            &[&format!("forebay resolve {identity} --keep global|both")],
        );
        let saved = ok(bed.resolve(&identity, "both"));
        let read = |name: &str| fs::read_to_string(Path::new(saved.trim()).join(name)).unwrap();
        assert_eq!([read("file"), read("sub/file")], ["ours"; 2]);
        assert_eq!(bed.status()["delegated_trees"], 0);
        ok(bed.umount());
    });
}

#[test] // S71, S14
fn names_that_wait_when_the_agent_dies_are_counted_and_recovered() {
    in_private_namespace(|| {
        let bed = Bed::new();
        let mounted = bed.mount();
        bed.ours(["d/one", "d/two"]);
        bed.crash(&mounted);
        has(
            &ok(bed.check()),
            &[", 3 dirty, 0 need a decision", "delegated directories: 1; 3 names wait for the global store"],
        );
        assert!(!bed.below.join("d/one").exists());
        ok(bed.recover());
        assert_eq!([bed.read("d/one"), bed.read("d/two")], ["ours"; 2]);
        let checked = ok(bed.check());
        has(&checked, &[", 0 dirty, 0 need a decision"]);
        assert!(!checked.contains("delegated"), "{checked}");
    });
}

#[test] // S71
fn names_that_wait_at_the_end_of_a_run_are_told_and_decided_without_an_agent() {
    in_private_namespace(|| {
        let bed = Bed::new();
        let theirs = bed.below.join("d/file");
        let script = format!("mkdir d; printf ours > d/file; printf theirs > {}", theirs.display());
        let done = bed.bench.run(&RULES, &script);
        assert_eq!(done.code, 75, "{done:?}");
        has(&done.err, &["d/file: conflict: somebody else has made this name", "to decide: forebay resolve "]);
        let again = bed.recover();
        assert!(again.code == 75 && again.err.contains("d/file: conflict: "), "{again:?}");
        let saved = ok(bed.resolve(bed.path("d/file"), "both"));
        assert_eq!((fs::read_to_string(saved.trim()).unwrap(), bed.read("d/file")), ("ours".into(), "theirs".into()));
        ok(bed.recover());
        has(&ok(bed.check()), &[", 0 dirty, 0 need a decision"]);
    });
}

#[test] // S71
fn a_directory_that_has_lost_its_mark_is_taken_up_again() {
    in_private_namespace(|| {
        let bed = Bed::new();
        let mounted = bed.mount();
        bed.ours(["d/file"]);
        bed.crash(&mounted);
        rustix::fs::removexattr(bed.below.join("d"), MARK).unwrap();
        let recovered = bed.recover();
        assert_eq!(recovered.code, 75, "{recovered:?}");
        has(&recovered.err, &["d: conflict: the directory is not marked as ours any more, and 2 names wait for it"]);
        ok(bed.resolve(bed.path("d"), "burst-buffer"));
        ok(bed.recover());
        assert_eq!(bed.read("d/file"), "ours");
    });
}

#[test] // S71
fn a_directory_whose_log_is_damaged_is_told_at_the_start_and_its_files_are_saved() {
    in_private_namespace(|| {
        let bed = Bed::new();
        let mounted = bed.mount();
        bed.ours(["d/file"]);
        bed.crash(&mounted);
        let tree = fs::read_dir(bed.bench.buffer.join("trees")).unwrap().next().unwrap().unwrap();
        for log in fs::read_dir(tree.path().join("log")).unwrap() {
            let log = fs::File::options().write(true).open(log.unwrap().path()).unwrap();
            std::os::unix::fs::FileExt::write_all_at(&log, &[0; 72], 0).unwrap();
        }
        let id = tree.file_name().into_string().unwrap();
        let checked = bed.check();
        assert_eq!(checked.code, 69, "{checked:?}");
        has(&checked.out, &["damaged", &format!("forebay resolve {id} --keep global|both")]);
        let mut mount = forebay();
        mount.arg("mount").arg(&bed.bench.dir).arg("--burst-buffer").arg(&bed.bench.buffer).args(RULES);
        let mounted = start(&mut mount, "").wait();
        let _mounted = bed.bench.mounted();
        assert_eq!(mounted.code, 0, "{mounted:?}");
        has(
            &mounted.err,
            &["the name log's first file is damaged", &format!("forebay resolve {id} --keep global|both")],
        );
        let saved = ok(bed.resolve(&id, "both"));
        let files = fs::read_dir(saved.trim()).unwrap().map(|file| fs::read_to_string(file.unwrap().path()).unwrap());
        assert!(files.into_iter().any(|text| text == "ours"));
        // The mark is gone with the tree.
        assert_eq!(fs::read_dir(bed.path("d")).unwrap().count(), 0);
        ok(bed.umount());
    });
}

/// Mounts the directory of a bed for another agent, at another path and with another burst buffer.
fn second(bed: &Bed) -> (PathBuf, PathBuf) {
    let (other, buffer) = (bed.bench.tree.dir("other"), bed.bench.tree.dir("bb2"));
    bind(&bed.below, &other);
    let mut command = forebay();
    command.arg("mount").arg(&other).arg("--burst-buffer").arg(&buffer).args(["--policy", "remote_wait=1s"]);
    ok(start(&mut command, "").wait());
    (other, buffer)
}

fn is_timed_out(dir: &Path) -> bool {
    fs::read_dir(dir).is_err_and(|error| error.raw_os_error() == Some(libc::ETIMEDOUT))
}

#[test] // S71
fn another_agent_waits_is_told_who_holds_a_directory_and_goes_on_after_a_drain() {
    in_private_namespace(|| {
        let bed = Bed::new();
        let _mounted = bed.mount();
        bed.ours(["d/file"]);
        let (other, buffer) = second(&bed);
        assert!(is_timed_out(&other.join("d")));
        let log = fs::read_to_string(buffer.join("agent.log")).unwrap();
        has(&log, &["a directory is delegated to another agent", bed.bench.buffer.to_str().unwrap()]);
        let refused = call([Path::new("undelegate"), &other.join("d"), "--force".as_ref()]);
        assert!(refused.code == 69 && refused.err.contains("to an agent that works here"), "{refused:?}");
        ok(bed.drain());
        assert_eq!(fs::read_to_string(other.join("d/file")).unwrap(), "ours");
        ok(call([Path::new("umount"), &other]));
        ok(bed.umount());
    });
}

#[test] // S71
fn the_delegation_of_a_holder_that_does_not_come_back_is_ended_and_its_burst_buffer_is_not_forgotten() {
    in_private_namespace(|| {
        let bed = Bed::new();
        let mounted = bed.mount();
        bed.ours(["d/file"]);
        bed.crash(&mounted);
        let (other, _) = second(&bed);
        let d = other.join("d");
        let waits = call([Path::new("undelegate"), &d]);
        assert_eq!(waits.code, 75, "{waits:?}");
        has(&waits.err, &["2 names wait there", "to bring them: forebay recover ", "--force"]);
        let lost = bed.bench.tree.path("lost");
        fs::rename(&bed.bench.buffer, &lost).unwrap();
        let unknown = call([Path::new("undelegate"), &d]);
        assert_eq!(unknown.code, 69, "{unknown:?}");
        has(&unknown.err, &["is delegated: host ", bed.bench.buffer.to_str().unwrap(), "is not known here", "--force"]);
        assert!(is_timed_out(&d));
        has(&ok(call([Path::new("undelegate"), &d, "--force".as_ref()])), &["is not delegated any more"]);
        fs::write(d.join("theirs"), "theirs").unwrap();
        ok(call([Path::new("umount"), &other]));
        assert_eq!(call([Path::new("undelegate"), &bed.below.join("d")]).code, 66);
        // The burst buffer comes back after all.
        fs::rename(&lost, &bed.bench.buffer).unwrap();
        let recovered = bed.recover();
        assert!(recovered.code == 75 && recovered.err.contains("not marked as ours any more"), "{recovered:?}");
        let saved = ok(bed.resolve(bed.path("d"), "both"));
        assert_eq!(fs::read_to_string(Path::new(saved.trim()).join("file")).unwrap(), "ours");
        ok(bed.recover());
        assert_eq!(bed.read("d/theirs"), "theirs");
    });
}

#[test] // S71
fn a_delegation_of_which_nothing_waits_here_is_ended_without_a_question() {
    in_private_namespace(|| {
        let bed = Bed::new();
        let mounted = bed.mount();
        bed.ours(["d/file"]);
        let mark = {
            let mut value = vec![0; 4096];
            let bytes = rustix::fs::getxattr(bed.below.join("d"), MARK, &mut value[..]).unwrap();
            value.truncate(bytes);
            value
        };
        ok(bed.drain());
        ok(bed.umount());
        drop(mounted);
        rustix::fs::setxattr(bed.below.join("d"), MARK, &mark, XattrFlags::CREATE).unwrap();
        has(&ok(call([Path::new("undelegate"), &bed.below.join("d")])), &["its holder was host "]);
        assert_eq!(rustix::fs::getxattr(bed.below.join("d"), MARK, &mut [0; 4096][..]), Err(rustix::io::Errno::NODATA));
    });
}
