//! Old lines of the catalogue, summed up when it pays.

use super::SetKeeper;
use crate::catalogue::{CatalogueDetail, CatalogueFileError, CompactionResult, MachineTime};
use report::calendar::utc_time;
use std::time::Duration;
use world::units::ByteCount;

/// Time after an attempt, whatever became of it.
const AGAIN_AFTER: Duration = Duration::from_secs(24 * 3_600);

impl SetKeeper {
    /// Keeps lines of the catalogue as they are for another time than usual.
    pub fn set_detail(&mut self, detail: CatalogueDetail) {
        self.detail = detail;
    }

    /// Sums up old lines of the catalogue, if it pays.
    pub(super) async fn sum_up(&mut self) -> Result<(), CatalogueFileError> {
        if self.world.now() < self.sum_up_from {
            return Ok(());
        }
        let now = MachineTime::of(&self.world);
        let Some(horizon) = self.file.compaction_due(&self.detail, &now) else { return Ok(()) };
        self.sum_up_from = self.world.now() + AGAIN_AFTER.min(Duration::from_secs(self.detail.kept_s));
        match self.file.compact(&self.world, horizon).await {
            Ok(CompactionResult { bytes_before, bytes, until }) => self.said.note(format!(
                "records before {} are summed up, a line a day: the catalogue has {} instead of {}",
                utc_time(until.0),
                ByteCount(bytes),
                ByteCount(bytes_before)
            )),
            Err(source) if self.file.is_broken() => {
                return Err(CatalogueFileError::Compaction { file: self.settings.name.clone(), source });
            }
            Err(error) => self.said.warn(format!(
                "old records of the catalogue are not summed up, which is tried again in a day: {error}"
            )),
        }
        Ok(())
    }
}
