//! Clones of a group as a promotion now would show it, for a rehearsal of the failover.
//!
//! Invariants:
//!
//! 1. The clones are a prefix of the primary's history, with all of its last command: they begin at one cut.
//! 2. The follower goes on: no point is left at a stamp that is still to come.
//! 3. Clones of all parts of a group are of one state: the joint one while the parts are apart, and otherwise what they have
//!    while all of them are held ([`crate::joint_cut`]).

use super::SecondaryGroup;
use crate::{
    joint_cut::{JointCutFailure, JointCutId, JointCutPart},
    planted::{self, ReplicationBug},
};
use array::{
    error::Error,
    format::{SnapshotId, VolumeId},
    pool::{NewClone, SnapshotKey, VolumeKey},
};
use std::time::Duration;
use tokio::sync::MutexGuard;
use world::with_deadline;

/// Time for the record that is being applied.
const APPLIED_WITHIN: Duration = Duration::from_secs(5);
/// Pause before a part looks again whether another cut of its group is over, and looks at most.
const MEETING_PAUSE: Duration = Duration::from_millis(20);
const MEETING_LOOKS: usize = 250;

/// Reason for which a secondary has nothing that could be cloned now.
#[derive(Debug, thiserror::Error)]
pub enum ShownCloneError {
    #[error("the first copy is not complete here")]
    Empty,
    #[error("a pool with a part of the group is not open here")]
    PartMissing,
    #[error("another cut of the group is under way")]
    OtherCut,
    /// The other parts clone nothing either.
    #[error("{why}")]
    OtherPart {
        why: String,
        /// Another attempt may succeed at once.
        passes: bool,
    },
    /// The way of a connection is being prepared, or a write takes long.
    #[error("what the primary sends is being applied")]
    Busy,
    /// A part of a command may be here alone. It passes with the next record; after an opening that may be the next write.
    #[error("it may have a part of the last write alone until the next one comes")]
    PartOfCommand,
    /// Passes with the next write.
    #[error("another point of its volumes has the stamp of the last write")]
    StampTaken,
    #[error(transparent)]
    Pool(Error),
}

impl From<Error> for ShownCloneError {
    fn from(error: Error) -> Self {
        match error {
            Error::StampTaken { .. } => Self::StampTaken,
            error => Self::Pool(error),
        }
    }
}

impl From<JointCutFailure> for ShownCloneError {
    fn from(JointCutFailure { why, passes }: JointCutFailure) -> Self {
        Self::OtherPart { why, passes }
    }
}

impl ShownCloneError {
    /// True if another attempt may succeed at once.
    pub fn passes(&self) -> bool {
        matches!(self, Self::PartOfCommand | Self::OtherPart { passes: true, .. })
    }
}

/// The state of a part that a promotion would show.
enum ShownPart {
    /// A cut that is there.
    Cut(SnapshotId),
    /// The content of the volumes.
    Present,
}

impl SecondaryGroup {
    /// Clones volumes of the group as a promotion now would show them: as of the last command, or as of the cut at which an
    /// unfinished pass began. The clones are volumes of hosts with identities of their own. Records wait meanwhile.
    ///
    /// # Errors
    ///
    /// See [`ShownCloneError`]. Some of the clones may be there.
    ///
    /// # Panics
    ///
    /// If it is a part of a group with volumes in several pools: see [`SecondaryGroup::clone_part`].
    pub async fn clone_shown(&self, clones: &[(VolumeId, NewClone)]) -> Result<(), ShownCloneError> {
        assert!(self.member.joint().is_none(), "a part is cloned with the others");
        let _no_records = self.without_records().await?;
        let member = &self.member;
        if member.lineage().is_none() {
            return Err(ShownCloneError::Empty);
        }
        if member.is_in_pass() {
            return self.clone_cut(clones, member.shown_cut()).await;
        }
        self.clone_present(clones).await
    }

