//! The rules at the top of `block_device.rs`, for every device.

use crate::in_each_engine;
use std::{fs, path::Path, process::Command, rc::Rc, sync::Arc, time::Duration};
use world::{
    BlockDevice, Buffer, ByteCount, ByteOffset, Directory, Extent, ExtentDirectory, Geometry, IoErrorKind,
    Resizable, Sparse, Stability, World,
    real::{AccessMode, FileDevice, FolderDirectory, RealIoKind, RealOptions, run},
};

const SIZE: ByteCount = ByteCount::mib(4);

#[test]
fn files_keep_the_rules() {
    in_each_engine(async |world, folder| {
        let device = FileDevice::create(&folder.join("disk"), SIZE).await.unwrap();
        check_rules(&world, Rc::new(device)).await;
    });
}

#[test]
fn files_report_their_holes() {
    in_each_engine(async |_, folder| {
        let device = FileDevice::create(&folder.join("disk"), SIZE).await.unwrap();
        let whole = || device.extents(ByteOffset(0), SIZE);
        let held = |extents: &[Extent]| -> u64 {
            extents.iter().filter(|extent| !extent.is_zero).map(|extent| extent.length.0).sum()
        };
        for at in [0, 1 << 20] {
            let data = vec![Arc::new(Buffer::copy_of(&[7; 64 << 10]))];
            device.write(ByteOffset(at), data, Stability::Stable).await.unwrap();
        }
        let extents = whole().await.unwrap();
        assert_eq!(extents.iter().map(|extent| extent.length.0).sum::<u64>(), SIZE.0, "they cover it");
        assert!(held(&extents) >= 128 << 10, "{extents:?}");
        for (at, keeps_space) in [(0, true), (1 << 20, false)] {
            let zeroed =
                device.write_zeroes(ByteOffset(at), ByteCount::kib(64), keeps_space, Stability::Stable).await;
            match zeroed {
                // A filesystem without support: nothing has changed then.
                Err(error) => assert_eq!(error.kind(), IoErrorKind::Unsupported, "{error}"),
                Ok(()) => {
                    let read = device.read(ByteOffset(at), vec![Buffer::zeroed(64 << 10)]).await.unwrap();
                    assert!(read[0].iter().all(|&byte| byte == 0));
                }
            }
        }
        assert!(held(&whole().await.unwrap()) <= held(&extents));
        let beyond = device.write_zeroes(ByteOffset(SIZE.0), ByteCount(512), true, Stability::Volatile).await;
        assert_eq!(beyond.unwrap_err().kind(), IoErrorKind::OutOfRange);
    });
}

#[test]
fn a_sparse_file_gets_the_space_it_lacks_and_keeps_its_bytes() {
    in_each_engine(async |_, folder| {
        let made = FileDevice::create(&folder.join("made"), SIZE).await.unwrap();
        assert_eq!(made.allocation().await.unwrap().missing, ByteCount(0), "a new file is fully allocated");
        let path = folder.join("sparse");
        let mut bytes = vec![0; SIZE.0 as usize];
        bytes[1 << 20..][..8192].fill(7);
        fs::write(&path, &bytes[..(1 << 20) + 8192]).unwrap();
        let file = fs::File::options().write(true).open(&path).unwrap();
        file.set_len(SIZE.0).unwrap();
        file.sync_all().unwrap();
        let device = FileDevice::open(&path, AccessMode::ReadWrite).unwrap();
        let before = device.allocation().await.unwrap();
        if before.copy_on_write.is_some() {
            return println!("skipped: a filesystem that cannot preallocate");
        }
        assert_eq!((before.missing.0, before.shared.0), (SIZE.0 - (1 << 20) - 8192, 0));
        device.allocate_missing().await.unwrap();
        assert_eq!(device.allocation().await.unwrap().missing, ByteCount(0));
        assert!(fs::read(&path).unwrap() == bytes, "the contents stay");
        let reader = FileDevice::open(&path, AccessMode::Read).unwrap();
        reader.allocate_missing().await.expect("nothing is missing");
    });
}

#[test]
fn an_allocation_that_does_not_fit_takes_nothing() {
    in_each_engine(async |_, folder| {
        let path = folder.join("vast");
        fs::File::create(&path).unwrap().set_len(1 << 43).unwrap();
        let device = FileDevice::open(&path, AccessMode::ReadWrite).unwrap();
        assert_eq!(device.allocate_missing().await.unwrap_err().kind(), IoErrorKind::NoSpace);
        assert_eq!(device.allocation().await.unwrap().missing, ByteCount(1 << 43));
    });
}

