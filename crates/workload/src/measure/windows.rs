//! Windows: samples folded into equal stretches of time, on which averages and maxima are judged.

use crate::meter::IoTally;
use std::time::Duration;

/// Averaging window of a verdict's maxima (AMI 2008, test log: "interval: 15000 ms").
pub const WINDOW: Duration = Duration::from_secs(15);

/// A sample of the measured time.
pub trait TimedSample: Clone {
    /// End, in seconds from the start of measurement.
    fn end_s(&self) -> f64;

    /// Length, in seconds.
    fn span_s(&self) -> f64;

    /// Joins this sample with `next`, which follows it.
    #[must_use]
    fn followed_by(self, next: &Self) -> Self;
}

/// Folds samples into windows by their midpoints. A remainder at the end is no whole window: the last window
/// extends back from the end and overlaps the one before, so that no moment is left out. A run shorter than a
/// window is one window.
pub fn windows<S: TimedSample>(samples: &[S], window: Duration) -> Vec<S> {
    let window_s = window.as_secs_f64();
    // The midpoint of a sample is clearly in one window, however late its tick was.
    let middle_s = |sample: &S| sample.end_s() - sample.span_s() / 2.0;
    let Some(end_s) = samples.last().map(S::end_s) else { return Vec::new() };
    // Ticks may be early or late: at least nine tenths of a window count as one.
    let whole = ((end_s / window_s + 0.1) as usize).max(1);
    let mut starts: Vec<f64> = (0..whole).map(|index| index as f64 * window_s).collect();
    if end_s > (whole as f64 + 0.1) * window_s {
        starts.push(end_s - window_s);
    }
    let last = starts.len() - 1;
    let within = |index: usize, sample: &S| {
        middle_s(sample) >= starts[index] && (index == last || middle_s(sample) < starts[index] + window_s)
    };
    let folded = (0..starts.len()).filter_map(|index| {
        let of_window = samples.iter().filter(|sample| within(index, sample)).cloned();
        of_window.reduce(|merged, sample| merged.followed_by(&sample))
    });
    folded.collect()
}

/// The mean of the windows' averages, in milliseconds: the average that published tests judge.
///
/// Equal stretches of time count equally, however few operations they saw: in a closed loop slow time has
/// few. Windows without operations are left out.
pub fn mean_of_windows_ms<S>(windows: &[S], of: impl Fn(&S) -> IoTally) -> Option<f64> {
    let averages: Vec<f64> = windows.iter().filter_map(|window| of(window).average_ms()).collect();
    (!averages.is_empty()).then(|| averages.iter().sum::<f64>() / averages.len() as f64)
}

/// The highest of the windows' averages, in milliseconds, and at least the average over all `samples`: since
/// the last window overlaps, the average over everything could otherwise be higher.
pub fn worst_window_ms<S>(samples: &[S], windows: &[S], of: impl Fn(&S) -> IoTally) -> Option<f64> {
    let mut whole = IoTally::default();
    samples.iter().for_each(|sample| whole.merge(&of(sample)));
    let averages = windows.iter().filter_map(|window| of(window).average_ms());
    averages.chain(whole.average_ms()).max_by(f64::total_cmp)
}
