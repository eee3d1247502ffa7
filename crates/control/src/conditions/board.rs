//! The conditions that are open. Plain state: callers say the time, and record the events.
//!
//! Invariants:
//!
//! 1. A condition is known by its topic, pool and subject; it is open once at most.
//! 2. It has one event when it is raised and one when it has ended. Between them it has none, unless it becomes worse: then one
//!    more, and nobody has acknowledged that.
//! 3. An acknowledgement ends with its condition, or when that becomes worse.
//! 4. The event of the end has the worst kind that the condition had, so that it goes to everybody who heard of it.

use crate::kinds::{self, CLEARED, CONDITION, RAISED, ReportedKind, STATE};
use report::{Severity, calendar::utc_time};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use serving::pool::events::EventReport;
use std::collections::BTreeMap;
use world::WallTime;

/// Something that lasts, as somebody sees it now.
#[derive(Clone, Debug, PartialEq)]
pub struct ConditionClaim {
    pub kind: &'static str,
    /// Name of the pool, or of a thread.
    pub pool: String,
    /// The drive, schedule, notifier or file, if there may be several.
    pub subject: String,
    pub text: String,
    /// More exact than that of the kind; may be empty.
    pub next_step: String,
}

/// A condition that is open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenCondition {
    /// `TOPIC:POOL:SUBJECT`, without what is empty.
    pub id: String,
    pub topic: String,
    pub pool: String,
    pub subject: String,
    /// As it is now.
    pub kind: String,
    /// The worst kind that it had.
    pub worst: String,
    pub text: String,
    pub next_step: String,
    /// In UTC.
    pub raised_at: String,
    pub acknowledged: Option<Acknowledgement>,
}

/// Somebody has taken a condition on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acknowledgement {
    pub who: String,
    /// In UTC.
    pub at: String,
}

/// All conditions that are open, by id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConditionBoard {
    open: BTreeMap<String, OpenCondition>,
}

impl ConditionClaim {
    /// # Panics
    ///
    /// If `kind` is no condition of the table.
    pub fn new(kind: &'static str, pool: &str, text: impl Into<String>) -> Self {
        assert!(kinds::kind(kind).is_some_and(|kind| kind.topic().is_some()), "{kind} is no condition");
        Self {
            kind,
            pool: pool.to_owned(),
            subject: String::new(),
            text: text.into(),
            next_step: String::new(),
        }
    }

    pub fn of(self, subject: impl Into<String>) -> Self {
        Self { subject: subject.into(), ..self }
    }

    pub fn with_next(self, next_step: impl Into<String>) -> Self {
        Self { next_step: next_step.into(), ..self }
    }

    fn reported(&self) -> &'static ReportedKind {
        kinds::kind(self.kind).expect("it was found when the claim was made")
    }

    pub fn severity(&self) -> Severity {
        self.reported().severity
    }

    pub fn id(&self) -> String {
        condition_id(self.reported().topic().expect("it is a condition"), &self.pool, &self.subject)
    }
}

/// The id of a condition.
pub fn condition_id(topic: &str, pool: &str, subject: &str) -> String {
    [topic, pool, subject].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(":")
}

/// Order of kinds from mild to bad: by severity, then by their places in the table.
fn badness(kind: &str) -> (u8, usize) {
    let place = kinds::kinds().position(|known| known.name == kind).unwrap_or_default();
    let severity = match kinds::kind(kind).map_or(Severity::Warning, |kind| kind.severity) {
        Severity::Note => 0,
        Severity::Warning => 1,
        Severity::Error => 2,
    };
    (severity, place)
}

impl OpenCondition {
    /// That of its present kind.
    pub fn severity(&self) -> Severity {
        kinds::kind(&self.kind).map_or(Severity::Warning, |kind| kind.severity)
    }

    fn event(&self, (name, severity, state): (&str, Severity, &str), now: WallTime) -> EventReport {
        let mut details = Map::new();
        details.insert(CONDITION.to_owned(), Value::from(self.id.as_str()));
        details.insert(STATE.to_owned(), Value::from(state));
        if !self.subject.is_empty() {
            details.insert("subject".to_owned(), Value::from(self.subject.as_str()));
        }
        EventReport {
            event: name.to_owned(),
            severity,
            time: utc_time(now.seconds),
            pool: self.pool.clone(),
            text: self.text.clone(),
            next_step: if state == RAISED { self.next_step.clone() } else { String::new() },
            details,
        }
    }
}

