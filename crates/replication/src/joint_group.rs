//! A group with volumes in several pools of a site: what its parts have to know of each other.
//!
//! Each part has its own records, stamps and channel. What makes them one group is that the state which the other site would
//! show is one of all parts: if it has a write, it has all that was answered before that write began, in whichever pool.
//!
//! ```text
//! apart ── all parts have a channel ──▶ the secondary keeps the joint state of each part, and its volumes go on from there
//!   ▲                                    │ all parts stream, and hosts' answers wait for the peer
//!   │ any part wants to answer           ▼
//!   │ without the peer                 joining: the secondary lets the joint states go, part by part
//!   │                                    │ all parts have
//!   └────────────────────────────────  together: what the volumes of the secondary have is a state of the group
//! ```
//!
//! Invariants:
//!
//! 1. A part answers hosts without its peer only while the parts are apart, and no channel runs that was begun, or was
//!    joined, before they were.
//! 2. The parts join only while each of them answers no more than its peer confirmed. So one whose pool is not open keeps the
//!    others from joining.
//! 3. A part that may not answer without its peer answers what that confirmed, once the parts are together.
//! 4. A join has an identity, and is never begun twice: if one part of the secondary has joined under it, all have.
//! 5. Parts that are not in sync stay apart, and show marks: moments at which none of them answered. A mark is shown once the
//!    secondaries of all parts keep it, and no other is set before all of them know.
//! 6. With a witness, the secondary asks for the right only while no part of it follows, and from then on none does until it
//!    was refused, or all parts lead.
//!
//! Parts run on threads of their own: this is all they share.

use crate::{
    joint_cut::{CutMeeting, JointCutId},
    planted::{self, ReplicationBug},
    witness::held_right::HeldRight,
};
use array::format::GroupId;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Parts of a group at most.
pub const JOINT_PARTS_MAX: usize = 8;

/// Identity of an attempt of the parts to join. All zeroes: none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JoinId(pub [u8; 16]);

impl JoinId {
    pub const NONE: Self = Self([0; 16]);
}

/// The place of a part in its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JointPart {
    /// Identity of the group; each part has one of its own, too.
    pub whole: GroupId,
    /// Counted from 0.
    pub index: u8,
    /// 2 to [`JOINT_PARTS_MAX`].
    pub parts: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum JointPhase {
    Apart,
    Joining,
    Together,
}

/// The frames that a part may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JointGate {
    /// Nothing: another part has no channel.
    Wait,
    /// Everything: the parts are together.
    Open,
    /// Everything, once the secondary keeps its joint state.
    Guarded(JoinId),
}

/// The way of this site, as a secondary, to the right that a witness gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Takeover {
    None,
    /// A part asks the witness, in an opening of its pool.
    Asking(u64),
    /// The right was given: the parts become primary, one after the other.
    Given,
}

/// A part, as the others see it.
#[derive(Clone, Debug, Default)]
struct PartStanding {
    /// Its pool is open here: the number of this opening; 0 if it is not.
    opening: u64,
    /// Its flow as primary runs: the number of that; 0 if it does not.
    leading: u64,
    /// Hosts may use its volumes, as far as it is concerned.
    serves: bool,
    /// It has a channel to its peer.
    is_connected: bool,
    /// The era in which its channel was let through the gate.
    era: Option<u64>,
    /// It streams, and answers no more than its peer confirmed.
    is_close: bool,
    /// Its peer has joined, as the join under way wants it.
    has_joined: bool,
    /// The last join of this side as a secondary.
    joined: JoinId,
    /// As a secondary it has no channel, and has promised its primary nothing that still holds.
    is_free: bool,
    /// It streams, and none of its hosts waits for the peer.
    may_mark: bool,
    /// It has writes behind the last mark that its peer shows.
    has_news: bool,
    /// The last mark that this side shows as a secondary.
    marked: JoinId,
    /// It is open here, and secondary.
    follows: bool,
    /// It led here until its pool took no writes any more.
    has_stopped: bool,
}