#[test]
fn files_of_an_extent_directory_keep_the_rules_even_in_many_extents() {
    in_each_engine(async |world, folder| {
        let disk = FileDevice::create(&folder.join("disk"), ByteCount::mib(32)).await.unwrap();
        let carved = ExtentDirectory::format(Rc::new(disk)).await.unwrap();
        // Two files growing in turns have many extents each, none a multiple of the buffers used.
        let device = carved.create("a", ByteCount::kib(64)).await.unwrap();
        let neighbour = carved.create("b", ByteCount::kib(64)).await.unwrap();
        let mut size = ByteCount::kib(64);
        while size.0 < SIZE.0 {
            size += ByteCount::kib(192);
            size = ByteCount(size.0.min(SIZE.0));
            device.resize(size).await.unwrap();
            neighbour.resize(size).await.unwrap();
        }
        check_rules(&world, device).await;
        let untouched = neighbour.read(ByteOffset(0), vec![Buffer::zeroed(SIZE.0 as usize)]).await.unwrap();
        assert!(untouched[0].iter().all(|&byte| byte == 0), "a neighbour's bytes were changed");
    });
}

#[test]
fn a_file_on_tmpfs_works_through_the_page_cache_and_reports_it() {
    let Ok(folder) = tempfile::tempdir_in("/dev/shm") else {
        println!("skipped: no tmpfs at /dev/shm");
        return;
    };
    for (force_plain, kinds) in [
        (false, [RealIoKind::IoUringBuffered, RealIoKind::ThreadsBuffered].as_slice()),
        (true, [RealIoKind::ThreadsBuffered].as_slice()),
    ] {
        run(7, RealOptions::plain(force_plain), async |world| {
            let device =
                FileDevice::create(&folder.path().join(format!("{force_plain}")), SIZE).await.unwrap();
            assert!(kinds.contains(&device.io_kind()), "{}", device.io_kind());
            let folder = FolderDirectory::open(folder.path()).unwrap();
            assert_eq!(folder.io_kind(), Some(device.io_kind()));
            check_rules(&world, Rc::new(device)).await;
        });
    }
}

#[test]
fn a_raw_block_device_keeps_the_rules_and_is_opened_exclusively() {
    let backing = tempfile::NamedTempFile::new().expect("a temporary file");
    backing.as_file().set_len(SIZE.0).unwrap();
    let attached = Command::new("losetup").args(["--find", "--show"]).arg(backing.path()).output();
    let path = match attached {
        Ok(output) if output.status.success() => String::from_utf8(output.stdout).unwrap().trim().to_owned(),
        _ => return println!("skipped: no loop device available (losetup as root makes one)"),
    };
    let detach = Detach(path.clone());
    // Read-only is a property of the device number: its previous user may have left it set.
    let _ = Command::new("blockdev").args(["--setrw", &path]).status();
    run(7, RealOptions::default(), async |world| {
        let device = FileDevice::open(Path::new(&path), AccessMode::ReadWrite).unwrap();
        assert!(device.is_raw());
        assert_eq!(device.geometry().size, SIZE);
        let second =
            FileDevice::open(Path::new(&path), AccessMode::ReadWrite).err().expect("the device is in use");
        assert_eq!(second.kind(), IoErrorKind::Busy);
        let onlooker = FileDevice::open_shared(Path::new(&path)).await.expect("a shared open succeeds");
        assert_eq!(onlooker.geometry(), device.geometry());
        onlooker.read(ByteOffset(0), vec![Buffer::zeroed(4096)]).await.unwrap();
        let data = vec![Arc::new(Buffer::zeroed(4096))];
        let refused = onlooker.write(ByteOffset(0), data, Stability::Stable).await.unwrap_err();
        assert_eq!(refused.kind(), IoErrorKind::ReadOnly);
        drop(onlooker);
        assert_eq!(device.resize(ByteCount::mib(8)).await.unwrap_err().kind(), IoErrorKind::Unsupported);
        check_rules(&world, Rc::new(device)).await;
    });
    drop(detach);
}

struct Detach(String);

impl Drop for Detach {
    fn drop(&mut self) {
        // A leftover loop device is a nuisance, not a failure.
        let _ = Command::new("losetup").args(["--detach", &self.0]).status();
    }
}

