//! Nodes that do not see the global store: names and data through the server, over networks of their own.
#![allow(dead_code, reason = "the machine is that of the tests of `--server`")]

#[path = "../server/cluster.rs"]
mod cluster;
#[path = "../server/ledger.rs"]
mod ledger;
mod locks;
mod loss;
mod run;
mod users;

use std::fs::{self, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, symlink};

use cluster::Cluster;
use testkit::{in_private_namespace, wait_until};

#[test] // S48
fn nodes_without_the_global_store_see_each_others_files_from_close_to_open() {
    in_private_namespace(|| {
        let mut cluster = Cluster::new(3);
        let (one, two) = (cluster.mount_names(1, &[]), cluster.mount_names(2, &[]));
        // And one that does see it.
        let three = cluster.mount(3, &[]);
        for round in 0..30 {
            let nodes = [&one, &two, &three];
            let (from, to) = (nodes[round % 3], nodes[(round + 1) % 3]);
            let text = format!("round {round} ").repeat(round * 400 + 1);
            fs::write(from.join("file"), &text).unwrap();
            for to in [to, from] {
                assert_eq!(fs::metadata(to.join("file")).unwrap().len(), text.len() as u64, "round {round}");
                assert!(fs::read_to_string(to.join("file")).unwrap() == text, "round {round}");
            }
        }
        let large: Vec<u8> = (0..5_000_000_u32).flat_map(u32::to_le_bytes).collect();
        fs::write(one.join("large"), &large).unwrap();
        assert!(fs::read(two.join("large")).unwrap() == large);
        assert!(fs::read(three.join("large")).unwrap() == large);
        cluster.end_server();
        assert!(fs::read(cluster.data.join("large")).unwrap() == large, "it is in the global store");
    });
}

#[test] // S48
fn names_made_moved_and_removed_on_one_node_are_so_on_the_other() {
    in_private_namespace(|| {
        let (mut cluster, one, two) = Cluster::of_two();
        fs::create_dir_all(one.join("a/b")).unwrap();
        fs::write(two.join("a/b/file"), "content").unwrap();
        fs::hard_link(one.join("a/b/file"), one.join("linked")).unwrap();
        symlink("a/b/file", two.join("symbolic")).unwrap();
        assert_eq!(fs::read_to_string(one.join("symbolic")).unwrap(), "content");
        assert_eq!(fs::read_link(one.join("symbolic")).unwrap().to_str(), Some("a/b/file"));
        assert_eq!(fs::metadata(two.join("linked")).unwrap().nlink(), 2);
        assert_eq!(
            fs::metadata(two.join("linked")).unwrap().ino(),
            fs::metadata(cluster.data.join("linked")).unwrap().ino()
        );
        fs::rename(two.join("a/b/file"), two.join("moved")).unwrap();
        assert!(!one.join("a/b/file").exists());
        let open = fs::File::open(one.join("moved")).unwrap();
        fs::remove_file(two.join("moved")).unwrap();
        fs::remove_file(two.join("linked")).unwrap();
        let mut content = String::new();
        (&open).read_to_string(&mut content).unwrap();
        assert_eq!(content, "content", "an open file outlives its name");
        drop(open);
        for number in 0..300 {
            fs::write(one.join(format!("a/b/{number:03}")), number.to_string()).unwrap();
        }
        let mut names: Vec<String> = fs::read_dir(two.join("a/b"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(names, (0..300).map(|number| format!("{number:03}")).collect::<Vec<_>>());
        fs::remove_dir_all(two.join("a")).unwrap();
        assert!(!cluster.data.join("a").exists());
        // Directories are trusted for a moment.
        wait_until("the other node looks again", cluster::BOUND, || !one.join("a").exists());
        let errno = |error: std::io::Error| error.raw_os_error().unwrap();
        assert_eq!(errno(fs::remove_dir(one.join("none")).unwrap_err()), libc::ENOENT);
        assert_eq!(errno(fs::create_dir(one.join("symbolic")).unwrap_err()), libc::EEXIST);
        cluster.end_server();
    });
}

#[test] // S48
fn appends_truncations_and_times_of_two_nodes_are_those_of_one_file() {
    in_private_namespace(|| {
        let (mut cluster, one, two) = Cluster::of_two();
        let append =
            |dir: &std::path::Path| OpenOptions::new().append(true).create(true).open(dir.join("log")).unwrap();
        let (mut first, mut second) = (append(&one), append(&two));
        for number in 0..50 {
            writeln!(first, "one {number}").unwrap();
            writeln!(second, "two {number}").unwrap();
        }
        let text = fs::read_to_string(one.join("log")).unwrap();
        assert_eq!(text.lines().count(), 100, "no append overlaps another");
        second.set_len(4).unwrap();
        assert_eq!(fs::read_to_string(one.join("log")).unwrap(), "one ");
        first.set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000)).unwrap();
        assert_eq!(fs::metadata(two.join("log")).unwrap().mtime(), 1_000_000);
        let mut byte = [0];
        second.write_all(b"x").unwrap();
        fs::File::open(one.join("log")).unwrap().read_exact_at(&mut byte, 4).unwrap();
        assert_eq!(&byte, b"x");
        drop((first, second));
        cluster.end_server();
        assert_eq!(fs::read(cluster.data.join("log")).unwrap(), b"one x");
    });
}

