//! The volumes of a set's storage groups, into whose places other databases come.

use super::{
    super::log_chain::{BackupGroup, ChainedLogs},
    one_database::only,
    replacements::{LeftReplacements, Replacements},
    volumes::{RestoredVolume, look_at_all, refuse_in_dr_group},
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
    /// Another change has not ended, a volume is in a DR group (what to do then is `dr_remedy`), or the backup does not say which
    /// groups there are.
    pub async fn look(
        chained: &ChainedLogs<'_>,
        replacements: &Replacements<'_>,
        dr_remedy: &str,
    ) -> Result<Self, Refusal> {
        let left = replacements.left().await?;
        if left.decided.is_empty() {
            // Before a database is read, or a mail server ended, for nothing.
            let volumes = look_at_all(chained.server, chained.points).await?;
            refuse_in_dr_group(chained.server, &volumes, dr_remedy).await?;
        }
        let groups = Box::pin(chained.groups()).await?;
        let volumes = volumes_of(chained, &groups).await?;
        Ok(Self { left, groups, volumes })
    }

    /// The volumes as they are once hosts have let go of them.
    ///
    /// # Errors
    ///
    /// A host uses one of them.
    pub async fn unused_volumes(&self, chained: &ChainedLogs<'_>) -> Result<Vec<RestoredVolume>, Refusal> {
        let volumes = volumes_of(chained, &self.groups).await?;
        refuse_used(&volumes)?;
        Ok(volumes)
    }

    /// Refuses volumes that a host uses.
    pub fn refuse_used(&self) -> Result<(), Refusal> {
        refuse_used(&self.volumes)
    }

    /// Those whose places other databases take.
    pub fn taken(&self) -> impl Iterator<Item = &RestoredVolume> {
        self.volumes.iter().filter(|volume| !volume.is_done)
    }

    /// Files of the groups' databases.
    pub fn databases(&self) -> Vec<&str> {
        self.groups.iter().flat_map(|group| &group.databases).map(|(_, name)| name.as_str()).collect()
    }
}

/// Of all points; those of no group count as done.
async fn volumes_of(
    chained: &ChainedLogs<'_>,
    groups: &[BackupGroup],
) -> Result<Vec<RestoredVolume>, Refusal> {
    let of_groups: BTreeSet<usize> = groups.iter().flat_map(BackupGroup::volumes).collect();
    Ok(only(look_at_all(chained.server, chained.points).await?, Some(&of_groups)))
}

fn refuse_used(volumes: &[RestoredVolume]) -> Result<(), Refusal> {
    match volumes.iter().find(|volume| !volume.is_done && !volume.users.is_empty()) {
        None => Ok(()),
        Some(used) => Err(Refusal::new(
            format!("{} is used by {}: nothing was changed", used.path(), used.users.join(", ")),
            "end the mail server, unmount and log out; ⟨hooks⟩ does it by the set's programs",
        )),
    }
}
