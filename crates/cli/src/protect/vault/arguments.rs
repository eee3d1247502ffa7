//! Arguments of the verbs about vaults.

use crate::{
    quantity::{parse_rate, parse_size},
    remote_arguments::RemoteArguments,
};
use clap::{Args, Subcommand};
use std::path::PathBuf;
use vault::layout::CHUNK_BYTES;
use world::ByteCount;

#[derive(Clone, Debug, Subcommand)]
#[command(after_help = "Examples:
  spindle protect vault init /mnt/nas/mail --password-file secret
  spindle protect vault copy mail --to /mnt/nas/mail --password-file secret")]
pub enum VaultVerb {
    /// Make a vault in a folder or a bucket
    Init(VaultInitArguments),
    /// Copy a backup into a vault, by the difference to the one that was copied last
    Copy(VaultCopyArguments),
    /// List the backups in a vault; it needs no server
    List(VaultListArguments),
    /// Check that all backups of a vault are whole; it needs no server
    Check(VaultCheckArguments),
    /// Remove what no backup in a vault needs; it needs no server
    Prune(VaultPruneArguments),
    /// Write the volumes of a backup to files, which needs no server, or to empty volumes
    Restore(VaultRestoreArguments),
}

/// The password of a vault.
#[derive(Clone, Debug, Args)]
pub struct VaultPassword {
    /// File with the password of the vault, which only its owner can read
    /// [default: from the environment variable SPINDLE_VAULT_PASSWORD]
    #[arg(long, value_name = "FILE")]
    pub password_file: Option<PathBuf>,
}

#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  spindle protect vault init /mnt/nas/mail --password-file secret
  spindle protect vault init s3://mail-vault/posts --password-file secret

The folder becomes a restic repository, format version 2: Debian's restic lists, checks, restores and prunes it without \
Spindle. Keep the password elsewhere, too: without it the copies are lost.

s3://BUCKET/PREFIX is a bucket that is there; AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION and, for stores other than \
Amazon's, AWS_ENDPOINT_URL say where and by whom.

Exits with 0, and with 2 if it was refused.")]
pub struct VaultInitArguments {
    /// Folder of the vault, made if it is missing, or s3://BUCKET/PREFIX
    #[arg(value_name = "PLACE")]
    pub vault: String,

    #[command(flatten)]
    pub password: VaultPassword,
}

#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  spindle protect vault copy mail --to /mnt/nas/mail --password-file secret        the newest full backup
  spindle protect vault copy mail 17 --to /mnt/nas/mail --password-file secret --throttle 50MB/s

The server has to serve NBD ([serve] nbd): the snapshots are exported read-only meanwhile, so no rule deletes the backup. What \
changed since the newest backup that is in the vault and still on the server is read, and nothing else; without one, all that \
is allocated. If it ends early, the same command goes on from what is stored. It takes a token with the role operate.

Exits with 0, also if the vault has the backup already, and with 2 if it was refused or ended early.")]
pub struct VaultCopyArguments {
    /// Name of the set
    #[arg(value_name = "SET")]
    pub set: String,

    /// Number or name of the backup [default: the newest full one]
    #[arg(value_name = "BACKUP")]
    pub backup: Option<String>,

    /// Folder of the vault, or s3://BUCKET/PREFIX
    #[arg(long, value_name = "PLACE")]
    pub to: String,

    #[command(flatten)]
    pub password: VaultPassword,

    /// Limit the read rate, such as 50MB/s
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    pub throttle: Option<ByteCount>,

    /// Unit of what is read and stored, 64KiB to 1MiB: larger ones take less memory and store more for each change; another
    /// one than before reads and stores everything again
    #[arg(long, value_name = "SIZE", value_parser = parse_chunk, default_value = "64KiB")]
    pub chunk: u32,
}

fn parse_chunk(text: &str) -> Result<u32, String> {
    let size = parse_size(text)?;
    let chunk = CHUNK_BYTES.into_iter().find(|chunk| u64::from(*chunk) == size.0);
    chunk.ok_or_else(|| "say 64KiB, 128KiB, 256KiB, 512KiB or 1MiB".to_owned())
}

