//! Decisions of the witness about one group, without time or I/O.
//!
//! Invariants:
//!
//! 1. The fence rises with each acquisition, also of the site that held the lease before, and never falls.
//! 2. A lease that may still be held is granted to no other site.
//! 3. While the holder is alone, no other site becomes holder unless a person orders it. The new holder is
//!    then alone from the beginning.
//! 4. A request that was delayed takes no right away and frees nobody: an acquisition and a release name a
//!    fence that the next acquisition ends, the end of *alone* names a revision that the next *alone* ends.
//! 5. A site whose history does not end in one of the group's last two epochs does not become holder in sync, unless
//!    the holder in sync gave it the right.

use super::lease::{LeaseFence, LeaseSpan};
use array::format::{EpochId, GroupId, SiteId};
use std::collections::BTreeMap;
use world::WallTime;

/// Sites of a group whose last words are kept.
pub const SITES_MAX: usize = 16;

/// Highest fence that a site may claim to know: far above what can be reached, far below where numbers end.
pub const FENCE_CLAIM_MAX: LeaseFence = LeaseFence(1 << 62);

/// The redundancy of a group, as its holder recorded it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WitnessCondition {
    InSync,
    /// The holder answers, or is about to answer, what no other site has.
    Alone {
        since: WallTime,
    },
}

/// All that the witness keeps of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WitnessGroup {
    pub holder: Option<SiteId>,
    /// The site for which a released lease is reserved, while no site holds it.
    pub reserved: Option<SiteId>,
    pub fence: LeaseFence,
    /// Rises with each change of this record but those of `words`.
    pub revision: u64,
    pub span: LeaseSpan,
    pub condition: WitnessCondition,
    /// The last epoch of the holder's history.
    pub head: EpochId,
    /// The one before it, which a secondary in sync may still have as its last.
    pub head_before: EpochId,
    /// Civil time of each site's last request, for people. Only as new as the last change when a witness
    /// restarts.
    pub words: BTreeMap<SiteId, WallTime>,
}

/// A site's request about a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WitnessRequest {
    pub group: GroupId,
    pub site: SiteId,
    /// The highest fence that the site knows.
    pub fence: LeaseFence,
    /// The revision that the site saw last; 0 if it saw none.
    pub revision: u64,
    pub action: WitnessAction,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WitnessAction {
    /// Become holder, or begin again as such, after a restart or a release that was not answered. `head` is
    /// the last epoch of the site's history.
    Acquire {
        span: LeaseSpan,
        head: EpochId,
        /// A person accepted that another site may have gone on alone.
        by_person: bool,
    },
    /// Extend the lease. A new epoch is recorded before its first write is answered.
    Renew { head: EpochId },
    /// Answered before the holder answers a host alone.
    RecordAlone,
    /// The holder is in sync again. From the sending on the holder counts the record as gone.
    RecordSync,
    /// Hand over to `to`. The holder has stopped answering before it sends this.
    Release { to: SiteId },
    /// Change nothing.
    Look,
}

/// Reason of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WitnessRefusal {
    #[error("another site holds the lease, or it is reserved for one")]
    Held,
    #[error("the site is not the holder of this fence")]
    NotHolder,
    #[error("the group has changed since the site looked")]
    Changed,
    #[error("the holder went on alone; a person has to decide")]
    Alone,
    #[error("the site's history does not end in an epoch that the witness knows")]
    OtherHistory,
    #[error("the witness does not know the group")]
    Unknown,
    #[error("no fence is as high as the one that the site names")]
    Fence,
    #[error("the witness has no room for another group or site")]
    Full,
}

/// The effect of a permitted request on a group's lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseEffect {
    None,
    /// The lease runs from now, for the holder or the site for which it is reserved.
    Runs,
}

impl WitnessGroup {
    /// A group that no site has held.
    pub fn new(span: LeaseSpan, head: EpochId) -> Self {
        Self {
            holder: None,
            reserved: None,
            fence: LeaseFence(0),
            revision: 0,
            span,
            condition: WitnessCondition::InSync,
            head,
            head_before: head,
            words: BTreeMap::new(),
        }
    }

