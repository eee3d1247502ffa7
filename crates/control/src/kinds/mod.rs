//! Kinds of events: one table of everything that the server and its pools report, with severity, meaning for mail, and the
//! next step. The page [docs/events.md](../../../../docs/events.md) is made of it, and so is each message to people.
//!
//! Reading order: this file, `pool_kinds`, `server_kinds`, `set_kinds` and `dr_kinds` (the table), `message` (the words of an event), `listing` (the page).
//!
//! Invariants:
//!
//! 1. Every event has a kind of the table: a line without one is a `note` or a `warning`.
//! 2. A condition has two events, when it is raised and when it has ended; the detail `state` tells them apart. An occurrence
//!    has one.
//! 3. An occurrence that a condition reports, too (`covered_by`), goes to no notifier: the condition's event does.

mod dr_kinds;
mod listing;
mod message;
mod pool_kinds;
mod server_kinds;
mod set_kinds;

pub use listing::listing;
pub use message::{headline, message};

use dr_kinds::DR_KINDS;
use pool_kinds::POOL_KINDS;
use report::Severity;
use server_kinds::SERVER_KINDS;
use serving::pool::events::EventReport;
use set_kinds::SET_KINDS;

/// Detail of a condition's event: [`RAISED`] or [`CLEARED`].
pub const STATE: &str = "state";
pub const RAISED: &str = "raised";
pub const CLEARED: &str = "cleared";
/// Detail of a condition's event: the condition's id.
pub const CONDITION: &str = "condition";

/// A kind of events.
#[derive(Debug)]
pub struct ReportedKind {
    pub name: &'static str,
    /// The usual one: an event of a pool may have another.
    pub severity: Severity,
    pub course: KindCourse,
    /// The moment at which it is reported.
    pub when: &'static str,
    /// Effect on mail now.
    pub for_mail: &'static str,
    /// Spindle's own part.
    pub spindle: &'static str,
    /// The end of that.
    pub until: &'static str,
    /// The person's part, unless the event says it more exactly.
    pub next_step: &'static str,
    pub haste: Haste,
    /// Topic of the conditions that report it as well.
    pub covered_by: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KindCourse {
    /// It happens, and is over.
    Occurrence,
    /// It lasts. Conditions of one topic and one subject are steps of each other.
    Condition(&'static str),
}

/// Time that a person has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Haste {
    Now,
    Morning,
    NoStep,
}

/// An occurrence that no condition reports. The words are for mail, Spindle's part, its end, and the next step.
const fn occurrence(
    name: &'static str,
    severity: Severity,
    when: &'static str,
    [for_mail, spindle, until, next_step]: [&'static str; 4],
    haste: Haste,
) -> ReportedKind {
    let course = KindCourse::Occurrence;
    ReportedKind {
        name,
        severity,
        course,
        when,
        for_mail,
        spindle,
        until,
        next_step,
        haste,
        covered_by: None,
    }
}

impl Haste {
    pub fn words(self) -> &'static str {
        match self {
            Self::Now => "no, act now",
            Self::Morning => "yes",
            Self::NoStep => "yes, there is nothing to do",
        }
    }
}

impl ReportedKind {
    /// Topic of a condition.
    pub fn topic(&self) -> Option<&'static str> {
        match self.course {
            KindCourse::Condition(topic) => Some(topic),
            KindCourse::Occurrence => None,
        }
    }
}

/// The whole table.
pub fn kinds() -> impl Iterator<Item = &'static ReportedKind> {
    SERVER_KINDS.iter().chain(SET_KINDS).chain(POOL_KINDS).chain(DR_KINDS)
}

/// The kind of this name.
pub fn kind(name: &str) -> Option<&'static ReportedKind> {
    kinds().find(|kind| kind.name == name)
}

/// True for the event with which a condition ended.
pub fn is_cleared(report: &EventReport) -> bool {
    report.details.get(STATE).is_some_and(|state| state == CLEARED)
}

/// A line said it before: a pool that does not open is shown when it is tried (`NoticeSender::show`).
pub fn was_shown(report: &EventReport) -> bool {
    report.event == "pool_not_open" && !is_cleared(report)
}

/// The severity by which notifiers choose: that a condition has ended matters to those who were told of it.
pub fn notified_severity(report: &EventReport) -> Severity {
    match kind(&report.event) {
        Some(kind) if is_cleared(report) => kind.severity,
        _ => report.severity,
    }
}

/// False for an event that a condition reports as well.
pub fn is_notified(report: &EventReport) -> bool {
    kind(&report.event).is_none_or(|kind| kind.covered_by.is_none())
}
