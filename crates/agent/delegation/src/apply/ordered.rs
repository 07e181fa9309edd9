//! An apply whose names appear in the order of the log's stamps.

use super::Run;
use crate::state::NodeNumber;

impl Run<'_> {
    /// Whether names must not be changed any more, because an earlier node is stuck.
    pub(super) fn is_halted(&self) -> bool {
        self.request.strict && !self.report.stuck.is_empty()
    }

    /// Brings nodes to the store by their order. New files are made by many threads, and get their names one by one.
    pub(super) fn bring_in_order(&mut self, order: &[NodeNumber]) {
        for some in order.chunks(self.round_nodes()) {
            self.make_hidden_files(some);
            for number in some {
                if self.is_halted() || !self.may_begin() {
                    return;
                }
                if self.item(*number).is_tombstone() {
                    self.remove_in_order(*number);
                } else {
                    // The report has the error.
                    let _ = self.settle(*number);
                }
            }
            self.sync_some();
        }
    }

    /// Makes those of some nodes that are new files, under hidden names, and notes the names that they will get.
    fn make_hidden_files(&mut self, numbers: &[NodeNumber]) {
        let mut jobs = Vec::new();
        for number in numbers {
            let item = self.item(*number);
            if item.identity.is_some() || item.is_tombstone() || item.is_directory() {
                continue;
            }
            if self.is_halted() || !self.may_begin() {
                return;
            }
            match self.begin(*number) {
                Ok(job) => jobs.extend(job),
                Err(error) => self.give_up(*number, &error),
            }
        }
        for number in self.carry_out_durably(jobs) {
            let names = self.item(number).state.names.clone();
            if let Err(error) = self.note(number, &names) {
                self.give_up(number, &error);
            }
        }
    }

    /// Removes what is no directory from the store. Directories are removed in the end, when they are empty.
    fn remove_in_order(&mut self, number: NodeNumber) {
        if self.item(number).is_directory() {
            return;
        }
        match self.remove_below(number) {
            Ok(()) => self.removed(number),
            Err(error) => self.stuck(number, &error),
        }
    }
}
