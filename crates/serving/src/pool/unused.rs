//! Advice on drives of a pool that are not in use: no drive with the last copy of something may be erased.

use super::status::DriveStatus;
use array::{format::DriveId, pool::Pool};
use std::{collections::BTreeMap, path::Path};
use world::ByteCount;

/// Advice on each drive that is not in use and holds the last copy of something, or is present and fell behind: one line
/// each.
pub fn advice(
    folder: &Path,
    pool: &Pool,
    drives: &[DriveStatus],
    only_there: &BTreeMap<DriveId, u64>,
) -> Vec<String> {
    let single_copy = pool.rebuild_progress().single_copy_bytes;
    let mut not_shown: BTreeMap<String, u64> =
        only_there.iter().map(|(id, bytes)| (id.to_string(), *bytes)).collect();
    let mut lines = Vec::new();
    for drive in drives.iter().filter(|drive| !drive.is_in_use) {
        let Some(id) = &drive.drive else { continue };
        match not_shown.remove(id) {
            Some(bytes) => lines.push(last_copy(&drive.name, drive.is_there, ByteCount(bytes))),
            None if drive.is_there => lines.push(fell_behind(&drive.name, single_copy)),
            None => {}
        }
    }
    for (id, bytes) in not_shown {
        lines.push(last_copy(&id, false, ByteCount(bytes)));
    }
    if !only_there.is_empty() {
        lines.push(format!(
            "to read data that lies only there: end the export, then 'spindle pool salvage {}/VOLUME OUT'",
            folder.display()
        ));
    }
    lines
}

fn last_copy(name: &str, is_there: bool, bytes: ByteCount) -> String {
    let standing = if is_there { "fell behind" } else { "is not there" };
    let step = if is_there { "do not erase it" } else { "keep it, and connect it" };
    format!("{name} {standing}, and {bytes} of the pool lie on no drive in use, but there: {step}")
}

fn fell_behind(name: &str, single_copy_bytes: u64) -> String {
    let step =
        "erase it (blkdiscard --zeroout, or remove the file), and add it with 'spindle pool add-drive'";
    match single_copy_bytes {
        0 => format!(
            "{name} fell behind, and nothing that the pool knows of lies on it alone. After a forced opening it may still \
             have newer data ('spindle pool salvage' reads it too); if you need none of it, {step}"
        ),
        bytes => format!(
            "{name} fell behind, and {} of the pool have one copy on drives in use: run 'spindle pool scrub' first; if \
             it loses nothing, {step}",
            ByteCount(bytes)
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_drive_is_to_be_erased_that_has_the_last_copy() {
        let line = last_copy("mail/drive-3.spindle", true, ByteCount(4096));
        assert!(line.ends_with("do not erase it") && line.contains("4.00 KiB"), "{line}");
        assert!(!last_copy("bay 7", false, ByteCount(4096)).contains("erase"));
        assert!(fell_behind("bay 7", 0).contains("if you need none of it, erase it"));
        assert!(fell_behind("bay 7", 4096).contains("'spindle pool scrub' first"));
    }
}
