//! Writes that arrive from a window some time after the program made them: the file gets the time at which they were
//! made.

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

use global_store::calls::still_wanted;
use types::{ByteRange, Timestamp, Version};

use super::{FileHandle, Route};
use crate::burst_buffer::replica::{self, mtime_of};
use crate::clock::wall;
use crate::limits::COARSE_SECONDS;
use data_store::WriteResult;

/// State of a file before backdated bytes arrive.
#[derive(Debug, Default)]
pub(super) struct Backdating {
    version: Option<Version>,
    changes: u64,
    mtime: Timestamp,
}

impl FileHandle {
    /// Prepares for bytes that were written a while ago; call [`FileHandle::backdate`] after they are written. Returns
    /// `None` if the file's time is not kept in a replica: then the time of arrival counts.
    pub(super) fn backdating(&self) -> Option<Backdating> {
        // A thread that moves the file to the global store meanwhile would find our descriptor, which may write.
        let _io = self.file.io.read();
        let changes = self.file.changes_now.load(Ordering::Acquire);
        let version = self.file.live.lock().version();
        let Ok(Route::Replica(replica)) = self.route(true) else { return None };
        let mtime = mtime_of(&rustix::fs::fstat(&replica).ok()?);
        Some(Backdating { version, changes, mtime })
    }

    /// Sets the file's time after all or some of the bytes have arrived; the last of them was written at `at`. Changes
    /// that others made meanwhile take precedence and keep their time. Any time that was visible before the bytes
    /// arrived changes, if the burst buffer can represent a new one.
    pub(super) fn backdate(&self, since: &Backdating, at: Timestamp) -> io::Result<()> {
        let _io = self.file.io.write();
        let Route::Replica(replica) = self.route(true)? else { return Ok(()) };
        let _dating = self.file.dating.lock();
        let others = self.file.changes_now.load(Ordering::Acquire) != since.changes;
        if others || self.file.live.lock().version() != since.version {
            return Ok(());
        }
        // A time in the future was set by somebody, and the next write ends it. The exception is a time that tells two
        // contents apart where times are coarse.
        let now = wall();
        let told_apart = since.mtime.seconds <= now.seconds + COARSE_SECONDS;
        let to_come = since.mtime >= now && !told_apart;
        let mtime = if to_come { at } else { at.max(since.mtime.next()) };
        let look = || rustix::fs::fstat(&replica).map(|stat| mtime_of(&stat));
        let found = look()?;
        if mtime < found || (found <= since.mtime && !to_come) {
            replica::set_mtime(replica.as_fd(), mtime)?;
            if !to_come && look()? <= since.mtime {
                // The file system keeps no time between the two.
                replica::set_mtime(replica.as_fd(), found)?;
            }
        }
        Ok(())
    }

