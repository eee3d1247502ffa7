//! Rates as people write them: `200MB/s`.

use std::{fmt, str::FromStr};

/// Bytes a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteRate(pub u64);

/// A text is no rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRate;

impl FromStr for ByteRate {
    type Err = NoRate;

    fn from_str(text: &str) -> Result<Self, NoRate> {
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at(digits);
        let unit: u64 = match unit.trim_start() {
            "MB/s" => 1_000_000,
            "GB/s" => 1_000_000_000,
            "MiB/s" => 1 << 20,
            "GiB/s" => 1 << 30,
            _ => return Err(NoRate),
        };
        let bytes = number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
        bytes.filter(|bytes| *bytes > 0).map(Self).ok_or(NoRate)
    }
}

impl fmt::Display for ByteRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            rate if rate % 1_000_000 == 0 => write!(f, "{}MB/s", rate / 1_000_000),
            rate if rate % (1 << 20) == 0 => write!(f, "{}MiB/s", rate >> 20),
            rate => write!(f, "{rate}B/s"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read_and_shown() {
        for text in ["200MB/s", "3MiB/s", "2000MB/s"] {
            assert_eq!(text.parse::<ByteRate>().unwrap().to_string(), text);
        }
        assert_eq!("2GB/s".parse(), Ok(ByteRate(2_000_000_000)));
        for text in ["fast", "0MB/s", "99999999999GB/s", "200", "", "MB/s"] {
            assert_eq!(text.parse::<ByteRate>(), Err(NoRate), "{text}");
        }
    }
}
