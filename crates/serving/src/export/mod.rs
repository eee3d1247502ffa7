//! Exports: files, devices, volumes and snapshots, served over NBD and iSCSI.

mod access_file;
mod changes;
mod exported_volume;
mod identity;
mod iscsi_endpoints;
mod kept_clients;
mod nbd_endpoint;
mod offers;
mod pool_exports;
mod replica_view;
mod shared;
mod thin_volume;
mod withholding;
mod write_cache;

pub use access_file::{
    AccessFile, CredentialsLine, InitiatorLine, PlannedTarget, PlannedUnit, TargetPlan, credentials,
    read_secret,
};
pub use exported_volume::ExportedVolume;
pub use iscsi_endpoints::{IscsiEndpoints, access_of, assemble, name_of, target_plan, unique_name_of};
pub use nbd_endpoint::{nbd_endpoint, nbd_exports};
pub use offers::{ExportOffers, UnitOffer};
pub use pool_exports::{
    AssembledExports, EndedServices, HoldCheck, PoolExports, WantedExport, WantedExports, WantedTarget,
    WantedUnit,
};
pub use replica_view::{READERS_CLONE, ReplicaDevice, ReplicaViews, readers_clone_of, replica_of};
pub use shared::{OpenExports, SharedDevice};
pub use withholding::{ClientsKeptAway, ForcedRollback, ServedAs, WithheldClients};
pub use write_cache::EffectiveWriteCache;

use crate::notices::Notices;
pub use identity::IdentityOrigin;
use identity::{IdentityLookup, identify};
use iscsi::scsi::identity::UnitIdentity;
use report::Refusal;
use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    rc::Rc,
};
use world::{Address, ByteCount, IoError, IoErrorKind, Listener, LocalFuture, Network, World, real::Sockets};

/// Settings of all exports.
#[derive(Clone, Debug)]
pub struct ExportSettings {
    /// Refuse writes; pools are not written at all.
    pub read_only: bool,
    /// Size of files to make where they are missing.
    pub create: Option<ByteCount>,
    /// The write cache that clients see; a volume's own setting if `None`.
    pub write_cache: Option<bool>,
    /// Bytes of a logical and of a physical block over iSCSI.
    pub block_bytes: (u32, u32),
    /// iSCSI units have a removable medium.
    pub is_removable: bool,
    /// Volumes may move to other pools while clients use them.
    pub is_movable: bool,
}

impl ExportSettings {
    /// Volumes as they are, with blocks of 512 bytes on 4 KiB over iSCSI.
    pub fn of_volumes() -> Self {
        Self {
            read_only: false,
            create: None,
            write_cache: None,
            block_bytes: (512, 4096),
            is_removable: false,
            is_movable: false,
        }
    }
}

/// An address with its exports, and the task that serves them.
pub struct ExportEndpoint {
    pub address: Address,
    /// One for each path, in their order, or none.
    pub offers: Vec<Offer>,
    /// Of each offer, over iSCSI.
    pub identities: Option<Vec<UnitIdentity>>,
    pub serving: LocalFuture<()>,
    /// Clients need rights or a certificate.
    pub is_restricted: bool,
}

/// An export at one endpoint, as clients see it.
pub struct Offer {
    pub uri: String,
    pub is_read_only: bool,
    pub write_cache: EffectiveWriteCache,
}

/// One name for each path: as given, or the file's own.
pub fn names(paths: &[PathBuf], given: &[String]) -> Result<Vec<String>, Refusal> {
    let (said, wanted) = (given.len(), paths.len());
    if said > 0 && said != wanted {
        let problem = format!("there are {wanted} paths and {said} names");
        return Err(Refusal::new(problem, "say ⟨name⟩ once for each path, in their order, or not at all"));
    }
    let of_file =
        |path: &PathBuf| path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
    let names: Vec<String> = match said {
        0 => paths.iter().map(of_file).collect(),
        _ => given.to_vec(),
    };
    let mut seen = BTreeSet::new();
    match names.iter().find(|name| !seen.insert(*name)) {
        None => Ok(names),
        Some(twice) => {
            let problem = format!("two exports would be called {twice:?}");
            Err(Refusal::new(problem, "give each a name with ⟨name⟩"))
        }
    }
}

/// The identity of each export. Two exports with one identity are refused.
pub fn identities(
    world: &World,
    shared: &[SharedDevice],
    state: &Path,
    notices: &dyn Notices,
) -> Result<Vec<UnitIdentity>, Refusal> {
    let mut identities: Vec<UnitIdentity> = Vec::new();
    for SharedDevice { path, origin, .. } in shared {
        let IdentityLookup { identity, caveat } = identify(world, path, origin, state)?;
        if let Some(twin) = identities.iter().position(|known| *known == identity) {
            let problem = format!(
                "{} and {} have one identity, {identity}: initiators would take them for two paths to one disk",
                shared[twin].path.display(),
                path.display()
            );
            let remedy =
                "export each disk once; if one file is a copy of the other, remove the copy's .spindle-id";
            return Err(Refusal::new(problem, remedy));
        }
        if let Some(caveat) = caveat {
            notices.warn(&caveat);
        }
        identities.push(identity);
    }
    Ok(identities)
}

/// Listens at `address`, which `setting` gives; `None` if there is none.
pub async fn listen(address: Option<Address>, setting: &str) -> Result<Option<Rc<dyn Listener>>, Refusal> {
    let Some(address) = address else { return Ok(None) };
    match Sockets.listen(&address).await {
        Ok(listener) => Ok(Some(listener.into())),
        Err(error) => Err(listen_refusal(&error, setting)),
    }
}

/// The refusal of an address that cannot be listened at, which `setting` gives.
pub fn listen_refusal(error: &IoError, setting: &str) -> Refusal {
    let remedy = match error.kind() {
        IoErrorKind::Busy => {
            format!("end the program that listens there, or choose another address with {setting}")
        }
        IoErrorKind::PermissionDenied => {
            format!("ports below 1024 are for root; choose another one with {setting}")
        }
        _ => format!("choose another address with {setting} HOST:PORT"),
    };
    Refusal::new(error.to_string(), remedy)
}
