//! Existing directories that are delegated from their first use on.

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use super::*;

const LEASE: [&str; 6] =
    ["--policy", "delegate=lease", "--policy", "stage_out=manual", "--policy", "passthrough_reserve=1%"];

/// All that a look at a directory tells, file by file.
fn listing(top: &Path) -> Vec<String> {
    let (mut lines, mut ahead) = (Vec::new(), vec![top.to_owned()]);
    while let Some(path) = ahead.pop() {
        let (found, name) = (path.symlink_metadata().unwrap(), path.strip_prefix(top).unwrap().to_owned());
        // A directory's size and number of blocks are its file system's own affair.
        let size = if found.is_dir() { 0 } else { found.len() };
        let times = [found.mtime(), found.mtime_nsec(), found.ctime(), found.ctime_nsec()];
        let content =
            if found.is_file() { fs::read(&path).unwrap().iter().map(|byte| u64::from(*byte)).sum() } else { 0 };
        let target = fs::read_link(&path).unwrap_or_default();
        lines.push(format!(
            "{} {:o} {}:{} {size} {} {} {times:?} {content} {}",
            name.display(),
            found.mode(),
            found.uid(),
            found.gid(),
            found.nlink(),
            found.ino(),
            target.display()
        ));
        if found.is_dir() {
            ahead.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
    }
    lines.sort();
    lines
}

fn existing(bed: &Bed) {
    bed.theirs(["a/one", "a/two", "a/deep/er/three", "b/four"]);
    let a = bed.below.join("a");
    fs::set_permissions(a.join("one"), fs::Permissions::from_mode(0o4750)).unwrap();
    std::os::unix::fs::chown(a.join("two"), Some(1000), Some(1001)).unwrap();
    symlink("one", a.join("link")).unwrap();
    fs::hard_link(a.join("two"), bed.below.join("b/other name")).unwrap();
    fs::write(a.join("large"), vec![7; 5 << 20]).unwrap();
    rustix::fs::setxattr(a.join("one"), "user.note", b"kept", XattrFlags::empty()).unwrap();
}

#[test] // S71
fn an_existing_directory_looks_the_same_delegated_and_after() {
    in_private_namespace(|| {
        let bed = Bed::new();
        existing(&bed);
        let before = listing(&bed.below);
        let top = || fs::metadata(&bed.below).unwrap();
        let modified = (top().mtime(), top().mtime_nsec());
        let _mounted = bed.bench.mount(&LEASE);
        // The mark changes the time of change of its directory.
        assert_eq!(listing(&bed.bench.dir)[1..], before[1..]);
        assert_eq!((top().mtime(), top().mtime_nsec()), modified);
        assert_eq!(bed.status()["delegated_trees"], 1);
        ok(bed.umount());
        assert_eq!(listing(&bed.below)[1..], before[1..]);
        assert_eq!((top().mtime(), top().mtime_nsec()), modified);
        assert!(rustix::fs::getxattr(&bed.below, MARK, &mut [0; 8][..]).is_err());
    });
}

#[test] // S71
fn what_programs_do_in_a_leased_directory_is_in_the_store_after_a_drain_and_not_before() {
    in_private_namespace(|| {
        let bed = Bed::new();
        existing(&bed);
        let _mounted = bed.bench.mount(&LEASE);
        let untouched = listing(&bed.below);
        fs::write(bed.path("a/one"), "ours").unwrap();
        fs::rename(bed.path("a/deep"), bed.path("moved")).unwrap();
        fs::create_dir(bed.path("a/deep")).unwrap();
        fs::write(bed.path("a/deep/new"), "new").unwrap();
        fs::remove_file(bed.path("a/link")).unwrap();
        assert_eq!(fs::remove_dir(bed.path("moved")).unwrap_err().raw_os_error(), Some(libc::ENOTEMPTY));
        assert_eq!(fs::create_dir(bed.path("b")).unwrap_err().raw_os_error(), Some(libc::EEXIST));
        // The mark on the accelerated directory changes its time.
        let below = listing(&bed.below);
        assert_eq!((&below[1..], bed.status()["waiting_names"].as_u64() > Some(4)), (&untouched[1..], true));
        ok(bed.drain());
        assert_eq!(
            (bed.read("a/one"), bed.read("moved/er/three"), bed.read("a/deep/new")),
            ("ours".into(), "theirs".into(), "new".into())
        );
        assert!(bed.below.join("a/link").symlink_metadata().is_err());
        assert_eq!(listing(&bed.bench.dir).len(), listing(&bed.below).len());
        ok(bed.umount());
        ok(bed.check());
    });
}

#[test] // S71
fn a_leased_directory_goes_on_after_the_death_of_its_agent() {
    in_private_namespace(|| {
        let bed = Bed::new();
        existing(&bed);
        let mounted = bed.bench.mount(&LEASE);
        fs::write(bed.path("a/one"), "ours").unwrap();
        fs::remove_file(bed.path("a/two")).unwrap();
        bed.crash(&mounted);
        assert_eq!(bed.read("a/one"), "theirs");
        let _again = bed.bench.mount(&LEASE);
        assert_eq!(fs::read_to_string(bed.path("a/one")).unwrap(), "ours");
        assert!(bed.path("a/two").symlink_metadata().is_err());
        // These were not read before the death.
        assert_eq!(fs::read_to_string(bed.path("a/deep/er/three")).unwrap(), "theirs");
        assert_eq!(fs::metadata(bed.path("b/other name")).unwrap().nlink(), 1);
        ok(bed.umount());
        assert_eq!(bed.read("a/one"), "ours");
        ok(bed.check());
    });
}

#[test] // S71
fn who_opens_two_files_of_a_directory_finds_the_others_copied() {
    in_private_namespace(|| {
        let bed = Bed::new();
        (0..40).for_each(|number| write(&bed.below.join(format!("many/{number}")), &number.to_string()));
        let _mounted = bed.bench.mount(&LEASE);
        let first = fs::read_dir(bed.path("many")).unwrap().take(2).map(|entry| entry.unwrap().path());
        first.for_each(|path| drop(fs::read(path).unwrap()));
        wait_until("all files are copied", BOUND, || bed.status()["files"] == 40);
        (0..40).for_each(|number| {
            assert_eq!(fs::read_to_string(bed.path(&format!("many/{number}"))).unwrap(), number.to_string())
        });
        ok(bed.umount());
        assert_eq!(bed.read("many/7"), "7");
    });
}

#[test] // S71
fn hard_links_and_large_files_stay_with_the_store() {
    in_private_namespace(|| {
        let bed = Bed::new();
        existing(&bed);
        let _mounted = bed.bench.mount(&LEASE);
        // A write by one name shows by the other.
        fs::write(bed.path("a/two"), "by one").unwrap();
        assert_eq!(fs::read_to_string(bed.path("b/other name")).unwrap(), "by one");
        fs::hard_link(bed.path("b/other name"), bed.path("b/third")).unwrap();
        assert_eq!(fs::metadata(bed.path("a/two")).unwrap().nlink(), 3);
        fs::rename(bed.path("b/third"), bed.path("a/two")).unwrap();
        assert!(bed.path("b/third").exists(), "two names of one file");
        fs::remove_file(bed.path("a/two")).unwrap();
        assert_eq!(fs::metadata(bed.path("b/third")).unwrap().nlink(), 2);
        assert!(bed.below.join("a/two").symlink_metadata().is_err());
        fs::rename(bed.path("a/large"), bed.path("b/larger")).unwrap();
        assert_eq!(bed.below.join("b/larger").metadata().unwrap().len(), 5 << 20);
        ok(bed.umount());
        assert_eq!(bed.read("b/third"), "by one");
    });
}

#[test] // S71
fn another_agent_of_the_machine_gets_a_directory_that_it_asks_for() {
    in_private_namespace(|| {
        let bed = Bed::new();
        let _mounted = bed.mount();
        bed.ours(["d/file"]);
        let (other, _) = holders::second(&bed);
        assert_eq!(fs::read_to_string(other.join("d/file")).unwrap(), "ours");
        assert_eq!(bed.status()["delegated_trees"], 0);
        fs::write(other.join("d/file"), "theirs").unwrap();
        ok(call([Path::new("umount"), &other]));
        wait_until("the other's write is seen", BOUND, || fs::read_to_string(bed.path("d/file")).unwrap() == "theirs");
        ok(bed.umount());
    });
}

#[test] // S71
fn an_agent_does_not_start_in_a_directory_that_another_has() {
    in_private_namespace(|| {
        let bed = Bed::new();
        existing(&bed);
        let _mounted = bed.bench.mount(&LEASE);
        let open = fs::OpenOptions::new().append(true).open(bed.path("a/one")).unwrap();
        let (other, buffer) = (bed.bench.tree.dir("other"), bed.bench.tree.dir("bb2"));
        bind(&bed.below, &other);
        let start_other = || {
            let mut command = forebay();
            command.arg("mount").arg(&other).arg("--burst-buffer").arg(&buffer).args(["--policy", "remote_wait=1s"]);
            start(&mut command, "").wait()
        };
        let refused = start_other();
        assert_ne!(refused.code, 0);
        has(&refused.err, &["the directory is delegated to", "forebay drain --wait", "forebay undelegate "]);
        drop(open);
        ok(start_other());
        ok(call([Path::new("umount"), &other]));
        ok(bed.umount());
    });
}
