//! `forebay mount` and the commands that talk to its agent.

mod common;

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use common::{BOUND, Bench, call, forebay, is_mounted, kill, ok, start};
use testkit::{in_private_namespace, wait_until};

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// The directory below the mount: what is in the global store.
struct Below(File);

impl Below {
    fn of(bench: &Bench) -> Below {
        Below(File::open(&bench.dir).unwrap())
    }

    fn read(&self, name: &str) -> String {
        use std::os::fd::AsRawFd;
        fs::read_to_string(format!("/proc/self/fd/{}/{name}", self.0.as_raw_fd())).unwrap()
    }
}

#[test]
fn a_mounted_directory_is_served_shown_drained_and_unmounted() {
    in_private_namespace(|| {
        let bench = Bench::new();
        fs::write(bench.dir.join("old"), "old").unwrap();
        let below = Below::of(&bench);
        let mounted = bench.mount(&["--policy", "stage_out=manual"]);
        assert!(is_mounted(&bench.dir));
        assert_eq!(bench.read("old"), "old");
        fs::write(bench.dir.join("new"), "new").unwrap();
        assert_eq!(bench.read("new"), "new");
        assert_eq!(below.read("new"), "", "staged out by command only");
        let status: serde_json::Value =
            serde_json::from_str(&ok(call(["status", text(&bench.dir), "--json"]))).unwrap();
        assert_eq!(status[0]["agent"], mounted.agent());
        assert_eq!(status[0]["status"]["dirty"], 1);
        assert!(ok(call(["status"])).contains("1 dirty"));
        ok(call(["drain", "--wait", text(&bench.dir)]));
        assert_eq!(below.read("new"), "new");
        fs::write(bench.dir.join("late"), "late").unwrap();
        ok(call(["umount", text(&bench.dir)]));
        assert!(!is_mounted(&bench.dir));
        assert_eq!(bench.read("late"), "late");
        assert!(ok(call(["check", text(&bench.buffer)])).contains(", 0 dirty, 0 need a decision"));
        assert_eq!(ok(call(["status"])), "nothing is accelerated here\n");
    });
}

/// The burst buffer has the mode that `mkdir` gives it.
#[test] // S18
fn what_lies_in_a_burst_buffer_is_nobody_elses_to_read_whoever_made_it() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    let opened = |path: &Path, mode: u32| fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    in_private_namespace(|| {
        let bench = Bench::new();
        opened(&bench.buffer, 0o755);
        let entries = || fs::read_dir(&bench.buffer).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>();
        let private = |when: &str| {
            for path in entries() {
                assert_eq!(fs::symlink_metadata(&path).unwrap().mode() & 0o077, 0, "{when}: {}", path.display());
            }
        };
        let unmount = || drop(ok(call(["umount", text(&bench.dir)])));
        let _mounted = bench.mount(&[]);
        fs::create_dir(bench.dir.join("private")).unwrap();
        fs::write(bench.dir.join("private/merger"), "x").unwrap();
        ok(call(["policy", "set", text(&bench.dir.join("private")), "cache=both"]));
        ok(call(["drain", "--wait", text(&bench.dir)]));
        private("made now");
        unmount();
        // Modes as earlier versions left them.
        for name in ["agent.log", "policies.toml", "directory"] {
            opened(&bench.buffer.join(name), 0o644);
        }
        opened(&bench.buffer.join("catalogue"), 0o755);
        let _again = bench.mount(&[]);
        private("found");
        unmount();
    });
}

#[test]
fn a_second_mount_over_the_same_or_an_inner_directory_is_refused() {
    in_private_namespace(|| {
        let bench = Bench::new();
        bench.tree.dir("data/inner");
        let other = bench.tree.dir("bb2");
        let _mounted = bench.mount(&[]);
        for dir in [bench.dir.clone(), bench.dir.join("inner")] {
            let done = call(["mount", text(&dir), "--burst-buffer", text(&other)]);
            assert_eq!(done.code, 69, "{done:?}");
            assert!(done.err.contains("already accelerated"), "{done:?}");
        }
        ok(call(["umount", text(&bench.dir)]));
    });
}

