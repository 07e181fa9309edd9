//! `--window` without a directory: rings in a tmpfs with huge pages that agents of root share, or in `/dev/shm`.

use std::fs;

use agent::own_tmpfs::OWN_TMPFS;
use common::Done;
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, unmount};

use super::*;

const SHARED: &str = "/dev/shm";

impl Story {
    /// Creates a story without a named directory for windows, with an empty `/run` and `/dev/shm`.
    fn unnamed(on_machine: bool) -> Story {
        // An agent of the machine's own may have mounted it.
        let _ = unmount(OWN_TMPFS, UnmountFlags::DETACH);
        for place in ["/run", SHARED] {
            mount("test", place, "tmpfs", MountFlags::empty(), None).unwrap();
        }
        let rings = if on_machine { OWN_TMPFS } else { SHARED };
        Story { window: "--window".into(), rings: rings.into(), on_machine, ..Story::new() }
    }

    pub fn call(&self, words: &[&str]) -> Done {
        start(self.forebay().args(words), "").wait()
    }

    fn until_it_writes(&self) -> common::Running {
        let mut running = self.start(None);
        wait_until("writes", BOUND, || {
            assert!(running.guard.ended().is_none(), "{}", running.err());
            self.acknowledged() > 2000
        });
        running
    }

    /// Kills the agent once its program has written, and the program.
    pub fn until_both_die(&self) {
        let mut running = self.until_it_writes();
        kill(running.pid(), libc::SIGKILL);
        kill(self.ledger.word(8).load(SeqCst) as i32, libc::SIGKILL);
        wait_until("the death of the agent", BOUND, || running.guard.ended().is_some());
    }

    /// Returns how many sessions there are while another agent serves windows.
    fn sessions_of_two(&self) -> String {
        let other = Bench::new();
        let mut command = self.forebay();
        command.args(["run", "--quiet", "--window", "--burst-buffer"]).arg(&other.buffer).arg("--dir").arg(&other.dir);
        command
            .args(["--", "sh", "-c", "ls \"$0\" | grep -vc forebay-preload"])
            .arg(&self.rings)
            .current_dir(&other.dir);
        ok(start(&mut command, "").wait()).trim().to_owned()
    }
}

/// Returns the lines of the table of mounts that belong to the tmpfs.
fn mounted() -> Vec<String> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let ours = |line: &&str| line.split(' ').nth(4) == Some(OWN_TMPFS);
    table.lines().filter(ours).map(str::to_owned).collect()
}

#[test] // S38
fn windows_of_root_lie_in_a_tmpfs_with_huge_pages_that_the_first_agent_mounts_and_all_share() {
    in_private_namespace(|| {
        let story = Story::unnamed(true);
        let before = ok(story.call(&["doctor"]));
        assert!(before.contains("with huge pages, is mounted by the first agent") && mounted().is_empty(), "{before}");
        let running = story.until_it_writes();
        assert_eq!(story.sessions_of_two(), "2");
        let mounts = mounted();
        assert!(mounts.len() == 1 && mounts[0].contains("huge=within_size"), "{mounts:?}");
        assert_eq!(sessions(Path::new(SHARED)), 0);
        kill(story.ledger.word(8).load(SeqCst) as i32, libc::SIGTERM);
        running.wait();
        story.check();
        let after = ok(story.call(&["doctor"]));
        assert!(after.contains("with huge pages, is mounted: ") && mounted() == mounts, "{after}");
    });
}

#[test] // S38
fn what_windows_in_the_tmpfs_acknowledged_is_found_there_when_agent_and_program_are_dead() {
    in_private_namespace(|| {
        let story = Story::unnamed(true);
        story.until_both_die();
        let buffer = story.bench.buffer.to_str().unwrap();
        // A container or a job that began before it was mounted sees neither it nor what is lost.
        let elsewhere = |command: &str| {
            let script = "umount \"$0\" && exec \"$@\"";
            let mut unshare = Command::new("unshare");
            unshare.args(["--mount", "sh", "-c", script, OWN_TMPFS, env!("CARGO_BIN_EXE_forebay"), command, buffer]);
            start(&mut unshare, "").wait()
        };
        for command in ["check", "recover"] {
            let refused = elsewhere(command);
            let said = refused.out.clone() + &refused.err;
            assert!(refused.code != 0 && said.contains("is not seen from here"), "{refused:?}");
        }
        let checked = ok(story.call(&["check", buffer]));
        assert!(checked.contains("hold writes that are not here yet"), "{checked}");
        let recovered = story.call(&["recover", buffer]);
        assert!(recovered.code == 0 && !recovered.err.contains("lost"), "{recovered:?}");
        story.check();

        story.ledger.word(0).store(0, SeqCst);
        fs::remove_file(story.bench.dir.join("file")).unwrap();
        story.until_both_die();
        // The program may be about to die still.
        unmount(OWN_TMPFS, UnmountFlags::DETACH).unwrap();
        let told = story.call(&["recover", buffer]);
        assert!(told.code == 0 && told.err.contains("the directory of a killed agent's windows is gone"), "{told:?}");
    });
}

