//! Another agent meets a delegated directory, whose holder may not come back.

use super::*;

/// Mounts the directory of a bed for another agent, at another path and with another burst buffer.
pub fn second(bed: &Bed) -> (PathBuf, PathBuf) {
    let (other, buffer) = (bed.bench.tree.dir("other"), bed.bench.tree.dir("bb2"));
    bind(&bed.below, &other);
    let mut command = forebay();
    command.arg("mount").arg(&other).arg("--burst-buffer").arg(&buffer).args(["--policy", "remote_wait=1s"]);
    ok(start(&mut command, "").wait());
    (other, buffer)
}

fn is_timed_out(dir: &Path) -> bool {
    fs::read_dir(dir).is_err_and(|error| error.raw_os_error() == Some(libc::ETIMEDOUT))
}

#[test] // S71
fn another_agent_waits_is_told_who_holds_a_directory_and_goes_on_after_a_drain() {
    in_private_namespace(|| {
        let bed = Bed::new();
        let _mounted = bed.mount();
        bed.ours(["d/file"]);
        // A file that is open for writing keeps its directory delegated.
        let open = fs::OpenOptions::new().append(true).open(bed.path("d/file")).unwrap();
        let (other, buffer) = second(&bed);
        assert!(is_timed_out(&other.join("d")));
        let log = fs::read_to_string(buffer.join("agent.log")).unwrap();
        has(&log, &["a directory is delegated to another agent", bed.bench.buffer.to_str().unwrap()]);
        let refused = call([Path::new("undelegate"), &other.join("d"), "--force".as_ref()]);
        assert!(refused.code == 69 && refused.err.contains("to an agent that works here"), "{refused:?}");
        drop(open);
        ok(bed.drain());
        assert_eq!(fs::read_to_string(other.join("d/file")).unwrap(), "ours");
        ok(call([Path::new("umount"), &other]));
        ok(bed.umount());
    });
}

#[test] // S71
fn the_delegation_of_a_holder_that_does_not_come_back_is_ended_and_its_burst_buffer_is_not_forgotten() {
    in_private_namespace(|| {
        let bed = Bed::new();
        let mounted = bed.mount();
        bed.ours(["d/file"]);
        wait_until("the directory says how many names wait", BOUND, || {
            rustix::fs::getxattr(bed.below.join("d"), WAITING, &mut [0; 20][..]).is_ok()
        });
        bed.crash(&mounted);
        let (other, _) = second(&bed);
        let d = other.join("d");
        let waits = call([Path::new("undelegate"), &d]);
        assert_eq!(waits.code, 75, "{waits:?}");
        has(&waits.err, &["2 names wait there", "to bring them: forebay recover ", "--force"]);
        let lost = bed.bench.tree.path("lost");
        fs::rename(&bed.bench.buffer, &lost).unwrap();
        let unknown = call([Path::new("undelegate"), &d]);
        assert_eq!(unknown.code, 69, "{unknown:?}");
        has(
            &unknown.err,
            &[
                "is delegated: host ",
                bed.bench.buffer.to_str().unwrap(),
                "is not known here; when that was last noted, 2 names wait",
                "--force",
            ],
        );
        assert!(is_timed_out(&d));
        has(&ok(call([Path::new("undelegate"), &d, "--force".as_ref()])), &["is not delegated any more"]);
        assert_eq!(
            rustix::fs::getxattr(bed.below.join("d"), WAITING, &mut [0; 20][..]),
            Err(rustix::io::Errno::NODATA)
        );
        fs::write(d.join("theirs"), "theirs").unwrap();
        ok(call([Path::new("umount"), &other]));
        assert_eq!(call([Path::new("undelegate"), &bed.below.join("d")]).code, 66);
        // The burst buffer comes back after all.
        fs::rename(&lost, &bed.bench.buffer).unwrap();
        let recovered = bed.recover();
        assert!(recovered.code == 75 && recovered.err.contains("not marked as ours any more"), "{recovered:?}");
        let saved = ok(bed.resolve(bed.path("d"), "both"));
        assert_eq!(fs::read_to_string(Path::new(saved.trim()).join("file")).unwrap(), "ours");
        ok(bed.recover());
        assert_eq!(bed.read("d/theirs"), "theirs");
    });
}

#[test] // S71
fn a_delegation_of_which_nothing_waits_here_is_ended_without_a_question() {
    in_private_namespace(|| {
        let bed = Bed::new();
        let mounted = bed.mount();
        bed.ours(["d/file"]);
        let mark = {
            let mut value = vec![0; 4096];
            let bytes = rustix::fs::getxattr(bed.below.join("d"), MARK, &mut value[..]).unwrap();
            value.truncate(bytes);
            value
        };
        ok(bed.drain());
        ok(bed.umount());
        drop(mounted);
        rustix::fs::setxattr(bed.below.join("d"), MARK, &mark, XattrFlags::CREATE).unwrap();
        has(&ok(call([Path::new("undelegate"), &bed.below.join("d")])), &["its holder was host "]);
        assert_eq!(rustix::fs::getxattr(bed.below.join("d"), MARK, &mut [0; 4096][..]), Err(rustix::io::Errno::NODATA));
    });
}
