//! Messages of commands about files that somebody has to decide about; their remedies must work.

mod common;

use std::fs;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::{Command, Stdio};

use common::{BOUND, Bench, Done, call, forebay, is_mounted, ok, start};
use testkit::{TempTree, in_private_namespace, wait_until};

/// Executes the command printed after `to decide: ` in a shell, with the last of the copies that it offers.
fn decide(said: &str) -> Done {
    let told = said.lines().find_map(|line| line.trim().strip_prefix("to decide: forebay ")).expect(said);
    let (before, after) = told.split_once(" --keep ").expect(told);
    let (offered, after) = after.split_once(' ').unwrap_or((after, ""));
    let last = offered.rsplit('|').next().unwrap();
    let command = format!("{} {before} --keep {last} {after}", env!("CARGO_BIN_EXE_forebay"));
    let done = Command::new("bash").args(["-c", &command]).stdin(Stdio::null()).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Done { code: done.status.code().unwrap_or(-1), out: text(done.stdout), err: text(done.stderr) }
}

/// Mounts, and removes the dirty file `gone` below.
fn orphan(bench: &Bench) {
    let below = fs::File::open(&bench.dir).unwrap();
    std::mem::forget(bench.mount(&["--policy", "stage_out=manual"]));
    fs::write(bench.dir.join("gone"), "precious").unwrap();
    fs::remove_file(format!("/proc/self/fd/{}/gone", below.as_raw_fd())).unwrap();
}

#[test] // S27
fn an_orphan_is_told_as_one_with_the_command_that_ends_it() {
    in_private_namespace(|| {
        let bench = Bench::new();
        orphan(&bench);
        let (dir, buffer) = (bench.dir.to_str().unwrap(), bench.buffer.to_str().unwrap());
        let drained = call(["drain", "--wait", dir]);
        assert!(drained.code == 75 && drained.err.contains("gone: orphaned: "), "{drained:?}");
        let status = ok(call(["status", dir]));
        let told = status.lines().find_map(|line| line.split_once("forebay resolve ")).expect(&status).1;
        assert!(drained.err.contains(told.split(' ').next().unwrap()), "{status}\n{drained:?}");
        let ended = call(["umount", "--force", dir]);
        assert!(ended.code == 75 && ended.err.contains("to decide: "), "{ended:?}");
        let checked = ok(call(["check", buffer]));
        assert!(checked.contains(", 0 dirty, 1 need a decision"), "{checked}");
        let saved = ok(decide(&checked));
        assert_eq!(fs::read_to_string(saved.trim()).unwrap(), "precious");
        assert!(ok(call(["check", buffer])).contains(", 0 dirty, 0 need a decision"));
    });
}

#[test] // S27
fn what_is_told_of_an_orphan_can_be_done_while_it_is_mounted() {
    in_private_namespace(|| {
        let bench = Bench::new();
        orphan(&bench);
        let dir = bench.dir.to_str().unwrap();
        let saved = ok(decide(&call(["drain", "--wait", dir]).err));
        assert_eq!(fs::read_to_string(saved.trim()).unwrap(), "precious");
        ok(call(["umount", dir]));
    });
}

/// Whatever the paths are: each is given to a shell as it was told.
#[test] // S21
fn what_is_told_is_a_command_that_can_be_done() {
    in_private_namespace(|| {
        let tree = TempTree::new();
        let bench = Bench { dir: tree.dir("it's $HOME"), buffer: tree.dir("burst buffer; false"), tree };
        let (dir, buffer) = (bench.dir.to_str().unwrap(), bench.buffer.to_str().unwrap());
        let below = fs::File::open(&bench.dir).unwrap();
        let name = "a & b";
        std::mem::forget(bench.mount(&["--policy", "stage_out=manual"]));
        fs::write(bench.dir.join(name), "ours").unwrap();
        fs::write(format!("/proc/self/fd/{}/{name}", below.as_raw_fd()), "somebody else's").unwrap();
        let drained = call(["drain", "--wait", dir]);
        assert!(drained.err.contains("conflict"), "{drained:?}");
        let status = ok(call(["status", dir]));
        let shown = drained.err.lines().find_map(|line| line.split_once("forebay resolve ")).expect(&drained.err).1;
        assert!(status.contains(shown), "{status}\n{shown}");
        assert_eq!(call(["umount", "--force", dir]).code, 75);

        // Missing data cannot be saved or staged out.
        let checked = ok(call(["check", buffer]));
        assert!(checked.contains("--keep burst-buffer|global|both --burst-buffer"), "{checked}");
        let replica = drained.err.lines().find_map(|line| line.trim().strip_prefix("data: ")).expect(&drained.err);
        let data = fs::read(replica).unwrap();
        fs::remove_file(replica).unwrap();
        let lacking = call(["check", buffer]);
        assert!(lacking.out.contains("--keep global --burst-buffer"), "{lacking:?}");
        fs::write(replica, data).unwrap();

        let saved = ok(decide(&checked));
        assert_eq!(fs::read_to_string(saved.trim_end_matches('\n')).unwrap(), "ours");
        assert!(ok(call(["check", buffer])).contains(", 0 dirty, 0 need a decision"));
    });
}

