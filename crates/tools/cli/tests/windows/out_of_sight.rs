//! Windows on a file system that ended with its job.

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use super::*;

/// Executes the command in a remedy, as a shell would.
fn as_told(remedy: &str) -> common::Done {
    let command = remedy.split_once(": forebay ").unwrap_or_else(|| panic!("{remedy}")).1;
    let command = command.lines().next().unwrap_or_default();
    start(Command::new("sh").args(["-c", &format!("\"$0\" {command}"), env!("CARGO_BIN_EXE_forebay")]), "").wait()
}

#[test] // S38
fn windows_on_a_file_system_that_is_gone_are_given_up_by_the_command_that_the_error_names() {
    in_private_namespace(|| {
        let story = Story::new();
        std::fs::create_dir(&story.rings).unwrap();
        mount("job", &story.rings, "tmpfs", MountFlags::empty(), None).unwrap();
        story.until_both_die();
        let buffer = story.bench.buffer.to_str().unwrap();
        let forget = ["recover", buffer, "--forget-windows", story.rings.to_str().unwrap()];
        let refused = story.call(&forget);
        assert!(refused.code != 0 && refused.err.contains("replayed without this"), "{refused:?}");
        // The program may be about to die still.
        unmount(&story.rings, UnmountFlags::DETACH).unwrap();
        let checked = story.call(&["check", buffer]);
        assert!(checked.code != 0 && checked.out.contains("--forget-windows"), "{checked:?}");
        let refused = story.call(&["recover", buffer]);
        assert!(refused.code != 0 && refused.err.contains("another file system"), "{refused:?}");
        let told = as_told(&refused.err);
        assert!(
            told.code == 0 && told.err.contains("given up: what windows held there, if anything, is lost"),
            "{told:?}"
        );
        assert_eq!(story.call(&["check", buffer]).code, 0);
        let again = story.call(&forget);
        assert!(again.code != 0 && again.err.contains("knows of no windows"), "{again:?}");
    });
}

#[test] // S38
fn a_recovery_that_is_refused_gives_no_windows_up() {
    in_private_namespace(|| {
        let bench = Bench::new();
        ok(bench.run(&[], "echo a > f"));
        let (list, elsewhere) = (bench.buffer.join("windows"), bench.tree.dir("elsewhere"));
        let noted = "one durable /gone\n";
        std::fs::write(&list, noted).unwrap();
        let forget = |more: &[&Path]| {
            let words = [Path::new("recover"), &bench.buffer, "--forget-windows".as_ref(), "/gone".as_ref()];
            call(words.iter().chain(more))
        };
        let refused = |done: common::Done, why: &str| {
            assert!(done.code != 0 && done.err.contains(why) && !done.err.contains("given up"), "{done:?}");
            assert_eq!(std::fs::read_to_string(&list).unwrap(), noted);
        };
        refused(forget(&["--dir".as_ref(), &elsewhere]), "holds data of");
        refused(forget(&["--forget-windows".as_ref(), "/unknown".as_ref()]), "knows of no windows in /unknown");
        let here = std::env::current_dir().unwrap();
        let unknown = format!("knows of no windows in {}", here.join("unknown").display());
        refused(forget(&["--forget-windows".as_ref(), "unknown".as_ref()]), &unknown);
        let lock = std::fs::File::open(bench.buffer.join("forebay.lock")).unwrap();
        lock.lock().unwrap();
        refused(forget(&[]), "is in use");
        drop(lock);
        let away = bench.tree.path("away");
        std::fs::rename(&bench.dir, &away).unwrap();
        refused(forget(&[]), "cannot use");
        std::fs::rename(&away, &bench.dir).unwrap();
        std::fs::write(&list, format!("{noted}two durable /other\n")).unwrap();
        let told = forget(&[]);
        assert!(told.code != 0 && told.err.contains("/other/two is not there"), "{told:?}");
        let noted = std::fs::read_to_string(&list).unwrap();
        assert_eq!(noted.lines().count(), 2, "{noted}");
        let done = as_told(&told.err);
        assert!(
            done.code == 0 && done.err.contains("/gone/one: given up") && done.err.contains("/other/two: given up")
        );
        assert_eq!(std::fs::read_to_string(&list).unwrap(), "");
    });
}

#[test] // S38
fn windows_that_are_there_in_one_burst_buffer_keep_none_of_another_from_being_given_up() {
    in_private_namespace(|| {
        let bench = Bench::new();
        let (other, rings) = (bench.tree.dir("other"), bench.tree.dir("rings"));
        let both = ["--dir", other.to_str().unwrap()];
        ok(bench.run(&both, "echo a > f"));
        let buffers = ["data-", "other-"].map(|name| {
            let found = std::fs::read_dir(&bench.buffer).unwrap().map(|entry| entry.unwrap().path());
            found.into_iter().find(|path| path.file_name().unwrap().to_str().unwrap().starts_with(name)).unwrap()
        });
        std::fs::create_dir(rings.join("there")).unwrap();
        let note = |buffer: &Path, session: &str| {
            std::fs::write(buffer.join("windows"), format!("{session} durable {}\n", rings.display())).unwrap();
        };
        note(&buffers[0], "there");
        note(&buffers[1], "gone");
        let recover = |more: &[&Path]| {
            let words = [Path::new("recover"), &bench.buffer, "--forget-windows".as_ref(), &rings];
            call(words.iter().chain(more))
        };
        let noted = || buffers.each_ref().map(|buffer| std::fs::read(buffer.join("windows")).unwrap().len());
        // Those of a directory that nobody asked about stay.
        let refused = recover(&["--dir".as_ref(), &bench.dir]);
        assert!(refused.code != 0 && refused.err.contains("is replayed without this"), "{refused:?}");
        assert!(!refused.err.contains("given up:") && !refused.err.contains("holds data of"), "{refused:?}");
        assert!(noted().iter().all(|len| *len > 0), "{:?}", noted());
        std::fs::write(buffers[0].join("windows"), "").unwrap();
        let refused = recover(&["--dir".as_ref(), &bench.dir]);
        assert!(refused.code != 0 && refused.err.contains("knows of no windows"), "{refused:?}");
        note(&buffers[0], "there");
        let refused = recover(&[]);
        assert!(refused.code != 0 && refused.err.contains("is there, and what it holds is replayed"), "{refused:?}");
        assert!(noted()[0] > 0 && noted()[1] == 0, "{:?}", noted());
    });
}

#[test] // S38
fn nobody_gives_up_windows_in_the_directory_of_another_user() {
    in_private_namespace(|| {
        let bench = Bench::new();
        let planted = bench.tree.dir("planted");
        let made = bench.tree.path("made by root");
        std::fs::write(planted.join("windows"), "one durable /gone\n").unwrap();
        for link in ["alive", "forebay.lock", "windows.new"] {
            std::os::unix::fs::symlink(&made, planted.join(link)).unwrap();
        }
        std::os::unix::fs::chown(&planted, Some(1000), None).unwrap();
        // As an agent at a server has it, and as a burst buffer is.
        for kind in ["serves", "superblock"] {
            std::fs::write(planted.join(kind), "{}").unwrap();
            let refused = call([Path::new("recover"), &planted, "--forget-windows".as_ref(), "/gone".as_ref()]);
            assert!(refused.code != 0 && refused.err.contains("it belongs to user 1000"), "{kind}: {refused:?}");
            std::fs::remove_file(planted.join(kind)).unwrap();
        }
        assert!(!made.exists());
        assert_eq!(std::fs::read(planted.join("windows")).unwrap(), b"one durable /gone\n");
    });
}
