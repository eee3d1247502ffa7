//! Gaps between the answers that a load got, and the percentile of many.

use anyhow::{Context, Result};

/// A stretch of wall-clock time, in milliseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Span {
    pub begun_ms: f64,
    pub ended_ms: f64,
}

/// Moments at which fio's log of latencies has answers, in milliseconds since 1970, in their order. The log is one of
/// `write_lat_log` with `log_unix_epoch=1`: a line for each answer, which begins with its moment.
pub fn answers_of(log: &str) -> Result<Vec<f64>> {
    let moment = |line: &str| -> Result<f64> {
        let first = line.split(',').next().unwrap_or_default();
        first.trim().parse().with_context(|| format!("a line of fio's log without a moment: {line}"))
    };
    let mut answers = log.lines().map(moment).collect::<Result<Vec<_>>>()?;
    answers.sort_by(f64::total_cmp);
    Ok(answers)
}

/// The longest time between two neighbouring answers that overlaps `span`, in milliseconds. `None` if the answers do not
/// reach from before the span to after it.
pub fn longest_gap(answers: &[f64], span: Span) -> Option<f64> {
    let first = answers.partition_point(|&answer| answer <= span.begun_ms).checked_sub(1)?;
    let last = answers.partition_point(|&answer| answer < span.ended_ms);
    answers.get(last)?;
    answers[first..=last].windows(2).map(|pair| pair[1] - pair[0]).max_by(f64::total_cmp)
}

/// The smallest of some values that at least `percent` % of them do not exceed (nearest rank). `None` of nothing.
pub fn percentile(values: &[f64], percent: usize) -> Option<f64> {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let rank = (values.len() * percent).div_ceil(100).max(1);
    values.get(rank - 1).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn span(begun_ms: f64, ended_ms: f64) -> Span {
        Span { begun_ms, ended_ms }
    }

    #[test]
    fn the_log_of_fio_gives_moments_in_order() {
        let log = "1795945153898, 19825431, 1, 8192, 0\n1795945153878, 19950464, 1, 8192, 0\n";
        assert_eq!(answers_of(log).unwrap(), [1_795_945_153_878.0, 1_795_945_153_898.0]);
        assert_eq!(answers_of("").unwrap(), [0.0; 0]);
        assert!(answers_of("time, value\n").is_err());
    }

    #[test]
    fn a_gap_counts_from_the_last_answer_before_to_the_first_after() {
        let answers = [0.0, 10.0, 20.0, 95.0, 100.0, 300.0];
        // The gap is longer than the span within it, and one that only begins in the span counts as a whole.
        assert_eq!(longest_gap(&answers, span(30.0, 90.0)), Some(75.0));
        assert_eq!(longest_gap(&answers, span(15.0, 97.0)), Some(75.0));
        assert_eq!(longest_gap(&answers, span(97.0, 110.0)), Some(200.0));
        // Gaps outside do not count.
        assert_eq!(longest_gap(&answers, span(2.0, 9.0)), Some(10.0));
        // An answer at the very end of the span ends the gap.
        assert_eq!(longest_gap(&answers, span(20.0, 95.0)), Some(75.0));
    }

    #[test]
    fn a_gap_that_the_answers_do_not_enclose_is_unknown() {
        let answers = [10.0, 20.0];
        assert_eq!(longest_gap(&answers, span(5.0, 15.0)), None);
        assert_eq!(longest_gap(&answers, span(15.0, 25.0)), None);
        assert_eq!(longest_gap(&[], span(1.0, 2.0)), None);
    }

    #[test]
    fn a_percentile_is_a_value_by_its_rank() {
        let hundred: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        assert_eq!(percentile(&hundred, 99), Some(99.0));
        assert_eq!(percentile(&hundred, 50), Some(50.0));
        assert_eq!(percentile(&hundred[..20], 99), Some(100.0));
        assert_eq!(percentile(&[7.0], 99), Some(7.0));
        assert_eq!(percentile(&[], 99), None);
    }
}
