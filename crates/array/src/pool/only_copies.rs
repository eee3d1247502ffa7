//! Data whose last copies are on drives that the pool does not use: absent or stale ones.

use crate::{
    engine::Shared,
    format::{DriveId, GRAIN_BYTES, MemberIndex},
};
use std::collections::BTreeMap;

impl Shared {
    /// Live bytes in segments without a copy on a drive in use, by the drives that should have one, as of the
    /// last checkpoint.
    pub(super) fn only_copies_elsewhere(&self) -> BTreeMap<DriveId, u64> {
        let mut bytes = BTreeMap::new();
        let state = self.state.borrow();
        for (_, row) in state.segments.iter().filter(|(_, row)| row.live_grains > 0) {
            if self.drives.copies_there(&row.slots) > 0 {
                continue;
            }
            for drive in row.slots.iter().filter_map(|slot| self.drive_of(slot.member)) {
                *bytes.entry(drive).or_default() += u64::from(row.live_grains) * GRAIN_BYTES as u64;
            }
        }
        bytes
    }

    pub(super) fn drive_of(&self, member: MemberIndex) -> Option<DriveId> {
        let superblock = self.superblock.borrow();
        superblock.members.get(usize::from(member.0)).map(|member| member.drive)
    }
}
