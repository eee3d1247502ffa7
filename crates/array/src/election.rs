//! The election: determines the valid superblock of a pool, whether the drives present may open it, and which
//! of them are current.
//!
//! If the drives of a pool diverged, the ones left behind must not open it: the others may hold writes
//! acknowledged since. `docs/format.md`, "Opening", has the rule; this module implements it as a pure
//! function.

use crate::{
    format::{
        DriveId, FeatureAccess, Features, Generation, Member, MemberIndex, MemberState, PoolId, Superblock,
        features::{
            COMPATIBLE_LEVEL, COMPATIBLE_SETS, COMPATIBLE_SPARING_DOUBLE, COMPATIBLE_SPARING_SINGLE,
            INCOMPATIBLE_BRANCHES, INCOMPATIBLE_CUTS, INCOMPATIBLE_DOMAINS, INCOMPATIBLE_FILLING,
            INCOMPATIBLE_GROUPS, INCOMPATIBLE_IMPORTS, INCOMPATIBLE_JOINING, INCOMPATIBLE_LEAVING,
            INCOMPATIBLE_NOTES, INCOMPATIBLE_PIVOTS, INCOMPATIBLE_REPLICAS, INCOMPATIBLE_REPLICATION,
            INCOMPATIBLE_SCRUB, INCOMPATIBLE_SETS, INCOMPATIBLE_SHARED_GROUPS, INCOMPATIBLE_SITE,
            INCOMPATIBLE_SPARE_FIRST, INCOMPATIBLE_SPARE_SECOND, INCOMPATIBLE_WITHHOLDING,
            READ_ONLY_BRANCH_STAMPS,
        },
    },
    simulation::sometimes::{self, Sometimes},
};
use std::collections::{BTreeMap, BTreeSet};

/// The pool features this program can read and write.
pub const KNOWN: Features = Features {
    compatible: COMPATIBLE_SPARING_SINGLE | COMPATIBLE_SPARING_DOUBLE | COMPATIBLE_SETS | COMPATIBLE_LEVEL,
    read_only: READ_ONLY_BRANCH_STAMPS,
    incompatible: INCOMPATIBLE_BRANCHES
        | INCOMPATIBLE_SCRUB
        | INCOMPATIBLE_JOINING
        | INCOMPATIBLE_PIVOTS
        | INCOMPATIBLE_LEAVING
        | INCOMPATIBLE_FILLING
        | INCOMPATIBLE_GROUPS
        | INCOMPATIBLE_NOTES
        | INCOMPATIBLE_CUTS
        | INCOMPATIBLE_SPARE_FIRST
        | INCOMPATIBLE_SPARE_SECOND
        | INCOMPATIBLE_DOMAINS
        | INCOMPATIBLE_SETS
        | INCOMPATIBLE_SHARED_GROUPS
        | INCOMPATIBLE_WITHHOLDING
        | INCOMPATIBLE_SITE
        | INCOMPATIBLE_REPLICAS
        | INCOMPATIBLE_REPLICATION
        | INCOMPATIBLE_IMPORTS,
};

/// The reason a pool is not opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenRefusal {
    #[error("none of the drives given belongs to a pool")]
    NoPool,
    #[error("the drives given belong to different pools, {0} and {1}; name those of one")]
    TwoPools(PoolId, PoolId),
    /// The same drive twice, or a full copy of one.
    #[error("drive {0} is given twice; name it once")]
    Twice(DriveId),
    /// The pool was made by a newer program.
    #[error("the pool uses features unknown to this program: {0}")]
    Features(FeatureAccess),
    /// The pool has a history tree from before the first release.
    #[error(
        "the pool's history has a layout from before the first release, which this program does not read; copy its \
         volumes with the program that wrote it, and create a new pool"
    )]
    OldHistory,
    /// Absent drives may hold newer data.
    #[error(
        "drives {} are missing and may hold newer data than those present; connect them",
        named(.0)
    )]
    MayBeNewerElsewhere(Vec<DriveId>),
    /// Some data has no copy left.
    #[error("drives {} are missing and have the only copy of some data; connect them", named(.0))]
    TooFewDrives(Vec<DriveId>),
}

