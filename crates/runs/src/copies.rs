//! Making and restoring pristine copies. [`super::pristine`] says why it is crash-safe.
//!
//! Where the filesystem can share blocks between files (FICLONE: btrfs, xfs), a copy takes no time and,
//! at first, no space; elsewhere it is read and written. Either way every byte of it is read once for its
//! checksum, and once more before it is put back.

use crate::{
    manifest::{MANIFEST_NAME, MANIFEST_NEXT, Manifest},
    observer::{ProgressDisplay, ProgressStatus, RunObserver},
    pristine::{CopiedFile, Pristine, PristineState, copy_of, original_of},
    storage_endpoint::StorageEndpoint,
    survey::StorageSurvey,
};
use report::Refusal;
use std::{path::Path, rc::Rc, sync::Arc};
use world::{
    Buffer, ByteCount, ByteOffset, Cancellation, Crc32c, Directory, File, IoError, IoErrorKind, IoResult,
    Job, Moment, Stability, World, real::FolderDirectory,
};

/// Bytes read or written at once.
const CHUNK: u64 = 4 << 20;

/// One location with its record and its files open.
struct OpenLocation<'a> {
    given: &'a Path,
    endpoint: StorageEndpoint,
    manifest: Manifest,
    directory: Rc<dyn Directory>,
}

/// Progress of copying.
struct CopyProgress<'a> {
    world: &'a World,
    display: Box<dyn ProgressDisplay>,
    job: Job,
    began: Moment,
    what: &'static str,
}

enum Failure {
    Stopped,
    Io(IoError),
}

impl From<IoError> for Failure {
    fn from(error: IoError) -> Self {
        Self::Io(error)
    }
}

/// Copies every file of the run, which was shut down cleanly.
pub async fn keep(
    world: &World,
    survey: &StorageSurvey,
    observer: &dyn RunObserver,
    stop: &Cancellation,
) -> Result<(), Refusal> {
    let mut locations = open_all(world, survey).await?;
    let mut jobs = Vec::new();
    for location in &locations {
        jobs.push(files_of(location).await.map_err(|error| refused(location, &error))?);
    }
    let all = jobs.iter().flatten().map(|(_, size)| size.0).sum();
    let mut work = CopyProgress::new(world, observer, stop, "copy", all);
    for (location, files) in locations.iter_mut().zip(&jobs) {
        let copied = copy_files(location, files, &mut work).await;
        let files = copied
            .map_err(|failure| cut_short(location, failure, "the next run with ⟨keep-pristine⟩ goes on"))?;
        location.manifest.pristine = Some(Pristine { state: PristineState::Keeping, files });
    }
    mark(&mut locations, PristineState::Kept).await
}

/// Replaces the databases by the copies.
pub async fn restore(
    world: &World,
    survey: &StorageSurvey,
    observer: &dyn RunObserver,
    stop: &Cancellation,
) -> Result<(), Refusal> {
    let mut locations = open_all(world, survey).await?;
    let all = locations.iter().flat_map(OpenLocation::copies).map(|file| file.bytes).sum();
    let mut work = CopyProgress::new(world, observer, stop, "check", all);
    // Nothing is touched before every copy was read and found complete.
    for location in &locations {
        for file in location.copies() {
            check(location, file, &mut work).await?;
        }
    }
    drop(work);
    mark(&mut locations, PristineState::Restoring).await?;
    let mut work = CopyProgress::new(world, observer, stop, "restore", all);
    for location in &locations {
        let put_back = put_back(location, &mut work).await;
        put_back.map_err(|failure| cut_short(location, failure, "give ⟨restore⟩ to do it again"))?;
    }
    mark(&mut locations, PristineState::Kept).await
}

/// Removes unfinished copies, and records that there are none.
pub async fn forget(world: &World, survey: &StorageSurvey) -> Result<(), Refusal> {
    for mut location in open_all(world, survey).await? {
        let forgotten = async {
            for entry in location.directory.list().await? {
                if original_of(&entry.name).is_some() && location.manifest.owns(&entry.name) {
                    location.directory.remove(&entry.name).await?;
                }
            }
            location.directory.sync().await
        };
        forgotten.await.map_err(|error| refused(&location, &error))?;
        location.manifest.pristine = None;
        location.write_record().await?;
    }
    Ok(())
}