#[test]
fn a_device_open_for_reading_refuses_writes() {
    in_each_engine(async |_, folder| {
        let path = folder.join("disk");
        FileDevice::create(&path, SIZE).await.unwrap();
        let device = FileDevice::open(&path, AccessMode::Read).unwrap();
        let page = Arc::new(Buffer::zeroed(4096));
        let refused = device.write(ByteOffset(0), vec![page], Stability::Stable).await.unwrap_err();
        assert_eq!(refused.kind(), IoErrorKind::ReadOnly);
        assert_eq!(device.resize(ByteCount(0)).await.unwrap_err().kind(), IoErrorKind::ReadOnly);
    });
}

#[test]
fn errors_name_the_operation_and_the_file() {
    in_each_engine(async |_, folder| {
        let missing = FileDevice::open(&folder.join("missing"), AccessMode::Read).err().unwrap();
        assert_eq!(missing.kind(), IoErrorKind::NotFound);
        assert_eq!(FileDevice::open(folder, AccessMode::Read).err().unwrap().kind(), IoErrorKind::WrongType);
        let path = folder.join("disk");
        let device = FileDevice::create(&path, SIZE).await.unwrap();
        let taken = FileDevice::create(&path, SIZE).await.err().unwrap();
        assert_eq!(taken.kind(), IoErrorKind::AlreadyExists);
        // Another process truncates the file: the kernel's error comes with the context.
        std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(8192).unwrap();
        let short = device.read(ByteOffset(4096), vec![Buffer::zeroed(8192)]).await.unwrap_err();
        assert_eq!(short.kind(), IoErrorKind::OutOfRange);
        let story = short.to_string();
        let expected = format!("reading 8192 bytes at offset 4096 of {}", path.display());
        assert!(story.starts_with(&expected), "{story}");
    });
}

#[test]
fn a_file_too_large_for_its_filesystem_is_refused_before_any_allocation() {
    in_each_engine(async |_, folder| {
        let path = folder.join("disk");
        let refused = FileDevice::create(&path, ByteCount::gib(1 << 20)).await.err().unwrap();
        assert_eq!(refused.kind(), IoErrorKind::NoSpace);
        assert!(!path.exists(), "a failed create leaves nothing");
        let device = FileDevice::create(&path, SIZE).await.unwrap();
        let refused = device.resize(ByteCount::gib(1 << 20)).await.unwrap_err();
        assert_eq!(refused.kind(), IoErrorKind::NoSpace);
        assert_eq!(device.geometry().size, SIZE);
        assert_eq!(std::fs::metadata(&path).unwrap().len(), SIZE.0);
    });
}

#[test]
fn growth_is_allocated_and_zero_and_shrinking_frees_space() {
    in_each_engine(async |_, folder| {
        use std::os::unix::fs::MetadataExt;
        let path = folder.join("disk");
        let device = FileDevice::create(&path, ByteCount::mib(1)).await.unwrap();
        write_pattern(&device, 0, 1 << 20, 0xee).await;
        device.resize(ByteCount::kib(512)).await.unwrap();
        device.resize(ByteCount::mib(2)).await.unwrap();
        assert_eq!(device.geometry().size, ByteCount::mib(2));
        let found = std::fs::metadata(&path).unwrap();
        assert_eq!(found.len(), 2 << 20);
        assert!(found.blocks() * 512 >= 2 << 20, "only {} blocks are allocated", found.blocks());
        let bytes = device.read(ByteOffset(0), vec![Buffer::zeroed(2 << 20)]).await.unwrap();
        assert!(bytes[0][..512 << 10].iter().all(|&byte| byte == 0xee));
        assert!(bytes[0][512 << 10..].iter().all(|&byte| byte == 0), "added bytes read as zero");
    });
}

#[test]
fn started_writes_complete_without_a_waiter_when_the_world_ends() {
    for force_plain in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        // More than the ring holds at once, none ever polled.
        run(7, RealOptions::plain(force_plain), async |_| {
            let device = FileDevice::create(&path, SIZE).await.unwrap();
            for page in 0..SIZE.0 / 4096 {
                let bytes = Arc::new(Buffer::copy_of(&[page as u8; 4096]));
                drop(device.write(ByteOffset(page * 4096), vec![bytes], Stability::Volatile));
            }
        });
        let bytes = std::fs::read(&path).unwrap();
        for (page, bytes) in bytes.chunks(4096).enumerate() {
            assert!(bytes.iter().all(|&byte| byte == page as u8), "page {page} was not written");
        }
    }
}

