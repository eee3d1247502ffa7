//! Sparing: room that a pool keeps for drives that may be lost.

use super::Pool;
use crate::{
    error::{Error, Result},
    format::{Sparing, SparingLevel},
    simulation::sometimes::{self, Sometimes},
};

impl Pool {
    /// The level, and the drives for which room is kept now: a lost drive takes the room of one.
    pub fn sparing(&self) -> Sparing {
        self.shared.superblock.borrow().sparing()
    }

    /// Keeps room for so many lost drives. Data is cleaned until that much is free, so this may take a while.
    ///
    /// # Errors
    ///
    /// The drives are too few, or the data needs the room; then nothing is changed. Or the pool has stopped.
    pub async fn set_sparing(&self, level: SparingLevel) -> Result<()> {
        let before = self.sparing();
        // Without the lock: other verbs go on meanwhile.
        if level.drives() > before.kept_drives {
            // Overwritten and deleted data needs no room.
            self.checkpoint().await?;
            self.check_spare_room(level.drives())?;
            self.make_spare_room(level.drives()).await?;
        }
        let _one_at_a_time = self.shared.lock_changes().await;
        self.shared.check_runs()?;
        self.check_spare_room(level.drives())?;
        let sparing = Sparing::whole(level);
        if self.sparing() != sparing {
            self.store_sparing(sparing).await?;
        }
        Ok(())
    }

    /// Keeps the room of lost drives again, as far as there is enough: after a drive was added. The caller holds
    /// the lock.
    pub(super) async fn restore_sparing(&self) -> Result<()> {
        while self.sparing().is_spent() {
            let more = self.sparing().with_one_more();
            let staying = self.shared.drives.staying_members();
            let is_free = self.shared.lacking_reserve(&staying, &[], more.kept_drives) == 0;
            if !is_free || self.check_spare_room(more.kept_drives).is_err() {
                break;
            }
            self.store_sparing(more).await?;
            sometimes::reached(Sometimes::SpareRoomRestored);
        }
        Ok(())
    }

    async fn store_sparing(&self, sparing: Sparing) -> Result<()> {
        let change = |superblock: &mut crate::format::Superblock| {
            // A drive that is lost by the same generation has taken its room already.
            let lost =
                usize::from(self.sparing().kept_drives.saturating_sub(superblock.sparing().kept_drives));
            superblock.features = superblock.features.with_sparing(sparing.after_losses(lost));
        };
        self.shared.publish(change).await?;
        self.shared.note_shortage();
        Ok(())
    }

    /// Fails if drives or room are too few for the data without the `spared` largest drives.
    fn check_spare_room(&self, spared: u8) -> Result<()> {
        let drives = &self.shared.drives;
        let staying = drives.staying_members();
        let needed = drives.copies().most() + usize::from(spared);
        if spared > 0 && staying.len() < needed {
            return Err(Error::TooFewToSpare { drives: staying.len(), needed });
        }
        match self.shared.lacking_room(&staying, &[], spared) {
            lacking_bytes if spared > 0 && lacking_bytes > 0 => Err(Error::TooFullToSpare { lacking_bytes }),
            _ => Ok(()),
        }
    }

    /// Cleans until the room of the `spared` largest drives is free. A part of the reserve may lack: as soon as the
    /// room is kept, cleaning makes that up before hosts write on.
    async fn make_spare_room(&self, spared: u8) -> Result<()> {
        let slot_bytes = u64::from(self.shared.drives.geometry().slot_bytes);
        loop {
            let staying = self.shared.drives.staying_members();
            let lacking_bytes = self.shared.lacking_reserve(&staying, &[], spared);
            if lacking_bytes <= self.space().reserve / 2 * slot_bytes {
                return Ok(());
            }
            if self.clean().await?.is_none() {
                return Err(Error::TooFullToSpare { lacking_bytes });
            }
            self.checkpoint().await?;
        }
    }
}
