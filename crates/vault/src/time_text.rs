//! Times as restic writes them: RFC 3339, with any zone.

use jiff::Timestamp;
use world::WallTime;

pub fn to_text(time: WallTime) -> String {
    let nanos = i32::try_from(time.nanos).unwrap_or_default();
    Timestamp::new(time.seconds, nanos).unwrap_or(Timestamp::UNIX_EPOCH).to_string()
}

/// Seconds since 1970.
pub fn seconds_of(text: &str) -> Option<i64> {
    text.parse::<Timestamp>().ok().map(Timestamp::as_second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_zones() {
        assert_eq!(
            to_text(WallTime { seconds: 1_795_900_500, nanos: 500_000_000 }),
            "2026-11-28T21:15:00.5Z"
        );
        for text in ["2026-11-28T21:15:00Z", "2026-11-28T22:15:00.123456789+01:00"] {
            assert_eq!(seconds_of(text), Some(1_795_900_500), "{text}");
        }
        assert_eq!(seconds_of("yesterday"), None);
    }
}
