//! The period of a schedule: `1min`, `6h`, `1d`, `2w`, `1month`, `1y`.

use super::BackupScheduleError;
use std::{fmt, str::FromStr};

/// Largest number before a unit: three digits, so that notes of points stay short.
pub const PERIOD_NUMBER_MAX: u32 = 999;
/// Schedules closer than this cut logs only, or without a freeze (issue of `protect`: 15 minutes).
const CLOSE_MINUTES: u32 = 15;

const MINUTE_S: i64 = 60;
const HOUR_S: i64 = 3_600;
const DAY_S: i64 = 86_400;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PeriodUnit {
    Minute,
    Hour,
    Day,
    Week,
    Month,
    Year,
}

impl PeriodUnit {
    const ALL: [(&'static str, Self); 6] = [
        ("min", Self::Minute),
        ("h", Self::Hour),
        ("d", Self::Day),
        ("w", Self::Week),
        ("month", Self::Month),
        ("y", Self::Year),
    ];

    /// The word in the grammar.
    pub fn word(self) -> &'static str {
        Self::ALL.iter().find(|(_, unit)| *unit == self).expect("all units are listed").0
    }
}

/// The distance of a schedule's slots. Its text is the key by which a slot's schedule is known: count and time of day
/// may be changed, and slots that were filled stay filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SchedulePeriod {
    unit: PeriodUnit,
    number: u32,
}

impl SchedulePeriod {
    /// # Errors
    ///
    /// The number is 0 or more than [`PERIOD_NUMBER_MAX`].
    pub fn new(number: u32, unit: PeriodUnit) -> Result<Self, BackupScheduleError> {
        if !(1..=PERIOD_NUMBER_MAX).contains(&number) {
            return Err(BackupScheduleError::PeriodNumber(number, unit.word()));
        }
        Ok(Self { unit, number })
    }

    pub fn unit(self) -> PeriodUnit {
        self.unit
    }

    pub fn number(self) -> u32 {
        self.number
    }

    /// Seconds of the shortest slot, without changes of a zone's offset.
    pub fn shortest_s(self) -> i64 {
        i64::from(self.number)
            * match self.unit {
                PeriodUnit::Minute => MINUTE_S,
                PeriodUnit::Hour => HOUR_S,
                PeriodUnit::Day => DAY_S,
                PeriodUnit::Week => 7 * DAY_S,
                PeriodUnit::Month => 28 * DAY_S,
                PeriodUnit::Year => 365 * DAY_S,
            }
    }

    /// Seconds of `count` slots at most, one after the other, without changes of a zone's offset.
    pub fn longest_s(self, count: u32) -> i64 {
        let number = i64::from(self.number) * i64::from(count);
        // Of twelve months in a row, one has 29 days at most.
        let days_of_months = |months: i64| months / 12 * 366 + months % 12 * 31;
        match self.unit {
            PeriodUnit::Minute => number * MINUTE_S,
            PeriodUnit::Hour => number * HOUR_S,
            PeriodUnit::Day => number * DAY_S,
            PeriodUnit::Week => number * 7 * DAY_S,
            PeriodUnit::Month => days_of_months(number) * DAY_S,
            PeriodUnit::Year => days_of_months(number * 12) * DAY_S,
        }
    }

    /// True if the application is not frozen for the slots of this period.
    pub fn is_close(self) -> bool {
        self.unit == PeriodUnit::Minute && self.number < CLOSE_MINUTES
    }
}

impl fmt::Display for SchedulePeriod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.number, self.unit.word())
    }
}

impl FromStr for SchedulePeriod {
    type Err = BackupScheduleError;

    fn from_str(text: &str) -> Result<Self, BackupScheduleError> {
        let wrong = || BackupScheduleError::Period(text.to_owned());
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, word) = text.split_at(digits);
        let unit = PeriodUnit::ALL.iter().find(|(known, _)| *known == word).ok_or_else(wrong)?.1;
        if number.is_empty() || number.starts_with('0') && number.len() > 1 {
            return Err(wrong());
        }
        Self::new(number.parse().map_err(|_| wrong())?, unit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_is_read_and_printed_alike() {
        for text in ["1min", "60min", "1h", "24h", "1d", "2w", "1month", "12month", "1y", "999min"] {
            assert_eq!(text.parse::<SchedulePeriod>().unwrap().to_string(), text);
        }
        for text in ["", "1", "h", "1 h", "-1h", "+1h", "01h", "1m", "1hour", "1.5h", "99999999999h"] {
            let refusal = text.parse::<SchedulePeriod>().unwrap_err().to_string();
            assert!(refusal.contains("is no period; say a number and min, h, d, w, month or y"), "{refusal}");
        }
        for text in ["0h", "1000min"] {
            let refusal = text.parse::<SchedulePeriod>().unwrap_err().to_string();
            assert!(refusal.contains("1 to 999"), "{refusal}");
        }
    }

    #[test]
    fn months_and_years_have_their_lengths() {
        let days = |text: &str, count| {
            let period: SchedulePeriod = text.parse().unwrap();
            (period.shortest_s() / DAY_S, period.longest_s(count) / DAY_S)
        };
        assert_eq!(days("1month", 1), (28, 31));
        assert_eq!(days("1month", 24), (28, 732));
        assert_eq!(days("1y", 10), (365, 3660));
        assert_eq!(days("2w", 3), (14, 42));
        assert!("14min".parse::<SchedulePeriod>().unwrap().is_close());
        assert!(!"15min".parse::<SchedulePeriod>().unwrap().is_close());
    }
}
