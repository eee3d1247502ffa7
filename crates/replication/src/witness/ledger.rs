//! The witness's ledger: all groups, and the leases that may be held.
//!
//! Invariants:
//!
//! 1. A lease counts as held for its whole span, by the witness's clock, from the last decision that ran it.
//! 2. After a restart the lease of each group that has or had a holder counts as held for its whole span from
//!    the start: the longest that a lease given before may last. A shorter span never ends a longer one that
//!    was given.
//! 3. A decision that changed what a restart has to know is stable before its answer is sent. The caller of
//!    [`WitnessLedger::apply`] makes it so, and stops for good if that fails.

use super::{
    group::{LeaseEffect, WitnessAction, WitnessGroup, WitnessRefusal, WitnessRequest},
    lease::LeaseFence,
};
use array::format::GroupId;
use std::{collections::BTreeMap, time::Duration};
use world::{Moment, WallTime};

/// Groups of one witness.
pub const GROUPS_MAX: usize = 1024;

/// State of a group as an answer shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WitnessView {
    pub group: GroupId,
    pub state: WitnessGroup,
    /// The lease that is left, by the witness's clock, rounded up to milliseconds.
    pub left_ms: u32,
}

/// Answer of the witness to one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WitnessAnswer {
    /// A refusal, or success: a lease of `view.state.span` from the sending of the request for all but
    /// `Look` and `Release`.
    pub result: Result<(), WitnessRefusal>,
    /// The group after the request; none if the witness does not know it.
    pub view: Option<WitnessView>,
}

/// All groups of a witness.
#[derive(Clone, Debug, Default)]
pub struct WitnessLedger {
    groups: BTreeMap<GroupId, LedgerRow>,
}

#[derive(Clone, Debug)]
struct LedgerRow {
    state: WitnessGroup,
    held_until: Moment,
}

impl WitnessLedger {
    /// The ledger of a witness that starts at `now` with what its predecessor kept.
    pub fn restarted(groups: BTreeMap<GroupId, WitnessGroup>, now: Moment) -> Self {
        let row = |(group, state): (GroupId, WitnessGroup)| {
            let held_until = now + state.span.at_witness();
            (group, LedgerRow { state, held_until })
        };
        Self { groups: groups.into_iter().map(row).collect() }
    }

    /// Decides a request. The second value is true if the groups changed and have to be stable before the
    /// answer leaves.
    pub fn apply(&mut self, request: &WitnessRequest, now: Moment, wall: WallTime) -> (WitnessAnswer, bool) {
        let (result, is_changed) = match self.decide(request, now, wall) {
            Ok(is_changed) => (Ok(()), is_changed),
            Err(refusal) => (Err(refusal), false),
        };
        let view = self.view(request.group, now);
        (WitnessAnswer { result, view }, is_changed)
    }

    fn decide(
        &mut self,
        request: &WitnessRequest,
        now: Moment,
        wall: WallTime,
    ) -> Result<bool, WitnessRefusal> {
        let is_look = request.action == WitnessAction::Look;
        let known = self.groups.get_mut(&request.group);
        let (mut next, effect, is_changed, held_until) = match (known, request.action) {
            (Some(row), _) => {
                // A refused site has said something, too.
                if !is_look && !row.state.note_word(request.site, wall) {
                    return Err(WitnessRefusal::Full);
                }
                let (next, effect) = row.state.decide(request, now < row.held_until, wall)?;
                let is_changed = next != row.state;
                (next, effect, is_changed, row.held_until)
            }
            (None, WitnessAction::Acquire { span, head, .. }) => {
                if self.groups.len() >= GROUPS_MAX {
                    return Err(WitnessRefusal::Full);
                }
                let (next, effect) = WitnessGroup::new(span, head).decide(request, false, wall)?;
                (next, effect, true, now)
            }
            (None, _) => return Err(WitnessRefusal::Unknown),
        };
        if !is_look {
            next.note_word(request.site, wall);
        }
        assert!(next.fence > LeaseFence(0), "a known group has had a holder");
        let held_until = match effect {
            LeaseEffect::None => held_until,
            LeaseEffect::Runs => held_until.max(now + next.span.at_witness()),
        };
        self.groups.insert(request.group, LedgerRow { state: next, held_until });
        Ok(is_changed)
    }

    pub fn view(&self, group: GroupId, now: Moment) -> Option<WitnessView> {
        let row = self.groups.get(&group)?;
        let left = row.held_until.since(now) + Duration::from_nanos(999_999);
        let left_ms = left.as_millis().try_into().expect("spans are at most a minute");
        Some(WitnessView { group, state: row.state.clone(), left_ms })
    }

    /// All groups, in the order of their UUIDs.
    pub fn views(&self, now: Moment) -> Vec<WitnessView> {
        self.groups.keys().filter_map(|group| self.view(*group, now)).collect()
    }

    /// Knowledge for a successor.
    pub fn groups(&self) -> impl ExactSizeIterator<Item = (GroupId, &WitnessGroup)> {
        self.groups.iter().map(|(group, row)| (*group, &row.state))
    }
}
