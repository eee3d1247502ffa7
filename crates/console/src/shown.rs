//! Figures in words and small pictures, for templates.

pub(crate) use crate::visit::escaped;

use control::{
    job_request::JobOutcome,
    web::{
        client::EventSeverity,
        health_rows::{JobName, JobRequestRow, JobRow, JobState, JobUnit},
    },
};
use report::{
    duration::{show_duration, show_estimate},
    prose::number,
    settings,
};
use std::{fmt::Write, time::Duration};
use world::ByteCount;

/// A size in binary units.
pub(crate) fn bytes(bytes: &u64) -> String {
    ByteCount(*bytes).to_string()
}

/// A bound: 0 is none.
pub(crate) fn bound(bytes: &u64) -> String {
    if *bytes == 0 { "none".to_owned() } else { ByteCount(*bytes).to_string() }
}

/// A rate: 0 is no limit.
pub(crate) fn rate(rate: &u32, unit: &str) -> String {
    if *rate == 0 { "no limit".to_owned() } else { format!("{} {unit}", number((*rate).into(), 0)) }
}

/// A count with separators.
pub(crate) fn count(count: impl Countable) -> String {
    number(count.as_count(), 0)
}

/// A count with its noun, which is given in the singular.
pub(crate) fn counted(count: impl Countable, noun: &str) -> String {
    let number = count.as_count();
    let plural = match noun.strip_suffix('y') {
        _ if number == 1.0 => noun.to_owned(),
        Some(stem) => format!("{stem}ies"),
        None => format!("{noun}s"),
    };
    format!("{} {plural}", report::prose::number(number, 0))
}

/// Integers of any size, and references to them, as templates pass them.
pub(crate) trait Countable {
    fn as_count(&self) -> f64;
}

macro_rules! counts {
    ($($kind:ty),*) => { $(impl Countable for $kind {
        fn as_count(&self) -> f64 {
            *self as f64
        }
    })* };
}
counts!(u8, u32, u64, usize);

impl<T: Countable> Countable for &T {
    fn as_count(&self) -> f64 {
        (*self).as_count()
    }
}

/// A time of the API, `2026-11-21T22:05:00Z`, as `2026-11-21 22:05:00`; pages say that times are UTC.
pub(crate) fn time(time: &str) -> String {
    time.trim_end_matches('Z').replacen('T', " ", 1)
}

pub(crate) fn seconds(seconds: &u64) -> String {
    show_duration(Duration::from_secs(*seconds))
}

pub(crate) fn milliseconds(milliseconds: &u64) -> String {
    show_duration(Duration::from_millis(*milliseconds))
}

pub(crate) fn float_seconds(seconds: &f64) -> String {
    show_duration(Duration::try_from_secs_f64(*seconds).unwrap_or_default())
}

pub(crate) fn yes(is: &bool) -> &'static str {
    if *is { "yes" } else { "no" }
}

pub(crate) fn percent(part: &u64, whole: &u64) -> String {
    match *whole {
        0 => "–".to_owned(),
        whole => format!("{} %", number(*part as f64 * 100.0 / whole as f64, 1)),
    }
}

/// A bar that shows a part of a whole. Text beside it has the figures.
pub(crate) fn meter(part: &u64, whole: &u64) -> String {
    let share = if *whole == 0 { 0.0 } else { (*part as f64 / *whole as f64).clamp(0.0, 1.0) };
    let state = match share {
        share if share >= 0.95 => " full",
        share if share >= 0.8 => " high",
        _ => "",
    };
    let width = share * 120.0;
    format!(
        "<svg class=\"meter\" width=\"120\" height=\"10\" viewBox=\"0 0 120 10\" aria-hidden=\"true\" focusable=\"false\">\
         <rect class=\"meter-whole\" width=\"120\" height=\"10\" rx=\"2\"/>\
         <rect class=\"meter-part{state}\" width=\"{width:.1}\" height=\"10\" rx=\"2\"/></svg>"
    )
}

pub(crate) fn severity(severity: &EventSeverity) -> &'static str {
    match severity {
        EventSeverity::Note => "note",
        EventSeverity::Warning => "warning",
        EventSeverity::Error => "error",
    }
}

