//! Volumes that are being imported. Only live volumes are.

use super::Catalogue;
use crate::format::{
    BranchNumber, RowKey, VolumeNumber,
    row::{ImportRow, VolumeState},
};
use std::rc::Rc;

impl Catalogue {
    /// The source of a volume that is being imported.
    pub fn import_of(&self, volume: VolumeNumber) -> Option<&ImportRow> {
        self.imports.get(&volume)
    }

    /// True if the head of a branch is that of a volume that is being imported: blocks without a version are those of its
    /// source.
    pub fn is_importing(&self, branch: BranchNumber) -> bool {
        self.branches.is_importing(branch)
    }

    pub(super) fn has_imports(&self) -> bool {
        !self.imports.is_empty()
    }

    /// Keeps a row, if its volume is live. Checkpoints are read in the order of tables: volumes come before.
    pub(super) fn put_import(&mut self, volume: VolumeNumber, row: ImportRow) {
        let owner = self.volumes.get(&volume).filter(|row| row.state == VolumeState::Live);
        if let Some(branch) = owner.map(|row| row.branch) {
            self.imports.insert(volume, row);
            Rc::make_mut(&mut self.branches).set_importing(branch, true);
        }
    }

    /// A volume was deleted, or its import has ended: nothing is imported any more.
    pub(super) fn end_import(&mut self, volume: VolumeNumber) {
        if self.imports.remove(&volume).is_some() {
            let branch = self.volumes.get(&volume).map(|row| row.branch);
            if let Some(branch) = branch {
                Rc::make_mut(&mut self.branches).set_importing(branch, false);
            }
            self.changed.insert(RowKey::of_import(volume));
        }
    }
}
