//! Refusals of commands, with their exit statuses and advice.

mod common;

use std::fs;

use common::{Bench, Done, call, ok};
use testkit::{in_private_namespace, wait_until};

fn refused(done: &Done, code: i32, part: &str) {
    assert_eq!(done.code, code, "{done:?}");
    assert!(done.err.contains(part), "no `{part}` in {done:?}");
}

#[test]
fn wrong_words_are_refused_with_a_suggestion() {
    refused(&call(["rum"]), 64, "'run'");
    refused(&call(["run", "--burts-buffer", "/bb", "--", "true"]), 64, "--burst-buffer");
    refused(&call(["run", "--policy", "cahce=both", "--", "true"]), 64, "did you mean `cache`?");
    refused(&call(["run", "--policy", "cache=fast", "--", "true"]), 64, "both|write-cache");
    refused(&call(["run", "--policy", "atime=lazy", "--", "true"]), 64, "no|relative|strict");
    refused(&call(["run", "--policy", "redundancy=none", "--", "true"]), 64, "not available in this version");
    refused(&call(["run", "--linger", "soon", "--", "true"]), 64, "10s");
    refused(&call(["run", "--burst-buffer", "/tmp"]), 64, "CMD");
    refused(&call(["run", "--", "true"]), 64, "FOREBAY_BURST_BUFFER");
    refused(&call::<&str>([]), 64, "Usage");
}

#[test]
fn help_version_completions_and_manual_are_there() {
    assert_eq!(call(["--help"]).code, 0);
    assert!(call(["--version"]).out.contains(env!("CARGO_PKG_VERSION")));
    for shell in ["bash", "zsh", "fish"] {
        assert!(call(["completions", shell]).out.contains("forebay"));
    }
    assert!(call(["man"]).out.contains(".TH forebay"));
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(call(["man", dir.path().to_str().unwrap()]).code, 0);
    assert!(dir.path().join("forebay-run.1").exists());
    let keys = call(["policy", "list", "--keys"]);
    assert!(keys.out.contains("stage_out") && keys.out.contains("idle:T"), "{keys:?}");
}

#[test]
fn a_server_that_cannot_listen_says_where_and_what_to_do() {
    in_private_namespace(|| {
        let bench = Bench::new();
        let taken = bench.tree.path("taken");
        let _other = std::os::unix::net::UnixListener::bind(&taken).unwrap();
        let serve = |address: &str| {
            let (dir, buffer) = (bench.dir.to_str().unwrap(), bench.buffer.to_str().unwrap());
            call(["serve", dir, "--burst-buffer", buffer, "--listen", address])
        };
        let address = format!("unix:{}", taken.display());
        let done = serve(&address);
        refused(&done, 69, &format!("cannot listen: {address}: Address already in use"));
        refused(&done, 69, "--listen");
        refused(&serve("tcp:127.0.0.1:0"), 64, "--anonymous");
    });
}

#[test]
fn places_that_cannot_work_are_refused_before_anything_runs() {
    in_private_namespace(|| {
        let bench = Bench::new();
        let text = |path: &std::path::Path| path.to_str().unwrap().to_string();
        let with =
            |dir: &str, buffer: &str| call(["run", "--dir", dir, "--burst-buffer", buffer, "--", "touch", "/ran"]);
        let (dir, buffer) = (text(&bench.dir), text(&bench.buffer));
        refused(&with("/no/such/dir", &buffer), 66, "/no/such/dir");
        refused(&with(&dir, "/no/such/bb"), 66, "mkdir -p /no/such/bb");
        refused(&with(&text(&bench.tree.file("file", "")), &buffer), 66, "no directory");
        refused(&with(&dir, &dir), 64, "its own burst buffer");
        refused(&with(&dir, &text(&bench.tree.dir("data/bb"))), 64, "lies inside");
        refused(&with(&text(&bench.tree.dir("bb/data")), &buffer), 64, "lies inside its burst buffer");
        refused(&with("/", &buffer), 64, "");
        let tmpfs = bench.tree.mount_tmpfs("readonly", 1 << 20);
        rustix::mount::mount_remount(&tmpfs, rustix::mount::MountFlags::RDONLY, c"").unwrap();
        refused(&with(&dir, &text(&tmpfs)), 73, "Read-only");
        assert!(!std::path::Path::new("/ran").exists());
        refused(&call(["recover", "/no/such/bb"]), 66, "/no/such/bb");
        refused(&call(["recover", &dir]), 66, "holds no data");
        refused(&call(["recover", &dir, "--forget-windows", "/gone"]), 66, "knows of no windows in /gone");
        assert!(!bench.dir.join("agent.log").exists());
        refused(&call(["check", &dir]), 66, "no burst buffer");
    });
}

