//! Structures shared by database headers, log files and the checkpoint: log positions, times, and signatures.

use std::fmt;

/// A position in the transaction log. Ordered by generation, then segment, then offset. All zero means
/// "none".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogPosition {
    /// Number of the log file, from 1.
    pub generation: u32,
    /// Number of the 4 KiB segment in the file; the file header is segment 0.
    pub segment: u16,
    /// Byte offset in the segment.
    pub offset: u16,
}

impl LogPosition {
    pub const BYTES: usize = 8;

    /// Encodes as offset, segment, generation.
    pub fn encode(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[0..2].copy_from_slice(&self.offset.to_le_bytes());
        bytes[2..4].copy_from_slice(&self.segment.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.generation.to_le_bytes());
        bytes
    }

    pub fn decode(bytes: &[u8; Self::BYTES]) -> Self {
        let [o0, o1, s0, s1, g0, g1, g2, g3] = *bytes;
        Self {
            generation: u32::from_le_bytes([g0, g1, g2, g3]),
            segment: u16::from_le_bytes([s0, s1]),
            offset: u16::from_le_bytes([o0, o1]),
        }
    }
}

/// A calendar time as headers store it, to the millisecond. All zero means "never".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct LogTime {
    /// Calendar year less 1900.
    pub years_since_1900: u8,
    /// Month, 1 to 12.
    pub month: u8,
    /// Day of the month, 1 to 31.
    pub day: u8,
    /// Hour, 0 to 23.
    pub hour: u8,
    /// Minute, 0 to 59.
    pub minute: u8,
    /// Second, 0 to 59.
    pub second: u8,
    /// Millisecond, 0 to 999.
    pub millisecond: u16,
    /// True if the fields are in UTC, not local time.
    pub utc: bool,
}

impl LogTime {
    pub const BYTES: usize = 8;
    /// The latest year that can be encoded.
    const YEAR_MAX: u64 = 1900 + u8::MAX as u64;

    /// The UTC time `unix_ms` milliseconds after 1970-01-01. Panics beyond the year 2155.
    pub fn from_unix_ms(unix_ms: u64) -> Self {
        let (days, ms_of_day) = (unix_ms / 86_400_000, unix_ms % 86_400_000);
        let (year, month, day) = civil_from_days(days);
        assert!(year <= Self::YEAR_MAX, "year {year} does not fit a log time");
        Self {
            years_since_1900: (year - 1900) as u8,
            month,
            day,
            hour: (ms_of_day / 3_600_000) as u8,
            minute: (ms_of_day / 60_000 % 60) as u8,
            second: (ms_of_day / 1000 % 60) as u8,
            millisecond: (ms_of_day % 1000) as u16,
            utc: true,
        }
    }

    /// True if it is earlier than `other`; both in UTC.
    pub fn is_before(self, other: Self) -> bool {
        let parts = |time: Self| {
            let day = [time.years_since_1900, time.month, time.day, time.hour, time.minute, time.second];
            (day, time.millisecond)
        };
        parts(self) < parts(other)
    }

    /// Encodes the 8 bytes on disk.
    pub fn encode(self) -> [u8; Self::BYTES] {
        assert!(self.millisecond < 1000);
        [
            self.second,
            self.minute,
            self.hour,
            self.day,
            self.month,
            self.years_since_1900,
            u8::from(self.utc) | ((self.millisecond & 0x7F) << 1) as u8,
            ((self.millisecond >> 7) << 1) as u8,
        ]
    }

    /// Decodes any bytes without panicking; bytes that are not a valid time may not encode back to
    /// themselves.
    pub fn decode(bytes: &[u8; Self::BYTES]) -> Self {
        let millisecond = u16::from(bytes[6] >> 1) | (u16::from(bytes[7] >> 1 & 0x07) << 7);
        Self {
            second: bytes[0],
            minute: bytes[1],
            hour: bytes[2],
            day: bytes[3],
            month: bytes[4],
            years_since_1900: bytes[5],
            millisecond: millisecond.min(999),
            utc: bytes[6] & 1 != 0,
        }
    }
}

