//! The rules of `Directory`, for folders and extent directories, and the specifics of each.

use crate::in_each_engine;
use std::{cell::RefCell, future::Future, path::Path, pin::pin, rc::Rc, sync::Arc, task::Poll};
use world::{
    BlockDevice, Buffer, ByteCount, ByteOffset, Directory, DirectoryEntry, ExtentDirectory, Geometry,
    IoErrorKind, IoResult, LocalFuture, Probe, Random, Stability,
    real::{FileDevice, FolderDirectory, RealOptions, run},
};

#[test]
fn a_folder_keeps_the_rules() {
    in_each_engine(async |_, folder| {
        let path = folder.join("mail");
        std::fs::create_dir(&path).unwrap();
        check_rules(&FolderDirectory::open(&path).unwrap()).await;
    });
}

#[test]
fn an_extent_directory_keeps_the_rules() {
    in_each_engine(async |_, folder| {
        let disk = carved_disk(folder, ByteCount::mib(16)).await;
        check_rules(&ExtentDirectory::format(disk).await.unwrap()).await;
    });
}

async fn carved_disk(folder: &Path, size: ByteCount) -> Rc<dyn BlockDevice> {
    Rc::new(FileDevice::create(&folder.join("disk"), size).await.unwrap())
}

async fn check_rules(directory: &dyn Directory) {
    assert!(!directory.describe().is_empty());
    assert!(directory.list().await.unwrap().is_empty());
    let free = directory.free().await.unwrap();
    assert!(free > ByteCount::mib(8));

    let mail = directory.create("mail.edb", ByteCount::kib(256)).await.unwrap();
    let log = directory.create("E00.log", ByteCount::mib(1)).await.unwrap();
    assert_eq!(log.geometry().size, ByteCount::mib(1));
    let entry = |name: &str, size| DirectoryEntry { name: name.to_owned(), size };
    let both = [entry("E00.log", ByteCount::mib(1)), entry("mail.edb", ByteCount::kib(256))];
    assert_eq!(directory.list().await.unwrap(), both);

    refused_in_one_line(directory).await;

    fill(&*mail, 1).await;
    fill(&*log, 2).await;
    mail.resize(ByteCount::kib(512)).await.unwrap();
    let grown = mail.read(ByteOffset(0), vec![Buffer::zeroed(512 << 10)]).await.unwrap();
    assert!(grown[0][..256 << 10].iter().all(|&byte| byte == 1));
    assert!(grown[0][256 << 10..].iter().all(|&byte| byte == 0), "added bytes are zero");

    // Two handles share one file.
    let again = directory.open("mail.edb").await.unwrap();
    assert_eq!(again.geometry().size, ByteCount::kib(512));
    fill(&*again, 3).await;
    assert_filled(&*mail, 3).await;

    // Renaming onto a file replaces it atomically; its open handle stays valid.
    directory.rename("mail.edb", "E00.log").await.unwrap();
    directory.sync().await.unwrap();
    assert_eq!(directory.list().await.unwrap(), [entry("E00.log", ByteCount::kib(512))]);
    assert_filled(&*log, 2).await;
    directory.rename("E00.log", "E00.log").await.unwrap();
    assert_filled(&*directory.open("E00.log").await.unwrap(), 3).await;

    // The handle of a removed file stays valid too, whatever is created meanwhile.
    directory.remove("E00.log").await.unwrap();
    let others = directory.create("other", ByteCount::mib(2)).await.unwrap();
    fill(&*others, 4).await;
    assert_filled(&*mail, 3).await;
    assert_filled(&*log, 2).await;
    drop((mail, again, log));
    directory.remove("other").await.unwrap();
    drop(others);
    directory.sync().await.unwrap();
    assert!(directory.list().await.unwrap().is_empty());

    // Freed space reads as zero again.
    let fresh = directory.create("fresh", ByteCount::mib(6)).await.unwrap();
    assert_filled(&*fresh, 0).await;
    directory.remove("fresh").await.unwrap();
}

