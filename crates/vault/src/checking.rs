//! Checking a vault: everything that snapshots refer to is there, and on request what it says.

use crate::{
    VaultError, VaultResult,
    blob_id::BlobId,
    contents::read_record,
    index::{self, IndexedPack},
    locks::VaultLock,
    packs::{BlobKind, pack_bytes},
    record::{BackupRecord, SPINDLE_TAG},
    repository::Repository,
    snapshots::VaultSnapshot,
    store::VaultFileKind,
    trees::{FileNode, NodeKind},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};
use world::{BoxedFuture, Job};

/// The result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VaultCheck {
    pub snapshots: usize,
    pub packs: usize,
    pub blobs: usize,
    /// Bytes of packs that were read.
    pub read_bytes: u64,
    /// Packs of copies that ended early: no snapshot uses them.
    pub unindexed_packs: usize,
    /// Damage, in words: first what is wrong with files of the vault, then what that means for volumes.
    pub findings: Vec<String>,
}

type BlobKey = (BlobKind, BlobId);

struct Checker<'c> {
    repository: &'c Rc<Repository>,
    lock: Option<&'c VaultLock>,
    check: VaultCheck,
    /// Blobs there are, with their plain lengths.
    known: BTreeMap<BlobKey, u32>,
    damaged: BTreeMap<BlobKey, String>,
    /// Trees with all below them in which nothing is wrong.
    sound_trees: BTreeSet<BlobId>,
}

/// Checks a vault; with `reads_data`, reads all packs. `job` counts the bytes of packs, and `lock` is kept meanwhile.
///
/// # Errors
///
/// The store does not answer. Damage is no error.
pub async fn check(
    repository: &Rc<Repository>,
    reads_data: bool,
    lock: Option<&VaultLock>,
    job: &Job,
) -> VaultResult<VaultCheck> {
    let mut checker = Checker {
        repository,
        lock,
        check: VaultCheck::default(),
        known: BTreeMap::new(),
        damaged: BTreeMap::new(),
        sound_trees: BTreeSet::new(),
    };
    checker.packs(reads_data, job).await?;
    checker.snapshots().await?;
    Ok(checker.check)
}

/// Damage stays in the check; that the store does not answer ends it.
fn as_finding(error: VaultError) -> VaultResult<String> {
    match &error {
        VaultError::Damaged { .. } | VaultError::Missing(_) | VaultError::OtherVersion(_) => {
            Ok(error.to_string())
        }
        VaultError::Io(io) if is_of_one_file(io.kind()) => Ok(error.to_string()),
        _ => Err(error),
    }
}

fn is_of_one_file(kind: world::IoErrorKind) -> bool {
    use world::IoErrorKind::{Damaged, Medium, NotFound, OutOfRange, WrongType};
    [Damaged, Medium, NotFound, OutOfRange, WrongType].contains(&kind)
}