#[test] // S18
fn a_burst_buffer_in_use_or_of_another_directory_is_refused() {
    in_private_namespace(|| {
        let bench = Bench::new();
        let first = bench.start_run(&[], "echo > up; exec sleep 1000");
        wait_until("the command runs", common::BOUND, || bench.dir.join("up").exists());
        refused(&bench.run(&[], "true"), 69, &format!("in use by process {}", first.pid()));
        refused(&call(["check", bench.buffer.to_str().unwrap()]), 69, "in use");
        common::kill(first.pid(), libc::SIGTERM);
        assert_eq!(first.wait().code, 143);
    });
}

#[test] // S59
fn a_directory_that_was_made_anew_takes_the_place_of_the_former_one_with_its_rules() {
    in_private_namespace(|| {
        let bench = Bench::new();
        let buffer = bench.buffer.to_str().unwrap();
        ok(bench.run(
            &["--quiet"],
            &format!("echo old > f; mkdir out; {} policy set out stage_out=manual", env!("CARGO_BIN_EXE_forebay")),
        ));
        let rules = fs::read(bench.buffer.join("policies.toml")).unwrap();
        for round in 0..2 {
            fs::remove_dir_all(&bench.dir).unwrap();
            fs::create_dir(&bench.dir).unwrap();
            if round == 1 {
                ok(call(["recover", buffer]));
            }
            assert_eq!(ok(bench.run(&["--quiet"], "ls; echo new > f; cat f")), "new\n");
            assert_eq!(bench.read("f"), "new\n");
            assert!(ok(call(["check", buffer])).contains("1 replicas"), "what the former one left");
        }
        assert_eq!(fs::read(bench.buffer.join("policies.toml")).unwrap(), rules);
        assert!(
            !fs::read_dir(&bench.buffer).unwrap().any(|one| one
                .unwrap()
                .file_name()
                .to_string_lossy()
                .starts_with("data-"))
        );
    });
}

#[test] // S59
fn what_waits_in_the_place_of_a_directory_that_was_made_anew_is_told_and_one_command_ends_it() {
    in_private_namespace(|| {
        let bench = Bench::new();
        let [buffer, dir] = [&bench.buffer, &bench.dir].map(|path| path.to_str().unwrap());
        for keep in ["both", "global"] {
            assert_eq!(
                bench.run(&["--policy", "stage_out=manual"], "echo kept > f; kill -KILL $PPID; sleep 0.1").code,
                137
            );
            fs::remove_dir_all(&bench.dir).unwrap();
            fs::create_dir(&bench.dir).unwrap();
            for done in [bench.run(&[], "true"), call(["recover", buffer])] {
                refused(&done, 69, "1 file (5 B) was not in the global store");
                refused(&done, 69, &format!("forebay resolve {dir} --keep both --burst-buffer {buffer}"));
            }
            refused(&call(["resolve", dir, "--keep", "burst-buffer", "--burst-buffer", buffer]), 64, "not the one");
            let saved = ok(call(["resolve", dir, "--keep", keep, "--burst-buffer", buffer]));
            assert_eq!(saved.is_empty(), keep == "global", "{saved}");
            saved.lines().for_each(|path| assert_eq!(fs::read_to_string(path).unwrap(), "kept\n"));
            ok(bench.run(&["--quiet"], "test ! -e f"));
            saved.lines().for_each(|path| assert_eq!(fs::read_to_string(path).unwrap(), "kept\n"));
        }
    });
}