/// A mark that all parts have set, on its way to their secondaries.
#[derive(Clone, Debug)]
struct MarkProgress {
    mark: JoinId,
    /// Parts whose secondaries keep it.
    ready: Vec<bool>,
    /// Parts whose secondaries know that all do.
    noted: Vec<bool>,
}

impl MarkProgress {
    /// It is shown from now on, whatever happens.
    fn is_kept(&self) -> bool {
        self.ready.iter().all(|ready| *ready)
    }

    fn is_over(&self) -> bool {
        self.noted.iter().all(|noted| *noted)
    }
}

struct JointState {
    phase: JointPhase,
    /// The join under way, or the last one.
    join: JoinId,
    /// Counted up whenever the parts come apart.
    era: u64,
    /// Numbers of openings and flows, each given once.
    numbers: u64,
    parts: Vec<PartStanding>,
    /// The cut under way, as long as a part takes part in it.
    meeting: Weak<CutMeeting>,
    /// The mark that is being set, as long as a part takes part in that.
    marking: Weak<CutMeeting>,
    /// The last mark that was set.
    mark: Option<MarkProgress>,
    /// Parts that are not in sync have their hosts wait for the peer, so that all come together.
    gathers: bool,
    takeover: Takeover,
}

/// The parts of a group at one site.
pub struct JointGroup {
    state: Mutex<JointState>,
    /// Of a group with a witness.
    right: Arc<HeldRight>,
}

impl JointGroup {
    /// # Panics
    ///
    /// With less than two parts, or too many.
    pub fn new(parts: usize) -> Arc<Self> {
        assert!((2..=JOINT_PARTS_MAX).contains(&parts), "a joint group has several parts");
        let parts = vec![PartStanding::default(); parts];
        let (phase, join) = (JointPhase::Apart, JoinId::NONE);
        let (right, takeover) = (HeldRight::new(parts.len()), Takeover::None);
        let (meeting, marking) = (Weak::new(), Weak::new());
        let state = JointState {
            phase,
            join,
            era: 1,
            numbers: 0,
            parts,
            meeting,
            marking,
            mark: None,
            gathers: false,
            takeover,
        };
        Arc::new(Self { state: Mutex::new(state), right })
    }

    /// The right that a witness gives to all parts.
    pub fn right(&self) -> &Arc<HeldRight> {
        &self.right
    }

    fn lock(&self) -> MutexGuard<'_, JointState> {
        // A thread that panicked within has left a state that is whole: each change is one assignment, or is repeated.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The pool of a part is open; with the last join and the last mark that its record has. Returns the number of this
    /// opening.
    pub(crate) fn enter(&self, part: usize, (joined, marked): (JoinId, JoinId)) -> u64 {
        let mut state = self.lock();
        let opening = state.next_number();
        state.parts[part] = PartStanding { opening, joined, marked, ..PartStanding::default() };
        opening
    }

    /// An opening of a part has ended. There may be a later one already.
    pub(crate) fn leave(&self, part: usize, opening: u64) {
        let mut state = self.lock();
        if state.parts[part].opening == opening {
            state.parts[part] = PartStanding::default();
            if state.takeover == Takeover::Asking(opening) {
                state.takeover = Takeover::None;
            }
        }
    }

    /// All parts are open here.
    pub fn is_complete(&self) -> bool {
        self.lock().parts.iter().all(|part| part.opening > 0)
    }

    /// Parts whose pools are not open, counted from 0.
    pub fn missing(&self) -> Vec<usize> {
        let state = self.lock();
        (0..state.parts.len()).filter(|&part| state.parts[part].opening == 0).collect()
    }

    /// A part begins to lead: it was not together with the others. Returns the number of its flow.
    pub(crate) fn begin_leading(&self, part: usize, fresh: JoinId) -> u64 {
        let mut state = self.lock();
        state.part_ways(fresh);
        state.forget_mark();
        state.gathers = false;
        let leading = state.next_number();
        state.parts[part] = PartStanding { leading, ..state.parts[part].at_rest() };
        if state.parts.iter().all(|part| part.leading > 0) {
            state.takeover = Takeover::None;
        }
        leading
    }