impl Checker<'_> {
    fn found(&mut self, finding: String) {
        self.check.findings.push(finding);
    }

    async fn refresh_lock(&self) -> VaultResult<()> {
        match self.lock {
            Some(lock) => lock.refresh().await,
            None => Ok(()),
        }
    }

    async fn packs(&mut self, reads_data: bool, job: &Job) -> VaultResult<()> {
        let store = &self.repository.access.store;
        let mut packs: BTreeMap<BlobId, IndexedPack> = BTreeMap::new();
        for file in store.list(VaultFileKind::Index).await? {
            let read = self.repository.read_file(VaultFileKind::Index, &file.name).await;
            match read.and_then(|text| index::decode(&text)) {
                // Restic lists blobs in any order.
                Ok(read) => packs.extend(read.into_iter().map(|mut pack| {
                    pack.blobs.sort_by_key(|blob| blob.offset);
                    (pack.id, pack)
                })),
                Err(error) => {
                    let finding = as_finding(error)?;
                    self.found(finding);
                }
            }
        }
        let files = store.list(VaultFileKind::Pack).await?;
        let stored: BTreeMap<String, u64> = files.into_iter().map(|file| (file.name, file.bytes)).collect();
        self.check.unindexed_packs = stored.len();
        job.add_total(if reads_data { stored.values().sum() } else { 0 });
        for pack in packs.values() {
            let (name, expected) = (pack.id.short(), pack_bytes(&pack.blobs));
            let broken = match stored.get(&pack.id.to_string()) {
                None => Some(format!("pack {name} is missing")),
                Some(bytes) => {
                    self.check.unindexed_packs -= 1;
                    (*bytes != expected)
                        .then(|| format!("pack {name} has {bytes} bytes instead of {expected}"))
                }
            };
            let is_missing = broken.is_some();
            if let Some(broken) = broken {
                for blob in &pack.blobs {
                    self.damaged.insert((blob.kind, blob.id), broken.clone());
                }
                self.found(broken);
            }
            if reads_data && !is_missing {
                if job.is_cancelled() {
                    return Err(VaultError::Cancelled);
                }
                self.refresh_lock().await?;
                self.read_pack(pack).await?;
                job.advance(expected);
            }
            self.check.packs += 1;
            self.check.blobs += pack.blobs.len();
            self.known.extend(pack.blobs.iter().map(|blob| ((blob.kind, blob.id), blob.plain_bytes())));
        }
        Ok(())
    }

    async fn read_pack(&mut self, pack: &IndexedPack) -> VaultResult<()> {
        let name = pack.id.short();
        let checked = match self.repository.check_pack(pack.id).await {
            Ok(checked) => checked,
            Err(error) => {
                let finding = format!("pack {name}: {}", as_finding(error)?);
                for blob in &pack.blobs {
                    self.damaged.insert((blob.kind, blob.id), finding.clone());
                }
                self.found(finding);
                return Ok(());
            }
        };
        self.check.read_bytes += pack_bytes(&pack.blobs);
        match &checked.blobs {
            Ok(blobs) if *blobs == pack.blobs => {}
            Ok(_) => self.found(format!("pack {name}: its header and the index differ")),
            Err(error) => {
                // Blobs may be whole nevertheless; without the header, they are not known to be.
                self.found(format!("pack {name}: {error}"));
                for blob in &pack.blobs {
                    self.damaged.insert((blob.kind, blob.id), error.to_string());
                }
            }
        }
        if !checked.is_whole {
            self.found(format!("pack {name} is damaged: its SHA-256 is not its name"));
        }
        self.damaged.extend(checked.damaged);
        Ok(())
    }

    async fn snapshots(&mut self) -> VaultResult<()> {
        for file in self.repository.access.store.list(VaultFileKind::Snapshot).await? {
            self.check.snapshots += 1;
            let name = &file.name[..8];
            let read = self.repository.read_file(VaultFileKind::Snapshot, &file.name).await;
            let snapshot = match read.and_then(|text| VaultSnapshot::decode(&text)) {
                Ok(snapshot) => snapshot,
                Err(error) => {
                    let finding = format!("snapshot {name}: {}", as_finding(error)?);
                    self.found(finding);
                    continue;
                }
            };
            let record = match snapshot.has_tag(SPINDLE_TAG) {
                true => read_record(self.repository, &snapshot).await.ok(),
                false => None,
            };
            let names = PathNames::of(name, record);
            let mut findings = FindingRanges::default();
            self.tree(snapshot.tree, String::new(), &names, &mut findings).await?;
            findings.end(&mut self.check.findings);
        }
        Ok(())
    }

    /// True if nothing is wrong in it.
    fn tree<'t>(
        &'t mut self,
        id: BlobId,
        path: String,
        names: &'t PathNames,
        findings: &'t mut FindingRanges,
    ) -> BoxedFuture<'t, VaultResult<bool>> {
        Box::pin(async move {
            if self.sound_trees.contains(&id) {
                return Ok(true);
            }
            self.refresh_lock().await?;
            let tree = match self.repository.read_tree(id).await {
                Ok(tree) => tree,
                Err(error) => {
                    let finding = as_finding(error)?;
                    findings.whole(format!("{}: {finding}", names.folder(&path)));
                    return Ok(false);
                }
            };
            let mut is_sound = true;
            for node in &tree.nodes {
                let path = format!("{path}/{}", node.name);
                is_sound &= match (node.kind, node.subtree) {
                    (NodeKind::Dir, Some(subtree)) => self.tree(subtree, path, names, findings).await?,
                    (NodeKind::Dir, None) => {
                        findings.whole(format!("{}: its tree is not named", names.folder(&path)));
                        false
                    }
                    (NodeKind::File, _) => self.file(node, &path, names, findings),
                    (NodeKind::Other, _) => true,
                };
            }
            if is_sound {
                self.sound_trees.insert(id);
            }
            Ok(is_sound)
        })
    }

    fn file(&self, node: &FileNode, path: &str, names: &PathNames, findings: &mut FindingRanges) -> bool {
        let (mut at, mut is_sound) = (0, true);
        for id in node.content.iter().flatten() {
            let key = (BlobKind::Data, *id);
            let length = self.known.get(&key).copied().unwrap_or_default();
            let why = match self.damaged.get(&key) {
                Some(why) => Some(why.clone()),
                None if !self.known.contains_key(&key) => {
                    Some(format!("the vault lacks blob {}", id.short()))
                }
                None => None,
            };
            if let Some(why) = why {
                is_sound = false;
                findings.range(names.place(path, at), length.into(), &why);
            }
            at += u64::from(length);
        }
        if is_sound && at != node.size {
            is_sound = false;
            findings.whole(format!(
                "{}: its chunks have {at} bytes instead of {}",
                names.folder(path),
                node.size
            ));
        }
        is_sound
    }
}

