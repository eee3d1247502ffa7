//! Imports of volumes: the sources that pools keep, by which they are found again, and the result for people.
//!
//! Invariants:
//!
//! 1. A source is connected to when something is read from it: a pool opens, and its other volumes are served, while a
//!    source is away.
//! 2. A source that comes back with another size is not read.

use super::{folder, remote_drive::to_record};
use crate::remote::{OpenRemote, Remote, RemoteSettings, is_uri};
use array::{
    error::Error,
    format::VolumeId,
    pool::{ImportTerms, ImportedVolume, NewImport, Pool, VolumeSetting},
};
use report::Refusal;
use serde::{Deserialize, Serialize};
use std::{
    ops::Range,
    path::{Path, PathBuf},
    rc::Rc,
    sync::Arc,
    time::Duration,
};
use tokio::sync::Mutex;
use world::{
    BlockDevice, Buffer, ByteCount, ByteOffset, Geometry, IoError, IoErrorKind, IoResult, Job, LocalFuture,
    Stability, World,
    real::{AccessMode, FileDevice, host_files},
};

/// A request that a server does not answer in that time is asked for again over a new connection, or given up.
const ANSWER_MAX: Duration = Duration::from_secs(30);
/// A reader waits for a source that is away for so long.
const AWAY_MAX: Duration = Duration::from_secs(30);
/// Between two tries to connect.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// The source of an import, as a pool keeps it. It names no secret, but files that have some.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportOrigin {
    /// A URI, or the absolute path of a file or a device.
    pub from: PathBuf,
    #[serde(default, skip_serializing_if = "is_usual")]
    pub access: RemoteSettings,
}

fn is_usual(access: &RemoteSettings) -> bool {
    *access == RemoteSettings::default()
}

impl ImportOrigin {
    /// The source at a URI or a path.
    ///
    /// # Errors
    ///
    /// It is no such URI; a secret is in no file; or the path is not there.
    pub fn of(from: &Path, access: &RemoteSettings) -> Result<Self, Refusal> {
        if is_uri(from) {
            let (remote, access) = to_record(from, access)?;
            return Ok(Self { from: remote.to_string().into(), access });
        }
        let from = host_files::canonical(from).map_err(|error| {
            Refusal::new(
                error.to_string(),
                "name an iscsi:// or nbd:// URI, or a file or device of the machine that has the pool",
            )
        })?;
        Ok(Self { from, access: RemoteSettings::default() })
    }

    /// As a pool keeps it.
    fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a source is plain data")
    }

    /// As a pool has kept it; `None` if a newer program did.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }

    async fn connect(&self, world: &World) -> IoResult<Rc<dyn BlockDevice>> {
        let remote = Remote::of(&self.from, &self.access, &|_| None);
        let remote = remote.map_err(|refusal| {
            IoError::new(IoErrorKind::PermissionDenied, format!("{}: {refusal}", self.from.display()))
        })?;
        match remote {
            Some(remote) => {
                let OpenRemote { device, .. } = remote.open(world, Some(ANSWER_MAX)).await?;
                Ok(device)
            }
            None => Ok(Rc::new(FileDevice::open(&self.from, AccessMode::Read)?)),
        }
    }
}

/// A source that is connected to when it is read, and again after it was away.
struct PatientSource {
    world: World,
    source: ImportOrigin,
    geometry: Geometry,
    device: Rc<Mutex<Option<Rc<dyn BlockDevice>>>>,
}

impl PatientSource {
    fn new(
        world: &World,
        source: ImportOrigin,
        size_bytes: u64,
        device: Option<Rc<dyn BlockDevice>>,
    ) -> Self {
        let geometry = Geometry { size: ByteCount(size_bytes), sector: 512 };
        Self { world: world.clone(), source, geometry, device: Rc::new(Mutex::new(device)) }
    }
}

/// The device, connected to if it is not.
async fn connected(
    (world, source): (&World, &ImportOrigin),
    geometry: Geometry,
    device: &Mutex<Option<Rc<dyn BlockDevice>>>,
) -> IoResult<Rc<dyn BlockDevice>> {
    // One connects, and the others wait for it.
    let mut device = device.lock().await;
    if let Some(device) = &*device {
        return Ok(Rc::clone(device));
    }
    let new = source.connect(world).await?;
    let found = new.geometry().size;
    if found != geometry.size {
        let from = source.from.display();
        let story =
            format!("{from} has {} bytes, and had {} when the import began", found.0, geometry.size.0);
        return Err(IoError::new(IoErrorKind::WrongType, story));
    }
    *device = Some(Rc::clone(&new));
    Ok(new)
}

