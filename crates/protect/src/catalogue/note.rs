//! The note that a pool keeps with each point of a backup: enough to make a lost catalogue again.
//!
//! ```text
//! spindle-backup:1 0123456789abcdef h 2 f a? - o 1h+htiwo,1d+htiii
//!                │ │                │ │ │ │  │ │ └ slots: period, start in minutes since 1970
//!                │ │                │ │ │ │  │ └ seconds from the cut for which it is locked, or -
//!                │ │                │ │ │ │  └ full backup that these logs need, or -
//!                │ │                │ │ │ └ label: a, f or c; with ? as long as no thaw has confirmed it
//!                │ │                │ │ └ kind: f (full), l (logs) or c (crash)
//!                │ │                │ └ points of the backup
//!                │ │                └ sequence number
//!                │ └ identity of the set; its name is in the name of the point
//!                └ version
//! ```
//!
//! Numbers have base 36. The note is [`POINT_NOTE_BYTES_MAX`] bytes long at most.

use super::entry::{LabelWord, SetId};
use crate::{
    UnixSecond,
    backup_schedule::{BackupKind, FilledSlot, SCHEDULES_MAX},
};
use thiserror::Error;

/// Bytes of a note. A pool keeps up to 768 with a point.
pub const POINT_NOTE_BYTES_MAX: usize = 200;
/// Highest sequence number in a note: a backup a second for 89,000 years.
const SEQUENCE_MAX: u64 = 36_u64.pow(8) - 1;
/// Most points of a backup.
const POINTS_MAX: u32 = 36_u32.pow(3) - 1;

const START: &str = "spindle-backup:";
const VERSION: &str = "1";
const FIELDS: usize = 9;
const NONE: &str = "-";

/// A note that begins as one of a backup.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PointNoteError {
    #[error("its note is of version {0:?}, and this program knows version {VERSION}; use a newer program")]
    OtherVersion(String),
    #[error("its note is no note of a backup: {0:?}")]
    Damaged(String),
}

/// The facts of a backup that its points carry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PointNote {
    pub set: SetId,
    pub sequence: u64,
    /// Points of the backup, this one included.
    pub points: u32,
    pub kind: BackupKind,
    pub label: LabelWord,
    /// A thaw has confirmed the label. Points are cut before the thaw.
    pub is_confirmed: bool,
    pub needs: Option<u64>,
    pub lock_s: Option<i64>,
    pub slots: Vec<FilledSlot>,
}

const KINDS: [(&str, BackupKind); 3] =
    [("f", BackupKind::Full), ("l", BackupKind::InterimLogs), ("c", BackupKind::InterimCrash)];
const LABELS: [(&str, LabelWord); 3] =
    [("a", LabelWord::Application), ("f", LabelWord::Filesystem), ("c", LabelWord::Crash)];

impl PointNote {
    /// # Panics
    ///
    /// If it has more than eight slots, a sequence number beyond 36⁸, or a lock of more than a century.
    pub fn encode(&self) -> String {
        assert!(
            self.slots.len() <= SCHEDULES_MAX && self.sequence <= SEQUENCE_MAX && self.points <= POINTS_MAX
        );
        let kind = KINDS.iter().find(|(_, kind)| *kind == self.kind).expect("all kinds are listed").0;
        let label = LABELS.iter().find(|(_, label)| *label == self.label).expect("all labels are listed").0;
        let doubt = if self.is_confirmed { "" } else { "?" };
        let number = |number: Option<u64>| number.map_or(NONE.to_owned(), base_36);
        let slots: Vec<String> = self.slots.iter().map(slot_text).collect();
        let note = format!(
            "{START}{VERSION} {set} {sequence} {points} {kind} {label}{doubt} {needs} {lock} {slots}",
            set = self.set,
            sequence = base_36(self.sequence),
            points = base_36(self.points.into()),
            needs = number(self.needs),
            lock = number(self.lock_s.map(|lock| u64::try_from(lock).unwrap_or(0))),
            slots = if slots.is_empty() { NONE.to_owned() } else { slots.join(",") },
        );
        assert!(note.len() <= POINT_NOTE_BYTES_MAX, "{note}");
        note
    }

    /// The facts in a note; `None` if the point is of no backup.
    ///
    /// # Errors
    ///
    /// The note is of another version, or damaged.
    pub fn decode(note: &[u8]) -> Result<Option<Self>, PointNoteError> {
        let Some(rest) = note.strip_prefix(START.as_bytes()) else { return Ok(None) };
        let damaged = || PointNoteError::Damaged(String::from_utf8_lossy(note).into_owned());
        let rest = str::from_utf8(rest).map_err(|_| damaged())?;
        let fields: Vec<&str> = rest.split(' ').collect();
        if fields[0] != VERSION {
            return Err(PointNoteError::OtherVersion(fields[0].to_owned()));
        }
        if fields.len() != FIELDS {
            return Err(damaged());
        }
        let decoded = Self::of_fields(&fields).ok_or_else(damaged)?;
        // One form for each content: a note that says the same in other words is nobody's.
        if decoded.encode().as_bytes() == note { Ok(Some(decoded)) } else { Err(damaged()) }
    }

