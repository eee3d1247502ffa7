//! Snapshots that DR groups of a pool hold against the deletions of their primaries: shown, and deleted once their locks have
//! ended.

use super::{
    hosted_group::HostedGroup,
    pool_groups::PoolDrGroups,
    snapshot_locks::{LockEnd, SiteLocks},
};
use crate::planted::{self, FollowBug};
use array::format::{SnapshotId, VolumeId};
use std::{rc::Rc, time::Duration};

/// Interval of looking whether locks of held snapshots have ended.
pub(super) const LOCKS_EVERY: Duration = Duration::from_secs(5);

/// A snapshot of a volume that the primary has deleted, and that is locked here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldDrSnapshot {
    pub volume: VolumeId,
    pub snapshot: SnapshotId,
    pub name: String,
    /// The time of its deletion, in seconds since 1970.
    pub since_unix_s: i64,
    /// The end of its lock, in seconds since 1970; `None` if a newer program made its note. It goes then.
    pub until_unix_s: Option<i64>,
}

impl HeldDrSnapshot {
    /// True of a clock that differs a little from that of the primary, which deletes a backup as its lock ends.
    pub(crate) fn is_of_clocks(&self) -> bool {
        const CLOCKS_DIFFER_S: i64 = 60;
        self.until_unix_s.is_some_and(|until| until - self.since_unix_s <= CLOCKS_DIFFER_S)
    }
}

impl HostedGroup {
    /// The snapshots that are held, by name.
    pub(super) fn held(&self, locks: &SiteLocks) -> Vec<HeldDrSnapshot> {
        let all = self.member.held_snapshots().into_iter();
        let mut held: Vec<HeldDrSnapshot> = all
            .map(|(volume, snapshot, since)| HeldDrSnapshot {
                volume,
                snapshot: snapshot.snapshot,
                since_unix_s: i64::try_from(since).unwrap_or(i64::MAX),
                until_unix_s: match locks.lock_of(&snapshot) {
                    Some(LockEnd::At(until_s)) => Some(until_s),
                    Some(LockEnd::Unknown) => None,
                    // It goes with the next look.
                    None => Some(i64::try_from(since).unwrap_or(i64::MAX)),
                },
                name: snapshot.name,
            })
            .collect();
        held.sort_by(|one, other| (&one.name, one.volume).cmp(&(&other.name, other.volume)));
        held
    }
}

impl PoolDrGroups {
    /// Deletes what is held no more, again and again, as long as the pool is open.
    pub(super) fn watch_locks(self: &Rc<Self>) {
        let (own, world) = (Rc::downgrade(self), self.world.clone());
        drop(self.world.spawn("locks of DR groups", async move {
            let mut last_problem = None;
            loop {
                world.sleep(LOCKS_EVERY).await;
                let Some(groups) = own.upgrade() else { return };
                let problem = groups.delete_unlocked().await.err();
                if let Some(text) = problem.as_ref().filter(|text| last_problem.as_ref() != Some(*text)) {
                    groups.notices.warn(text.clone());
                }
                last_problem = problem;
            }
        }));
    }

    async fn delete_unlocked(&self) -> Result<(), String> {
        if planted::is_in_following(FollowBug::HeldForGood) {
            return Ok(());
        }
        let all: Vec<Rc<HostedGroup>> = self.groups.borrow().values().cloned().collect();
        for group in all {
            let Some(follower) = group.follower() else { continue };
            let name = &group.settings().name;
            let gone = follower.delete_unlocked().await.map_err(|error| {
                format!("DR group {name}: a held snapshot whose lock has ended is not deleted: {error}")
            })?;
            for snapshot in gone {
                self.notices.note(format!(
                    "DR group {name}: {} is deleted, as the primary had done before: its lock has ended here",
                    snapshot.name
                ));
            }
        }
        Ok(())
    }
}
