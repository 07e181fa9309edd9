//! A crash of the machine while a tree has copies of files that the global store has.

mod support;

use std::sync::Arc;

use data_store::SyncScope;
use delegation::{BelowCopy, BelowState, DataPlace};
use support::{Bed, MemoryFile};
use testkit::{Disk, TempTree, in_private_namespace};
use types::Identity;

#[test] // S71
fn what_was_copied_from_the_store_has_its_bytes_after_a_crash_of_the_machine() {
    in_private_namespace(|| {
        let place = TempTree::new();
        let Some(disk) = Disk::new(place.path("image"), place.dir("disk"), 64 << 20) else { return };
        let content: Vec<u8> = (0..50_000_u32).map(|at| at as u8 | 1).collect();
        let bed = Bed::at(disk.place());
        let (inode, number) = bed.make("file", &content);
        bed.below.0.lock().unwrap().insert(number, MemoryFile::of(&content));
        bed.files.settle_all().unwrap();
        let name = bed.tree.state(number).unwrap().names;
        let copy = BelowCopy { identity: Some(Identity::new([7]).unwrap()), names: name, doubtful: false };
        let pending = bed.tree.pending_node(number).unwrap();
        bed.tree.applied(pending, BelowState::At(Arc::new(copy))).unwrap();
        bed.tree.set_place(number, DataPlace::BelowOnly).unwrap();
        let (_, _, other) = bed.create("other");
        bed.files.sync().unwrap();
        // A program reads the file, and another one syncs its own.
        assert_eq!(bed.read(number), content);
        other.sync(SyncScope::All).unwrap();
        // The image holds what a crash of the machine would leave at this moment.
        std::fs::copy(place.path("image"), place.path("left")).unwrap();
        drop(inode);
        let left = Disk::again(place.path("left"), place.dir("left-disk")).unwrap();
        let after = Bed::at(left.place());
        match after.tree.content(number).unwrap().place {
            DataPlace::BelowOnly => {}
            DataPlace::Replica(_) => assert!(after.read(number) == content, "other bytes than the store's"),
            place => panic!("{place:?}"),
        }
    });
}