#[test]
fn what_cannot_be_done_is_told_with_its_path() {
    in_private_namespace(|| {
        let bench = Bench::new();
        let file = bench.tree.file("data/f", "data");
        let _mounted = bench.mount(&[]);
        let said = |words: &[&str], code: i32, parts: &[&str]| {
            let done = call(words);
            assert_eq!(done.code, code, "{done:?}");
            for part in parts {
                assert!(done.err.contains(part), "no `{part}` in {done:?}");
            }
        };
        let (file, none) = (file.to_str().unwrap(), bench.dir.join("none"));
        let none = none.to_str().unwrap();
        said(&["resolve", file, "--keep", "global"], 66, &["nothing is to be decided", file, "forebay status"]);
        said(&["policy", "set", file, "cache=through"], 66, &[file, "Not a directory", "directories"]);
        said(&["policy", "set", none, "cache=through"], 66, &[none, "No such file"]);
        let evict = |why: &str| said(&["stage", "evict", file], 69, &[file, why]);
        ok(call(["stage", "pin", "--wait", file]));
        evict("it is pinned: forebay stage unpin");
        ok(call(["stage", "unpin", file]));
        let held = fs::File::open(file).unwrap();
        evict("it is open");
        drop(held);
        said(&["stage", "in", "--wait", bench.dir.to_str().unwrap()], 69, &["--recursive"]);
        ok(call([Path::new("umount"), &bench.dir]));
    });
}

/// The agent lives on in its own namespace: it would be waited for in vain.
#[test] // S22
fn a_mount_is_ended_in_the_namespace_where_it_was_made() {
    in_private_namespace(|| {
        let bench = Bench::new();
        let (program, dir) = (env!("CARGO_BIN_EXE_forebay"), bench.dir.to_str().unwrap());
        let inside =
            bench.run(&[], &format!("{program} umount {dir}; echo $?; grep -c fuse.forebay /proc/self/mounts"));
        assert_eq!((inside.code, inside.out.as_str()), (0, "69\n1\n"), "{inside:?}");
        assert!(inside.err.contains("ends with its command"), "{inside:?}");
        let mounted = bench.mount(&[]);
        let mut apart = Command::new("unshare");
        let done = start(apart.args(["--mount", program, "umount", "--force", dir]), "").wait();
        assert_eq!(done.code, 69, "{done:?}");
        assert!(done.err.contains(&format!("--target {} ", mounted.agent())), "{done:?}");
        assert!(is_mounted(&bench.dir));
        ok(call(["umount", dir]));
    });
}

#[test]
fn who_stops_reading_a_script_or_a_page_is_no_error_and_a_full_disk_is_one() {
    for words in [&["completions", "bash"][..], &["man"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        for (to, code) in [(Stdio::from(writer), 0), (fs::File::create("/dev/full").unwrap().into(), 73)] {
            let done = forebay().args(words).stdout(to).output().unwrap();
            assert_eq!(done.status.code(), Some(code), "{words:?}: {done:?}");
        }
    }
}

#[test]
fn a_report_that_cannot_be_written_is_told_before_the_command_runs() {
    in_private_namespace(|| {
        let bench = Bench::new();
        for file in ["/no/such/report", bench.tree.root().to_str().unwrap(), "/etc/passwd/report"] {
            let done = bench.run(&["--report", file], "echo ran");
            assert!(done.code != 0 && done.out.is_empty() && done.err.contains(file), "{done:?}");
        }
    });
}

#[test]
fn a_run_is_found_by_its_directory_and_nobody_is_told_to_recover_what_is_clean() {
    in_private_namespace(|| {
        let bench = Bench::new();
        let ends = bench.tree.path("ends");
        let script = format!("echo data > f; touch {0}.begun; while [ ! -e {0} ]; do sleep 0.05; done", ends.display());
        let running = bench.start_run(&[], &script);
        wait_until("the command runs", BOUND, || bench.tree.path("ends.begun").exists());
        let dir = bench.dir.to_str().unwrap();
        let shown = ok(call(["status", dir]));
        assert!(shown.contains(&format!("{dir}  burst buffer ")), "{shown}");
        ok(call(["drain", "--wait", dir]));
        std::fs::write(&ends, "").unwrap();
        assert_eq!(running.wait().code, 0);
        let gone = call(["status", "--burst-buffer", bench.buffer.to_str().unwrap()]);
        assert_eq!(gone.code, 69, "{gone:?}");
        assert!(gone.out.contains("all that it holds is in the global store"), "{gone:?}");
        assert!(!gone.out.contains("forebay recover"), "{gone:?}");
    });
}