fn is_away(error: &IoError) -> bool {
    !matches!(
        error.kind(),
        IoErrorKind::Medium | IoErrorKind::WrongType | IoErrorKind::OutOfRange | IoErrorKind::Unaligned
    )
}

impl BlockDevice for PatientSource {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn may_be_away(&self) -> bool {
        true
    }

    fn read(&self, at: ByteOffset, into: Vec<Buffer>) -> LocalFuture<IoResult<Vec<Buffer>>> {
        let (world, source, geometry) = (self.world.clone(), self.source.clone(), self.geometry);
        let device = Rc::clone(&self.device);
        let lengths: Vec<usize> = into.iter().map(|buffer| buffer.len()).collect();
        Box::pin(async move {
            let given_up_at = world.now() + AWAY_MAX;
            loop {
                let error = match connected((&world, &source), geometry, &device).await {
                    Ok(open) => {
                        let into = lengths.iter().map(|length| Buffer::zeroed(*length)).collect();
                        match open.read(at, into).await {
                            Ok(read) => return Ok(read),
                            Err(error) => {
                                let mut device = device.lock().await;
                                let is_it = device.as_ref().is_some_and(|known| Rc::ptr_eq(known, &open));
                                device.take_if(|_| is_it && is_away(&error));
                                error
                            }
                        }
                    }
                    Err(error) => error,
                };
                if !is_away(&error) || world.now() >= given_up_at {
                    return Err(error);
                }
                world.sleep(AGAIN_AFTER).await;
            }
        })
    }

    fn write(&self, _: ByteOffset, _: Vec<Arc<Buffer>>, _: Stability) -> LocalFuture<IoResult<()>> {
        Box::pin(async { Err(read_only("write")) })
    }

    fn flush(&self) -> LocalFuture<IoResult<()>> {
        Box::pin(async { Ok(()) })
    }

    fn discard(&self, _: ByteOffset, _: ByteCount) -> LocalFuture<IoResult<()>> {
        Box::pin(async { Err(read_only("discard")) })
    }
}

fn read_only(what: &str) -> IoError {
    IoError::new(IoErrorKind::ReadOnly, format!("{what}: the source of an import is only read"))
}

/// Attaches the sources of all imports of a pool that was opened. Returns a warning for each that cannot be.
pub(super) fn attach_all(world: &World, pool: &Pool) -> Vec<String> {
    let importing =
        pool.volumes().into_iter().filter_map(|info| Some((info.volume, info.name, info.importing?)));
    let attach = |(volume, name, status): (VolumeId, String, array::pool::ImportStatus)| {
        let Some(source) = ImportOrigin::decode(&status.source) else {
            return Some(format!(
                "volume {name} is being imported by a newer program, and is not served by this one"
            ));
        };
        let device = PatientSource::new(world, source, status.source_bytes, None);
        let attached = pool.attach_source(volume, Rc::new(device));
        attached.err().map(|error| format!("volume {name} is not served: {error}"))
    };
    importing.filter_map(attach).collect()
}

