//! Tests of windows whose records a full burst buffer does not accept.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use types::HasErrno;

use types::Timestamp;

use super::*;
use data_store::NewTime;
use windows::testing::WindowedFile;

use crate::NewAttributes;

const PART: usize = 50_000;

/// A file whose records cannot be applied. `acknowledged` parts were acknowledged, each filled with its number.
struct Stuck {
    open: Option<OpenFile>,
    stand: Option<Stand>,
    acknowledged: usize,
    filler: PathBuf,
    tree: TempTree,
}

impl Stuck {
    fn new() -> Stuck {
        let tree = TempTree::new();
        let filler = tree.mount_tmpfs("buffer", 64 << 20).join("filler");
        let stand = Stand::new(tree.root(), &["stage_out=manual"]);
        let open = stand.windowed("file");
        let window = stand.attach(&open);
        // As the FUSE door does: the kernel has the replica, so writes cannot continue in the global store.
        assert!(open.use_passthrough());
        std::fs::write(&filler, vec![1; 16 << 20]).unwrap();
        let mut acknowledged = 0;
        while window.append((acknowledged * PART) as u64, &[acknowledged as u8; PART]).is_ok() {
            acknowledged += 1;
            assert!(acknowledged * PART < 64 << 20, "more than there is room for");
        }
        assert!(window.is_revoked(), "its program would wait for room in vain");
        let refused = stand.agent.write(&open, b"x", 0, WriteHow::default()).unwrap_err();
        assert_eq!(refused.errno(), Some(libc::ENOSPC), "its program is told");
        Stuck { tree, filler, stand: Some(stand), open: Some(open), acknowledged }
    }

    fn stand(&self) -> &Stand {
        self.stand.as_ref().unwrap()
    }

    fn open(&self) -> &OpenFile {
        self.open.as_ref().unwrap()
    }

    /// Returns the file's expected content after truncation to each of `lengths` in turn.
    fn expected(&self, lengths: &[usize]) -> Vec<u8> {
        let mut bytes: Vec<u8> = (0..self.acknowledged).flat_map(|number| [number as u8; PART]).collect();
        lengths.iter().for_each(|len| bytes.resize(*len, 0));
        bytes
    }

    fn make_room(&self) {
        std::fs::remove_file(&self.filler).unwrap();
    }

    fn is_stuck(&self) -> bool {
        let again = self.stand().agent.write(self.open(), b"", 0, WriteHow::default());
        again.is_err_and(|error| error.errno() == Some(libc::ENOSPC))
    }

    /// Returns a length within the last acknowledged part.
    fn cut(&self) -> u64 {
        (self.acknowledged * PART - PART - 7) as u64
    }

    /// Kills the agent after it has recorded a truncation and before it makes it. Returns false if there was room
    /// again, because the catalogue released some: then no truncation was recorded.
    fn dies_in_cut(&mut self) -> bool {
        let windows = Arc::clone(self.stand().agent.windows.get().unwrap());
        let identity = self.open().node().identity();
        let mut dies = || -> io::Result<()> { panic!("here the agent is killed") };
        assert!(catch_unwind(AssertUnwindSafe(|| windows.cut(identity, self.cut(), &mut dies))).is_err());
        let window = WindowedFile::of(&windows, identity);
        drop(windows);
        self.end();
        // Unlike a killed agent, this one has applied as many records as it could.
        window.is_some_and(|window| window.is_cut())
    }

    fn end(&mut self) {
        let windows = self.stand().agent.windows.get().map(Arc::downgrade).unwrap();
        (self.open, self.stand) = (None, None);
        wait_until("its threads end", PATIENCE, || windows.strong_count() == 0);
    }

    /// Starts another agent, with room in the burst buffer.
    fn start(&mut self) {
        self.make_room();
        self.stand = Some(Stand::new(self.tree.root(), &["stage_out=manual"]));
        self.open = Some(self.stand().unannounced("file", WRITE));
    }
}

#[test] // S38
fn a_window_that_cannot_be_drained_ends_and_what_it_holds_comes_when_there_is_room() {
    in_private_namespace(|| {
        let stuck = Stuck::new();
        let (stand, open) = (stuck.stand(), stuck.open());
        assert_eq!(stand.control(open, Control::new(Command::Attach, 0)), Err(libc::EAGAIN));
        stuck.make_room();
        assert!(stand.content(open) == stuck.expected(&[]));
        assert!(!stuck.is_stuck());
        stand.attach(open).append(0, b"again").unwrap();
    });
}

