//! Clones of a group as a promotion now would show it, for a rehearsal of the failover.
//!
//! Invariants:
//!
//! 1. The clones are a prefix of the primary's history, with all of its last command: they begin at one cut.
//! 2. The follower goes on: no point is left at a stamp that is still to come.

use super::SecondaryGroup;
use array::{
    error::Error,
    format::{SnapshotId, VolumeId},
    pool::{NewClone, SnapshotKey, VolumeKey},
};
use std::time::Duration;
use world::with_deadline;

/// Time for the record that is being applied.
const APPLIED_WITHIN: Duration = Duration::from_secs(5);

/// Reason for which a secondary has nothing that could be cloned now.
#[derive(Debug, thiserror::Error)]
pub enum ShownCloneError {
    #[error("the first copy is not complete here")]
    Empty,
    /// Clones of one part beside those of another would be of two moments.
    #[error("the group has volumes in several pools: its states here are not cloned yet, only promoted")]
    SeveralPools,
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

impl SecondaryGroup {
    /// Clones volumes of the group as a promotion now would show them: as of the last command, or as of the cut at which an
    /// unfinished pass began. The clones are volumes of hosts with identities of their own. Records wait meanwhile.
    ///
    /// # Errors
    ///
    /// See [`ShownCloneError`]. Some of the clones may be there.
    pub async fn clone_shown(&self, clones: &[(VolumeId, NewClone)]) -> Result<(), ShownCloneError> {
        let applied = async {
            let no_records = self.applying.lock().await;
            // What is begun is stable first.
            self.begun.emptied().await;
            no_records
        };
        let applied = with_deadline(self.world.sleep(APPLIED_WITHIN), applied).await;
        let _no_records = applied.ok_or(ShownCloneError::Busy)?;
        let member = &self.member;
        if member.joint().is_some() {
            return Err(ShownCloneError::SeveralPools);
        }
        if member.lineage().is_none() {
            return Err(ShownCloneError::Empty);
        }
        if member.is_in_pass() {
            return self.clone_cut(clones, member.shown_cut()).await;
        }
        if self.is_in_doubt.get() || self.is_within_command.get() {
            return Err(ShownCloneError::PartOfCommand);
        }
        let (ids, cut) = (member.ids(), member.cut_of(b"rehearsed cut..."));
        // One of a connection's beginning may be left.
        if member.pool.cut_shows_present(&ids, member.shown_cut()) {
            return self.clone_cut(clones, member.shown_cut()).await;
        }
        member.pool.take_cut_of_following_replica(&ids, cut).await?;
        let cloned = self.clone_cut(clones, cut).await;
        // The clones keep what they read of it.
        member.pool.delete_cut(&ids, cut).await?;
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
