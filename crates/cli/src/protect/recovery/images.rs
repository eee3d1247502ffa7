//! Volumes of a backup as devices of this process, and as files.

use crate::protect::backup_exports::open_export;
use control::web::client::BackupPointRow;
use recovery::{
    shown_files::ShownFile,
    volume_parts::{ImageContent, ImagePart, parts_of},
};
use report::Refusal;
use std::{collections::BTreeSet, rc::Rc};
use world::{BlockDevice, World};

/// A volume that is reached, with its parts.
pub(super) struct ReachedVolume {
    /// `POOL/VOLUME`.
    pub path: String,
    /// Name of the volume, and that with its pool, as parts of file names.
    pub name: String,
    pub long_name: String,
    pub parts: Vec<ImagePart>,
}

/// Reaches an export, and looks at what its volume holds.
///
/// # Errors
///
/// The server does not answer, or the volume cannot be read.
pub(super) async fn reach(
    world: &World,
    uri: &str,
    point: &BackupPointRow,
) -> Result<ReachedVolume, Refusal> {
    let path = format!("{}/{}", point.pool, point.volume);
    let refused = |error: world::IoError| Refusal::new(format!("{path}: {error}"), "");
    let device = open_export(world, (uri, &path), "").await?;
    let parts = parts_of(device).await.map_err(refused)?;
    let plain = |text: &str| text.replace(['/', '\0'], "_");
    let long_name = format!("{}-{}", plain(&point.pool), plain(&point.volume));
    Ok(ReachedVolume { path, name: plain(&point.volume), long_name, parts })
}

/// The file names of volumes, by which the images are found again.
pub(super) struct ImageNames(BTreeSet<String>);

impl ImageNames {
    pub fn new() -> Self {
        Self(BTreeSet::new())
    }

    /// The name, or one like it that is free.
    pub fn free(&mut self, wanted: &str) -> String {
        let mut name = wanted.to_owned();
        let mut count = 2;
        while !self.0.insert(name.clone()) {
            name = format!("{wanted}~{count}");
            count += 1;
        }
        name
    }
}

/// The files of one volume: `LONG_NAME.img`, its partitions `LONG_NAME.partN.img`, and in a folder `LONG_NAME` those of Spindle's
/// format. The names in the order of its parts come with them.
///
/// # Errors
///
/// A file cannot be opened.
pub(super) async fn files_of(
    volume: &ReachedVolume,
    names: &mut ImageNames,
    (changed_at, is_writable): (i64, bool),
) -> Result<(Vec<ShownFile>, Vec<String>), Refusal> {
    let long_name = names.free(&volume.long_name);
    let (mut files, mut shown) = (Vec::new(), Vec::new());
    for part in &volume.parts {
        let name = match part.partition {
            None => format!("{long_name}.img"),
            Some(number) => format!("{long_name}.part{number}.img"),
        };
        if let ImageContent::Files(directory) = &part.content {
            let folder = match part.partition {
                None => long_name.clone(),
                Some(number) => format!("{long_name}.part{number}"),
            };
            let refused = |error: world::IoError| Refusal::new(format!("{}: {error}", volume.path), "");
            for entry in directory.list().await.map_err(refused)? {
                let device: Rc<dyn BlockDevice> = directory.open(&entry.name).await.map_err(refused)?;
                files.push(ShownFile {
                    folder: Some(folder.clone()),
                    name: entry.name,
                    size: entry.size.0,
                    changed_at,
                    device,
                    is_writable: false,
                });
            }
            shown.push(folder);
        } else {
            shown.push(name.clone());
        }
        let device = Rc::clone(&part.device);
        let size = device.geometry().size.0;
        files.push(ShownFile { folder: None, name, size, changed_at, device, is_writable });
    }
    Ok((files, shown))
}