fn named(drives: &[DriveId]) -> String {
    drives.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// The valid superblock of a drive with the highest generation.
#[derive(Clone, Debug)]
pub struct DriveSuperblock {
    /// Index among the drives given.
    pub given: usize,
    pub superblock: Superblock,
}

/// A pool that may be opened.
#[derive(Clone, Debug)]
pub struct Election {
    /// The pool's superblock, from one of its drives.
    pub superblock: Superblock,
    /// Current members, each with its index among the drives given.
    pub present: BTreeMap<MemberIndex, usize>,
    /// Drives given, of those stale, that gave up their vote when nothing lay on them, and know it; others may
    /// not know it yet. Each with its index among the drives given.
    pub departing: BTreeMap<MemberIndex, usize>,
    /// Drives given that are outdated, or no members any more: they count as missing.
    pub stale: Vec<usize>,
    /// Absent members that should have every superblock.
    pub absent: Vec<MemberIndex>,
}

/// Elects. With `forced` the caller accepts the loss of data only absent drives may hold.
///
/// # Errors
///
/// The reason the pool is not opened. Nothing was changed.
pub fn elect(seen: &[DriveSuperblock], forced: bool) -> Result<Election, OpenRefusal> {
    check_one_pool(seen)?;
    Election::of(newest(seen).ok_or(OpenRefusal::NoPool)?, seen, forced)
}

/// Fails if the pool has a history tree without the feature that says it is keyed by pivots.
///
/// # Errors
///
/// [`OpenRefusal::OldHistory`].
pub fn check_layout(superblock: &Superblock) -> Result<(), OpenRefusal> {
    let has_pivots = superblock.features.incompatible & INCOMPATIBLE_PIVOTS != 0;
    // Older programs created pools without it: the first checkpoint with history sets it.
    if has_pivots || superblock.checkpoint.roots.history.is_none() {
        return Ok(());
    }
    Err(OpenRefusal::OldHistory)
}

/// The valid superblock, even if the drives present may not open the pool; none if no drive has one.
pub fn newest(seen: &[DriveSuperblock]) -> Option<&Superblock> {
    let candidates = candidates(seen);
    let proved = candidates.iter().find(|candidate| {
        let is_disproved = is_disproved(candidate, seen);
        sometimes::reached_if(is_disproved, Sometimes::GenerationDisproved);
        !is_disproved
    });
    // If each is disproved by another, none was ever complete and none was relied on: the one most drives
    // have will do.
    let best_known = candidates.iter().rev().max_by_key(|candidate| up_to_date(candidate, seen).count());
    proved.or(best_known).copied()
}

/// Superblocks of the highest generation, and those that disprove one of them; nothing older can be valid.
/// The highest first.
fn candidates(seen: &[DriveSuperblock]) -> Vec<&Superblock> {
    let Some(highest) = seen.iter().map(|seen| seen.superblock.generation).max() else { return Vec::new() };
    let (mut candidates, mut others): (Vec<&DriveSuperblock>, Vec<&DriveSuperblock>) =
        seen.iter().partition(|seen| seen.superblock.generation == highest);
    let mut looked_at = 0;
    while let Some(candidate) = candidates.get(looked_at) {
        let disproves =
            |seen: &&DriveSuperblock| standing(&candidate.superblock, seen) == GenerationMatch::Disproves;
        let (more, rest) = others.into_iter().partition::<Vec<_>, _>(disproves);
        (others, looked_at) = (rest, looked_at + 1);
        candidates.extend(more);
    }
    let mut candidates: Vec<&Superblock> = candidates.into_iter().map(|seen| &seen.superblock).collect();
    // Two of one number may leave out each other's drives, so that neither is disproved. If one was complete,
    // more drives have it.
    let is_on = |candidate: &Superblock, seen: &DriveSuperblock| {
        let own = &seen.superblock;
        (own.generation, own.mark) == (candidate.generation, candidate.mark) && is_holder(candidate, seen)
    };
    let holders = |candidate: &Superblock| seen.iter().filter(|seen| is_on(candidate, seen)).count();
    candidates.sort_by_key(|&candidate| std::cmp::Reverse((candidate.generation, holders(candidate))));
    candidates
}

fn check_one_pool(seen: &[DriveSuperblock]) -> Result<(), OpenRefusal> {
    let mut drives = BTreeSet::new();
    for DriveSuperblock { superblock, .. } in seen {
        if superblock.pool != seen[0].superblock.pool {
            return Err(OpenRefusal::TwoPools(seen[0].superblock.pool, superblock.pool));
        }
        if !drives.insert(superblock.drive()) {
            return Err(OpenRefusal::Twice(superblock.drive()));
        }
    }
    Ok(())
}

/// Relation of a drive's superblock to a generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GenerationMatch {
    /// The same superblock, or the one it was made from, if its writing was interrupted.
    UpToDate,
    /// A superblock that did not lead to it, on a drive that should have it.
    Disproves,
    /// Outdated, or not meant to have it.
    Stale,
}

