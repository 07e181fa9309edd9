//! Owners of files made on a node, and users' rights there: the server acts for the users.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

use rustix::process::Signal;
use testkit::{ProcessGuard, TempTree, in_private_namespace, wait_until};

use crate::cluster::{BOUND, Cluster};

/// Runs a shell script as a user with these groups.
fn as_user(user: u32, groups: &str, script: &str) -> bool {
    let (user, group) = (format!("--reuid={user}"), format!("--regid={user}"));
    let mut command = Command::new("setpriv");
    command.args([user.as_str(), &group, &format!("--groups={groups}"), "sh", "-c", script]);
    command.status().expect("setpriv").success()
}

fn directory(dir: &Path, mode: u32, group: u32) {
    fs::create_dir(dir).unwrap();
    std::os::unix::fs::chown(dir, Some(0), Some(group)).unwrap();
    fs::set_permissions(dir, fs::Permissions::from_mode(mode)).unwrap();
}

#[test] // S48
fn users_of_a_node_create_at_the_server_as_themselves_and_do_nothing_they_may_not() {
    in_private_namespace(|| {
        let mut cluster = Cluster::new(1);
        fs::set_permissions(cluster.tree.path(""), fs::Permissions::from_mode(0o755)).unwrap();
        let dir = cluster.mount_names(1, &[]);
        directory(&dir.join("open"), 0o777, 0);
        directory(&dir.join("group"), 0o770, 7777);
        directory(&dir.join("closed"), 0o755, 0);
        let shown = dir.display();
        let make = |groups: &str, name: &str| as_user(1234, groups, &format!("umask 027; echo x >{shown}/{name}"));
        assert!(make("1234", "open/file"));
        let made = fs::metadata(cluster.data.join("open/file")).unwrap();
        assert_eq!((made.uid(), made.gid(), made.mode() & 0o777), (1234, 1234, 0o640));
        assert!(!make("1234", "closed/file"));
        assert!(!make("1234,5", "group/file"), "no member of the group");
        assert!(make("5,7777", "group/file"), "its groups come with its requests");
        assert_eq!(fs::metadata(cluster.data.join("group/file")).unwrap().uid(), 1234);
        assert!(!as_user(4321, "4321", &format!("cat {shown}/open/file")), "nobody else may read it");
        assert!(!as_user(4321, "4321", &format!("chmod 777 {shown}/open/file")));
        assert!(as_user(1234, "1234", &format!("chmod 604 {shown}/open/file && mkdir {shown}/open/own")));
        assert!(as_user(4321, "4321", &format!("cat {shown}/open/file")));
        assert_eq!(fs::metadata(cluster.data.join("open/own")).unwrap().uid(), 1234);
        cluster.end_server();
    });
}

#[test] // S48
fn a_server_that_is_not_root_is_its_own_user_and_refuses_others() {
    in_private_namespace(|| {
        let tree = TempTree::new();
        fs::set_permissions(tree.path(""), fs::Permissions::from_mode(0o755)).unwrap();
        // Where every user may run it.
        let forebay = tree.path("forebay");
        fs::copy(env!("CARGO_BIN_EXE_forebay"), &forebay).unwrap();
        let (shared, names, log) = (tree.dir("shared"), tree.dir("names"), tree.path("log"));
        let (data, buffer) = (tree.dir("shared/data"), tree.dir("shared/bb"));
        for dir in [&shared, &data, &buffer] {
            std::os::unix::fs::chown(dir, Some(1234), Some(1234)).unwrap();
        }
        fs::set_permissions(&data, fs::Permissions::from_mode(0o777)).unwrap();
        let socket = format!("unix:{}", shared.join("socket").display());
        let mut server = Command::new("setpriv");
        server.args(["--reuid=1234", "--regid=1234", "--clear-groups"]).arg(&forebay).arg("serve").arg(&data);
        server.arg("--burst-buffer").arg(&buffer).args(["--listen", &socket]).stdout(fs::File::create(&log).unwrap());
        server.stderr(fs::File::options().append(true).open(&log).unwrap());
        let mut server = ProcessGuard::spawn(&mut server);
        wait_until("it serves", BOUND, || fs::read_to_string(&log).unwrap().contains("serving"));
        let call = |words: &[&str]| {
            let mut command = Command::new(&forebay);
            assert!(command.args(words).status().unwrap().success(), "{words:?}");
        };
        let shown = names.display().to_string();
        call(&["mount", &shown, "--names", "server", "--server", &socket]);
        assert!(as_user(1234, "1234", &format!("echo own >{shown}/own")));
        assert!(!as_user(4321, "4321", &format!("echo other >{shown}/other")), "it could not be theirs");
        fs::write(names.join("root"), "of the server's user").unwrap();
        assert_eq!(fs::metadata(data.join("own")).unwrap().uid(), 1234);
        assert_eq!(fs::metadata(data.join("root")).unwrap().uid(), 1234);
        assert!(!data.join("other").exists());
        call(&["umount", &shown]);
        server.signal(Signal::TERM);
        assert!(server.wait(BOUND).success());
        assert_eq!(fs::read_to_string(data.join("own")).unwrap(), "own\n");
    });
}
