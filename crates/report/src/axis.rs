//! Chart axes: ends, ticks and labels.

use crate::chart::Axis;
use crate::quantity;
use crate::unit::Unit;

/// Larger values are drawn at the edge: their differences would not be finite.
const LARGEST_DRAWN: f64 = 1e300;

/// If all values are nearer to zero than this, they are drawn as zero: doubles lose precision below.
const SMALLEST_DRAWN: f64 = 1e-290;

/// Position of a tick, in the unit of the data, and its label.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tick {
    pub at: f64,
    pub label: String,
}

/// A linear axis that includes zero and ends on ticks.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ValueAxis {
    pub low: f64,
    pub high: f64,
    /// Unit of the tick labels.
    pub symbol: String,
    pub ticks: Vec<Tick>,
}

impl ValueAxis {
    /// An axis over `low..=high` and zero, with about `tick_count` ticks at 1, 2 or 5 times a power of ten of
    /// the scaled unit.
    pub(crate) fn covering(unit: &Unit, low: f64, high: f64, tick_count: usize) -> Self {
        let low = low.clamp(-LARGEST_DRAWN, 0.0);
        let high = high.clamp(0.0, LARGEST_DRAWN);
        let is_flat = high.max(-low) < SMALLEST_DRAWN;
        let (low, high) = if is_flat { (0.0, 1.0) } else { (low, high) };
        let scale = unit.scale_for(high.max(-low));
        let step = round_step((high - low) / scale.factor / tick_count as f64);
        let first = (low / scale.factor / step + 1e-9).floor() as i64;
        let last = (high / scale.factor / step - 1e-9).ceil() as i64;
        let decimals = (-step.log10().floor()).clamp(0.0, 12.0) as u8;
        let is_plain = (1e-6..1e14).contains(&step);
        let label =
            |value: f64| if is_plain { quantity::number(value, decimals) } else { format!("{value:.1e}") };
        let ticks: Vec<Tick> = (first..=last)
            .map(|index| {
                let value = index as f64 * step;
                Tick { at: value * scale.factor, label: label(value) }
            })
            .collect();
        assert!(ticks.len() >= 2 && ticks.len() <= 2 * tick_count + 2, "{} ticks, step {step}", ticks.len());
        Self { low: ticks[0].at, high: ticks[ticks.len() - 1].at, symbol: scale.symbol, ticks }
    }

    /// Position of `value` between the ends, 0 to 1, clamped.
    pub(crate) fn place(&self, value: f64) -> f64 {
        ((value - self.low) / (self.high - self.low)).clamp(0.0, 1.0)
    }
}

/// 1, 2 or 5 times a power of ten, not below `raw`.
fn round_step(raw: f64) -> f64 {
    assert!(raw > 0.0 && raw.is_finite(), "no step for a range of {raw}");
    let power = 10f64.powf(raw.log10().floor());
    let times = [1.0, 2.0, 5.0, 10.0].into_iter().find(|times| raw <= times * power * (1.0 + 1e-9));
    times.unwrap_or(10.0) * power
}

/// About `tick_count` ticks of a horizontal axis within `low..=high`, and its title; without `x` it is time.
pub(crate) fn horizontal(x: Option<&Axis>, low: f64, high: f64, tick_count: usize) -> (Vec<Tick>, String) {
    let Some(x) = x else {
        let (ticks, form) = time_ticks(low, high, tick_count);
        return (ticks, form.to_owned());
    };
    let axis = ValueAxis::covering(&x.unit, low, high, tick_count);
    let ticks = axis.ticks.into_iter().filter(|tick| (low..=high).contains(&tick.at)).collect();
    let name = [x.label.as_str(), axis.symbol.as_str()].join(", ");
    (ticks, name.trim_end_matches([',', ' ']).to_owned())
}

/// Steps of a time axis in seconds, as on a clock face.
const TIME_STEPS_S: [f64; 22] = [
    1.0,
    2.0,
    5.0,
    10.0,
    15.0,
    30.0,
    60.0,
    120.0,
    300.0,
    600.0,
    900.0,
    1800.0,
    3600.0,
    7200.0,
    10_800.0,
    21_600.0,
    43_200.0,
    86_400.0,
    172_800.0,
    432_000.0,
    864_000.0,
    1_728_000.0,
];

