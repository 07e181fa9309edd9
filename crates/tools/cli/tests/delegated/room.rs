//! Delegated directories of a store that is nearly full.

use std::ffi::CStr;
use std::fs;

use rustix::mount::{MountFlags, mount_remount};
use testkit::{in_private_namespace, wait_until};

use super::{BOUND, Bed, Bench, MARK, ok};

/// Mounts a small store and fills it through a delegated directory, which is to come back.
fn fills(limits: &CStr, fill: impl FnOnce(&Bed)) {
    let mut bench = Bench::new();
    bench.dir = bench.tree.mount_tmpfs("small", 8 << 20);
    let bed = Bed::of(bench);
    mount_remount(&bed.below, MountFlags::empty(), limits).unwrap();
    let _mounted = bed.bench.mount(&["--policy", "delegate=new"]);
    let is_delegated = |name: &str| rustix::fs::getxattr(bed.below.join(name), MARK, &mut [0; 128][..]).is_ok();
    bed.ours(["d/small"]);
    assert!(is_delegated("d"));
    fill(&bed);
    wait_until("the directory is given back", BOUND, || !is_delegated("d"));
    assert_eq!(bed.read("d/small"), "ours");
    fs::create_dir(bed.path("later")).unwrap();
    assert!(!is_delegated("later"), "the store answers for new names");
    ok(bed.umount());
}

#[test] // S71
fn a_directory_comes_back_when_the_store_has_few_bytes_left() {
    in_private_namespace(|| {
        fills(c"size=8m,nr_inodes=10000", |bed| fs::write(bed.path("d/large"), vec![b'x'; 8_300_000]).unwrap());
    });
}

#[test] // S71
fn a_directory_comes_back_when_the_store_has_few_inodes_left() {
    in_private_namespace(|| {
        fills(c"size=64m,nr_inodes=640", |bed| {
            (0..630).for_each(|number| fs::write(bed.path(&format!("d/{number}")), "x").unwrap());
        });
    });
}
