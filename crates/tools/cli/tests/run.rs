//! `forebay run`: what the command sees, what is left afterwards, how it ends.

mod common;

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;

use common::{Bench, call, forebay, is_mounted, kill, start};
use testkit::{in_private_namespace, wait_until};

const BOUND: std::time::Duration = common::BOUND;

#[test]
fn the_command_gets_stdin_its_directory_and_its_status_and_the_data_is_on_the_global_store_afterwards() {
    in_private_namespace(|| {
        let bench = Bench::new();
        fs::write(bench.dir.join("old"), "old data").unwrap();
        let sub = bench.tree.dir("data/sub");
        let mut command = forebay();
        command.arg("run").arg("--burst-buffer").arg(&bench.buffer).args(["--dir", "..", "--"]);
        command.args(["sh", "-c", "pwd; cat ../old; cat > new; exit 7"]).current_dir(&sub);
        let done = start(&mut command, "from stdin").wait();
        assert_eq!(done.code, 7, "{done:?}");
        assert_eq!(done.out, format!("{}\nold data", sub.display()));
        assert_eq!(bench.read("sub/new"), "from stdin");
        assert!(!is_mounted(&bench.dir));
    });
}

#[test]
fn large_and_many_files_arrive_whole() {
    in_private_namespace(|| {
        let bench = Bench::new();
        let script = "head -c 20000000 /dev/urandom > big; for i in $(seq 200); do echo $i > f$i; done; cksum < big";
        let done = bench.run(&["--quiet"], script);
        assert_eq!((done.code, done.err.as_str()), (0, ""), "{done:?}");
        let sum =
            std::process::Command::new("sh").args(["-c", "cksum < big"]).current_dir(&bench.dir).output().unwrap();
        assert_eq!(String::from_utf8(sum.stdout).unwrap(), done.out);
        assert_eq!(bench.read("f200"), "200\n");
    });
}

#[test]
fn a_command_that_cannot_run_ends_as_in_a_shell() {
    in_private_namespace(|| {
        let bench = Bench::new();
        let with = |program: &str| {
            let options =
                ["run", "--burst-buffer", bench.buffer.to_str().unwrap(), "--dir", bench.dir.to_str().unwrap()];
            call(options.into_iter().chain(["--", program]))
        };
        let missing = with("no-such-program");
        assert_eq!(missing.code, 127, "{missing:?}");
        assert!(missing.err.contains("no-such-program: command not found"), "{missing:?}");
        assert_eq!(with("/etc/passwd").code, 126);
    });
}

#[test]
fn a_killed_command_counts_as_128_and_its_signal() {
    in_private_namespace(|| assert_eq!(Bench::new().run(&[], "kill -KILL $$").code, 137));
}

#[test]
fn a_signal_to_the_agent_reaches_the_command_and_its_last_words_are_kept() {
    in_private_namespace(|| {
        let bench = Bench::new();
        let script = "trap 'echo got > term; exit 9' TERM; echo > up; while :; do sleep 0.01; done";
        let running = bench.start_run(&[], script);
        wait_until("the command runs", BOUND, || bench.dir.join("up").exists());
        kill(running.pid(), libc::SIGTERM);
        let done = running.wait();
        assert_eq!(done.code, 9, "{done:?}");
        assert_eq!(bench.read("term"), "got\n");
    });
}

#[test]
fn an_interrupt_at_any_moment_leaves_no_mount_and_no_process() {
    in_private_namespace(|| {
        for delay_ms in [0, 1, 2, 4, 8, 12, 16, 24, 32, 64] {
            let bench = Bench::new();
            let mark = format!("1{delay_ms:03}.25");
            let running = bench.start_run(&[], &format!("exec sleep {mark}"));
            std::thread::sleep(std::time::Duration::from_millis(delay_ms));
            kill(running.pid(), libc::SIGINT);
            let done = running.wait();
            assert_eq!(done.code, 130, "after {delay_ms} ms: {done:?}");
            assert!(!is_mounted(&bench.dir));
            wait_until("the command is gone", BOUND, || !runs(&mark));
        }
    });
}

fn runs(argument: &str) -> bool {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let words = |entry: fs::DirEntry| fs::read(entry.path().join("cmdline")).unwrap_or_default();
    entries.map(words).any(|line| line.split(|byte| *byte == 0).any(|word| word == argument.as_bytes()))
}

