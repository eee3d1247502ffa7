//! The condition of a pool that is only read: what was found of it, and what is missing.

use crate::{
    election::{NotOpened, Seen, elect},
    error::Error,
    format::{
        CheckpointNumber, DriveId, Generation, MemberIndex, PoolId, Position, Superblock, WallNanoseconds,
        checkpoint::OPENING_STEP,
    },
    simulation::canary::{self, Canary},
};
use std::collections::{BTreeMap, BTreeSet};

/// What of a pool was found, and what was not. Ranges of volumes that cannot be read are not in it
/// ([`ReadOnlyVolume::survey`](crate::volume::ReadOnlyVolume::survey)).
#[derive(Clone, Debug)]
pub struct Condition {
    /// Which pool.
    pub pool: PoolId,
    /// Its name, for people.
    pub name: String,
    /// Of the superblock that is read.
    pub generation: Generation,
    /// The checkpoint it names.
    pub checkpoint: CheckpointNumber,
    /// When that was written.
    pub written_at: WallNanoseconds,
    /// Superblocks that count more, and whose catalogue or trees cannot be read; the one that counts most first.
    pub passed_over: Vec<PassedOver>,
    /// The pool's drives.
    pub drives: Vec<DriveCondition>,
    /// Drives that are not there and may hold newer data than those that are.
    pub may_be_newer_on: Vec<DriveId>,
    /// Drives given that are none of the pool's, by their place among those given.
    pub not_used: Vec<(usize, NotUsed)>,
    /// What the log has beyond the checkpoint.
    pub log: LogCondition,
    /// Why parts of the catalogue cannot be read: volumes and snapshots that were in them are not listed.
    pub catalogue_gaps: Vec<Error>,
}

/// A superblock that was not taken, though it counts more than the one that was.
#[derive(Clone, Debug)]
pub struct PassedOver {
    /// Which.
    pub generation: Generation,
    /// When its checkpoint was written.
    pub written_at: WallNanoseconds,
    /// Why.
    pub reason: Error,
}

/// A drive of the pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriveCondition {
    /// Which member.
    pub member: MemberIndex,
    /// Its UUID.
    pub drive: DriveId,
    /// Its serial number, for people.
    pub serial: String,
    /// Which of the drives given it is; none if it is not there.
    pub given: Option<usize>,
    /// It was away while the pool was written: what it holds is older than what others do, or the only copy of it.
    pub is_behind: bool,
}

/// Why a drive that was given is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotUsed {
    /// None of its superblocks can be read.
    NoSuperblock,
    /// It belongs to another pool.
    OtherPool(PoolId),
    /// The same drive was given twice, or copied whole; another one is read.
    Copy(DriveId),
    /// The pool has no such drive any more.
    NoMember(DriveId),
}

/// The log of a pool that is only read.
#[derive(Clone, Debug)]
pub struct LogCondition {
    /// Records beyond the checkpoint that were taken in.
    pub records: u64,
    /// Position of the last record there is.
    pub last: Position,
    /// Everything below was acknowledged.
    pub acknowledged_below: Position,
    /// A record that cannot be understood, behind which nothing was taken.
    pub refused: Option<Error>,
    /// It may go on in a segment of which no drive that is there has a copy, or whose header cannot be read: nobody knows
    /// how far.
    pub may_go_on: bool,
}

impl LogCondition {
    /// Whether something that was acknowledged is missing.
    pub fn is_cut_short(&self) -> bool {
        let is_short =
            self.refused.is_some() || self.may_go_on || self.acknowledged_below.0 > self.last.0 + 1;
        is_short && !canary::is(Canary::CutLogTakenForWhole)
    }

    /// How many records are missing, if that can be counted: positions of records go on one by one while a pool is open.
    pub fn missing_records(&self) -> Option<u64> {
        let missing = self.acknowledged_below.0.saturating_sub(self.last.0 + 1);
        let is_known = self.refused.is_none() && !self.may_go_on && missing < OPENING_STEP;
        is_known.then_some(missing)
    }
}

impl Condition {
    /// Whether what is read may be older than what was acknowledged.
    pub fn may_be_older(&self) -> bool {
        self.log.is_cut_short() || !self.may_be_newer_on.is_empty() || !self.passed_over.is_empty()
    }

    /// Whether nothing is known to be missing: all drives are there, and catalogue and log are whole.
    pub fn is_whole(&self) -> bool {
        let is_current = |drive: &DriveCondition| drive.given.is_some() && !drive.is_behind;
        !self.may_be_older() && self.catalogue_gaps.is_empty() && self.drives.iter().all(is_current)
    }
}

/// The drives of a pool as its superblock has them.
pub(super) fn drives_of(superblock: &Superblock, seen: &[Seen]) -> Vec<DriveCondition> {
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

/// Drives that are not there and may hold newer data.
pub(super) fn may_be_newer_on(seen: &[Seen]) -> Vec<DriveId> {
    match elect(seen, false) {
        Err(NotOpened::MayBeNewerElsewhere(drives) | NotOpened::TooFewDrives(drives)) => drives,
        _ => Vec::new(),
    }
}
