//! Files of others, and what an agent without privilege may give away.

use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};

use global_store::hidden;

use crate::hooked::Step;
use crate::world::{How, MIB, World, pattern, scratch, without_privilege};

const USER: u32 = 1234;
const OTHER: u32 = 4321;

#[test]
fn what_another_file_cannot_be_given_is_written_in_place() {
    // Of which what is large is asked for before it is copied.
    for len in [3, 3 * MIB] {
        let dir = scratch();
        chown(dir.path(), Some(USER), Some(USER)).unwrap();
        let root = dir.path().join("global");
        std::fs::create_dir(&root).unwrap();
        chown(&root, Some(USER), Some(USER)).unwrap();
        // The last one's directory gives its group to what is made in it, which is what it is to have.
        let places = [
            ("free/f", USER, USER, 0o777),
            ("group/f", OTHER, USER, 0o777),
            ("closed/f", USER, USER, 0o555),
            ("given/f", OTHER, OTHER, 0o2777),
        ];
        for (name, gid, directory_gid, mode) in places {
            let path = root.join(name);
            let parent = path.parent().unwrap();
            std::fs::create_dir(parent).unwrap();
            std::fs::write(&path, b"old").unwrap();
            chown(&path, Some(USER), Some(gid)).unwrap();
            chown(parent, Some(USER), Some(directory_gid)).unwrap();
            std::fs::set_permissions(parent, PermissionsExt::from_mode(mode)).unwrap();
        }
        without_privilege(USER, || {
            let world = World::open(dir.path(), How::default());
            let (names, new) = (places.map(|(name, ..)| name), pattern(7, len));
            let inodes = names.map(|name| world.inode(name));
            names.iter().for_each(|name| world.rewrite(name, &new));
            world.drain();
            assert!(names.iter().all(|name| world.below(name) == new));
            let kept: Vec<_> = names.iter().zip(inodes).map(|(name, inode)| world.inode(name) == inode).collect();
            assert_eq!((kept, world.hidden()), (vec![false, true, true, false], 0), "{len} bytes");
            world.cache.shutdown();
        });
        for (name, gid, ..) in places {
            let stat = std::fs::metadata(root.join(name)).unwrap();
            assert_eq!((stat.uid(), stat.gid()), (USER, gid), "{name}");
        }
    }
}

/// It has what all may do with the former file when that becomes somebody else's, and nobody else's to write.
#[test]
fn what_is_to_change_hands_is_closed_to_others_before() {
    let dir = scratch();
    chown(dir.path(), Some(USER), Some(USER)).unwrap();
    let root = dir.path().join("global");
    std::fs::create_dir(&root).unwrap();
    std::fs::set_permissions(&root, PermissionsExt::from_mode(0o777)).unwrap();
    let path = root.join("f");
    std::fs::write(&path, b"old").unwrap();
    chown(&path, Some(USER), Some(USER)).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o666)).unwrap();
    chown(&root, Some(USER), Some(USER)).unwrap();
    let (ask, asked) = mpsc::channel();
    let (tell, told) = mpsc::channel();
    let seen = Arc::new(AtomicBool::new(false));
    let path = path.as_path();
    std::thread::scope(|scope| {
        // Who may: by another thread.
        scope.spawn(move || {
            asked.recv().unwrap();
            chown(path, Some(OTHER), Some(OTHER)).unwrap();
            std::fs::set_permissions(path, PermissionsExt::from_mode(0o604)).unwrap();
            tell.send(()).unwrap();
        });
        let (root, looked) = (root.clone(), Arc::clone(&seen));
        without_privilege(USER, || {
            let world = World::open(dir.path(), How::default());
            world.rewrite("f", b"new");
            world.store.at(move |step| {
                let mut all = std::fs::read_dir(&root)?.map(Result::unwrap);
                let hidden = all.find(|entry| hidden::is_hidden(&entry.file_name()));
                match (step, hidden) {
                    (Step::Dressed(0), Some(hidden)) => {
                        assert_eq!(hidden.metadata()?.mode() & 0o777, 0o666);
                        ask.send(()).unwrap();
                        told.recv().unwrap();
                    }
                    (Step::Dressed(1), Some(hidden)) => {
                        let stat = hidden.metadata()?;
                        assert_eq!((stat.uid(), stat.mode() & 0o777), (USER, 0o600), "it could not be given away");
                        looked.store(true, Ordering::Relaxed);
                    }
                    _ => {}
                }
                Ok(())
            });
            let stuck = world.cache.drain_all(&mut |_| {}, &|| false);
            assert_eq!((stuck.len(), world.hidden()), (1, 0), "another user's");
            world.store.at(|_| Ok(()));
            world.cache.shutdown();
        });
    });
    assert!(seen.load(Ordering::Relaxed));
}
