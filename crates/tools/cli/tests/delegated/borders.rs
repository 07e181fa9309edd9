//! Several delegated directories, and what moves between them and other directories.

use std::fs;
use std::os::unix::fs::MetadataExt;

use testkit::in_private_namespace;

use super::{Bed, ok};
use std::path::Path;

#[test] // S71
fn a_rename_over_a_border_replaces_what_is_there() {
    in_private_namespace(|| {
        let bed = Bed::new();
        let _mounted = bed.mount();
        // Into a delegated directory, out of one, and between two.
        for (from, to) in [("file", "in/file"), ("out/file", "target"), ("one/sub/file", "other/file")] {
            bed.ours([from, to]);
            fs::write(bed.path(from), "moved").unwrap();
            let (kept, replaced) = (fs::File::open(bed.path(from)).unwrap(), fs::File::open(bed.path(to)).unwrap());
            fs::rename(bed.path(from), bed.path(to)).unwrap_or_else(|error| panic!("{from} to {to}: {error}"));
            assert_eq!(fs::read_to_string(bed.path(to)).unwrap(), "moved", "{from} to {to}");
            assert!(!bed.path(from).exists());
            assert_eq!((kept.metadata().unwrap().len(), kept.metadata().unwrap().nlink()), (5, 1), "{from} to {to}");
            assert_eq!(
                (replaced.metadata().unwrap().len(), replaced.metadata().unwrap().nlink()),
                (4, 0),
                "{from} to {to}"
            );
        }
        // What is no file moves as well.
        std::os::unix::fs::symlink("anywhere", bed.path("other/link")).unwrap();
        bed.ours(["again/file"]);
        fs::rename(bed.path("other/link"), bed.path("again/file")).unwrap();
        assert_eq!(fs::read_link(bed.path("again/file")).unwrap(), Path::new("anywhere"));
        ok(bed.umount());
        assert_eq!([bed.read("in/file"), bed.read("target"), bed.read("other/file")], ["moved"; 3]);
    });
}

#[test] // S71, S4
fn a_file_that_is_removed_after_its_directory_was_given_back_can_be_used_by_who_has_it_open() {
    in_private_namespace(|| {
        let bed = Bed::new();
        let _mounted = bed.mount();
        bed.ours(["d/file"]);
        let open = fs::File::open(bed.path("d/file")).unwrap();
        ok(bed.drain());
        assert!(rustix::fs::getxattr(bed.below.join("d"), super::MARK, &mut [0; 64][..]).is_err(), "it is given back");
        fs::remove_file(bed.path("d/file")).unwrap();
        let found = open.metadata().unwrap();
        assert_eq!((found.len(), found.nlink()), (4, 0));
        assert_eq!(std::io::read_to_string(open).unwrap(), "ours");
        ok(bed.umount());
    });
}

#[test] // S71
fn files_of_two_delegated_directories_are_two_files() {
    in_private_namespace(|| {
        let bed = Bed::new();
        let _mounted = bed.mount();
        bed.ours(["one/file", "other/file", "third/sub/file"]);
        let mut numbers: Vec<_> = ["one", "one/file", "other", "other/file", "third/sub", "third/sub/file"]
            .iter()
            .map(|name| fs::metadata(bed.path(name)).unwrap().ino())
            .collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), 6, "programs take files with one number for one file: {numbers:?}");
        ok(bed.umount());
    });
}
