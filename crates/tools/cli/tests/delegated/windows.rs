//! Windows on files in delegated directories.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Stdio};

use super::*;

/// Writes as many records as each line says, and then says how many there are.
const PROGRAM: &str = r#"
import os, sys
file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT, 0o644)
number = 0
for line in sys.stdin:
    for _ in range(int(line)):
        os.write(file, b"%07d\n" % number)
        number += 1
    print(number, flush=True)
os._exit(0)
"#;

fn records(count: usize) -> String {
    (0..count).map(|number| format!("{number:07}\n")).collect()
}

/// A program that has a window, as the preload library gives it one.
struct Windowed {
    process: Child,
    told: BufReader<std::process::ChildStdout>,
}

impl Windowed {
    fn start(exports: &str, file: &Path) -> Windowed {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("{exports}exec python3 -c \"$0\" \"$1\""), PROGRAM]).arg(file);
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let told = BufReader::new(process.stdout.take().unwrap());
        Windowed { process, told }
    }

    /// Has more records written, and returns how many there are. All of them are acknowledged then.
    fn write(&mut self, count: usize) -> usize {
        writeln!(self.process.stdin.as_mut().unwrap(), "{count}").unwrap();
        let mut line = String::new();
        self.told.read_line(&mut line).unwrap();
        line.trim().parse().unwrap()
    }

    fn end(mut self) {
        drop(self.process.stdin.take());
        assert!(self.process.wait().unwrap().success());
    }
}

impl Drop for Windowed {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Bed {
    /// Mounts with windows, and returns what programs need.
    fn mount_windowed(&self, options: &[&str]) -> (Mounted<'_>, String) {
        let mut command = forebay();
        command.arg("mount").arg(&self.bench.dir).arg("--burst-buffer").arg(&self.bench.buffer);
        command.arg(format!("--window={}", self.bench.tree.path("rings").display())).args(RULES).args(options);
        let exports = ok(start(&mut command, "").wait());
        (self.bench.mounted(), exports)
    }

    fn windows(&self) -> [u64; 3] {
        let status = self.status();
        ["attached", "windows", "waiting_bytes"].map(|name| status["windows"][name].as_u64().unwrap())
    }

    /// Stops the agent, so that what is written stays in windows.
    fn stop(&self, mounted: &Mounted<'_>) {
        kill(mounted.agent(), libc::SIGSTOP);
    }

    /// Kills the agent, and then a program.
    fn crash_with(&self, mounted: &Mounted<'_>, program: Windowed) {
        kill(mounted.agent(), libc::SIGKILL);
        drop(program);
        self.crash(mounted);
    }

