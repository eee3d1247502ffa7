//! Single databases of a backup put back among the others, which stay as they are, with the log that brings them up to the minute.
//!
//! Invariants:
//!
//! 1. It is done on clones of the live volumes: these are only read.
//! 2. The group's log is the live one. The generations that it lost since the backup come back into it, from later backups.

use super::{
    backup_groups::BackupGroup,
    chained_logs::{ChainedLogs, LogPlan},
    devices::{DirectoryAccess, open_directory},
    later_logs::{end_of_names, temporary_name},
    log_arguments::LogWish,
    proof::refusal,
};
use crate::protect::backup_exports::{BackupExports, delete_export};
use maildb::{DatabaseLocation, DatabasePlace, log::LogFolder, put_back};
use report::Refusal;
use std::{
    collections::{BTreeMap, btree_map::Entry},
    rc::Rc,
};
use world::Directory;

/// The folders of the volumes of a group, by their points.
type Folders = BTreeMap<usize, Rc<dyn Directory>>;

impl ChainedLogs<'_> {
    /// Puts the only databases that come back into clones of the live volumes of their groups, and recovers these. `volumes` has
    /// their paths, by their points.
    ///
    /// # Errors
    ///
    /// A clone cannot be written, the logs are no chain up to the end of the live log, or the group does not recover with the
    /// database. The clones are worth nothing then.
    pub async fn put_back(
        &self,
        plan: &mut LogPlan,
        volumes: &BTreeMap<usize, String>,
        wish: &LogWish,
    ) -> Result<(), Refusal> {
        let earlier = BackupExports::of("restore", self.base, self.points.to_vec());
        let end = end_of_names(self.world, self.base);
        let name = |point: usize| temporary_name(&self.points[point].volume, &format!("-w{point}"), &end);
        let putting = async {
            let uris = earlier.begin(self.world, self.server, self.place).await?;
            let named: Vec<(String, String)> = uris.into_iter().zip(earlier.snapshots()).collect();
            let LogPlan { groups, later, .. } = plan;
            for (group, summary) in groups.iter_mut() {
                let (mut from, mut into) = (Folders::new(), Folders::new());
                for index in group.volumes() {
                    let Entry::Vacant(free) = into.entry(index) else { continue };
                    let whole_set = |refusal: Refusal| {
                        Refusal::new(
                            refusal.problem().to_owned(),
                            "leave out ⟨database⟩: the whole set can be restored",
                        )
                    };
                    free.insert(self.writable((&name(index), &volumes[&index])).await.map_err(whole_set)?);
                    let (uri, snapshot) = &named[index];
                    let directory =
                        open_directory(self.world, (uri, snapshot), DirectoryAccess::Read).await?;
                    from.insert(index, directory);
                }
                let base =
                    LogFolder { directory: Rc::clone(&from[&group.log]), name: named[group.log].1.clone() };
                let live =
                    LogFolder { directory: Rc::clone(&into[&group.log]), name: volumes[&group.log].clone() };
                let joined = self.prove_one((group, &base), later, wish).await?;
                *summary = joined.summary().clone();
                self.console.say_progress(&format!("{} transactions behind the backup", summary.commits));
                joined.complete(&live).await.map_err(|error| refusal(group, &error))?;
                self.put_into(group, &from, &into).await?;
                Box::pin(self.recover(group, &into)).await.map_err(|refusal| {
                    let remedy = "name all that are lost, each with ⟨database⟩; or leave it out: the whole set can be restored";
                    Refusal::new(refusal.problem().to_owned(), remedy)
                })?;
            }
            Ok(())
        };
        let put = Box::pin(putting).await;
        let mut deleted = earlier.delete(self.server).await;
        for &point in volumes.keys() {
            deleted = deleted.and(delete_export(self.server, &name(point)).await);
        }
        put.and(deleted)
    }

    /// Puts the databases that come back into a group. Each takes its checkpoint along, and the log is replayed from the earliest.
    async fn put_into(&self, group: &BackupGroup, from: &Folders, into: &Folders) -> Result<(), Refusal> {
        for index in group.places_of(self.databases) {
            let (volume, file_name) = &group.databases[index];
            let place = |folders: &Folders| DatabasePlace {
                log: Rc::clone(&folders[&group.log]),
                database: DatabaseLocation {
                    directory: Rc::clone(&folders[volume]),
                    file_name: file_name.clone(),
                },
                index,
            };
            put_back(&group.config.base_name, &place(from), &place(into)).await.map_err(|error| {
                let remedy = "leave out ⟨database⟩: the whole set can be restored";
                Refusal::new(format!("{file_name} cannot be put back: {error}"), remedy)
            })?;
        }
        Ok(())
    }
}