#[test] // S22
fn a_busy_unmount_names_who_uses_it_and_leaves_it_served() {
    in_private_namespace(|| {
        let bench = Bench::new();
        let _mounted = bench.mount(&[]);
        let mut held = File::create(bench.dir.join("held")).unwrap();
        let busy = call(["umount", text(&bench.dir)]);
        assert_eq!(busy.code, 69, "{busy:?}");
        assert!(busy.err.contains(&std::process::id().to_string()), "{busy:?}");
        assert!(busy.err.contains("held"), "{busy:?}");
        held.write_all(b"still works").unwrap();
        drop(held);
        ok(call(["umount", text(&bench.dir)]));
        assert_eq!(bench.read("held"), "still works");
    });
}

#[test]
fn a_terminated_agent_drains_and_unmounts() {
    in_private_namespace(|| {
        let bench = Bench::new();
        let mounted = bench.mount(&["--policy", "stage_out=manual"]);
        fs::write(bench.dir.join("f"), "data").unwrap();
        kill(mounted.agent(), libc::SIGTERM);
        wait_until("the mount is gone", BOUND, || !is_mounted(&bench.dir));
        assert_eq!(bench.read("f"), "data");
    });
}

#[test] // S32
fn a_dead_agents_mount_ends_and_its_data_is_recovered() {
    in_private_namespace(|| {
        let bench = Bench::new();
        let mounted = bench.mount(&["--policy", "stage_out=manual"]);
        fs::write(bench.dir.join("f"), "data").unwrap();
        let agent = mounted.agent();
        kill(agent, libc::SIGKILL);
        wait_until("the agent is gone", BOUND, || call(["status", text(&bench.dir)]).code == 69);
        // The killed process counts as ended only once its last file is closed.
        wait_until("its threads have ended", BOUND, || {
            let state = fs::read_to_string(format!("/proc/{agent}/stat")).unwrap_or_default();
            let threads = fs::read_dir(format!("/proc/{agent}/task")).map_or(0, Iterator::count);
            threads == 0 || (threads == 1 && state.contains(") Z "))
        });
        let refused = call(["recover", text(&bench.buffer)]);
        assert_eq!(refused.code, 69, "{refused:?}");
        assert!(refused.err.contains("forebay umount"), "{refused:?}");
        let ended = call(["umount", text(&bench.dir)]);
        assert_eq!(ended.code, 75, "{ended:?}");
        assert!(ended.err.contains("forebay recover"), "{ended:?}");
        assert_eq!(bench.read("f"), "");
        ok(call(["recover", text(&bench.buffer)]));
        assert_eq!(bench.read("f"), "data");
    });
}

#[test] // S30
fn files_are_staged_in_out_evicted_and_pinned_by_name() {
    in_private_namespace(|| {
        let bench = Bench::new();
        bench.tree.file("data/sub/a", "a");
        bench.tree.file("data/sub/b", "b");
        let below = Below::of(&bench);
        let _mounted = bench.mount(&["--policy", "stage_out=manual"]);
        let (sub, a) = (bench.dir.join("sub"), bench.dir.join("sub/a"));
        let state = |path: &Path| ok(call(["stage", "state", text(path)])).split(' ').next().unwrap().to_string();
        assert_eq!(state(&a), "absent");
        ok(call(["stage", "in", "--recursive", "--wait", text(&sub)]));
        assert_eq!(state(&a), "clean");
        ok(call(["stage", "pin", "--wait", text(&a)]));
        let pinned = call(["stage", "evict", text(&a)]);
        assert_eq!(pinned.code, 69, "{pinned:?}");
        assert_eq!(state(&a), "clean,pinned");
        assert!(ok(call(["status"])).contains(", 1 pinned"), "{}", ok(call(["status"])));
        assert!(ok(call(["status", "--json"])).contains("\"pinned\": 1"));
        ok(call(["stage", "unpin", text(&a)]));
        assert_eq!(state(&a), "clean");
        ok(call(["stage", "evict", text(&a)]));
        assert_eq!(state(&a), "absent");
        fs::write(&a, "changed").unwrap();
        wait_until("the kernel has released it", BOUND, || state(&a) == "queued");
        assert_eq!(call(["stage", "evict", text(&a)]).code, 69, "dirty data is never evicted");
        ok(call(["stage", "out", "--wait", text(&a)]));
        assert_eq!((state(&a).as_str(), below.read("sub/a").as_str()), ("clean", "changed"));
        fs::write(&a, "again").unwrap();
        let open = File::open(&a).unwrap();
        let evicts = start(forebay().args(["stage", "evict", "--wait", text(&a)]), "");
        wait_until("what is dirty is staged out first", BOUND, || below.read("sub/a") == "again");
        assert_ne!(state(&a), "absent", "it is in use");
        drop(open);
        assert_eq!((evicts.wait().code, state(&a).as_str()), (0, "absent"));
        let missing = call(["stage", "in", "--wait", text(&bench.dir.join("none"))]);
        assert_eq!(missing.code, 69, "{missing:?}");
        assert_eq!(call(["stage", "in", "/etc/passwd"]).code, 66);
        ok(call(["umount", text(&bench.dir)]));
    });
}