async fn write_pattern(device: &dyn BlockDevice, at: u64, length: usize, byte: u8) {
    let bytes = Arc::new(Buffer::copy_of(&vec![byte; length]));
    device.write(ByteOffset(at), vec![bytes], Stability::Volatile).await.unwrap();
}

/// Every rule of the trait, on a device of SIZE bytes that reads as zero.
async fn check_rules(world: &World, device: Rc<dyn BlockDevice>) {
    let Geometry { size, sector } = device.geometry();
    assert_eq!(size, SIZE);
    assert!([512, 4096].contains(&sector), "sector of {sector} bytes");
    assert_eq!(size.0 % u64::from(sector), 0);
    fresh_bytes_read_as_zero(&*device).await;
    unaligned_is_refused(&*device, sector).await;
    out_of_range_is_refused_and_changes_nothing(&*device).await;
    scatter_lists_are_one_run_of_bytes(&*device).await;
    operations_of_no_bytes_succeed(&*device).await;
    random_operations_match_a_model(world, Rc::clone(&device)).await;
    dropped_futures_lose_only_the_result(world, Rc::clone(&device)).await;
    discarded_bytes_are_usable_again(&*device).await;
}

async fn fresh_bytes_read_as_zero(device: &dyn BlockDevice) {
    let mut dirty = Buffer::zeroed(SIZE.0 as usize);
    dirty.fill(0xaa);
    let bytes = device.read(ByteOffset(0), vec![dirty]).await.unwrap();
    assert!(bytes[0].iter().all(|&byte| byte == 0));
}

async fn unaligned_is_refused(device: &dyn BlockDevice, sector: u32) {
    let sector = u64::from(sector);
    let half = sector as usize / 2;
    let whole = sector as usize;
    for (at, lengths) in [(sector / 2, vec![whole]), (0, vec![half]), (0, vec![half, half]), (1, vec![1])] {
        let into = lengths.iter().map(|&length| Buffer::zeroed(length)).collect();
        let from = lengths.iter().map(|&length| Arc::new(Buffer::zeroed(length))).collect();
        let read = device.read(ByteOffset(at), into).await.unwrap_err();
        let write = device.write(ByteOffset(at), from, Stability::Volatile).await.unwrap_err();
        assert_eq!((read.kind(), write.kind()), (IoErrorKind::Unaligned, IoErrorKind::Unaligned));
    }
    let discard = device.discard(ByteOffset(0), ByteCount(sector / 2)).await.unwrap_err();
    assert_eq!(discard.kind(), IoErrorKind::Unaligned);
}

async fn out_of_range_is_refused_and_changes_nothing(device: &dyn BlockDevice) {
    let last = SIZE.0 - 4096;
    write_pattern(device, last, 4096, 0x11).await;
    let far = u64::MAX - 4095;
    for (at, length) in [(last, 8192), (SIZE.0, 4096), (far, 4096), (far, 8192)] {
        let read = device.read(ByteOffset(at), vec![Buffer::zeroed(length)]).await.unwrap_err();
        let from = vec![Arc::new(Buffer::copy_of(&vec![0x22; length]))];
        let write = device.write(ByteOffset(at), from, Stability::Stable).await.unwrap_err();
        let discard = device.discard(ByteOffset(at), ByteCount(length as u64)).await.unwrap_err();
        for error in [read, write, discard] {
            assert_eq!(error.kind(), IoErrorKind::OutOfRange, "{error}");
        }
    }
    let bytes = device.read(ByteOffset(last), vec![Buffer::zeroed(4096)]).await.unwrap();
    assert!(bytes[0].iter().all(|&byte| byte == 0x11), "a refused write changed something");
}

async fn scatter_lists_are_one_run_of_bytes(device: &dyn BlockDevice) {
    // One buffer more than the kernel takes in a list at once would need 1025; stay within SIZE.
    let lengths: Vec<usize> = (0..80).map(|index| 4096 * (1 + index % 3)).collect();
    let from = lengths.iter().zip(1..).map(|(&length, tag)| Arc::new(Buffer::copy_of(&vec![tag; length])));
    device.write(ByteOffset(8192), from.collect(), Stability::Stable).await.unwrap();
    let total: usize = lengths.iter().sum();
    let whole = device.read(ByteOffset(8192), vec![Buffer::zeroed(total)]).await.unwrap();
    let parts = lengths.iter().map(|&length| Buffer::zeroed(length)).collect();
    let parts = device.read(ByteOffset(8192), parts).await.unwrap();
    let mut rest = &whole[0][..];
    for ((part, &length), tag) in parts.iter().zip(&lengths).zip(1..) {
        assert!(part.len() == length && part.iter().all(|&byte| byte == tag));
        assert_eq!(**part, rest[..length]);
        rest = &rest[length..];
    }
}

