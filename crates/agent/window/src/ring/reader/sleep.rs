//! Waiting for records.

use std::time::Duration;

use super::RingReader;
use crate::layout::{RecordState, at};
use crate::memory::Memory;
use crate::sync::Ordering::{Acquire, Release, SeqCst};
use crate::sync::fence;

impl<M: Memory> RingReader<M> {
    /// Sleeps until a record is published, at most `timeout`. May return early.
    pub fn sleep(&self, timeout: Duration) {
        if let Some(bell) = self.lie_down() {
            sleep_on(&self.ring.memory, bell, timeout);
        }
        self.get_up();
    }

    /// Asks writers to ring the bell when there is a record. Returns the argument for [`sleep_on`], or `None` if there
    /// is a record already. [`sleep_on`] needs only the ring's memory, so another thread can use the reader meanwhile.
    /// Call [`RingReader::get_up`] afterwards.
    pub fn lie_down(&self) -> Option<u32> {
        self.ring.word(at::READER_SLEEPING).store(1, Release);
        // Pairs with the fence in `Writer::publish`: either the writer sees us, or we see its record.
        fence(SeqCst);
        let bell = self.ring.word(at::RECORD_BELL).load(Acquire);
        let nothing = self.ring.state(self.cursor) != Some(RecordState::Published);
        (nothing && !self.ring.ending()).then_some(bell as u32)
    }

    /// Tells writers that they need not ring any more.
    pub fn get_up(&self) {
        self.ring.word(at::READER_SLEEPING).store(0, Release);
    }
}

/// Sleeps until the bell of the ring in `memory` is rung, at most `timeout`.
pub fn sleep_on<M: Memory>(memory: &M, bell: u32, timeout: Duration) {
    memory.sleep(at::RECORD_BELL, bell, timeout);
}
