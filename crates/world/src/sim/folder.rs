//! A folder of files in memory that loses power, without a drive below it.
//!
//! A power cut keeps any subset of the 512-byte sectors of each unstable write, and any consistent subset, in
//! order, of the name changes since the last sync. A [`SimDrive`](super::SimDrive) models service times and
//! faults as well; this folder is for tests that run thousands of power cuts, and for those that lose names.

use crate::{
    BlockDevice, Buffer, ByteCount, ByteOffset, Directory, DirectoryEntry, File, Geometry, IoError,
    IoErrorKind, IoResult, LocalFuture, Random, Resizable, Stability, World,
};
use std::{cell::RefCell, collections::BTreeMap, rc::Rc, sync::Arc, time::Duration};

/// Time that every operation takes in a world with virtual time.
const LATENCY: Duration = Duration::from_micros(100);
const SECTOR: usize = 512;

/// File contents and names, which survive their world. Clones share them.
#[derive(Clone, Default)]
pub struct SimFolder(Rc<RefCell<DiskState>>);

#[derive(Default)]
struct DiskState {
    files: Vec<FileState>,
    names: BTreeMap<String, usize>,
    stable_names: BTreeMap<String, usize>,
    changes: Vec<NameChange>,
    /// Remaining writes that succeed; `None` = all.
    writes_left: Option<u64>,
}

#[derive(Clone)]
struct FileState {
    content: Vec<u8>,
    stable: Vec<u8>,
    /// Sectors written and not yet stable, oldest first.
    unstable: Vec<(usize, [u8; SECTOR])>,
}

#[derive(Clone)]
enum NameChange {
    Set(String, usize),
    Rename(String, String),
    Remove(String),
}

impl NameChange {
    fn apply(&self, names: &mut BTreeMap<String, usize>) {
        match self {
            Self::Set(name, file) => drop(names.insert(name.clone(), *file)),
            // After a power cut the name may be missing: an earlier change was lost.
            Self::Rename(from, to) => {
                if let Some(file) = names.remove(from) {
                    names.insert(to.clone(), file);
                }
            }
            Self::Remove(name) => drop(names.remove(name)),
        }
    }
}

impl SimFolder {
    /// The folder in `world`, whose clock completes its operations.
    pub fn directory(&self, world: &World) -> Rc<dyn Directory> {
        Rc::new(FolderHandle { folder: self.clone(), world: world.clone() })
    }

    /// Cuts the power: unstable writes and name changes survive in part.
    pub fn cut_power(&self, random: &mut Random) {
        let mut disk = self.0.borrow_mut();
        // Some power cuts lose everything, some nothing, most something.
        let percent = [0.0, 20.0, 50.0, 80.0, 100.0][random.below(5) as usize];
        for file in &mut disk.files {
            for (sector, bytes) in std::mem::take(&mut file.unstable) {
                if random.percent(percent) {
                    file.stable[sector * SECTOR..][..SECTOR].copy_from_slice(&bytes);
                }
            }
            file.content = file.stable.clone();
        }
        let mut names = std::mem::take(&mut disk.stable_names);
        for change in std::mem::take(&mut disk.changes) {
            if random.percent(percent) {
                change.apply(&mut names);
            }
        }
        disk.names = names.clone();
        disk.stable_names = names;
    }

    /// Lets `count` more writes succeed.
    pub fn fail_after(&self, count: u64) {
        self.0.borrow_mut().writes_left = Some(count);
    }

    /// Names of all files, ascending.
    pub fn names(&self) -> Vec<String> {
        self.0.borrow().names.keys().cloned().collect()
    }

    /// Bytes of a file. Panics if it does not exist.
    pub fn length(&self, name: &str) -> usize {
        let disk = self.0.borrow();
        disk.files[disk.names[name]].content.len()
    }

    /// Changes the bytes of a file, as damage would. Panics if it does not exist.
    pub fn edit(&self, name: &str, change: impl FnOnce(&mut [u8])) {
        let mut disk = self.0.borrow_mut();
        let number = disk.names[name];
        change(&mut disk.files[number].content);
    }

