//! Failed stage-outs of a file: what programs and operators are told.

use crate::errors::Trouble;

#[derive(Debug, Default)]
pub(crate) struct Told {
    /// Number and errno of the last failed stage-out.
    pub(crate) error: (u64, i32),
    /// Whether the error was reported under this number already, and nothing succeeded since.
    pub(crate) failing: bool,
    pub(crate) failures: u32,
    /// Reason of the last failure, for status and commands.
    pub(crate) trouble: Option<Trouble>,
    /// Number of stage-outs in a row that found the file mapped after its last close.
    mapped: u32,
}

impl Told {
    /// Notes a failed stage-out. The same error several times in a row counts as one.
    pub(crate) fn fail(&mut self, errno: i32, trouble: Option<Trouble>) {
        if !self.failing || self.error.1 != errno {
            self.error = (self.error.0 + 1, errno);
        }
        self.failing = true;
        self.failures = self.failures.saturating_add(1);
        self.trouble = trouble;
    }

    pub(crate) fn succeed(&mut self) {
        (self.failing, self.failures, self.trouble) = (false, 0, None);
    }

    /// Notes whether a stage-out found the file mapped. Returns how many did so in a row.
    pub(crate) fn meet_mapping(&mut self, mapped: bool) -> u32 {
        self.mapped = if mapped { self.mapped + 1 } else { 0 };
        self.mapped
    }
}
