//! When a file is staged out, as its policy says.

use std::sync::Arc;
use std::time::Duration;

use config::{Cache, StageOut};

use crate::cache::Inner;
use crate::residency::File;

impl Inner {
    /// Queues the stage-out of a dirty file that nobody is writing any more, as its policy says.
    pub(crate) fn schedule_stage_out(&self, file: &Arc<File>) {
        let (policy, since) = file.peek(|live| (Arc::clone(&live.policy), live.dirty_since));
        if policy.cache == Cache::Scratch {
            return;
        }
        match policy.stage_out {
            StageOut::Close => self.queue.push(file, Duration::ZERO),
            StageOut::Idle(wait) => {
                self.queue.remove(file);
                self.queue.push(file, self.now().saturating_add(wait));
            }
            StageOut::Age(wait) => self.queue.push(file, since.saturating_add(wait)),
            StageOut::Size(limit) => self.gather(file, limit),
            StageOut::Manual | StageOut::Exit => {}
        }
    }

    fn gather(&self, file: &Arc<File>, limit: u64) {
        let Some(version) = file.live.lock().version() else { return };
        let bytes = self.replicas.stat(version).map_or(0, |stat| stat.st_size as u64);
        let due = {
            let mut gathering = self.gathering.closed.lock();
            if gathering.1.iter().any(|known| Arc::ptr_eq(known, file)) {
                return;
            }
            gathering.0 += bytes;
            gathering.1.push(Arc::clone(file));
            if gathering.0 <= limit { Vec::new() } else { std::mem::take(&mut *gathering).1 }
        };
        due.iter().for_each(|file| self.queue.push(file, Duration::ZERO));
    }

    /// Counts the growth of files under `stage_out=size:N` that are open for writing like that of closed ones, for a
    /// job may keep its file open until its end.
    pub(crate) fn look_after_growing(&self) {
        let mut growing = std::mem::take(&mut *self.gathering.growing.lock());
        growing.sort_unstable_by_key(Arc::as_ptr);
        growing.dedup_by(|one, other| Arc::ptr_eq(one, other));
        let (mut grown, mut least) = (0, u64::MAX);
        growing.retain(|file| {
            let (copied, limit) = {
                let live = file.live.lock();
                match live.policy.stage_out {
                    StageOut::Size(limit) if live.is_written() && live.is_unclean() => (live.copies.bytes, limit),
                    _ => return false,
                }
            };
            let size = self.replica_size(file);
            (grown, least) = (grown + size.saturating_sub(copied), least.min(limit));
            true
        });
        let closed = {
            let mut gathering = self.gathering.closed.lock();
            let due = grown > 0 && grown + gathering.0 > least;
            due.then(|| std::mem::take(&mut *gathering).1)
        };
        if let Some(closed) = closed {
            closed.iter().chain(&growing).for_each(|file| self.queue.push(file, Duration::ZERO));
        }
        self.gathering.growing.lock().append(&mut growing);
    }
}