    /// Renames a file, stable at once. Panics if it does not exist.
    pub fn rename(&self, from: &str, to: &str) {
        let mut disk = self.0.borrow_mut();
        let file = disk.names.remove(from).expect("the file exists");
        disk.names.insert(to.to_owned(), file);
        disk.stable_names = disk.names.clone();
    }

    /// An independent copy.
    pub fn copy(&self) -> Self {
        let disk = self.0.borrow();
        Self(Rc::new(RefCell::new(DiskState {
            files: disk.files.clone(),
            names: disk.names.clone(),
            stable_names: disk.stable_names.clone(),
            changes: disk.changes.clone(),
            writes_left: None,
        })))
    }
}

struct FolderHandle {
    folder: SimFolder,
    world: World,
}

impl FolderHandle {
    fn later<T: 'static>(&self, outcome: T) -> LocalFuture<T> {
        let pause = self.world.sleep(LATENCY);
        Box::pin(async move {
            pause.await;
            outcome
        })
    }

    fn file(&self, number: usize) -> Rc<dyn File> {
        Rc::new(FileHandle { folder: self.folder.clone(), world: self.world.clone(), number })
    }

    fn change(&self, change: NameChange) {
        let mut disk = self.folder.0.borrow_mut();
        change.apply(&mut disk.names);
        disk.changes.push(change);
    }

    fn find(&self, name: &str) -> IoResult<usize> {
        let disk = self.folder.0.borrow();
        disk.names.get(name).copied().ok_or_else(|| IoError::new(IoErrorKind::NotFound, name))
    }
}

impl Directory for FolderHandle {
    fn describe(&self) -> String {
        "memory".to_owned()
    }

    fn list(&self) -> LocalFuture<IoResult<Vec<DirectoryEntry>>> {
        let disk = self.folder.0.borrow();
        let entry = |(name, &file): (&String, &usize)| DirectoryEntry {
            name: name.clone(),
            size: ByteCount(disk.files[file].content.len() as u64),
        };
        self.later(Ok(disk.names.iter().map(entry).collect()))
    }

    fn open(&self, name: &str) -> LocalFuture<IoResult<Rc<dyn File>>> {
        self.later(self.find(name).map(|number| self.file(number)))
    }

    fn create(&self, name: &str, size: ByteCount) -> LocalFuture<IoResult<Rc<dyn File>>> {
        if self.find(name).is_ok() {
            return self.later(Err(IoError::new(IoErrorKind::AlreadyExists, name)));
        }
        let number = {
            let mut disk = self.folder.0.borrow_mut();
            let content = vec![0; size.0 as usize];
            disk.files.push(FileState { stable: content.clone(), content, unstable: Vec::new() });
            disk.files.len() - 1
        };
        self.change(NameChange::Set(name.to_owned(), number));
        self.later(Ok(self.file(number)))
    }

    fn rename(&self, from: &str, to: &str) -> LocalFuture<IoResult<()>> {
        let found = self.find(from);
        if found.is_ok() {
            self.change(NameChange::Rename(from.to_owned(), to.to_owned()));
        }
        self.later(found.map(|_| ()))
    }

    fn remove(&self, name: &str) -> LocalFuture<IoResult<()>> {
        let found = self.find(name);
        if found.is_ok() {
            self.change(NameChange::Remove(name.to_owned()));
        }
        self.later(found.map(|_| ()))
    }

    fn sync(&self) -> LocalFuture<IoResult<()>> {
        // The sync covers only changes made before it started.
        let count = self.folder.0.borrow().changes.len();
        let (pause, disk) = (self.world.sleep(LATENCY), self.folder.clone());
        Box::pin(async move {
            pause.await;
            let mut disk = disk.0.borrow_mut();
            let count = count.min(disk.changes.len());
            let changes: Vec<NameChange> = disk.changes.drain(..count).collect();
            changes.iter().for_each(|change| change.apply(&mut disk.stable_names));
            Ok(())
        })
    }