    /// Writes like [`FileHandle::write`], with `at` as the time of the write.
    pub(super) fn write_backdated(&self, data: &[u8], offset: u64, at: Timestamp) -> io::Result<WriteResult> {
        self.tell()?;
        // A write that goes elsewhere has no such time, and waits for nobody.
        let in_replica = self.file.live.lock().is_whole();
        let _turn = in_replica.then(|| self.file.backdated.lock());
        let since = self.backdating().filter(|_| in_replica);
        let written =
            self.write_late_with_room(data.len(), &mut |to| still_wanted().and_then(|()| to.write(data, offset)));
        self.tell_change(ByteRange::at(offset, data.len() as u64));
        // A part may have been written.
        if let Some(Err(error)) = since.map(|since| self.backdate(&since, at)) {
            tracing::debug!(%error, "could not set the time at which bytes of a window were written: the file has the time of their arrival");
        }
        written?;
        Ok(WriteResult { written: data.len(), offset })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use models::DataStoreExt;
    use models::global::StoreOperation;
    use parking_lot::Mutex;
    use types::Identity;

    use super::*;
    use crate::world::World;
    use data_store::{NewTime, OpenData, Residency};

    fn mtime(handle: &FileHandle) -> Timestamp {
        let Ok(Route::Replica(replica)) = handle.route(false) else { panic!("no replica") };
        mtime_of(&rustix::fs::fstat(&replica).unwrap())
    }

    fn ago(time: Duration) -> Timestamp {
        let now = wall();
        Timestamp { seconds: now.seconds - time.as_secs() as i64, ..now }
    }

    #[test] // S37
    fn what_was_written_a_while_ago_has_that_time_and_never_one_that_the_file_had() {
        let world = World::new();
        world.store.put("f", b"data");
        let handle = world.open(true, false).unwrap();
        handle.write(b"first", 0).unwrap();
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

    #[test] // S37
    fn what_others_do_meanwhile_counts_for_more() {
        type Act = fn(&World, &FileHandle);
        let acts: [Act; 6] = [
            |_, other| assert!(other.write(b"x", 0).is_ok()),
            |_, other| assert!(other.append(b"x").is_ok()),
            |_, other| other.set_len(2).unwrap(),
            |_, other| other.fallocate(0, 0, 100).unwrap(),
            |world, _| drop(world.open(true, true).unwrap()),
            |world, _| {
                // The file cannot spill meanwhile.
                let anchor = world.store.anchor("f").unwrap();
                let time = Timestamp { seconds: wall().seconds + 1000, nanos: 0 };
                world.cache.date(&anchor, Some(NewTime::At(time)), &mut || world.store.set_mtime("f", time)).unwrap();
            },
        ];
        for (number, act) in acts.into_iter().enumerate() {
            let world = World::new();
            world.store.put("f", b"data");
            let (handle, other) = (world.open(true, false).unwrap(), world.open(true, false).unwrap());
            let since = handle.backdating().unwrap();
            handle.write_acknowledged(b"window", 0).unwrap();
            let before = mtime(&handle);
            act(&world, &other);
            handle.backdate(&since, ago(Duration::from_secs(100))).unwrap();
            assert!(mtime(&handle) >= before, "{number}");
        }
    }

    #[test] // S37
    fn a_store_that_keeps_times_coarsely_never_shows_a_changed_file_as_it_was() {
        let world = World::new();
        world.store.set_coarse();
        world.store.put("f", b"data");
        let below = || world.store.attributes("f").unwrap().fingerprint;
        world.write(b"long ago");
        assert_eq!(world.drain(), 0);
        for data in [*b"in time!", *b"too late"] {
            let before = below();
            world.open(true, false).unwrap().write_backdated(&data, 0, ago(Duration::from_secs(100))).unwrap();
            assert_eq!(world.drain(), 0);
            assert_eq!(world.store.read("f").unwrap(), data);
            assert!(below().mtime > before.mtime, "{:?} {before:?}", below());
            assert_eq!(world.state(), Residency::Clean);
        }
        // A time that a program set stays.
        let before = below();
        let handle = world.open(true, false).unwrap();
        handle.write(b"the same", 0).unwrap();
        let anchor = world.store.anchor("f").unwrap();
        let time = before.mtime;
        world.cache.date(&anchor, Some(NewTime::At(time)), &mut || world.store.set_mtime("f", time)).unwrap();
        drop(handle);
        assert_eq!(world.drain(), 0);
        assert_eq!((below().mtime, world.store.read("f").unwrap()), (time, b"the same".to_vec()));
    }

    #[test] // S37
    fn what_is_written_while_a_coarse_store_is_told_apart_is_told_apart_by_the_next_stage_out() {
        let world = World::new();
        world.store.set_coarse();
        world.store.put("f", b"data");
        let below = || world.store.attributes("f").unwrap().fingerprint;
        world.write(b"once");
        assert_eq!(world.drain(), 0);
        let before = below().mtime;
        let handle = Arc::new(world.open(true, false).unwrap());
        handle.write_backdated(b"copy", 0, ago(Duration::from_secs(100))).unwrap();
        let (writer, times) = (Arc::clone(&handle), Arc::<Mutex<Vec<Timestamp>>>::default());
        let seen = Arc::clone(&times);
        world.store.set_hook(Some(Arc::new(move |operation: &StoreOperation, _: &Identity| {
            let StoreOperation::SetMtime(time) = operation else { return };
            seen.lock().push(*time);
            // The second time set is the one that tells the copy apart.
            if seen.lock().len() == 2 {
                writer.write(b"late", 0).unwrap();
            }
        })));
        world.drain();
        world.store.set_hook(None);
        drop(handle);
        assert_eq!(world.drain(), 0);
        assert_eq!(world.store.read("f").unwrap(), b"late");
        let told_apart = times.lock().iter().copied().find(|time| time.seconds != before.seconds).unwrap();
        assert_ne!(below().mtime.seconds, told_apart.seconds, "that was the time of the copy without it");
    }

    #[test]
    fn a_time_that_a_program_gives_while_its_file_is_copied_is_its_own_also_in_a_coarse_store() {
        let world = Arc::new(World::new());
        world.store.set_coarse();
        world.store.put("f", b"data");
        let below = || world.store.attributes("f").unwrap().fingerprint.mtime;
        world.write(b"once");
        assert_eq!(world.drain(), 0);
        let before = below();
        world.write(b"more");
        let given = Timestamp { nanos: 500_000_000, ..before };
        let (inside, times) = (Arc::downgrade(&world), Arc::<Mutex<u32>>::default());
        let seen = Arc::clone(&times);
        world.store.set_hook(Some(Arc::new(move |operation: &StoreOperation, _: &Identity| {
            let StoreOperation::Write(..) = operation else { return };
            *seen.lock() += 1;
            let world = inside.upgrade().unwrap();
            let anchor = world.store.anchor("f").unwrap();
            world.cache.date(&anchor, Some(NewTime::At(given)), &mut || world.store.set_mtime("f", given)).unwrap();
        })));
        world.drain();
        world.store.set_hook(None);
        assert_eq!(world.drain(), 0);
        assert_eq!(*times.lock(), 1);
        assert_eq!((below(), world.store.read("f").unwrap()), (before, b"more".to_vec()));
    }

    #[test]
    fn what_comes_after_a_time_to_come_that_told_two_contents_apart_never_goes_back() {
        let world = World::new();
        world.store.put("f", b"data");
        let handle = world.open(true, false).unwrap();
        handle.write(b"first", 0).unwrap();
        let Ok(Route::Replica(replica)) = handle.route(true) else { panic!("no replica") };
        let told_apart = Timestamp { seconds: wall().seconds + COARSE_SECONDS, nanos: 0 };
        replica::set_mtime(replica.as_fd(), told_apart).unwrap();
        let mut last = told_apart;
        for data in [b"again", b"aGain", b"agaIn"] {
            handle.write_backdated(data, 0, ago(Duration::from_secs(100))).unwrap();
            assert_eq!(mtime(&handle), last.next());
            last = last.next();
        }
    }
}
