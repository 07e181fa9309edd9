//! The dirty files whose replicas lack their identity attribute.

use std::collections::BTreeSet;
use std::ops::Bound;

use types::Identity;

use crate::limits::IDENTITY_ATTRIBUTES_ROUND;

/// Dirty files whose replicas have no identity attribute, or an outdated one. At most as many as there are dirty
/// files, plus those that became clean since the last round.
#[derive(Default)]
pub(crate) struct Unmarked {
    pub(crate) files: BTreeSet<Identity>,
    /// The file tried last: the next round continues behind it.
    tried: Option<Identity>,
}

impl Unmarked {
    pub(crate) fn next(&mut self) -> Vec<Identity> {
        let from = self.tried.clone().map_or(Bound::Unbounded, Bound::Excluded);
        let rest = self.files.range((from, Bound::Unbounded));
        let next: Vec<Identity> = rest.take(IDENTITY_ATTRIBUTES_ROUND).cloned().collect();
        // The last file is followed by the first.
        self.tried = next.last().filter(|_| next.len() == IDENTITY_ATTRIBUTES_ROUND).cloned();
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_of_more_than_a_round_takes_has_its_turn() {
        let mut unmarked = Unmarked::default();
        let file = |number: usize| Identity::new(number.to_be_bytes()).unwrap();
        unmarked.files.extend((0..IDENTITY_ATTRIBUTES_ROUND + 3).map(file));
        let rounds: Vec<_> = (0..3).map(|_| unmarked.next()).collect();
        assert_eq!(
            rounds.iter().map(Vec::len).collect::<Vec<_>>(),
            [IDENTITY_ATTRIBUTES_ROUND, 3, IDENTITY_ATTRIBUTES_ROUND]
        );
        assert_eq!((&rounds[1][0], &rounds[2][0]), (&file(IDENTITY_ATTRIBUTES_ROUND), &file(0)));
        assert_eq!(Unmarked::default().next(), []);
    }
}
