//! Windows on a file system that ended with its job.

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use super::*;

/// What a shell does with the command that a remedy names.
fn as_told(remedy: &str) -> common::Done {
    let command = remedy.split_once(": forebay ").unwrap_or_else(|| panic!("{remedy}")).1;
    let command = command.lines().next().unwrap_or_default();
    start(Command::new("sh").args(["-c", &format!("\"$0\" {command}"), env!("CARGO_BIN_EXE_forebay")]), "").wait()
}

#[test]
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

#[test]
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
