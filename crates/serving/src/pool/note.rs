//! Notes of snapshots for people and programs. A note is any bytes; most are text.

use serde::{Deserialize, Serialize};
use world::ByteCount;

/// The note of a snapshot: either as text or in hexadecimal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NoteStatus {
    pub snapshot: String,
    /// A note in UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Bytes that are not UTF-8, two digits each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note_hex: Option<String>,
}

impl NoteStatus {
    /// None if the snapshot has no note.
    pub fn of(snapshot: &str, note: &[u8]) -> Option<Self> {
        if note.is_empty() {
            return None;
        }
        let name = snapshot.to_owned();
        Some(match String::from_utf8(note.to_vec()) {
            Ok(note) => Self { snapshot: name, note: Some(note), note_hex: None },
            Err(_) => {
                let hex = note.iter().map(|byte| format!("{byte:02x}")).collect();
                Self { snapshot: name, note: None, note_hex: Some(hex) }
            }
        })
    }

    /// In a line: control characters are escaped.
    pub fn text(&self) -> String {
        match (&self.note, &self.note_hex) {
            (Some(note), _) => {
                let escaped = |char: char| {
                    if char.is_control() { char.escape_default().to_string() } else { char.to_string() }
                };
                note.chars().map(escaped).collect()
            }
            (None, Some(hex)) => format!("a note of {}, not text", ByteCount(hex.len() as u64 / 2)),
            (None, None) => String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(note: &[u8]) -> Option<NoteStatus> {
        NoteStatus::of("monday", note)
    }

    #[test]
    fn a_note_is_kept_as_text_and_bytes_that_are_no_text_in_hexadecimal() {
        assert_eq!(of(b""), None);
        assert_eq!(of("für\n\u{1b}[1m".as_bytes()).unwrap().text(), "für\\n\\u{1b}[1m");
        let bytes = of(&[0xff, 0x00, 0x10]).unwrap();
        assert_eq!((bytes.note.as_deref(), bytes.note_hex.as_deref()), (None, Some("ff0010")));
        assert_eq!(bytes.text(), "a note of 3 B, not text");
    }
}
