//! Snapshot files: the root of a tree, and what people and programs look for it by.

use crate::{VaultError, VaultResult, blob_id::BlobId};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VaultSnapshot {
    pub time: String,
    /// The snapshot that it was made from by the difference.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<BlobId>,
    pub tree: BlobId,
    /// Restic groups snapshots by host and paths.
    pub paths: Vec<String>,
    #[serde(default)]
    pub hostname: String,
    #[serde(default)]
    pub username: String,
    #[serde(default)]
    pub uid: u32,
    #[serde(default)]
    pub gid: u32,
    #[serde(default)]
    pub tags: Option<Vec<String>>,
}

impl VaultSnapshot {
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("plain fields")
    }

    /// # Errors
    ///
    /// It is no snapshot.
    pub fn decode(bytes: &[u8]) -> VaultResult<Self> {
        serde_json::from_slice(bytes).map_err(|error| VaultError::damaged("a snapshot", error.to_string()))
    }

    pub fn has_tag(&self, tag: &str) -> bool {
        self.tags.iter().flatten().any(|known| known == tag)
    }
}
