//! One command on a node that does not see the global store.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::Command;

use rustix::process::Signal;
use testkit::{ProcessGuard, in_private_namespace, wait_until};

use crate::cluster::{BOUND, Cluster};

#[test] // S48
fn the_end_of_a_run_without_the_store_means_that_its_files_are_in_the_global_store() {
    in_private_namespace(|| {
        let mut cluster = Cluster::new(1);
        fs::write(cluster.data.join("input"), "from the store\n").unwrap();
        let report = cluster.tree.path("report.json");
        let script =
            "cat input; mkdir d && for i in 1 2 3 4 5; do seq 1 $((i * 1000)) >d/$i; done; sort -n d/5 | tail -n 1
            seq 9 >cut; truncate -s 4 cut; exit 3";
        let done = cluster.run_names(1, &["--report", report.to_str().unwrap()], script).output().unwrap();
        assert_eq!(done.status.code(), Some(3), "{done:?}");
        assert_eq!(String::from_utf8_lossy(&done.stdout), "from the store\n5000\n");
        assert_eq!(fs::read_dir(cluster.node(1)).unwrap().count(), 0, "only the command saw it");
        for (name, lines) in [("d/1", 1000), ("d/3", 3000), ("cut", 2)] {
            let there = fs::read_to_string(cluster.data.join(name)).unwrap();
            assert_eq!(there.lines().count(), lines, "{name}");
        }
        let report: serde_json::Value = serde_json::from_str(&fs::read_to_string(&report).unwrap()).unwrap();
        assert_eq!(report["command_status"], 3);
        assert_eq!(report["directories"][0]["burst_buffer"], cluster.address());
        assert_eq!(report["directories"][0]["stuck"], serde_json::json!([]));
        // Data that the command wrote and nobody has staged out yet.
        let left = cluster.run_names(1, &[], "kill -TERM $$; echo not reached").output().unwrap();
        assert_eq!(left.status.code(), Some(143), "{left:?}");
        cluster.end_server();
    });
}

#[test] // S48
fn a_signal_to_the_relay_reaches_the_command_and_its_last_words_are_kept() {
    in_private_namespace(|| {
        let mut cluster = Cluster::new(1);
        let script = "trap 'echo got >term; exit 9' TERM; echo >up; while :; do sleep 0.01; done";
        let mut running = ProcessGuard::spawn(&mut cluster.run_names(1, &["--quiet"], script));
        wait_until("the command runs", BOUND, || cluster.data.join("up").exists());
        running.signal(Signal::TERM);
        assert_eq!(running.wait(BOUND).code(), Some(9));
        assert_eq!(fs::read_to_string(cluster.data.join("term")).unwrap(), "got\n");
        cluster.end_server();
    });
}

#[test] // S48
fn what_a_run_without_the_store_leaves_open_is_not_called_saved() {
    in_private_namespace(|| {
        let mut cluster = Cluster::new(1);
        let script =
            "(exec 3>held; echo begun >&3; sleep 1000) >/dev/null 2>&1 & until [ -s held ]; do sleep 0.01; done";
        let done = cluster.run_names(1, &["--linger", "300ms"], script).output().unwrap();
        assert_eq!(done.status.code(), Some(75), "{done:?}");
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(said.contains("node1/held") && said.contains("still has it open"), "{said}");
        assert!(said.contains(&format!("the server at {} has them", cluster.address())), "{said}");
        cluster.end_server();
        assert_eq!(fs::read_to_string(cluster.data.join("held")).unwrap(), "begun\n");
    });
}

