//! Feature flags: what a program must know to read a pool, or to write it.

use std::fmt;

/// Features a pool uses. A bit a program does not know means: of `compatible`, nothing; of `read_only`, that it
/// may read the pool but not write; of `incompatible`, that it may not open it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// May be ignored.
    pub compatible: u64,
    /// Must be known to write.
    pub read_only: u64,
    /// Must be known to read.
    pub incompatible: u64,
}

/// Segments of class raid5, raid6 or raid50 exist. To write is to keep parity right.
pub const READ_ONLY_PARITY: u64 = 1 << 0;
/// Branches with a parent exist.
pub const INCOMPATIBLE_BRANCHES: u64 = 1 << 0;
/// Blocks that are stored compressed exist.
pub const INCOMPATIBLE_COMPRESSION: u64 = 1 << 1;
/// Blocks that are stored encrypted exist.
pub const INCOMPATIBLE_ENCRYPTION: u64 = 1 << 2;
/// Shared blocks exist: indirect locations.
pub const INCOMPATIBLE_SHARED_BLOCKS: u64 = 1 << 3;

/// The catalogue says how far a scrub is.
pub const INCOMPATIBLE_SCRUB: u64 = 1 << 4;
/// A drive is joining, or has withdrawn: it has no vote.
pub const INCOMPATIBLE_JOINING: u64 = 1 << 5;
/// History is kept in the order of pivots.
pub const INCOMPATIBLE_PIVOTS: u64 = 1 << 6;

/// What a pool may be used for by a program that knows certain features.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// All.
    Full,
    /// Reading; the bits are those of `read_only` that are not known.
    ReadOnly(u64),
    /// Nothing; the bits are those of `incompatible` that are not known.
    None(u64),
}

impl Features {
    /// What a program that knows `known` may do with a pool that has these.
    pub fn access(self, known: Self) -> Access {
        let to_read = self.incompatible & !known.incompatible;
        let to_write = self.read_only & !known.read_only;
        match (to_read, to_write) {
            (0, 0) => Access::Full,
            (0, unknown) => Access::ReadOnly(unknown),
            (unknown, _) => Access::None(unknown),
        }
    }
}

impl fmt::Display for Access {
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
        assert_eq!(access(u64::MAX, 0, 0), Access::Full);
        assert_eq!(access(0, 1, 0b11), Access::Full);
        assert_eq!(access(0, 0b101, 0b01), Access::ReadOnly(0b100));
        assert_eq!(access(0, 0b101, 0b100), Access::None(0b100), "what cannot be read is not opened at all");
    }
}
