//! Civil times in reports, records and file names, all in UTC.

use time::{
    Date, OffsetDateTime, PrimitiveDateTime,
    format_description::{BorrowedFormatItem, well_known::Rfc3339},
    macros::format_description,
};

const FILE_STAMP: &[BorrowedFormatItem<'_>] =
    format_description!("[year]-[month]-[day]-[hour][minute][second]");
const SHOWN_STAMP: &[BorrowedFormatItem<'_>] =
    format_description!("[year]-[month]-[day] [hour]:[minute]:[second] UTC");
const MAIL_STAMP: &[BorrowedFormatItem<'_>] = format_description!(
    "[weekday repr:short], [day] [month repr:short] [year] [hour]:[minute]:[second] +0000"
);
const UTC_STAMP: &[BorrowedFormatItem<'_>] =
    format_description!("[year]-[month]-[day]T[hour]:[minute]:[second]Z");

const DATE: &[BorrowedFormatItem<'_>] = format_description!("[year]-[month]-[day]");
const MINUTE: &[BorrowedFormatItem<'_>] = format_description!("[year]-[month]-[day]T[hour]:[minute]");

/// Seconds since 1970 of a time that a person or a program gives: `2026-11-21` (its midnight), `2026-11-21T22:05`, both UTC, or a time of
/// RFC 3339, with any zone.
pub fn parse_time(text: &str) -> Option<i64> {
    let midnight = || Date::parse(text, DATE).ok().map(|date| date.midnight().assume_utc());
    let minute = || PrimitiveDateTime::parse(text, MINUTE).ok().map(PrimitiveDateTime::assume_utc);
    let time = OffsetDateTime::parse(text, &Rfc3339).ok().or_else(midnight).or_else(minute);
    time.map(OffsetDateTime::unix_timestamp)
}

/// A time as reports show it: `2026-11-21 22:05:00 UTC`.
pub fn shown_time(unix_s: i64) -> String {
    stamp(unix_s, SHOWN_STAMP)
}

/// A time as JSON has it: `2026-11-21T22:05:00Z`.
pub fn utc_time(unix_s: i64) -> String {
    stamp(unix_s, UTC_STAMP)
}

/// A time as a part of a file name: `2026-11-21-220500`.
pub fn file_stamp(unix_s: i64) -> String {
    stamp(unix_s, FILE_STAMP)
}

/// A time as the header of a mail has it (RFC 5322): `Sat, 21 Nov 2026 22:05:00 +0000`.
pub fn mail_time(unix_s: i64) -> String {
    stamp(unix_s, MAIL_STAMP)
}

fn stamp(unix_s: i64, form: &[BorrowedFormatItem<'_>]) -> String {
    OffsetDateTime::from_unix_timestamp(unix_s)
        .ok()
        .and_then(|time| time.format(form).ok())
        .unwrap_or_else(|| unix_s.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_utc_in_three_forms() {
        let unix_s = 1_795_298_700;
        assert_eq!(shown_time(unix_s), "2026-11-21 22:05:00 UTC");
        assert_eq!(utc_time(unix_s), "2026-11-21T22:05:00Z");
        assert_eq!(file_stamp(unix_s), "2026-11-21-220500");
        assert_eq!(mail_time(unix_s), "Sat, 21 Nov 2026 22:05:00 +0000");
        assert_eq!(shown_time(i64::MAX), i64::MAX.to_string());
    }

    #[test]
    fn times_are_read_in_three_forms() {
        for text in ["2026-11-21T22:05:00Z", "2026-11-21T23:05:00.25+01:00", "2026-11-21T22:05"] {
            assert_eq!(parse_time(text), Some(1_795_298_700), "{text}");
        }
        assert_eq!(parse_time("2026-11-21"), Some(1_795_298_700 - (22 * 60 + 5) * 60));
        for text in ["", "21.11.2026", "2026-11-31", "2026-11-21T25:00", "now"] {
            assert_eq!(parse_time(text), None, "{text}");
        }
    }
}