/// Makes the volume of an import, which can be used at once.
///
/// # Errors
///
/// The source cannot be reached, or its size is none of a volume; or as [`Pool::begin_import`].
pub async fn begin(
    world: &World,
    pool: &Pool,
    (name, volume): (&str, VolumeId),
    source: &ImportOrigin,
) -> Result<(), Refusal> {
    let from = source.from.display();
    let device = source.connect(world).await.map_err(|error| {
        Refusal::new(
            error.to_string(),
            format!("check that {from} can be read from the machine that has the pool"),
        )
    })?;
    let Geometry { size, sector } = device.geometry();
    // A device of a file has whole sectors: the rest of the file would be left out.
    let of_file = host_files::metadata(&source.from).ok().filter(|_| !is_uri(&source.from));
    if let Some(file) = of_file.filter(|file| file.size > 0 && file.size != size.0) {
        let problem = format!("{from} has {} bytes, which are no whole sectors of {sector}", file.size);
        return Err(Refusal::new(problem, "give a device, or the raw image of one: qemu-img convert -O raw"));
    }
    if size.0 == 0 || !size.0.is_multiple_of(u64::from(sector.max(512))) || sector > 4096 {
        let problem = format!("{from} has {} bytes in sectors of {sector}: no disk has such a size", size.0);
        return Err(Refusal::new(problem, "give a device, or the raw image of one: qemu-img convert -O raw"));
    }
    let new = NewImport {
        name: name.to_owned(),
        volume,
        setting: VolumeSetting::default(),
        source: source.encode(),
    };
    let device = PatientSource::new(world, source.clone(), size.0, Some(device));
    let begun = pool.begin_import(&new, Rc::new(device)).await;
    begun.map_err(|error| Refusal::new(error.to_string(), "").caused_by(folder::cause_of(&error)))
}

/// The result of an import, as the verbs print it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeImportAnswer {
    pub size_bytes: u64,
    /// Bytes that were read from the source and written since the pool was opened; zeroes are not.
    pub copied_bytes: u64,
    /// Bytes that were compared with the source, and are the same.
    pub compared_bytes: u64,
    /// Bytes that were read back in the pool alone, and have the checksums that they were copied with: the source was read once.
    #[serde(default)]
    pub read_back_bytes: u64,
    /// Bytes that hosts have written or discarded meanwhile.
    pub host_bytes: u64,
    /// Bytes that the source could not read, and that are zeroes now.
    pub bad_bytes: u64,
    /// The first ranges of them, in bytes of the volume.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bad: Vec<Range<u64>>,
    /// Bytes that changed in the source since they were copied, and stayed as copied.
    pub changed_bytes: u64,
    /// The first ranges of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changed: Vec<Range<u64>>,
}

impl VolumeImportAnswer {
    fn of(imported: ImportedVolume) -> Self {
        let ImportedVolume {
            size_bytes,
            copied_bytes,
            compared_bytes,
            read_back_bytes,
            host_bytes,
            findings,
        } = imported;
        Self {
            size_bytes,
            copied_bytes,
            compared_bytes,
            read_back_bytes,
            host_bytes,
            bad_bytes: findings.bad_bytes,
            bad: findings.bad,
            changed_bytes: findings.changed_bytes,
            changed: findings.changed,
        }
    }

    /// Of an import that was found to have ended.
    pub fn ended(size_bytes: u64) -> Self {
        Self::of(ImportedVolume { size_bytes, ..ImportedVolume::default() })
    }

    /// In words, for the volume at `path`.
    pub fn text(&self, path: &Path) -> String {
        let bytes = |bytes: u64| ByteCount(bytes).to_string();
        let mut text = format!(
            "{}: imported, {}; {} compared with the source, {} written by hosts meanwhile",
            path.display(),
            bytes(self.size_bytes),
            bytes(self.compared_bytes),
            bytes(self.host_bytes)
        );
        if self.read_back_bytes > 0 {
            let read_back = bytes(self.read_back_bytes);
            text += &format!(
                "; {read_back} read back in the pool alone, so a change in the source is not noticed"
            );
        }
        if self.bad_bytes > 0 {
            text += &format!("; {} could not be read and are zeroes", bytes(self.bad_bytes));
        }
        if self.changed_bytes > 0 {
            text +=
                &format!("; {} changed in the source and are as they were copied", bytes(self.changed_bytes));
        }
        text
    }
}

/// Copies and compares a volume that is being imported, to its end.
///
/// # Errors
///
/// As [`Pool::import`].
pub async fn run(
    pool: &Pool,
    volume: VolumeId,
    terms: ImportTerms,
    job: &Job,
) -> Result<VolumeImportAnswer, Error> {
    pool.import(volume, terms, job).await.map(VolumeImportAnswer::of)
}

/// The next step after an import that did not end.
pub fn remedy(error: &Error) -> &'static str {
    match error {
        Error::ImportIncomplete(_) => {
            "repair the source, or write these places from a host, and import again; or say ⟨skip-bad⟩: what cannot be read \
             is zeroes then, and what changed stays as it was copied"
        }
        _ => "the same command goes on; until it has ended, the volume needs its source",
    }
}
