//! Stores of a vault's files: a folder, an object store, or memory in simulations.
//!
//! Rules that every implementation keeps:
//!
//! 1. A file is written as a whole and never changed. When `write` returns, it is stable; after an error or a crash it is
//!    there as a whole, or not.
//! 2. `write` may replace a file of the same name: names are sums of the content, so it has the same bytes.
//! 3. A listing shows every file whose writing returned before it began.

mod folder;
mod s3;
mod simulated;

pub use folder::FolderStore;
pub use s3::{S3Credentials, S3Settings, S3Store};
pub use simulated::{SimVaultStore, VaultStoreFaults};

use world::{IoResult, LocalFuture, WallTime};

/// Kinds of files, each with a folder of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum VaultFileKind {
    /// The one file of its kind; its name is not used.
    Config,
    Key,
    Pack,
    Index,
    Snapshot,
    Lock,
}

impl VaultFileKind {
    pub const FOLDERS: [Self; 5] = [Self::Key, Self::Pack, Self::Index, Self::Snapshot, Self::Lock];

    /// Folder in restic's layout; packs are spread over folders by the first two digits of their names.
    pub fn folder(self) -> &'static str {
        match self {
            Self::Config => "",
            Self::Key => "keys",
            Self::Pack => "data",
            Self::Index => "index",
            Self::Snapshot => "snapshots",
            Self::Lock => "locks",
        }
    }

    /// The path of a file below the vault.
    pub fn path(self, name: &str) -> String {
        match self {
            Self::Config => "config".to_owned(),
            Self::Pack => format!("data/{}/{name}", name.get(..2).unwrap_or(name)),
            _ => format!("{}/{name}", self.folder()),
        }
    }
}

/// A file of a listing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct VaultFile {
    pub name: String,
    pub bytes: u64,
}

pub trait VaultStore {
    /// The place, for messages; without secrets.
    fn describe(&self) -> String;

    /// Makes the folders of a new vault.
    fn prepare(&self) -> LocalFuture<IoResult<()>>;

    /// Removes what writes that were cut off long before `now` have left.
    fn sweep(&self, now: WallTime) -> LocalFuture<IoResult<()>>;

    /// Files of a kind, sorted by name. Names that are no SHA-256 are left out.
    fn list(&self, kind: VaultFileKind) -> LocalFuture<IoResult<Vec<VaultFile>>>;

    /// A whole file. `NotFound` if there is none; `Damaged` if it is longer than `bytes_max`.
    fn read(&self, kind: VaultFileKind, name: &str, bytes_max: u64) -> LocalFuture<IoResult<Vec<u8>>>;

    /// A part of a file; `OutOfRange` if it ends before.
    fn read_range(
        &self,
        kind: VaultFileKind,
        name: &str,
        range: (u64, usize),
    ) -> LocalFuture<IoResult<Vec<u8>>>;

    fn write(&self, kind: VaultFileKind, name: &str, bytes: Vec<u8>) -> LocalFuture<IoResult<()>>;

    /// `NotFound` if there is none.
    fn delete(&self, kind: VaultFileKind, name: &str) -> LocalFuture<IoResult<()>>;
}
