//! Civil times in reports, records and file names, all in UTC.

use time::{OffsetDateTime, format_description::BorrowedFormatItem, macros::format_description};

const FILE_STAMP: &[BorrowedFormatItem<'_>] =
    format_description!("[year]-[month]-[day]-[hour][minute][second]");
const SHOWN_STAMP: &[BorrowedFormatItem<'_>] =
    format_description!("[year]-[month]-[day] [hour]:[minute]:[second] UTC");
const MAIL_STAMP: &[BorrowedFormatItem<'_>] = format_description!(
    "[weekday repr:short], [day] [month repr:short] [year] [hour]:[minute]:[second] +0000"
);
const UTC_STAMP: &[BorrowedFormatItem<'_>] =
    format_description!("[year]-[month]-[day]T[hour]:[minute]:[second]Z");

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
}