async fn operations_of_no_bytes_succeed(device: &dyn BlockDevice) {
    assert!(device.read(ByteOffset(0), Vec::new()).await.unwrap().is_empty());
    device.write(ByteOffset(SIZE.0), Vec::new(), Stability::Stable).await.unwrap();
    device.discard(ByteOffset(0), ByteCount(0)).await.unwrap();
    device.flush().await.unwrap();
}

/// Many operations at once, never two on the same bytes, against a plain copy in memory.
async fn random_operations_match_a_model(world: &World, device: Rc<dyn BlockDevice>) {
    const LANES: u64 = 32;
    const LANE: u64 = SIZE.0 / LANES;
    let lanes: Vec<_> = (0..LANES)
        .map(|lane| {
            let device = Rc::clone(&device);
            let mut random = world.random(&format!("lane {lane}"));
            world.spawn("lane", async move {
                let start = lane * LANE;
                let first =
                    device.read(ByteOffset(start), vec![Buffer::zeroed(LANE as usize)]).await.unwrap();
                let mut model = first[0].to_vec();
                for _ in 0..40 {
                    let at = 4096 * random.below(LANE / 4096);
                    let length = (4096 * (1 + random.below(8))).min(LANE - at);
                    let range = at as usize..(at + length) as usize;
                    if random.percent(50.0) {
                        random.fill(&mut model[range.clone()]);
                        let stability =
                            if random.percent(20.0) { Stability::Stable } else { Stability::Volatile };
                        let from = model[range].chunks(8192).map(|part| Arc::new(Buffer::copy_of(part)));
                        device.write(ByteOffset(start + at), from.collect(), stability).await.unwrap();
                    } else {
                        let into = vec![Buffer::zeroed(length as usize)];
                        let bytes = device.read(ByteOffset(start + at), into).await.unwrap();
                        assert!(*bytes[0] == model[range], "lane {lane} read something else than it wrote");
                    }
                    if random.percent(3.0) {
                        device.flush().await.unwrap();
                    }
                }
            })
        })
        .collect();
    for lane in lanes {
        lane.await;
    }
}

async fn dropped_futures_lose_only_the_result(world: &World, device: Rc<dyn BlockDevice>) {
    // Each write is started, polled once, and abandoned; its bytes arrive all the same.
    for page in 0..64_u64 {
        let device = Rc::clone(&device);
        let bytes = Arc::new(Buffer::copy_of(&[0x40 + page as u8; 4096]));
        let mut write = device.write(ByteOffset(page * 4096), vec![bytes], Stability::Volatile);
        let mut read = device.read(ByteOffset((64 + page) * 4096), vec![Buffer::zeroed(4096)]);
        std::future::poll_fn(|context| {
            let _ = write.as_mut().poll(context);
            let _ = read.as_mut().poll(context);
            std::task::Poll::Ready(())
        })
        .await;
    }
    for page in 0..64_u64 {
        let expected = 0x40 + page as u8;
        // Retry a limited number of times: the device still owns the buffers.
        for attempt in 0.. {
            let bytes = device.read(ByteOffset(page * 4096), vec![Buffer::zeroed(4096)]).await.unwrap();
            if bytes[0].iter().all(|&byte| byte == expected) {
                break;
            }
            assert!(attempt < 1000, "an abandoned write of page {page} never happened");
            world.sleep(Duration::from_millis(2)).await;
        }
    }
}

async fn discarded_bytes_are_usable_again(device: &dyn BlockDevice) {
    write_pattern(device, 0, 128 << 10, 0x77).await;
    device.discard(ByteOffset(0), ByteCount::kib(64)).await.unwrap();
    let kept = device.read(ByteOffset(64 << 10), vec![Buffer::zeroed(64 << 10)]).await.unwrap();
    assert!(kept[0].iter().all(|&byte| byte == 0x77), "a discard took more than it was given");
    write_pattern(device, 0, 64 << 10, 0x78).await;
    let bytes = device.read(ByteOffset(0), vec![Buffer::zeroed(64 << 10)]).await.unwrap();
    assert!(bytes[0].iter().all(|&byte| byte == 0x78));
}
