//! Storage groups of a backup made again with empty databases, on clones.

use super::{
    backup_groups::{BackupGroup, BackupGroups},
    chained_logs::ChainedLogs,
    later_logs::{end_of_names, temporary_name},
};
use crate::protect::{
    backup_exports::{BackupExports, delete_export},
    mailboxes::{MailDatabases, NamedDatabase},
};
use maildb::{DatabaseLocation, Instance, log::LogNames, stamps};
use report::Refusal;
use std::{
    collections::{BTreeMap, btree_map::Entry},
    rc::Rc,
};
use workload::database::load::dial_tone::begin_dial_tone;
use world::{Directory, IoErrorKind};

impl ChainedLogs<'_> {
    /// The storage groups of the backup.
    ///
    /// # Errors
    ///
    /// It has none, or cannot be read.
    pub async fn groups(&self) -> Result<Vec<BackupGroup>, Refusal> {
        let exports = BackupExports::of("restore", self.base, self.points.to_vec());
        let finding = async {
            let uris = exports.begin(self.world, self.server, self.place).await?;
            let named: Vec<(String, String)> = uris.into_iter().zip(exports.snapshots()).collect();
            BackupGroups::find(self.world, &named, self.console).await
        };
        let found = Box::pin(finding).await;
        exports.delete(self.server).await?;
        let BackupGroups { groups, problems } = found?;
        match groups.is_empty() || !problems.is_empty() {
            false => Ok(groups),
            true => Err(Refusal::new(
                format!(
                    "{} does not say which databases there were: {}",
                    self.base.name,
                    problems.join("; ")
                ),
                "choose another backup",
            )),
        }
    }

    /// Empties the storage groups on clones of the backup's volumes: databases of the same names, page size, tables and labels, and
    /// a new log. `volumes` has the paths of the clones by their points, `lost` the databases of the backup.
    ///
    /// # Errors
    ///
    /// A clone cannot be written. The clones are worth nothing then.
    pub async fn make_empty(
        &self,
        (groups, lost): (&[BackupGroup], &MailDatabases),
        volumes: &BTreeMap<usize, String>,
    ) -> Result<(), Refusal> {
        self.on_clones(groups, volumes, async |folders| {
            for group in groups {
                Box::pin(self.empty_group(group, folders, lost)).await?;
            }
            Ok(())
        })
        .await
    }

    /// Opens the folders of groups on clones, which have these paths by their points, and lets `work` write them.
    pub(super) async fn on_clones<T>(
        &self,
        groups: &[BackupGroup],
        volumes: &BTreeMap<usize, String>,
        work: impl AsyncFnOnce(&BTreeMap<usize, Rc<dyn Directory>>) -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        let end = end_of_names(self.world, self.base);
        let name = |point: usize| temporary_name(&self.points[point].volume, &format!("-w{point}"), &end);
        let working = async {
            let mut folders = BTreeMap::new();
            for index in groups.iter().flat_map(BackupGroup::volumes) {
                if let Entry::Vacant(free) = folders.entry(index) {
                    free.insert(self.writable((&name(index), &volumes[&index])).await?);
                }
            }
            Box::pin(work(&folders)).await
        };
        let done = Box::pin(working).await;
        let mut deleted = Ok(());
        for &point in volumes.keys() {
            deleted = deleted.and(delete_export(self.server, &name(point)).await);
        }
        let done = done?;
        deleted.map(|()| done)
    }

    async fn empty_group(
        &self,
        group: &BackupGroup,
        folders: &BTreeMap<usize, Rc<dyn Directory>>,
        lost: &MailDatabases,
    ) -> Result<(), Refusal> {
        let refused = |problem: String| Refusal::new(format!("{}: {problem}", group.names()), "");
        let log = &folders[&group.log];
        let emptying = async {
            let base_name = &group.config.base_name;
            let names = LogNames::new(base_name);
            let journal = format!("{base_name}.fj");
            let is_of_log =
                |name: &str| names.parse(name).is_some() || name == names.checkpoint() || name == journal;
            for entry in log.list().await? {
                if is_of_log(&entry.name) {
                    log.remove(&entry.name).await?;
                }
            }
            log.sync().await?;
            for (volume, file_name) in &group.databases {
                for name in [file_name.clone(), stamps::file_name(file_name)] {
                    match folders[volume].remove(&name).await {
                        Err(error) if error.kind() != IoErrorKind::NotFound => return Err(error),
                        _ => {}
                    }
                }
                folders[volume].sync().await?;
            }
            Ok(())
        };
        emptying.await.map_err(|error| refused(error.to_string()))?;
        let location = |(index, file_name): &(usize, String)| DatabaseLocation {
            directory: Rc::clone(&folders[index]),
            file_name: file_name.clone(),
        };
        let locations = group.databases.iter().map(location).collect();
        let instance = Instance::open(self.world, Rc::clone(log), locations, group.config.clone()).await;
        let instance = instance.map_err(|error| refused(error.to_string()))?;
        let now_s = self.world.wall().seconds;
        let mut session = instance.session();
        for (empty, (volume, file_name)) in instance.databases().iter().zip(&group.databases) {
            let point = &self.points[*volume];
            let snapshot = format!("{}/{}@{}", point.pool, point.volume, point.name);
            let is_lost = |one: &&NamedDatabase| one.name == *file_name && one.point == snapshot;
            let known = lost.databases.iter().find(is_lost);
            let known =
                known.ok_or_else(|| refused(format!("{file_name} of the backup has no mail table")))?;
            let begun = begin_dial_tone(known.reader.database(), (empty, &mut session), now_s).await;
            begun.map_err(|error| refused(error.to_string()))?;
        }
        drop(session);
        instance.close().await.map_err(|error| refused(error.to_string()))
    }
}