#[test] // S38
fn windows_lie_in_dev_shm_where_the_tmpfs_cannot_be_and_the_doctor_says_why() {
    in_private_namespace(|| {
        let in_dev_shm = |story: &Story, why: &str| {
            let doctor = ok(story.call(&["doctor"]));
            assert!(doctor.contains("/dev/shm is no persistent memory") && doctor.contains(why), "{doctor}");
            let running = story.until_it_writes();
            assert_eq!(story.sessions_of_two(), "2");
            kill(story.ledger.word(8).load(SeqCst) as i32, libc::SIGTERM);
            running.wait();
            story.check();
            assert!(mounted().is_empty());
        };
        in_dev_shm(
            &Story::unnamed(false),
            "no huge pages: this mount namespace is not that of the machine's process 1",
        );

        let story = Story { rings: SHARED.into(), ..Story::unnamed(true) };
        fs::create_dir_all(Path::new(OWN_TMPFS).join("something")).unwrap();
        in_dev_shm(&story, "is neither an empty directory nor a tmpfs of root's");

        let story = Story { rings: SHARED.into(), ..Story::unnamed(true) };
        let denied = story.bench.tree.file("denied", "always within_size advise never [deny] force\n");
        mount_bind(&denied, "/sys/kernel/mm/transparent_hugepage/shmem_enabled").unwrap();
        in_dev_shm(&story, "the kernel is told to make no huge pages");
    });
}

#[test] // S38
fn what_an_agent_left_in_dev_shm_is_found_by_one_whose_windows_lie_in_the_tmpfs() {
    in_private_namespace(|| {
        let mut story = Story::unnamed(false);
        story.until_both_die();
        story.on_machine = true;
        let words =
            ["--burst-buffer", story.bench.buffer.to_str().unwrap(), "--dir", story.bench.dir.to_str().unwrap()];
        ok(story.call(&[&["run", "--window"], &words[..], &["--", "true"]].concat()));
        assert_eq!(mounted().len(), 1);
        story.check();
    });
}