    /// A flow of a part as primary has ended. There may be a later one already.
    pub(crate) fn end_leading(&self, part: usize, leading: u64) {
        let mut state = self.lock();
        if state.parts[part].leading == leading {
            state.parts[part] = state.parts[part].at_rest();
        }
    }

    /// A channel of a part begins, or has ended: then nothing more of it is sent.
    pub(crate) fn note_channel(&self, part: usize, is_connected: bool, fresh: JoinId) {
        let mut state = self.lock();
        state.forget_mark();
        let standing = &mut state.parts[part];
        (standing.is_connected, standing.is_close, standing.era) = (is_connected, false, None);
        standing.may_mark = false;
        if state.phase == JointPhase::Joining {
            // Its peer may have joined or not.
            state.part_ways(fresh);
        }
    }

    /// Lets a channel through, once.
    pub(crate) fn pass_gate(&self, part: usize) -> JointGate {
        let mut state = self.lock();
        let gate = match state.phase {
            JointPhase::Together => JointGate::Open,
            JointPhase::Apart if state.leading().all(|part| part.is_connected) => {
                JointGate::Guarded(state.join)
            }
            JointPhase::Apart | JointPhase::Joining => JointGate::Wait,
        };
        if gate != JointGate::Wait {
            state.parts[part].era = Some(state.era);
        }
        gate
    }

    /// True if the channel of a part has to end: it was let through before the parts came apart.
    pub(crate) fn is_cut(&self, part: usize) -> bool {
        let state = self.lock();
        state.parts[part].era.is_some_and(|era| era != state.era)
    }

    /// The parts are together, and the channel of this one is none from before that: the secondary shows what it confirms.
    pub(crate) fn fits(&self, part: usize) -> bool {
        let state = self.lock();
        state.phase == JointPhase::Together && state.parts[part].era == Some(state.era)
    }

    /// The channel of a part is one of parts that are joining or together.
    pub(crate) fn is_within_join(&self, part: usize) -> bool {
        let state = self.lock();
        state.phase != JointPhase::Apart && state.parts[part].era == Some(state.era)
    }

    /// A part wants to answer without its peer. True once nothing is sent any more that the secondary would show beside what
    /// the others have.
    pub(crate) fn may_part(&self, fresh: JoinId) -> bool {
        let mut state = self.lock();
        state.part_ways(fresh);
        state.leading().all(|part| part.era.is_none_or(|era| era == state.era))
    }

    /// Comes apart: the passes of a part bring what the others do not have.
    pub(crate) fn come_apart(&self, fresh: JoinId) {
        self.lock().part_ways(fresh);
    }

    /// A part streams and answers no more than its peer confirmed, or does not.
    pub(crate) fn note_close(&self, part: usize, is_close: bool) {
        let mut state = self.lock();
        state.parts[part].is_close = is_close && state.parts[part].era == Some(state.era);
        let is_planted = planted::is(ReplicationBug::JoinedWithoutAbsent);
        // One that is not open here may have answered what its peer lacks.
        let is_absent = |part: &PartStanding| part.follows || part.leading == 0 && is_planted;
        let is_ready = |part: &PartStanding| is_absent(part) || part.leading > 0 && part.is_close;
        let has_close = state.leading().any(|part| part.is_close);
        if state.phase == JointPhase::Apart && has_close && state.parts.iter().all(is_ready) {
            state.phase = JointPhase::Joining;
            state.parts.iter_mut().for_each(|part| part.has_joined = false);
        }
    }

    /// A part streams and has no host that waits for its peer, or not; it has what the last mark lacks, or not.
    pub(crate) fn note_may_mark(&self, part: usize, (may_mark, has_news): (bool, bool)) {
        let mut state = self.lock();
        state.parts[part].may_mark = may_mark && state.parts[part].era == Some(state.era);
        state.parts[part].has_news = has_news;
    }

    /// A part has what the last mark lacks.
    pub(crate) fn has_news(&self) -> bool {
        self.lock().parts.iter().any(|part| part.has_news)
    }