#[test] // S22
fn descendants_with_open_files_are_waited_for_and_named() {
    in_private_namespace(|| {
        let bench = Bench::new();
        let done = bench
            .run(&[], "(while ! [ -e go ]; do sleep 0.01; done; echo late > late) & (sleep 1; echo > go) & exit 3");
        assert_eq!(done.code, 3, "{done:?}");
        assert!(done.err.contains("waiting for them"), "{done:?}");
        assert!(done.err.contains("(sh)"), "{done:?}");
        assert_eq!(bench.read("late"), "late\n");
    });
}

#[test]
fn an_interrupt_ends_the_wait_for_descendants() {
    in_private_namespace(|| {
        let bench = Bench::new();
        let mut running = bench.start_run(&[], "echo data > f; sleep 1000 & exit 3");
        running.complains("waiting for them");
        kill(running.pid(), libc::SIGINT);
        let done = running.wait();
        assert_eq!(done.code, 3, "{done:?}");
        assert_eq!(bench.read("f"), "data\n");
    });
}

#[test]
fn the_wait_for_descendants_has_a_bound() {
    in_private_namespace(|| {
        let done = Bench::new().run(&["--linger", "300ms"], "sleep 1000 & exit 4");
        assert_eq!(done.code, 4, "{done:?}");
    });
}

#[test]
fn a_report_tells_what_happened() {
    in_private_namespace(|| {
        let bench = Bench::new();
        let file = bench.tree.path("report.json");
        let done = bench.run(&["--report", file.to_str().unwrap()], "head -c 3000000 /dev/zero > f; exit 2");
        assert_eq!(done.code, 2, "{done:?}");
        for part in ["staged out", "/s (", "perceived as"] {
            assert!(done.err.contains(part), "{done:?}");
        }
        let report: serde_json::Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
        assert_eq!(report["command_status"], 2);
        assert_eq!(report["directories"][0]["counters"]["staged_out_bytes"], 3_000_000);
        assert_eq!(report["directories"][0]["stuck"], serde_json::json!([]));
    });
}

#[test]
fn several_directories_have_a_cache_each() {
    in_private_namespace(|| {
        let bench = Bench::new();
        let other = bench.tree.dir("other");
        let script = format!("echo 1 > one; echo 2 > {}/two", other.display());
        let done = bench.run(&["--dir", other.to_str().unwrap()], &script);
        assert_eq!(done.code, 0, "{done:?}");
        assert_eq!(bench.read("one"), "1\n");
        assert_eq!(bench.read("../other/two"), "2\n");
        // The same directory alone later finds its cache again.
        assert_eq!(bench.run(&[], "cat one").out, "1\n");
    });
}

#[test] // S18
fn a_burst_buffer_takes_further_directories_beside_the_first() {
    in_private_namespace(|| {
        let bench = Bench::new();
        let other = bench.tree.dir("other");
        assert_eq!(bench.run(&["--policy", "stage_out=manual"], "echo 1 > one; kill -KILL $PPID; sleep 0.1").code, 137);
        let script = format!("cat one; echo 2 > {}/two; kill -KILL $PPID; sleep 0.1", other.display());
        let both = bench.run(&["--dir", other.to_str().unwrap(), "--policy", "stage_out=manual"], &script);
        assert_eq!((both.code, both.out.as_str()), (137, "1\n"), "{both:?}");
        assert!(bench.buffer.join("superblock").exists(), "the first stays where it is");
        let checked = call(["check", bench.buffer.to_str().unwrap()]);
        // The second run may have staged out data of the first before it was killed.
        assert!((1..=2).contains(&checked.out.matches("1 dirty").count()), "{checked:?}");
        assert_eq!(checked.out.matches(" 1 replicas").count(), 2, "{checked:?}");
        let recovered = call(["recover", bench.buffer.to_str().unwrap()]);
        assert_eq!(recovered.code, 0, "{recovered:?}");
        assert_eq!((bench.read("one").as_str(), bench.read("../other/two").as_str()), ("1\n", "2\n"));
    });
}

#[test]
fn the_environment_names_buffer_and_directories() {
    in_private_namespace(|| {
        let bench = Bench::new();
        let mut command = forebay();
        command.env("FOREBAY_BURST_BUFFER", &bench.buffer).env("FOREBAY_DIRS", &bench.dir);
        command.args(["run", "--", "grep", "-c", "fuse.forebay", "/proc/self/mountinfo"]);
        assert_eq!(start(&mut command, "").wait().out, "1\n");
    });
}