async fn refused_in_one_line(directory: &dyn Directory) {
    let refused: Vec<(IoErrorKind, IoErrorKind)> = vec![
        (
            directory.create("mail.edb", ByteCount(4096)).await.err().unwrap().kind(),
            IoErrorKind::AlreadyExists,
        ),
        (directory.create("odd", ByteCount(100)).await.err().unwrap().kind(), IoErrorKind::Unaligned),
        (directory.create("huge", ByteCount::gib(1 << 20)).await.err().unwrap().kind(), IoErrorKind::NoSpace),
        (directory.create("a/b", ByteCount(4096)).await.err().unwrap().kind(), IoErrorKind::Unsupported),
        (directory.open("none").await.err().unwrap().kind(), IoErrorKind::NotFound),
        (directory.open("..").await.err().unwrap().kind(), IoErrorKind::Unsupported),
        (directory.remove("none").await.unwrap_err().kind(), IoErrorKind::NotFound),
        (directory.rename("none", "mail.edb").await.unwrap_err().kind(), IoErrorKind::NotFound),
        (directory.rename("mail.edb", "").await.unwrap_err().kind(), IoErrorKind::Unsupported),
    ];
    for (index, (found, expected)) in refused.into_iter().enumerate() {
        assert_eq!(found, expected, "refusal {index}");
    }
    assert_eq!(directory.list().await.unwrap().len(), 2, "a refused change changes nothing");
}

async fn fill(device: &dyn BlockDevice, byte: u8) {
    let bytes = Arc::new(Buffer::copy_of(&vec![byte; device.geometry().size.0 as usize]));
    device.write(ByteOffset(0), vec![bytes], Stability::Volatile).await.unwrap();
}

async fn assert_filled(device: &dyn BlockDevice, byte: u8) {
    let length = device.geometry().size.0 as usize;
    let bytes = device.read(ByteOffset(0), vec![Buffer::zeroed(length)]).await.unwrap();
    assert!(bytes[0].iter().all(|&found| found == byte), "expected {byte} throughout");
}

#[test]
fn a_folder_shows_regular_files_only_and_follows_no_links() {
    in_each_engine(async |_, folder| {
        std::fs::create_dir(folder.join("below")).unwrap();
        std::fs::write(folder.join("secret"), vec![0; 4096]).unwrap();
        std::os::unix::fs::symlink(folder.join("secret"), folder.join("link")).unwrap();
        let directory = FolderDirectory::open(folder).unwrap();
        let names: Vec<_> = directory.list().await.unwrap().into_iter().map(|entry| entry.name).collect();
        assert_eq!(names, ["secret"]);
        assert_eq!(directory.open("link").await.err().unwrap().kind(), IoErrorKind::WrongType);
        assert_eq!(directory.open("below").await.err().unwrap().kind(), IoErrorKind::WrongType);
        let file = FolderDirectory::open(&folder.join("secret")).err().unwrap();
        assert_eq!(file.kind(), IoErrorKind::WrongType);
    });
}

#[test]
fn an_extent_directory_is_unchanged_after_reopening() {
    in_each_engine(async |_, folder| {
        let disk = carved_disk(folder, ByteCount::mib(16)).await;
        assert_eq!(ExtentDirectory::probe(&*disk).await.unwrap(), Probe::Blank);
        assert_eq!(ExtentDirectory::open(Rc::clone(&disk)).await.err().unwrap().kind(), IoErrorKind::Damaged);
        let directory = ExtentDirectory::format(Rc::clone(&disk)).await.unwrap().named("/dev/test");
        for (tag, name) in (1..).zip(["c", "a", "b"]) {
            let file = directory.create(name, ByteCount::kib(100)).await.unwrap();
            file.resize(ByteCount::kib(300)).await.unwrap();
            fill(&*file, tag).await;
        }
        directory.remove("a").await.unwrap();
        directory.rename("b", "d").await.unwrap();
        let (list, free) = (directory.list().await.unwrap(), directory.free().await.unwrap());
        drop(directory);

        assert_eq!(ExtentDirectory::probe(&*disk).await.unwrap(), Probe::Ours);
        let directory = ExtentDirectory::open(Rc::clone(&disk)).await.unwrap();
        assert_eq!((directory.list().await.unwrap(), directory.free().await.unwrap()), (list, free));
        assert_filled(&*directory.open("c").await.unwrap(), 1).await;
        assert_filled(&*directory.open("d").await.unwrap(), 3).await;

        // An older directory's tables must not reappear.
        let directory = ExtentDirectory::format(Rc::clone(&disk)).await.unwrap();
        assert!(directory.list().await.unwrap().is_empty());
        let directory = ExtentDirectory::open(disk).await.unwrap();
        assert!(directory.list().await.unwrap().is_empty());
    });
}

