//! The page of kinds, made from their table.

use super::{
    KindCourse, ReportedKind, dr_kinds::DR_KINDS, kinds, pool_kinds::POOL_KINDS, server_kinds::SERVER_KINDS,
    set_kinds::SET_KINDS,
};
use crate::page_lines::page_lines;

const HEAD: &str = "\
# Kinds of events

`spindle event`, the API and notifiers report these. A **condition** lasts: it has one event when it begins
(`\"state\": \"raised\"`) and one when it has ended (`\"cleared\"`), and none between, unless it becomes worse. It
is listed by `spindle event conditions` until it has ended; `spindle event acknowledge` says that somebody has
taken it on. An **occurrence** has one event.

Notifiers get conditions, and occurrences that no condition reports. Severity is *note* (good to know),
*warning* (a person should act) or *error* (mail stands still or data is in danger, now or soon). Some kinds
are an error in their worst form, as their entry says.

How events are kept and delivered is in [the decision](decisions/2026-11-27-events.md), the verbs in
[event](verbs/event.md).

This page is generated from the table (`crates/control/src/kinds`); a test checks that both agree.
";

/// The page `docs/events.md`.
pub fn listing() -> String {
    let mut page = HEAD.to_owned();
    let is_condition = |kind: &&ReportedKind| kind.topic().is_some();
    page += "\n## Conditions\n";
    SERVER_KINDS.iter().filter(is_condition).for_each(|kind| page += &entry(kind));
    page += "\n## Conditions of sets that are backed up\n";
    SET_KINDS.iter().for_each(|kind| page += &entry(kind));
    page += "\n## Conditions of DR groups and paired sites\n";
    DR_KINDS.iter().filter(is_condition).for_each(|kind| page += &entry(kind));
    page += "\n## Occurrences of the server\n";
    SERVER_KINDS.iter().filter(|kind| !is_condition(kind)).for_each(|kind| page += &entry(kind));
    page += "\n## Occurrences of pools\n";
    POOL_KINDS.iter().for_each(|kind| page += &entry(kind));
    page += "\n## Occurrences of DR groups and paired sites\n";
    DR_KINDS.iter().filter(|kind| !is_condition(kind)).for_each(|kind| page += &entry(kind));
    page
}

fn entry(kind: &ReportedKind) -> String {
    let severity = kind.severity.word();
    let mut text = format!("\n### `{}`\n\n", kind.name);
    let covered = kind.covered_by.map_or_else(String::new, |topic| {
        let of_topic =
            kinds().filter(|kind| kind.topic() == Some(topic)).map(|kind| format!("`{}`", kind.name));
        format!(" Notifiers get {} in its place.", of_topic.collect::<Vec<_>>().join(", "))
    });
    let course = match kind.course {
        KindCourse::Condition(topic) => format!("condition, topic {topic}"),
        KindCourse::Occurrence => "occurrence".to_owned(),
    };
    text += &lines(&format!("**{severity}**, {course}. {}{covered}", kind.when), "");
    for (label, words) in [
        ("For mail now", kind.for_mail),
        ("Spindle", kind.spindle),
        ("Until", kind.until),
        ("To do", kind.next_step),
    ] {
        text += &lines(&format!("* {label}: {words}"), "  ");
    }
    text + &lines(&format!("* Can it wait till morning: {}.", kind.haste.words()), "  ")
}

fn lines(text: &str, rest: &str) -> String {
    page_lines(text, ("", rest), 107)
}
