//! The feature *branches*: set before the log has the first record with a row that older programs misread,
//! and cleared by the first checkpoint without such rows.
//!
//! Invariant: the superblock has the feature while a row in the catalogue's tree, or in a record that a
//! replay reads, needs it.

use super::Shared;
use crate::{error::Result, format::features::INCOMPATIBLE_BRANCHES};
use std::{cell::Cell, rc::Rc};

/// A verb whose record needs the feature: no checkpoint clears it until this is dropped.
pub(crate) struct ForkUnderWay(Rc<Cell<u32>>);

impl Drop for ForkUnderWay {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

impl Shared {
    /// Sets the feature, if it is not set yet. The answer is to be kept until the record is applied.
    ///
    /// # Errors
    ///
    /// The superblock cannot be written; the pool has stopped.
    pub async fn begin_fork(&self) -> Result<ForkUnderWay> {
        self.forks_under_way.set(self.forks_under_way.get() + 1);
        let fork = ForkUnderWay(Rc::clone(&self.forks_under_way));
        if self.superblock.borrow().features.incompatible & INCOMPATIBLE_BRANCHES == 0 {
            self.publish(|superblock| superblock.features.incompatible |= INCOMPATIBLE_BRANCHES).await?;
        }
        Ok(fork)
    }

    /// True if the log has, or is about to get, a record that needs the feature.
    pub fn needs_branches_feature(&self) -> bool {
        self.forks_under_way.get() > 0 || self.state.borrow().catalogue.needs_branches_feature()
    }
}