#[test] // S34
fn rules_are_set_inherited_shown_and_taken_back() {
    in_private_namespace(|| {
        let bench = Bench::new();
        let inner = bench.tree.dir("data/inner");
        let _mounted = bench.mount(&["--policy", "verify=full"]);
        let (dir, inner) = (text(&bench.dir), text(&inner));
        assert_eq!(ok(call(["policy", "get", dir, "verify"])), "full\n");
        ok(call(["policy", "set", dir, "cache=preload", "keep_after=2h"]));
        ok(call(["policy", "set", inner, "cache=through"]));
        let shown = ok(call(["policy", "get", inner]));
        assert!(shown.contains("cache=through\n") && shown.contains("keep_after=2h\n"), "{shown}");
        let list = ok(call(["policy", "list", dir]));
        assert!(list.contains(&format!("{inner}  cache=through")), "{list}");
        ok(call(["policy", "unset", inner, "cache"]));
        assert_eq!(ok(call(["policy", "get", inner, "cache"])), "preload\n");
        assert_eq!(call(["policy", "set", dir, "cahce=through"]).code, 64);
        assert_eq!(call(["policy", "unset", dir, "cahce"]).code, 64);
        assert_eq!(call(["policy", "get", "/etc"]).code, 66);
        ok(call(["umount", dir]));
    });
}

#[test] // S29
fn a_quiesced_directory_writes_to_the_global_store_until_resumed() {
    in_private_namespace(|| {
        let bench = Bench::new();
        let below = Below::of(&bench);
        let _mounted = bench.mount(&["--policy", "stage_out=manual"]);
        fs::write(bench.dir.join("before"), "1").unwrap();
        ok(call(["quiesce", text(&bench.dir)]));
        assert_eq!(below.read("before"), "1");
        fs::write(bench.dir.join("during"), "2").unwrap();
        assert_eq!(below.read("during"), "2");
        ok(call(["quiesce", text(&bench.dir), "--resume"]));
        fs::write(bench.dir.join("after"), "3").unwrap();
        assert_eq!(below.read("after"), "");
        ok(call(["umount", text(&bench.dir)]));
    });
}

#[test] // S25
fn a_conflict_is_kept_shown_and_resolved_as_told() {
    in_private_namespace(|| {
        use std::os::fd::AsRawFd;
        for (keep, content) in [("burst-buffer", "ours"), ("global", "theirs"), ("both", "theirs")] {
            let bench = Bench::new();
            let file = bench.tree.file("data/f", "base");
            let below = Below::of(&bench);
            let _mounted = bench.mount(&["--policy", "stage_out=manual"]);
            fs::write(&file, "ours").unwrap();
            fs::write(format!("/proc/self/fd/{}/f", below.0.as_raw_fd()), "theirs").unwrap();
            let stuck = call(["drain", "--wait", text(&bench.dir)]);
            assert_eq!(stuck.code, 75, "{stuck:?}");
            assert!(stuck.err.contains("conflict") && stuck.err.contains("forebay resolve"), "{stuck:?}");
            assert_eq!(below.read("f"), "theirs", "never overwritten silently");
            let resolved = ok(call(["resolve", text(&file), "--keep", keep]));
            ok(call(["drain", "--wait", text(&bench.dir)]));
            assert_eq!(below.read("f"), content, "--keep {keep}");
            if keep == "both" {
                assert_eq!(fs::read_to_string(resolved.trim()).unwrap(), "ours");
            }
            ok(call(["umount", text(&bench.dir)]));
        }
    });
}

