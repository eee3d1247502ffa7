//! Which superblock is the pool's, whether the pool may be opened on the drives that are there, and which of them
//! count.
//!
//! A pool whose drives went separate ways must not be opened on those that stayed behind: the others may hold what
//! was acknowledged since. `docs/format.md`, "Opening", has the rule; this is it, as a function.

use crate::{
    format::{
        Access, DriveId, Features, Generation, Member, MemberIndex, MemberState, PoolId, Superblock,
        features::{INCOMPATIBLE_JOINING, INCOMPATIBLE_PIVOTS, INCOMPATIBLE_SCRUB},
    },
    simulation::sometimes::{self, Sometimes},
};
use std::collections::{BTreeMap, BTreeSet};

/// What this program knows of a pool's features: all of version 1 that it can read and write.
pub const KNOWN: Features = Features {
    compatible: 0,
    read_only: 0,
    incompatible: INCOMPATIBLE_SCRUB | INCOMPATIBLE_JOINING | INCOMPATIBLE_PIVOTS,
};

/// Why a pool is not opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotOpened {
    /// No drive has a superblock.
    #[error("none of the drives given belongs to a pool")]
    NoPool,
    /// Drives of different pools were given.
    #[error("the drives given belong to different pools, {0} and {1}; name those of one")]
    TwoPools(PoolId, PoolId),
    /// One drive was given twice, or was copied whole.
    #[error("drive {0} is there twice; name one of them")]
    Twice(DriveId),
    /// A newer program made it.
    #[error("the pool uses features this program does not know: {0}")]
    Features(Access),
    /// Drives that are not there may hold newer data.
    #[error(
        "drives {} are not there, and may hold newer data than those that are; connect them",
        named(.0)
    )]
    MayBeNewerElsewhere(Vec<DriveId>),
    /// Some data has no copy left.
    #[error("drives {} are not there, and some of the pool's data lies on them alone; connect them", named(.0))]
    TooFewDrives(Vec<DriveId>),
}

fn named(drives: &[DriveId]) -> String {
    drives.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// What one drive that is there says: the valid superblock with the highest generation.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Which of the drives given.
    pub given: usize,
    /// What it says.
    pub superblock: Superblock,
}

/// A pool that may be opened.
#[derive(Clone, Debug)]
pub struct Election {
    /// The pool's superblock, as one of its drives has it.
    pub superblock: Superblock,
    /// Members that are there and up to date, each with which of the drives given it is.
    pub present: BTreeMap<MemberIndex, usize>,
    /// Drives given that are behind, or no members any more: they count as missing.
    pub stale: Vec<usize>,
    /// Members that should have every superblock and are not there.
    pub absent: Vec<MemberIndex>,
}

/// Decides. `forced`: whoever asks takes the loss of what absent drives may hold alone.
///
/// # Errors
///
/// Why the pool is not opened; nothing was changed.
pub fn elect(seen: &[Seen], forced: bool) -> Result<Election, NotOpened> {
    check_one_pool(seen)?;
    Election::of(newest(seen).ok_or(NotOpened::NoPool)?, seen, forced)
}

/// The superblock that counts, whether or not the drives that are there may open the pool; none if none of them has any.
pub fn newest(seen: &[Seen]) -> Option<&Superblock> {
    let candidates = candidates(seen);
    let proved = candidates.iter().find(|candidate| {
        let is_disproved = is_disproved(candidate, seen);
        sometimes::reached_if(is_disproved, Sometimes::GenerationDisproved);
        !is_disproved
    });
    // If each is disproved by another none was ever complete, and nobody relied on any: the best known will do.
    let best_known = candidates.iter().rev().max_by_key(|candidate| up_to_date(candidate, seen).count());
    proved.or(best_known).copied()
}

/// Those of the highest generation, and what drives have that disprove one of them: nothing older can count. The highest
/// first.
fn candidates(seen: &[Seen]) -> Vec<&Superblock> {
    let Some(highest) = seen.iter().map(|seen| seen.superblock.generation).max() else { return Vec::new() };
    let (mut candidates, mut others): (Vec<&Seen>, Vec<&Seen>) =
        seen.iter().partition(|seen| seen.superblock.generation == highest);
    let mut looked_at = 0;
    while let Some(candidate) = candidates.get(looked_at) {
        let disproves = |seen: &&Seen| standing(&candidate.superblock, seen) == Standing::Disproves;
        let (more, rest) = others.into_iter().partition::<Vec<_>, _>(disproves);
        (others, looked_at) = (rest, looked_at + 1);
        candidates.extend(more);
    }
    let mut candidates: Vec<&Superblock> = candidates.into_iter().map(|seen| &seen.superblock).collect();
    candidates.sort_by_key(|candidate| std::cmp::Reverse(candidate.generation));
    candidates
}

fn check_one_pool(seen: &[Seen]) -> Result<(), NotOpened> {
    let mut drives = BTreeSet::new();
    for Seen { superblock, .. } in seen {
        if superblock.pool != seen[0].superblock.pool {
            return Err(NotOpened::TwoPools(seen[0].superblock.pool, superblock.pool));
        }
        if !drives.insert(superblock.drive()) {
            return Err(NotOpened::Twice(superblock.drive()));
        }
    }
    Ok(())
}

/// What a drive has of a generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// The very one, or the one it was made from: its writing was cut short.
    UpToDate,
    /// One that is not on the way to it, though it should have it.
    Disproves,
    /// It is behind, or not meant to have it.
    Stale,
}

