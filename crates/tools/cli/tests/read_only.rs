//! A burst buffer that becomes read-only under a mount: what programs meet, and what they are told.

mod mounted;

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;

use mounted::{BOUND, Place};
use testkit::{in_private_namespace, wait_until};

#[test] // S52
fn programs_go_on_when_the_burst_buffer_becomes_read_only_and_are_told_what_to_do() {
    in_private_namespace(|| {
        let Some((place, disk)) = Place::with_disk() else { return };
        let (dir, below) = (place.dir.clone(), place.below());
        fs::write(dir.join("old"), "old").unwrap();
        fs::write(dir.join("kept"), "kept").unwrap();
        let agent = place.mount(&["stage_out=manual"]);
        // The kernel reads and writes these.
        assert_eq!(fs::read_to_string(dir.join("old")).unwrap(), "old");
        fs::write(dir.join("dirty"), "dirty").unwrap();
        let mut reader = File::open(dir.join("kept")).unwrap();
        let writer = File::create(dir.join("open")).unwrap();
        writer.write_all_at(b"before", 0).unwrap();
        disk.become_read_only();

        assert_eq!(writer.write_all_at(b"after", 6).unwrap_err().raw_os_error(), Some(libc::EROFS));
        fs::write(dir.join("new"), "new").unwrap();
        assert_eq!(fs::read_to_string(below.join("new")).unwrap(), "new");
        let mut changed = OpenOptions::new().append(true).open(dir.join("old")).unwrap();
        changed.write_all(b" and new").unwrap();
        assert_eq!(fs::read_to_string(below.join("old")).unwrap(), "old and new");
        assert_eq!(fs::read_to_string(dir.join("old")).unwrap(), "old and new");
        assert_eq!(fs::read_to_string(dir.join("dirty")).unwrap(), "dirty");
        let mut kept = String::new();
        reader.read_to_string(&mut kept).unwrap();
        assert_eq!(kept, "kept");
        let refused = OpenOptions::new().write(true).open(dir.join("kept")).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EROFS), "its reader would not see what is written");
        drop((writer, reader, changed));

        let status = place.forebay(&["status"], &[]).text;
        let buffer = place.burst_buffer.to_str().unwrap();
        let which = "forebay resolve PATH --keep global";
        for part in ["it takes no writes: Read-only file system", buffer, "mend its file system", which] {
            assert!(status.contains(part), "no `{part}` in:\n{status}");
        }
        // Without being asked: it may go with the file system.
        wait_until("the stage-out", BOUND, || {
            fs::read_to_string(below.join("dirty")).is_ok_and(|found| found == "dirty")
        });
        let drained = agent.drain();
        assert_eq!(drained.code, 75, "{drained:?}");
        for (name, data) in [("dirty", "dirty"), ("open", "before")] {
            assert_eq!(fs::read_to_string(below.join(name)).unwrap(), data);
            let told = format!("{}: ", dir.join(name).display());
            assert!(drained.text.contains(&told), "no `{told}` in {drained:?}");
        }
        assert!(drained.text.contains("what can be read of it is in the global store"), "{drained:?}");

        // Ended by force, for dirty files stay; mended; begun again.
        let ended = place.forebay(&["umount", "--force", dir.to_str().unwrap()], &[]);
        assert!(!place.is_mounted(), "{ended:?}");
        let mut agent = agent;
        wait_until("the end of the agent", BOUND, || agent.has_ended());
        drop(agent);
        disk.mend();
        let agent = place.mount(&[]);
        assert_eq!(fs::read_to_string(dir.join("old")).unwrap(), "old and new");
        assert_eq!(fs::read_to_string(dir.join("new")).unwrap(), "new");
        fs::write(dir.join("next"), "next").unwrap();
        agent.drain();
        assert_eq!(fs::read_to_string(below.join("next")).unwrap(), "next");
        assert_eq!(fs::read_to_string(below.join("dirty")).unwrap(), "dirty");
    });
}