impl fmt::Display for LogTime {
    fn fmt(&self, into: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { month, day, hour, minute, second, millisecond, .. } = self;
        let year = 1900 + u32::from(self.years_since_1900);
        write!(into, "{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}.{millisecond:03}")?;
        if self.utc { into.write_str(" UTC") } else { Ok(()) }
    }
}

/// Year, month and day of the Gregorian calendar, from days since 1970-01-01.
fn civil_from_days(days: u64) -> (u64, u8, u8) {
    // Counted from 0000-03-01, so that the leap day ends the year; an era is 400 years.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    (year, month as u8, day as u8)
}

/// Identity of a database or of a log. A database belongs to the log whose signature its header stores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Signature {
    /// Random number drawn at creation.
    pub random: u32,
    /// Time of creation.
    pub created: LogTime,
    /// Computer name, zero-padded; zero in newer files of ESE.
    pub computer: [u8; 16],
}

impl Signature {
    pub const BYTES: usize = 28;

    /// Encodes the 28 bytes on disk.
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[0..4].copy_from_slice(&self.random.to_le_bytes());
        bytes[4..12].copy_from_slice(&self.created.encode());
        bytes[12..28].copy_from_slice(&self.computer);
        bytes
    }

    pub fn decode(bytes: &[u8; Self::BYTES]) -> Self {
        let (random, rest) = bytes.split_first_chunk::<4>().expect("28 > 4");
        let (created, computer) = rest.split_first_chunk::<8>().expect("24 > 8");
        Self {
            random: u32::from_le_bytes(*random),
            created: LogTime::decode(created),
            computer: computer.try_into().expect("28 - 4 - 8 = 16"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn positions_order_as_the_log_is_written() {
        let at = |generation, segment, offset| LogPosition { generation, segment, offset };
        let ascending = [at(0, 0, 0), at(1, 1, 9), at(1, 2, 0), at(1, 2, 1), at(2, 0, 0)];
        assert!(ascending.is_sorted_by(|a, b| a < b));
    }

    #[test]
    fn calendar_agrees_with_known_days() {
        let known = [
            (0, (70, 1, 1)),
            (951_782_400_000, (100, 2, 29)),
            (1_709_251_199_999, (124, 2, 29)),
            (1_709_251_200_000, (124, 3, 1)),
            (5_869_583_999_000, (255, 12, 31)),
        ];
        for (unix_ms, date) in known {
            let time = LogTime::from_unix_ms(unix_ms);
            assert_eq!((time.years_since_1900, time.month, time.day), date, "{unix_ms}");
        }
        let last = LogTime::from_unix_ms(1_709_251_199_999);
        assert_eq!((last.hour, last.minute, last.second, last.millisecond), (23, 59, 59, 999));
        assert_eq!(last.to_string(), "2024-02-29 23:59:59.999 UTC");
        let next = LogTime::from_unix_ms(1_709_251_200_000);
        assert!(last.is_before(next) && !next.is_before(last) && !next.is_before(next));
    }

    proptest! {
        #[test]
        fn shared_structures_survive_a_round_trip(
            random: u32, unix_ms in 0_u64..5_869_584_000_000, computer: [u8; 16],
            generation: u32, segment: u16, offset: u16,
        ) {
            let position = LogPosition { generation, segment, offset };
            prop_assert_eq!(LogPosition::decode(&position.encode()), position);
            let signature = Signature { random, created: LogTime::from_unix_ms(unix_ms), computer };
            prop_assert_eq!(Signature::decode(&signature.encode()), signature);
        }

        #[test]
        fn any_eight_bytes_decode_to_a_time_that_encodes(bytes: [u8; 8]) {
            let time = LogTime::decode(&bytes);
            prop_assert_eq!(LogTime::decode(&time.encode()), time);
        }
    }
}
