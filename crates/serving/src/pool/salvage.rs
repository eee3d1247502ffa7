//! Salvage: copies all readable data of a volume or a snapshot to a file, and maps the unreadable ranges.

use super::{
    damaged::shown_wall,
    folder::{OpenReadOnlyPool, VolumePath, refusal},
    mapfile::{CopyStatus, Mapfile},
};
use array::pool::{Condition, PartContent, ReadOnlyVolume, VolumeSurvey};
use report::Refusal;
use serde::Serialize;
use std::{
    collections::VecDeque,
    path::{Path, PathBuf},
    sync::Arc,
};
use world::{
    BlockDevice, Buffer, ByteCount, ByteOffset, IoErrorKind, Stability, World,
    real::{
        FileDevice,
        host::filesystem_of,
        host_files::{self, PathKind},
    },
};

const CHUNK: u64 = 4 << 20;
const CHUNKS_AHEAD: usize = 4;
/// A file's size is a multiple of this while it is written.
const UNIT: u64 = 4096;
/// Room left free on the filesystem: for the map, and for others.
const SPARE: u64 = 16 << 20;

#[derive(Serialize)]
pub struct SalvageAnswer<'a> {
    pub path: &'a Path,
    pub out: &'a Path,
    pub map: &'a Path,
    pub size_bytes: u64,
    /// Bytes read correctly.
    pub copied_bytes: u64,
    pub unreadable_bytes: u64,
    pub unreadable: Vec<(u64, u64)>,
    /// Bytes not tried because the copy was ended early.
    pub not_tried_bytes: u64,
    /// True if the last writes may be missing.
    pub may_be_older: bool,
    pub checkpoint_written_at: String,
}

/// Shows the progress of a salvage, and ends it early.
pub trait SalvageObserver {
    /// The phase has done so many bytes of `all`.
    fn at(&self, phase: &'static str, done: u64, all: u64);

    fn is_interrupted(&self) -> bool;
}

/// A volume or a snapshot that is to be copied, with its pool open for reading.
pub struct Salvage<'a> {
    path: &'a Path,
    out: &'a Path,
    map: PathBuf,
    wanted: VolumePath,
    open: OpenReadOnlyPool,
    volume: ReadOnlyVolume,
}

impl<'a> Salvage<'a> {
    /// Opens `path` to be copied to `out`; refuses files that exist.
    pub async fn open(world: &World, path: &'a Path, out: &'a Path) -> Result<Self, Refusal> {
        let wanted = VolumePath::of(path).ok_or_else(|| {
            Refusal::new(format!("{} names no volume of a pool", path.display()), "say POOL/VOLUME")
        })?;
        let map = beside(out, ".map");
        check_is_new(out)?;
        check_is_new(&map)?;
        let open = OpenReadOnlyPool::open(world, &wanted.folder).await?;
        let volume = match &wanted.snapshot {
            Some(snapshot) => open.pool.snapshot(&wanted.volume, snapshot),
            None => open.pool.volume(&wanted.volume),
        };
        let volume = volume.map_err(|error| {
            let pool = wanted.folder.display();
            refusal(&wanted.folder, &error, &format!("'spindle pool show {pool}' says which can be read"))
        })?;
        Ok(Self { path, out, map, wanted, open, volume })
    }

    pub fn folder(&self) -> &Path {
        &self.wanted.folder
    }

    pub fn condition(&self) -> &Condition {
        self.open.pool.condition()
    }

    /// Copies all that can be read, and writes the map of what could not.
    pub async fn copy(
        &self,
        world: &World,
        observer: &dyn SalvageObserver,
    ) -> Result<SalvageAnswer<'_>, Refusal> {
        let Self { path, out, map, volume, .. } = self;
        let survey = volume.survey(|done| observer.at("survey", done, volume.size_bytes())).await;
        check_room(out, &survey)?;
        let SalvageCopy { map: parts, bytes } = copy(world, volume, &survey, out, observer).await?;
        let comment = format!("Copy of {} by 'spindle pool salvage'", path.display());
        host_files::write_atomically(map, parts.text(&comment).as_bytes()).map_err(|error| {
            let remedy = format!("{} was copied as far as it could be read", out.display());
            Refusal::new(error.to_string(), remedy)
        })?;
        let condition = self.condition();
        Ok(SalvageAnswer {
            path,
            out,
            map,
            size_bytes: volume.size_bytes(),
            copied_bytes: bytes,
            unreadable_bytes: parts.bad().map(|range| range.end - range.start).sum(),
            unreadable: parts.bad().map(|range| (range.start, range.end - range.start)).collect(),
            not_tried_bytes: volume.size_bytes() - parts.done(),
            // An existing snapshot is complete: missing log records only follow it.
            may_be_older: self.wanted.snapshot.is_none() && condition.may_be_older(),
            checkpoint_written_at: shown_wall(condition.written_at),
        })
    }
}

