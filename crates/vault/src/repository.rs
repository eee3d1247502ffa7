//! An open vault: its key, its index, and its files, opened and checked.
//!
//! Invariant: a file is named by the SHA-256 of its bytes as stored, and one that is not is damaged.

use crate::{
    VaultError, VaultResult,
    blob_id::BlobId,
    blob_index::{BlobIndex, BlobPlace},
    compression,
    config::VaultConfig,
    index::{self, IndexedPack},
    keys::{KeyFile, Maker},
    packs::{BlobKind, blobs_of, decode_header, header_length},
    processors::Processors,
    sealing::{SealingKey, new_nonce},
    snapshots::VaultSnapshot,
    store::{VaultFile, VaultFileKind, VaultStore},
    trees::FileTree,
};
use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
    sync::Arc,
};
use world::{IoErrorKind, World};

/// Longest file that is no pack; an index of 50,000 blobs has 10 MB before compression.
const FILE_BYTES_MAX: u64 = 256 << 20;
/// First byte of a file whose plain bytes are compressed.
const IS_COMPRESSED: u8 = 2;
/// Key files that are tried.
const KEYS_MAX: usize = 64;

/// The means to open a vault, but for its password.
#[derive(Clone)]
pub struct VaultAccess {
    pub world: World,
    pub store: Rc<dyn VaultStore>,
    pub processors: Processors,
    pub maker: Maker,
    /// True if a process of this host is running.
    pub is_running: Rc<dyn Fn(u32) -> bool>,
    /// Bytes from which a pack is complete; [`crate::packs::PACK_BYTES`].
    pub pack_bytes: usize,
}

pub struct Repository {
    pub access: VaultAccess,
    pub config: VaultConfig,
    key: Arc<SealingKey>,
    pub(crate) index: RefCell<BlobIndex>,
}

/// Packs as the store and the index have them.
#[derive(Clone, Debug, Default)]
pub struct PackCensus {
    /// Packs there are, with their bytes.
    pub stored: BTreeMap<BlobId, u64>,
    /// Packs that the index has and the store has not.
    pub missing: BTreeSet<BlobId>,
    /// Packs that no index has: of a copy that ended early.
    pub unindexed: BTreeSet<BlobId>,
}

impl Repository {
    /// Makes a vault and opens it.
    ///
    /// # Errors
    ///
    /// There is one already, or it cannot be written.
    pub async fn make(access: &VaultAccess, password: &[u8]) -> VaultResult<Self> {
        let store = &access.store;
        match store.read(VaultFileKind::Config, "", FILE_BYTES_MAX).await {
            Ok(_) => return Err(VaultError::VaultExists(store.describe())),
            Err(error) if error.kind() == IoErrorKind::NotFound => {}
            Err(error) => return Err(error.into()),
        }
        store.prepare().await?;
        let key = SealingKey::draw(&access.world);
        let file = KeyFile::seal(&access.world, &access.maker, password, &key).encode();
        store.write(VaultFileKind::Key, &BlobId::of(&file).to_string(), file).await?;
        Self::make_with_key(access, key).await
    }

    /// Makes a vault without a key file, and opens it.
    ///
    /// # Errors
    ///
    /// It cannot be written.
    pub async fn make_with_key(access: &VaultAccess, key: SealingKey) -> VaultResult<Self> {
        let config = VaultConfig::draw(&access.world);
        let text = serde_json::to_vec(&config).expect("plain fields");
        let sealed = key.seal(&new_nonce(&access.world), &text);
        access.store.write(VaultFileKind::Config, "", sealed).await?;
        Ok(Self { access: access.clone(), config, key: Arc::new(key), index: RefCell::default() })
    }

    /// Opens a vault, with its index.
    ///
    /// # Errors
    ///
    /// There is none, the password is wrong, or files are damaged.
    pub async fn open(access: &VaultAccess, password: &[u8]) -> VaultResult<Self> {
        let config = read_config(access).await?;
        let key = find_key(access, password, &config).await?;
        Self::open_with_key(access, key).await
    }

    /// Opens a vault whose key is known.
    ///
    /// # Errors
    ///
    /// There is none, or files are damaged.
    pub async fn open_with_key(access: &VaultAccess, key: SealingKey) -> VaultResult<Self> {
        let config = read_config(access).await?;
        let plain = key.open(&config).ok_or_else(|| VaultError::damaged("config", "its MAC is wrong"))?;
        let config = VaultConfig::decode(&plain)?;
        let repository =
            Self { access: access.clone(), config, key: Arc::new(key), index: RefCell::default() };
        repository.load_index().await?;
        Ok(repository)
    }