#[test]
fn foreign_contents_are_recognised_and_never_opened() {
    in_each_engine(async |_, folder| {
        for place in [1080, 510, (16 << 20) - 512] {
            let path = folder.join(format!("foreign {place}"));
            let mut bytes = vec![0; 16 << 20];
            bytes[place] = 0x53;
            std::fs::write(&path, bytes).unwrap();
            let disk: Rc<dyn BlockDevice> =
                Rc::new(FileDevice::open(&path, world::real::AccessMode::Read).unwrap());
            assert_eq!(ExtentDirectory::probe(&*disk).await.unwrap(), Probe::Foreign);
            assert_eq!(ExtentDirectory::open(disk).await.err().unwrap().kind(), IoErrorKind::Damaged);
        }
        let tiny = FileDevice::create(&folder.join("tiny"), ByteCount::kib(64)).await.unwrap();
        let refused = ExtentDirectory::format(Rc::new(tiny)).await.err().unwrap();
        assert_eq!(refused.kind(), IoErrorKind::NoSpace);
    });
}

/// A device in memory whose power fails in the middle of a write: the write that uses up `sectors_left` is
/// torn there, and all later ones fail.
struct FailingDisk {
    bytes: RefCell<Vec<u8>>,
    sectors_left: RefCell<u64>,
}

impl FailingDisk {
    fn new(bytes: Vec<u8>, sectors_left: u64) -> Rc<Self> {
        Rc::new(Self { bytes: RefCell::new(bytes), sectors_left: RefCell::new(sectors_left) })
    }
}

impl BlockDevice for FailingDisk {
    fn geometry(&self) -> Geometry {
        Geometry { size: ByteCount(self.bytes.borrow().len() as u64), sector: 512 }
    }

    fn read(&self, at: ByteOffset, mut into: Vec<Buffer>) -> LocalFuture<IoResult<Vec<Buffer>>> {
        let mut at = at.0 as usize;
        for buffer in &mut into {
            let end = at + buffer.len();
            buffer.copy_from_slice(&self.bytes.borrow()[at..end]);
            at = end;
        }
        Box::pin(async { Ok(into) })
    }

    fn write(&self, at: ByteOffset, from: Vec<Arc<Buffer>>, _: Stability) -> LocalFuture<IoResult<()>> {
        let whole: Vec<u8> = from.iter().flat_map(|buffer| buffer.iter().copied()).collect();
        let mut left = self.sectors_left.borrow_mut();
        let kept = whole.len().min((*left as usize).saturating_mul(512));
        *left -= kept as u64 / 512;
        self.bytes.borrow_mut()[at.0 as usize..][..kept].copy_from_slice(&whole[..kept]);
        let done = if kept == whole.len() {
            Ok(())
        } else {
            Err(world::IoError::new(IoErrorKind::Medium, "the power failed"))
        };
        Box::pin(async { done })
    }

    fn flush(&self) -> LocalFuture<IoResult<()>> {
        Box::pin(async { Ok(()) })
    }

    fn discard(&self, _: ByteOffset, _: ByteCount) -> LocalFuture<IoResult<()>> {
        Box::pin(async { Ok(()) })
    }
}

#[test]
fn a_power_failure_at_any_sector_leaves_the_state_before_or_after_the_change() {
    run(5, RealOptions::default(), async |_| {
        let disk = FailingDisk::new(vec![0; 4 << 20], u64::MAX >> 10);
        let directory = ExtentDirectory::format(Rc::clone(&disk) as _).await.unwrap();
        for index in 0..12 {
            directory.create(&format!("file {index}"), ByteCount::kib(64)).await.unwrap();
        }
        let start = disk.bytes.borrow().clone();
        let before = directory.list().await.unwrap();

        type Change = fn(ExtentDirectory) -> LocalFuture<IoResult<()>>;
        let changes: [Change; 4] = [
            |directory| {
                Box::pin(async move { directory.create("new", ByteCount::kib(64)).await.map(|_| ()) })
            },
            |directory| Box::pin(async move { directory.remove("file 3").await }),
            |directory| Box::pin(async move { directory.rename("file 3", "file 4").await }),
            |directory| {
                Box::pin(async move { directory.open("file 3").await?.resize(ByteCount::kib(128)).await })
            },
        ];
        for change in changes {
            let whole = FailingDisk::new(start.clone(), u64::MAX >> 10);
            let directory = ExtentDirectory::open(whole).await.unwrap();
            change(directory.clone()).await.unwrap();
            let after = directory.list().await.unwrap();
            let mut seen = [false, false];
            for sectors_left in 0..200 {
                let disk = FailingDisk::new(start.clone(), sectors_left);
                let directory = ExtentDirectory::open(Rc::clone(&disk) as _).await.unwrap();
                let changed = change(directory).await;
                let found = ExtentDirectory::open(disk).await.unwrap().list().await.unwrap();
                assert!(found == before || found == after, "torn after {sectors_left} sectors: {found:?}");
                assert!(changed.is_err() || found == after, "a confirmed change is lost");
                seen[usize::from(found == after)] = true;
            }
            assert_eq!(seen, [true, true], "the failures did not cover the change");
        }
    });
}