#[test] // S33
fn file_systems_mounted_inside_stay_what_they_are() {
    in_private_namespace(|| {
        let bench = Bench::new();
        let inner = bench.tree.mount_tmpfs("data/inner", 1 << 20);
        let done = bench.run(&[], "echo direct > inner/f; stat -f -c %T inner");
        assert_eq!((done.code, done.out.as_str()), (0, "tmpfs\n"), "{done:?}");
        assert_eq!(fs::read_to_string(inner.join("f")).unwrap(), "direct\n");
    });
}

/// `forebay run` as user and group 12345, with other groups too.
fn ordinary<'a>(bench: &'a Bench, groups: &'a str) -> impl Fn(&[&str]) -> common::Done + 'a {
    let devices = bench.tree.mount_tmpfs("dev", 1 << 20);
    let fuse = devices.join("fuse");
    let made = std::process::Command::new("mknod").arg(&fuse).args(["-m", "666", "c", "10", "229"]).status();
    assert!(made.unwrap().success());
    rustix::mount::mount_bind(&fuse, "/dev/fuse").unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(bench.tree.root(), open).unwrap();
    let program = bench.tree.path("forebay");
    fs::copy(env!("CARGO_BIN_EXE_forebay"), &program).unwrap();
    move |words| {
        let mut command = std::process::Command::new("setpriv");
        command.args(["--reuid", "12345", "--regid", "12345"]);
        match groups {
            "" => command.arg("--clear-groups"),
            groups => command.args(["--groups", groups]),
        };
        command.arg(&program).arg("run").arg("--burst-buffer").arg(&bench.buffer).args(words);
        start(command.current_dir(&bench.dir), "").wait()
    }
}

#[test] // S35, S36
fn an_ordinary_user_runs_without_passthrough() {
    in_private_namespace(|| {
        let bench = Bench::new();
        for dir in [&bench.dir, &bench.buffer] {
            std::os::unix::fs::chown(dir, Some(12345), Some(12345)).unwrap();
        }
        let run = ordinary(&bench, "");
        let done = run(&["--", "sh", "-c", "id -u; echo data > f"]);
        assert_eq!((done.code, done.out.as_str()), (0, "12345\n"), "{done:?}");
        assert!(done.err.contains("no passthrough"), "{done:?}");
        assert_eq!(bench.read("f"), "data\n");
        // An ordinary user's run may not change the mount options of the burst buffer.
        let done = run(&["--policy", "atime=strict", "--", "true"]);
        assert!(done.code == 69 && done.err.contains("strictatime"), "{done:?}");
    });
}

#[test] // S35
fn an_ordinary_user_works_where_one_of_his_groups_may_and_nowhere_else() {
    in_private_namespace(|| {
        let bench = Bench::new();
        let put = |name: &str, mode: u32, owner: u32| {
            let path = bench.dir.join(name);
            if mode & 0o2000 == 0 {
                fs::write(&path, name).unwrap();
            } else {
                fs::create_dir_all(&path).unwrap();
            }
            std::os::unix::fs::chown(&path, Some(owner), Some(5000)).unwrap();
            fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
        };
        for (name, mode, owner) in [
            ("", 0o2770, 0),
            ("sub", 0o2770, 0),
            ("shared", 0o660, 4321),
            ("group-alone", 0o070, 4321),
            ("readable", 0o640, 4321),
            ("secret", 0o600, 4321),
        ] {
            put(name, mode, owner);
        }
        std::os::unix::fs::chown(&bench.buffer, Some(12345), Some(12345)).unwrap();
        let run = ordinary(&bench, "5000,12345");
        let script = "set -e
            cat shared readable group-alone; echo more >>shared; echo more >>group-alone; echo new >new; echo x >sub/inner; mv shared sub/moved
            if cat secret; then exit 1; fi
            if echo more >>readable; then exit 2; fi
            if chmod 666 readable; then exit 3; fi
            cp -p readable copied
            mkdir own; echo x >own/file; cat own/file; chmod 400 own
            if cat own/file; then exit 4; fi
            chmod 700 own";
        let done = run(&["--quiet", "--", "sh", "-c", script]);
        assert_eq!((done.code, done.out.as_str()), (0, "sharedreadablegroup-alonex\n"), "{done:?}");
        assert_eq!(done.err.lines().count(), 4, "{done:?}");
        let is = |name: &str| {
            let found = fs::metadata(bench.dir.join(name)).unwrap();
            (found.uid(), found.gid(), found.mode() & 0o7777)
        };
        assert_eq!((is("sub/moved"), is("readable")), ((4321, 5000, 0o660), (4321, 5000, 0o640)));
        assert_eq!((is("new").1, is("copied").1, is("copied").2), (5000, 5000, 0o640));
        assert_eq!((bench.read("sub/moved"), bench.read("new")), ("sharedmore\n".into(), "new\n".into()));
    });
}