/// About `tick_count` ticks within `low_s..=high_s`, and the format of their labels.
pub(crate) fn time_ticks(low_s: f64, high_s: f64, tick_count: usize) -> (Vec<Tick>, &'static str) {
    let raw = (high_s - low_s) / tick_count as f64;
    if !(raw.is_finite() && raw > 0.0 && raw < 1e12) {
        return (vec![Tick { at: low_s, label: time_label(low_s, 1.0) }], "h:mm:ss");
    }
    let step = if raw < 1.0 {
        round_step(raw)
    } else {
        TIME_STEPS_S
            .into_iter()
            .find(|step| raw <= *step)
            .unwrap_or_else(|| round_step(raw / 86_400.0) * 86_400.0)
    };
    let first = (low_s / step - 1e-9).ceil() as i64;
    let last = (high_s / step + 1e-9).floor() as i64;
    let ticks = (first..=last).map(|index| index as f64 * step);
    let form = match step {
        s if s < 1.0 => "seconds",
        s if s < 60.0 => "min:s",
        s if s < 86_400.0 => "h:min",
        _ => "days",
    };
    (ticks.map(|at| Tick { at, label: time_label(at, step) }).collect(), form)
}

fn time_label(at_s: f64, step_s: f64) -> String {
    if step_s < 1.0 || at_s.abs() > 1e12 {
        return quantity::three_digits(at_s);
    }
    let sign = if at_s < 0.0 { "-" } else { "" };
    let whole = at_s.abs().round() as u64;
    if step_s < 60.0 {
        format!("{sign}{}:{:02}", whole / 60, whole % 60)
    } else if step_s < 86_400.0 {
        format!("{sign}{}:{:02}", whole / 3600, whole / 60 % 60)
    } else {
        format!("{sign}{}", whole / 86_400)
    }
}

/// A logarithmic axis whose ends are 1, 2 or 5 times a power of ten.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LogAxis {
    pub low: f64,
    pub high: f64,
    /// Each label has its own unit, which changes with the decades.
    pub ticks: Vec<Tick>,
}

impl LogAxis {
    /// An axis over `low..=high`; a low end of zero is replaced by four decades below the high one.
    pub(crate) fn covering(unit: &Unit, low: f64, high: f64) -> Self {
        let high = if high > 0.0 { high.min(LARGEST_DRAWN) } else { 1.0 };
        let low = if low > 0.0 { low.min(high) } else { high / 1e4 };
        // No screen shows more than this many decades legibly.
        let low = low.max(high / 1e12).max(1e-300);
        let low = round_down(low);
        let high = round_step(high).max(low * 2.0);
        let decades = (high / low).log10();
        let multiples: &[f64] = if decades <= 3.2 { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let stride = (decades / 8.0).ceil().max(1.0) as i32;
        let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
        let ticks = (first..=last)
            .filter(|power| power.rem_euclid(stride) == 0)
            .flat_map(|power| multiples.iter().map(move |times| times * 10f64.powi(power)))
            .filter(|at| (low * (1.0 - 1e-9)..=high * (1.0 + 1e-9)).contains(at))
            .map(|at| Tick { at, label: with_unit(unit, at) })
            .collect();
        Self { low, high, ticks }
    }

    /// Position of `value` between the ends, 0 to 1, clamped.
    pub(crate) fn place(&self, value: f64) -> f64 {
        let value = value.clamp(self.low, self.high);
        ((value / self.low).log10() / (self.high / self.low).log10()).clamp(0.0, 1.0)
    }
}

fn round_down(value: f64) -> f64 {
    let power = 10f64.powf(value.log10().floor());
    let times = [5.0, 2.0].into_iter().find(|times| times * power <= value * (1.0 + 1e-9));
    times.unwrap_or(1.0) * power
}

/// Formats `value` on its own best scale, with its unit: `310 µs`, `20 ms`.
pub(crate) fn with_unit(unit: &Unit, value: f64) -> String {
    // A hair more, so that 1 ms stored as 0.000999… seconds is not 1000 µs.
    let scale = unit.scale_for(value.abs() * (1.0 + 1e-9));
    let value = value / scale.factor;
    let is_whole = (value - value.round()).abs() < 1e-6;
    let digits = if is_whole { quantity::number(value, 0) } else { quantity::three_digits(value) };
    format!("{digits} {}", scale.symbol).trim_end().to_owned()
}

/// Ticks of a [`NinesAxis`].
const NINES: [f64; 8] = [0.0, 50.0, 90.0, 99.0, 99.9, 99.99, 99.999, 99.9999];

/// A percentile axis on which each further nine takes the same width.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NinesAxis {
    /// The highest percentile shown, below 100.
    pub high: f64,
    pub ticks: Vec<Tick>,
}

impl NinesAxis {
    /// An axis up to the highest percentile that `count` values support: one in a thousand needs a thousand
    /// values.
    pub(crate) fn for_count(count: u64) -> Self {
        let rarest = 100.0 - 100.0 / count.max(1) as f64;
        let high = NINES.into_iter().rev().find(|nines| *nines <= rarest + 1e-9).unwrap_or(0.0).max(90.0);
        let shown = NINES.into_iter().filter(|nines| *nines <= high);
        Self { high, ticks: shown.map(|at| Tick { at, label: format!("{at} %") }).collect() }
    }

