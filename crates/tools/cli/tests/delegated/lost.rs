//! Delegated directories that are gone, unmarked or damaged.

use super::*;

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
fn a_directory_that_could_not_be_opened_is_tried_again_by_a_drain() {
    in_private_namespace(|| {
        let bed = Bed::new();
        let mounted = bed.mount();
        bed.ours(["d/file"]);
        bed.crash(&mounted);
        let (d, mut mark) = (bed.below.join("d"), vec![0; 4096]);
        let bytes = rustix::fs::getxattr(&d, MARK, &mut mark[..]).unwrap();
        rustix::fs::removexattr(&d, MARK).unwrap();
        let _mounted = bed.mount();
        let drained = bed.drain();
        assert!(drained.code == 75 && drained.err.contains("not marked as ours any more"), "{drained:?}");
        rustix::fs::setxattr(&d, MARK, &mark[..bytes], XattrFlags::CREATE).unwrap();
        ok(bed.drain());
        assert_eq!(bed.read("d/file"), "ours");
        ok(bed.umount());
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
        has(&checked.out, &[", 1 dirty", "damaged", &format!("forebay resolve {id} --keep global|both")]);
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
