//! Applying the model to every operation.

use fuse_protocol::{Errno, Handle};

use super::{File, SlowFs};
use crate::model::Ns;
use crate::shape::{Call, Moved};

impl SlowFs {
    /// Runs an operation and waits as long as the model says. Errors: those of a fault point or of the operation.
    pub(super) fn slowly<T>(&self, call: Call, work: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
        let begun = self.shape.now();
        self.shape.begin(call)?;
        let outcome = work();
        self.shape.wait(begun, call);
        outcome
    }

    /// Runs a read or write like [`SlowFs::slowly`]. `work` returns the number of bytes moved.
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