impl ConditionBoard {
    /// The conditions that a journal has kept. One of a kind that this version does not know is left out.
    pub fn of(known: Vec<OpenCondition>) -> Self {
        let is_known = |condition: &OpenCondition| {
            kinds::kind(&condition.kind).is_some_and(|kind| kind.topic() == Some(condition.topic.as_str()))
        };
        Self {
            open: known
                .into_iter()
                .filter(is_known)
                .map(|condition| (condition.id.clone(), condition))
                .collect(),
        }
    }

    /// By id.
    pub fn open(&self) -> impl Iterator<Item = &OpenCondition> {
        self.open.values()
    }

    /// All that is known but the texts.
    pub(crate) fn outline(&self) -> Vec<(String, String, String, Option<Acknowledgement>)> {
        let outline = |open: &OpenCondition| {
            (open.id.clone(), open.kind.clone(), open.worst.clone(), open.acknowledged.clone())
        };
        self.open.values().map(outline).collect()
    }

    pub fn get(&self, id: &str) -> Option<&OpenCondition> {
        self.open.get(id)
    }

    /// Opens a condition, or brings it up to date. The event, if it is new or has become worse.
    pub fn raise(&mut self, claim: &ConditionClaim, now: WallTime) -> Option<EventReport> {
        let (id, kind) = (claim.id(), claim.reported());
        let is_worse = self.open.get(&id).is_none_or(|open| badness(claim.kind) > badness(&open.kind));
        let open = self.open.entry(id.clone()).or_insert_with(|| OpenCondition {
            id,
            topic: kind.topic().expect("it is a condition").to_owned(),
            pool: claim.pool.clone(),
            subject: claim.subject.clone(),
            kind: claim.kind.to_owned(),
            worst: claim.kind.to_owned(),
            text: String::new(),
            next_step: String::new(),
            raised_at: utc_time(now.seconds),
            acknowledged: None,
        });
        claim.kind.clone_into(&mut open.kind);
        open.text.clone_from(&claim.text);
        open.next_step.clone_from(&claim.next_step);
        if badness(claim.kind) > badness(&open.worst) {
            claim.kind.clone_into(&mut open.worst);
        }
        if !is_worse {
            return None;
        }
        open.acknowledged = None;
        Some(open.event((kind.name, kind.severity, RAISED), now))
    }

    /// Ends a condition. The event, unless it was not open.
    pub fn clear(&mut self, id: &str, now: WallTime) -> Option<EventReport> {
        let ended = self.open.remove(id)?;
        Some(ended.event((&ended.worst, Severity::Note, CLEARED), now))
    }

    /// Brings all conditions of a scope up to date: those that are claimed are open, and no others.
    pub fn evaluate(
        &mut self,
        is_in_scope: impl Fn(&OpenCondition) -> bool,
        claims: &[ConditionClaim],
        now: WallTime,
    ) -> Vec<EventReport> {
        let claimed: Vec<String> = claims.iter().map(ConditionClaim::id).collect();
        let is_over = |open: &&OpenCondition| is_in_scope(open) && !claimed.contains(&open.id);
        let over: Vec<String> = self.open.values().filter(is_over).map(|open| open.id.clone()).collect();
        let mut events: Vec<_> = over.iter().filter_map(|id| self.clear(id, now)).collect();
        events.extend(claims.iter().filter_map(|claim| self.raise(claim, now)));
        events
    }

