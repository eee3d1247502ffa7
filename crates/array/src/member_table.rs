//! The member table of the next generation: joining drives, new members, drives left out.
//!
//! A drive joins in two steps. The first generation that names it gives it neither a vote nor a slot: if its
//! writing is interrupted, drives that know of the new one can do without it, and it has lost nothing. Once
//! that generation is complete, the next makes it a full member (`docs/format.md`, "Joining").

use crate::format::{
    Generation, GenerationMark, Member, MemberIndex, MemberState, Superblock, features::INCOMPATIBLE_JOINING,
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
    if next.members.last().is_some_and(is_done) && !is_there(next.members.len() - 1) {
        next.members.pop();
    }
    for (index, member) in next.members.iter_mut().enumerate() {
        if member.state.holds_superblocks() && !is_there(index) {
            let left_out = match member.state {
                MemberState::Joining => MemberState::Withdrawn,
                _ => MemberState::Missing,
            };
            (member.state, member.since) = (left_out, generation);
        }
    }
    let mut others = next.members.iter().rev().skip(1);
    assert!(
        others.all(|member| !member.state.is_applicant()),
        "drives join one by one, each in the last row"
    );
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
