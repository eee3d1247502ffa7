//! Drives of a pool on other machines: exports of NBD servers and units of iSCSI targets, by their URIs.
//!
//! Invariants:
//!
//! 1. The pool alone gives up such a drive: its client waits for a broken connection longer than any pool does.
//! 2. What its server acknowledged and may have lost with a broken connection is written again ([`KeptWrites`]).
//! 3. A URI in a record means the same from every folder: it names no relative path.

use crate::remote::{OpenRemote, Remote, RemoteSettings, is_uri};
use report::Refusal;
use std::{
    path::{Path, PathBuf},
    rc::Rc,
    sync::Arc,
    time::Duration,
};
use world::{
    Address, BlockDevice, Buffer, ByteCount, ByteOffset, Geometry, IoError, IoErrorKind, IoResult,
    LocalFuture, Stability, World,
    kept_writes::KeptWrites,
    real::{AccessMode, host_files},
};

/// Longer than any pool waits for a drive. Drives that all hang are waited for without end: then they are not the
/// cause.
const ANSWER_MAX: Duration = Duration::from_secs(366 * 24 * 3600);

/// Units in which a pool may write to a drive.
const SECTORS: [u32; 2] = [512, 4096];

/// The place where a drive may be: a path, or a URI with what its server asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DrivePlace {
    pub path: PathBuf,
    pub access: RemoteSettings,
}

impl From<PathBuf> for DrivePlace {
    fn from(path: PathBuf) -> Self {
        Self { path, access: RemoteSettings::default() }
    }
}

/// A path of a record, from here: a relative one is in the pool's folder.
pub(super) fn resolved(folder: &Path, path: &Path) -> PathBuf {
    if is_uri(path) { path.to_owned() } else { folder.join(path) }
}

/// The way in which a record has a URI, with all that has a default; another path as it is.
pub(super) fn in_full(path: &Path) -> PathBuf {
    let remote = is_uri(path).then(|| Remote::of(path, &RemoteSettings::default(), &|_| None));
    match remote {
        Some(Ok(Some(remote))) => remote.to_string().into(),
        _ => path.to_owned(),
    }
}

/// The parts of a URI, and what its server asks for, in the form in which a record may have it.
pub(super) fn to_record(uri: &Path, access: &RemoteSettings) -> Result<(Remote, RemoteSettings), Refusal> {
    let recorded = |file: &Option<PathBuf>, name: &Option<String>| match (file, name) {
        (Some(file), _) => {
            let file = host_files::canonical(file);
            file.map(Some).map_err(|error| Refusal::new(error.to_string(), "give a file that can be read"))
        }
        (None, None) => Ok(None),
        (None, Some(_)) => Err(Refusal::new(
            format!("{}: each opening of the pool needs the CHAP secret", uri.display()),
            "put each secret into a file, and name it with ⟨chap-secret-file⟩ or ⟨chap-target-secret-file⟩",
        )),
    };
    let access = RemoteSettings {
        chap_secret_file: recorded(&access.chap_secret_file, &access.chap_name)?,
        chap_target_secret_file: recorded(&access.chap_target_secret_file, &access.chap_target_name)?,
        ..access.clone()
    };
    let remote = remote_at(uri, &access)?;
    if let Remote::Nbd(uri) = &remote {
        let addresses = std::iter::once(&uri.address).chain(&uri.others);
        let sockets = addresses.filter_map(|address| match address {
            Address::Unix(socket) => Some(socket),
            Address::Tcp { .. } => None,
        });
        let certificates = uri.tls.as_ref().and_then(|tls| tls.certificates.as_ref());
        if let Some(relative) = sockets.chain(certificates).find(|path| path.is_relative()) {
            let problem = format!("{uri}: {} is a relative path", relative.display());
            return Err(Refusal::new(problem, "the pool's record needs one that begins with /"));
        }
    }
    Ok((remote, access))
}

fn remote_at(uri: &Path, access: &RemoteSettings) -> Result<Remote, Refusal> {
    let found = Remote::of(uri, access, &|_| None)?;
    Ok(found.expect("a caller asks for URIs only"))
}

/// A device on another machine.
pub(super) struct RemoteDrive {
    pub device: Rc<dyn BlockDevice>,
    pub model: Option<String>,
    pub serial: Option<String>,
}

/// Connects to the device at a URI.
pub(super) async fn open_remote(
    world: &World,
    uri: &Path,
    access: &RemoteSettings,
    mode: AccessMode,
) -> IoResult<RemoteDrive> {
    let remote = remote_at(uri, access)
        .map_err(|refusal| IoError::new(IoErrorKind::PermissionDenied, refusal.to_string()))?;
    let OpenRemote { device, is_read_only, model, serial } = remote.open(world, Some(ANSWER_MAX)).await?;
    if is_read_only && mode == AccessMode::ReadWrite {
        return Err(IoError::new(IoErrorKind::ReadOnly, format!("{remote} is read-only")));
    }
    let Geometry { size, sector } = device.geometry();
    let Some(sector) = SECTORS.into_iter().find(|&usable| usable >= sector) else {
        let why = format!("{remote} is written in units of {sector} bytes; a drive takes 512 or 4096");
        return Err(IoError::new(IoErrorKind::WrongType, why));
    };
    let size = ByteCount(size.0 - size.0 % u64::from(SECTORS[1]));
    let device = KeptWrites::new(world, device);
    Ok(RemoteDrive {
        device: Rc::new(InSectors { device, geometry: Geometry { size, sector } }),
        model,
        serial,
    })
}

/// A device with the sectors that a pool writes.
struct InSectors {
    device: KeptWrites,
    geometry: Geometry,
}

impl BlockDevice for InSectors {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn may_be_away(&self) -> bool {
        self.device.may_be_away()
    }

    fn read(&self, at: ByteOffset, into: Vec<Buffer>) -> LocalFuture<IoResult<Vec<Buffer>>> {
        self.device.read(at, into)
    }

    fn write(
        &self,
        at: ByteOffset,
        from: Vec<Arc<Buffer>>,
        stability: Stability,
    ) -> LocalFuture<IoResult<()>> {
        self.device.write(at, from, stability)
    }

    fn flush(&self) -> LocalFuture<IoResult<()>> {
        self.device.flush()
    }

    fn discard(&self, at: ByteOffset, length: ByteCount) -> LocalFuture<IoResult<()>> {
        self.device.discard(at, length)
    }
}