    /// True if a mark may be set now: all parts may, and the one before is known to all secondaries.
    pub(crate) fn may_mark(&self) -> bool {
        let state = self.lock();
        let is_ready = |part: &PartStanding| part.leading > 0 && part.may_mark;
        let is_over = state.mark.as_ref().is_none_or(|mark| !mark.is_kept() || mark.is_over());
        state.phase == JointPhase::Apart && !state.gathers && is_over && state.parts.iter().all(is_ready)
    }

    /// All parts were held at a mark.
    pub(crate) fn note_mark_set(&self, mark: JoinId) {
        let mut state = self.lock();
        if state.mark.as_ref().is_none_or(|known| known.mark != mark) {
            let none = vec![false; state.parts.len()];
            state.mark = Some(MarkProgress { mark, ready: none.clone(), noted: none });
        }
    }

    /// The secondary of a part keeps the mark.
    pub(crate) fn note_mark_ready(&self, part: usize, mark: JoinId) {
        let mut state = self.lock();
        if let Some(known) = state.mark.as_mut().filter(|known| known.mark == mark) {
            known.ready[part] = true;
        }
    }

    /// A mark that is not kept by all is none.
    pub(crate) fn give_up_mark(&self, mark: JoinId) {
        let mut state = self.lock();
        if state.mark.as_ref().is_some_and(|known| known.mark == mark) {
            state.forget_mark();
        }
    }

    /// The mark of which the secondary of a part has to hear that all keep it.
    pub(crate) fn kept_mark(&self, part: usize) -> Option<JoinId> {
        let state = self.lock();
        let mark = state.mark.as_ref().filter(|mark| mark.is_kept() && !mark.noted[part]);
        mark.map(|mark| mark.mark)
    }

    /// The secondary of a part shows a mark.
    pub(crate) fn note_mark_noted(&self, part: usize, mark: JoinId) {
        let mut state = self.lock();
        if let Some(known) = state.mark.as_mut().filter(|known| known.mark == mark) {
            known.noted[part] = true;
        }
    }

    /// Has the hosts of all parts wait for the peer, so that the parts come together.
    pub(crate) fn begin_gathering(&self) {
        self.lock().gathers = true;
    }

    pub(crate) fn end_gathering(&self) {
        self.lock().gathers = false;
    }

    pub(crate) fn gathers(&self) -> bool {
        self.lock().gathers
    }

    /// The join that the secondary has to hear of.
    pub(crate) fn joining(&self) -> Option<JoinId> {
        let state = self.lock();
        (state.phase == JointPhase::Joining).then_some(state.join)
    }

    /// The peer of a part has joined.
    pub(crate) fn note_joined(&self, part: usize, join: JoinId) {
        let mut state = self.lock();
        if state.phase == JointPhase::Joining && state.join == join {
            state.parts[part].has_joined = true;
            if state.leading().all(|part| part.has_joined) {
                state.phase = JointPhase::Together;
            }
        }
    }

    /// A part leads here no more: its pool takes no writes until it is opened again.
    pub(crate) fn note_stopped(&self, part: usize, leading: u64) {
        self.end_leading(part, leading);
        self.lock().parts[part].has_stopped = true;
    }

    /// A part led here until its pool stopped.
    pub fn has_any_stopped(&self) -> bool {
        self.lock().parts.iter().any(|part| part.has_stopped)
    }

    /// The parts that lead here are together.
    pub fn is_together(&self) -> bool {
        self.lock().phase == JointPhase::Together
    }

    /// Parts that lead here and have no channel, counted from 0: the others wait for them.
    pub fn waited_for(&self) -> Vec<usize> {
        let state = self.lock();
        let waits = |part: &PartStanding| part.leading > 0 && !part.is_connected;
        (0..state.parts.len()).filter(|&part| waits(&state.parts[part])).collect()
    }

    /// A part knows that it has every answered write, or not.
    pub fn note_serving(&self, part: usize, serves: bool) {
        self.lock().parts[part].serves = serves;
    }

    /// All parts are open here, and lead.
    pub fn all_lead(&self) -> bool {
        self.lock().parts.iter().all(|part| part.leading > 0)
    }

    /// No part leads here.
    pub fn none_leads(&self) -> bool {
        self.lock().parts.iter().all(|part| part.leading == 0)
    }