async fn open_all<'a>(world: &World, survey: &'a StorageSurvey) -> Result<Vec<OpenLocation<'a>>, Refusal> {
    let mut locations = Vec::new();
    for location in &survey.locations.all {
        let given = location.given.as_path();
        let endpoint = StorageEndpoint::of(&location.facts);
        let opened = async {
            let manifest = endpoint.read_manifest(world).await?;
            Ok::<_, IoError>((manifest, endpoint.open(world).await?))
        };
        let failed = |what: String| Refusal::new(format!("{}: {what}", given.display()), "check the storage");
        let (manifest, directory) = opened.await.map_err(|error| failed(error.to_string()))?;
        let manifest = match manifest {
            Some(Ok(manifest)) => manifest,
            Some(Err(damage)) => {
                return Err(failed(format!("the record of the run cannot be read: {damage}")));
            }
            None => return Err(failed("the record of the run is gone".to_owned())),
        };
        locations.push(OpenLocation { given, endpoint, manifest, directory });
    }
    Ok(locations)
}

impl OpenLocation<'_> {
    fn copies(&self) -> &[CopiedFile] {
        self.manifest.pristine.as_ref().map_or(&[], |pristine| &pristine.files)
    }

    async fn write_record(&self) -> Result<(), Refusal> {
        let written = self.endpoint.write_record_in(&self.directory, &self.manifest).await;
        written.map_err(|error| refused(self, &error))
    }
}

