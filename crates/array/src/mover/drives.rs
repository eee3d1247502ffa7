//! Drives come and go: one more is taken in, and one that was lost is forgotten when nothing names it any more.

use crate::{
    error::{Error, Result},
    format::{MemberIndex, MemberState},
    pool::{NewDrive, Pool},
    simulation::sometimes::{self, Sometimes, UnderWay},
};
use std::{collections::BTreeSet, rc::Rc};
use world::{BlockDevice, IoError, IoErrorKind};

impl Pool {
    /// Takes one more drive into the pool. What it held is lost; it gets new segments, and copies of those that lack
    /// one. With it a pool of one drive becomes one of two copies, when those are made. A drive that was a member and was lost comes back in this way, under a new name.
    ///
    /// # Errors
    ///
    /// It is too small, or is there already, or cannot be written; or the pool has stopped.
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
        // Nothing else is written to it before every superblock calls it a member: what lay there would be nowhere after a
        // crash.
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

    /// Goes on without drives that were given up.
    ///
    /// # Errors
    ///
    /// Those that are left are too few; the pool has stopped.
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

    /// Takes drives out of the member table that are not there and that no segment names any more.
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
        // Rows that name them must be so on disk, not only here: with this checkpoint none leads to them. A drive that is
        // lost meanwhile is another one, which rows may name.
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