fn beside(out: &Path, suffix: &str) -> PathBuf {
    let mut name = out.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn check_is_new(path: &Path) -> Result<(), Refusal> {
    match host_files::kind(path).map_err(|error| Refusal::new(error.to_string(), "give another OUT"))? {
        PathKind::Missing => Ok(()),
        _ => Err(Refusal::new(
            format!("{} exists already, and nothing is overwritten", path.display()),
            "give another OUT",
        )),
    }
}

/// Refuses a filesystem without room for the data.
fn check_room(out: &Path, survey: &VolumeSurvey) -> Result<(), Refusal> {
    let folder = match out.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let free =
        filesystem_of(folder).map_err(|error| Refusal::new(error.to_string(), "give another OUT"))?.free;
    let needed = survey.data_bytes - survey.unreadable_bytes();
    if needed + SPARE <= free.0 {
        return Ok(());
    }
    Err(Refusal::new(
        format!("no room for {}: {} are to be copied, and {free} are free", out.display(), ByteCount(needed)),
        "give an OUT on another filesystem, not on one that holds the pool's drives",
    ))
}

struct SalvageCopy {
    map: Mapfile,
    bytes: u64,
}

/// Copies all readable data to a new file, which gets its name at the end.
async fn copy(
    world: &World,
    volume: &ReadOnlyVolume,
    survey: &VolumeSurvey,
    out: &Path,
    observer: &dyn SalvageObserver,
) -> Result<SalvageCopy, Refusal> {
    let size = volume.size_bytes();
    let temporary = beside(out, ".part");
    check_is_new(&temporary)?;
    let made = FileDevice::create_sparse(&temporary, ByteCount(size.next_multiple_of(UNIT))).await;
    let file = made.map_err(|error| Refusal::new(error.to_string(), "give another OUT"))?;
    let copied = copy_chunks(world, volume, survey, &file, observer).await;
    let copied = match copied {
        Ok(copied) => file.flush().await.map(|()| copied),
        Err(error) => Err(error),
    };
    drop(file);
    let named = copied.and_then(|copied| host_files::name_new(&temporary, size, out).map(|()| copied));
    named.map_err(|error| {
        // The failure is reported; the data can be copied again.
        let _ = host_files::remove_file(&temporary);
        let remedy = match error.kind() {
            IoErrorKind::NoSpace => "make room, or give an OUT on another filesystem; nothing was left there",
            _ => "give an OUT on another filesystem; nothing was left there",
        };
        Refusal::new(error.to_string(), remedy)
    })
}

async fn copy_chunks(
    world: &World,
    volume: &ReadOnlyVolume,
    survey: &VolumeSurvey,
    file: &FileDevice,
    observer: &dyn SalvageObserver,
) -> world::IoResult<SalvageCopy> {
    let size = volume.size_bytes();
    let mut copied = SalvageCopy { map: Mapfile::new(size), bytes: 0 };
    let chunks = survey.regions.iter().flat_map(|region| {
        let starts = (region.start..region.end).step_by(CHUNK as usize);
        starts.map(|start| start..(start + CHUNK).min(region.end))
    });
    let mut chunks = chunks.map(|chunk| {
        let volume = volume.clone();
        world.spawn("salvage read", async move { volume.parts(chunk).await })
    });
    let mut reads: VecDeque<_> = chunks.by_ref().take(CHUNKS_AHEAD).collect();
    let mut tried = 0;
    while let Some(read) = reads.pop_front() {
        let parts = read.await;
        reads.extend(chunks.next());
        for part in parts? {
            // Nothing was ever written before it.
            copied.map.add(part.range.start, CopyStatus::Finished);
            let status = match part.content {
                PartContent::Unreadable(_) => CopyStatus::BadSector,
                PartContent::Hole => CopyStatus::Finished,
                PartContent::Data(data) => {
                    copied.bytes += data.len() as u64;
                    let at = ByteOffset(part.range.start);
                    file.write(at, vec![Arc::new(padded(data))], Stability::Volatile).await?;
                    CopyStatus::Finished
                }
            };
            tried += part.range.end - part.range.start;
            copied.map.add(part.range.end, status);
        }
        observer.at("copy", tried, survey.region_bytes());
        if observer.is_interrupted() {
            return Ok(copied);
        }
    }
    copied.map.add(size, CopyStatus::Finished);
    Ok(copied)
}

/// Pads data to whole units: the end of a volume may lie within one.
fn padded(data: Buffer) -> Buffer {
    let length = data.len().next_multiple_of(UNIT as usize);
    if length == data.len() {
        return data;
    }
    let mut whole = Buffer::zeroed(length);
    whole[..data.len()].copy_from_slice(&data);
    whole
}
