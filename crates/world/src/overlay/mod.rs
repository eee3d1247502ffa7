//! A directory whose changes stay in memory, over another directory that is only read: a recovery can be tried on
//! files that must stay as they are.
//!
//! Invariants:
//!
//! 1. Files of the base are opened and read, never written, renamed or removed.
//! 2. A read returns what was written here last, and elsewhere what the base has.
//! 3. All overlays of one [`OverlayMemory`] keep at most its bytes: a write beyond that is refused as `NoSpace`
//!    and changes nothing.
//!
//! Nothing survives the process, so every write counts as stable at once.

mod overlay_file;
mod read_only_view;

pub use overlay_file::OverlayMemory;
pub use read_only_view::ReadOnlyView;

use crate::{
    ByteCount, Directory, DirectoryEntry, File, IoError, IoErrorKind, IoResult, LocalFuture,
    plain_name::check_plain_name,
};
use overlay_file::{FileState, OverlayFile};
use std::{cell::RefCell, collections::BTreeMap, rc::Rc};

/// A directory that shows another one with changes that are kept in memory.
pub struct OverlayDirectory {
    base: Rc<dyn Directory>,
    memory: Rc<OverlayMemory>,
    files: RefCell<BTreeMap<String, Rc<FileState>>>,
}

impl OverlayDirectory {
    /// Shows the files that `base` has now. Files that are added there later are not seen.
    ///
    /// # Errors
    ///
    /// The base cannot be listed.
    pub async fn open(base: Rc<dyn Directory>, memory: &Rc<OverlayMemory>) -> IoResult<Self> {
        let entries = base.list().await?;
        let file = |entry: DirectoryEntry| {
            let state = FileState::of_base(&base, &entry, memory);
            (entry.name, state)
        };
        let files = RefCell::new(entries.into_iter().map(file).collect());
        Ok(Self { base, memory: Rc::clone(memory), files })
    }

    fn fail<T: 'static>(&self, kind: IoErrorKind, doing: &str, why: &str) -> LocalFuture<IoResult<T>> {
        let error = IoError::new(kind, format!("{doing} in {}: {why}", self.describe()));
        Box::pin(async { Err(error) })
    }
}

impl Directory for OverlayDirectory {
    fn describe(&self) -> String {
        self.base.describe()
    }

    fn list(&self) -> LocalFuture<IoResult<Vec<DirectoryEntry>>> {
        let files = self.files.borrow();
        let entry = |(name, file): (&String, &Rc<FileState>)| DirectoryEntry {
            name: name.clone(),
            size: file.size(),
        };
        let entries = files.iter().map(entry).collect();
        Box::pin(async { Ok(entries) })
    }

    fn open(&self, name: &str) -> LocalFuture<IoResult<Rc<dyn File>>> {
        let Some(state) = self.files.borrow().get(name).cloned() else {
            return self.fail(IoErrorKind::NotFound, &format!("opening {name}"), "no such file");
        };
        Box::pin(async move { Ok(Rc::new(OverlayFile::open(state).await?) as Rc<dyn File>) })
    }

    fn create(&self, name: &str, size: ByteCount) -> LocalFuture<IoResult<Rc<dyn File>>> {
        let doing = format!("creating {name} of {size}");
        if let Err(error) = check_plain_name(name) {
            return Box::pin(async { Err(error) });
        }
        if self.files.borrow().contains_key(name) {
            return self.fail(IoErrorKind::AlreadyExists, &doing, "the name is taken");
        }
        let state = FileState::new(name, size, &self.memory);
        self.files.borrow_mut().insert(name.to_owned(), Rc::clone(&state));
        Box::pin(async move { Ok(Rc::new(OverlayFile::open(state).await?) as Rc<dyn File>) })
    }

    fn rename(&self, from: &str, to: &str) -> LocalFuture<IoResult<()>> {
        if let Err(error) = check_plain_name(to) {
            return Box::pin(async { Err(error) });
        }
        let mut files = self.files.borrow_mut();
        let Some(file) = files.remove(from) else {
            return self.fail(IoErrorKind::NotFound, &format!("renaming {from} to {to}"), "no such file");
        };
        files.insert(to.to_owned(), file);
        Box::pin(async { Ok(()) })
    }

    fn remove(&self, name: &str) -> LocalFuture<IoResult<()>> {
        match self.files.borrow_mut().remove(name) {
            Some(_) => Box::pin(async { Ok(()) }),
            None => self.fail(IoErrorKind::NotFound, &format!("removing {name}"), "no such file"),
        }
    }

    fn sync(&self) -> LocalFuture<IoResult<()>> {
        Box::pin(async { Ok(()) })
    }

