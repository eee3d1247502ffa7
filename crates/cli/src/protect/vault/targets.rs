//! Targets of a restore: images in a folder, a device by its URI, volumes of a server.

use super::exported::connect;
use crate::{
    protect::backup_exports::{delete_export, reachable_uri},
    remote_arguments::RemoteArguments,
    server::{connection::ServerConnection, place::ServerPlace},
};
use control::web::{
    client::{Method, NewExportBody, NewVolumeBody, in_uri},
    rows::{PoolRow, VolumePage},
};
use report::Refusal;
use runs::remote::RemoteResolver;
use std::{
    path::{Path, PathBuf},
    rc::Rc,
};
use vault::{record::VolumeRecord, restoring::VaultRestoreTarget};
use world::{
    BlockDevice, ByteCount, World,
    real::{
        AccessMode, FileDevice,
        host_files::{self, PathKind},
    },
};

/// An image that is being written.
pub struct ImageTarget {
    pub target: VaultRestoreTarget,
    /// The file under its name of now and of then.
    partial: PathBuf,
    path: PathBuf,
    size: u64,
    is_new: bool,
}

impl ImageTarget {
    /// The image of a volume in `folder`: one that ended early, or a new one. One that is complete is compared.
    ///
    /// # Errors
    ///
    /// It cannot be made, or is of another size.
    pub async fn open(folder: &Path, volume: &VolumeRecord) -> Result<Self, Refusal> {
        let refused =
            |error: world::IoError| Refusal::new(error.to_string(), "choose another folder with --to-file");
        let path = folder.join(&volume.pool).join(format!("{}.img", volume.volume));
        let partial = path.with_extension("img.partial");
        host_files::create_dir_all(path.parent().expect("a file lies in a folder")).map_err(refused)?;
        let size = volume.size_bytes;
        let is_new = matches!(host_files::kind(&path).map_err(refused)?, PathKind::Missing);
        let opened = if is_new { &partial } else { &path };
        let device = match host_files::kind(opened).map_err(refused)? {
            PathKind::Missing => {
                FileDevice::create_sparse(&partial, ByteCount(size.next_multiple_of(4096))).await
            }
            _ => FileDevice::open(opened, AccessMode::ReadWrite),
        };
        let device = Rc::new(device.map_err(refused)?);
        let found = device.geometry().size.0;
        if found != size && found != size.next_multiple_of(4096) {
            let problem = format!("{} has {found} bytes, and the volume has {size}", opened.display());
            return Err(Refusal::new(problem, "remove it, or choose another folder with --to-file"));
        }
        let target = VaultRestoreTarget {
            name: opened.display().to_string(),
            device: Rc::clone(&device) as Rc<dyn BlockDevice>,
            holes: Some(device),
        };
        Ok(Self { target, partial, path, size, is_new })
    }

    /// Gives the image its name. Returns that.
    ///
    /// # Errors
    ///
    /// Somebody made a file there meanwhile.
    pub fn finish(self) -> Result<String, Refusal> {
        let Self { target, partial, path, size, is_new } = self;
        drop(target);
        if is_new {
            host_files::name_new(&partial, size, &path)
                .map_err(|error| Refusal::new(error.to_string(), ""))?;
        }
        Ok(path.display().to_string())
    }
}

/// A device by its URI.
///
/// # Errors
///
/// It is none, or is not reached.
pub async fn remote_target(
    world: &World,
    uri: &Path,
    remote: &RemoteArguments,
) -> Result<VaultRestoreTarget, Refusal> {
    let text = uri.display().to_string();
    if ["nbd", "nbds"].iter().any(|scheme| text.starts_with(scheme)) {
        return nbd_target(world, &text).await;
    }
    let Some(device) = remote.resolve(uri)? else {
        let problem = format!("{text} is no URI of a device");
        return Err(Refusal::new(
            problem,
            "say nbd://HOST/EXPORT or iscsi://HOST/TARGET/LUN, or --to-file FOLDER",
        ));
    };
    let opened = device.open(world).await;
    let opened = opened.map_err(|error| {
        Refusal::new(format!("{text}: {error}"), "check its address, and that it is served")
    })?;
    Ok(VaultRestoreTarget { name: text, device: opened.device, holes: None })
}

async fn nbd_target(world: &World, uri: &str) -> Result<VaultRestoreTarget, Refusal> {
    let device = Rc::new(connect(world, uri).await?);
    let holes = Rc::clone(&device);
    Ok(VaultRestoreTarget { name: uri.to_owned(), device, holes: Some(holes) })
}

/// A volume of a server, exported for as long as it is written.
pub struct ServedTarget<'s> {
    pub target: VaultRestoreTarget,
    server: &'s ServerConnection,
    export: String,
}

impl<'s> ServedTarget<'s> {
    /// The volume of the same name in `pool`, made if it is missing.
    ///
    /// # Errors
    ///
    /// The server has no such pool, serves no NBD, or refuses.
    pub async fn open(
        world: &World,
        (server, place): (&'s ServerConnection, &ServerPlace),
        pool: &str,
        volume: &VolumeRecord,
    ) -> Result<Self, Refusal> {
        let name = &volume.volume;
        let page: VolumePage = server.get(&format!("/v1/volumes?name={}", in_uri(name))).await?;
        if !page.volumes.iter().any(|known| known.pool == pool) {
            let pools: Vec<PoolRow> = server.get(&format!("/v1/pools?name={}", in_uri(pool))).await?;
            let id = pools.first().and_then(|row| row.id.clone());
            let id = id.ok_or_else(|| Refusal::new(format!("the server has no open pool {pool}"), ""))?;
            let body =
                NewVolumeBody { name: name.clone(), size_bytes: volume.size_bytes, ..Default::default() };
            let path = format!("/v1/pools/{}/volumes", in_uri(&id));
            server.change_to_its_end(Method::POST, &path, Some(&body)).await?.checked()?;
        }
        let export = format!("vault-restore-{pool}-{name}");
        let body = NewExportBody { name: export.clone(), volume: format!("{pool}/{name}"), read_only: false };
        server.change_to_its_end(Method::POST, "/v1/exports", Some(&body)).await?.checked()?;
        let uri = reachable_uri(world, server, &export, place).await;
        let target = match uri {
            Ok(uri) => nbd_target(world, &uri).await,
            Err(refusal) => Err(refusal),
        };
        match target {
            Ok(target) => {
                let target = VaultRestoreTarget { name: format!("{pool}/{name}"), ..target };
                Ok(Self { target, server, export })
            }
            Err(refusal) => {
                delete_export(server, &export).await?;
                Err(refusal)
            }
        }
    }

    /// Deletes the export. Returns the volume's path.
    ///
    /// # Errors
    ///
    /// The server does not answer.
    pub async fn finish(self) -> Result<String, Refusal> {
        let Self { target, server, export } = self;
        let name = target.name.clone();
        drop(target);
        delete_export(server, &export).await?;
        Ok(name)
    }
}
