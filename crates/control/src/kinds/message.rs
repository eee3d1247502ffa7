//! The words of an event for people: what happened, what that means for mail, Spindle's part, until when, the person's part.

use super::{Haste, is_cleared, kind};
use serving::pool::events::EventReport;

/// The first line: severity, pool or thread, and what happened.
pub fn headline(report: &EventReport) -> String {
    let EventReport { pool, text, .. } = report;
    if is_cleared(report) { format!("{pool}: over: {text}") } else { format!("{pool}: {text}") }
}

/// The whole message, of several lines.
pub fn message(report: &EventReport) -> String {
    let head = headline(report);
    let Some(kind) = kind(&report.event) else { return format!("{head}\n") };
    if is_cleared(report) {
        return format!("{head}\nWas: {} Nothing is left to do.\n", kind.when);
    }
    let next_step = match report.next_step.as_str() {
        "" => kind.next_step.to_owned(),
        next_step => sentence(next_step),
    };
    let morning = match (kind.haste, report.severity) {
        // Of a kind that may be worse than usual.
        (Haste::Morning, report::Severity::Error) if kind.severity != report::Severity::Error => Haste::Now,
        (haste, _) => haste,
    };
    format!(
        "{head}\n\nFor mail now: {}\nSpindle: {}\nUntil: {}\nTo do: {next_step}\nCan it wait till morning: {}.\n",
        kind.for_mail,
        kind.spindle,
        kind.until,
        morning.words()
    )
}

/// A next step as a sentence.
fn sentence(text: &str) -> String {
    let mut chars = text.chars();
    let first: String = chars.next().map(|first| first.to_uppercase().collect()).unwrap_or_default();
    let end = if text.ends_with(['.', '\'']) { "" } else { "." };
    format!("{first}{}{end}", chars.as_str())
}