    /// Position of `percent`, 0 to 1.
    pub(crate) fn place(&self, percent: f64) -> f64 {
        let nines = |percent: f64| -(1.0 - percent / 100.0).max(1e-9).log10();
        (nines(percent) / nines(self.high)).clamp(0.0, 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(ticks: &[Tick]) -> Vec<&str> {
        ticks.iter().map(|tick| tick.label.as_str()).collect()
    }

    fn check(unit: Unit, low: f64, high: f64, expected: &[&str], symbol: &str) {
        let axis = ValueAxis::covering(&unit, low, high, 5);
        assert_eq!(labels(&axis.ticks), expected, "{low}..{high}");
        assert_eq!(axis.symbol, symbol, "{low}..{high}");
    }

    #[test]
    fn ticks_are_round_in_the_scaled_unit_and_zero_is_among_them() {
        check(Unit::Milliseconds, 0.0, 31.0, &["0", "10", "20", "30", "40"], "ms");
        check(Unit::Milliseconds, 0.0, 0.31, &["0", "100", "200", "300", "400"], "µs");
        check(Unit::Milliseconds, 0.0, 20.0, &["0", "5", "10", "15", "20"], "ms");
        check(Unit::Bytes, 0.0, 3.0 * 1048576.0, &["0", "1", "2", "3"], "MiB");
        check(Unit::IoPerSecond, 0.0, 1_234.0, &["0.0", "0.5", "1.0", "1.5"], "k IOPS");
        check(Unit::One, -3.0, 4.0, &["-4", "-2", "0", "2", "4"], "");
        check(Unit::Percent, 0.0, 0.04, &["0.00", "0.01", "0.02", "0.03", "0.04"], "%");
    }

    #[test]
    fn odd_ranges_still_give_an_axis() {
        for (low, high) in
            [(0.0, 0.0), (1e-12, 1e-12), (5.0, 5.0), (0.0, 1e308), (-1e308, 1e308), (0.0, 5e-324)]
        {
            let axis = ValueAxis::covering(&Unit::One, low, high, 5);
            assert!(axis.low <= 0.0 && axis.high > axis.low, "{low}..{high}: {axis:?}");
            let axis = LogAxis::covering(&Unit::Seconds, low.max(0.0), high);
            assert!(
                axis.low > 0.0 && axis.high > axis.low && !axis.ticks.is_empty(),
                "{low}..{high}: {axis:?}"
            );
        }
    }

    #[test]
    fn time_ticks_follow_the_clock() {
        let check = |high_s: f64, expected: &[&str], form: &str| {
            let (ticks, found) = time_ticks(0.0, high_s, 8);
            assert_eq!((labels(&ticks).as_slice(), found), (expected, form), "{high_s}");
        };
        check(120.0, &["0:00", "0:15", "0:30", "0:45", "1:00", "1:15", "1:30", "1:45", "2:00"], "min:s");
        check(7200.0, &["0:00", "0:15", "0:30", "0:45", "1:00", "1:15", "1:30", "1:45", "2:00"], "h:min");
        check(
            86_400.0,
            &["0:00", "3:00", "6:00", "9:00", "12:00", "15:00", "18:00", "21:00", "24:00"],
            "h:min",
        );
        check(5.0 * 86_400.0, &["0", "1", "2", "3", "4", "5"], "days");
        check(0.0, &["0:00"], "h:mm:ss");
    }

    #[test]
    fn decades_name_their_own_unit() {
        let axis = LogAxis::covering(&Unit::Milliseconds, 0.11, 900.0);
        assert_eq!(labels(&axis.ticks), ["100 µs", "1 ms", "10 ms", "100 ms", "1 s"]);
        assert_eq!((axis.place(0.1), axis.place(1000.0)), (0.0, 1.0));
        let narrow = LogAxis::covering(&Unit::Milliseconds, 3.0, 40.0);
        assert_eq!(labels(&narrow.ticks), ["2 ms", "5 ms", "10 ms", "20 ms", "50 ms"]);
    }

    #[test]
    fn no_percentile_is_shown_that_the_count_cannot_support() {
        assert_eq!(labels(&NinesAxis::for_count(5_000).ticks), ["0 %", "50 %", "90 %", "99 %", "99.9 %"]);
        assert_eq!(NinesAxis::for_count(3).high, 90.0);
        let axis = NinesAxis::for_count(1_000_000);
        assert!((axis.place(99.0) - 2.0 / 6.0).abs() < 1e-9, "{axis:?}");
    }
}
