//! Pools that belong to the same group or snapshot as another one: their folders, by UUID.

use super::record::{PoolRecord, is_pool};
use array::format::PoolId;
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};
use world::real::host_files;

/// The folders of pools.
#[derive(Clone, Debug, Default)]
pub struct Partners(BTreeMap<PoolId, PathBuf>);

impl Partners {
    /// The pools named, and those whose folders lie beside this one. Folders that cannot be read are left out.
    pub fn near(folder: &Path, named: &[PathBuf]) -> Self {
        // The folder's own name may be a link, or `.`.
        let parent = match folder.parent() {
            Some(parent) if parent.as_os_str().is_empty() => PathBuf::from("."),
            Some(parent) => parent.to_owned(),
            None => folder.join(".."),
        };
        let beside = host_files::list(&parent)
            .unwrap_or_default()
            .into_iter()
            .map(|name| if parent == Path::new(".") { PathBuf::from(name) } else { parent.join(name) });
        let mut folders = BTreeMap::new();
        for candidate in named.iter().cloned().chain(beside).filter(|candidate| is_pool(candidate)) {
            if let Some(pool) = PoolRecord::read(&candidate).ok().and_then(|record| record.pool) {
                folders.entry(pool).or_insert(candidate);
            }
        }
        Self(folders)
    }

    pub fn folder_of(&self, pool: PoolId) -> Option<&Path> {
        self.0.get(&pool).map(PathBuf::as_path)
    }

    /// The folder, or the UUID.
    pub fn name_of(&self, pool: PoolId) -> String {
        self.folder_of(pool).map_or_else(|| format!("pool {pool}"), |folder| folder.display().to_string())
    }
}