/// Program that writes `file` through a window, if it has one, and prints the socket and the library of its environment.
const BY_DEFAULT: &str = r#"python3 -c '
import os
fd = os.open("file", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
for n in range(20): os.write(fd, b"12345678")
os.close(fd)
print(os.environ.get("FOREBAY_WINDOW_SOCKET", "none"), os.environ.get("LD_PRELOAD", "none"))'"#;

/// Returns where the windows of a run with these arguments and variables lie, and checks the data. `None`: the run
/// has no windows and no library.
fn by_default(story: &Story, words: &[&str], variables: &[(&str, &str)]) -> Option<String> {
    let (bench, report) = (&story.bench, story.bench.tree.path("report"));
    let mut command = story.forebay();
    command
        .arg("run")
        .arg("--report")
        .arg(&report)
        .arg("--burst-buffer")
        .arg(&bench.buffer)
        .arg("--dir")
        .arg(&bench.dir);
    command.args(words).args(["--", "sh", "-c", BY_DEFAULT]).current_dir(&bench.dir).envs(variables.iter().copied());
    let told = ok(start(&mut command, "").wait());
    assert_eq!(bench.read("file"), "12345678".repeat(20));
    let report: serde_json::Value = serde_json::from_slice(&fs::read(report).unwrap()).unwrap();
    let attached = report["directories"][0]["windows"]["attached"].as_u64();
    let (socket, library) = told.trim().split_once(' ').unwrap();
    if socket == "none" {
        assert_eq!((library, attached), ("none", None), "{words:?} {variables:?}");
        return None;
    }
    assert!(library.ends_with("libforebay_preload.so") && attached == Some(1), "{words:?} {variables:?}: {report}");
    Some(socket.to_owned())
}

#[test]
fn a_run_has_windows_by_itself_where_they_outlive_the_job() {
    in_private_namespace(|| {
        let story = Story::unnamed(true);
        assert!(ok(story.call(&["doctor"])).contains("`forebay run` has them by itself"));
        // The shared tmpfs outlives jobs, so there are windows inside a job too.
        for variables in [&[][..], &[("SLURM_JOB_ID", "7")], &[("FOREBAY_WINDOW", "2MiB")]] {
            assert!(by_default(&story, &[], variables).unwrap().starts_with(OWN_TMPFS), "{variables:?}");
        }
        assert!(by_default(&story, &["--window-memory", "64MiB"], &[]).is_some());
        assert_eq!(by_default(&story, &["--no-preload"], &[]), None);
        assert_eq!(by_default(&story, &[], &[("FOREBAY_WINDOW", "off")]), None);
        assert_eq!(by_default(&story, &["--window-memory", "64MiB"], &[("FOREBAY_WINDOW", "off")]), None);

        // Nobody asked for them: what is in their way is told, and nothing else.
        unmount(OWN_TMPFS, UnmountFlags::DETACH).unwrap();
        let options = Some(c"nr_inodes=1,mode=0711");
        mount("full", OWN_TMPFS, "tmpfs", MountFlags::empty(), options).unwrap();
        let (bench, words) = (&story.bench, ["--", "sh", "-c", "echo written > file"]);
        let run = |more: &[&str]| {
            let mut command = story.forebay();
            command.arg("run").args(more).arg("--burst-buffer").arg(&bench.buffer).arg("--dir").arg(&bench.dir);
            start(command.args(words).current_dir(&bench.dir), "").wait()
        };
        let without = run(&[]);
        assert!(without.code == 0 && without.err.contains("no windows in /run/forebay-windows: "), "{without:?}");
        assert_eq!(bench.read("file"), "written\n");
        assert_eq!(run(&["--quiet"]).err, "");
        let refused = run(&["--window"]);
        assert!(refused.code != 0 && refused.err.contains("use /run/forebay-windows for windows"), "{refused:?}");
    });
}

#[test] // S71
fn a_delegated_directory_has_windows_only_where_somebody_asked_for_them() {
    in_private_namespace(|| {
        let story = Story::unnamed(true);
        let bench = &story.bench;
        for (variable, has) in [(None, false), (Some("2MiB"), true)] {
            let mut command = story.forebay();
            command.arg("run").arg("--burst-buffer").arg(&bench.buffer).arg("--dir").arg(&bench.dir);
            command.envs(variable.map(|size| ("FOREBAY_WINDOW", size))).current_dir(&bench.dir);
            let script = format!("rm -rf made && mkdir made && cd made && {BY_DEFAULT}");
            let done = start(command.args(["--policy", "delegate=new", "--", "sh", "-c", &script]), "").wait();
            assert_eq!((done.code, done.err.contains("1 windows took")), (0, has), "{done:?}");
            assert_eq!(bench.read("made/file"), "12345678".repeat(20));
        }
    });
}

#[test]
fn a_directory_that_can_have_no_windows_leaves_them_to_the_next() {
    in_private_namespace(|| {
        let story = Story::unnamed(true);
        let (bench, second) = (&story.bench, story.bench.tree.dir("second"));
        let run = || {
            let mut command = story.forebay();
            command.arg("run").arg("--burst-buffer").arg(&bench.buffer);
            command.arg("--dir").arg(&bench.dir).arg("--dir").arg(&second);
            start(command.args(["--", "sh", "-c", BY_DEFAULT]).current_dir(&second), "").wait()
        };
        let with = run();
        assert!(with.code == 0 && with.err.contains("1 windows took"), "{with:?}");
        let serves_first = |place: &Path| {
            fs::read(place.join("directory")).is_ok_and(|dir| dir == bench.dir.as_os_str().as_encoded_bytes())
        };
        let below = fs::read_dir(&bench.buffer).unwrap().map(|entry| entry.unwrap().path());
        let place = below.chain([bench.buffer.clone()]).find(|place| serves_first(place)).unwrap();
        let list = place.join("windows");
        fs::create_dir(place.join("windows.new")).unwrap();
        let without = run();
        let why = format!("no windows in {OWN_TMPFS}: {} cannot be", list.display());
        assert!(without.code == 0 && without.err.contains(&why), "{without:?}");
        assert!(without.out.contains(OWN_TMPFS) && without.err.contains("1 windows took"), "{without:?}");
        assert_eq!(sessions(Path::new(OWN_TMPFS)), 0, "what was begun is removed");
    });
}

#[test]
fn a_run_has_no_windows_by_itself_where_they_may_end_with_the_job() {
    in_private_namespace(|| {
        let container = Story::unnamed(false);
        assert!(ok(container.call(&["doctor"])).contains("with --window alone, for /dev/shm of a container may end"));
        assert_eq!(by_default(&container, &[], &[]), None);
        assert_eq!(by_default(&container, &["--window-memory", "64MiB"], &[]), None);
        assert!(by_default(&container, &["--window"], &[]).unwrap().starts_with(SHARED));

        // As for an ordinary user of the machine: `/dev/shm`, which a batch system may clear.
        let story = Story { rings: SHARED.into(), ..Story::unnamed(true) };
        fs::create_dir_all(Path::new(OWN_TMPFS).join("something")).unwrap();
        assert!(by_default(&story, &[], &[]).unwrap().starts_with(SHARED));
        assert_eq!(by_default(&story, &[], &[("SLURM_JOB_ID", "7")]), None);
        assert!(by_default(&story, &["--window"], &[("SLURM_JOB_ID", "7")]).unwrap().starts_with(SHARED));
    });
}
