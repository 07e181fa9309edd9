//! How much is known of the bytes of a replica, by comparisons and by stage-outs.

/// Whether a replica has the bytes of the checksums that were made of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Compared {
    #[default]
    No,
    /// The last agent ended in order, and nobody has compared a dirty replica with the checksums of that end yet.
    AwaitsEnd,
    /// A comparison was not necessary, or found no difference.
    Yes,
}

impl Compared {
    /// Ends the wait for the comparison. Returns whether there was one.
    pub(crate) fn end(&mut self) -> bool {
        let awaits = *self == Compared::AwaitsEnd;
        if awaits {
            *self = Compared::No;
        }
        awaits
    }
}

#[derive(Debug, Default)]
pub(crate) struct Copies {
    /// First bytes of the replica that nobody can have changed since they were summed.
    pub(crate) untouched: Untouched,
    /// Size of the replica at the last stage-out, or when it was clean.
    pub(crate) bytes: u64,
    /// Value of `Live::changes` when all bytes were found on the global copy, which could not be recorded.
    pub(crate) unrecorded: Option<u64>,
}

impl Copies {
    /// Notes an intent. `size`: that of a replica that was clean before.
    pub(crate) fn intended(&mut self, size: Option<u64>) {
        self.bytes = size.unwrap_or(0);
        match size {
            Some(size) => self.untouched = Untouched::all(size),
            // The checksums are gone.
            None => (self.untouched.bytes, self.untouched.since) = (0, 0),
        }
    }

    /// Notes a verified copy of `size` bytes.
    pub(crate) fn concluded(&mut self, size: u64) {
        self.untouched.end();
        (self.bytes, self.unrecorded) = (size, None);
    }
}

/// The first bytes of a replica that certainly equal those of its checksums. A program that writes without the agent
/// tells by its open flags whether it only appends.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Untouched {
    bytes: u64,
    /// Number of such bytes for the checksums of the stage-out that began last.
    since: u64,
    wild: bool,
}

impl Default for Untouched {
    /// No byte is known to be unchanged.
    fn default() -> Untouched {
        Untouched { bytes: 0, since: 0, wild: true }
    }
}

impl Untouched {
    /// All `size` bytes of the replica equal those of the checksums, and nobody writes it.
    pub(crate) fn all(size: u64) -> Untouched {
        Untouched { bytes: size, since: size, wild: false }
    }

    /// Notes that somebody may write anywhere, for as long as anybody writes.
    pub(crate) fn wild(&mut self) {
        *self = Untouched::default();
    }

    /// Notes a change at `offset`, and possibly behind it.
    pub(crate) fn touch(&mut self, offset: u64) {
        (self.bytes, self.since) = (self.bytes.min(offset), self.since.min(offset));
    }

    /// Begins a stage-out of `size` bytes. `quiet`: nobody writes. Returns how many first bytes need not be compared.
    pub(crate) fn begin(&mut self, size: u64, quiet: bool) -> u64 {
        self.wild &= !quiet;
        self.since = if self.wild { 0 } else { size };
        self.bytes.min(size)
    }

    /// Ends a stage-out: its checksums are those of the replica from now on.
    pub(crate) fn end(&mut self) {
        self.bytes = self.since;
    }
}