    fn of_fields(fields: &[&str]) -> Option<Self> {
        let optional = |text: &str| if text == NONE { Some(None) } else { number(text).map(Some) };
        let label = fields[5].strip_suffix('?').unwrap_or(fields[5]);
        let slots = match fields[8] {
            NONE => Vec::new(),
            slots => slots.split(',').map(slot_of).collect::<Option<Vec<_>>>()?,
        };
        let lock_s = optional(fields[7])?.map(i64::try_from).transpose().ok()?;
        let sequence = number(fields[2]).filter(|sequence| *sequence <= SEQUENCE_MAX)?;
        let decoded = Self {
            set: SetId::try_from(fields[1].to_owned()).ok()?,
            sequence,
            points: u32::try_from(number(fields[3])?).ok().filter(|points| *points <= POINTS_MAX)?,
            kind: KINDS.iter().find(|(word, _)| *word == fields[4])?.1,
            label: LABELS.iter().find(|(word, _)| *word == label)?.1,
            is_confirmed: label.len() == fields[5].len(),
            needs: optional(fields[6])?,
            lock_s,
            slots,
        };
        let is_short = fields.iter().map(|field| field.len() + 1).sum::<usize>() + START.len()
            <= POINT_NOTE_BYTES_MAX + 1;
        (is_short && decoded.slots.len() <= SCHEDULES_MAX).then_some(decoded)
    }
}

/// `1h+hu4qs`. Slots start on whole minutes in every zone of today; one that does not is given in seconds, `1h.1p0q7a4`.
fn slot_text(slot: &FilledSlot) -> String {
    let start_s = slot.start.0.max(0).unsigned_abs();
    match start_s % 60 {
        0 => format!("{}+{}", slot.period, base_36(start_s / 60)),
        _ => format!("{}.{}", slot.period, base_36(start_s)),
    }
}

fn slot_of(text: &str) -> Option<FilledSlot> {
    let (period, start, unit_s) = match text.split_once('+') {
        Some((period, start)) => (period, start, 60),
        None => text.split_once('.').map(|(period, start)| (period, start, 1))?,
    };
    let start_s = i64::try_from(number(start)?.checked_mul(unit_s)?).ok()?;
    Some(FilledSlot { period: period.parse().ok()?, start: UnixSecond(start_s) })
}

fn base_36(mut number: u64) -> String {
    let mut digits = Vec::new();
    loop {
        let digit = (number % 36) as u32;
        digits.push(char::from_digit(digit, 36).expect("a digit"));
        number /= 36;
        if number == 0 {
            return digits.iter().rev().collect();
        }
    }
}

fn number(text: &str) -> Option<u64> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit() || byte.is_ascii_lowercase());
    u64::from_str_radix(text, 36).ok().filter(|_| is_number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(period: &str, start_s: i64) -> FilledSlot {
        FilledSlot { period: period.parse().unwrap(), start: UnixSecond(start_s) }
    }

    fn note() -> PointNote {
        PointNote {
            set: SetId::new(0x0123_4567_89ab_cdef),
            sequence: 17,
            points: 2,
            kind: BackupKind::Full,
            label: LabelWord::Application,
            is_confirmed: false,
            needs: None,
            lock_s: Some(14 * 86_400),
            slots: vec![slot("1h", 1_795_860_000), slot("1d", 1_795_829_400)],
        }
    }

    #[test]
    fn a_note_is_short_text_and_is_read_back() {
        let text = note().encode();
        assert_eq!(text, "spindle-backup:1 0123456789abcdef h 2 f a? - pxc0 1h+htiwo,1d+htiii");
        assert_eq!(PointNote::decode(text.as_bytes()), Ok(Some(note())));
        let longest = PointNote {
            sequence: SEQUENCE_MAX,
            points: POINTS_MAX,
            needs: Some(SEQUENCE_MAX),
            lock_s: Some(36_525 * 86_400),
            slots: (0..8).map(|number| slot(&format!("99{number}month"), 60 * 1_000_000_000)).collect(),
            ..note()
        };
        let text = longest.encode();
        assert!(text.len() <= POINT_NOTE_BYTES_MAX, "{}", text.len());
        assert_eq!(PointNote::decode(text.as_bytes()), Ok(Some(longest)));
        let odd = PointNote {
            slots: vec![slot("1h", 1_795_860_001)],
            needs: Some(3),
            is_confirmed: true,
            ..note()
        };
        assert_eq!(PointNote::decode(odd.encode().as_bytes()), Ok(Some(odd)));
    }

    #[test]
    fn other_notes_are_none_and_damaged_ones_are_named() {
        for other in ["", "before the upgrade", "spindle-schedule: daily"] {
            assert_eq!(PointNote::decode(other.as_bytes()), Ok(None));
        }
        let error = PointNote::decode(b"spindle-backup:2 x").unwrap_err().to_string();
        assert!(error.contains("of version \"2\", and this program knows version 1"), "{error}");
        let text = note().encode();
        for damaged in [
            text.replace(" f ", " x "),
            text.replace("1h+", "1h-"),
            text.replace(" h ", " H "),
            text.replace(" h ", " +h "),
            text.replace(" h ", " 0h "),
            text.replace("a?", "a??"),
            format!("{text} "),
            text[..text.len() - 7].to_owned() + ",",
            format!("{text}{}", ",1h+htiwo".repeat(20)),
        ] {
            assert!(
                matches!(PointNote::decode(damaged.as_bytes()), Err(PointNoteError::Damaged(_))),
                "{damaged}"
            );
        }
    }
}
