//! Files that replace others below (`publish=atomic`).

use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::sync::atomic::{AtomicBool, Ordering};

use global_store::hidden;
use testkit::{PATIENCE, in_private_namespace, wait_until};

use crate::stand::{How, PASSTHROUGH, Stand};

const ATOMIC: How = How { rule: Some("publish=atomic"), ..PASSTHROUGH };
/// Length of each version, bytes. Every byte of a version is its number.
const LEN: usize = 700_000;
const VERSIONS: u8 = 25;

#[test] // S53
fn who_reads_below_sees_whole_versions_and_programs_see_nothing_of_it() {
    in_private_namespace(|| {
        let stand = Stand::new(ATOMIC);
        let (path, below, done) = (stand.path("f"), stand.below("f"), AtomicBool::new(false));
        fs::write(&below, [1; LEN]).unwrap();
        let mut inodes = vec![fs::metadata(&below).unwrap().ino()];
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let (mut seen, mut last) = (0, 0);
                while !done.load(Ordering::Relaxed) {
                    let found = fs::read(&below).unwrap();
                    assert!(found.len() == LEN && found.iter().all(|byte| *byte == found[0]), "a part of a version");
                    assert!(found[0] >= last, "an older version came back");
                    (seen, last) = (seen + u32::from(found[0] > last), found[0]);
                }
                seen
            });
            for version in 2..=VERSIONS {
                fs::write(&path, [version; LEN]).unwrap();
                // Changed by a name that the kernel may still know as the former file's.
                fs::set_permissions(&path, PermissionsExt::from_mode(0o600 + u32::from(version % 8))).unwrap();
                assert_eq!(fs::read(&path).unwrap()[LEN - 1], version);
                wait_until("the version below", PATIENCE, || fs::read(&below).unwrap()[0] == version);
                assert_eq!(fs::metadata(&below).unwrap().mode() & 0o777, 0o600 + u32::from(version % 8));
                assert_eq!(fs::read(&path).unwrap()[0], version);
                inodes.push(fs::metadata(&below).unwrap().ino());
            }
            done.store(true, Ordering::Relaxed);
            assert!(reader.join().unwrap() > 1);
        });
        assert!(inodes.windows(2).all(|two| two[0] != two[1]), "each version is another file: {inodes:?}");
        File::open(&path).unwrap();
        let nameless = OpenOptions::new().write(true).custom_flags(libc::O_TMPFILE).open(stand.path("")).unwrap();
        assert_eq!(nameless.metadata().unwrap().nlink(), 0, "it never had one to lose");
        assert_eq!(fs::metadata(&path).unwrap().ino(), fs::metadata(&below).unwrap().ino());
    });
}

#[test] // S53
fn hidden_files_are_not_seen_not_made_and_no_reason_to_keep_a_directory() {
    in_private_namespace(|| {
        let stand = Stand::new(ATOMIC);
        let name = hidden::name("a node that died", 7);
        for directory in ["one", "two", "three"] {
            fs::create_dir(stand.below(directory)).unwrap();
            fs::write(stand.below(directory).join(&name), b"a part").unwrap();
        }
        assert_eq!(fs::read_dir(stand.path("one")).unwrap().count(), 0);
        assert_eq!(fs::metadata(stand.path("one").join(&name)).unwrap_err().kind(), ErrorKind::NotFound);
        fs::create_dir(stand.path("four")).unwrap();
        assert_eq!(fs::write(stand.path("four").join(&name), b"").unwrap_err().kind(), ErrorKind::PermissionDenied);
        fs::write(stand.path("two").join("seen"), b"").unwrap();
        assert_eq!(fs::remove_dir(stand.path("two")).unwrap_err().kind(), ErrorKind::DirectoryNotEmpty);
        assert!(stand.below("two").join(&name).exists(), "somebody may be writing it");
        fs::remove_dir(stand.path("one")).unwrap();
        fs::rename(stand.path("four"), stand.path("three")).unwrap();
        assert_eq!(fs::read_dir(stand.below("three")).unwrap().count(), 0);
    });
}