#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  spindle protect vault list /mnt/nas/mail --password-file secret
  spindle protect vault list /mnt/nas/mail --set mail --json --password-file secret

Exits with 0, and with 2 if the vault cannot be read.")]
pub struct VaultListArguments {
    /// Folder of the vault, or s3://BUCKET/PREFIX
    #[arg(value_name = "PLACE")]
    pub vault: String,

    /// Only this set
    #[arg(long, value_name = "SET")]
    pub set: Option<String>,

    #[command(flatten)]
    pub password: VaultPassword,
}

#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  spindle protect vault prune /mnt/nas/mail --password-file secret

Copies by the clock are removed by the server or the agent that keeps the set, once enough newer ones are there, and once a \
week it prunes. This is for what was removed by hand, by 'restic forget'. Packs of which a part is needed are written again \
until at most 5 % of the vault is without use. It waits for nobody: while a copy or a check runs it is refused.

Exits with 0, and with 2 if it was refused or ended early; the vault is whole then, too.")]
pub struct VaultPruneArguments {
    /// Folder of the vault, or s3://BUCKET/PREFIX
    #[arg(value_name = "PLACE")]
    pub vault: String,

    #[command(flatten)]
    pub password: VaultPassword,
}

#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  spindle protect vault check /mnt/nas/mail --password-file secret
  spindle protect vault check /mnt/nas/mail --read-data --password-file secret    every byte

Without --read-data it looks at trees, indexes and the sizes of packs: what is missing or cut off is found. With it, a flipped \
bit is found as well, and the volume and range named. 'restic check' judges the same files by a program that is not ours.

Exits with 0 if all is whole, with 1 if something is lost, and with 2 if it could not be checked.")]
pub struct VaultCheckArguments {
    /// Folder of the vault, or s3://BUCKET/PREFIX
    #[arg(value_name = "PLACE")]
    pub vault: String,

    /// Read all data, and check them against their SHA-256
    #[arg(long)]
    pub read_data: bool,

    #[command(flatten)]
    pub password: VaultPassword,
}

#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  spindle protect vault restore mail 17 --from /mnt/nas/mail --password-file secret --to-file /srv/images
  spindle protect vault restore mail 17 --from /mnt/nas/mail --password-file secret --volume dbs/store \
--to nbd://array/store
  spindle protect vault restore mail 17 --from /mnt/nas/mail --password-file secret --to-pool new

A file is FOLDER/POOL/VOLUME.img. A target must be empty: where it holds other data, nothing is written. If it ends early, \
the same command goes on. Restic restores as well: the files of a volume, one behind the other, are its bytes.

Exits with 0, and with 2 if it was refused or ended early.")]
pub struct VaultRestoreArguments {
    /// Name of the set
    #[arg(value_name = "SET")]
    pub set: String,

    /// Number or name of the backup
    #[arg(value_name = "BACKUP")]
    pub backup: String,

    /// Folder of the vault, or s3://BUCKET/PREFIX
    #[arg(long, value_name = "PLACE")]
    pub from: String,

    #[command(flatten)]
    pub password: VaultPassword,

    /// Only this volume
    #[arg(long, value_name = "POOL/VOLUME")]
    pub volume: Option<String>,

    #[command(flatten)]
    pub target: RestoreTargetArguments,

    #[command(flatten)]
    pub remote: RemoteArguments,
}

/// The target of a restore.
#[derive(Clone, Debug, Args)]
#[group(required = true, multiple = false)]
pub struct RestoreTargetArguments {
    /// Folder for images of the volumes
    #[arg(long, value_name = "FOLDER")]
    pub to_file: Option<PathBuf>,

    /// An empty device, by its URI: nbd://HOST/EXPORT, iscsi://HOST/TARGET/LUN; for one volume
    #[arg(long, value_name = "URI")]
    pub to: Option<PathBuf>,

    /// Pool of the server for volumes of the same names, which are made, or empty; it takes a token with the role admin
    #[arg(long, value_name = "POOL")]
    pub to_pool: Option<String>,
}
