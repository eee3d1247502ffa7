//! The mark of a schedule on its snapshots: a name for people, and a note by which the schedule knows its own.
//!
//! Invariant: a snapshot is a schedule's own by its note alone. A person's snapshot may have a similar name.

use crate::UnixSecond;

/// Start of the note; the schedule's name follows.
const NOTE_START: &str = "spindle-schedule: ";
/// Longest name of a schedule, in bytes: a date and a number follow it in the names of snapshots.
pub const SCHEDULE_NAME_BYTES_MAX: usize = 64;
/// Digits of a date and a time to the minute: 2026-11-27-0300.
const STAMP_CHARS: usize = 15;

/// The mark of one schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScheduleMark<'n> {
    /// Name of the schedule.
    pub schedule: &'n str,
}

impl<'n> ScheduleMark<'n> {
    /// The mark in a snapshot's note; `None` if no schedule took the snapshot.
    pub fn of_note(note: &'n [u8]) -> Option<Self> {
        let schedule = std::str::from_utf8(note).ok()?.strip_prefix(NOTE_START)?;
        Some(Self { schedule })
    }

    /// The note of its snapshots.
    pub fn note(&self) -> String {
        format!("{NOTE_START}{}", self.schedule)
    }

    /// True if the note is that of its snapshots.
    pub fn is_on(&self, note: &[u8]) -> bool {
        ScheduleMark::of_note(note).is_some_and(|mark| mark.schedule == self.schedule)
    }

    /// A name for a snapshot taken at `now`: `daily-2026-11-27-0300`, with a number behind it if that is taken.
    pub fn free_name(&self, now: UnixSecond, is_taken: impl Fn(&str) -> bool) -> String {
        let stamp: String = report::calendar::file_stamp(now.0).chars().take(STAMP_CHARS).collect();
        let first = format!("{}-{stamp}", self.schedule);
        if !is_taken(&first) {
            return first;
        }
        let numbered = (2_u64..).map(|number| format!("{first}-{number}"));
        numbered.into_iter().find(|name| !is_taken(name)).expect("a volume has fewer snapshots than numbers")
    }
}

/// True if a schedule may have this name: its snapshots can be named by it.
pub fn is_schedule_name(name: &str) -> bool {
    let is_allowed = |char: char| !char.is_control() && !['/', '@', '~'].contains(&char);
    !name.is_empty() && name.len() <= SCHEDULE_NAME_BYTES_MAX && name.chars().all(is_allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_read_back_from_its_note_alone() {
        let daily = ScheduleMark { schedule: "daily" };
        assert_eq!(ScheduleMark::of_note(daily.note().as_bytes()), Some(daily));
        for note in
            ["", "daily", "spindle-schedule: dail", "spindle-schedule: daily2", "a spindle-schedule: daily"]
        {
            assert!(!daily.is_on(note.as_bytes()), "{note}");
        }
        assert_eq!(ScheduleMark::of_note(b"\xff"), None);
    }

    #[test]
    fn names_have_the_time_and_a_number_if_they_are_taken() {
        let daily = ScheduleMark { schedule: "daily" };
        let now = UnixSecond(1_795_782_896);
        assert_eq!(daily.free_name(now, |_| false), "daily-2026-11-27-1234");
        let taken = ["daily-2026-11-27-1234", "daily-2026-11-27-1234-2"];
        assert_eq!(daily.free_name(now, |name| taken.contains(&name)), "daily-2026-11-27-1234-3");
        assert!(is_schedule_name("daily") && !is_schedule_name("a/b") && !is_schedule_name(&"x".repeat(65)));
    }
}
