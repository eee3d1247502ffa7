//! Kinds of numbers, so that two of them are never taken for one another.
//!
//! Invariants:
//!
//! 1. Sizes of mail (quotas, messages, databases, logs) count in 1024s, whether written GB or GiB: mail servers and
//!    the guides to them do. Drives are sold in 1000s: that is [`SoldGb`], and it becomes a size only by a conversion.
//! 2. I/O as hosts ask for it and I/O as drives do it are two types: what lies between is the RAID penalty.
//! 3. A quantity is finite and not negative.

mod io;
mod link;
mod quantity;
mod size;

pub use io::{DriveIops, HostIops, Share};
pub use link::{MegabitsPerSecond, Milliseconds};
pub use size::{Gib, Kib, Mib, SizeError, SoldGb, parse_size};

/// `value` as people read it: whole where it is whole or large, else with three or four digits.
pub fn shown(value: f64) -> String {
    let decimals = match value.abs() {
        size if value.fract() == 0.0 || size >= 1000.0 => 0,
        size if size >= 100.0 => 1,
        size if size >= 10.0 => 2,
        size if size >= 0.1 => 3,
        _ => 5,
    };
    let number = report::prose::number(value, decimals);
    // Only decimals end in a zero that says nothing; those of 1.000e30 end before its power.
    let (digits, power) = number.split_at(number.find('e').unwrap_or(number.len()));
    match digits.contains('.') {
        true => format!("{}{power}", digits.trim_end_matches('0').trim_end_matches('.')),
        false => number,
    }
}

/// A count as people read it: `20,000`.
pub fn counted(count: impl Into<u64>) -> String {
    shown(count.into() as f64)
}

#[cfg(test)]
mod tests {
    use super::{counted, shown};

    #[test]
    fn numbers_have_the_digits_that_say_something() {
        let all = [0.0, 0.012, 0.15, 1.2, 10.986, 297.168, 417.0, 13_805.6, 1e7, 0.00004];
        let expected =
            ["0", "0.012", "0.15", "1.2", "10.99", "297.2", "417", "13,806", "10,000,000", "0.00004"];
        assert_eq!(all.map(shown), expected);
        assert_eq!(
            [1e30, 2.5e18, 1.234e15, 9e14].map(shown),
            ["1e30", "2.5e18", "1.234e15", "900,000,000,000,000"]
        );
        assert_eq!(counted(276_112_u32), "276,112");
    }
}
