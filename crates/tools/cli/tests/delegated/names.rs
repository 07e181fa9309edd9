//! Names that wait, and what ends it.

use super::*;

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
