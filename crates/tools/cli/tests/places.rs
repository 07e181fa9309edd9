//! The place of a directory in a burst buffer: beside those of others, and smaller than a file.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{BOUND, Bench, agent_of, call, kill, ok};
use testkit::{in_private_namespace, wait_until};

#[test] // S18
fn what_one_agent_left_is_recovered_beside_another_that_lives() {
    in_private_namespace(|| {
        let bench = Bench::new();
        let other = bench.tree.dir("other");
        let _mounted = bench.mount(&[]);
        let mut command = common::forebay();
        command.arg("mount").arg(&other).arg("--burst-buffer").arg(&bench.buffer);
        ok(common::start(command.args(["--policy", "stage_out=manual"]), "").wait());
        fs::write(other.join("f"), "data").unwrap();
        kill(agent_of(&place_of("other", &bench.buffer)), libc::SIGKILL);
        wait_until("the agent is gone", BOUND, || call([Path::new("status"), &other]).code == 69);
        assert_eq!(call([Path::new("umount"), &other]).code, 75);
        let checked = call([Path::new("check"), &bench.buffer]);
        assert!(checked.code == 69 && checked.err.contains("in use"), "{checked:?}");
        assert!(checked.out.contains("1 dirty"), "{checked:?}");
        let recovered = call([Path::new("recover"), &bench.buffer]);
        assert!(recovered.code == 69 && recovered.err.contains("is accelerated now"), "{recovered:?}");
        assert_eq!(bench.read("../other/f"), "data");
        ok(call([Path::new("umount"), &bench.dir]));
    });
}

fn place_of(name: &str, buffer: &Path) -> PathBuf {
    let mut below = fs::read_dir(buffer).unwrap().map(|entry| entry.unwrap().path());
    below.find(|path| path.file_name().unwrap().to_str().unwrap().starts_with(&format!("{name}-"))).unwrap()
}

fn sum(command: &str, dir: &Path) -> String {
    String::from_utf8(Command::new("sh").args(["-c", command]).current_dir(dir).output().unwrap().stdout).unwrap()
}

#[test] // S30
fn a_file_larger_than_the_burst_buffer_is_read_and_changed_whole() {
    in_private_namespace(|| {
        let bench = small();
        sum("head -c 40000000 /dev/urandom > large", &bench.dir);
        let before = sum("cksum < large", &bench.dir);
        let script =
            "cksum < large; printf changed | dd of=large bs=1 seek=30000000 conv=notrunc status=none; cksum < large";
        let done = bench.run(&["--quiet"], script);
        assert_eq!((done.code, done.err.as_str()), (0, ""));
        let after = sum("cksum < large", &bench.dir);
        assert_ne!(before, after);
        assert_eq!(done.out, before + &after);
    });
}

#[test] // S31
fn the_writer_of_a_new_file_larger_than_the_burst_buffer_is_told_where_it_ends_and_that_much_arrives() {
    in_private_namespace(|| {
        let bench = small();
        sum("head -c 40000000 /dev/urandom > ../source", &bench.dir);
        // The last line is the size of the new file. Where the agent writes, all of it arrives.
        let script = "LC_ALL=C dd if=../source of=new bs=100000; echo $?; wc -c < new";
        let done = bench.run(&[], script);
        assert_eq!(done.code, 0, "{done:?}");
        assert!(!done.err.contains("tracing"), "a log without room is the agent's own matter: {done:?}");
        let lines: Vec<&str> = done.out.lines().collect();
        let refused = done.err.contains("No space left on device");
        assert_eq!(lines[0] == "1", refused, "{done:?}");
        assert!(refused || lines[1] == "40000000", "{done:?}");
        assert!(lines[1].parse::<u64>().unwrap() > 8 << 20, "{done:?}");
        assert_eq!(sum(&format!("head -c {} ../source | cmp - new && echo same", lines[1]), &bench.dir), "same\n");
        // Nor is the burst buffer worth less afterwards.
        assert_eq!(ok(bench.run(&["--quiet"], "echo next > next; cat next")), "next\n");
        assert_eq!(bench.read("next"), "next\n");
    });
}

#[test] // S17
fn what_is_in_a_full_burst_buffer_is_recovered() {
    in_private_namespace(|| full_and_recovered(&[]));
}

#[test]
fn what_is_in_a_full_burst_buffer_is_recovered_that_served_windows() {
    in_private_namespace(|| full_and_recovered(&["--window"]));
}