    /// Clones volumes of a part as a promotion of the group now would show them: as of their joint state while the parts are
    /// apart, and otherwise as of a moment at which no part applies anything. To be called for all parts, each on
    /// its own thread, with the same `cut`. It resolves once this part is cloned or has failed; the clones of others are of
    /// use only if all have succeeded. Records of all parts wait while the last one is being held, half a second at most, and
    /// those of this one until its clones are there.
    ///
    /// # Errors
    ///
    /// See [`ShownCloneError`]. Some of the clones may be there.
    ///
    /// # Panics
    ///
    /// If it is no part.
    pub async fn clone_part(
        &self,
        cut: JointCutId,
        clones: &[(VolumeId, NewClone)],
    ) -> Result<(), ShownCloneError> {
        let meeting = self.join_cut(cut).await?;
        let error = match self.clone_within(&meeting, clones).await {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        let first = meeting.fail(JointCutFailure { why: error.to_string(), passes: error.passes() });
        // All parts make another attempt, or none.
        Err(if first.passes == error.passes() { error } else { first.into() })
    }

    async fn join_cut(&self, cut: JointCutId) -> Result<JointCutPart, ShownCloneError> {
        let (joint, part) = self.member.joint().expect("it is a part of a group");
        if !joint.is_complete() {
            return Err(ShownCloneError::PartMissing);
        }
        for _ in 0..MEETING_LOOKS {
            match joint.join_cut(*part, cut) {
                Some(meeting) => return Ok(meeting),
                // One that has failed lasts until all parts know.
                None => self.world.sleep(MEETING_PAUSE).await,
            }
        }
        Err(ShownCloneError::OtherCut)
    }

    async fn clone_within(
        &self,
        meeting: &JointCutPart,
        clones: &[(VolumeId, NewClone)],
    ) -> Result<(), ShownCloneError> {
        meeting.gather(&self.world).await?;
        let no_records = self.without_records().await?;
        if let ShownPart::Present = self.shown_part()? {
            // The others need not be held for an attempt that fails.
            self.check_whole_command()?;
        }
        let no_records = match planted::is(ReplicationBug::CutWithoutHold) {
            true => {
                drop(no_records);
                None
            }
            false => Some(no_records),
        };
        if !planted::is(ReplicationBug::ClonedAtOwnMoment) {
            meeting.hold(&self.world).await?;
        }
        let _no_records = match no_records {
            Some(held) => held,
            None => self.without_records().await?,
        };
        // Another part may have joined meanwhile.
        match self.shown_part()? {
            ShownPart::Cut(cut) => self.clone_cut(clones, cut).await,
            ShownPart::Present => self.clone_present(clones).await,
        }
    }

    /// The state of this part that a promotion of the group would show.
    fn shown_part(&self) -> Result<ShownPart, ShownCloneError> {
        let member = &self.member;
        let progress = member.state().joint;
        if let Some(point) = self.shown_point().filter(|_| !planted::is(ReplicationBug::ClonedApart)) {
            return match point.state {
                Some(state) => Ok(ShownPart::Cut(member.joint_cut(state.slot))),
                None => Err(ShownCloneError::Empty),
            };
        }
        if member.lineage().is_none() {
            return Err(ShownCloneError::Empty);
        }
        if progress.cutting.is_some() {
            // A crash came while its joint state was being cut, and the next connection ends that.
            return Err(ShownCloneError::Busy);
        }
        match member.is_in_pass() {
            true => Ok(ShownPart::Cut(member.shown_cut())),
            false => Ok(ShownPart::Present),
        }
    }

    /// Waits until nothing is being applied, and what was begun is stable; no record is applied before the guard is dropped.
    async fn without_records(&self) -> Result<MutexGuard<'_, ()>, ShownCloneError> {
        let applied = async {
            let no_records = self.applying.lock().await;
            // What is begun is stable first, and confirmed.
            self.begun.emptied().await;
            no_records
        };
        let applied = with_deadline(self.world.sleep(APPLIED_WITHIN), applied).await;
        applied.ok_or(ShownCloneError::Busy)
    }

    fn check_whole_command(&self) -> Result<(), ShownCloneError> {
        match self.is_in_doubt.get() || self.is_within_command.get() {
            true => Err(ShownCloneError::PartOfCommand),
            false => Ok(()),
        }
    }

    /// Deletes the cut of clones that a crash interrupted.
    pub(super) async fn delete_left_cut(&self) -> Result<(), Error> {
        self.member.pool.delete_cut(&self.member.ids(), self.cloned_cut()).await
    }

    fn cloned_cut(&self) -> SnapshotId {
        self.member.cut_of(b"rehearsed cut...")
    }

    /// Clones what the volumes have.
    async fn clone_present(&self, clones: &[(VolumeId, NewClone)]) -> Result<(), ShownCloneError> {
        self.check_whole_command()?;
        let (pool, cut) = (&self.member.pool, self.cloned_cut());
        let cloned = async {
            for (volume, clone) in clones {
                // A point may be there: of a connection's beginning, of a pass, a snapshot that was just taken.
                let at = match pool.point_at_present(*volume) {
                    Some(point) => point,
                    None => {
                        pool.take_cut_of_following_replica(&[*volume], cut).await?;
                        cut
                    }
                };
                pool.clone_volume(VolumeKey::Id(*volume), Some(SnapshotKey::Id(at)), clone).await?;
            }
            Ok(())
        };
        let cloned = cloned.await;
        // The clones keep what they read of it.
        pool.delete_cut(&self.member.ids(), cut).await?;
        cloned
    }

    async fn clone_cut(
        &self,
        clones: &[(VolumeId, NewClone)],
        cut: SnapshotId,
    ) -> Result<(), ShownCloneError> {
        for (volume, clone) in clones {
            let at = SnapshotKey::Id(cut);
            self.member.pool.clone_volume(VolumeKey::Id(*volume), Some(at), clone).await?;
        }
        Ok(())
    }
}
