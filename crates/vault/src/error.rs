//! Errors of a vault.

use thiserror::Error;
use world::IoError;

#[derive(Clone, Debug, Error)]
pub enum VaultError {
    /// The store, or a volume that is read or written.
    #[error(transparent)]
    Io(#[from] IoError),
    #[error("{0} has no vault")]
    NoVault(String),
    #[error("{0} has a vault already")]
    VaultExists(String),
    /// Nothing was removed or written.
    #[error("{0} lets this key delete nothing: the old copies stay until one with that right prunes")]
    NoDeletion(String),
    #[error("the vault is of version {0}, and this program knows version 2")]
    OtherVersion(u64),
    #[error("the password opens none of the {0} keys of the vault")]
    WrongPassword(usize),
    #[error("the vault is locked by {0}")]
    Locked(String),
    #[error("the lock of the vault was not refreshed in time: another program may have changed it meanwhile")]
    LockExpired,
    #[error("{file} is damaged: {why}")]
    Damaged { file: String, why: String },
    #[error("the vault lacks {0}")]
    Missing(String),
    /// The target of a restore.
    #[error("{target} holds other data at {at}: nothing was written over it")]
    Occupied { target: String, at: u64 },
    #[error("{0}")]
    Mismatch(String),
    #[error("it was ended early")]
    Cancelled,
}

pub type VaultResult<T> = Result<T, VaultError>;

impl VaultError {
    pub(crate) fn damaged(file: impl Into<String>, why: impl Into<String>) -> Self {
        Self::Damaged { file: file.into(), why: why.into() }
    }
}
