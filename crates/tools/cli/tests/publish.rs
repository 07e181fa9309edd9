//! Files that take the places of others (`publish=atomic`): which agents make them.

mod common;

use std::fs;
use std::os::unix::fs::MetadataExt;

use common::Bench;
use testkit::in_private_namespace;

#[test] // S53
fn a_burst_buffer_that_a_server_has_used_publishes_nothing() {
    in_private_namespace(|| {
        let bench = Bench::new();
        let inode = || fs::metadata(bench.dir.join("f")).unwrap().ino();
        let rewrite = |text: &str| {
            let before = inode();
            let done = bench.run(&["--quiet", "--policy", "publish=atomic"], &format!("printf {text} > f"));
            assert_eq!((done.code, bench.read("f").as_str()), (0, text), "{done:?}");
            inode() != before
        };
        fs::write(bench.dir.join("f"), "old").unwrap();
        assert!(rewrite("new"), "another file");
        // The place also contains the server's client recovery records.
        let places = fs::read_dir(&bench.buffer).unwrap().map(|entry| entry.unwrap().path());
        let place = places.chain([bench.buffer.clone()]).find(|path| path.join("catalogue").exists()).unwrap();
        fs::write(place.join("lockers"), b"").unwrap();
        assert!(!rewrite("newer"), "a node may come back that knows it by its identity");
    });
}
