//! What a program wrote a while ago and comes only now, out of a window: the file has the time at which it was written.

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

use global_store::calls::still_wanted;
use types::{ByteRange, Timestamp, Version};

use super::{FileHandle, Route};
use crate::api::WriteResult;
use crate::clock::wall;
use crate::replica::{self, mtime_of};

/// What a file was before such bytes came.
#[derive(Debug)]
pub struct Backdating {
    version: Option<Version>,
    changes: u64,
    mtime: Timestamp,
}

impl FileHandle {
    /// Before bytes come that were written a while ago; [`FileHandle::backdate`] when they are there. `None` where the file's time is kept
    /// elsewhere than in a replica: it stays that of their coming.
    pub fn backdating(&self) -> Option<Backdating> {
        // Who moves the file to the global store meanwhile would find a descriptor that may write.
        let _io = self.file.io.read();
        let changes = self.file.changes_now.load(Ordering::Acquire);
        let version = self.file.live.lock().version;
        let Ok(Route::Replica(replica)) = self.route(true) else { return None };
        let mtime = mtime_of(&rustix::fs::fstat(&replica).ok()?);
        Some(Backdating { version, changes, mtime })
    }

    /// They are there, and the last of them was written at `at`. What others changed meanwhile counts for more, and has the time that it
    /// has. Whoever saw the time that the file had before finds another, always.
    pub fn backdate(&self, since: &Backdating, at: Timestamp) -> io::Result<()> {
        let _io = self.file.io.write();
        let others = self.file.changes_now.load(Ordering::Acquire) != since.changes;
        if others || self.file.live.lock().version != since.version {
            return Ok(());
        }
        let Route::Replica(replica) = self.route(true)? else { return Ok(()) };
        // A time to come was set by somebody, and ends with the next write.
        let mtime = if since.mtime < wall() { at.max(since.mtime.next()) } else { at };
        if mtime < mtime_of(&rustix::fs::fstat(&replica)?) {
            replica::set_mtime(replica.as_fd(), mtime)?;
        }
        Ok(())
    }

    /// [`FileHandle::write_at`] of what was written at `at`.
    pub fn write_backdated(&self, data: &[u8], offset: u64, at: Timestamp) -> io::Result<WriteResult> {
        self.tell()?;
        let _turn = self.file.backdated.lock();
        let since = self.backdating();
        let written =
            self.write_late_with_room(data.len(), &mut |to| still_wanted().and_then(|()| to.write(data, offset)));
        self.tell_change(ByteRange::at(offset, data.len() as u64));
        written?;
        if let Some(Err(error)) = since.map(|since| self.backdate(&since, at)) {
            tracing::debug!(%error, "the time at which bytes of a window were written is lost");
        }
        Ok(WriteResult { written: data.len(), offset })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::world::World;

    fn mtime(handle: &FileHandle) -> Timestamp {
        let Ok(Route::Replica(replica)) = handle.route(false) else { panic!("no replica") };
        mtime_of(&rustix::fs::fstat(&replica).unwrap())
    }

    fn ago(time: Duration) -> Timestamp {
        let now = wall();
        Timestamp { seconds: now.seconds - time.as_secs() as i64, ..now }
    }

    #[test]
    fn what_was_written_a_while_ago_has_that_time_and_never_one_that_the_file_had() {
        let world = World::new();
        world.store.put("f", b"data");
        let handle = world.open(true, false).unwrap();
        handle.write_at(b"first", 0, false).unwrap();
        let first = mtime(&handle);
        handle.write_backdated(b"later", 0, ago(Duration::from_secs(100))).unwrap();
        assert_eq!(mtime(&handle), first.next(), "it came after what was there");
        let replica = || match handle.route(true) {
            Ok(Route::Replica(replica)) => replica,
            _ => panic!("no replica"),
        };
        replica::set_mtime(replica().as_fd(), ago(Duration::from_secs(1000))).unwrap();
        let at = ago(Duration::from_secs(50));
        handle.write_backdated(b"again", 0, at).unwrap();
        assert_eq!(mtime(&handle), at);
        let to_come = Timestamp { seconds: wall().seconds + 1000, nanos: 0 };
        handle.write_backdated(b"now", 0, to_come).unwrap();
        assert!(mtime(&handle) <= wall() && mtime(&handle) > at, "nothing is written in the time to come");
        replica::set_mtime(replica().as_fd(), to_come).unwrap();
        handle.write_backdated(b"over", 0, at).unwrap();
        assert_eq!(mtime(&handle), at, "a time to come that was set");
    }

    #[test]
    fn what_others_do_meanwhile_counts_for_more() {
        type Act = fn(&FileHandle);
        let acts: [Act; 4] = [
            |other| assert!(other.write_at(b"x", 0, false).is_ok()),
            |other| assert!(other.write_at(b"x", 0, true).is_ok()),
            |other| other.set_len(2).unwrap(),
            |other| other.fallocate(0, 0, 100).unwrap(),
        ];
        for act in acts {
            let world = World::new();
            world.store.put("f", b"data");
            let (handle, other) = (world.open(true, false).unwrap(), world.open(true, false).unwrap());
            let since = handle.backdating().unwrap();
            handle.write_acknowledged(b"window", 0).unwrap();
            let before = mtime(&handle);
            act(&other);
            handle.backdate(&since, ago(Duration::from_secs(100))).unwrap();
            assert!(mtime(&handle) >= before);
            let since = handle.backdating().unwrap();
            handle.backdate(&since, ago(Duration::from_secs(100))).unwrap();
            assert_eq!(mtime(&handle), since.mtime, "and nothing was written");
        }
    }
}