    /// A part that leads here has a channel.
    pub(crate) fn is_any_connected(&self) -> bool {
        self.lock().leading().any(|part| part.is_connected)
    }

    /// A part is secondary here.
    pub(crate) fn note_following(&self, part: usize) {
        self.lock().parts[part].follows = true;
    }

    /// A part begins to follow over a channel. False while this site takes over: the channel is to end.
    pub(crate) fn begin_following(&self, part: usize) -> bool {
        let mut state = self.lock();
        let may_follow = state.takeover == Takeover::None;
        state.parts[part].is_free &= !may_follow;
        may_follow
    }

    /// A part follows no more, and nothing binds it to its primary. True if the witness may be asked for the right: no part
    /// follows, or this site has it.
    pub(crate) fn begin_takeover(&self, part: usize) -> bool {
        let mut state = self.lock();
        state.parts[part].is_free = true;
        let are_ready = |part: &PartStanding| part.opening > 0 && (part.leading > 0 || part.is_free);
        let (is_ready, opening) = (state.parts.iter().all(are_ready), state.parts[part].opening);
        match state.takeover {
            Takeover::Given => true,
            Takeover::None if is_ready => {
                state.takeover = Takeover::Asking(opening);
                true
            }
            Takeover::None | Takeover::Asking(_) => false,
        }
    }

    /// The witness gave this site the right, or did not.
    pub(crate) fn end_asking(&self, is_given: bool) {
        self.lock().takeover = if is_given { Takeover::Given } else { Takeover::None };
    }

    /// All parts that are open here lead, and may serve.
    pub fn all_serve(&self) -> bool {
        self.lock().parts.iter().filter(|part| part.opening > 0).all(|part| part.leading > 0 && part.serves)
    }

    /// The cut under way, or a new one.
    pub(crate) fn meeting(&self, cut: JointCutId) -> Arc<CutMeeting> {
        let mut state = self.lock();
        let parts = state.parts.len();
        CutMeeting::of(&mut state.meeting, cut, parts)
    }

    /// The mark that is being set, or a new one.
    pub(crate) fn marking(&self, fresh: JointCutId) -> Arc<CutMeeting> {
        let mut state = self.lock();
        let parts = state.parts.len();
        CutMeeting::of(&mut state.marking, fresh, parts)
    }

    /// A part of this side takes part in a cut: none may show another state before that is over.
    pub(crate) fn is_cut_under_way(&self) -> bool {
        self.lock().meeting.strong_count() > 0
    }

    /// This side shows a mark as a secondary, with one of its parts.
    pub(crate) fn note_own_mark(&self, part: usize, mark: JoinId) {
        self.lock().parts[part].marked = mark;
    }

    /// A part of this side shows this mark.
    pub(crate) fn has_marked(&self, mark: JoinId) -> bool {
        mark != JoinId::NONE && self.lock().parts.iter().any(|part| part.marked == mark)
    }

    /// This side has joined as a secondary, with one of its parts.
    pub(crate) fn note_own_join(&self, part: usize, join: JoinId) {
        self.lock().parts[part].joined = join;
    }

    /// A part of this side has joined under this identity.
    pub(crate) fn has_joined(&self, join: JoinId) -> bool {
        join != JoinId::NONE && self.lock().parts.iter().any(|part| part.joined == join)
    }
}

impl PartStanding {
    /// The rest of a part without a flow as primary.
    fn at_rest(&self) -> Self {
        Self { opening: self.opening, joined: self.joined, marked: self.marked, ..Self::default() }
    }
}

impl JointState {
    fn leading(&self) -> impl Iterator<Item = &PartStanding> {
        self.parts.iter().filter(|part| part.leading > 0)
    }

    fn next_number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// A mark that not all secondaries keep will never be kept: one of them may have lost it.
    fn forget_mark(&mut self) {
        self.mark.take_if(|mark| !mark.is_kept());
    }