#[test]
fn the_next_sync_completes_a_failed_change() {
    run(5, RealOptions::default(), async |_| {
        let disk = FailingDisk::new(vec![0; 4 << 20], u64::MAX >> 10);
        let directory = ExtentDirectory::format(Rc::clone(&disk) as _).await.unwrap();
        directory.create("kept", ByteCount::kib(64)).await.unwrap();
        // The table of one file is one sector; the next write of it fails.
        *disk.sectors_left.borrow_mut() = 0;
        directory.remove("kept").await.unwrap_err();
        assert_eq!(directory.list().await.unwrap().len(), 1, "a failed removal removes nothing here");
        *disk.sectors_left.borrow_mut() = 1000;
        directory.sync().await.unwrap();
        let again = ExtentDirectory::open(disk).await.unwrap();
        assert_eq!(again.list().await.unwrap(), directory.list().await.unwrap());
    });
}

#[test]
fn random_changes_match_a_model_and_survive_dropped_futures() {
    in_each_engine(async |world, folder| {
        let disk = carved_disk(folder, ByteCount::mib(12)).await;
        let mut directory = ExtentDirectory::format(Rc::clone(&disk)).await.unwrap();
        let mut random = world.random("changes");
        let mut model: std::collections::BTreeMap<String, (u64, u8)> = Default::default();
        let steps = if std::env::var_os("SPINDLE_FULL").is_some() { 300 } else { 120 };
        for step in 0..steps {
            let name = format!("file {}", random.below(8));
            let size = 4096 * (1 + random.below(200));
            let tag = 1 + (step % 250) as u8;
            match random.below(7) {
                0 | 1 => match directory.create(&name, ByteCount(size)).await {
                    Ok(file) => {
                        assert_filled(&*file, 0).await;
                        fill(&*file, tag).await;
                        assert!(model.insert(name, (size, tag)).is_none());
                    }
                    Err(error) if error.kind() == IoErrorKind::AlreadyExists => {
                        assert!(model.contains_key(&name));
                    }
                    Err(error) => assert_eq!(error.kind(), IoErrorKind::NoSpace),
                },
                2 => assert_eq!(directory.remove(&name).await.is_ok(), model.remove(&name).is_some()),
                3 => {
                    let to = format!("file {}", random.below(8));
                    let renamed = directory.rename(&name, &to).await.is_ok();
                    assert_eq!(renamed, model.contains_key(&name));
                    if let Some(file) = model.remove(&name) {
                        model.insert(to, file);
                    }
                }
                4 => {
                    let Some((known, tag)) = model.get_mut(&name) else { continue };
                    let file = directory.open(&name).await.unwrap();
                    match file.resize(ByteCount(size)).await {
                        Ok(()) => *known = size,
                        Err(error) => assert_eq!(error.kind(), IoErrorKind::NoSpace),
                    }
                    fill(&*file, *tag).await;
                }
                5 => abandon(&directory, &mut random).await,
                _ => {
                    directory = ExtentDirectory::open(Rc::clone(&disk)).await.unwrap();
                }
            }
            // The outcome of an abandoned change of the extra file is the one unknown.
            let mut list = directory.list().await.unwrap();
            list.retain(|entry| entry.name != "abandoned");
            let expected = model.iter().map(|(name, (size, _))| (name.clone(), *size));
            assert!(list.into_iter().map(|entry| (entry.name, entry.size.0)).eq(expected));
            for (name, (_, tag)) in &model {
                assert_filled(&*directory.open(name).await.unwrap(), *tag).await;
            }
        }
        assert!(!model.is_empty());
    });
}

/// Starts a change and drops it after a few polls.
async fn abandon(directory: &ExtentDirectory, random: &mut Random) {
    let size = ByteCount(4096 * (1 + random.below(100)));
    let turns = random.below(6);
    let removal = random.percent(50.0);
    let mut change = pin!(async {
        if removal {
            drop(directory.remove("abandoned").await)
        } else {
            drop(directory.create("abandoned", size).await)
        }
    });
    for _ in 0..turns {
        let mut yielded = false;
        let ends = std::future::poll_fn(|context| {
            let ends = change.as_mut().poll(context).is_ready();
            if ends || yielded {
                return Poll::Ready(ends);
            }
            yielded = true;
            context.waker().wake_by_ref();
            Poll::Pending
        });
        if ends.await {
            return;
        }
    }
}
