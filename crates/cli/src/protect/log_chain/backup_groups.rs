//! Storage groups of Spindle's engine on the volumes of a backup.

use crate::{
    console::Console,
    protect::backup_exports::in_names,
    verify::{arguments::VerifyArguments, brought_up::storage_groups},
};
use ::verify::running::{StorageGroupPlace, VerifyLevel};
use maildb::InstanceConfig;
use report::Refusal;
use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};
use world::World;

/// A storage group; volumes are places among those of the backup.
#[derive(Clone, Debug)]
pub struct BackupGroup {
    pub log: usize,
    /// Its databases in their order: the volume, and the name of the file.
    pub databases: Vec<(usize, String)>,
    pub config: InstanceConfig,
}

/// The storage groups of a backup, and the reasons why others cannot be brought forward.
#[derive(Debug, Default)]
pub(super) struct BackupGroups {
    pub groups: Vec<BackupGroup>,
    pub problems: Vec<String>,
}

impl BackupGroups {
    /// Looks at the volumes; each is a URI, with its name for people.
    ///
    /// # Errors
    ///
    /// They cannot be read.
    pub async fn find(world: &World, named: &[(String, String)], console: &Console) -> Result<Self, Refusal> {
        let in_names = |text: &str| in_names(named, text);
        let paths = named.iter().map(|(uri, _)| PathBuf::from(uri)).collect();
        let arguments = VerifyArguments::of(paths, VerifyLevel::Chain);
        let found = storage_groups(world, &arguments, console).await;
        let found =
            found.map_err(|refusal| Refusal::new(in_names(refusal.problem()), in_names(refusal.remedy())))?;
        let problems = found.problems.iter().map(|problem| in_names(problem)).collect();
        let groups = found.groups.into_iter().map(|group| BackupGroup::of(group, named)).collect();
        Ok(Self { groups, problems })
    }
}

impl BackupGroup {
    fn of(place: StorageGroupPlace, named: &[(String, String)]) -> Self {
        let index = |folder: &Path| {
            let found = named.iter().position(|(uri, _)| Path::new(uri) == folder);
            found.expect("files were looked for on these volumes alone")
        };
        Self {
            log: index(&place.log),
            databases: place.databases.iter().map(|(folder, name)| (index(folder), name.clone())).collect(),
            config: place.config,
        }
    }

    /// The volumes with its files.
    pub fn volumes(&self) -> impl Iterator<Item = usize> {
        self.databases.iter().map(|(volume, _)| *volume).chain([self.log])
    }

    /// The place of a database among its own, by the name of the file, with or without `.edb`.
    pub fn place_of(&self, name: &str) -> Option<usize> {
        let is_meant = |file: &str| file == name || file.strip_suffix(".edb") == Some(name);
        self.databases.iter().position(|(_, file)| is_meant(file))
    }

    /// The places of those of some databases that are its own, ascending, each once.
    pub fn places_of(&self, names: &[String]) -> BTreeSet<usize> {
        names.iter().filter_map(|name| self.place_of(name)).collect()
    }

    /// `priv1.edb and priv2.edb`.
    pub fn names(&self) -> String {
        self.databases.iter().map(|(_, name)| name.as_str()).collect::<Vec<_>>().join(" and ")
    }
}