    /// A join that was begun is never begun again.
    fn part_ways(&mut self, fresh: JoinId) {
        if self.phase != JointPhase::Apart || self.join == JoinId::NONE {
            (self.phase, self.join, self.era) = (JointPhase::Apart, fresh, self.era + 1);
            self.parts.iter_mut().for_each(|part| part.is_close = false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRESH: JoinId = JoinId([1; 16]);
    const NONE: (JoinId, JoinId) = (JoinId::NONE, JoinId::NONE);

    #[test]
    fn a_mark_is_kept_by_all_or_by_none_and_no_other_is_set_before_all_know() {
        let (group, _) = secondary();
        let join = group.lock().join;
        for part in [0, 1] {
            group.begin_leading(part, FRESH);
        }
        for part in [0, 1] {
            group.note_channel(part, true, FRESH);
        }
        for part in [0, 1] {
            assert_ne!(group.pass_gate(part), JointGate::Wait, "{join:?}");
            assert!(!group.may_mark(), "part {part} does not stream yet");
            group.note_may_mark(part, (true, true));
        }
        assert!(group.may_mark());
        let (one, other) = (JoinId([7; 16]), JoinId([8; 16]));
        group.note_mark_set(one);
        group.note_mark_ready(0, one);
        assert_eq!(group.kept_mark(0), None, "the other part may not keep it");
        // A part loses its line.
        group.note_channel(1, false, FRESH);
        group.note_channel(1, true, FRESH);
        group.pass_gate(1);
        group.note_may_mark(1, (true, true));
        group.note_mark_ready(1, one);
        assert_eq!((group.kept_mark(0), group.may_mark()), (None, true), "it is none any more");
        group.note_mark_set(other);
        group.note_mark_ready(0, other);
        group.note_mark_ready(1, other);
        group.note_channel(1, false, FRESH);
        assert_eq!((group.kept_mark(0), group.kept_mark(1)), (Some(other), Some(other)), "whatever happens");
        group.note_channel(1, true, FRESH);
        group.pass_gate(1);
        group.note_may_mark(1, (true, true));
        group.note_mark_noted(0, other);
        assert!(!group.may_mark(), "one does not know");
        group.note_mark_noted(1, other);
        assert!(group.may_mark());
        group.begin_gathering();
        assert!(!group.may_mark());
    }

    /// Both parts of a secondary.
    fn secondary() -> (Arc<JointGroup>, [u64; 2]) {
        let group = JointGroup::new(2);
        let openings = [0, 1].map(|part| group.enter(part, NONE));
        (group, openings)
    }

    #[test]
    fn the_witness_is_asked_once_no_part_follows_and_from_then_on_none_does() {
        let (group, _) = secondary();
        assert!(group.begin_following(0) && group.begin_following(1));
        assert!(!group.begin_takeover(0), "the other part follows");
        assert!(group.begin_takeover(1), "neither does");
        assert!(!group.begin_takeover(0), "one asks at a time");
        assert!(!group.begin_following(0), "the right may be given at any moment");
        group.end_asking(false);
        assert!(group.begin_following(0));
        assert!(!group.begin_takeover(1));
    }

    #[test]
    fn parts_of_a_site_that_has_the_right_follow_again_once_all_lead() {
        let (group, _) = secondary();
        assert!(!group.begin_takeover(1) && group.begin_takeover(0));
        group.end_asking(true);
        assert!(group.begin_takeover(1), "the right is of all parts");
        group.begin_leading(0, FRESH);
        assert!(!group.all_lead() && !group.none_leads());
        assert!(!group.begin_following(1), "it is to lead, too");
        group.begin_leading(1, FRESH);
        assert!(group.all_lead());
        // It was deposed.
        assert!(group.begin_following(0));
    }

    #[test]
    fn a_pool_that_is_not_open_keeps_its_site_from_asking_and_one_that_closes_asks_no_more() {
        let (group, openings) = secondary();
        assert!(!group.begin_takeover(1));
        group.leave(1, openings[1]);
        assert!(!group.begin_takeover(0), "a part is not here");
        group.enter(1, NONE);
        assert!(group.begin_takeover(1));
        let closed = group.lock().parts[1].opening;
        group.leave(1, closed);
        assert!(group.begin_following(0), "nobody asks any more");
    }
}