pub(crate) fn job_name(name: &JobName) -> &'static str {
    match name {
        JobName::Rebuild => "rebuild",
        JobName::Empty => "empty drives",
        JobName::Level => "levelling",
        JobName::Scrub => "scrub",
        JobName::Destage => "destage",
        JobName::Reclaim => "reclaim",
        JobName::Fill => "fill clones",
        JobName::Copy => "copy",
        JobName::Refresh => "refresh",
        JobName::Move => "move",
        JobName::Import => "import",
    }
}

pub(crate) fn job_state(state: &JobState) -> &'static str {
    match state {
        JobState::Idle => "idle",
        JobState::Waiting => "waiting",
        JobState::Running => "running",
    }
}

/// The note of a snapshot; those of schedules and sets are for programs.
pub(crate) fn note(note: &str) -> String {
    match (note.strip_prefix("spindle-schedule: "), note.starts_with("spindle-backup:")) {
        (Some(schedule), _) => format!("by schedule {schedule}"),
        (None, true) => "of a backup".to_owned(),
        (None, false) => note.to_owned(),
    }
}

/// The outcome of a job that was asked for.
pub(crate) fn outcome(request: &JobRequestRow) -> String {
    let word = match request.outcome {
        None => "under way",
        Some(JobOutcome::Done) => "done",
        Some(JobOutcome::Failed) => "failed",
        Some(JobOutcome::Cancelled) => "cancelled",
    };
    let ended = request.ended_at.as_ref().map_or_else(String::new, |ended| format!(" {}", time(ended)));
    let problem =
        request.problem.as_ref().map_or_else(String::new, |problem| format!(": {}", spelled(problem)));
    format!("{word}{ended}{problem}")
}

/// A text of the API with its settings as the labels of forms name them.
pub(crate) fn spelled(text: &str) -> String {
    settings::spelled(text, |setting| setting.replace('-', " ")).into_owned()
}

/// Progress of a job with its rate and the time left, as far as they are known.
pub(crate) fn job_progress(job: &JobRow) -> String {
    let mut text = match job.unit {
        _ if job.total == 0 && job.done == 0 => return "–".to_owned(),
        JobUnit::Bytes if job.total == 0 => bytes(&job.done),
        JobUnit::Bytes => {
            format!("{} of {} ({})", bytes(&job.done), bytes(&job.total), percent(&job.done, &job.total))
        }
        JobUnit::Nanoseconds | JobUnit::Millionths => percent(&job.done, &job.total),
    };
    if job.state == JobState::Running && job.unit == JobUnit::Bytes && job.per_second > 0 {
        let _ = write!(text, ", {}/s", bytes(&job.per_second));
    }
    if let Some(left) = job.time_left_s {
        let _ = write!(text, ", {} left", show_estimate(Duration::from_secs(left)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_units_and_missing_ones_a_dash() {
        assert_eq!(bytes(&(3 << 30)), "3.00 GiB");
        assert_eq!(
            (bound(&0), rate(&0, "IOPS"), rate(&5000, "IOPS")),
            ("none".into(), "no limit".into(), "5,000 IOPS".into())
        );
        assert_eq!((counted(1u8, "copy"), counted(2u8, "copy")), ("1 copy".into(), "2 copies".into()));
        assert_eq!(counted(4000usize, "drive"), "4,000 drives");
        let notes = ["spindle-schedule: hourly", "spindle-backup:1 aea", "before the move"].map(note);
        assert_eq!(notes, ["by schedule hourly", "of a backup", "before the move"]);
        assert_eq!(time("2026-11-21T22:05:00Z"), "2026-11-21 22:05:00");
        assert_eq!((percent(&1, &3), percent(&1, &0)), ("33.3 %".into(), "–".into()));
    }

    #[test]
    fn a_meter_stays_in_its_box() {
        assert!(meter(&5, &0).contains("width=\"0.0\""));
        let over = meter(&5, &4);
        assert!(over.contains("width=\"120.0\"") && over.contains("full"), "{over}");
        assert!(!over.contains("style"), "the policy forbids it");
    }
}