    fn is_delegated(&self, directory: &str) -> bool {
        rustix::fs::getxattr(self.below.join(directory), MARK, &mut [0; 4096][..]).is_ok()
    }
}

#[test] // S37, S71
fn what_a_window_has_is_seen_by_others_and_its_directory_is_given_back_after_it() {
    in_private_namespace(|| {
        for options in [&[][..], &["--policy", "close=lazy"]] {
            let bed = Bed::new();
            let (_mounted, exports) = bed.mount_windowed(options);
            fs::create_dir(bed.path("d")).unwrap();
            let mut program = Windowed::start(&exports, &bed.path("d/file"));
            assert_eq!(program.write(300), 300);
            assert_eq!(bed.windows()[..2], [1, 1]);
            assert_eq!(fs::metadata(bed.path("d/file")).unwrap().len(), 2400);
            // A directory in which a file is open for writing stays, and so does its window.
            let drained = call([Path::new("drain"), &bed.path("d"), "--wait".as_ref()]);
            assert!(drained.code == 75 && bed.is_delegated("d"), "{drained:?}");
            let moved = fs::rename(bed.path("d/file"), bed.path("moved")).unwrap_err();
            assert_eq!(moved.raw_os_error(), Some(libc::EXDEV));
            assert_eq!((program.write(300), &bed.windows()[..2]), (600, &[1, 1][..]));
            // Another program that opens the file ends its window.
            assert_eq!(fs::read_to_string(bed.path("d/file")).unwrap(), records(600));
            assert_eq!(bed.windows(), [1, 0, 0]);
            assert_eq!(program.write(10), 610);
            program.end();
            // What is closed and not applied is in nobody's way.
            let mut other = Windowed::start(&exports, &bed.path("d/other"));
            assert_eq!(other.write(300), 300);
            assert_eq!(bed.windows()[..2], [2, 1]);
            other.end();
            wait_until("the kernel has closed it", BOUND, || {
                fs::rename(bed.path("d/other"), bed.path("moved")).is_ok()
            });
            wait_until("the directory is given back", BOUND, || !bed.is_delegated("d"));
            ok(bed.drain());
            assert_eq!([bed.read("d/file"), bed.read("moved")], [records(610), records(300)]);
            ok(bed.umount());
            has(&ok(bed.check()), &[", 0 dirty, 0 need a decision"]);
        }
    });
}

/// Kills an agent with records that are in a window alone, of a new file or of one that the global store has. Returns the content.
fn crash_with_records(bed: &Bed, is_new: bool) -> String {
    let (mounted, exports) = bed.mount_windowed(&[]);
    fs::create_dir(bed.path("d")).unwrap();
    if !is_new {
        fs::write(bed.path("d/file"), records(900)).unwrap();
        ok(call([Path::new("drain"), &bed.path("d/file")]));
        wait_until("the global store has it", BOUND, || bed.status()["waiting_names"] == 0);
        assert!(bed.is_delegated("d") && bed.read("d/file") == records(900));
    }
    let mut program = Windowed::start(&exports, &bed.path("d/file"));
    assert_eq!(program.write(300), 300);
    wait_until("all is applied", BOUND, || bed.windows() == [1, 1, 0]);
    bed.stop(&mounted);
    assert_eq!(program.write(300), 600);
    bed.crash_with(&mounted, program);
    assert!(ok_or(bed.check(), &[0, 75]).contains("may hold writes that are not here yet"));
    if is_new { records(600) } else { records(900) }
}

/// Returns the output of a call that ended with one of these.
fn ok_or(done: Done, codes: &[i32]) -> String {
    assert!(codes.contains(&done.code), "{done:?}");
    done.out
}

#[test] // S38, S71
fn what_a_window_acknowledged_survives_the_death_of_the_agent() {
    in_private_namespace(|| {
        for is_new in [true, false] {
            for mounts in [true, false] {
                let bed = Bed::new();
                let content = crash_with_records(&bed, is_new);
                if mounts {
                    let _mounted = bed.mount();
                    assert_eq!(fs::read_to_string(bed.path("d/file")).unwrap(), content);
                    ok(bed.umount());
                } else {
                    ok(bed.recover());
                }
                assert_eq!(bed.read("d/file"), content);
                has(&ok(bed.check()), &[", 0 dirty, 0 need a decision"]);
            }
        }
    });
}

#[test] // S38, S71
fn what_a_window_acknowledged_comes_into_a_tree_that_has_lost_its_mark_and_nobody_ends_that_before() {
    in_private_namespace(|| {
        for is_new in [true, false] {
            let bed = Bed::new();
            let content = crash_with_records(&bed, is_new);
            let refused = call([Path::new("undelegate"), &bed.path("d")]);
            assert!(refused.code == 75 && bed.is_delegated("d"), "{refused:?}");
            // A server opens no delegated directory.
            let mut serve = forebay();
            serve.arg("serve").arg(&bed.bench.dir).arg("--burst-buffer").arg(&bed.bench.buffer);
            serve.arg("--listen").arg(format!("unix:{}", bed.bench.tree.path("socket").display()));
            let refused = start(&mut serve, "").wait();
            assert_eq!(refused.code, 69, "{refused:?}");
            has(&refused.err, &["has windows of files in delegated directories", "forebay recover"]);
            rustix::fs::removexattr(bed.below.join("d"), MARK).unwrap();
            let recovered = bed.recover();
            assert_eq!(recovered.code, 75, "{recovered:?}");
            has(&recovered.err, &["d: conflict: the directory is not marked as ours any more"]);
            ok(bed.resolve(bed.path("d"), "burst-buffer"));
            ok(bed.recover());
            assert_eq!(bed.read("d/file"), content);
        }
    });
}

#[test] // S38
fn a_file_that_is_removed_takes_what_its_window_has_along() {
    in_private_namespace(|| {
        let bed = Bed::new();
        let (mounted, exports) = bed.mount_windowed(&[]);
        fs::create_dir(bed.path("d")).unwrap();
        fs::write(bed.path("d/kept"), "kept").unwrap();
        let mut program = Windowed::start(&exports, &bed.path("d/file"));
        assert_eq!(program.write(300), 300);
        fs::rename(bed.path("d/kept"), bed.path("d/file")).unwrap();
        assert_eq!(program.write(300), 600);
        bed.stop(&mounted);
        assert_eq!(program.write(300), 900);
        bed.crash_with(&mounted, program);
        let recovered = bed.recover();
        assert!(recovered.code == 0 && !recovered.err.contains("lost"), "{recovered:?}");
        assert_eq!(bed.read("d/file"), "kept");
    });
}
