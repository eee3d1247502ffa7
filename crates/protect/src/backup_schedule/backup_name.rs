//! Names of backups: `mail-2026-11-28-0230-17`, with the time in UTC and the sequence number.
//!
//! The sequence number makes a name unique and orders backups; the time is for people.

use crate::UnixSecond;

/// Digits of a date and a time to the minute: 2026-11-27-0300.
const STAMP_CHARS: usize = 15;

/// The name of a set's backup.
pub fn backup_name(set: &str, now: UnixSecond, sequence: u64) -> String {
    // A clock beyond the calendar still gives a name of this form.
    let within = now.0.clamp(0, 253_402_300_799);
    let stamp: String = report::calendar::file_stamp(within).chars().take(STAMP_CHARS).collect();
    format!("{set}-{stamp}-{sequence}")
}

/// Set and sequence number in a name; `None` if no set's backup has such a name.
pub fn set_and_sequence_of(name: &str) -> Option<(&str, u64)> {
    let (rest, sequence) = name.rsplit_once('-')?;
    let is_number = sequence.bytes().all(|byte| byte.is_ascii_digit()) && !sequence.starts_with('0');
    let sequence = sequence.parse().ok().filter(|_| is_number)?;
    let (set, stamp) = rest.split_at_checked(rest.len().checked_sub(STAMP_CHARS + 1)?)?;
    let is_stamp = stamp.bytes().enumerate().all(|(index, byte)| match index {
        0 | 5 | 8 | 11 => byte == b'-',
        _ => byte.is_ascii_digit(),
    });
    (is_stamp && !set.is_empty()).then_some((set, sequence))
}

/// The time in the name of a set's backup, to the minute; `None` if it is no such name.
pub fn time_in_name(name: &str) -> Option<UnixSecond> {
    set_and_sequence_of(name)?;
    let stamped = name.rsplit_once('-')?.0;
    let stamp = stamped.get(stamped.len() - STAMP_CHARS..)?;
    let number = |from: usize, to: usize| stamp[from..to].parse::<i64>().ok();
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    if !(1..=12).contains(&month) {
        return None;
    }
    // Days since 1970 of a date of the Gregorian calendar, whose years are counted from March.
    let year = if month > 2 { year } else { year - 1 };
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let days = 365 * year + year / 4 - year / 100 + year / 400 + of_year - 719_468;
    Some(UnixSecond(days * 86_400 + number(11, 13)? * 3_600 + number(13, 15)? * 60))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_in_a_name_is_that_of_the_backup_to_the_minute() {
        for second in [0, 951_782_400, 1_795_782_896, 1_709_164_799, 4_102_444_799] {
            let name = backup_name("mail", UnixSecond(second), 17);
            assert_eq!(time_in_name(&name), Some(UnixSecond(second / 60 * 60)), "{name}");
        }
        assert_eq!(time_in_name("mail-2026-13-27-1234-17"), None);
        assert_eq!(time_in_name("mail"), None);
    }

    #[test]
    fn a_name_has_set_time_and_number() {
        let name = backup_name("mail", UnixSecond(1_795_782_896), 17);
        assert_eq!(name, "mail-2026-11-27-1234-17");
        assert_eq!(set_and_sequence_of(&name), Some(("mail", 17)));
        let ahead = backup_name("a-b", UnixSecond(i64::MAX), 1);
        assert_eq!(set_and_sequence_of(&ahead), Some(("a-b", 1)), "{ahead}");
        for other in [
            "",
            "mail",
            "mail-17",
            "mail-2026-11-27-1234",
            "-2026-11-27-1234-17",
            "mail-2026-11-27-1234-017",
            "ä-1",
        ] {
            assert_eq!(set_and_sequence_of(other), None, "{other}");
        }
    }
}