#[test] // S42
fn what_was_stored_through_a_mapping_is_at_the_server_when_a_descriptor_is_closed_or_it_is_unmapped() {
    in_private_namespace(|| {
        let mut cluster = Cluster::new(3);
        let other = cluster.mount_names(3, &[]).join("file");
        for dir in [cluster.mount_names(1, &[]), cluster.mount(2, &[])] {
            let script = format!(
                "import mmap, os\n\
                 there = lambda: open('{}', 'rb').read(5)\n\
                 fd = os.open('{}', os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)\n\
                 os.ftruncate(fd, 8192)\n\
                 m = mmap.mmap(fd, 8192)\n\
                 m[0:5] = b'store'\n\
                 os.close(fd)\n\
                 assert there() == b'store', there()\n\
                 m[0:5] = b'again'\n\
                 m.close()\n\
                 assert there() == b'again', there()\n",
                other.display(),
                dir.join("file").display()
            );
            let done = std::process::Command::new("python3").args(["-c", &script]).output().unwrap();
            assert!(done.status.success(), "{}: {done:?}", dir.display());
        }
        cluster.end_server();
    });
}

#[test] // S48
fn a_node_without_the_store_is_shown_and_unmounted_by_the_usual_commands() {
    in_private_namespace(|| {
        let mut cluster = Cluster::new(1);
        let dir = cluster.mount_names(1, &[]);
        fs::write(dir.join("file"), "content").unwrap();
        let said = cluster.status(1);
        assert!(said.contains("names and data at a server") && said.contains("answers"), "{said}");
        let there = dir.to_str().unwrap();
        let refused = cluster.command(1, &["drain", there]);
        assert!(String::from_utf8_lossy(&refused.stderr).contains("the server's"), "{refused:?}");
        let open = fs::File::open(dir.join("file")).unwrap();
        let busy = cluster.command(1, &["umount", there]);
        assert_eq!(busy.status.code(), Some(69), "{busy:?}");
        drop(open);
        let ended = cluster.command(1, &["umount", there]);
        assert!(ended.status.success(), "{ended:?}");
        assert!(!dir.join("file").exists(), "the node does not see the global store");
        cluster.end_server();
        assert_eq!(fs::read_to_string(cluster.data.join("file")).unwrap(), "content");
    });
}

#[test] // S48
fn a_server_asks_nodes_without_the_store_for_its_secret_too() {
    in_private_namespace(|| {
        let cluster = Cluster::new(1);
        let (address, dir) = (cluster.address(), cluster.tree.dir("node1").display().to_string());
        let wrong = cluster.tree.file("wrong", "another secret of sixteen bytes");
        fs::set_permissions(&wrong, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        for secret in [None, Some(wrong.to_str().unwrap())] {
            let named = secret.map_or(vec![], |secret| vec!["--secret", secret]);
            let words = [&["mount", &dir, "--names", "server", "--server", &address][..], &named].concat();
            let refused = cluster.command(1, &words);
            assert_eq!(refused.status.code(), Some(77), "{refused:?}");
            assert!(String::from_utf8_lossy(&refused.stderr).contains("secret"), "{refused:?}");
        }
        for other in [["--policy", "cache=through"], ["--window", "--exclusive"]] {
            let words = [&["mount", &dir, "--names", "server", "--server", &address][..], &other].concat();
            let refused = cluster.command(1, &words);
            assert_eq!(refused.status.code(), Some(64), "{refused:?}");
        }
    });
}
