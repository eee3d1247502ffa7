//! Exports of a server as directories of files.

use crate::protect::backup_exports::open_export;
use report::Refusal;
use std::rc::Rc;
use world::{BlockDevice, Directory, ExtentDirectory, IoError, World, overlay::ReadOnlyView};

/// For an export that is not reached, or not divided into files.
const REMEDY: &str = "see the messages of the server";

/// The right to a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DirectoryAccess {
    Read,
    Write,
}

/// Opens the extent directory on an export; `name` is for people.
///
/// # Errors
///
/// The export cannot be reached, or holds no extent directory.
pub(super) async fn open_directory(
    world: &World,
    (uri, name): (&str, &str),
    access: DirectoryAccess,
) -> Result<Rc<dyn Directory>, Refusal> {
    let refused = |error: IoError| Refusal::new(format!("{name}: {error}"), REMEDY);
    let device = open_export(world, (uri, name), REMEDY).await?;
    let device: Rc<dyn BlockDevice> = match access {
        DirectoryAccess::Read => Rc::new(ReadOnlyView(device)),
        DirectoryAccess::Write => device,
    };
    let directory = ExtentDirectory::open(device).await.map_err(refused)?;
    Ok(Rc::new(directory.named(name)))
}