fn standing(superblock: &Superblock, seen: &DriveSuperblock) -> GenerationMatch {
    let own = &seen.superblock;
    if !is_holder(superblock, seen) {
        return GenerationMatch::Stale;
    }
    let (wanted, has) = (superblock.generation.0, own.generation.0);
    let mark_there = match has {
        _ if has == wanted => superblock.mark,
        _ if has + 1 == wanted => superblock.previous_mark,
        _ => return GenerationMatch::Stale,
    };
    if own.mark == mark_there { GenerationMatch::UpToDate } else { GenerationMatch::Disproves }
}

/// True if a drive proves that `superblock` was never complete: the others continued without it.
fn is_disproved(superblock: &Superblock, seen: &[DriveSuperblock]) -> bool {
    seen.iter().any(|seen| standing(superblock, seen) == GenerationMatch::Disproves)
}

fn up_to_date<'a>(
    superblock: &Superblock,
    seen: &'a [DriveSuperblock],
) -> impl Iterator<Item = &'a DriveSuperblock> {
    seen.iter().filter(|seen| standing(superblock, seen) == GenerationMatch::UpToDate)
}

/// The row of a drive in the member table of `superblock`; `None` if it is no member.
fn row_of<'s>(superblock: &'s Superblock, seen: &DriveSuperblock) -> Option<&'s Member> {
    let row = superblock.members.get(usize::from(seen.superblock.this.0));
    row.filter(|row| row.drive == seen.superblock.drive())
}

/// True if a drive is a member that holds superblocks, according to `superblock`.
fn is_holder(superblock: &Superblock, seen: &DriveSuperblock) -> bool {
    row_of(superblock, seen).is_some_and(|row| row.state.holds_superblocks())
}

/// True if a drive gave up its vote, others may not know it, and the drive itself says so, in `superblock` or
/// the one it was made from. So it votes for nothing older, and need not be outvoted. A drive that was left out
/// does not say so: it may vote for what it has.
fn is_departing(superblock: &Superblock, seen: &DriveSuperblock) -> bool {
    let own = &seen.superblock;
    let is_it = own.generation == superblock.generation && own.mark == superblock.mark;
    let is_before = own.generation.0 + 1 == superblock.generation.0 && own.mark == superblock.previous_mark;
    let is_voteless = row_of(superblock, seen).is_some_and(|row| row.is_voteless_since(superblock.settled));
    let knows_it = !own.members[usize::from(own.this.0)].state.has_vote();
    is_voteless && knows_it && (is_it || is_before)
}

/// Members with a vote: those that have one now, and those that had one when the last settled generation was
/// written and were removed since.
fn voters(superblock: &Superblock) -> impl Iterator<Item = MemberIndex> {
    let is_voter = |member: &Member| member.state.has_vote() || member.is_voteless_since(superblock.settled);
    indices_of(superblock, is_voter)
}

fn indices_of(
    superblock: &Superblock,
    is_meant: impl Fn(&Member) -> bool,
) -> impl Iterator<Item = MemberIndex> {
    let members = superblock.members.iter().enumerate();
    members.filter(move |(_, member)| is_meant(member)).map(|(index, _)| MemberIndex(index as u16))
}

/// True if a running pool, with `superblock` written last, may continue with `left` alone: the others
/// together can never open it, whether or not they know the latest members, and everything the superblock
/// names has a copy.
pub fn can_go_on_with(superblock: &Superblock, left: &BTreeSet<MemberIndex>) -> bool {
    can_go_on_as_of(superblock, superblock.settled, left)
}

