//! Locks of backups at the site that follows: what their notes and the other site say, by the clock of this one.
//!
//! Invariants:
//!
//! 1. The note that came with a snapshot counts for good: nothing that a primary sends later makes its lock shorter.
//! 2. A clock that is set forward ends no lock while the server runs: time counts by what has passed since its start.

use super::set_memory::SetMemory;
use crate::planted::{self, FollowBug};
use array::pool::Snapshot;
use protect::catalogue::{PointNote, PointNoteError};
use replication::held_snapshots::SnapshotLocks;
use world::{Moment, World};

/// The rule of a site for the snapshots that its groups hold.
pub(super) struct SiteLocks {
    world: World,
    memory: SetMemory,
    /// Both clocks as it was made.
    began: (Moment, i64),
}

/// The end of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LockEnd {
    /// In seconds since 1970.
    At(i64),
    /// A newer program made the note, and this one cannot read it.
    Unknown,
}

impl SiteLocks {
    pub fn new(world: &World, memory: &SetMemory) -> Self {
        let began = (world.now(), world.wall().seconds);
        Self { world: world.clone(), memory: memory.clone(), began }
    }

    /// Seconds since 1970, as far as they have certainly passed.
    pub fn now_s(&self) -> i64 {
        let (moment, wall_s) = self.began;
        let passed_s = i64::try_from(self.world.now().since(moment).as_secs()).unwrap_or(i64::MAX);
        self.world.wall().seconds.min(wall_s.saturating_add(passed_s))
    }

    /// The end of the lock of a snapshot; `None` if it is not locked.
    pub fn lock_of(&self, snapshot: &Snapshot) -> Option<LockEnd> {
        let note = match PointNote::decode(&snapshot.note) {
            Ok(note) => note?,
            Err(PointNoteError::Damaged(_)) => return None,
            Err(PointNoteError::OtherVersion(_)) => return Some(LockEnd::Unknown),
        };
        let cut_s = i64::try_from(snapshot.created_at.0 / 1_000_000_000).unwrap_or(i64::MAX);
        let of_note = note.lock_s.map(|lock_s| cut_s.saturating_add(lock_s));
        let of_person = self.memory.longer_lock(&note.set, note.sequence);
        let until_s = of_note.max(of_person)?;
        (self.now_s() < until_s).then_some(LockEnd::At(until_s))
    }
}

impl SnapshotLocks for SiteLocks {
    fn is_locked(&self, snapshot: &Snapshot) -> bool {
        !planted::is_in_following(FollowBug::LocksNotLookedAt) && self.lock_of(snapshot).is_some()
    }

    fn now_unix_s(&self) -> u64 {
        self.world.wall().seconds.unsigned_abs()
    }
}