    pub(crate) fn key(&self) -> &Arc<SealingKey> {
        &self.key
    }

    /// Reads all index files.
    ///
    /// # Errors
    ///
    /// One is damaged.
    pub async fn load_index(&self) -> VaultResult<()> {
        let mut packs = Vec::new();
        for file in self.access.store.list(VaultFileKind::Index).await? {
            packs.extend(index::decode(&self.read_file(VaultFileKind::Index, &file.name).await?)?);
        }
        *self.index.borrow_mut() = BlobIndex::of(packs);
        Ok(())
    }

    /// Compares the index with the packs there are.
    ///
    /// # Errors
    ///
    /// They cannot be listed.
    pub async fn census(&self) -> VaultResult<PackCensus> {
        let files = self.access.store.list(VaultFileKind::Pack).await?;
        let id = |file: VaultFile| BlobId::parse(&file.name).map(|id| (id, file.bytes));
        let stored: BTreeMap<BlobId, u64> = files.into_iter().filter_map(id).collect();
        let indexed: BTreeSet<BlobId> = self.index.borrow().packs().iter().copied().collect();
        let missing = indexed.iter().filter(|id| !stored.contains_key(id)).copied().collect();
        let unindexed = stored.keys().filter(|id| !indexed.contains(id)).copied().collect();
        Ok(PackCensus { stored, missing, unindexed })
    }

    /// Reads the header of a pack.
    ///
    /// # Errors
    ///
    /// It cannot be read, or is damaged.
    pub async fn pack_header(&self, pack: BlobId, bytes: u64) -> VaultResult<IndexedPack> {
        let name = pack.to_string();
        let read =
            |at: u64, length: usize| self.access.store.read_range(VaultFileKind::Pack, &name, (at, length));
        let damaged = |why| VaultError::damaged(format!("pack {}", pack.short()), why);
        let end = bytes.checked_sub(4).ok_or_else(|| damaged("it is too short"))?;
        let last: [u8; 4] = read(end, 4).await?.try_into().map_err(|_| damaged("it is too short"))?;
        let length = header_length(last, bytes)?;
        let sealed = read(end - length, length as usize).await?;
        let header = self.key.open(&sealed).ok_or_else(|| damaged("its header cannot be opened"))?;
        let (blobs, content) = decode_header(&header)?;
        match content == end - length {
            true => Ok(IndexedPack { id: pack, blobs }),
            false => Err(damaged("its header is of another pack")),
        }
    }

    /// Reads a whole pack and checks everything in it. Returns the plain bytes' problems by blob.
    ///
    /// # Errors
    ///
    /// It cannot be read.
    pub async fn check_pack(&self, pack: BlobId) -> VaultResult<CheckedPack> {
        let bytes =
            self.access.store.read(VaultFileKind::Pack, &pack.to_string(), u64::from(u32::MAX)).await?;
        let key = Arc::clone(&self.key);
        Ok(self.access.processors.run(move || CheckedPack::of(&key, pack, &bytes)).await)
    }

    /// The place of a blob.
    ///
    /// # Errors
    ///
    /// The index does not have it.
    pub fn place(&self, kind: BlobKind, id: BlobId) -> VaultResult<BlobPlace> {
        let what = if kind == BlobKind::Tree { "tree" } else { "data" };
        self.index.borrow().find(kind, id).ok_or_else(|| VaultError::Missing(format!("{what} blob {id}")))
    }

    /// # Errors
    ///
    /// It is missing or damaged.
    pub async fn read_blob(&self, kind: BlobKind, id: BlobId) -> VaultResult<Vec<u8>> {
        let BlobPlace { pack, blob } = self.place(kind, id)?;
        let range = (u64::from(blob.offset), blob.length as usize);
        let sealed = self.access.store.read_range(VaultFileKind::Pack, &pack.to_string(), range).await?;
        let key = Arc::clone(&self.key);
        self.access.processors.run(move || blob.open(&key, &sealed)).await
    }

    /// # Errors
    ///
    /// It is missing or damaged.
    pub async fn read_tree(&self, id: BlobId) -> VaultResult<FileTree> {
        FileTree::decode(&self.read_blob(BlobKind::Tree, id).await?)
    }

