//! How every operation gets its time.

use fuse_protocol::{Errno, Handle};

use super::{File, SlowFs};
use crate::model::Ns;
use crate::shape::{Call, Moved};

impl SlowFs {
    /// Does it, and lets it last; or fails it, at a fault point.
    pub(super) fn slowly<T>(&self, call: Call, work: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
        let begun = self.shape.now();
        self.shape.begin(call)?;
        let outcome = work();
        self.shape.wait(begun, call);
        outcome
    }

    /// As [`SlowFs::slowly`], for what moves as many bytes as it returns.
    pub(super) fn moving(
        &self,
        call: Call,
        (handle, offset): (Handle, u64),
        work: impl FnOnce(&File) -> Result<usize, Errno>,
    ) -> Result<usize, Errno> {
        let begun: Ns = self.shape.now();
        self.shape.begin(call)?;
        let file = self.files.get(handle)?;
        let outcome = work(&file);
        let bytes = *outcome.as_ref().unwrap_or(&0) as u64;
        let moved = Moved { file: file.id, handle, client: file.client, offset, bytes };
        self.shape.wait_for(begun, call, moved);
        outcome
    }
}
