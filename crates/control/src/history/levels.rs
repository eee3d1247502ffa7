//! Figures of samples as levels of one byte: an eighth of an octave apart, which is 9 %. A figure is off by 4.4 % at most,
//! and sums of many are off by less: that is what 400 days cost in 100 MB.

use super::sample::IoSample;

/// Levels in an octave.
const IN_OCTAVE: f32 = 8.0;
/// The first level of each figure is two to this power: from an operation in 8 minutes, 16 bytes a second, and 60 ns.
const FIRST_OCTAVES: [f32; IoSample::FIGURES] = [-9.0, 4.0, -24.0, -24.0, -9.0, 4.0, -24.0, -24.0];

/// The level of a figure: 0 for none, and the first or last one for what lies outside.
pub(super) fn level_of(figure: usize, value: f32) -> u8 {
    if value <= 0.0 || !value.is_finite() {
        return 0;
    }
    let octaves = value.log2() - FIRST_OCTAVES[figure];
    (octaves * IN_OCTAVE + 1.0).round().clamp(1.0, 255.0) as u8
}

/// A figure as it is read back: in operations, bytes or seconds.
pub(super) fn value_of(figure: usize, level: u8) -> f32 {
    match level {
        0 => 0.0,
        level => (FIRST_OCTAVES[figure] + f32::from(level - 1) / IN_OCTAVE).exp2(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_off_by_less_than_a_twentieth() {
        // From an operation in five minutes to a million a second; to 50 GB/s; from a microsecond to a minute.
        let ranges = [(0.0034, 1e6), (20.0, 5e10), (1e-6, 60.0), (1e-6, 60.0)];
        for (figure, (from, to)) in [ranges, ranges].concat().into_iter().enumerate() {
            let mut value = from;
            while value < to {
                let kept = value_of(figure, level_of(figure, value));
                assert!((kept / value - 1.0).abs() < 0.05, "figure {figure}: {value} is kept as {kept}");
                value *= 1.013;
            }
        }
    }

    #[test]
    fn levels_are_themselves_again() {
        for figure in 0..IoSample::FIGURES {
            for level in 0..=255 {
                assert_eq!(level_of(figure, value_of(figure, level)), level, "figure {figure}");
            }
        }
        assert_eq!((level_of(0, f32::NAN), level_of(0, -1.0), level_of(1, f32::INFINITY)), (0, 0, 0));
        assert_eq!((level_of(1, 1e30), level_of(1, 0.1)), (255, 1));
    }
}
