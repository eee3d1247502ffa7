//! Drives that leave a pool: retired, replaced, kept after all, forgotten.

use super::{NewDrive, Pool, create::member_of};
use crate::{
    engine::events::EventKind,
    error::{DriveNeeds, Error, Result},
    format::{DriveId, MemberIndex, MemberState, features::INCOMPATIBLE_LEAVING},
    member_table::MemberChange,
    mover::LeavingDrive,
    redundancy::SegmentLayout,
    simulation::{
        canary::{self, Canary},
        sometimes::{self, Sometimes},
    },
};

impl Pool {
    /// Lets a drive leave: it gets no new data, and what lies on it is copied elsewhere in the background. When
    /// nothing lies on it, it is no member any more ([`EventKind::DriveLeft`]). Returns when every superblock
    /// says that it leaves. Does nothing if it leaves already, or has left.
    ///
    /// # Errors
    ///
    /// It never was a member, or is not present; the others are too few or have too little room; or the pool has stopped.
    pub async fn retire(&self, drive: DriveId) -> Result<()> {
        let _one_at_a_time = self.shared.lock_changes().await;
        self.shared.check_runs()?;
        if self.row(drive).is_some_and(|(_, state)| state == MemberState::Gone) {
            return Ok(());
        }
        let member = match self.member(drive)? {
            (_, MemberState::Leaving) => return Ok(()),
            (member, _) => member,
        };
        self.check_rest(member, None)?;
        let features = self.shared.begin_rows(INCOMPATIBLE_LEAVING).await?;
        let change =
            if canary::is(Canary::VoteGivenUpFirst) { MemberChange::GiveUpVote } else { MemberChange::Leave };
        self.shared
            .publish(|superblock| {
                MemberChange::Leave.apply(superblock, member);
                change.apply(superblock, member);
            })
            .await?;
        drop(features);
        self.begin_leaving(member, drive)
    }

    /// Adds a drive, and lets another one leave, as one intention: if the new one does not become a member, the
    /// old one stays. The emptiest drives get what lies on the old one, so a new one gets most. If the old one
    /// is lost meanwhile, the new one is added all the same.
    ///
    /// # Errors
    ///
    /// As [`Pool::retire`] and [`Pool::add_drive`], with the new drive counted among the others.
    pub async fn replace(&self, old: DriveId, new: &NewDrive) -> Result<()> {
        let _one_at_a_time = self.shared.lock_changes().await;
        self.shared.check_runs()?;
        let (member, _) = self.member(old)?;
        let slots = {
            let count = self.shared.superblock.borrow().members.len();
            member_of(self.shared.drives.geometry(), count, new)?.slot_count
        };
        self.check_rest(member, Some(slots.into()))?;
        let features = self.shared.begin_rows(INCOMPATIBLE_LEAVING).await?;
        self.add(new, Some(member)).await?;
        drop(features);
        if !self.shared.drives.is_leaving(member) {
            // An error would say that the new one is no member.
            return Ok(());
        }
        self.begin_leaving(member, old)
    }

    /// Cancels a retirement: the drive gets new data again. Does nothing if it does not leave.
    ///
    /// # Errors
    ///
    /// It is no member or not present, or the pool has stopped.
    pub async fn keep(&self, drive: DriveId) -> Result<()> {
        let _one_at_a_time = self.shared.lock_changes().await;
        self.shared.check_runs()?;
        let member = match self.member(drive)? {
            (member, MemberState::Leaving) => member,
            _ => return Ok(()),
        };
        self.shared.publish(|superblock| MemberChange::Keep.apply(superblock, member)).await?;
        self.shared.note_drive_change();
        if !self.shared.drives.has(member) {
            return Err(Error::DriveAbsent(drive));
        }
        sometimes::reached(Sometimes::DriveKept);
        self.shared.events.report(EventKind::DriveKept { drive: self.shared.drive_name(member) });
        Ok(())
    }

    /// Removes a lost drive from the member table, if nothing that the pool needs lies on it. The pool does this
    /// in the background, too. Does nothing if it is no member any more.
    ///
    /// # Errors
    ///
    /// It was never a member, or is present; data lacks copies that are not made yet, or lies there alone; or
    /// the pool has stopped.
    pub async fn forget(&self, drive: DriveId) -> Result<()> {
        let _one_at_a_time = self.shared.lock_changes().await;
        self.shared.check_runs()?;
        let (member, state) = self.row(drive).ok_or(Error::NoDrive(drive))?;
        if state == MemberState::Gone {
            return Ok(());
        }
        if self.shared.drives.superblock_members().contains(&member) {
            return Err(Error::DriveInUse(drive));
        }
        self.check_unneeded(member, drive)?;
        self.mover.forget_lost_drives().await?;
        if self.row(drive).is_some_and(|(_, state)| state != MemberState::Gone) {
            // Its segments are free with the next checkpoints.
            return Err(self.still_needed(member, drive));
        }
        self.shared.events.report(EventKind::DriveForgotten { drive: self.shared.drive_name(member) });
        Ok(())
    }