#[test] // S36
fn reads_are_noted_whatever_the_burst_buffers_mount_notes_and_stay_after_the_run() {
    in_private_namespace(|| {
        let bench = Bench::new();
        let flags = rustix::mount::MountFlags::NOATIME;
        rustix::mount::mount("bb", &bench.buffer, "tmpfs", flags, c"mode=700").unwrap();
        let accessed = |name: &str| fs::metadata(bench.dir.join(name)).unwrap().accessed().unwrap();
        let long_ago = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
        for rule in ["atime=relative", "atime=strict", "atime=no"] {
            for name in ["read", "left"] {
                fs::write(bench.dir.join(name), "data").unwrap();
                let file = File::options().write(true).open(bench.dir.join(name)).unwrap();
                file.set_times(fs::FileTimes::new().set_accessed(long_ago)).unwrap();
            }
            let start = std::time::SystemTime::now();
            let script = "cat read; stat -c %X read; stat -c %X left";
            let done = bench.run(&["--policy", rule], script);
            let told: Vec<&str> = done.out.trim_start_matches("data").lines().collect();
            assert_eq!((told[0] == "1000000000", told[1]), (rule == "atime=no", "1000000000"), "{done:?}");
            assert_eq!(accessed("read") >= start, rule != "atime=no", "{rule}");
            assert_eq!(accessed("left"), long_ago, "{rule}");
        }
    });
}

#[test]
fn what_a_killed_agent_left_is_recovered() {
    in_private_namespace(|| {
        let bench = Bench::new();
        let done = bench.run(&["--policy", "stage_out=manual"], "echo precious > f; kill -KILL $PPID; sleep 0.1");
        assert_eq!(done.code, 137, "{done:?}");
        assert_eq!(bench.read("f"), "", "nothing was staged out");
        let check = call(["check", bench.buffer.to_str().unwrap()]);
        assert_eq!(check.code, 0, "{check:?}");
        assert!(check.out.contains("1 dirty"), "{check:?}");
        let recovered = call(["recover", bench.buffer.to_str().unwrap()]);
        assert_eq!(recovered.code, 0, "{recovered:?}");
        assert_eq!(bench.read("f"), "precious\n");
    });
}

#[test] // S22
fn what_cannot_be_staged_out_ends_in_75_and_is_resolved_afterwards() {
    in_private_namespace(|| {
        for (keep, content) in [("burst-buffer", "ours"), ("global", "theirs")] {
            let bench = Bench::new();
            fs::write(bench.dir.join("f"), "base").unwrap();
            let running = bench.start_run(
                &["--policy", "stage_out=manual"],
                "printf ours > f; echo > written; while ! [ -e changed ]; do sleep 0.01; done; exit 3",
            );
            wait_until("the command has written", BOUND, || bench.dir.join("written").exists());
            fs::write(bench.dir.join("f"), "theirs").unwrap();
            fs::write(bench.dir.join("changed"), "").unwrap();
            let done = running.wait();
            assert_eq!(done.code, 75, "{done:?}");
            assert!(done.err.contains("conflict") && done.err.contains("data: "), "{done:?}");
            assert_eq!(bench.read("f"), "theirs", "never overwritten silently");
            let (file, buffer) = (bench.dir.join("f"), bench.buffer.to_str().unwrap());
            let words = ["resolve", file.to_str().unwrap(), "--keep", keep, "--burst-buffer", buffer];
            let resolved = call(words);
            assert_eq!(resolved.code, 0, "{resolved:?}");
            assert_eq!(bench.read("f"), content, "--keep {keep}");
            let again = call(words);
            assert_eq!(again.code, 66, "{again:?}");
        }
    });
}