    fn free(&self) -> LocalFuture<IoResult<ByteCount>> {
        let free = self.memory.free();
        Box::pin(async move { Ok(free) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        BlockDevice, Buffer, ByteOffset, ExtentDirectory, Random, Stability,
        sim::{DriveOptions, SimLimits, Simulation},
    };
    use std::{future::Future, sync::Arc};

    /// Runs `test` in the simulated world over a directory with the files `one` and `two`.
    fn run<F: Future<Output = ()> + 'static>(test: impl FnOnce(Rc<dyn Directory>) -> F + 'static) {
        let mut simulation = Simulation::new(1);
        let drive = simulation.add_drive(DriveOptions::new(ByteCount::mib(4)));
        let ended = simulation.run(SimLimits::generous(), async move |_world| {
            let base = ExtentDirectory::format(drive).await.unwrap();
            for (name, fill) in [("one", 1), ("two", 2)] {
                let file = base.create(name, ByteCount(3 * 4096)).await.unwrap();
                write(&file, 0, &[fill; 3 * 4096]).await.unwrap();
            }
            test(Rc::new(base)).await;
        });
        ended.completed();
    }

    async fn write(file: &Rc<dyn File>, at: u64, bytes: &[u8]) -> IoResult<()> {
        file.write(ByteOffset(at), vec![Arc::new(Buffer::copy_of(bytes))], Stability::Stable).await
    }

    async fn contents(file: &Rc<dyn File>) -> Vec<u8> {
        let size = file.geometry().size.0 as usize;
        file.read(ByteOffset(0), vec![Buffer::zeroed(size)]).await.unwrap()[0].to_vec()
    }

    /// All files and their bytes.
    async fn all(directory: &Rc<dyn Directory>) -> BTreeMap<String, Vec<u8>> {
        let mut all = BTreeMap::new();
        for entry in directory.list().await.unwrap() {
            let file = directory.open(&entry.name).await.unwrap();
            let bytes = if entry.size.0 == 0 { Vec::new() } else { contents(&file).await };
            all.insert(entry.name, bytes);
        }
        all
    }

    #[test]
    fn an_overlay_behaves_like_a_directory_and_leaves_its_base_as_it_was() {
        run(async |base: Rc<dyn Directory>| {
            let before = all(&base).await;
            let mut model = before.clone();
            let memory = OverlayMemory::new(ByteCount::mib(1));
            let overlay = OverlayDirectory::open(Rc::clone(&base), &memory).await.unwrap();
            let overlay: Rc<dyn Directory> = Rc::new(overlay);
            let mut random = Random::new(5, "changes of an overlay");
            let names = ["one", "two", "three", "four"];
            for step in 0..400 {
                let (name, other) = (names[random.below(4) as usize], names[random.below(4) as usize]);
                let doing = random.below(8);
                match (doing, overlay.open(name).await) {
                    (0, found) => {
                        let created = overlay.create(name, ByteCount(4096 * random.below(3))).await;
                        assert_eq!(created.is_ok(), found.is_err(), "step {step}");
                        if let Ok(file) = created {
                            model.insert(name.to_owned(), vec![0; file.geometry().size.0 as usize]);
                        }
                    }
                    (_, Err(error)) => {
                        assert_eq!(error.kind(), IoErrorKind::NotFound);
                        assert!(!model.contains_key(name), "step {step}");
                    }
                    (1, Ok(_)) if name != other => {
                        overlay.rename(name, other).await.unwrap();
                        let moved = model.remove(name).unwrap();
                        model.insert(other.to_owned(), moved);
                    }
                    (2, Ok(_)) if random.below(4) == 0 => {
                        overlay.remove(name).await.unwrap();
                        model.remove(name);
                    }
                    (3, Ok(file)) => {
                        let size = 512 * random.below(40);
                        file.resize(ByteCount(size)).await.unwrap();
                        model.get_mut(name).unwrap().resize(size as usize, 0);
                    }
                    (_, Ok(file)) => {
                        let known = model.get_mut(name).unwrap();
                        let sectors = known.len() as u64 / 512;
                        if sectors > 0 {
                            let first = random.below(sectors);
                            let bytes = vec![step as u8; (1 + random.below(sectors - first)) as usize * 512];
                            write(&file, first * 512, &bytes).await.unwrap();
                            known[first as usize * 512..][..bytes.len()].copy_from_slice(&bytes);
                        }
                    }
                }
                assert_eq!(all(&overlay).await, model, "step {step}");
            }
            assert_eq!(all(&base).await, before, "the base is only read");
        });
    }

    #[test]
    fn memory_is_bounded_and_is_free_again_when_a_file_is_gone() {
        run(async |base: Rc<dyn Directory>| {
            let memory = OverlayMemory::new(ByteCount(4096));
            let overlay = OverlayDirectory::open(base, &memory).await.unwrap();
            let file = overlay.open("one").await.unwrap();
            write(&file, 0, &[9; 4096]).await.unwrap();
            // What is there already is overwritten without more memory.
            write(&file, 512, &[8; 512]).await.unwrap();
            let full = write(&file, 4096, &[9; 512]).await.unwrap_err();
            assert_eq!(full.kind(), IoErrorKind::NoSpace, "{full}");
            let bytes = contents(&file).await;
            assert_eq!((bytes[0], bytes[512], bytes[4096]), (9, 8, 1), "a refused write changes nothing");
            assert_eq!((memory.used(), overlay.free().await.unwrap()), (ByteCount(4096), ByteCount(0)));
            overlay.remove("one").await.unwrap();
            assert_eq!(memory.used(), ByteCount(4096), "it is open still");
            drop(file);
            assert_eq!(memory.used(), ByteCount(0));
            let beyond = overlay.open("two").await.unwrap();
            let error = write(&beyond, 3 * 4096, &[1; 512]).await.unwrap_err();
            assert_eq!(error.kind(), IoErrorKind::OutOfRange);
        });
    }

    #[test]
    fn a_view_for_reading_alone_refuses_every_change() {
        run(async |base: Rc<dyn Directory>| {
            let file = base.open("one").await.unwrap();
            let view = ReadOnlyView(file);
            let bytes = view.read(ByteOffset(0), vec![Buffer::zeroed(512)]).await.unwrap();
            assert_eq!(bytes[0][..], [1; 512]);
            let written =
                view.write(ByteOffset(0), bytes.into_iter().map(Arc::new).collect(), Stability::Stable);
            assert_eq!(written.await.unwrap_err().kind(), IoErrorKind::ReadOnly);
            let discarded = view.discard(ByteOffset(0), ByteCount(512)).await;
            assert_eq!(discarded.unwrap_err().kind(), IoErrorKind::ReadOnly);
            view.flush().await.unwrap();
        });
    }
}
