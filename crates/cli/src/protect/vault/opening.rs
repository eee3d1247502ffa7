//! Opening a vault by its place and its password.
//!
//! Invariant: the password is in no argument, no message and no answer.

use super::{arguments::VaultPassword, s3_place::store_of};
use report::Refusal;
use std::{
    env,
    num::NonZeroUsize,
    path::{self, Path},
    rc::Rc,
};
use vault::{
    VaultError,
    keys::Maker,
    packs::PACK_BYTES,
    processors::Processors,
    repository::{Repository, VaultAccess},
    store::{FolderStore, VaultStore},
};
use world::{
    World,
    real::{
        Workers,
        host::machine,
        host_files::{self, PathKind},
    },
};

/// The variable of the environment with the password.
const PASSWORD_VARIABLE: &str = "SPINDLE_VAULT_PASSWORD";
/// Longest password, in bytes.
const PASSWORD_BYTES_MAX: u64 = 4096;
/// Threads that compute.
const THREADS_MAX: usize = 8;

pub struct OpenVault {
    pub repository: Rc<Repository>,
    place: String,
}

impl OpenVault {
    /// Makes a vault.
    ///
    /// # Errors
    ///
    /// There is one, there is no password, or it cannot be written.
    pub async fn make(world: &World, place: &str, password: &VaultPassword) -> Result<Self, Refusal> {
        let password = read_password(password)?;
        let made = Repository::make(&access(world, place)?, &password).await;
        let repository = Rc::new(made.map_err(|error| refused(place, &error))?);
        Ok(Self { repository, place: place.to_owned() })
    }

    /// # Errors
    ///
    /// There is none, the password is missing or wrong, or it is damaged.
    pub async fn open(world: &World, place: &str, password: &VaultPassword) -> Result<Self, Refusal> {
        let password = read_password(password)?;
        let opened = Repository::open(&access(world, place)?, &password).await;
        let repository = Rc::new(opened.map_err(|error| refused(place, &error))?);
        Ok(Self { repository, place: place.to_owned() })
    }

    /// The vault in messages.
    pub fn place(&self) -> String {
        self.place.clone()
    }

    /// The vault in catalogues: a folder by its absolute path, so that it is the same wherever a verb is given.
    pub fn noted_place(&self) -> String {
        match self.place.contains("://") {
            true => self.place.clone(),
            false => {
                path::absolute(&self.place).map_or(self.place.clone(), |path| path.display().to_string())
            }
        }
    }

    pub fn refused(&self, error: &VaultError) -> Refusal {
        refused(&self.place, error)
    }
}

/// An error of a vault, and what to do.
fn refused(place: &str, error: &VaultError) -> Refusal {
    let remedy = match error {
        VaultError::NoVault(_) => format!("'spindle protect vault init {place}' makes one"),
        VaultError::VaultExists(_) => "choose another place".to_owned(),
        VaultError::WrongPassword(_) => {
            format!("give the right one with --password-file or {PASSWORD_VARIABLE}")
        }
        VaultError::Locked(_) => {
            "wait until it has ended; if it has died on another host, 'restic unlock' removes its lock"
                .to_owned()
        }
        VaultError::Damaged { .. } | VaultError::Missing(_) => {
            format!("'spindle protect vault check {place} --read-data' says what is lost")
        }
        VaultError::OtherVersion(_) => "use a newer program, or 'restic migrate upgrade_repo_v2'".to_owned(),
        VaultError::Occupied { .. } => "choose an empty target".to_owned(),
        VaultError::Cancelled | VaultError::LockExpired => {
            "give the same command again: it goes on".to_owned()
        }
        VaultError::Io(_) => "what is done stays; give the same command again when it is remedied".to_owned(),
        VaultError::NoDeletion(_) => "prune as an administrator of the store".to_owned(),
        VaultError::Mismatch(_) => String::new(),
    };
    Refusal::new(error.to_string(), remedy)
}

fn read_password(password: &VaultPassword) -> Result<Vec<u8>, Refusal> {
    let text = match (&password.password_file, env::var_os(PASSWORD_VARIABLE)) {
        (Some(file), _) => {
            let shown = file.display();
            let bytes = host_files::read_at_most(file, PASSWORD_BYTES_MAX).map_err(|error| {
                Refusal::new(error.to_string(), "say --password-file FILE with the password")
            })?;
            let found =
                rustix::fs::stat(file).map_err(|error| Refusal::new(format!("{shown}: {error}"), ""))?;
            if found.st_mode & 0o077 != 0 {
                return Err(Refusal::new(format!("{shown}: others may read this password"), "chmod 600 it"));
            }
            bytes
        }
        (None, Some(text)) => text.into_encoded_bytes(),
        (None, None) => {
            let remedy = format!("say --password-file FILE, or set {PASSWORD_VARIABLE}");
            return Err(Refusal::new("a vault has a password", remedy));
        }
    };
    // Restic takes off white space as well.
    let text = text.trim_ascii().to_vec();
    match text.is_empty() {
        true => Err(Refusal::new("the password of the vault is empty", "choose a long one")),
        false => Ok(text),
    }
}

fn access(world: &World, place: &str) -> Result<VaultAccess, Refusal> {
    let store: Rc<dyn VaultStore> = match store_of(world, place)? {
        Some(store) => store,
        None => Rc::new(FolderStore::new(Path::new(place))),
    };
    let machine = machine();
    let threads = machine.cpu_count.clamp(1, THREADS_MAX);
    let workers = Workers::new(NonZeroUsize::new(threads).expect("at least one"));
    Ok(VaultAccess {
        world: world.clone(),
        store,
        processors: Processors::Threads(Rc::new(workers)),
        maker: Maker {
            host: machine.hostname,
            user: env::var("USER").unwrap_or_default(),
            pid: std::process::id(),
            uid: rustix::process::getuid().as_raw(),
            gid: rustix::process::getgid().as_raw(),
        },
        is_running: Rc::new(|pid| {
            let kind = host_files::kind(Path::new(&format!("/proc/{pid}")));
            // One that nobody may look at is there.
            !matches!(kind, Ok(PathKind::Missing))
        }),
        pack_bytes: PACK_BYTES,
    })
}
