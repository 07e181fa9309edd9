//! Rules of directories that come and go.

mod common;

use std::fs;

use common::{Bench, call, ok};
use testkit::in_private_namespace;

#[test] // S34
fn rules_go_with_a_directory_that_is_renamed() {
    in_private_namespace(|| {
        let bench = Bench::new();
        let [old, new, other] = ["old", "new", "other"].map(|name| bench.dir.join(name));
        let holds = |dir: &std::path::Path, key: &str| ok(call(["policy", "get", dir.to_str().unwrap(), key]));
        let _mounted = bench.mount(&["--policy", "stage_out=manual"]);
        [&old, &other].iter().for_each(|dir| fs::create_dir(dir).unwrap());
        ok(call(["policy", "set", old.to_str().unwrap(), "cache=through"]));
        fs::rename(&old, &new).unwrap();
        assert_eq!(holds(&new, "cache"), "through\n");
        fs::write(new.join("f"), "data").unwrap();
        let state = ok(call(["stage", "state", new.join("f").to_str().unwrap()]));
        assert!(state.starts_with("absent"), "{state}");
        fs::create_dir(&old).unwrap();
        assert_eq!(holds(&old, "cache"), "both\n", "it is another directory");
        let flags = rustix::fs::RenameFlags::EXCHANGE;
        rustix::fs::renameat_with(rustix::fs::CWD, &new, rustix::fs::CWD, &other, flags).unwrap();
        assert_eq!((holds(&new, "cache"), holds(&other, "cache")), ("both\n".into(), "through\n".into()));
        ok(call(["umount", bench.dir.to_str().unwrap()]));
        let _mounted = bench.mount(&[]);
        assert_eq!(holds(&other, "cache"), "through\n", "also after a restart");
        fs::remove_dir_all(&other).unwrap();
        fs::create_dir(&other).unwrap();
        assert_eq!(holds(&other, "cache"), "through\n", "that is how jobs begin");
        ok(call(["umount", bench.dir.to_str().unwrap()]));
    });
}
