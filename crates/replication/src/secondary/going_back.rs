//! Going back to a state that a secondary keeps, before it is promoted as of that: to one that passes left, or to a snapshot
//! that people took of all its volumes.
//!
//! It is as if a pass were given up that began there: the record of the group says so, and then the volumes go back. A side
//! that crashes in between does the rest when it is opened; it is a secondary that has less, and the old primary would bring
//! the rest again.
//!
//! Invariants:
//!
//! 1. All volumes of the group go back, or none.
//! 2. The old primary never brings again what this side went back from, once this side is primary.
//! 3. Everything that they had is kept as forks first, and snapshots of people that are newer stay, under names of their own.

use super::{PromotionError, SecondaryGroup, forks, kept_points};
use crate::{
    connect::UnfinishedPass,
    cut::GroupCut,
    group_state::GroupState,
    member::GroupMember,
    planted::{self, ReplicationBug},
};
use array::{
    error::{Error, Result},
    format::{EpochId, Fence, SnapshotId, Stamp, WallNanoseconds},
    pool::VolumeKey,
};

/// A state of all volumes of a group that a secondary keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptState {
    pub name: String,
    pub snapshot: SnapshotId,
    /// Everything up to there, by the clock of the primary.
    pub time: WallNanoseconds,
    /// The highest one that it shows.
    pub stamp: Stamp,
}

