//! Pools that belong to the same group or snapshot as another one: their folders, by UUID.

use super::record::{PoolRecord, is_pool};
use array::format::PoolId;
use std::{
    cell::OnceCell,
    collections::BTreeMap,
    path::{Path, PathBuf},
};
use world::real::host_files;

/// The folders of pools, which are looked for when the first is asked for.
#[derive(Clone, Debug)]
pub struct Partners {
    folder: PathBuf,
    named: Vec<PathBuf>,
    found: OnceCell<BTreeMap<PoolId, PathBuf>>,
}

impl Partners {
    /// The pools named, and those whose folders lie beside this one.
    pub fn near(folder: &Path, named: &[PathBuf]) -> Self {
        Self { folder: folder.to_owned(), named: named.to_owned(), found: OnceCell::new() }
    }

    pub fn folder_of(&self, pool: PoolId) -> Option<&Path> {
        self.found.get_or_init(|| self.search()).get(&pool).map(PathBuf::as_path)
    }

    /// The folder, or the UUID.
    pub fn name_of(&self, pool: PoolId) -> String {
        self.folder_of(pool).map_or_else(|| format!("pool {pool}"), |folder| folder.display().to_string())
    }

    /// Folders that cannot be read are left out.
    fn search(&self) -> BTreeMap<PoolId, PathBuf> {
        // The folder's own name may be a link, or `.`.
        let parent = match self.folder.parent() {
            Some(parent) if parent.as_os_str().is_empty() => PathBuf::from("."),
            Some(parent) => parent.to_owned(),
            None => self.folder.join(".."),
        };
        let beside = host_files::list(&parent)
            .unwrap_or_default()
            .into_iter()
            .map(|name| if parent == Path::new(".") { PathBuf::from(name) } else { parent.join(name) });
        let mut folders = BTreeMap::new();
        for candidate in self.named.iter().cloned().chain(beside).filter(|candidate| is_pool(candidate)) {
            if let Some(pool) = PoolRecord::read(&candidate).ok().and_then(|record| record.pool) {
                folders.entry(pool).or_insert(candidate);
            }
        }
        folders
    }
}
