//! All that can be read of a volume or a snapshot, copied to a file, and what could not be read named beside it.

use super::{
    damaged::{open_as, shown_wall},
    folder::{OpenReadOnlyPool, VolumePath, refusal},
    mapfile::{CopyStatus, Mapfile},
};
use crate::{console::Console, exit_status::ExitStatus, progress::ProgressView};
use array::volume::{Content, ReadOnlyVolume, Survey};
use report::Refusal;
use runs::observer::{ProgressDisplay, ProgressStatus};
use serde::Serialize;
use std::{
    cell::Cell,
    collections::VecDeque,
    path::{Path, PathBuf},
    rc::Rc,
    sync::Arc,
    time::Duration,
};
use world::{
    BlockDevice, Buffer, ByteCount, ByteOffset, IoErrorKind, Moment, Stability, World,
    real::{
        FileDevice,
        host::filesystem_of,
        host_files::{self, PathKind},
        signals::interrupted,
    },
};

/// Bytes that are read and written at once.
const CHUNK: u64 = 4 << 20;
/// Chunks that are read ahead.
const CHUNKS_AHEAD: usize = 4;
/// A file's size is a multiple of this while it is written.
const UNIT: u64 = 4096;
/// Between two looks at how far it is.
const GLANCE: Duration = Duration::from_millis(200);
/// Room of a filesystem that is left alone: for the map, and for others.
const SPARE: u64 = 16 << 20;
/// Ranges that are named in front of people; the map has all.
const RANGES_SHOWN: usize = 8;

#[derive(Serialize)]
struct SalvageAnswer<'a> {
    path: &'a Path,
    out: &'a Path,
    map: &'a Path,
    size_bytes: u64,
    /// Data that was read and is right.
    copied_bytes: u64,
    unreadable_bytes: u64,
    unreadable: Vec<(u64, u64)>,
    /// Not tried: it was ended early.
    not_tried_bytes: u64,
    /// True if the last writes may be missing.
    may_be_older: bool,
    checkpoint_written_at: String,
}

/// Copies `path`, a volume or a snapshot, to `out`.
pub async fn salvage(world: &World, path: &Path, out: &Path, json: bool) -> Result<ExitStatus, Refusal> {
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
    let console = Console::new(json, false);
    let condition = open.pool.condition();
    if !condition.is_whole() {
        console.say(&format!("{}: not whole", wanted.folder.display()));
        open_as(condition).iter().for_each(|line| console.say(&format!("  {line}")));
    }
    let progress = SalvageProgress::begin(world, &console);
    let survey = volume.survey(|done| progress.at("survey", done, volume.size_bytes())).await;
    check_room(out, &survey)?;
    let copied = copy(&volume, &survey, out, &progress).await;
    progress.end().await;
    let SalvageCopy { map: parts, bytes } = copied?;
    let comment = format!("Copy of {} by 'spindle pool salvage'", path.display());
    host_files::write_atomically(&map, parts.text(&comment).as_bytes()).map_err(|error| {
        Refusal::new(error.to_string(), format!("{} was copied as far as it could be read", out.display()))
    })?;
    // A snapshot that is known is as it was made: the log only goes on behind it.
    let may_be_older = wanted.snapshot.is_none() && condition.may_be_older();
    let answer = SalvageAnswer {
        path,
        out,
        map: &map,
        size_bytes: volume.size_bytes(),
        copied_bytes: bytes,
        unreadable_bytes: parts.bad().map(|range| range.end - range.start).sum(),
        unreadable: parts.bad().map(|range| (range.start, range.end - range.start)).collect(),
        not_tried_bytes: volume.size_bytes() - parts.done(),
        may_be_older,
        checkpoint_written_at: shown_wall(condition.written_at),
    };
    tell(&console, &answer, json)
}

fn tell(console: &Console, answer: &SalvageAnswer<'_>, json: bool) -> Result<ExitStatus, Refusal> {
    let SalvageAnswer { path, out, map, unreadable, .. } = answer;
    if json {
        console.json_of(answer)?;
    }
    let out = out.display();
    console.say(&format!(
        "{out}: {}, of which {} were copied from {}",
        ByteCount(answer.size_bytes),
        ByteCount(answer.copied_bytes),
        path.display()
    ));
    if answer.unreadable_bytes > 0 {
        let ranges = unreadable.iter().take(RANGES_SHOWN).map(|(at, length)| format!("{length} at {at}"));
        let mut ranges: Vec<_> = ranges.collect();
        if unreadable.len() > ranges.len() {
            ranges.push(format!("and {} more ranges", unreadable.len() - ranges.len()));
        }
        console.say(&format!(
            "  {} could not be read and are zero there: bytes {}; {} names all",
            ByteCount(answer.unreadable_bytes),
            ranges.join(", "),
            map.display()
        ));
    }
    if answer.may_be_older {
        console.say("  the last acknowledged writes may be missing here");
    }
    if answer.not_tried_bytes > 0 {
        let rest = ByteCount(answer.not_tried_bytes);
        return Err(Refusal::new(
            format!(
                "ended early: {rest} of {} were not copied, which {} names",
                path.display(),
                map.display()
            ),
            "remove both files and begin again",
        ));
    }
    let is_whole = answer.unreadable_bytes == 0 && !answer.may_be_older;
    if is_whole {
        console.say("  all of it could be read");
    }
    console.finish(if is_whole { ExitStatus::Pass } else { ExitStatus::Fail })
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

/// Refuses a filesystem that has no room for what there is to copy.
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
    /// Data that was read.
    bytes: u64,
}