    /// Records who has taken a condition on. False if it is not open.
    pub fn acknowledge(&mut self, id: &str, who: &str, now: WallTime) -> bool {
        let Some(open) = self.open.get_mut(id) else { return false };
        let acknowledgement = Acknowledgement { who: who.to_owned(), at: utc_time(now.seconds) };
        // The first one stands.
        open.acknowledged.get_or_insert(acknowledgement);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: WallTime = WallTime { seconds: 1_795_782_896, nanos: 0 };

    fn claim(kind: &'static str, text: &str) -> ConditionClaim {
        ConditionClaim::new(kind, "mail", text)
    }

    fn shown(event: Option<EventReport>) -> String {
        event.map_or_else(
            || "none".to_owned(),
            |event| format!("{} {} {}", event.event, event.details[STATE].as_str().unwrap(), event.text),
        )
    }

    #[test]
    fn a_condition_has_one_event_up_and_one_down_and_none_between() {
        let mut board = ConditionBoard::default();
        assert_eq!(shown(board.raise(&claim("space_80", "81 %"), NOW)), "space_80 raised 81 %");
        assert_eq!(shown(board.raise(&claim("space_80", "83 %"), NOW)), "none");
        assert_eq!(board.get("space:mail").unwrap().text, "83 %", "it is up to date");
        assert_eq!(shown(board.clear("space:mail", NOW)), "space_80 cleared 83 %");
        assert_eq!(shown(board.clear("space:mail", NOW)), "none");
    }

    #[test]
    fn a_worse_condition_is_said_and_voids_the_acknowledgement_and_a_better_one_is_not() {
        let mut board = ConditionBoard::default();
        board.raise(&claim("space_90", "91 %"), NOW);
        assert!(board.acknowledge("space:mail", "user 0", NOW));
        assert_eq!(shown(board.raise(&claim("space_80", "85 %"), NOW)), "none");
        assert!(board.get("space:mail").unwrap().acknowledged.is_some(), "it stays acknowledged");
        assert_eq!(shown(board.raise(&claim("space_95", "96 %"), NOW)), "space_95 raised 96 %");
        assert!(board.get("space:mail").unwrap().acknowledged.is_none());
        board.raise(&claim("space_80", "81 %"), NOW);
        let ended = board.clear("space:mail", NOW).unwrap();
        assert_eq!((ended.event.as_str(), ended.severity), ("space_95", Severity::Note));
        assert_eq!(
            kinds::notified_severity(&ended),
            Severity::Error,
            "who heard of the error hears of its end"
        );
    }

    #[test]
    fn what_is_not_claimed_ends_within_its_scope_alone() {
        let mut board = ConditionBoard::default();
        board.raise(&claim("drive_failed", "a").of("a"), NOW);
        board.raise(&claim("drive_failed", "b").of("b"), NOW);
        board.raise(&ConditionClaim::new("on_battery", "power", "battery"), NOW);
        let of_mail = |open: &OpenCondition| open.pool == "mail";
        let events =
            board.evaluate(of_mail, &[claim("drive_failed", "b").of("b"), claim("space_80", "80 %")], NOW);
        let names: Vec<_> = events.into_iter().map(|event| shown(Some(event))).collect();
        assert_eq!(names, ["drive_failed cleared a", "space_80 raised 80 %"]);
        let open: Vec<_> = board.open().map(|open| open.id.as_str()).collect();
        assert_eq!(open, ["drive:mail:b", "power:power", "space:mail"]);
    }

    #[test]
    fn only_open_conditions_are_acknowledged_and_the_first_acknowledgement_stands() {
        let mut board = ConditionBoard::default();
        assert!(!board.acknowledge("space:mail", "user 0", NOW));
        board.raise(&claim("space_80", "80 %"), NOW);
        assert!(board.acknowledge("space:mail", "user 0", NOW));
        assert!(board.acknowledge("space:mail", "user 1", NOW));
        assert_eq!(board.get("space:mail").unwrap().acknowledged.as_ref().unwrap().who, "user 0");
        board.clear("space:mail", NOW);
        board.raise(&claim("space_80", "80 %"), NOW);
        assert!(board.get("space:mail").unwrap().acknowledged.is_none(), "it ended with its condition");
    }

    #[test]
    fn a_board_survives_its_journal_and_strangers_are_left_out() {
        let mut board = ConditionBoard::default();
        board.raise(&claim("space_80", "80 %"), NOW);
        let mut kept: Vec<_> = board.open().cloned().collect();
        kept.push(OpenCondition { kind: "of_tomorrow".to_owned(), id: "x".to_owned(), ..kept[0].clone() });
        assert_eq!(ConditionBoard::of(kept), board);
    }
}
