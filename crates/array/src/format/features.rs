//! Feature flags: features a program must know to read a pool, or to write it.

use std::fmt;

/// Features a pool uses. An unknown bit of `compatible` has no effect; of `read_only` it forbids writing; of
/// `incompatible` it forbids opening the pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// May be ignored.
    pub compatible: u64,
    /// Must be known to write.
    pub read_only: u64,
    /// Must be known to read.
    pub incompatible: u64,
}

/// The pool should keep room for a lost drive (`sparing`).
pub const COMPATIBLE_SPARING_SINGLE: u64 = 1 << 0;
/// And for a second one.
pub const COMPATIBLE_SPARING_DOUBLE: u64 = 1 << 1;
/// Drives should be divided into failure sets, as soon as they are enough.
pub const COMPATIBLE_SETS: u64 = 1 << 2;
/// The number of the pool's format level, from level 2 on (`level`).
pub const COMPATIBLE_LEVEL: u64 = 0xff << 8;
/// Segments of class raid5, raid6 or raid50 exist: writers must maintain parity.
pub const READ_ONLY_PARITY: u64 = 1 << 0;
/// Rows of branches have their highest stamp: writers must keep it. Without this it is not known.
pub const READ_ONLY_BRANCH_STAMPS: u64 = 1 << 1;
/// Branches with a parent exist, or volumes that a rollback left.
pub const INCOMPATIBLE_BRANCHES: u64 = 1 << 0;
/// Compressed blocks exist.
pub const INCOMPATIBLE_COMPRESSION: u64 = 1 << 1;
/// Encrypted blocks exist.
pub const INCOMPATIBLE_ENCRYPTION: u64 = 1 << 2;
/// Shared blocks exist: indirect locations.
pub const INCOMPATIBLE_SHARED_BLOCKS: u64 = 1 << 3;

/// The catalogue has a row with the progress of a scrub.
pub const INCOMPATIBLE_SCRUB: u64 = 1 << 4;
/// A drive is joining, or has withdrawn: it has no vote.
pub const INCOMPATIBLE_JOINING: u64 = 1 << 5;
/// History is keyed by pivots.
pub const INCOMPATIBLE_PIVOTS: u64 = 1 << 6;
/// A drive is leaving: it gets no new data.
pub const INCOMPATIBLE_LEAVING: u64 = 1 << 7;
/// Room for a lost drive is kept out of what hosts can use.
pub const INCOMPATIBLE_SPARE_FIRST: u64 = 1 << 8;
/// A branch is being filled from its parent.
pub const INCOMPATIBLE_FILLING: u64 = 1 << 9;
/// A volume is in a group, or an operation on a group is not complete.
pub const INCOMPATIBLE_GROUPS: u64 = 1 << 10;
/// A point has a note.
pub const INCOMPATIBLE_NOTES: u64 = 1 << 11;
/// A cut over several pools is not settled.
pub const INCOMPATIBLE_CUTS: u64 = 1 << 12;
/// Room for a second lost drive is kept out, too.
pub const INCOMPATIBLE_SPARE_SECOND: u64 = 1 << 13;
/// A member's row names its failure domain: copies of a segment lie in different ones, as far as there is room.
pub const INCOMPATIBLE_DOMAINS: u64 = 1 << 14;
/// A member's row names its failure set: copies of a segment lie in one, as far as there is room.
pub const INCOMPATIBLE_SETS: u64 = 1 << 15;
/// The row of a group, or of an operation on one, names several pools.
pub const INCOMPATIBLE_SHARED_GROUPS: u64 = 1 << 16;
/// A volume is withheld from clients.
pub const INCOMPATIBLE_WITHHOLDING: u64 = 1 << 17;
/// The catalogue has rows of the site that serves the pool.
pub const INCOMPATIBLE_SITE: u64 = 1 << 18;
/// A branch is that of a replica: hosts must not write it.
pub const INCOMPATIBLE_REPLICAS: u64 = 1 << 19;
/// The catalogue has records of DR groups.
pub const INCOMPATIBLE_REPLICATION: u64 = 1 << 20;
/// A volume is being imported: blocks that it has no version of are those of a source elsewhere.
pub const INCOMPATIBLE_IMPORTS: u64 = 1 << 21;

/// Access to a pool permitted by the features a program knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeatureAccess {
    Full,
    /// Carries the unknown bits of `read_only`.
    ReadOnly(u64),
    /// Carries the unknown bits of `incompatible`.
    None(u64),
}

impl Features {
    /// Access permitted to a program that knows `known`.
    pub fn access(self, known: Self) -> FeatureAccess {
        let to_read = self.incompatible & !known.incompatible;
        let to_write = self.read_only & !known.read_only;
        match (to_read, to_write) {
            (0, 0) => FeatureAccess::Full,
            (0, unknown) => FeatureAccess::ReadOnly(unknown),
            (unknown, _) => FeatureAccess::None(unknown),
        }
    }
}

impl fmt::Display for FeatureAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => f.write_str("all features are known"),
            Self::ReadOnly(bits) => {
                write!(f, "read only: features {bits:#x} are not known; use a newer program to write")
            }
            Self::None(bits) => {
                write!(f, "not readable: features {bits:#x} are not known; use a newer program")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_feature_costs_what_its_kind_says() {
        let known = Features { compatible: 0, read_only: 1, incompatible: 0b11 };
        let access = |compatible, read_only, incompatible| {
            Features { compatible, read_only, incompatible }.access(known)
        };
        assert_eq!(access(u64::MAX, 0, 0), FeatureAccess::Full);
        assert_eq!(access(0, 1, 0b11), FeatureAccess::Full);
        assert_eq!(access(0, 0b101, 0b01), FeatureAccess::ReadOnly(0b100));
        assert_eq!(
            access(0, 0b101, 0b100),
            FeatureAccess::None(0b100),
            "what cannot be read is not opened at all"
        );
    }
}
