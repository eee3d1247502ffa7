//! Sizes and durations as people write them: `4GiB`, `512 MB`, `90s`, `2h`.
//!
//! Binary and decimal units are both known and kept apart (`1 GB` is 10^9 bytes, `1 GiB` is 2^30);
//! a bare letter (`4G`) is binary, as in fio and the shell tools of the field.

use std::time::Duration;
use world::ByteCount;

/// Suffixes of a size and the bytes each stands for, in lower case.
const SIZE_UNITS: [(&str, u64); 17] = [
    ("b", 1),
    ("k", 1 << 10),
    ("kib", 1 << 10),
    ("kb", 1_000),
    ("m", 1 << 20),
    ("mib", 1 << 20),
    ("mb", 1_000_000),
    ("g", 1 << 30),
    ("gib", 1 << 30),
    ("gb", 1_000_000_000),
    ("t", 1 << 40),
    ("tib", 1 << 40),
    ("tb", 1_000_000_000_000),
    ("p", 1 << 50),
    ("pib", 1 << 50),
    ("pb", 1_000_000_000_000_000),
    ("", 1),
];

/// Suffixes of a duration and the seconds each stands for.
const DURATION_UNITS: [(&str, f64); 14] = [
    ("ms", 0.001),
    ("s", 1.0),
    ("sec", 1.0),
    ("m", 60.0),
    ("min", 60.0),
    ("h", 3_600.0),
    ("hour", 3_600.0),
    ("hours", 3_600.0),
    ("d", 86_400.0),
    ("day", 86_400.0),
    ("days", 86_400.0),
    ("w", 604_800.0),
    ("y", 31_557_600.0),
    ("", 1.0),
];

/// Reads a size such as `4GiB`, `1.5 TB`, `64m` or `1048576`.
pub fn parse_size(text: &str) -> Result<ByteCount, String> {
    let (number, unit) = number_and_unit(text)
        .ok_or_else(|| format!("{text:?} is not a size; write a number and a unit, such as 4GiB"))?;
    let factor =
        SIZE_UNITS.iter().find(|(name, _)| *name == unit).map(|&(_, factor)| factor).ok_or_else(|| {
            format!("{unit:?} is not a unit of size; use KiB, MiB, GiB, TiB (or KB, MB, GB, TB)")
        })?;
    let bytes = number * factor as f64;
    if bytes >= u64::MAX as f64 {
        return Err(format!("{text} is more than any storage holds"));
    }
    Ok(ByteCount(bytes as u64))
}

/// Reads a rate such as `200MB/s`, in bytes a second; it is more than zero.
pub fn parse_rate(text: &str) -> Result<ByteCount, String> {
    let size = text.trim().strip_suffix("/s").unwrap_or(text);
    match parse_size(size) {
        Ok(ByteCount(0)) => Err(format!("at {text} nothing would ever be read")),
        Ok(rate) => Ok(rate),
        Err(_) => Err(format!("{text:?} is not a rate; write a number and a unit, such as 200MB/s")),
    }
}

/// Reads a duration such as `90s`, `2m`, `1.5h` or `2h30m`; a bare number is seconds.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let not_one = || format!("{text:?} is not a duration; write a number and a unit, such as 90s, 2m or 2h");
    let mut rest = text.trim();
    let mut seconds = 0.0;
    if rest.is_empty() {
        return Err(not_one());
    }
    while !rest.is_empty() {
        // One `number unit` part ends where the next digit follows a letter.
        let letters_at = rest.find(|c: char| c.is_alphabetic()).unwrap_or(rest.len());
        let end =
            rest[letters_at..].find(|c: char| c.is_ascii_digit()).map_or(rest.len(), |at| letters_at + at);
        let (number, unit) = number_and_unit(&rest[..end]).ok_or_else(not_one)?;
        let factor = DURATION_UNITS
            .iter()
            .find(|(name, _)| *name == unit)
            .map(|&(_, factor)| factor)
            .ok_or_else(|| format!("{unit:?} is not a unit of time; use s, m, h or d"))?;
        seconds += number * factor;
        rest = rest[end..].trim_start();
    }
    Duration::try_from_secs_f64(seconds).map_err(|_| format!("{text} is longer than anything can run"))
}

/// Splits `1.5 GiB` into 1.5 and `gib`. `None` if it does not begin with a plain, positive number.
fn number_and_unit(text: &str) -> Option<(f64, String)> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let number: f64 = text[..end].parse().ok()?;
    Some((number, text[end..].trim().to_ascii_lowercase()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn size(text: &str, expected: Result<u64, &str>) {
        assert_eq!(parse_size(text).map(|size| size.0), expected.map_err(str::to_owned));
    }

    #[track_caller]
    fn duration(text: &str, expected: Result<u64, &str>) {
        let parsed = parse_duration(text).map(|span| span.as_millis() as u64);
        assert_eq!(parsed, expected.map_err(str::to_owned));
    }

    #[test]
    fn sizes_are_read_in_binary_and_decimal_units() {
        size("4GiB", Ok(4 << 30));
        size("4g", Ok(4 << 30));
        size("1 GB", Ok(1_000_000_000));
        size("1.5TiB", Ok(3 << 39));
        size("4096", Ok(4096));
        size("0", Ok(0));
    }

    #[test]
    fn what_is_not_a_size_is_refused_with_an_example() {
        size("much", Err("\"much\" is not a size; write a number and a unit, such as 4GiB"));
        size("-4GiB", Err("\"-4GiB\" is not a size; write a number and a unit, such as 4GiB"));
        size("1.2.3g", Err("\"1.2.3g\" is not a size; write a number and a unit, such as 4GiB"));
        size(
            "4 bananas",
            Err("\"bananas\" is not a unit of size; use KiB, MiB, GiB, TiB (or KB, MB, GB, TB)"),
        );
        size("99999999999pib", Err("99999999999pib is more than any storage holds"));
    }

    #[test]
    fn rates_are_sizes_a_second() {
        assert_eq!(parse_rate("200MB/s"), Ok(ByteCount(200_000_000)));
        assert_eq!(parse_rate("1 GiB"), Ok(ByteCount(1 << 30)));
        assert_eq!(parse_rate("0/s"), Err("at 0/s nothing would ever be read".to_owned()));
        let refused = Err("\"fast\" is not a rate; write a number and a unit, such as 200MB/s".to_owned());
        assert_eq!(parse_rate("fast"), refused);
    }

    #[test]
    fn durations_are_read_in_one_or_more_parts() {
        duration("90s", Ok(90_000));
        duration("2m", Ok(120_000));
        duration("2h30m", Ok(9_000_000));
        duration("1.5 h", Ok(5_400_000));
        duration("500ms", Ok(500));
        duration("30", Ok(30_000));
        duration("1000y", Ok(31_557_600_000_000));
    }

    #[test]
    fn what_is_not_a_duration_is_refused_with_an_example() {
        duration("", Err("\"\" is not a duration; write a number and a unit, such as 90s, 2m or 2h"));
        duration("soon", Err("\"soon\" is not a duration; write a number and a unit, such as 90s, 2m or 2h"));
        duration("3 moons", Err("\"moons\" is not a unit of time; use s, m, h or d"));
    }
}
