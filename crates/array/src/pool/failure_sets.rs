//! Failure sets: whether the pool has them, and which drive is in which.

use super::Pool;
use crate::{
    engine::FailureSetsStatus,
    error::Result,
    format::{DriveId, SetNumber},
};

impl Pool {
    /// The failure sets, and what may be lost at once. Reads the rows of all segments.
    pub fn failure_sets(&self) -> FailureSetsStatus {
        self.shared.failure_sets()
    }

    /// The failure set of a member, present or not; `None` if it is in none, or is no member.
    pub fn set_of(&self, drive: DriveId) -> Option<SetNumber> {
        let superblock = self.shared.superblock.borrow();
        superblock.members.iter().find(|member| member.drive == drive)?.set
    }

    /// Mirrored segments with copies in several sets: no set had room for all of them, or drives changed sets. Levelling
    /// moves the copies into one.
    pub fn segments_across_sets(&self) -> u64 {
        self.shared.segments_across_sets()
    }

    /// Divides the drives into failure sets, now if they are 12 or more, else when they come to be; or does away with the
    /// sets. Returns when every superblock says so. Copies that are across sets then are moved into one in the background.
    ///
    /// # Errors
    ///
    /// The pool has stopped.
    pub async fn set_failure_sets(&self, is_wanted: bool) -> Result<()> {
        let _one_at_a_time = self.shared.changing.lock().await;
        self.shared.check_runs()?;
        if self.shared.superblock.borrow().wants_sets() == is_wanted {
            return Ok(());
        }
        // Each generation assigns the sets.
        self.shared.publish(|superblock| superblock.set_wants_sets(is_wanted)).await?;
        self.shared.note_drive_change();
        self.mover.begin_levelling();
        Ok(())
    }
}