/// Names of a snapshot's files in findings: by volume and offset, if it is of Spindle.
struct PathNames {
    snapshot: String,
    record: Option<BackupRecord>,
}

impl PathNames {
    fn of(snapshot: &str, record: Option<BackupRecord>) -> Self {
        Self { snapshot: snapshot.to_owned(), record }
    }

    fn folder(&self, path: &str) -> String {
        match &self.record {
            Some(record) => format!("backup {} of {}, {path}", record.backup, record.set),
            None => format!("snapshot {}, {path}", self.snapshot),
        }
    }

    /// The file or volume of a path, and the offset there.
    fn place(&self, path: &str, at: u64) -> (String, u64) {
        let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
        if let (Some(record), [_, pool, volume, folder, slice]) = (&self.record, &parts[..])
            && let (Ok(folder), Ok(slice)) = (u64::from_str_radix(folder, 16), u64::from_str_radix(slice, 16))
        {
            let place = format!("backup {} of {}, {pool}/{volume}", record.backup, record.set);
            return (place, folder + slice + at);
        }
        (self.folder(path), at)
    }
}

/// Damaged ranges of a snapshot: neighbours are one finding.
#[derive(Default)]
struct FindingRanges {
    findings: Vec<String>,
    open: Option<(String, u64, u64, String)>,
}

impl FindingRanges {
    fn whole(&mut self, finding: String) {
        self.close();
        self.findings.push(finding);
    }

    fn range(&mut self, (place, at): (String, u64), length: u64, why: &str) {
        match &mut self.open {
            Some((open, _, end, _)) if *open == place && *end == at => *end += length,
            _ => {
                self.close();
                self.open = Some((place, at, at + length, why.to_owned()));
            }
        }
    }

    fn close(&mut self) {
        if let Some((place, start, end, why)) = self.open.take() {
            self.findings.push(format!("{place}: bytes {start} to {end} are lost ({why})"));
        }
    }

    fn end(mut self, findings: &mut Vec<String>) {
        self.close();
        findings.append(&mut self.findings);
    }
}
