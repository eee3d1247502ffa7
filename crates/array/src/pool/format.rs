//! The format level of a pool, and its upgrade.

use super::Pool;
use crate::{
    engine::events::EventKind,
    error::Result,
    format::{Features, FormatLevel},
};

impl Pool {
    /// The format level: it stays until [`Self::upgrade`], whatever program opens the pool.
    pub fn format_level(&self) -> FormatLevel {
        self.shared.superblock.borrow().features.level()
    }

    /// Raises the format level to that of new pools. Returns when every superblock says so. Programs from before the levels
    /// between can then open the pool only while it does not use what these bring. Does nothing if there is none to raise.
    ///
    /// # Errors
    ///
    /// The pool has stopped: it has the level of before, or the new one.
    pub async fn upgrade(&self) -> Result<FormatLevel> {
        let _one_at_a_time = self.shared.changing.lock().await;
        self.shared.check_runs()?;
        let from = self.format_level();
        if from >= FormatLevel::NEWEST {
            return Ok(from);
        }
        // The rows of the trees have by now what their feature promises: opening has assumed what they lacked.
        self.checkpoint().await?;
        let raise = |features: Features| features.raised_to(FormatLevel::NEWEST);
        self.shared.publish(|superblock| superblock.features = raise(superblock.features)).await?;
        self.shared.events.report(EventKind::FormatRaised { from, to: FormatLevel::NEWEST });
        Ok(FormatLevel::NEWEST)
    }
}
