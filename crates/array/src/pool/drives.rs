//! Adding drives to a pool.

use super::{NewDrive, Pool, create::member_of};
use crate::{
    error::{Error, Result},
    format::MemberIndex,
    simulation::sometimes::{self, Sometimes, UnderWay},
};
use world::{IoError, IoErrorKind};

impl Pool {
    /// Adds a drive to the pool. Its content is erased. New segments are placed on it, and it receives copies
    /// of segments that lack one: a pool of one drive becomes mirrored. A former member returns this way, as
    /// a new member.
    ///
    /// # Errors
    ///
    /// The drive is too small, already a member, or cannot be written; or the pool has stopped.
    pub async fn add_drive(&self, new: &NewDrive) -> Result<()> {
        let _one_at_a_time = self.shared.lock_changes().await;
        self.add(new, None).await?;
        self.log.check_copies();
        Ok(())
    }

    /// Adds a drive; `replaced` leaves from then on. The caller holds the lock.
    pub(super) async fn add(&self, new: &NewDrive, replaced: Option<MemberIndex>) -> Result<()> {
        self.shared.check_runs()?;
        let (index, member) = {
            let superblock = self.shared.superblock.borrow();
            let count = superblock.members.len();
            let member = member_of(self.shared.drives.geometry(), count, new)?;
            if superblock.members.iter().any(|known| known.drive == new.drive) {
                return Err(Error::NameTaken(new.drive.to_string()));
            }
            (MemberIndex(count as u16), member)
        };
        let under_way = UnderWay::begin(Sometimes::CutWhileAdding);
        crate::superblocks::clear_device(index, &new.device).await?;
        // Only superblocks are written to it until every superblock lists it as a member: after a crash,
        // other data on it would be lost.
        self.shared.drives.let_join(index, self.shared.watch.watch(&new.device));
        self.shared.publish_joining(member, replaced).await?;
        if self.shared.admit_joined() != [index] {
            let error = IoError::new(IoErrorKind::Disconnected, "it failed while it was added");
            return Err(Error::Drive { member: index, error });
        }
        under_way.end();
        sometimes::reached(Sometimes::DriveAdded);
        // If the pool has stopped, its events say so; an error would say that the new drive is no member.
        let _ = self.restore_sparing().await;
        Ok(())
    }
}
