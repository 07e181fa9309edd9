//! The catalogue in a file system without a free block.

mod support;

use std::fs::File;
use std::io::Write;

use catalogue::{Catalogue, Change, Durability, FjallCatalogue, State};
use support::{Random, identity, record};
use testkit::{TempTree, in_private_namespace};

#[test] // S17, S58
fn what_frees_room_is_recorded_where_no_block_is_left() {
    in_private_namespace(|| {
        let tree = TempTree::new();
        let root = tree.mount_tmpfs("full", 8 << 20);
        let directory = root.join("catalogue");
        let catalogue = FjallCatalogue::open(&directory).unwrap();
        let mut random = Random(1);
        let mut change = |number| {
            let record = catalogue::Record { state: State::Clean, ..record(&mut random) };
            vec![Change::Put(identity(number), record)]
        };
        assert!(catalogue.has_room());
        (0..100).for_each(|number| catalogue.commit(change(number), Durability::Process).unwrap());
        assert!(catalogue.has_room());
        let mut filler = File::create(root.join("filler")).unwrap();
        while filler.write(&[1; 4096]).is_ok() {}
        let enough = (100..20_000).find(|number| {
            catalogue.commit(change(*number), Durability::Machine).unwrap();
            !catalogue.has_room()
        });
        let first = enough.expect("it never says that what is left is for others");
        (first..first + 2000).for_each(|number| catalogue.commit(change(number), Durability::Process).unwrap());
        drop(catalogue);
        let catalogue = FjallCatalogue::open(&directory).unwrap();
        assert!(catalogue.get(&identity(first + 1999)).unwrap().is_some());
        assert!(!catalogue.has_room());
        drop(filler);
        std::fs::remove_file(root.join("filler")).unwrap();
        assert!(catalogue.has_room());
        catalogue.commit(vec![Change::Remove(identity(0))], Durability::Machine).unwrap();
        let free = || rustix::fs::statvfs(&root).map(|now| now.f_bavail * now.f_frsize).unwrap();
        let kept = free();
        catalogue.close().unwrap();
        assert!(free() >= kept + (1 << 20), "an orderly end keeps room for nobody");
    });
}