fn full_and_recovered(windows: &[&str]) {
    let bench = small();
    sum("head -c 40000000 /dev/urandom > ../source", &bench.dir);
    // Small writes at the end: not a page is left.
    let script = "for bytes in 100000 1000; do dd if=../source of=new-$bytes bs=$bytes; done; wc -c < new-100000; \
                  kill -KILL $PPID; sleep 0.1";
    let done = bench.run(&[&["--policy", "stage_out=manual"], windows].concat(), script);
    assert_eq!(done.code, 137, "{done:?}");
    // The space that was kept for a start is kept again, before this fills the rest.
    let script = "for bytes in 1000 100 1; do dd if=../source of=new-100000 oflag=append conv=notrunc bs=$bytes count=3000; done; \
                  head -c $SIZE new-100000 | cksum; kill -KILL $PPID; sleep 0.1"
        .replace("$SIZE", done.out.trim());
    let expected = sum(&format!("head -c {} ../source | cksum", done.out.trim()), &bench.dir);
    for _ in 0..4 {
        let more = bench.run(&[&["--policy", "stage_out=manual"], windows].concat(), &script);
        assert!(more.code == 137 && more.out == expected, "{more:?}");
    }
    ok(call([Path::new("recover"), &bench.buffer]));
    let same = format!("head -c {} ../source | cmp - <(head -c {0} new-100000) && echo same", done.out.trim());
    assert_eq!(sum(&format!("bash -c '{same}'"), &bench.dir), "same\n");
    for _ in 0..3 {
        ok(call([Path::new("recover"), &bench.buffer]));
    }
}

#[test] // S17, S58
fn what_a_killed_agent_left_in_a_burst_buffer_without_a_free_block_is_recovered_and_mounted() {
    in_private_namespace(|| {
        let mut bench = small();
        bench.buffer = bench.tree.mount_tmpfs("larger", 24 << 20);
        let fill = || {
            sum(
                "for bytes in 4096 1; do dd if=/dev/zero of=../larger/filler oflag=append conv=notrunc bs=$bytes; done",
                &bench.dir,
            );
            assert_eq!(rustix::fs::statvfs(&bench.buffer).unwrap().f_bavail, 0, "the test is worth nothing");
        };
        let script = "head -c 3000000 /dev/zero | tr '\\0' x > new; kill -KILL $PPID; sleep 0.1";
        let left = || {
            let done = bench.run(&["--policy", "stage_out=manual"], script);
            assert_eq!(done.code, 137, "{done:?}");
            fill();
        };
        left();
        ok(call([Path::new("recover"), &bench.buffer]));
        assert_eq!(bench.read("new").len(), 3_000_000);
        fs::remove_file(bench.buffer.join("filler")).unwrap();
        fs::remove_file(bench.dir.join("new")).unwrap();
        left();
        assert_eq!(ok(bench.run(&["--quiet"], "wc -c < new")), "3000000\n");
        assert_eq!(bench.read("new").len(), 3_000_000);
    });
}

/// Written again at each start it could be found empty after a crash of the machine.
#[test]
fn the_note_of_a_places_directory_is_written_when_it_changes_and_then_whole() {
    use std::os::unix::fs::MetadataExt;
    in_private_namespace(|| {
        let bench = Bench::new();
        let note = bench.buffer.join("directory");
        let written = || fs::metadata(&note).map(|found| (found.ino(), found.mtime_nsec())).unwrap();
        ok(bench.run(&["--quiet"], "true"));
        let first = written();
        ok(bench.run(&["--quiet"], "true"));
        assert_eq!(written(), first);
        let reader = fs::File::open(&note).unwrap();
        let moved = bench.tree.path("moved");
        fs::rename(&bench.dir, &moved).unwrap();
        let buffer = bench.buffer.to_str().unwrap();
        ok(call(["run", "--quiet", "--burst-buffer", buffer, "--dir", moved.to_str().unwrap(), "--", "true"]));
        assert_eq!(fs::read_to_string(&note).unwrap(), moved.to_str().unwrap());
        assert_eq!(std::io::read_to_string(reader).unwrap(), bench.dir.to_str().unwrap(), "the former one was not cut");
    });
}

/// As a start leaves it that is interrupted before it has made its catalogue.
#[test]
fn a_place_that_never_held_anything_is_no_problem() {
    in_private_namespace(|| {
        let bench = Bench::new();
        ok(bench.run(&["--quiet"], "true"));
        fs::remove_dir_all(bench.buffer.join("catalogue")).unwrap();
        fs::remove_file(bench.buffer.join("directory")).unwrap();
        let checked = ok(call([Path::new("check"), &bench.buffer]));
        assert!(!checked.contains("problem"), "{checked}");
        let recovered = call([Path::new("recover"), &bench.buffer]);
        assert!(recovered.code == 66 && recovered.err.contains("holds no data"), "{recovered:?}");
        ok(bench.run(&["--quiet"], "echo data > f"));
        assert_eq!(bench.read("f"), "data\n");
        // An unreadable catalogue may hold something.
        fs::remove_dir_all(bench.buffer.join("catalogue")).unwrap();
        fs::remove_dir_all(bench.buffer.join("replicas")).unwrap();
        fs::write(bench.buffer.join("replicas"), b"").unwrap();
        let checked = call([Path::new("check"), &bench.buffer]);
        assert!(checked.code == 69 && checked.out.contains("/catalogue is missing"), "{checked:?}");
    });
}

/// A burst buffer of 16 MiB.
fn small() -> Bench {
    let mut bench = Bench::new();
    bench.buffer = bench.tree.mount_tmpfs("small", 16 << 20);
    bench
}
