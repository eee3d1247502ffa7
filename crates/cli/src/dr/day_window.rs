//! The word of a time of each day: in UTC, or at an offset from it, which becomes UTC here.

/// Minutes of a day.
const DAY_MINUTES: i32 = 24 * 60;
/// Places are at most so far from UTC.
const OFFSET_MINUTES_MAX: i32 = 14 * 60;

/// Reads HH:MM-HH:MM or HH:MM-HH:MM+HH:MM. Returns both times in UTC.
pub fn parse_day_window(text: &str) -> Result<(String, String), String> {
    let form = || {
        "a window is HH:MM-HH:MM in UTC, or with your offset from UTC behind it, such as 22:00-05:00+02:00"
            .to_owned()
    };
    let (from, rest) = text.split_once('-').ok_or_else(form)?;
    // The offset begins with its sign.
    let sign_at = rest.find(['+', '-']);
    let (until, offset) = sign_at.map_or((rest, ""), |at| rest.split_at(at));
    if offset.is_empty() {
        // The server says what is wrong with a time.
        return Ok((from.to_owned(), until.to_owned()));
    }
    let (sign, offset) = offset.split_at(1);
    let offset = minutes_of(offset).filter(|offset| *offset <= OFFSET_MINUTES_MAX).ok_or_else(form)?;
    let offset = if sign == "-" { -offset } else { offset };
    let in_utc = |time: &str| {
        let minute =
            (minutes_of(time).filter(|minute| *minute < DAY_MINUTES)? - offset).rem_euclid(DAY_MINUTES);
        Some(format!("{:02}:{:02}", minute / 60, minute % 60))
    };
    in_utc(from).zip(in_utc(until)).ok_or_else(form)
}

/// Minutes of HH:MM.
fn minutes_of(text: &str) -> Option<i32> {
    let (hours, minutes) = text.split_once(':')?;
    let number = |text: &str| {
        let is_plain = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse::<i32>().ok().filter(|_| is_plain)
    };
    let (hours, minutes) = (number(hours)?, number(minutes)?);
    (minutes < 60).then_some(hours * 60 + minutes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_at_an_offset_become_utc() {
        let read = |text: &str| parse_day_window(text).map(|(from, until)| format!("{from}-{until}"));
        for (said, utc) in [
            ("22:00-05:00", "22:00-05:00"),
            ("22:00-05:00+02:00", "20:00-03:00"),
            ("22:00-05:00-05:00", "03:00-10:00"),
            ("00:30-04:00+05:30", "19:00-22:30"),
            ("22:00-05:00+00:00", "22:00-05:00"),
        ] {
            assert_eq!(read(said), Ok(utc.to_owned()), "{said}");
        }
        for wrong in ["22:00", "22:00-05:00+2", "22:00-05:00+15:00", "25:00-05:00+01:00", "22:00-05:00+01:60"]
        {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
