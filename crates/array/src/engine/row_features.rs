//! The features of rows that older programs misread: set before the log, or the member table, has the first
//! such row, and cleared by the first checkpoint without any.
//!
//! Invariant: the superblock has a feature while a row in the catalogue's tree, in a record that a replay
//! reads, or in the member table, needs it.

use super::Shared;
use crate::{
    error::{Error, Result},
    format::{
        FormatLevel, MemberState, Superblock,
        features::{
            INCOMPATIBLE_BRANCHES, INCOMPATIBLE_CUTS, INCOMPATIBLE_FILLING, INCOMPATIBLE_GROUPS,
            INCOMPATIBLE_IMPORTS, INCOMPATIBLE_LEAVING, INCOMPATIBLE_NOTES, INCOMPATIBLE_REPLICAS,
            INCOMPATIBLE_REPLICATION, INCOMPATIBLE_SHARED_GROUPS, INCOMPATIBLE_SITE,
            INCOMPATIBLE_WITHHOLDING,
        },
    },
};
use std::{cell::RefCell, rc::Rc};

/// The features that come and go with rows.
pub(crate) const ROW_FEATURES: u64 = INCOMPATIBLE_BRANCHES
    | INCOMPATIBLE_FILLING
    | INCOMPATIBLE_GROUPS
    | INCOMPATIBLE_LEAVING
    | INCOMPATIBLE_NOTES
    | INCOMPATIBLE_CUTS
    | INCOMPATIBLE_SHARED_GROUPS
    | INCOMPATIBLE_WITHHOLDING
    | INCOMPATIBLE_SITE
    | INCOMPATIBLE_REPLICAS
    | INCOMPATIBLE_REPLICATION
    | INCOMPATIBLE_IMPORTS;

/// The features of the verbs under way, one entry a verb.
pub(crate) type FeaturesUnderWay = Rc<RefCell<Vec<u64>>>;

/// A verb whose record needs features: no checkpoint clears them until this is dropped.
pub(crate) struct FeatureUse {
    all: FeaturesUnderWay,
    features: u64,
}

impl Drop for FeatureUse {
    fn drop(&mut self) {
        let mut all = self.all.borrow_mut();
        let index = all.iter().position(|&features| features == self.features);
        all.swap_remove(index.expect("it was put there"));
    }
}

impl Shared {
    /// Sets incompatible features, those that are not set yet. The answer is to be kept until the record is
    /// applied.
    ///
    /// # Errors
    ///
    /// The pool's format level does not have them, or the superblock cannot be written; the pool has stopped then.
    pub async fn begin_rows(&self, features: u64) -> Result<FeatureUse> {
        assert_eq!(features & !ROW_FEATURES, 0, "others stay");
        let (level, needed) = (self.superblock.borrow().features.level(), FormatLevel::of_new(features));
        if level < needed {
            return Err(Error::FormatTooOld { level, needed });
        }
        self.features_under_way.borrow_mut().push(features);
        let begun = FeatureUse { all: Rc::clone(&self.features_under_way), features };
        // A checkpoint whose superblock is being written may not know of this verb, and clear them.
        let _one_at_a_time = self.publishing.lock().await;
        if self.superblock.borrow().features.incompatible & features != features {
            self.publish_alone(None, |superblock| superblock.features.incompatible |= features).await?;
        }
        Ok(begun)
    }

    /// The features of rows that the log and the member table of `superblock` have, or are about to get.
    pub fn row_features_needed(&self, superblock: &Superblock) -> u64 {
        let under_way = self.features_under_way.borrow().iter().fold(0, |all, features| all | features);
        let leaves = superblock.members.iter().any(|member| member.state == MemberState::Leaving);
        let of_members = if leaves { INCOMPATIBLE_LEAVING } else { 0 };
        under_way | of_members | self.state.borrow().catalogue.features_needed()
    }
}