/// Copies all that can be read to a new file, which gets its name when it is as far as it goes.
async fn copy(
    volume: &ReadOnlyVolume,
    survey: &VolumeSurvey,
    out: &Path,
    progress: &SalvageProgress,
) -> Result<SalvageCopy, Refusal> {
    let size = volume.size_bytes();
    let temporary = beside(out, ".part");
    check_is_new(&temporary)?;
    let made = FileDevice::create_sparse(&temporary, ByteCount(size.next_multiple_of(UNIT))).await;
    let file = made.map_err(|error| Refusal::new(error.to_string(), "give another OUT"))?;
    let copied = copy_chunks(volume, survey, &file, progress).await;
    let copied = match copied {
        Ok(copied) => file.flush().await.map(|()| copied),
        Err(error) => Err(error),
    };
    drop(file);
    let named = copied.and_then(|copied| host_files::name_new(&temporary, size, out).map(|()| copied));
    named.map_err(|error| {
        // The failure is the news; what was copied can be copied again.
        let _ = host_files::remove_file(&temporary);
        let remedy = match error.kind() {
            IoErrorKind::NoSpace => "make room, or give an OUT on another filesystem; nothing was left there",
            _ => "give an OUT on another filesystem; nothing was left there",
        };
        Refusal::new(error.to_string(), remedy)
    })
}

async fn copy_chunks(
    volume: &ReadOnlyVolume,
    survey: &VolumeSurvey,
    file: &FileDevice,
    progress: &SalvageProgress,
) -> world::IoResult<SalvageCopy> {
    let size = volume.size_bytes();
    let mut copied = SalvageCopy { map: Mapfile::new(size), bytes: 0 };
    let chunks = survey.regions.iter().flat_map(|region| {
        let starts = (region.start..region.end).step_by(CHUNK as usize);
        starts.map(|start| start..(start + CHUNK).min(region.end))
    });
    let mut chunks = chunks.map(|chunk| {
        let volume = volume.clone();
        progress.world.spawn("salvage read", async move { volume.parts(chunk).await })
    });
    let mut reads: VecDeque<_> = chunks.by_ref().take(CHUNKS_AHEAD).collect();
    let mut tried = 0;
    while let Some(read) = reads.pop_front() {
        let parts = read.await;
        reads.extend(chunks.next());
        for part in parts? {
            // Nothing was ever written in front of it.
            copied.map.add(part.range.start, CopyStatus::Finished);
            let status = match part.content {
                Content::Unreadable(_) => CopyStatus::BadSector,
                Content::Hole => CopyStatus::Finished,
                Content::Data(data) => {
                    copied.bytes += data.len() as u64;
                    let at = ByteOffset(part.range.start);
                    file.write(at, vec![Arc::new(padded(data))], Stability::Volatile).await?;
                    CopyStatus::Finished
                }
            };
            tried += part.range.end - part.range.start;
            copied.map.add(part.range.end, status);
        }
        progress.at("copy", tried, survey.region_bytes());
        if progress.is_interrupted() {
            return Ok(copied);
        }
    }
    copied.map.add(size, CopyStatus::Finished);
    Ok(copied)
}

/// Whole units: the end of a volume may lie within one.
fn padded(data: Buffer) -> Buffer {
    let length = data.len().next_multiple_of(UNIT as usize);
    if length == data.len() {
        return data;
    }
    let mut whole = Buffer::zeroed(length);
    whole[..data.len()].copy_from_slice(&data);
    whole
}

/// Bytes done of a phase, and its time.
#[derive(Clone, Copy)]
struct PhaseProgress {
    phase: &'static str,
    done: u64,
    all: u64,
    elapsed: Duration,
}

/// Progress display, and the flag that ends the copy early.
struct SalvageProgress {
    world: World,
    began: Cell<Moment>,
    progress: Rc<Cell<Option<PhaseProgress>>>,
    is_over: Rc<Cell<bool>>,
    is_interrupted: Rc<Cell<bool>>,
    drawing: world::JoinHandle<()>,
}

impl SalvageProgress {
    fn begin(world: &World, console: &Console) -> Self {
        let (is_interrupted, ended, said) = (Rc::<Cell<bool>>::default(), interrupted(), console.clone());
        let interrupting = Rc::clone(&is_interrupted);
        world.spawn("interrupted", async move {
            ended.await;
            said.say_progress("ending; Ctrl-C again ends it at once");
            interrupting.set(true);
        });
        let (is_over, progress) = (Rc::<Cell<bool>>::default(), Rc::<Cell<Option<_>>>::default());
        let mut view = ProgressView::new(console);
        let began = world.now();
        let (over, looked, shown) = (Rc::clone(&is_over), world.clone(), Rc::clone(&progress));
        let drawing = world.spawn("progress", async move {
            while !over.get() {
                let status = shown.get().map(status_of);
                view.tell(looked.now().since(began), status.as_ref(), &[]);
                looked.sleep(GLANCE).await;
            }
            view.tell(looked.now().since(began), None, &[]);
        });
        Self { world: world.clone(), began: Cell::new(began), progress, is_over, is_interrupted, drawing }
    }

    /// A phase has come so far.
    fn at(&self, phase: &'static str, done: u64, all: u64) {
        if self.progress.get().is_none_or(|known| known.phase != phase) {
            self.began.set(self.world.now());
        }
        let elapsed = self.world.now().since(self.began.get());
        self.progress.set(Some(PhaseProgress { phase, done, all, elapsed }));
    }

    fn is_interrupted(&self) -> bool {
        self.is_interrupted.get()
    }

    async fn end(self) {
        self.is_over.set(true);
        self.drawing.await;
    }
}

fn status_of(progress: PhaseProgress) -> ProgressStatus {
    ProgressStatus::of_bytes(progress.phase, progress.done, progress.all, progress.elapsed)
}