    /// Snapshots, by their names.
    ///
    /// # Errors
    ///
    /// One is damaged.
    pub async fn snapshots(&self) -> VaultResult<Vec<(BlobId, VaultSnapshot)>> {
        let mut snapshots = Vec::new();
        for file in self.access.store.list(VaultFileKind::Snapshot).await? {
            let Some(id) = BlobId::parse(&file.name) else { continue };
            match self.read_file(VaultFileKind::Snapshot, &file.name).await {
                Ok(plain) => snapshots.push((id, VaultSnapshot::decode(&plain)?)),
                // Forgotten meanwhile.
                Err(VaultError::Io(error)) if error.kind() == IoErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(snapshots)
    }

    /// The plain bytes of a file that is no pack.
    ///
    /// # Errors
    ///
    /// It cannot be read, or is damaged.
    pub async fn read_file(&self, kind: VaultFileKind, name: &str) -> VaultResult<Vec<u8>> {
        let damaged = |why| VaultError::damaged(kind.path(name), why);
        let sealed = self.access.store.read(kind, name, FILE_BYTES_MAX).await?;
        if BlobId::of(&sealed).to_string() != name {
            return Err(damaged("its SHA-256 is not its name"));
        }
        let plain = self.key.open(&sealed).ok_or_else(|| damaged("its MAC is wrong"))?;
        match plain.split_first() {
            Some((&IS_COMPRESSED, packed)) => compression::decompress_at_most(packed, FILE_BYTES_MAX)
                .ok_or_else(|| damaged("it cannot be decompressed")),
            Some((b'[' | b'{', _)) => Ok(plain),
            _ => Err(damaged("it is neither JSON nor compressed")),
        }
    }

    /// Writes a file that is no pack; it is stable then.
    ///
    /// # Errors
    ///
    /// It cannot be written.
    pub async fn write_file(&self, kind: VaultFileKind, plain: &[u8]) -> VaultResult<BlobId> {
        let mut packed = vec![IS_COMPRESSED];
        packed.extend(compression::compress(plain));
        let sealed = self.key.seal(&new_nonce(&self.access.world), &packed);
        let id = BlobId::of(&sealed);
        self.access.store.write(kind, &id.to_string(), sealed).await?;
        Ok(id)
    }
}

/// The sealed config.
async fn read_config(access: &VaultAccess) -> VaultResult<Vec<u8>> {
    match access.store.read(VaultFileKind::Config, "", FILE_BYTES_MAX).await {
        Err(error) if error.kind() == IoErrorKind::NotFound => {
            Err(VaultError::NoVault(access.store.describe()))
        }
        read => Ok(read?),
    }
}

/// The key that a password opens. Only one that also opens the config is of this vault.
async fn find_key(access: &VaultAccess, password: &[u8], config: &[u8]) -> VaultResult<SealingKey> {
    let (mut tried, mut damaged) = (0, None);
    for file in access.store.list(VaultFileKind::Key).await?.into_iter().take(KEYS_MAX) {
        let bytes = access.store.read(VaultFileKind::Key, &file.name, 1 << 20).await?;
        let secret = password.to_vec();
        let unlock = move || KeyFile::decode(&bytes).and_then(|file| file.unlock(&secret));
        match access.processors.run(unlock).await {
            Ok(Some(key)) if key.open(config).is_some() => return Ok(key),
            Ok(_) => tried += 1,
            Err(error) => damaged = Some(error),
        }
    }
    Err(damaged.filter(|_| tried == 0).unwrap_or(VaultError::WrongPassword(tried)))
}

/// A pack that was read as a whole.
#[derive(Clone, Debug)]
pub struct CheckedPack {
    /// Blobs of its header, if that can be read.
    pub blobs: VaultResult<Vec<crate::packs::PackedBlob>>,
    /// The file is what its name says.
    pub is_whole: bool,
    /// Blobs that are not what their names say.
    pub damaged: BTreeMap<(BlobKind, BlobId), String>,
}

impl CheckedPack {
    fn of(key: &SealingKey, pack: BlobId, bytes: &[u8]) -> Self {
        let blobs = blobs_of(key, bytes);
        let is_whole = BlobId::of(bytes) == pack;
        let mut damaged = BTreeMap::new();
        for blob in blobs.iter().flatten() {
            let range = blob.offset as usize..blob.offset as usize + blob.length as usize;
            if let Err(error) = blob.open(key, &bytes[range]) {
                damaged.insert((blob.kind, blob.id), error.to_string());
            }
        }
        Self { blobs, is_whole, damaged }
    }
}