#[test] // S32
fn a_mount_whose_agent_was_killed_is_made_anew_by_the_same_command() {
    in_private_namespace(|| {
        let bench = Bench::new();
        let killed = bench.mount(&[]);
        fs::write(bench.dir.join("file"), "content").unwrap();
        kill(killed.agent(), libc::SIGKILL);
        wait_until("the end of the connection", BOUND, || fs::read_dir(&bench.dir).is_err());
        let (dir, buffer) = (text(&bench.dir), text(&bench.buffer));
        let refused = call(["run", "--burst-buffer", buffer, "--dir", dir, "--", "true"]);
        assert!(refused.code == 69 && refused.err.contains("has ended without unmounting"), "{refused:?}");
        let again = bench.mount(&[]);
        assert_eq!(bench.read("file"), "content");
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert_eq!(table.matches(" fuse.forebay ").count(), 1, "{table}");
        let twice = call(["mount", dir, "--burst-buffer", buffer]);
        assert!(twice.code == 69 && twice.err.contains("is already accelerated"), "{twice:?}");
        assert_eq!(call(["umount", dir]).code, 0);
        drop((again, killed));
    });
}

#[test] // S22
fn forced_unmount_lists_what_stays() {
    in_private_namespace(|| {
        use std::os::fd::AsRawFd;
        let bench = Bench::new();
        let file = bench.tree.file("data/f", "base");
        let below = Below::of(&bench);
        let _mounted = bench.mount(&["--policy", "stage_out=manual"]);
        fs::write(&file, "ours").unwrap();
        fs::write(format!("/proc/self/fd/{}/f", below.0.as_raw_fd()), "theirs").unwrap();
        let refused = call(["umount", text(&bench.dir)]);
        assert_eq!(refused.code, 75, "{refused:?}");
        assert!(is_mounted(&bench.dir), "{refused:?}");
        let forced = call(["umount", "--force", text(&bench.dir)]);
        assert_eq!(forced.code, 75, "{forced:?}");
        assert!(forced.err.contains("conflict") && forced.err.contains("data: "), "{forced:?}");
        assert!(!is_mounted(&bench.dir));
        assert_eq!(bench.read("f"), "theirs");
    });
}

#[test]
fn an_agent_told_twice_to_end_leaves_what_is_not_drained() {
    in_private_namespace(|| {
        let bench = Bench::new();
        let mut command = common::forebay();
        command.arg("mount").arg(&bench.dir).arg("--burst-buffer").arg(&bench.buffer);
        command.args(["--foreground", "--policy", "rate=2MiB/s", "--policy", "stage_out=manual"]);
        let mut agent = common::start(&mut command, "");
        wait_until("the mount", BOUND, || is_mounted(&bench.dir));
        fs::write(bench.dir.join("f"), vec![7; 32 << 20]).unwrap();
        kill(agent.pid(), libc::SIGTERM);
        wait_until("the drain", BOUND, || ok(call(["status", text(&bench.dir)])).contains("1 being staged out"));
        agent.complains("once more leaves");
        kill(agent.pid(), libc::SIGTERM);
        let done = agent.wait();
        assert_eq!(done.code, 75, "{done:?}");
        assert!(!is_mounted(&bench.dir));
        ok(call(["recover", text(&bench.buffer)]));
        assert!(fs::read(bench.dir.join("f")).unwrap() == vec![7; 32 << 20]);
    });
}

#[test] // S33
fn processes_that_are_inside_before_the_mount_are_named() {
    in_private_namespace(|| {
        let bench = Bench::new();
        let inside =
            testkit::ProcessGuard::spawn(std::process::Command::new("sleep").arg("1000").current_dir(&bench.dir));
        let done = call(["mount", text(&bench.dir), "--burst-buffer", text(&bench.buffer)]);
        assert_eq!(done.code, 0, "{done:?}");
        assert!(done.err.contains(&format!("{} (sleep)", inside.pid())), "{done:?}");
        ok(call(["umount", text(&bench.dir)]));
    });
}