#[test] // S37
fn a_file_whose_window_cannot_be_drained_is_read_counted_and_cut_as_ever() {
    in_private_namespace(|| {
        let stuck = Stuck::new();
        let (stand, open, len) = (stuck.stand(), stuck.open(), stuck.acknowledged * PART);
        assert!(stand.content(open) == stuck.expected(&[]), "with what only the ring holds");
        let mut bytes = [9; 100];
        assert_eq!(open.read(&mut bytes, len as u64 - 30).unwrap(), 30);
        assert_eq!(open.read(&mut bytes, len as u64).unwrap(), 0);
        let set = |new| stand.agent.set_attributes(&Caller::own(), open.node(), None, &new, &|| false);
        set(NewAttributes { mode: Some(0o600), ..NewAttributes::default() }).unwrap();
        let time = NewTime::At(Timestamp { seconds: 1_000_000_000, nanos: 0 });
        let old = NewAttributes { mtime: Some(time), ..NewAttributes::default() };
        assert_eq!(
            set(old).map(drop).unwrap_err().errno(),
            Some(libc::ENOSPC),
            "what is drained later would set another"
        );
        // The file grows, then shrinks a little; most records are still pending.
        let shorter = len - PART / 2;
        open.set_len(len as u64 + 10).unwrap();
        assert!(stand.content(open) == stuck.expected(&[len + 10]));
        set(NewAttributes { size: Some(shorter as u64), ..NewAttributes::default() }).unwrap();
        assert!(stand.content(open) == stuck.expected(&[shorter]));
        assert!(stuck.is_stuck());
        assert_eq!(stand.control(open, Control::new(Command::Off, 0)), Err(libc::ENOSPC), "it is told");
        // The rest fits.
        open.set_len(PART as u64 + 10).unwrap();
        assert!(!stuck.is_stuck());
        assert_eq!(set(old).unwrap().mtime.seconds, 1_000_000_000);
        assert!(stand.content(open) == stuck.expected(&[PART + 10]));
        stand.agent.write(open, b"!", 3 * PART as u64, WriteHow::default()).unwrap();
        assert!(stand.content(open)[PART + 10..3 * PART].iter().all(|byte| *byte == 0));
    });
}

#[test] // S37
fn a_file_whose_window_cannot_be_drained_is_emptied_by_an_open() {
    in_private_namespace(|| {
        let stuck = Stuck::new();
        let again = stuck.stand().unannounced("file", Mode { truncate: true, ..WRITE });
        assert!(!stuck.is_stuck());
        assert_eq!(stuck.stand().content(&again), b"");
    });
}

#[test] // S37
fn a_removed_file_takes_what_could_not_be_drained_with_it() {
    in_private_namespace(|| {
        let mut stuck = Stuck::new();
        let agent = Arc::clone(&stuck.stand().agent);
        agent.unlink(&Caller::own(), agent.root(), "file".as_ref()).unwrap();
        assert!(stuck.stand().content(stuck.open()) == stuck.expected(&[]), "as long as somebody has it open");
        let node = Arc::clone(stuck.open().node());
        stuck.open = None;
        wait_until("its end", PATIENCE, || !agent.is_windowed(&node));
        let buffer = stuck.tree.path("buffer");
        let free = || rustix::fs::statvfs(&buffer).map_or(0, |space| space.f_bavail * space.f_frsize);
        wait_until("room", PATIENCE, || free() > 40 << 20);
    });
}

#[test] // S38
fn what_was_cut_off_while_it_could_not_be_drained_stays_away_after_a_restart() {
    in_private_namespace(|| {
        for killed_before in [false, true] {
            let mut stuck = Stuck::new();
            if killed_before {
                while !stuck.dies_in_cut() {
                    stuck = Stuck::new();
                }
            } else {
                stuck.open().set_len(stuck.cut()).unwrap();
                stuck.open().set_len(stuck.cut() + 20).unwrap();
                stuck.end();
            }
            let cut = stuck.cut() as usize;
            stuck.start();
            let expected = if killed_before { stuck.expected(&[cut]) } else { stuck.expected(&[cut, cut + 20]) };
            let content = stuck.stand().content(stuck.open());
            let differs = content.iter().zip(&expected).position(|(one, other)| one != other);
            let lengths = (content.len(), expected.len());
            assert!(content == expected, "killed before: {killed_before}, {lengths:?}, first difference {differs:?}");
        }
    });
}
