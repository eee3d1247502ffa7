//! Growth in place: a drive whose device has become larger gets more slots.
//!
//! The superblocks say so first, and nothing is placed on a new slot before all of them do: after a crash the pool has
//! the old number of slots or the new one, and either is right.

use super::Pool;
use crate::{
    error::{Error, Result},
    format::{DriveId, MemberIndex, MemberState, PoolGeometry},
    simulation::canary::{self, Canary},
};
use world::ByteCount;

/// Whole slots of a drive of that size.
pub(super) fn slots_in(geometry: PoolGeometry, size: ByteCount) -> u64 {
    size.0.saturating_sub(geometry.data_start_bytes) / u64::from(geometry.slot_bytes)
}

impl Pool {
    /// Bytes by which drives in use have become larger and which the pool does not use yet, by drive; in whole slots.
    pub fn unused_growth(&self) -> Vec<(DriveId, u64)> {
        let slot_bytes = u64::from(self.shared.drives.geometry().slot_bytes);
        let members = self.shared.drives.members();
        let grown = members.into_iter().filter_map(|member| {
            let row = self.shared.superblock.borrow().members[usize::from(member.0)].clone();
            let more = self.slots_now(member)?.checked_sub(u64::from(row.slot_count))?;
            (more > 0).then_some((row.drive, more * slot_bytes))
        });
        grown.collect()
    }

    /// Slots for which the device of a member has room; none if it is absent.
    fn slots_now(&self, member: MemberIndex) -> Option<u64> {
        let device = self.shared.drives.device(member)?;
        let slots = slots_in(self.shared.drives.geometry(), device.geometry().size);
        Some(slots.min(u32::MAX.into()))
    }

    /// Uses all of a drive that has become larger. Returns the bytes gained: none if it has not grown by a slot.
    ///
    /// # Errors
    ///
    /// The drive is no member, is not present or leaves; or the pool has stopped.
    pub async fn grow(&self, drive: DriveId) -> Result<u64> {
        let _one_at_a_time = self.shared.lock_changes().await;
        self.shared.check_runs()?;
        let member = match self.member(drive)? {
            (member, MemberState::Active) => member,
            _ => return Err(Error::DriveAbsent(drive)),
        };
        let before = self.shared.superblock.borrow().members[usize::from(member.0)].slot_count;
        let slots = self.slots_now(member).ok_or(Error::DriveAbsent(drive))? as u32;
        if slots <= before {
            return Ok(0);
        }
        let recorded = if canary::is(Canary::GrowthNotRecorded) { before } else { slots };
        self.shared
            .publish(|superblock| superblock.members[usize::from(member.0)].slot_count = recorded)
            .await?;
        if !self.shared.drives.has(member) {
            return Err(Error::DriveAbsent(drive));
        }
        self.shared.state.borrow_mut().segments.grow_member(member, slots);
        self.shared.note_drive_change();
        // As after an addition: an error would say that the drive has not grown.
        let _ = self.restore_sparing().await;
        self.mover.begin_levelling();
        Ok(u64::from(slots - before) * u64::from(self.shared.drives.geometry().slot_bytes))
    }
}