#[test] // S48
fn a_second_interrupt_ends_the_wait_of_a_run_for_a_server_that_is_gone() {
    in_private_namespace(|| {
        let mut cluster = Cluster::new(1);
        let (up, go) = (cluster.tree.path("up"), cluster.tree.path("go"));
        // Both elsewhere: what is written here waits for the server.
        let script =
            format!("echo data >f; echo >{}; until [ -e {} ]; do sleep 0.01; done", up.display(), go.display());
        let log = cluster.tree.path("run.log");
        let mut command = cluster.run_names(1, &["--policy", "io_timeout=1s"], &script);
        let mut running = ProcessGuard::spawn(command.stderr(fs::File::create(&log).unwrap()));
        wait_until("the command has written", BOUND, || up.exists());
        cluster.stop_server();
        fs::write(&go, "").unwrap();
        let ended = || {
            let tasks = fs::read_dir(format!("/proc/{}/task", running.pid())).into_iter().flatten().flatten();
            let children = |task: fs::DirEntry| fs::read_to_string(task.path().join("children")).unwrap_or_default();
            tasks.map(children).all(|list| list.trim().is_empty())
        };
        wait_until("the command has ended", BOUND, ended);
        let says = |what: &str| wait_until(what, BOUND, || fs::read_to_string(&log).unwrap().contains(what));
        running.signal(Signal::INT);
        says("once more leaves it");
        running.signal(Signal::INT);
        let status = running.wait(BOUND);
        cluster.continue_server();
        assert_eq!(status.code(), Some(75));
        says("goes on by itself");
        cluster.end_server();
        assert_eq!(fs::read_to_string(cluster.data.join("f")).unwrap(), "data\n");
    });
}

#[test] // S48
fn an_ordinary_user_runs_a_command_on_a_node_without_the_store() {
    in_private_namespace(|| {
        let mut cluster = Cluster::new(1);
        let devices = cluster.tree.mount_tmpfs("dev", 1 << 20);
        let fuse = devices.join("fuse");
        let made = Command::new("mknod").arg(&fuse).args(["-m", "666", "c", "10", "229"]).status();
        assert!(made.unwrap().success());
        rustix::mount::mount_bind(&fuse, "/dev/fuse").unwrap();
        let everybody = |path: &std::path::Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode));
        everybody(&cluster.tree.path(""), 0o755).unwrap();
        // In the user's namespace no other user has a number, and the kernel refuses writes to files without an
        // owner.
        std::os::unix::fs::chown(&cluster.data, Some(12345), Some(12345)).unwrap();
        let program = cluster.tree.path("forebay");
        fs::copy(env!("CARGO_BIN_EXE_forebay"), &program).unwrap();
        let secret = cluster.tree.file("theirs", fs::read_to_string(&cluster.secret).unwrap());
        everybody(&secret, 0o600).unwrap();
        std::os::unix::fs::chown(&secret, Some(12345), Some(12345)).unwrap();
        let dir = cluster.tree.dir("node1");
        std::os::unix::fs::chown(&dir, Some(12345), Some(12345)).unwrap();
        let mut command = Command::new("nsenter");
        command.args(["--net=/run/netns/node1", "setpriv", "--reuid=12345", "--regid=12345", "--clear-groups"]);
        command.arg(&program).args(["run", "--names", "server", "--server", &cluster.address(), "--secret"]);
        command.arg(&secret).args(["--", "sh", "-c", "id -u; echo data >f; cat f; exit 5"]).current_dir(&dir);
        let done = command.output().unwrap();
        assert_eq!(done.status.code(), Some(5), "{done:?}");
        assert_eq!(String::from_utf8_lossy(&done.stdout), "12345\ndata\n", "{done:?}");
        let made = fs::metadata(cluster.data.join("f")).unwrap();
        assert_eq!((made.uid(), made.len()), (12345, 5));
        cluster.end_server();
    });
}

#[test] // S48
fn a_run_without_the_store_says_what_it_cannot_do() {
    in_private_namespace(|| {
        let mut cluster = Cluster::new(1);
        let other = cluster.tree.dir("other").display().to_string();
        let dir = cluster.tree.dir("node1").display().to_string();
        let wrong = [
            (vec!["--window"], "--window"),
            (vec!["--policy", "cache=through"], "cache"),
            (vec!["--dir", &dir, "--dir", &other], "one directory"),
        ];
        for (options, part) in wrong {
            let refused = cluster.run_names(1, &options, "true").output().unwrap();
            assert_eq!(refused.status.code(), Some(64), "{refused:?}");
            assert!(String::from_utf8_lossy(&refused.stderr).contains(part), "{refused:?}");
        }
        let none = cluster.command(1, &["run", "--names", "server", "--", "true"]);
        assert_eq!(none.status.code(), Some(64), "{none:?}");
        let missing = cluster.run_names(1, &["--quiet"], "exec no-such-program").output().unwrap();
        assert_eq!(missing.status.code(), Some(127), "{missing:?}");
        cluster.end_server();
    });
}
