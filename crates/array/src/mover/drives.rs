//! Adding drives, and removing lost ones from the member table.

use crate::{
    error::{Error, Result},
    format::{MemberIndex, MemberState},
    pool::{NewDrive, Pool},
    simulation::sometimes::{self, Sometimes, UnderWay},
};
use std::{collections::BTreeSet, rc::Rc};
use world::{BlockDevice, IoError, IoErrorKind};

impl Pool {
    /// Adds a drive to the pool. Its content is erased. New segments are placed on it, and it receives copies
    /// of segments that lack one: a pool of one drive becomes mirrored. A former member returns this way, as
    /// a new member.
    ///
    /// # Errors
    ///
    /// The drive is too small, already a member, or cannot be written; or the pool has stopped.
    pub async fn add_drive(&self, new: &NewDrive) -> Result<()> {
        let _one_at_a_time = self.changing.lock().await;
        self.shared.check_runs()?;
        let member = self.shared.new_member(new)?;
        let index = {
            let superblock = self.shared.superblock.borrow();
            if superblock.members.iter().any(|known| known.drive == new.drive) {
                return Err(Error::NameTaken(new.drive.to_string()));
            }
            MemberIndex(superblock.members.len() as u16)
        };
        let under_way = UnderWay::begin(Sometimes::CutWhileAdding);
        crate::superblocks::clear_device(index, &new.device).await?;
        // Only superblocks are written to it until every superblock lists it as a member: after a crash,
        // other data on it would be lost.
        self.shared.drives.let_join(index, self.shared.watch.watch(&new.device));
        self.shared.publish_joining(member).await?;
        if self.shared.admit_joined() != [index] {
            let error = IoError::new(IoErrorKind::Disconnected, "it failed while it was added");
            return Err(Error::Drive { member: index, error });
        }
        under_way.end();
        sometimes::reached(Sometimes::DriveAdded);
        self.lane.look_at_copies();
        Ok(())
    }

    /// Removes drives that the watchdog has given up.
    ///
    /// # Errors
    ///
    /// Too few drives are left; the pool has stopped.
    pub(crate) async fn leave_stuck_drives(&self) -> Result<()> {
        let drives = &self.shared.drives;
        for member in drives.members() {
            let is_stuck = |device: &Rc<dyn BlockDevice>| self.shared.watch.has_given_up(device);
            if drives.device(member).as_ref().is_some_and(is_stuck) {
                self.shared.lose(vec![(member, self.shared.watch.error())]).await?;
            }
        }
        Ok(())
    }

    /// Removes absent drives from the member table once no segment refers to them.
    ///
    /// # Errors
    ///
    /// The pool has stopped.
    pub(crate) async fn forget_lost_drives(&self) -> Result<()> {
        let forgotten = self.missing_and_not_named();
        if forgotten.is_empty() {
            return Ok(());
        }
        sometimes::reached(Sometimes::DriveForgotten);
        // After this checkpoint no row on disk refers to them. A drive that is lost meanwhile is not among
        // them.
        self.checkpoint().await?;
        self.shared
            .publish(|superblock| {
                let generation = superblock.generation;
                for index in forgotten {
                    let member = &mut superblock.members[usize::from(index.0)];
                    assert_eq!(
                        member.state,
                        MemberState::Missing,
                        "{index:?}: none that is missing comes back"
                    );
                    member.state = MemberState::Gone;
                    member.since = generation;
                }
            })
            .await
    }

    fn missing_and_not_named(&self) -> Vec<MemberIndex> {
        let superblock = self.shared.superblock.borrow();
        let is_missing =
            |index: &MemberIndex| superblock.members[usize::from(index.0)].state == MemberState::Missing;
        let mut missing: Vec<MemberIndex> =
            (0..superblock.members.len() as u16).map(MemberIndex).filter(is_missing).collect();
        if !missing.is_empty() {
            let state = self.shared.state.borrow();
            let named: BTreeSet<MemberIndex> =
                state.segments.iter().flat_map(|(_, row)| row.slots.iter().map(|slot| slot.member)).collect();
            missing.retain(|index| !named.contains(index));
        }
        missing
    }
}
