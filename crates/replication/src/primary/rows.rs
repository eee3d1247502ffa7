//! What a primary keeps because of commands that change rows.

use super::PrimaryGroup;
use crate::{
    frame::{PassSnapshotsFrame, SentChange},
    pass::before,
};
use array::{error::Error, format::Stamp, pool::HistoryPoint};
use std::{rc::Rc, sync::Arc};

impl PrimaryGroup {
    /// Has the points deleted that rollbacks left, once the peer has them: no pass begins before any more. Does not wait for
    /// that: it needs the catalogue, and who changes that may wait for hosts, and they for this group.
    pub(super) fn delete_passed_rollbacks(&self) -> Result<(), Error> {
        if !self.has_rollbacks.get() {
            return Ok(());
        }
        // A pass may have begun before what the peer has confirmed since, and reads them.
        let Ok(no_pass) = Arc::clone(&self.passing).try_lock_owned() else { return Ok(()) };
        let (pool, ids) = (Rc::clone(&self.member.pool), self.member.ids());
        // A peer that crashes may lack the last command that it confirmed, and a pass begins one stamp earlier.
        let confirmed = before(before(self.session.borrow().confirmed().stamps()[0]));
        let points = ids.iter().map(|&volume| pool.rollbacks_above(volume, Stamp(0)));
        let points: Vec<HistoryPoint> = points.collect::<Result<Vec<_>, _>>()?.concat();
        self.has_rollbacks.set(!points.is_empty());
        if points.iter().any(|point| point.stamp <= confirmed) {
            drop(self.world.spawn("points of rollbacks", async move {
                // A failure shows in the pool; it is tried again.
                let _ = pool.delete_rollback_points(&ids, confirmed).await;
                drop(no_pass);
            }));
        }
        Ok(())
    }

    /// Notes the snapshots that the peer has of a volume.
    pub(super) fn note_peer_snapshots(&self, frame: PassSnapshotsFrame) {
        self.peer_snapshots.borrow_mut().insert(frame.volume, frame.kept.into_iter().collect());
        self.changed.notify_waiters();
    }

    /// Notes that the peer gets a snapshot, or loses one.
    pub(super) fn note_sent_rows(&self, change: &SentChange) {
        let mut peer = self.peer_snapshots.borrow_mut();
        match change {
            SentChange::Snapshot(taken) => {
                for volume in &taken.volumes {
                    peer.entry(*volume).or_default().insert(taken.snapshot);
                }
            }
            SentChange::SnapshotDeleted { snapshot, volumes } => {
                for volume in volumes {
                    peer.entry(*volume).or_default().remove(snapshot);
                }
            }
            _ => {}
        }
    }

    /// True if a change is a rollback to a snapshot that the peer may lack: it is left to a pass, which brings what it
    /// changed.
    pub(super) fn is_left_to_pass(&self, change: &SentChange) -> bool {
        let SentChange::RollBack { volume, snapshot, .. } = change else { return false };
        !self.peer_snapshots.borrow().get(volume).is_some_and(|has| has.contains(snapshot))
    }
}