/// Reason for which a secondary cannot go back.
#[derive(Debug, thiserror::Error)]
pub enum GoingBackError {
    #[error("the first copy is not complete here")]
    Empty,
    #[error("it is of a history that was given up")]
    GivenUp,
    #[error(transparent)]
    Promotion(#[from] PromotionError),
    #[error(transparent)]
    Pool(#[from] Error),
}

/// The states that a secondary keeps, the newest first.
///
/// # Errors
///
/// A volume is missing.
fn kept_states(member: &GroupMember) -> Result<Vec<KeptState>> {
    let mut states: Option<Vec<KeptState>> = None;
    for volume in member.ids() {
        let taken = member.pool.snapshots_above(volume, Stamp(0))?.into_iter();
        let taken = taken.map(|point| (point.stamp, point.snapshot));
        let kept = member.pool.snapshots(VolumeKey::Id(volume))?.into_iter();
        let kept = kept.filter(|found| kept_points::is_point_of(member, found.snapshot));
        let kept = kept.map(|found| (kept_points::stamp_of(member, found.snapshot), found));
        let of_volume: Vec<KeptState> = taken
            .chain(kept)
            .map(|(stamp, found)| {
                let (name, snapshot, time) = (found.name, found.snapshot, found.created_at);
                KeptState { name, snapshot, time, stamp }
            })
            .collect();
        states = Some(match states {
            None => of_volume,
            Some(states) => states.into_iter().filter_map(|one| in_both(one, &of_volume)).collect(),
        });
    }
    let mut states = states.unwrap_or_default();
    states.sort_by_key(|state| std::cmp::Reverse(state.stamp));
    Ok(states)
}

/// A state that another volume has, too.
fn in_both(one: KeptState, others: &[KeptState]) -> Option<KeptState> {
    let other = others.iter().find(|other| other.snapshot == one.snapshot)?;
    Some(KeptState { stamp: one.stamp.max(other.stamp), ..one })
}

impl GroupMember {
    /// The states of the group that this side keeps, the newest first. Not those of a history that was given up.
    ///
    /// # Errors
    ///
    /// A volume is missing.
    pub fn kept_states(&self) -> Result<Vec<KeptState>> {
        let Some(lineage) = self.lineage() else { return Ok(Vec::new()) };
        let states = kept_states(self)?.into_iter();
        Ok(states.filter(|state| lineage.epoch_of(0, state.stamp).is_some()).collect())
    }

    /// Ends what a crash left of going back, before anything else is done with the volumes.
    ///
    /// # Errors
    ///
    /// The pool or the records cannot write; repeated, it ends the same.
    pub async fn end_going_back(&self) -> Result<()> {
        let is_going_back = self.is_in_pass() && !self.pool.has_cut(&self.ids(), self.shown_cut());
        if is_going_back { self.abandon_pass().await } else { Ok(()) }
    }

    /// Takes the volumes to the state that they had at a stamp.
    pub(crate) async fn take_back_to_kept(&self, stamp: Stamp) -> Result<()> {
        let joint = self.state().joint.point.and_then(|point| point.state);
        if let Some(joint) = joint.filter(|joint| joint.has == stamp) {
            let cut = self.joint_cut(joint.slot);
            if self.pool.has_cut(&self.ids(), cut) {
                return self.pool.take_back_to_cut(&self.ids(), cut).await;
            }
        }
        let states = kept_states(self)?;
        let state = states.iter().find(|state| state.stamp <= stamp);
        let state = state.ok_or_else(|| Error::NoSnapshot {
            volume: "a DR group".to_owned(),
            snapshot: format!("of stamp {stamp}"),
        })?;
        self.pool.take_back_to_cut(&self.ids(), state.snapshot).await
    }
}

impl SecondaryGroup {
    /// Checks that this side can go back to a state.
    ///
    /// # Errors
    ///
    /// The first copy is not complete; or the state is of a history that was given up.
    pub fn check_going_back(&self, state: &KeptState) -> std::result::Result<(), GoingBackError> {
        let lineage = self.member.lineage().ok_or(GoingBackError::Empty)?;
        let is_here = state.stamp <= self.has.get() && lineage.epoch_of(0, state.stamp).is_some();
        if is_here { Ok(()) } else { Err(GoingBackError::GivenUp) }
    }

    /// Promotes this side as of a state that it keeps; see [`SecondaryGroup::go_back`] and [`SecondaryGroup::promote`]. Its
    /// epoch begins with a write of its own, which changes nothing: an epoch without one would be behind the old primary,
    /// from which this side would get again what it went back from.
    ///
    /// # Errors
    ///
    /// Those of both. Then it is secondary; if the pool or the records could not write, perhaps as of the state.
    pub async fn promote_as_of(
        &self,
        state: &KeptState,
        (epoch, fence): (EpochId, Fence),
    ) -> std::result::Result<GroupState, GoingBackError> {
        let known = self.member.fence();
        if fence <= known {
            return Err(PromotionError::Fence { ours: known, given: fence }.into());
        }
        self.go_back(state).await?;
        self.begin_beside(epoch, fence).await
    }

    /// Promotes this side under an epoch that lies beside all that the other side may have.
    pub(super) async fn begin_beside(
        &self,
        epoch: EpochId,
        fence: Fence,
    ) -> std::result::Result<GroupState, GoingBackError> {
        let _no_clones = self.applying.lock().await;
        let mut lineage = self.member.lineage().ok_or(GoingBackError::Empty)?;
        lineage.promote(epoch, &GroupCut::new(vec![self.has.get()])).map_err(PromotionError::from)?;
        Ok(self.record_primary(lineage, (fence, true), true).await?)
    }

    /// Takes the group to a state that this side keeps. What it has is kept as forks. To be called without a channel.
    ///
    /// # Errors
    ///
    /// Those of [`SecondaryGroup::check_going_back`]; nothing has changed then. The pool or the records cannot write; repeated,
    /// it ends the same.
    pub async fn go_back(&self, state: &KeptState) -> std::result::Result<(), GoingBackError> {
        self.await_begun().await;
        let _no_clones = self.applying.lock().await;
        self.check_going_back(state)?;
        let (member, ids) = (&self.member, self.member.ids());
        // Parts of a newer state that a pass brought are of no use.
        member.abandon_pass().await?;
        if member.pool.cut_shows_present(&ids, state.snapshot) {
            return Ok(());
        }
        self.keep_newest(state.stamp).await?;
        // One of a connection's beginning would be taken for the state.
        member.pool.delete_cut(&ids, member.shown_cut()).await?;
        let cut = GroupCut::new(vec![state.stamp]);
        let lineage = member.lineage().map(|lineage| lineage.written(&cut));
        let until = GroupCut::new(vec![self.has.get()]);
        if !planted::is(ReplicationBug::GoneBackWithoutRecord) {
            let going_back = UnfinishedPass { since: cut, until };
            let change = member.change(|group| {
                (group.unfinished, group.lineage, group.forked_at) = (Some(going_back), lineage, None);
                assert!(group.brought.is_empty(), "the pass before was given up");
            });
            change.await?;
            member.abandon_pass().await?;
        } else {
            member.pool.take_back_to_cut(&ids, state.snapshot).await?;
            member.change(|group| (group.lineage, group.forked_at) = (lineage, None)).await?;
        }
        self.is_back_at(state.stamp);
        Ok(())
    }

    /// The volumes have everything up to a stamp, and nothing else.
    pub(super) fn is_back_at(&self, stamp: Stamp) {
        self.has.set(stamp);
        self.is_in_doubt.set(false);
        self.is_within_command.set(false);
        self.begun_until.set((stamp, false));
    }

    /// Keeps what this side has as forks.
    pub(super) async fn keep_newest(&self, above: Stamp) -> Result<()> {
        let (member, ids) = (&self.member, self.member.ids());
        let cut = member.cut_of(b"newest of a fork");
        member.pool.take_cut_of_replica(&ids, cut).await?;
        for &volume in &ids {
            member.pool.keep_snapshots_of_fork(volume, (above, self.has.get())).await?;
        }
        let now = u64::try_from(self.world.wall().seconds).unwrap_or(0);
        forks::keep(member, (cut, self.has.get()), (above, now)).await?;
        member.pool.delete_cut(&ids, cut).await
    }
}
