//! Copies of backups elsewhere: a repository in restic's format, version 2, that Debian's `restic` reads without Spindle.
//!
//! A copy is one snapshot of the repository: a folder for each volume, with the volume's bytes in files of 256 MiB, and a
//! record of the backup. Bytes are cut into chunks of fixed size, which are stored once, compressed and encrypted. A copy is
//! made from the difference to an earlier one: chunks that did not change are neither read nor written again.
//!
//! ```text
//! config, keys/*     the key, sealed by passwords                  keys, config
//! data/xx/*          packs: sealed blobs, and a header              packs
//! index/*            which blob lies where                          index, blob_index
//! snapshots/*        the root of a tree, and tags                   snapshots
//! locks/*            who works here                                 locks
//! ```
//!
//! Reading order: [`blob_id`], [`sealing`], [`compression`], the parts of the format ([`keys`], [`config`], [`packs`], [`index`],
//! [`trees`], [`snapshots`]), [`store`] (where the files are), [`locks`], [`blob_index`], [`repository`], [`writer`]; then what
//! Spindle puts there: [`layout`], [`record`], [`copying`], [`contents`], [`restoring`], [`checking`], [`forgetting`],
//! [`pruning`].

pub mod blob_id;
pub mod blob_index;
pub mod checking;
pub mod compression;
pub mod config;
pub mod contents;
pub mod copying;
pub mod error;
pub mod forgetting;
pub mod index;
pub mod keys;
pub mod layout;
pub mod locks;
pub mod packs;
pub mod planted;
pub mod processors;
pub mod pruning;
pub mod record;
pub mod repository;
pub mod restoring;
pub mod sealing;
pub mod snapshots;
pub mod store;
pub mod time_text;
pub mod trees;
pub mod writer;

pub use error::{VaultError, VaultResult};
