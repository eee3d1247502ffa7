//! The member table of the next generation: joining drives, new members, drives left out, drives that leave.
//!
//! A drive joins in two steps. The first generation that names it gives it neither a vote nor a slot: if its
//! writing is interrupted, drives that know of the new one can do without it, and it has lost nothing. Once
//! that generation is complete, the next makes it a full member (`docs/format.md`, "Joining").
//!
//! A drive leaves in two steps, too. While data lies on it, its row is *leaving*, and it votes. When nothing
//! lies on it any more, a generation takes its vote; the drive itself gets that generation, and each later one
//! until one says that all voters have it (`docs/format.md`, "Leaving").

use crate::{
    format::{
        Generation, GenerationMark, Member, MemberIndex, MemberState, Superblock,
        features::INCOMPATIBLE_JOINING,
    },
    simulation::sometimes::{self, Sometimes},
};
use std::collections::BTreeSet;

/// Copies of everything, except in pools of one drive or with three copies.
pub const LOG_COPIES: usize = 2;

/// The generation after `last`, to be written to `there`; `settled` is the last one known to be complete.
/// `joining` is the row of a drive to be added, which must be in `there`.
pub fn next_generation(
    last: &Superblock,
    (settled, mark): (Generation, GenerationMark),
    there: &BTreeSet<MemberIndex>,
    joining: Option<Member>,
) -> Superblock {
    let mut next = last.clone();
    next.generation = Generation(last.generation.0 + 1);
    next.settled = settled;
    next.previous_mark = last.mark;
    next.mark = mark;
    if let Some(member) = joining {
        next.members.push(Member { state: MemberState::Joining, since: next.generation, ..member });
    }
    leave_out(&mut next, there);
    for member in next.members.iter_mut().filter(|member| member.state == MemberState::Joining) {
        if member.since <= settled {
            (member.state, member.since) = (MemberState::Active, next.generation);
        }
    }
    next.features.incompatible &= !INCOMPATIBLE_JOINING;
    if next.members.iter().any(|member| member.state.is_applicant()) {
        next.features.incompatible |= INCOMPATIBLE_JOINING;
    }
    // A pool of one drive that gets another keeps two copies from then on.
    let voters = next.members.iter().filter(|member| member.state.has_vote()).count();
    if next.geometry.log_copies == 1 && voters > 1 {
        next.geometry.log_copies = LOG_COPIES as u8;
    }
    // The row of a drive that joined in vain is gone.
    next.note_domains();
    next.note_sets();
    next
}

/// Marks absent drives as missing. A joining one is removed instead: it never had a slot, so nothing refers
/// to its row, which is the last.
fn leave_out(next: &mut Superblock, there: &BTreeSet<MemberIndex>) {
    let (generation, settled) = (next.generation, next.settled);
    let is_there = |index: usize| there.contains(&MemberIndex(index as u16));
    let is_done = |member: &Member| match member.state {
        // Until the generation that named it was complete, none can have made it a member.
        MemberState::Joining => member.since > settled,
        MemberState::Withdrawn => member.since <= settled,
        _ => false,
    };
    keep_replaced(next, there);
    if next.members.last().is_some_and(is_done) && !is_there(next.members.len() - 1) {
        next.members.pop();
    }
    let mut lost = 0;
    for (index, member) in next.members.iter_mut().enumerate() {
        if member.state.holds_superblocks() && !is_there(index) {
            // Room was kept for drives that stay.
            lost += usize::from(member.state == MemberState::Active);
            // It is as good as empty, and counts for its set no more.
            member.set = member.set.filter(|_| member.state != MemberState::Leaving);
            let left_out = match member.state {
                MemberState::Joining => MemberState::Withdrawn,
                _ => MemberState::Missing,
            };
            (member.state, member.since) = (left_out, generation);
        }
    }
    next.features = next.features.with_sparing(next.sparing().after_losses(lost));
    let mut others = next.members.iter().rev().skip(1);
    assert!(
        others.all(|member| !member.state.is_applicant()),
        "drives join one by one, each in the last row"
    );
}

/// Keeps the drive that an absent joining one was to replace: both rows began in the same generation.
fn keep_replaced(next: &mut Superblock, there: &BTreeSet<MemberIndex>) {
    let is_there = |index: usize| there.contains(&MemberIndex(index as u16));
    let Some(last) = next.members.last() else { return };
    if last.state != MemberState::Joining || is_there(next.members.len() - 1) {
        return;
    }
    let begun = last.since;
    for (index, member) in next.members.iter_mut().enumerate() {
        if member.state == MemberState::Leaving && member.since == begun {
            sometimes::reached_if(is_there(index), Sometimes::ReplacedDriveKept);
            member.state = MemberState::Active;
        }
    }
}

/// Changes the row of a drive: what a verb, or the end of an emptying, puts into the next generation. A row
/// that has another state by now (the drive was lost) stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberChange {
    /// It gets no new data, and is emptied.
    Leave,
    /// It does not leave after all. *Since* stays that of its leaving, which all voters know.
    Keep,
    /// Nothing lies on it, and it has no vote any more.
    GiveUpVote,
    /// No segment names it.
    Forget,
}

impl MemberChange {
    /// Applies it to the row `member` of the next generation.
    pub fn apply(self, next: &mut Superblock, member: MemberIndex) {
        let generation = next.generation;
        let row = &mut next.members[usize::from(member.0)];
        let (from, to) = match self {
            Self::Leave => (MemberState::Active, MemberState::Leaving),
            Self::Keep => (MemberState::Leaving, MemberState::Active),
            Self::GiveUpVote => (MemberState::Leaving, MemberState::Missing),
            Self::Forget => (MemberState::Missing, MemberState::Gone),
        };
        if row.state == from {
            row.state = to;
            row.since = if self == Self::Keep { row.since } else { generation };
            row.set = row.set.filter(|_| self != Self::GiveUpVote);
        }
    }
}

/// True if the complete generation `complete` must be followed by one that records it as settled: until then
/// drives that it left out have a vote, one that joins has none, and one that has withdrawn may have one.
pub fn must_settle(complete: &Superblock) -> bool {
    let is_of_it = |member: &Member| {
        let is_passing = member.state.is_applicant() || member.state == MemberState::Missing;
        is_passing && member.since > complete.settled
    };
    complete.members.iter().any(is_of_it)
}