#[test] // S18
fn a_burst_buffer_of_another_version_is_refused_and_left_alone() {
    in_private_namespace(|| {
        let bench = Bench::new();
        assert_eq!(bench.run(&["--policy", "stage_out=manual"], "echo > f; kill -KILL $PPID; sleep 0.1").code, 137);
        let page = bench.buffer.join("superblock");
        let newer = fs::read_to_string(&page).unwrap().replace("\"format\": 1", "\"format\": 9");
        fs::write(&page, &newer).unwrap();
        let buffer = bench.buffer.to_str().unwrap();
        for done in [bench.run(&[], "true"), call(["recover", buffer]), call(["check", "--repair", buffer])] {
            refused(&done, 73, "has format 9");
            refused(&done, 73, "the version that wrote it");
            refused(&done, 73, buffer);
        }
        assert_eq!(fs::read_to_string(&page).unwrap(), newer);
        assert!(bench.buffer.join("catalogue").exists());
    });
}

#[test]
fn rules_that_cannot_be_read_are_refused_before_anything_is_staged_out() {
    in_private_namespace(|| {
        let bench = Bench::new();
        assert_eq!(bench.run(&["--policy", "stage_out=manual"], "echo 1 > f; kill -KILL $PPID; sleep 0.1").code, 137);
        let rules = bench.buffer.join("policies.toml");
        fs::write(&rules, "][").unwrap();
        let done = call(["recover", bench.buffer.to_str().unwrap()]);
        refused(&done, 66, rules.to_str().unwrap());
        refused(&done, 66, "mend that file, or remove it");
        assert_eq!(bench.read("f"), "");
        fs::remove_file(&rules).unwrap();
        assert_eq!(call(["recover", bench.buffer.to_str().unwrap()]).code, 0);
        assert_eq!(bench.read("f"), "1\n");
    });
}

#[test] // S69
fn names_do_not_cross_the_border_of_the_directory_and_no_bytes_are_shifted() {
    in_private_namespace(|| {
        let bench = Bench::new();
        let outside = bench.dir.with_file_name("outside");
        fs::write(&outside, "outside").unwrap();
        let space = rustix::fs::statvfs(&bench.dir).unwrap();
        let _mounted = bench.mount(&[]);
        let inside = bench.dir.join("inside");
        fs::write(&inside, "inside").unwrap();
        for [from, to] in [[&inside, &outside], [&outside, &inside]] {
            assert_eq!(fs::rename(from, to).unwrap_err().raw_os_error(), Some(libc::EXDEV));
            let link = to.with_extension("link");
            assert_eq!(fs::hard_link(from, link).unwrap_err().raw_os_error(), Some(libc::EXDEV));
        }
        let file = fs::File::options().read(true).write(true).open(&inside).unwrap();
        for shifts in [rustix::fs::FallocateFlags::COLLAPSE_RANGE, rustix::fs::FallocateFlags::INSERT_RANGE] {
            assert_eq!(rustix::fs::fallocate(&file, shifts, 0, 4096), Err(rustix::io::Errno::OPNOTSUPP));
        }
        assert_eq!(fs::read_to_string(&inside).unwrap(), "inside");
        let told = rustix::fs::statvfs(&bench.dir).unwrap();
        assert_eq!((told.f_blocks, told.f_frsize), (space.f_blocks, space.f_frsize), "df tells of the global store");
    });
}

#[test]
fn the_doctor_says_how_well_each_part_works() {
    in_private_namespace(|| {
        let bench = Bench::new();
        let done = call(["doctor", "--json", "--burst-buffer", bench.buffer.to_str().unwrap()]);
        let report: serde_json::Value = serde_json::from_str(&done.out).unwrap();
        assert_ne!(report["verdict"], "missing", "{done:?}");
        let checks = report["checks"].as_array().unwrap();
        for name in ["kernel", "/dev/fuse", "FUSE protocol", "passthrough", "xattrs", "leases", "holes", "locks"] {
            assert!(checks.iter().any(|check| check["name"] == name), "no {name} in {checks:?}");
        }
        assert!(std::fs::read_dir(&bench.buffer).unwrap().next().is_none(), "nothing is left behind");
        let missing = call(["doctor", "--burst-buffer", "/no/such/bb"]);
        assert_eq!(missing.code, 69, "{missing:?}");
    });
}
