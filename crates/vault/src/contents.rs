//! Reading copies: which there are, and the chunks of their volumes.

use crate::{
    VaultError, VaultResult,
    blob_id::BlobId,
    packs::BlobKind,
    record::{BackupRecord, RECORD_NAME, SPINDLE_TAG, VolumeRecord},
    repository::Repository,
    snapshots::VaultSnapshot,
    trees::{FileNode, FileTree},
};

/// A backup in a vault.
#[derive(Clone, Debug)]
pub struct CopiedBackup {
    /// Name of the snapshot file.
    pub id: BlobId,
    pub snapshot: VaultSnapshot,
    pub record: BackupRecord,
}

/// All backups that Spindle copied here, by catalogue, number and time of the copy.
///
/// # Errors
///
/// A snapshot, or the record in one, is missing or damaged.
pub async fn copied_backups(repository: &Repository) -> VaultResult<Vec<CopiedBackup>> {
    let mut backups = Vec::new();
    for (id, snapshot) in repository.snapshots().await? {
        if snapshot.has_tag(SPINDLE_TAG) {
            let record = read_record(repository, &snapshot).await?;
            backups.push(CopiedBackup { id, snapshot, record });
        }
    }
    backups.sort_by(|a, b| {
        let key =
            |one: &CopiedBackup| (one.record.catalogue.clone(), one.record.backup, one.snapshot.time.clone());
        key(a).cmp(&key(b))
    });
    Ok(backups)
}

/// The record in a snapshot.
///
/// # Errors
///
/// It has none, or that is missing or damaged.
pub async fn read_record(repository: &Repository, snapshot: &VaultSnapshot) -> VaultResult<BackupRecord> {
    let damaged = |why| VaultError::damaged("a snapshot", why);
    let root = repository.read_tree(snapshot.tree).await?;
    let [set] = &root.nodes[..] else { return Err(damaged("it is not of one set")) };
    let set = set.subtree.ok_or_else(|| damaged("it is not of one set"))?;
    let set = repository.read_tree(set).await?;
    let file = set.node(RECORD_NAME).ok_or_else(|| damaged("it has no record of its backup"))?;
    let mut text = Vec::new();
    for id in file.content.iter().flatten() {
        text.extend(repository.read_blob(BlobKind::Data, *id).await?);
    }
    BackupRecord::decode(&text)
}

/// The volume of a copy.
#[derive(Clone, Debug)]
pub struct CopiedVolume {
    pub record: VolumeRecord,
    /// Trees of its folders.
    pub folders: Vec<BlobId>,
}

impl CopiedVolume {
    /// # Errors
    ///
    /// Trees are missing or damaged.
    pub async fn open(
        repository: &Repository,
        backup: &CopiedBackup,
        record: &VolumeRecord,
    ) -> VaultResult<Self> {
        let mut tree = repository.read_tree(backup.snapshot.tree).await?;
        for name in [&backup.record.set, &record.pool, &record.volume] {
            tree = repository.read_tree(tree.subtree(name)?).await?;
        }
        let (layout, size) = (record.layout, record.size_bytes);
        let folders = (0..layout.folders(size)).map(|folder| tree.subtree(&layout.folder_name(folder)));
        Ok(Self { record: record.clone(), folders: folders.collect::<VaultResult<_>>()? })
    }

    /// The chunks of one folder.
    ///
    /// # Errors
    ///
    /// Its tree is missing or damaged.
    pub async fn chunks(&self, repository: &Repository, folder: u64) -> VaultResult<Vec<BlobId>> {
        let tree = repository.read_tree(self.folders[folder as usize]).await?;
        let range = self.record.layout.folder_range(folder, self.record.size_bytes);
        let mut chunks = Vec::with_capacity(self.record.layout.chunks(range.end - range.start));
        for (name, bytes) in self.record.layout.slices(range.end - range.start) {
            let content = tree.node(&name).and_then(|node| node.content.as_ref());
            let content = content.filter(|content| content.len() == self.record.layout.chunks(bytes));
            let missing =
                || VaultError::damaged("a tree", format!("its file {name} is not as long as it should be"));
            chunks.extend_from_slice(content.ok_or_else(missing)?);
        }
        Ok(chunks)
    }
}

/// The tree of a folder with so many bytes, from its chunks.
pub fn folder_tree(record: &VolumeRecord, bytes: u64, chunks: &[BlobId]) -> FileTree {
    let mut rest = chunks;
    let mut nodes = Vec::new();
    for (name, bytes) in record.layout.slices(bytes) {
        let (content, others) = rest.split_at(record.layout.chunks(bytes));
        nodes.push(FileNode::file(name, crate::trees::NO_TIME, bytes, content.to_vec()));
        rest = others;
    }
    FileTree::of(nodes)
}
