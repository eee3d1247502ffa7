//! The volumes of a set's storage groups, into whose places other databases come.

use super::{
    super::log_chain::{BackupGroup, ChainedLogs},
    one_database::only,
    replacements::{LeftReplacements, Replacements},
    volumes::{RestoredVolume, look_at_all},
};
use report::Refusal;
use std::collections::BTreeSet;

pub(super) struct GroupPlaces {
    /// The clones that the same change has left.
    pub left: LeftReplacements,
    pub groups: Vec<BackupGroup>,
    /// Of all points; those of no group count as done.
    pub volumes: Vec<RestoredVolume>,
}

impl GroupPlaces {
    /// The places as they are now.
    ///
    /// # Errors
    ///
    /// Another change has not ended, the backup does not say which groups there are, or a host uses one of their volumes.
    pub async fn look(chained: &ChainedLogs<'_>, replacements: &Replacements<'_>) -> Result<Self, Refusal> {
        let left = replacements.left().await?;
        let groups = Box::pin(chained.groups()).await?;
        let of_groups: BTreeSet<usize> = groups.iter().flat_map(BackupGroup::volumes).collect();
        let volumes = only(look_at_all(chained.server, chained.points).await?, Some(&of_groups));
        refuse_used(&volumes)?;
        Ok(Self { left, groups, volumes })
    }
}

fn refuse_used(volumes: &[RestoredVolume]) -> Result<(), Refusal> {
    match volumes.iter().find(|volume| !volume.is_done && !volume.users.is_empty()) {
        None => Ok(()),
        Some(used) => Err(Refusal::new(
            format!("{} is used by {}: nothing was changed", used.path(), used.users.join(", ")),
            "end the mail server, unmount and log out",
        )),
    }
}
