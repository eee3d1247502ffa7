//! The member table from one generation to the next: who joins, who has joined, who is left out.
//!
//! A drive joins in two steps. The generation that names it first gives it neither a vote nor a slot: if its writing is cut
//! short, those who know of the drive can do without it, and it without having lost anything. When that one is complete,
//! the next makes it a member like the others (`docs/format.md`, "Joining").

use crate::format::{
    Generation, GenerationMark, Member, MemberIndex, MemberState, Superblock, features::INCOMPATIBLE_JOINING,
};
use std::collections::BTreeSet;

/// Copies of everything, unless there is but one drive or somebody wants three.
pub const LOG_COPIES: usize = 2;

/// The generation after `last`, to be written to `there`; `settled` is the last one known to be complete. `joining`: the row of
/// a drive that is to become a member, and is one of `there`.
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
    // A pool of one drive that has got another keeps two copies from then on.
    let voters = next.members.iter().filter(|member| member.state.has_vote()).count();
    if next.geometry.log_copies == 1 && voters > 1 {
        next.geometry.log_copies = LOG_COPIES as u8;
    }
    next
}

/// Those that are not there are missing, but for one that was joining: it never had a slot, so nothing names its row,
/// which is the last.
fn leave_out(next: &mut Superblock, there: &BTreeSet<MemberIndex>) {
    let (generation, settled) = (next.generation, next.settled);
    let is_there = |index: usize| there.contains(&MemberIndex(index as u16));
    let is_done = |member: &Member| match member.state {
        // Before the generation that named it was complete no other can have made it a member.
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

/// Whether `complete`, all of which is written, has to be followed by one that says so: drives that it left out have a vote
/// until then, one that joins has none, and one that has withdrawn may have one.
pub fn must_settle(complete: &Superblock) -> bool {
    let is_of_it = |member: &Member| {
        let is_passing = member.state.is_applicant() || member.state == MemberState::Missing;
        is_passing && member.since > complete.settled
    };
    complete.members.iter().any(is_of_it)
}
