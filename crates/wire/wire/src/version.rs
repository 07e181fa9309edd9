//! Negotiation of the protocol version.
//!
//! The frames of a handshake are the same in every version, so that two programs can always state what they speak.

/// Oldest version that this program speaks. All handshake frames carry it in the header.
pub const VERSION_MIN: u16 = 1;

/// Newest version that this program speaks.
pub const VERSION_MAX: u16 = 1;

/// The versions that a program speaks, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Versions {
    /// Oldest version.
    pub min: u16,
    /// Newest version.
    pub max: u16,
}

impl Versions {
    /// Versions of this program.
    pub const OURS: Versions = Versions { min: VERSION_MIN, max: VERSION_MAX };

    /// Returns the newest version that both speak, or `None` if there is none.
    pub fn agree(self, other: Versions) -> Option<u16> {
        let (min, max) = (self.min.max(other.min), self.max.min(other.max));
        (min <= max).then_some(max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_common_version_is_agreed_and_none_where_there_is_none() {
        let speaks = |min, max| Versions { min, max };
        assert_eq!(speaks(1, 3).agree(speaks(2, 5)), Some(3));
        assert_eq!(speaks(2, 2).agree(speaks(1, 9)), Some(2));
        assert_eq!(speaks(1, 1).agree(speaks(2, 3)), None);
        assert_eq!(speaks(3, 1).agree(speaks(1, 3)), None, "a range that is none");
    }
}