    /// The group after a request, or a refusal. `may_be_held` says that the lease given last may not have
    /// ended.
    pub fn decide(
        &self,
        request: &WitnessRequest,
        may_be_held: bool,
        wall: WallTime,
    ) -> Result<(Self, LeaseEffect), WitnessRefusal> {
        if request.fence > FENCE_CLAIM_MAX {
            return Err(WitnessRefusal::Fence);
        }
        let mut next = self.clone();
        let effect = match request.action {
            WitnessAction::Look => LeaseEffect::None,
            WitnessAction::Acquire { span, head, by_person } => {
                if request.fence < self.fence {
                    return Err(WitnessRefusal::Changed);
                }
                if self.holder != Some(request.site) {
                    self.check_takeover(request, head, by_person, may_be_held)?;
                    next.take_over(request, head, by_person, wall);
                }
                next.fence = LeaseFence(request.fence.0 + 1);
                next.span = span;
                next.begin_epoch(head);
                LeaseEffect::Runs
            }
            WitnessAction::Renew { head } => {
                self.check_holder(request)?;
                next.begin_epoch(head);
                LeaseEffect::Runs
            }
            WitnessAction::RecordAlone => {
                self.check_holder(request)?;
                if self.condition == WitnessCondition::InSync {
                    next.condition = WitnessCondition::Alone { since: wall };
                }
                // Also if it is alone already: an end of *alone* that is still on its way must not find its
                // revision.
                next.revision += 1;
                LeaseEffect::Runs
            }
            WitnessAction::RecordSync => {
                self.check_holder(request)?;
                if self.condition != WitnessCondition::InSync {
                    self.check_revision(request)?;
                    next.condition = WitnessCondition::InSync;
                }
                LeaseEffect::Runs
            }
            WitnessAction::Release { to } => {
                self.check_holder(request)?;
                if self.condition != WitnessCondition::InSync {
                    return Err(WitnessRefusal::Alone);
                }
                (next.holder, next.reserved) = (None, Some(to));
                LeaseEffect::Runs
            }
        };
        if next != *self {
            next.revision = self.revision + 1;
        }
        assert!(next.fence >= self.fence, "fences rise");
        let is_new_holder = next.holder.is_some() && next.holder != self.holder;
        assert!(!is_new_holder || next.fence > self.fence, "a new holder has a new fence");
        Ok((next, effect))
    }

    /// Notes that a site said something. Returns false if there is no room for another site.
    pub fn note_word(&mut self, site: SiteId, wall: WallTime) -> bool {
        let has_room = self.words.contains_key(&site) || self.words.len() < SITES_MAX;
        if has_room {
            self.words.insert(site, wall);
        }
        has_room
    }

    fn check_takeover(
        &self,
        request: &WitnessRequest,
        head: EpochId,
        by_person: bool,
        may_be_held: bool,
    ) -> Result<(), WitnessRefusal> {
        let is_reserved_here = self.holder.is_none() && self.reserved == Some(request.site);
        if may_be_held && !is_reserved_here {
            return Err(WitnessRefusal::Held);
        }
        // A holder in sync that gave its right to this site knows what it has.
        if by_person || is_reserved_here || self.fence == LeaseFence(0) {
            return Ok(());
        }
        if self.condition != WitnessCondition::InSync {
            return Err(WitnessRefusal::Alone);
        }
        let is_known = head == self.head || head == self.head_before;
        if is_known { Ok(()) } else { Err(WitnessRefusal::OtherHistory) }
    }

    fn take_over(&mut self, request: &WitnessRequest, head: EpochId, by_person: bool, wall: WallTime) {
        let is_first = self.fence == LeaseFence(0);
        (self.holder, self.reserved) = (Some(request.site), None);
        if by_person && !is_first {
            self.condition = WitnessCondition::Alone { since: wall };
            // The histories that ended elsewhere are not this holder's.
            (self.head, self.head_before) = (head, head);
        }
    }

    fn begin_epoch(&mut self, head: EpochId) {
        if head != self.head {
            self.head_before = std::mem::replace(&mut self.head, head);
        }
    }

    fn check_holder(&self, request: &WitnessRequest) -> Result<(), WitnessRefusal> {
        let is_holder = self.holder == Some(request.site) && self.fence == request.fence;
        if is_holder { Ok(()) } else { Err(WitnessRefusal::NotHolder) }
    }

    fn check_revision(&self, request: &WitnessRequest) -> Result<(), WitnessRefusal> {
        if self.revision == request.revision { Ok(()) } else { Err(WitnessRefusal::Changed) }
    }
}
