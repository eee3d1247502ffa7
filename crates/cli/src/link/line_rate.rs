//! Rates of lines as people write them: `40Mb/s`, `1 Gbit/s`. Lines are sold by bits.

use plan::units::MegabitsPerSecond;

const UNITS: [(&str, f64); 6] =
    [("kb", 0.001), ("kbit", 0.001), ("Mb", 1.0), ("Mbit", 1.0), ("Gb", 1000.0), ("Gbit", 1000.0)];

/// Reads a rate in bits; it is more than zero. Bytes are refused rather than guessed.
pub fn parse_line_rate(text: &str) -> Result<MegabitsPerSecond, String> {
    let not_one =
        || format!("{text:?} is no rate of a line; write a number and a unit in bits, such as 40Mb/s");
    let trimmed = text.trim();
    let end = trimmed.find(|char: char| !char.is_ascii_digit() && char != '.').unwrap_or(trimmed.len());
    let number: f64 = trimmed[..end].parse().map_err(|_| not_one())?;
    let unit = trimmed[end..].trim();
    let unit = unit.strip_suffix("/s").ok_or_else(not_one)?;
    if unit.ends_with('B') {
        return Err(format!("{unit}/s counts bytes, and lines are rated in bits; write such as 40Mb/s"));
    }
    let is_unit = |name: &str| name == unit || (name == "kb" && unit == "Kb");
    let (_, factor) = UNITS.iter().find(|(name, _)| is_unit(name)).ok_or_else(not_one)?;
    match number * factor {
        rate if rate > 0.0 && rate.is_finite() => Ok(MegabitsPerSecond::new(rate)),
        _ => Err(format!("{text}: nothing would be replicated")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_bits_and_bytes_are_refused() {
        let rate = |text: &str| parse_line_rate(text).map(MegabitsPerSecond::get);
        assert_eq!(rate("40Mb/s"), Ok(40.0));
        assert_eq!(rate("1.5 Gbit/s"), Ok(1500.0));
        assert_eq!(rate("500 kb/s"), Ok(0.5));
        assert_eq!(rate("400Gb/s"), Ok(400_000.0));
        assert!(rate("40MB/s").unwrap_err().starts_with("MB/s counts bytes"));
        for wrong in ["40", "40Mb", "fast", "", "-4Mb/s", "4 apples/s", "1.2.3Mb/s"] {
            assert!(rate(wrong).unwrap_err().contains("is no rate of a line"), "{wrong}");
        }
        assert_eq!(rate("0Mb/s"), Err("0Mb/s: nothing would be replicated".to_owned()));
    }
}