/// As [`can_go_on_with`], if `settled` is known to be complete. A departing drive, which must be among those
/// left, gets no generation any more once the one that took its vote is: from then on it does not count.
pub fn can_go_on_as_of(superblock: &Superblock, settled: Generation, left: &BTreeSet<MemberIndex>) -> bool {
    let is_neutral = |voter: &MemberIndex| {
        let row = &superblock.members[usize::from(voter.0)];
        row.is_voteless_since(superblock.settled) && !row.is_voteless_since(settled) && left.contains(voter)
    };
    let (have, lost): (Vec<_>, Vec<_>) =
        voters(superblock).filter(|voter| !is_neutral(voter)).partition(|voter| left.contains(voter));
    // The remaining drives alone may know that some are members; of joining drives, the lost ones alone may
    // know.
    let came_since = |voter: &&MemberIndex| {
        let member = &superblock.members[usize::from(voter.0)];
        member.state == MemberState::Active && member.since > superblock.settled
    };
    let before = |voters: &[MemberIndex]| voters.iter().filter(|voter| !came_since(voter)).count();
    let applicants = indices_of(superblock, |member| member.state.is_applicant());
    let claimants = applicants.filter(|applicant| !left.contains(applicant)).count();
    have.len() >= lost.len() + claimants
        && before(&have) >= before(&lost)
        && !have.is_empty()
        && has_copy_of_all(superblock, left)
}

/// True if every segment the superblock names has a copy on one of `there`.
fn has_copy_of_all(superblock: &Superblock, there: &BTreeSet<MemberIndex>) -> bool {
    let checkpoint = &superblock.checkpoint;
    let mut known = std::iter::once(&checkpoint.log.segment).chain(&checkpoint.catalogue_segments);
    known.all(|segment| segment.slots.iter().any(|slot| there.contains(&slot.member)))
}

impl Election {
    /// The election if `superblock` is the valid one.
    fn of(superblock: &Superblock, seen: &[DriveSuperblock], forced: bool) -> Result<Self, OpenRefusal> {
        let access = superblock.features.access(KNOWN);
        if access != FeatureAccess::Full {
            return Err(OpenRefusal::Features(access));
        }
        check_layout(superblock)?;
        let (current, behind): (Vec<&DriveSuperblock>, Vec<&DriveSuperblock>) =
            seen.iter().partition(|seen| standing(superblock, seen) == GenerationMatch::UpToDate);
        let present: BTreeMap<_, _> = current.iter().map(|seen| (seen.superblock.this, seen.given)).collect();
        let absent = indices_of(superblock, |member| member.state.holds_superblocks())
            .filter(|index| !present.contains_key(index))
            .collect();
        let is_cut_short = current.iter().any(|seen| seen.superblock.generation < superblock.generation);
        sometimes::reached_if(is_cut_short, Sometimes::GenerationFinished);
        sometimes::reached_if(!behind.is_empty(), Sometimes::StaleDriveLeftOut);
        let departing: BTreeMap<_, _> = behind
            .iter()
            .filter(|seen| is_departing(superblock, seen))
            .map(|seen| (seen.superblock.this, seen.given))
            .collect();
        sometimes::reached_if(!departing.is_empty(), Sometimes::DepartureWentOn);
        let stale = behind.iter().map(|seen| seen.given).collect();
        let election = Self { superblock: superblock.clone(), present, departing, stale, absent };
        let drives: BTreeSet<DriveId> = seen.iter().map(|seen| seen.superblock.drive()).collect();
        election.check(&drives, forced)?;
        Ok(election)
    }

    pub fn generation(&self) -> Generation {
        self.superblock.generation
    }

    fn check(&self, seen: &BTreeSet<DriveId>, forced: bool) -> Result<(), OpenRefusal> {
        let there = self.present.keys().copied().collect();
        if !has_copy_of_all(&self.superblock, &there) {
            return Err(OpenRefusal::TooFewDrives(self.names(&self.missing())));
        }
        // A departing drive votes for nobody else, so it is on neither side.
        let (have, lack): (Vec<_>, Vec<_>) = voters(&self.superblock)
            .filter(|voter| !self.departing.contains_key(voter))
            .partition(|voter| there.contains(voter));
        // Stale drives have no vote, but their content is known.
        let elsewhere: Vec<DriveId> =
            self.names(&lack).into_iter().filter(|drive| !seen.contains(drive)).collect();
        if have.len() > lack.len() || elsewhere.is_empty() {
            return Ok(());
        }
        sometimes::reached(if forced { Sometimes::ForcedOpen } else { Sometimes::ForkRefused });
        if forced { Ok(()) } else { Err(OpenRefusal::MayBeNewerElsewhere(elsewhere)) }
    }

    /// Absent members that may have slots.
    fn missing(&self) -> Vec<MemberIndex> {
        indices_of(&self.superblock, |member| member.state.has_slots())
            .filter(|index| !self.present.contains_key(index))
            .collect()
    }

    fn names(&self, members: &[MemberIndex]) -> Vec<DriveId> {
        members.iter().map(|member| self.superblock.members[usize::from(member.0)].drive).collect()
    }
}