#[test] // S22
fn a_second_interrupt_ends_the_drain_and_says_where_the_data_is() {
    in_private_namespace(|| {
        let bench = Bench::new();
        let options = ["--policy", "rate=2MiB/s", "--policy", "stage_out=exit"];
        let mut running = bench.start_run(&options, "head -c 32000000 /dev/urandom > f; cksum < f; touch written");
        wait_until("the command has written", BOUND, || bench.dir.join("written").exists());
        // Not before the command has ended: then the drain is all that is left.
        wait_until("the command has ended", BOUND, || !has_children(running.pid()));
        wait_until("the drain has begun", BOUND, || fs::metadata(bench.dir.join("f")).is_ok_and(|f| f.len() > 0));
        kill(running.pid(), libc::SIGINT);
        running.complains("once more leaves it");
        kill(running.pid(), libc::SIGINT);
        let done = running.wait();
        assert_eq!(done.code, 75, "{done:?}");
        assert!(done.err.contains("forebay recover"), "{done:?}");
        let recovered = call(["recover", bench.buffer.to_str().unwrap()]);
        assert_eq!(recovered.code, 0, "{recovered:?}");
        let sum = std::process::Command::new("sh").args(["-c", "cksum < f"]).current_dir(&bench.dir).output().unwrap();
        assert_eq!(String::from_utf8(sum.stdout).unwrap(), done.out);
    });
}

#[test] // S22
fn a_request_to_end_between_the_command_and_the_drain_counts() {
    in_private_namespace(|| {
        let bench = Bench::new();
        let options = ["--policy", "rate=2MiB/s", "--policy", "stage_out=exit"];
        // Processes left behind keep the mounts, so that this moment lasts.
        let pid = bench.tree.path("pid");
        let script = format!(
            "(cd /; exec sleep 2 >/dev/null) & head -c 32000000 /dev/urandom > f; echo $$ > {0}.new; mv {0}.new {0}",
            pid.display()
        );
        let mut running = bench.start_run(&options, &script);
        wait_until("the command has written", BOUND, || pid.exists());
        let command: i32 = fs::read_to_string(&pid).unwrap().trim().parse().unwrap();
        wait_until("the command has ended", BOUND, || !std::path::Path::new(&format!("/proc/{command}")).exists());
        kill(running.pid(), libc::SIGTERM);
        running.complains("once more leaves it");
        kill(running.pid(), libc::SIGTERM);
        let done = running.wait();
        assert_eq!(done.code, 75, "{done:?}");
        assert!(done.err.contains("forebay recover"), "{done:?}");
    });
}

fn has_children(pid: i32) -> bool {
    let children = |task: fs::DirEntry| fs::read_to_string(task.path().join("children")).unwrap_or_default();
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    tasks.map(children).any(|list| !list.trim().is_empty())
}

#[test]
fn the_tools_work_inside_of_a_run() {
    in_private_namespace(|| {
        let bench = Bench::new();
        let program = env!("CARGO_BIN_EXE_forebay");
        let script = format!(
            "echo 1 > f; {program} drain --wait; {program} stage state f; {program} policy set . cache=through; {program} policy get f cache"
        );
        let done = bench.run(&["--policy", "stage_out=manual"], &script);
        assert_eq!(done.code, 0, "{done:?}");
        assert_eq!(done.out, format!("clean      {}\nthrough\n", bench.dir.join("f").display()));
    });
}

#[test]
fn a_damaged_burst_buffer_is_reported_and_repaired_without_losing_dirty_data() {
    in_private_namespace(|| {
        let bench = Bench::new();
        fs::write(bench.dir.join("clean"), "clean").unwrap();
        let script = "cat clean > /dev/null; printf dirty > f; kill -KILL $PPID; sleep 0.1";
        assert_eq!(bench.run(&["--policy", "stage_out=manual"], script).code, 137);
        let part = bench.buffer.join("replicas/ff");
        fs::create_dir_all(&part).unwrap();
        fs::write(part.join("00000000000000ff"), "nobody's").unwrap();
        let buffer = bench.buffer.to_str().unwrap();
        let found = call(["check", buffer]);
        assert!(found.out.contains("1 replicas without record"), "{found:?}");
        let repaired = call(["check", "--repair", buffer]);
        assert_eq!(repaired.code, 0, "{repaired:?}");
        assert!(repaired.out.contains("1 dirty"), "{repaired:?}");
        assert!(!part.join("00000000000000ff").exists(), "{repaired:?}");
        assert_eq!(call(["recover", buffer]).code, 0);
        assert_eq!(bench.read("f"), "dirty");
    });
}
