//! What a primary keeps because of commands that change rows.

use super::PrimaryGroup;
use crate::{frame::SentChange, pass::before};
use array::{
    error::Error,
    format::{SnapshotId, Stamp},
};
use std::collections::BTreeSet;

impl PrimaryGroup {
    /// Deletes the points that rollbacks left, once the peer has them: no pass begins before any more.
    pub(super) async fn delete_passed_rollbacks(&self) -> Result<(), Error> {
        if !self.has_rollbacks.get() {
            return Ok(());
        }
        let (pool, ids) = (&self.member.pool, self.member.ids());
        // A peer that crashes may lack the last command that it confirmed.
        let confirmed = before(self.session.borrow().confirmed().stamps()[0]);
        self.has_rollbacks.set(false);
        for &volume in &ids {
            let points = pool.rollbacks_above(volume, Stamp(0))?;
            if points.iter().any(|point| point.stamp > confirmed) {
                self.has_rollbacks.set(true);
            }
            if points.iter().any(|point| point.stamp <= confirmed) {
                pool.delete_rollback_points(&[volume], confirmed).await?;
            }
        }
        Ok(())
    }

    /// Notes the snapshots that a peer has after a pass up to a stamp.
    pub(super) fn note_passed_snapshots(&self, until: Stamp) -> Result<(), Error> {
        let mut has = BTreeSet::new();
        for &volume in &self.member.volumes {
            let points = self.member.pool.snapshots_above(volume, Stamp(0))?.into_iter();
            has.extend(points.filter(|point| point.stamp < until).map(|point| point.snapshot.snapshot));
        }
        *self.peer_snapshots.borrow_mut() = has;
        Ok(())
    }

    pub(super) fn note_sent_snapshot(&self, change: &SentChange) {
        if let SentChange::Snapshot(taken) = change {
            self.peer_snapshots.borrow_mut().insert(taken.snapshot);
        }
    }

    /// True if a change is a rollback to a snapshot that the peer may lack: it is left to a pass, which brings what it
    /// changed.
    pub(super) fn is_left_to_pass(&self, change: &SentChange) -> bool {
        let has = |snapshot: &SnapshotId| self.peer_snapshots.borrow().contains(snapshot);
        matches!(change, SentChange::RollBack { snapshot, .. } if !has(snapshot))
    }
}