fn standing(superblock: &Superblock, seen: &Seen) -> Standing {
    let own = &seen.superblock;
    if !is_holder(superblock, seen) {
        return Standing::Stale;
    }
    let (wanted, has) = (superblock.generation.0, own.generation.0);
    let mark_there = match has {
        _ if has == wanted => superblock.mark,
        _ if has + 1 == wanted => superblock.previous_mark,
        _ => return Standing::Stale,
    };
    if own.mark == mark_there { Standing::UpToDate } else { Standing::Disproves }
}

/// Whether a drive shows that `superblock` was never complete: the others went on without it.
fn is_disproved(superblock: &Superblock, seen: &[Seen]) -> bool {
    seen.iter().any(|seen| standing(superblock, seen) == Standing::Disproves)
}

fn up_to_date<'a>(superblock: &Superblock, seen: &'a [Seen]) -> impl Iterator<Item = &'a Seen> {
    seen.iter().filter(|seen| standing(superblock, seen) == Standing::UpToDate)
}

/// Whether a drive is a member that holds superblocks, as `superblock` says.
fn is_holder(superblock: &Superblock, seen: &Seen) -> bool {
    let row = superblock.members.get(usize::from(seen.superblock.this.0));
    row.is_some_and(|row| row.drive == seen.superblock.drive() && row.state.holds_superblocks())
}

/// Members that have a say: those that have a vote now, and those that had one when the last settled generation was
/// written and were left out since.
fn voters(superblock: &Superblock) -> impl Iterator<Item = MemberIndex> {
    let is_voter = |member: &Member| {
        member.state.has_vote() || member.state == MemberState::Missing && member.since > superblock.settled
    };
    indices_of(superblock, is_voter)
}

fn indices_of(
    superblock: &Superblock,
    is_meant: impl Fn(&Member) -> bool,
) -> impl Iterator<Item = MemberIndex> {
    let members = superblock.members.iter().enumerate();
    members.filter(move |(_, member)| is_meant(member)).map(|(index, _)| MemberIndex(index as u16))
}

/// Whether a pool that runs, with `superblock` written last, may go on with nothing but `left`: the others together can
/// never open it, whether or not they know of those that came last, and all that the superblock names has a copy.
pub fn can_go_on_with(superblock: &Superblock, left: &BTreeSet<MemberIndex>) -> bool {
    let (have, lost): (Vec<_>, Vec<_>) = voters(superblock).partition(|voter| left.contains(voter));
    // That some are members may be known to those that are left alone, or, of those that join, to the lost alone.
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

/// Whether every segment that the superblock names has a copy on one of `there`.
fn has_copy_of_all(superblock: &Superblock, there: &BTreeSet<MemberIndex>) -> bool {
    let checkpoint = &superblock.checkpoint;
    let mut known = std::iter::once(&checkpoint.log.segment).chain(&checkpoint.catalogue_segments);
    known.all(|segment| segment.slots.iter().any(|slot| there.contains(&slot.member)))
}

impl Election {
    /// What follows if `superblock` is the pool's.
    fn of(superblock: &Superblock, seen: &[Seen], forced: bool) -> Result<Self, NotOpened> {
        let access = superblock.features.access(KNOWN);
        if access != Access::Full {
            return Err(NotOpened::Features(access));
        }
        let (current, behind): (Vec<&Seen>, Vec<&Seen>) =
            seen.iter().partition(|seen| standing(superblock, seen) == Standing::UpToDate);
        let present: BTreeMap<_, _> = current.iter().map(|seen| (seen.superblock.this, seen.given)).collect();
        let absent = indices_of(superblock, |member| member.state.holds_superblocks())
            .filter(|index| !present.contains_key(index))
            .collect();
        let is_cut_short = current.iter().any(|seen| seen.superblock.generation < superblock.generation);
        sometimes::reached_if(is_cut_short, Sometimes::GenerationFinished);
        sometimes::reached_if(!behind.is_empty(), Sometimes::StaleDriveLeftOut);
        let stale = behind.iter().map(|seen| seen.given).collect();
        let election = Self { superblock: superblock.clone(), present, stale, absent };
        let drives: BTreeSet<DriveId> = seen.iter().map(|seen| seen.superblock.drive()).collect();
        election.check(&drives, forced)?;
        Ok(election)
    }

    /// The generation that counts.
    pub fn generation(&self) -> Generation {
        self.superblock.generation
    }

    fn check(&self, seen: &BTreeSet<DriveId>, forced: bool) -> Result<(), NotOpened> {
        let there = self.present.keys().copied().collect();
        if !has_copy_of_all(&self.superblock, &there) {
            return Err(NotOpened::TooFewDrives(self.names(&self.missing())));
        }
        let (have, lack): (Vec<_>, Vec<_>) =
            voters(&self.superblock).partition(|voter| there.contains(voter));
        // Stale drives have no vote, but what they hold is known.
        let elsewhere: Vec<DriveId> =
            self.names(&lack).into_iter().filter(|drive| !seen.contains(drive)).collect();
        if have.len() > lack.len() || elsewhere.is_empty() {
            return Ok(());
        }
        sometimes::reached(if forced { Sometimes::ForcedOpen } else { Sometimes::ForkRefused });
        if forced { Ok(()) } else { Err(NotOpened::MayBeNewerElsewhere(elsewhere)) }
    }

    /// Members that are not there and may have slots.
    fn missing(&self) -> Vec<MemberIndex> {
        indices_of(&self.superblock, |member| member.state.has_slots())
            .filter(|index| !self.present.contains_key(index))
            .collect()
    }

    fn names(&self, members: &[MemberIndex]) -> Vec<DriveId> {
        members.iter().map(|member| self.superblock.members[usize::from(member.0)].drive).collect()
    }
}
