//! Durations in a sentence.

use std::time::Duration;

/// A duration in at most two units: `45 s`, `2 min`, `1 h 30 min`, `3 d 4 h`.
pub fn show_duration(span: Duration) -> String {
    let seconds = span.as_secs();
    let pair = |big: u64, big_name: &str, small: u64, small_name: &str| match small {
        0 => format!("{big} {big_name}"),
        _ => format!("{big} {big_name} {small} {small_name}"),
    };
    match seconds {
        0 => format!("{} ms", span.as_millis()),
        1..60 => format!("{seconds} s"),
        60..3_600 => pair(seconds / 60, "min", seconds % 60, "s"),
        3_600..86_400 => pair(seconds / 3_600, "h", seconds % 3_600 / 60, "min"),
        _ => pair(seconds / 86_400, "d", seconds % 86_400 / 3_600, "h"),
    }
}

/// An estimate: rounded so that it claims no more than it knows (`about 2 min`).
pub fn show_estimate(span: Duration) -> String {
    let seconds = span.as_secs_f64();
    let step = match seconds {
        s if s < 10.0 => 1.0,
        s if s < 90.0 => 10.0,
        s if s < 3_600.0 => 60.0,
        s if s < 86_400.0 => 600.0,
        _ => 3_600.0,
    };
    let rounded = ((seconds / step).ceil() * step).max(step);
    format!("about {}", show_duration(Duration::from_secs_f64(rounded)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_shown_in_two_units_and_estimates_rounded_up() {
        let shown = [45, 120, 150, 5_400, 273_600].map(|s| show_duration(Duration::from_secs(s)));
        assert_eq!(shown, ["45 s", "2 min", "2 min 30 s", "1 h 30 min", "3 d 4 h"]);
        let about = [3, 41, 117, 5_000].map(|s| show_estimate(Duration::from_secs(s)));
        assert_eq!(about, ["about 3 s", "about 50 s", "about 2 min", "about 1 h 30 min"]);
    }
}