    fn free(&self) -> LocalFuture<IoResult<ByteCount>> {
        self.later(Ok(ByteCount::gib(1)))
    }
}

struct FileHandle {
    folder: SimFolder,
    world: World,
    number: usize,
}

impl BlockDevice for FileHandle {
    fn geometry(&self) -> Geometry {
        let size = self.folder.0.borrow().files[self.number].content.len() as u64;
        Geometry { size: ByteCount(size), sector: SECTOR as u32 }
    }

    fn read(&self, at: ByteOffset, mut into: Vec<Buffer>) -> LocalFuture<IoResult<Vec<Buffer>>> {
        let (pause, disk, number) = (self.world.sleep(LATENCY), self.folder.clone(), self.number);
        Box::pin(async move {
            pause.await;
            let disk = disk.0.borrow();
            let mut at = at.0 as usize;
            for buffer in &mut into {
                let length = buffer.len();
                buffer.copy_from_slice(&disk.files[number].content[at..at + length]);
                at += length;
            }
            Ok(into)
        })
    }

    fn write(
        &self,
        at: ByteOffset,
        from: Vec<Arc<Buffer>>,
        stability: Stability,
    ) -> LocalFuture<IoResult<()>> {
        let mut disk = self.folder.0.borrow_mut();
        let fails = disk.writes_left == Some(0);
        disk.writes_left = disk.writes_left.map(|left| left.saturating_sub(1));
        let file = &mut disk.files[self.number];
        let bytes: Vec<u8> = from.iter().flat_map(|buffer| buffer.iter().copied()).collect();
        let at = at.0 as usize;
        assert!(at.is_multiple_of(SECTOR) && bytes.len().is_multiple_of(SECTOR));
        file.content[at..at + bytes.len()].copy_from_slice(&bytes);
        let sectors = at / SECTOR..(at + bytes.len()) / SECTOR;
        for (sector, bytes) in sectors.clone().zip(bytes.chunks_exact(SECTOR)) {
            file.unstable.push((sector, bytes.try_into().expect("a sector")));
        }
        let (pause, disk, number) = (self.world.sleep(LATENCY), self.folder.clone(), self.number);
        Box::pin(async move {
            pause.await;
            if fails {
                return Err(IoError::new(IoErrorKind::Medium, "writing to memory"));
            }
            if stability == Stability::Stable {
                let file = &mut disk.0.borrow_mut().files[number];
                for sector in sectors.clone() {
                    let range = sector * SECTOR..(sector + 1) * SECTOR;
                    file.stable[range.clone()].copy_from_slice(&file.content[range]);
                }
                file.unstable.retain(|(sector, _)| !sectors.contains(sector));
            }
            Ok(())
        })
    }

    fn flush(&self) -> LocalFuture<IoResult<()>> {
        let (pause, disk, number) = (self.world.sleep(LATENCY), self.folder.clone(), self.number);
        Box::pin(async move {
            pause.await;
            let file = &mut disk.0.borrow_mut().files[number];
            file.unstable.clear();
            file.stable = file.content.clone();
            Ok(())
        })
    }

    fn discard(&self, _at: ByteOffset, _length: ByteCount) -> LocalFuture<IoResult<()>> {
        unreachable!("nothing discards in this folder")
    }
}

impl Resizable for FileHandle {
    fn resize(&self, size: ByteCount) -> LocalFuture<IoResult<()>> {
        let length = size.0 as usize;
        let file = &mut self.folder.0.borrow_mut().files[self.number];
        file.content.resize(length, 0);
        file.stable.resize(length, 0);
        file.unstable.retain(|(sector, _)| (sector + 1) * SECTOR <= length);
        let pause = self.world.sleep(LATENCY);
        Box::pin(async move {
            pause.await;
            Ok(())
        })
    }
}
