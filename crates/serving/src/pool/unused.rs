//! Advice on drives of a pool that are not in use: no drive with the last copy of something may be erased.

use super::status::DriveStatus;
use array::format::DriveId;
use std::{collections::BTreeMap, path::Path};
use world::ByteCount;

/// Advice on each drive that is not in use and holds the last copy of something, or is present and fell behind: one line
/// each.
pub fn advice(folder: &Path, drives: &[DriveStatus], only_there: &BTreeMap<DriveId, u64>) -> Vec<String> {
    let mut not_shown: BTreeMap<String, u64> =
        only_there.iter().map(|(id, bytes)| (id.to_string(), *bytes)).collect();
    let mut lines = Vec::new();
    for drive in drives.iter().filter(|drive| !drive.is_in_use) {
        let Some(id) = &drive.drive else { continue };
        match not_shown.remove(id) {
            Some(bytes) => lines.push(last_copy(folder, &drive.name, drive.is_there, ByteCount(bytes))),
            None if drive.is_there => lines.push(fell_behind(folder, &drive.name)),
            None => {}
        }
    }
    for (id, bytes) in not_shown {
        lines.push(last_copy(folder, &id, false, ByteCount(bytes)));
    }
    if !only_there.is_empty() {
        lines.push(format!(
            "to read data that lies only there: end the export, then 'spindle pool salvage {}/VOLUME OUT'",
            folder.display()
        ));
    }
    lines
}

fn last_copy(folder: &Path, name: &str, is_there: bool, bytes: ByteCount) -> String {
    let standing = if is_there { "fell behind" } else { "is not there" };
    let step = match is_there {
        true => format!(
            "do not erase it; 'spindle pool readmit {} DRIVE' takes it back, with what lies only there",
            folder.display()
        ),
        false => "keep it, and connect it".to_owned(),
    };
    format!("{name} {standing}, and {bytes} of the pool lie on no drive in use, but there: {step}")
}

fn fell_behind(folder: &Path, name: &str) -> String {
    format!(
        "{name} fell behind, and nothing that the pool knows of lies on it alone: 'spindle pool readmit {} DRIVE' takes \
         it back and copies what changed. After a forced opening it may still have newer data, which that overwrites: \
         'spindle pool salvage' reads it first",
        folder.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_drive_is_to_be_erased_that_has_the_last_copy() {
        let folder = Path::new("mail");
        let line = last_copy(folder, "mail/drive-3.spindle", true, ByteCount(4096));
        assert!(line.contains("do not erase it; ") && line.contains("4.00 KiB"), "{line}");
        assert!(!last_copy(folder, "bay 7", false, ByteCount(4096)).contains("erase"));
        assert!(!fell_behind(folder, "bay 7").contains("erase"));
    }
}