#[test] // S18
fn several_directories_are_mounted_with_one_burst_buffer() {
    in_private_namespace(|| {
        let bench = Bench::new();
        let other = bench.tree.dir("other");
        let _first = bench.mount(&[]);
        ok(call(["mount", text(&other), "--burst-buffer", text(&bench.buffer)]));
        fs::write(bench.dir.join("f"), "one").unwrap();
        fs::write(other.join("f"), "two").unwrap();
        let status: serde_json::Value =
            serde_json::from_str(&ok(call(["status", "--json", "--burst-buffer", text(&bench.buffer)]))).unwrap();
        let dirs: Vec<_> = status.as_array().unwrap().iter().map(|one| one["dir"].as_str().unwrap()).collect();
        assert_eq!(dirs, [text(&bench.dir), text(&other)]);
        ok(call(["umount", text(&other)]));
        assert!(is_mounted(&bench.dir));
        ok(call(["umount", text(&bench.dir)]));
        assert_eq!((bench.read("f").as_str(), bench.read("../other/f").as_str()), ("one", "two"));
        ok(call(["mount", text(&other), "--burst-buffer", text(&bench.buffer)]));
        let state = ok(call(["stage", "state", text(&other.join("f"))]));
        assert!(state.starts_with("clean"), "its replica is found again: {state}");
        ok(call(["umount", text(&other)]));
    });
}

#[test] // S32
fn a_stopped_agent_is_told_of_and_nobody_hangs_with_it() {
    in_private_namespace(|| {
        let bench = Bench::new();
        let mounted = bench.mount(&["--policy", "stage_out=manual"]);
        fs::write(bench.dir.join("f"), "data").unwrap();
        let (agent, dir, file) = (mounted.agent(), text(&bench.dir), bench.dir.join("f"));
        let link = bench.tree.path("link");
        std::os::unix::fs::symlink(&file, &link).unwrap();
        // From a directory that nobody can look into; processes already there can stay.
        let stopped = bench.tree.path("stopped");
        let script = "until [ -e $1 ]; do /bin/sleep 0.02; done; exec $0 resolve 0123456789abcdef --keep global";
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", script, env!("CARGO_BIN_EXE_forebay"), text(&stopped)]).current_dir(&bench.dir);
        let by_identity = common::start(&mut shell, "");
        kill(agent, libc::SIGSTOP);
        let commands: [&[&str]; 5] = [
            &["status", dir],
            &["drain", "--wait", dir],
            &["drain", "--wait", text(&link)],
            &["stage", "state", text(&file)],
            &["policy", "get", dir],
        ];
        let running = commands.map(|words| common::start(common::forebay().args(words), ""));
        fs::write(&stopped, "").unwrap();
        let done = by_identity.wait();
        let said = format!("{} {done:?}", done.code);
        assert!(said.starts_with("69") && said.contains(&format!("kill -CONT {agent}")), "{said}");
        for (words, running) in commands.iter().zip(running) {
            let done = running.wait();
            assert_eq!(done.code, 69, "{words:?}: {done:?}");
            let said = done.out + &done.err;
            assert!(said.contains(&format!("kill -CONT {agent}")), "{words:?}: {said}");
        }
        assert!(is_mounted(&bench.dir));
        let forced = call(["umount", "--force", dir]);
        assert_eq!(forced.code, 75, "{forced:?}");
        assert!(forced.err.contains(&format!("process {agent}, does not answer")), "{forced:?}");
        assert!(!is_mounted(&bench.dir));
        kill(agent, libc::SIGCONT);
        wait_until("what waited is in the global store", BOUND, || bench.read("f") == "data");
    });
}

#[test] // S22
fn a_forced_unmount_ends_what_is_in_use_and_loses_nothing() {
    in_private_namespace(|| {
        let bench = Bench::new();
        let _mounted = bench.mount(&["--policy", "stage_out=manual"]);
        let mut held = File::create(bench.dir.join("held")).unwrap();
        held.write_all(b"before").unwrap();
        let forced = call(["umount", "--force", text(&bench.dir)]);
        assert!(forced.err.contains("held") && forced.err.contains(&std::process::id().to_string()), "{forced:?}");
        assert!(!is_mounted(&bench.dir));
        drop(held);
        if forced.code != 0 {
            assert_eq!(forced.code, 75, "{forced:?}");
            ok(call(["recover", text(&bench.buffer)]));
        }
        assert_eq!(bench.read("held"), "before");
    });
}

