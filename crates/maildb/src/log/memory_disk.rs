//! A disk in memory that loses power, for the tests of the log.
//!
//! A power cut keeps any subset of the 512-byte sectors of each unstable write, and any consistent subset, in
//! order, of the name changes since the last sync.

use super::{handle::is_not_found, memory_world::MemoryWorld};
use std::{cell::RefCell, collections::BTreeMap, rc::Rc, sync::Arc};
use world::{
    BlockDevice, Buffer, ByteCount, ByteOffset, Directory, DirectoryEntry, File, Geometry, IoError,
    IoErrorKind, IoResult, LocalFuture, Random, Resizable, Stability,
};

const SECTOR: usize = 512;

/// File contents and names, which survive their world. Clones share them.
#[derive(Clone, Default)]
pub(super) struct MemoryDisk(Rc<RefCell<DiskState>>);

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

impl MemoryDisk {
    /// The disk as a directory of a world.
    pub(super) fn directory(&self, world: &Rc<MemoryWorld>) -> Rc<dyn Directory> {
        Rc::new(MemoryDirectory { disk: self.clone(), world: Rc::clone(world) })
    }

    /// Loses power: unstable data survives in part.
    pub(super) fn cut_power(&self, random: &mut Random) {
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
    pub(super) fn fail_after(&self, count: u64) {
        self.0.borrow_mut().writes_left = Some(count);
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.0.borrow().names.keys().cloned().collect()
    }

    pub(super) fn length(&self, name: &str) -> usize {
        let disk = self.0.borrow();
        disk.files[disk.names[name]].content.len()
    }

    /// Changes a file without any open handle noticing.
    pub(super) fn edit(&self, name: &str, change: impl FnOnce(&mut [u8])) {
        let mut disk = self.0.borrow_mut();
        let number = disk.names[name];
        change(&mut disk.files[number].content);
    }

    pub(super) fn rename(&self, from: &str, to: &str) {
        let mut disk = self.0.borrow_mut();
        let file = disk.names.remove(from).expect("the file exists");
        disk.names.insert(to.to_owned(), file);
        disk.stable_names = disk.names.clone();
    }

    /// An independent copy.
    pub(super) fn copy(&self) -> Self {
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

struct MemoryDirectory {
    disk: MemoryDisk,
    world: Rc<MemoryWorld>,
}

impl MemoryDirectory {
    fn later<T: 'static>(&self, outcome: T) -> LocalFuture<T> {
        let pause = self.world.pause();
        Box::pin(async move {
            pause.await;
            outcome
        })
    }

    fn file(&self, number: usize) -> Rc<dyn File> {
        Rc::new(MemoryFile { disk: self.disk.clone(), world: Rc::clone(&self.world), number })
    }

    fn change(&self, change: NameChange) {
        let mut disk = self.disk.0.borrow_mut();
        change.apply(&mut disk.names);
        disk.changes.push(change);
    }

    fn find(&self, name: &str) -> IoResult<usize> {
        let disk = self.disk.0.borrow();
        disk.names.get(name).copied().ok_or_else(|| IoError::new(IoErrorKind::NotFound, name))
    }
}

impl Directory for MemoryDirectory {
    fn describe(&self) -> String {
        "memory".to_owned()
    }

    fn list(&self) -> LocalFuture<IoResult<Vec<DirectoryEntry>>> {
        let disk = self.disk.0.borrow();
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
            let mut disk = self.disk.0.borrow_mut();
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
        assert!(found.as_ref().err().is_none_or(is_not_found));
        if found.is_ok() {
            self.change(NameChange::Remove(name.to_owned()));
        }
        self.later(found.map(|_| ()))
    }

    fn sync(&self) -> LocalFuture<IoResult<()>> {
        // The sync covers only changes made before it started.
        let count = self.disk.0.borrow().changes.len();
        let (pause, disk) = (self.world.pause(), self.disk.clone());
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

struct MemoryFile {
    disk: MemoryDisk,
    world: Rc<MemoryWorld>,
    number: usize,
}

impl BlockDevice for MemoryFile {
    fn geometry(&self) -> Geometry {
        let size = self.disk.0.borrow().files[self.number].content.len() as u64;
        Geometry { size: ByteCount(size), sector: SECTOR as u32 }
    }

    fn read(&self, at: ByteOffset, mut into: Vec<Buffer>) -> LocalFuture<IoResult<Vec<Buffer>>> {
        let (pause, disk, number) = (self.world.pause(), self.disk.clone(), self.number);
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
        let mut disk = self.disk.0.borrow_mut();
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
        let (pause, disk, number) = (self.world.pause(), self.disk.clone(), self.number);
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
        let (pause, disk, number) = (self.world.pause(), self.disk.clone(), self.number);
        Box::pin(async move {
            pause.await;
            let file = &mut disk.0.borrow_mut().files[number];
            file.unstable.clear();
            file.stable = file.content.clone();
            Ok(())
        })
    }

    fn discard(&self, _at: ByteOffset, _length: ByteCount) -> LocalFuture<IoResult<()>> {
        unreachable!("the log discards nothing")
    }
}

impl Resizable for MemoryFile {
    fn resize(&self, _size: ByteCount) -> LocalFuture<IoResult<()>> {
        unreachable!("log files keep their size")
    }
}
