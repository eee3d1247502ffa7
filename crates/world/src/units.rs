//! Number types that the compiler keeps apart.

use std::{fmt, ops};

pub const KIB: u64 = 1024;
pub const MIB: u64 = 1024 * KIB;
pub const GIB: u64 = 1024 * MIB;

/// A position on a device, in bytes from its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteOffset(pub u64);

/// A length or a size, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteCount(pub u64);

impl ByteCount {
    pub const fn kib(n: u64) -> Self {
        Self(n * KIB)
    }

    pub const fn mib(n: u64) -> Self {
        Self(n * MIB)
    }

    pub const fn gib(n: u64) -> Self {
        Self(n * GIB)
    }
}

impl ops::Add<ByteCount> for ByteOffset {
    type Output = Self;

    fn add(self, length: ByteCount) -> Self {
        Self(self.0 + length.0)
    }
}

impl ops::Sub for ByteOffset {
    type Output = ByteCount;

    fn sub(self, earlier: Self) -> ByteCount {
        ByteCount(self.0 - earlier.0)
    }
}

impl ops::Add for ByteCount {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl ops::AddAssign for ByteCount {
    fn add_assign(&mut self, other: Self) {
        self.0 += other.0;
    }
}

impl ops::Sub for ByteCount {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self(self.0 - other.0)
    }
}

impl ops::Mul<u64> for ByteCount {
    type Output = Self;

    fn mul(self, factor: u64) -> Self {
        Self(self.0 * factor)
    }
}

impl fmt::Display for ByteCount {
    /// Binary units with three significant digits: `4.00 KiB`, `1.46 GiB`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMES: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
        let mut value = self.0 as f64;
        let mut unit = 0;
        while value >= 1024.0 && unit + 1 < NAMES.len() {
            value /= 1024.0;
            unit += 1;
        }
        let decimals = match value {
            _ if unit == 0 => 0,
            v if v < 10.0 => 2,
            v if v < 100.0 => 1,
            _ => 0,
        };
        write!(f, "{value:.decimals$} {}", NAMES[unit])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_counts_print_with_three_significant_digits() {
        let shown: Vec<String> =
            [0, 512, 4096, 262_144, 1_572_864_000].map(|n| ByteCount(n).to_string()).to_vec();
        assert_eq!(shown, ["0 B", "512 B", "4.00 KiB", "256 KiB", "1.46 GiB"]);
    }
}
