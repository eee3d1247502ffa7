//! Formatting of numbers, sizes and time spans.

/// Stands for a number that was not measured.
pub(crate) const ABSENT: &str = "–";

/// Larger numbers are written as powers of ten.
const LARGEST_GROUPED: f64 = 1e15;

/// More decimals are noise in a double.
const DECIMALS_MAX: usize = 12;

/// Formats with a fixed number of decimals and thousands separators: `16,757,693.0`.
///
/// A value that would round to zero without being zero is shown as `<0.01`: "0.00" errors a second and none
/// are different findings.
pub(crate) fn number(value: f64, decimals: u8) -> String {
    assert!(value.is_finite(), "absent numbers are not formatted: {value}");
    let decimals = usize::from(decimals).min(DECIMALS_MAX);
    if value.abs() >= LARGEST_GROUPED {
        return format!("{value:.3e}");
    }
    let smallest = 10f64.powi(-(decimals as i32));
    if value != 0.0 && value.abs() < smallest / 2.0 {
        let bound = format!("{smallest:.decimals$}");
        return if value > 0.0 { format!("<{bound}") } else { format!(">-{bound}") };
    }
    let plain = format!("{:.decimals$}", value.abs());
    let (whole, fraction) = plain.split_at(plain.find('.').unwrap_or(plain.len()));
    let sign = if value < 0.0 { "-" } else { "" };
    format!("{sign}{}{fraction}", grouped(whole))
}

/// Formats with about three significant digits: `0.310`, `14.2`, `331`, `12,345`.
pub(crate) fn three_digits(value: f64) -> String {
    let magnitude = value.abs();
    let decimals = match magnitude {
        m if m == 0.0 || m >= 99.95 => 0,
        m if m >= 9.995 => 1,
        m if m >= 0.9995 => 2,
        m => ((-m.log10()).floor() as u8).saturating_add(3).min(DECIMALS_MAX as u8),
    };
    number(value, decimals)
}

/// Formats a size, scaled by 1024: `129.3 GiB`, `512 B`.
pub(crate) fn bytes(count: u64) -> String {
    const STEPS: [(f64, &str); 7] = [
        (1.0, "B"),
        (1024.0, "KiB"),
        (1048576.0, "MiB"),
        (1073741824.0, "GiB"),
        (1099511627776.0, "TiB"),
        (1125899906842624.0, "PiB"),
        (1152921504606846976.0, "EiB"),
    ];
    let (factor, symbol) = STEPS
        .into_iter()
        .find(|(factor, _)| count as f64 / factor < 1023.95)
        .unwrap_or(STEPS[STEPS.len() - 1]);
    // A size that is a whole number of its unit is nearly always a setting: show it as it was set.
    let whole = (count as f64 / factor).fract() == 0.0;
    format!("{} {symbol}", number(count as f64 / factor, if whole { 0 } else { 1 }))
}

/// Formats a span in seconds: `310 µs`, `14.2 ms`, `5 min 30 s`, `2 h 5 min`, `1 d 0 h`.
pub(crate) fn span(seconds: f64) -> String {
    assert!(seconds.is_finite(), "absent spans are not formatted: {seconds}");
    if seconds < 0.0 {
        return format!("-{}", span(-seconds));
    }
    if seconds == 0.0 {
        return "0 s".to_owned();
    }
    for (factor, symbol) in [(1e-9, "ns"), (1e-6, "µs"), (1e-3, "ms")] {
        if seconds / factor < 999.5 {
            return format!("{} {symbol}", three_digits(seconds / factor));
        }
    }
    if seconds < 59.95 {
        let decimals = if (seconds - seconds.round()).abs() < 0.005 { 0 } else { 1 };
        return format!("{} s", number(seconds, decimals));
    }
    if seconds >= 1e12 {
        return format!("{seconds:.3e} s");
    }
    let whole = seconds.round() as u64;
    let (days, hours, minutes, rest) = (whole / 86_400, whole / 3600 % 24, whole / 60 % 60, whole % 60);
    match (days, hours, minutes) {
        (0, 0, _) if rest == 0 => format!("{minutes} min"),
        (0, 0, _) => format!("{minutes} min {rest} s"),
        (0, _, _) => format!("{hours} h {minutes} min"),
        _ => format!("{} d {hours} h", grouped(&days.to_string())),
    }
}

pub(crate) fn grouped(digits: &str) -> String {
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_their_decimals_and_group_their_thousands() {
        let cases = [
            (331.463, 3, "331.463"),
            (16_757_693.0, 1, "16,757,693.0"),
            (-1234.5, 0, "-1,234"),
            (999.96, 1, "1,000.0"),
            (0.0, 2, "0.00"),
            (0.0003, 2, "<0.01"),
            (-0.0003, 2, ">-0.01"),
            (0.006, 2, "0.01"),
            (2.5e18, 3, "2.500e18"),
            (1e-300, 3, "<0.001"),
        ];
        for (value, decimals, expected) in cases {
            assert_eq!(number(value, decimals), expected, "{value} with {decimals}");
        }
    }

    #[test]
    fn three_digits_wherever_the_point_is() {
        let cases = [
            (0.0, "0"),
            (0.000123, "0.000123"),
            (0.31, "0.310"),
            (1.0, "1.00"),
            (14.23, "14.2"),
            (331.4, "331"),
        ];
        for (value, expected) in cases {
            assert_eq!(three_digits(value), expected);
        }
        assert_eq!(three_digits(99.97), "100");
        assert_eq!(three_digits(25_431.0), "25,431");
    }

    #[test]
    fn sizes_scale_by_1024() {
        let cases = [
            (0, "0 B"),
            (1023, "1,023 B"),
            (4096, "4 KiB"),
            (139_755_274_240, "130.2 GiB"),
            (256 << 20, "256 MiB"),
            (u64::MAX, "16 EiB"),
        ];
        for (count, expected) in cases {
            assert_eq!(bytes(count), expected);
        }
    }

    #[test]
    fn spans_choose_their_unit() {
        let cases = [
            (0.0, "0 s"),
            (2.5e-10, "0.250 ns"),
            (0.00031, "310 µs"),
            (0.0142, "14.2 ms"),
            (0.9997, "1 s"),
            (15.0, "15 s"),
            (59.99, "1 min"),
            (330.0, "5 min 30 s"),
            (7530.0, "2 h 5 min"),
            (86_400.0, "1 d 0 h"),
            (-0.002, "-2.00 ms"),
            (1e20, "1.000e20 s"),
        ];
        for (seconds, expected) in cases {
            assert_eq!(span(seconds), expected, "{seconds}");
        }
    }
}