/// Records the state of the copies at every location.
async fn mark(locations: &mut [OpenLocation<'_>], state: PristineState) -> Result<(), Refusal> {
    for location in locations {
        let pristine = location.manifest.pristine.get_or_insert_with(Pristine::keeping);
        pristine.state = state;
        location.write_record().await?;
    }
    Ok(())
}

fn refused(location: &OpenLocation<'_>, error: &IoError) -> Refusal {
    Refusal::new(format!("{}: {error}", location.given.display()), "check the storage and try again")
}

fn cut_short(location: &OpenLocation<'_>, failure: Failure, remedy: &str) -> Refusal {
    match failure {
        Failure::Stopped => Refusal::new("ended before all pristine files were copied", remedy),
        Failure::Io(error) if error.kind() == IoErrorKind::NoSpace => {
            Refusal::new(format!("{}: {error}", location.given.display()), format!("make room; {remedy}"))
        }
        Failure::Io(error) => Refusal::new(format!("{}: {error}", location.given.display()), remedy),
    }
}

/// The originals there, with their sizes.
async fn files_of(location: &OpenLocation<'_>) -> IoResult<Vec<(String, ByteCount)>> {
    let entries = location.directory.list().await?.into_iter();
    let is_original = |name: &str| {
        location.manifest.owns(name)
            && original_of(name).is_none()
            && ![MANIFEST_NAME, MANIFEST_NEXT].contains(&name)
    };
    Ok(entries.filter(|entry| is_original(&entry.name)).map(|entry| (entry.name, entry.size)).collect())
}

async fn copy_files(
    location: &OpenLocation<'_>,
    files: &[(String, ByteCount)],
    work: &mut CopyProgress<'_>,
) -> Result<Vec<CopiedFile>, Failure> {
    let mut copied = Vec::new();
    for (name, _) in files {
        copied.push(copy(location, name, &copy_of(name), work).await?);
    }
    location.directory.sync().await?;
    for file in &mut copied {
        file.name = original_of(&file.name).expect("it was named as a copy").to_owned();
    }
    Ok(copied)
}

/// Removes the originals and makes them again from the copies.
async fn put_back(location: &OpenLocation<'_>, work: &mut CopyProgress<'_>) -> Result<(), Failure> {
    for (name, _) in files_of(location).await? {
        location.directory.remove(&name).await?;
    }
    location.directory.sync().await?;
    for file in location.copies() {
        let made = copy(location, &copy_of(&file.name), &file.name, work).await?;
        if made != *file {
            let context = format!("the pristine copy of {} changed while it was put back", file.name);
            return Err(IoError::new(IoErrorKind::Damaged, context).into());
        }
    }
    Ok(location.directory.sync().await?)
}

/// Makes `to` a copy of `from`, stable except for its name; the returned entry is named `to`.
async fn copy(
    location: &OpenLocation<'_>,
    from: &str,
    to: &str,
    work: &mut CopyProgress<'_>,
) -> Result<CopiedFile, Failure> {
    match location.directory.remove(to).await {
        Err(error) if error.kind() != IoErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    let source = location.directory.open(from).await?;
    let bytes = source.geometry().size.0;
    let target = if shares_blocks(location, from, to).await? {
        None
    } else {
        Some(location.directory.create(to, ByteCount(bytes)).await?)
    };
    let checksum = read_through(&source, target.as_ref(), work).await?;
    match &target {
        Some(target) => target.flush().await?,
        None => location.directory.open(to).await?.flush().await?,
    }
    Ok(CopiedFile { name: to.to_owned(), bytes, checksum })
}

async fn shares_blocks(location: &OpenLocation<'_>, from: &str, to: &str) -> IoResult<bool> {
    if location.endpoint.is_device {
        Ok(false)
    } else {
        FolderDirectory::open(&location.endpoint.path)?.clone_file(from, to).await
    }
}

/// Reads all of `source`, writes it to `target` if there is one, and returns its checksum.
async fn read_through(
    source: &Rc<dyn File>,
    target: Option<&Rc<dyn File>>,
    work: &mut CopyProgress<'_>,
) -> Result<u32, Failure> {
    let bytes = source.geometry().size.0;
    let (mut checksum, mut at) = (Crc32c::default(), 0);
    while at < bytes {
        let length = CHUNK.min(bytes - at);
        let mut buffers = source.read(ByteOffset(at), vec![Buffer::zeroed(length as usize)]).await?;
        let buffer = buffers.pop().expect("a read gives back the buffers it was given");
        checksum.update(&buffer);
        if let Some(target) = target {
            target.write(ByteOffset(at), vec![Arc::new(buffer)], Stability::Volatile).await?;
        }
        at += length;
        work.go_on(length)?;
    }
    Ok(checksum.value())
}

/// Reads a copy and compares it with its record.
async fn check(
    location: &OpenLocation<'_>,
    file: &CopiedFile,
    work: &mut CopyProgress<'_>,
) -> Result<(), Refusal> {
    let name = copy_of(&file.name);
    let found = async {
        let copy = location.directory.open(&name).await?;
        let bytes = copy.geometry().size.0;
        Ok::<_, Failure>((bytes, read_through(&copy, None, work).await?))
    };
    let problem = match found.await {
        Ok(found) if found == (file.bytes, file.checksum) => return Ok(()),
        Ok((bytes, _)) if bytes != file.bytes => {
            format!("it has {}, and had {}", ByteCount(bytes), ByteCount(file.bytes))
        }
        Ok(_) => "it is not what was copied".to_owned(),
        Err(Failure::Stopped) => return Err(Refusal::new("ended before anything was restored", "")),
        Err(Failure::Io(error)) => error.to_string(),
    };
    Err(Refusal::new(
        format!("the pristine copy {} is damaged: {problem}", location.given.join(&name).display()),
        "nothing was restored; ⟨fresh⟩ ⟨keep-pristine⟩ makes new ones",
    ))
}

impl<'a> CopyProgress<'a> {
    fn new(
        world: &'a World,
        observer: &dyn RunObserver,
        stop: &Cancellation,
        what: &'static str,
        all: u64,
    ) -> Self {
        let job = Job::under_way(world).cancelled_by(stop);
        job.add_total(all);
        Self { world, display: observer.progress(), job, began: world.now(), what }
    }

    /// Reports so many more bytes done; `Stopped` if the user ended the run.
    fn go_on(&mut self, bytes: u64) -> Result<(), Failure> {
        self.job.advance(bytes);
        let elapsed = self.world.now().since(self.began);
        let status = ProgressStatus::of_job(self.what, &self.job.progress(), elapsed);
        self.display.tell(elapsed, Some(&status), &[]);
        if self.job.is_cancelled() { Err(Failure::Stopped) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;
    use world::{
        extent_directory::ExtentDirectory,
        real::{self, AccessMode, FileDevice, RealOptions, host_files},
    };

    /// Databases and logs as a creation may leave them, all of different sizes.
    fn originals() -> Vec<(&'static str, Vec<u8>)> {
        let bytes = |seed: usize, length: usize| (0..length).map(|i| ((i * seed) >> 7) as u8).collect();
        vec![
            ("E00.chk", bytes(3, 4096)),
            ("E00.log", bytes(5, 1 << 20)),
            ("sg1-db1.edb", bytes(7, (9 << 20) + 4096)),
        ]
    }

    async fn write(directory: &Rc<dyn Directory>, name: &str, bytes: &[u8]) {
        let file = directory.create(name, ByteCount(bytes.len() as u64)).await.expect("made");
        let buffer = Arc::new(Buffer::copy_of(bytes));
        file.write(ByteOffset(0), vec![buffer], Stability::Stable).await.expect("written");
    }

    async fn read_all(directory: &Rc<dyn Directory>) -> Vec<(String, Vec<u8>)> {
        let mut all = Vec::new();
        for entry in directory.list().await.expect("listed") {
            let file = directory.open(&entry.name).await.expect("opened");
            let read = file.read(ByteOffset(0), vec![Buffer::zeroed(entry.size.0 as usize)]).await;
            all.push((entry.name, read.expect("read")[0].to_vec()));
        }
        all.sort();
        all
    }

    /// Keeps copies, changes the originals, restores the copies: everything is as before.
    async fn check(world: &World, endpoint: StorageEndpoint, directory: Rc<dyn Directory>) {
        for (name, bytes) in originals() {
            write(&directory, name, &bytes).await;
        }
        let manifest = Manifest {
            databases: vec!["sg1-db1.edb".to_owned()],
            log_series: vec!["E00".to_owned()],
            pristine: Some(Pristine::keeping()),
            ..Manifest::default()
        };
        let mut location = OpenLocation { given: Path::new("/mnt/db"), endpoint, manifest, directory };
        let (observer, stop) = (crate::observer::tests::Silent, Cancellation::default());
        let mut work = CopyProgress::new(world, &observer, &stop, "copy", 1);
        let files = files_of(&location).await.expect("listed");
        assert_eq!(files.len(), 3, "{files:?}");
        let Ok(files) = copy_files(&location, &files, &mut work).await else { panic!("copied") };
        location.manifest.pristine = Some(Pristine { state: PristineState::Kept, files });
        let kept = read_all(&location.directory).await;

        location.directory.remove("E00.chk").await.expect("removed");
        location.directory.remove("sg1-db1.edb").await.expect("removed");
        write(&location.directory, "sg1-db1.edb", &[9; 1 << 20]).await;
        write(&location.directory, "E0000000001.log", &[9; 1 << 16]).await;
        let Ok(()) = put_back(&location, &mut work).await else { panic!("put back") };
        assert_eq!(read_all(&location.directory).await, kept, "as after creation, copies and all");
        for (name, bytes) in originals() {
            assert!(kept.contains(&(name.to_owned(), bytes.clone())), "{name}");
            assert!(kept.contains(&(copy_of(name), bytes)), "{name}");
        }
        for file in location.copies() {
            super::check(&location, file, &mut work).await.expect("whole");
        }
        let other = location.copies()[2].clone();
        let other = CopiedFile { checksum: other.checksum ^ 1, ..other };
        let refusal = super::check(&location, &other, &mut work).await.expect_err("damaged");
        assert!(refusal.to_string().contains("sg1-db1.edb.pristine is damaged: it is not what was copied"));
    }

    #[test]
    fn what_is_put_back_into_a_folder_is_what_was_copied() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path: PathBuf = folder.path().to_owned();
        real::run(0, RealOptions::default(), async |world| {
            let endpoint = StorageEndpoint::folder(&path);
            let directory = endpoint.open(&world).await.expect("opened");
            check(&world, endpoint, directory).await;
        });
    }

    #[test]
    fn what_is_put_back_onto_a_raw_device_is_what_was_copied() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let image = folder.path().join("device");
        host_files::write_atomically(&image, &vec![0; 64 << 20]).expect("an image");
        real::run(0, RealOptions::default(), async |world| {
            let device = Rc::new(FileDevice::open(&image, AccessMode::ReadWrite).expect("opened"));
            let directory: Rc<dyn Directory> =
                Rc::new(ExtentDirectory::format(device).await.expect("formatted"));
            let endpoint = StorageEndpoint::device(&image);
            check(&world, endpoint, directory).await;
        });
    }
}