#[test]
fn status_tells_rates_errors_and_what_is_to_be_decided() {
    in_private_namespace(|| {
        use std::os::fd::AsRawFd;
        let bench = Bench::new();
        let file = bench.tree.file("data/f", "base");
        let below = Below::of(&bench);
        let _mounted = bench.mount(&["--policy", "stage_out=manual"]);
        fs::write(bench.dir.join("new"), vec![1; 1 << 20]).unwrap();
        ok(call(["drain", "--wait", text(&bench.dir)]));
        assert_eq!(fs::read(bench.dir.join("new")).unwrap().len(), 1 << 20);
        fs::write(&file, "ours").unwrap();
        fs::write(format!("/proc/self/fd/{}/f", below.0.as_raw_fd()), "theirs").unwrap();
        assert_eq!(call(["drain", "--wait", text(&bench.dir)]).code, 75);
        let shown = ok(call(["status", text(&bench.dir)]));
        for part in ["burst buffer: ", "out 1 file, 1.00 MiB at ", " %)", "to be decided: 1 in conflict", "resolve"] {
            assert!(shown.contains(part), "no `{part}` in {shown}");
        }
        let status: serde_json::Value =
            serde_json::from_str(&ok(call(["status", text(&bench.dir), "--json"]))).unwrap();
        let status = &status[0]["status"];
        assert!(status["staged_out_bytes_per_s"].as_f64().unwrap() > 0.0, "{status}");
        assert!((0.0..=1.0).contains(&status["hit_rate"].as_f64().unwrap()), "{status}");
        assert_eq!(status["stuck"][0]["path"], "f");
        for metric in telemetry::METRICS {
            // Neither windows nor a server are here.
            let is_here = metric.keys().next().is_none_or(|key| !["windows", "server"].contains(&key));
            let value = metric.keys().fold(status, |at, key| &at[key]);
            assert_eq!(value.is_number() || value.is_boolean(), is_here, "{}: {value}", metric.name);
        }
        ok(call(["resolve", text(&file), "--keep", "global"]));
        ok(call(["umount", text(&bench.dir)]));
    });
}

#[test] // S21
fn no_name_gives_a_terminal_orders_or_a_log_lines_of_its_own() {
    in_private_namespace(|| {
        use std::os::fd::AsRawFd;
        let bench = Bench::new();
        let name = "x\x1b]0;pwned\x07\x1b[2J\n2026-11-28T00:00:00Z  INFO forebay: all is well";
        let file = bench.tree.file(format!("data/{name}"), "base");
        let below = Below::of(&bench);
        let _mounted = bench.mount(&["--policy", "stage_out=manual"]);
        fs::write(&file, "ours").unwrap();
        fs::write(format!("/proc/self/fd/{}/{name}", below.0.as_raw_fd()), "theirs").unwrap();
        let dir = text(&bench.dir);
        let stuck = call(["drain", "--wait", dir]);
        assert_eq!(stuck.code, 75, "{stuck:?}");
        let told = [
            stuck.err,
            ok(call(["status", dir])),
            ok(call(["stage", "state", text(&file)])),
            call(["umount", dir]).err,
            fs::read_to_string(bench.buffer.join("agent.log")).unwrap(),
        ];
        for told in told {
            let lines = || told.lines();
            assert!(lines().any(|line| line.contains(r"x\x1b]0;pwned\x07\x1b[2J\x0a2026")), "{told}");
            assert!(
                lines().all(|line| !line.contains(char::is_control) && !line.starts_with("2026-11-28T00")),
                "{told}"
            );
        }
        let exact: serde_json::Value = serde_json::from_str(&ok(call(["status", "--json", dir]))).unwrap();
        assert!(exact.to_string().contains("all is well") && exact.to_string().contains(r"\u001b[2J\n2026"), "{exact}");
        ok(call(["resolve", text(&file), "--keep", "global"]));
        ok(call(["umount", dir]));
    });
}
