//! Time spans in words.

use std::fmt;

/// Displays a span as `2 min` or `1 h 30 min`.
pub struct TimeSpan(
    /// Seconds.
    pub u64,
);

impl fmt::Display for TimeSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (hours, minutes, seconds) = (self.0 / 3600, self.0 / 60 % 60, self.0 % 60);
        let mut parts = Vec::new();
        for (count, unit) in [(hours, "h"), (minutes, "min"), (seconds, "s")] {
            if count > 0 {
                parts.push(format!("{count} {unit}"));
            }
        }
        if parts.is_empty() {
            parts.push("0 s".to_owned());
        }
        f.write_str(&parts.join(" "))
    }
}
