//! Failure sets of a pool: drives that keep all copies of a segment, and what may be lost at once, for people and
//! programs.

use super::{domains::file_name, folder::OpenPool, status::DriveStatus};
use array::{
    format::DriveId,
    pool::{FailureSetsStatus, Pool, SETS_FROM_DRIVES, SetStatus},
};
use report::Refusal;
use serde::{Deserialize, Serialize};
use world::ByteCount;

/// The failure sets of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailureSetsReport {
    /// Drives are divided into sets, from 12 drives on.
    pub wanted: bool,
    /// By number; none in a pool of fewer drives.
    pub sets: Vec<SetReport>,
    /// Segments with copies in several sets, and their bytes of one copy.
    pub across_segments: u64,
    pub across_bytes: u64,
    /// Drives of each set that may be lost at once without a loss of data; 0 while segments lie across sets.
    pub losses_per_set: usize,
    /// So many of each set together, as far as the others are half of the drives.
    pub losses_at_once: usize,
}

/// A failure set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetReport {
    pub number: u8,
    /// UUIDs of its drives in use.
    pub drives: Vec<String>,
    /// UUIDs of its drives that are missing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
}

impl FailureSetsReport {
    /// Those of an open pool.
    pub fn of(pool: &Pool) -> Self {
        let FailureSetsStatus {
            is_wanted,
            sets,
            across_segments,
            across_bytes,
            losses_per_set,
            losses_at_once,
        } = pool.failure_sets();
        let is_sure = across_segments == 0 && !sets.is_empty();
        Self {
            wanted: is_wanted,
            sets: sets.into_iter().map(SetReport::of).collect(),
            across_segments,
            across_bytes,
            losses_per_set: if is_sure { losses_per_set } else { 0 },
            losses_at_once: if is_sure { losses_at_once } else { 0 },
        }
    }

    /// The number of a drive's set.
    pub fn set_of(&self, drive: &str) -> Option<u8> {
        let has_it = |set: &&SetReport| set.drives.iter().chain(&set.missing).any(|known| known == drive);
        self.sets.iter().find(has_it).map(|set| set.number)
    }

    /// Its lines; `drives` are those of the pool.
    pub fn text(&self, drives: &[DriveStatus]) -> Vec<String> {
        let mut lines: Vec<String> = self.sets.iter().map(|set| set.text(drives)).collect();
        lines.extend(self.consequence(drives.iter().filter(|drive| drive.is_in_use).count()));
        lines
    }

    fn consequence(&self, drives_in_use: usize) -> Option<String> {
        let Self { across_segments, losses_per_set, losses_at_once, .. } = self;
        if self.sets.is_empty() {
            return self.without_sets(drives_in_use);
        }
        if *across_segments > 0 {
            let bytes = ByteCount(self.across_bytes);
            return Some(format!(
                "failure sets: {across_segments} segments ({bytes}) lie across sets, so drives of different sets may not be \
                 lost at once; an export moves them into one set each as far as there is room, 'spindle pool level' at \
                 once"
            ));
        }
        Some(match losses_per_set {
            0 => "failure sets: copies are missing, so no drive of any set may be lost until they are made"
                .to_owned(),
            losses => format!(
                "failure sets: mirrored data survives the loss of {} drives at once unless they are in one set: {losses} of \
                 each set, {losses_at_once} together",
                losses + 1
            ),
        })
    }

    fn without_sets(&self, drives_in_use: usize) -> Option<String> {
        if self.wanted {
            return Some(format!("failure sets: none yet, they begin at {SETS_FROM_DRIVES} drives"));
        }
        (drives_in_use >= SETS_FROM_DRIVES).then(|| {
            "failure sets: none, so drives that are lost at once may hold all copies of some data; see 'spindle pool set'"
                .to_owned()
        })
    }
}

impl SetReport {
    fn of(SetStatus { number, drives, absent }: SetStatus) -> Self {
        let ids = |drives: &[DriveId]| drives.iter().map(DriveId::to_string).collect();
        Self { number: number.get(), drives: ids(&drives), missing: ids(&absent) }
    }

    fn text(&self, drives: &[DriveStatus]) -> String {
        let name_of = |drive: &String| {
            let known = drives.iter().find(|known| known.drive.as_ref() == Some(drive));
            known.map_or_else(|| drive.clone(), |known| file_name(&known.path))
        };
        let mut listed: Vec<String> = self.drives.iter().map(name_of).collect();
        if !self.missing.is_empty() {
            listed.push(format!("{} missing", self.missing.len()));
        }
        format!("set {}: {}", self.number, listed.join(", "))
    }
}

/// Divides the drives into failure sets, or does away with the sets.
///
/// # Errors
///
/// The pool refuses; nothing was changed.
pub async fn set_failure_sets(open: &OpenPool, is_wanted: bool) -> Result<(), Refusal> {
    let set = open.pool.set_failure_sets(is_wanted).await;
    set.map_err(|error| open.refusal(&error, "nothing was changed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_consequence_is_in_words() {
        let set = |number| SetReport { number, drives: Vec::new(), missing: Vec::new() };
        let two = FailureSetsReport {
            wanted: true,
            sets: vec![set(1), set(2)],
            losses_per_set: 1,
            losses_at_once: 2,
            ..Default::default()
        };
        let text = |report: &FailureSetsReport, drives| report.consequence(drives).unwrap_or_default();
        assert_eq!(
            text(&two, 12),
            "failure sets: mirrored data survives the loss of 2 drives at once unless they are in one set: 1 of each set, 2 \
             together"
        );
        let three_copies = FailureSetsReport { losses_per_set: 2, losses_at_once: 4, ..two.clone() };
        assert!(
            text(&three_copies, 12)
                .contains("loss of 3 drives at once unless they are in one set: 2 of each set, 4")
        );
        let degraded = FailureSetsReport { losses_per_set: 0, losses_at_once: 0, ..two.clone() };
        assert!(text(&degraded, 12).contains("copies are missing"));
        let across = FailureSetsReport { across_segments: 3, across_bytes: 3 << 20, ..degraded };
        assert!(text(&across, 12).contains("3 segments (3.00 MiB) lie across sets"), "{}", text(&across, 12));
        let none = FailureSetsReport::default();
        assert_eq!(text(&none, 11), "");
        assert!(text(&none, 12).contains("see 'spindle pool set'"));
        let not_yet = FailureSetsReport { wanted: true, ..none };
        assert_eq!(text(&not_yet, 11), "failure sets: none yet, they begin at 12 drives");
    }
}
