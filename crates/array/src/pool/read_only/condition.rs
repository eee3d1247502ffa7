//! Condition of a pool that is opened for reading only: what was found, and what is missing.

use crate::{
    election::{DriveSuperblock, OpenRefusal, elect},
    error::Error,
    format::{
        CheckpointNumber, DriveId, Generation, MemberIndex, PoolId, Position, Superblock, WallNanoseconds,
        checkpoint::OPENING_STEP,
    },
    simulation::canary::{self, Canary},
};
use std::collections::{BTreeMap, BTreeSet};

/// Condition of a pool, apart from unreadable ranges of volumes
/// ([`ReadOnlyVolume::survey`](super::ReadOnlyVolume::survey)).
#[derive(Clone, Debug)]
pub struct Condition {
    pub pool: PoolId,
    pub name: String,
    /// Generation of the superblock that is used.
    pub generation: Generation,
    pub checkpoint: CheckpointNumber,
    /// Time of that checkpoint.
    pub written_at: WallNanoseconds,
    /// Superblocks of higher rank whose catalogue or trees cannot be read, highest first.
    pub skipped: Vec<SkippedSuperblock>,
    pub drives: Vec<DriveCondition>,
    /// Absent drives that may hold newer data.
    pub may_be_newer_on: Vec<DriveId>,
    /// Devices that are not used, by their index.
    pub not_used: Vec<(usize, UnusedReason)>,
    /// The log after the checkpoint.
    pub log: LogCondition,
    /// Errors in parts of the catalogue; volumes and snapshots in those parts are not listed.
    pub catalogue_gaps: Vec<Error>,
}

/// A superblock that was skipped despite its higher rank.
#[derive(Clone, Debug)]
pub struct SkippedSuperblock {
    pub generation: Generation,
    /// Time of its checkpoint.
    pub written_at: WallNanoseconds,
    pub reason: Error,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriveCondition {
    pub member: MemberIndex,
    pub drive: DriveId,
    pub serial: String,
    /// Its index among the devices; `None` if it is absent.
    pub given: Option<usize>,
    /// True if the pool was written without it: its content is older than that of others, or the only copy.
    pub is_behind: bool,
}

/// Reasons not to read a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnusedReason {
    /// No superblock can be read.
    NoSuperblock,
    OtherPool(PoolId),
    /// A second copy of a drive; the other one is read.
    Copy(DriveId),
    /// A former member of the pool.
    NoMember(DriveId),
}

/// The log of a pool that is opened for reading only.
#[derive(Clone, Debug)]
pub struct LogCondition {
    /// Records after the checkpoint that were applied.
    pub records: u64,
    /// Position of the last record.
    pub last: Position,
    /// All positions below were acknowledged.
    pub acknowledged_below: Position,
    /// A record that could not be decoded; no later one was applied.
    pub refused: Option<Error>,
    /// The log may continue in a segment that has no present copy, or whose header cannot be read. The number
    /// of its records is unknown.
    pub may_go_on: bool,
}

impl LogCondition {
    /// True if acknowledged records are missing.
    pub fn is_cut_short(&self) -> bool {
        let is_short =
            self.refused.is_some() || self.may_go_on || self.acknowledged_below.0 > self.last.0 + 1;
        is_short && !canary::is(Canary::CutLogTakenForWhole)
    }

    /// The number of missing records; `None` if it is unknown. Positions are consecutive while a pool is
    /// open.
    pub fn missing_records(&self) -> Option<u64> {
        let missing = self.acknowledged_below.0.saturating_sub(self.last.0 + 1);
        let is_known = self.refused.is_none() && !self.may_go_on && missing < OPENING_STEP;
        is_known.then_some(missing)
    }
}

impl Condition {
    /// True if acknowledged data may be missing.
    pub fn may_be_older(&self) -> bool {
        self.log.is_cut_short() || !self.may_be_newer_on.is_empty() || !self.skipped.is_empty()
    }

    /// True if no data is known to be missing: all drives are present and current, catalogue and log are
    /// complete.
    pub fn is_whole(&self) -> bool {
        let is_current = |drive: &DriveCondition| drive.given.is_some() && !drive.is_behind;
        !self.may_be_older() && self.catalogue_gaps.is_empty() && self.drives.iter().all(is_current)
    }
}

/// The members of a pool, according to its superblock.
pub(super) fn drives_of(superblock: &Superblock, seen: &[DriveSuperblock]) -> Vec<DriveCondition> {
    let elected = elect(seen, true).ok();
    let current: BTreeSet<usize> =
        elected.iter().flat_map(|election| election.present.values().copied()).collect();
    let given: BTreeMap<DriveId, usize> =
        seen.iter().map(|seen| (seen.superblock.drive(), seen.given)).collect();
    let members = superblock.members.iter().enumerate();
    let drives = members.map(|(index, member)| {
        let given = given.get(&member.drive).copied();
        let is_behind = given.is_some_and(|given| match &elected {
            Some(_) => !current.contains(&given),
            None => !member.state.holds_superblocks(),
        });
        let drive = DriveCondition {
            member: MemberIndex(index as u16),
            drive: member.drive,
            serial: member.serial.clone(),
            given,
            is_behind,
        };
        (member.state.has_slots() || given.is_some()).then_some(drive)
    });
    drives.flatten().collect()
}

/// Absent drives that may hold newer data.
pub(super) fn may_be_newer_on(seen: &[DriveSuperblock]) -> Vec<DriveId> {
    match elect(seen, false) {
        Err(OpenRefusal::MayBeNewerElsewhere(drives) | OpenRefusal::TooFewDrives(drives)) => drives,
        _ => Vec::new(),
    }
}
