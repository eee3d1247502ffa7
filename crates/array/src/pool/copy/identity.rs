//! Identities of copies, derived from what is copied and where to.

use super::Pool;
use crate::format::{SnapshotId, VolumeId, row::IdSeed};

impl Pool {
    /// The identity of a copy under a name, and under another one until it is complete: the same each time, unless a
    /// complete volume has it, as an earlier copy that was renamed since.
    pub(super) fn identity_of_copy(
        &self,
        (volume, snapshot): (VolumeId, SnapshotId),
        name: &str,
        incomplete: &str,
    ) -> VolumeId {
        let volumes = self.volumes();
        let is_taken = |id| volumes.iter().any(|info| info.volume == id && info.name != incomplete);
        let mut id = IdSeed(snapshot.0).volume_of(volume);
        id = IdSeed(id.0).volume_of(VolumeId(self.id().0));
        for chunk in name.as_bytes().chunks(16) {
            let mut bytes = [0; 16];
            bytes[..chunk.len()].copy_from_slice(chunk);
            id = IdSeed(id.0).volume_of(VolumeId(bytes));
        }
        while is_taken(id) {
            id = IdSeed(id.0).volume_of(volume);
        }
        id
    }
}
