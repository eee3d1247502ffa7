//! The parts of a volume that can be looked into: the volume itself or its partitions, and what each holds.

use crate::{device_range::DeviceRange, partition_table::partitions_of};
use std::rc::Rc;
use world::{
    BlockDevice, Directory, IoResult,
    extent_directory::ExtentDirectory,
    overlay::ReadOnlyView,
    real::host::{DeviceSignature, signature_of},
};

/// Filesystems that are mounted, as `mount -t` calls them.
const MOUNTABLE: [&str; 4] = ["ext2", "ext3", "ext4", "xfs"];

/// The words for a part without content.
pub const EMPTY: &str = "empty";
/// Those for databases and logs in Spindle's own format.
pub const DATABASE_FILES: &str = "files of Spindle";

/// A volume, or a partition of one.
pub struct ImagePart {
    /// Number of the partition; none for the volume as a whole.
    pub partition: Option<u32>,
    pub device: Rc<dyn BlockDevice>,
    pub content: ImageContent,
}

/// The content of a part.
pub enum ImageContent {
    /// A filesystem that can be mounted, by its type.
    Filesystem(&'static str),
    /// Files of Spindle's own format: databases and logs.
    Files(Rc<dyn Directory>),
    /// Nothing was ever written.
    Empty,
    /// Nothing that can be shown, and why.
    Other(String),
}

impl ImageContent {
    /// The content in words.
    pub fn text(&self) -> String {
        match self {
            Self::Filesystem(kind) => (*kind).to_owned(),
            Self::Files(_) => DATABASE_FILES.to_owned(),
            Self::Empty => EMPTY.to_owned(),
            Self::Other(what) => what.clone(),
        }
    }
}

/// Finds the parts of a volume: the volume as a whole, and behind it its partitions.
///
/// # Errors
///
/// It cannot be read.
pub async fn parts_of(device: Rc<dyn BlockDevice>) -> IoResult<Vec<ImagePart>> {
    let whole = content_of(&device).await?;
    let has_table = matches!(&whole, ImageContent::Other(what) if what.contains("partition table"));
    let partitions = if has_table { partitions_of(&*device).await? } else { Vec::new() };
    let mut parts = vec![ImagePart { partition: None, device: Rc::clone(&device), content: whole }];
    for partition in partitions {
        let range = DeviceRange::new(Rc::clone(&device), partition.start, partition.length);
        // One that is no whole sectors of the volume cannot be a device of its own.
        let Ok(range) = range else { continue };
        let device: Rc<dyn BlockDevice> = Rc::new(range);
        let content = content_of(&device).await?;
        parts.push(ImagePart { partition: Some(partition.number), device, content });
    }
    Ok(parts)
}

async fn content_of(device: &Rc<dyn BlockDevice>) -> IoResult<ImageContent> {
    Ok(match signature_of(&**device).await? {
        DeviceSignature::Spindle => {
            let view: Rc<dyn BlockDevice> = Rc::new(ReadOnlyView(Rc::clone(device)));
            match ExtentDirectory::open(view).await {
                Ok(directory) => ImageContent::Files(Rc::new(directory)),
                Err(error) => ImageContent::Other(format!("files of Spindle: {error}")),
            }
        }
        DeviceSignature::Known(kind) => match MOUNTABLE.contains(&kind) {
            true => ImageContent::Filesystem(kind),
            false => ImageContent::Other(reason(kind)),
        },
        DeviceSignature::Blank => ImageContent::Empty,
        other => ImageContent::Other(other.to_string()),
    })
}

/// The words for a format that is not mounted.
fn reason(kind: &str) -> String {
    let next = match kind {
        "btrfs" => {
            "the kernel would take it for the live filesystem of the same UUID; copy the image to another host"
        }
        "LVM2 physical volume" => {
            "its group has the name and UUIDs of the live one: attach the image with losetup, rename with vgimportclone, mount"
        }
        "LUKS encryption" => "attach the image with losetup, and unlock it with cryptsetup",
        _ => return kind.to_owned(),
    };
    format!("{kind}: {next}")
}
