//! Exports of a server as directories of files.

use report::Refusal;
use serving::remote::{Remote, RemoteSettings};
use std::{path::Path, rc::Rc};
use world::{BlockDevice, Directory, ExtentDirectory, IoError, World, overlay::ReadOnlyView};

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
    let refused = |error: IoError| Refusal::new(format!("{name}: {error}"), "see the messages of the server");
    let remote = Remote::of(Path::new(uri), &RemoteSettings::default(), &|_| None)?;
    let remote = remote.ok_or_else(|| Refusal::new(format!("{uri} is no URI of an export"), ""))?;
    let device: Rc<dyn BlockDevice> = remote.open(world, None).await.map_err(refused)?.device;
    let device: Rc<dyn BlockDevice> = match access {
        DirectoryAccess::Read => Rc::new(ReadOnlyView(device)),
        DirectoryAccess::Write => device,
    };
    let directory = ExtentDirectory::open(device).await.map_err(refused)?;
    Ok(Rc::new(directory.named(name)))
}