    /// True if the member table has the drive: as a member, present or not, or as one that joins.
    pub fn is_listed(&self, drive: DriveId) -> bool {
        self.row(drive).is_some_and(|(_, state)| state != MemberState::Gone)
    }

    /// True if the drive was a member and has left for good, or was forgotten.
    pub fn has_left(&self, drive: DriveId) -> bool {
        self.row(drive).is_some_and(|(_, state)| state == MemberState::Gone)
    }

    /// True if a segment lies on the drive, present or not. Reads the rows of all segments.
    pub fn is_named(&self, drive: DriveId) -> bool {
        self.row(drive).is_some_and(|(member, _)| self.needs_of(member).segments > 0)
    }

    /// Drives that leave, and what lies on them.
    pub fn leaving(&self) -> Vec<LeavingDrive> {
        self.mover.leaving()
    }

    fn begin_leaving(&self, member: MemberIndex, drive: DriveId) -> Result<()> {
        if !self.shared.drives.is_leaving(member) {
            // It was lost while the superblocks were written.
            return Err(Error::DriveAbsent(drive));
        }
        self.shared.events.report(EventKind::DriveLeaving { drive: self.shared.drive_name(member) });
        self.shared.note_drive_change();
        self.mover.begin_emptying();
        Ok(())
    }

    fn row(&self, drive: DriveId) -> Option<(MemberIndex, MemberState)> {
        let superblock = self.shared.superblock.borrow();
        let index = superblock.members.iter().position(|member| member.drive == drive)?;
        Some((MemberIndex(index as u16), superblock.members[index].state))
    }

    /// A member that is present.
    pub(super) fn member(&self, drive: DriveId) -> Result<(MemberIndex, MemberState)> {
        let (member, state) = self.row(drive).ok_or(Error::NoDrive(drive))?;
        match state {
            MemberState::Gone => Err(Error::NoDrive(drive)),
            _ if self.shared.drives.has(member) => Ok((member, state)),
            _ => Err(Error::DriveAbsent(drive)),
        }
    }

    /// Fails if the drives that stay, and a new one of `new_slots`, are too few or too small.
    fn check_rest(&self, leaving: MemberIndex, new_slots: Option<u64>) -> Result<()> {
        let drives = &self.shared.drives;
        let staying: Vec<_> =
            drives.staying_members().into_iter().filter(|&member| member != leaving).collect();
        let (left, copies) = (staying.len() + usize::from(new_slots.is_some()), drives.copies().most());
        if left < copies {
            return Err(Error::TooFewToLeave { left, copies });
        }
        let spared = self.sparing().kept_drives;
        let needed = copies + usize::from(spared);
        if left < needed {
            return Err(Error::TooFewToSpare { drives: left, needed });
        }
        let more: Vec<u64> = new_slots.into_iter().collect();
        let lacking_bytes = self.shared.lacking_room(&staying, &more, spared);
        if lacking_bytes > 0 {
            return Err(Error::TooSmallToLeave { lacking_bytes });
        }
        match self.shared.lacking_reserve(&staying, &more, spared) {
            0 => Ok(()),
            lacking_bytes => Err(Error::TooFullToLeave { lacking_bytes }),
        }
    }

    /// Fails if segments name an absent drive.
    fn check_unneeded(&self, member: MemberIndex, drive: DriveId) -> Result<()> {
        match self.needs_of(member) {
            DriveNeeds { segments: 0, .. } => Ok(()),
            needs => Err(Error::DriveNeeded { drive, needs }),
        }
    }

    fn still_needed(&self, member: MemberIndex, drive: DriveId) -> Error {
        Error::DriveNeeded { drive, needs: self.needs_of(member) }
    }

    /// The segments that name an absent drive.
    fn needs_of(&self, member: MemberIndex) -> DriveNeeds {
        let drives = &self.shared.drives;
        let slot_bytes = u64::from(drives.geometry().slot_bytes);
        let mut needs = DriveNeeds::default();
        for (_, row) in self.shared.state.borrow().segments.iter() {
            if row.slots.iter().all(|slot| slot.member != member) {
                continue;
            }
            needs.segments += 1;
            let is_lost = SegmentLayout::of(row).is_lost(drives.copies_there(&row.slots));
            *(if is_lost { &mut needs.only_there_bytes } else { &mut needs.not_copied_bytes }) += slot_bytes;
        }
        needs
    }
}
