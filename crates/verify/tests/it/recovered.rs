//! Whole runs over folders and over devices that an extent directory divides, at each level.

use crate::{
    model::{self, Mix, Rows},
    ours::{Files, files_of},
    written,
};
use maildb::{Durability, LogRetention, PageSize, PageStampMode};
use std::{
    fs,
    path::{Path, PathBuf},
    rc::Rc,
    sync::Arc,
    time::Duration,
};
use verify::{
    FileFinding, FilePart,
    running::{
        DividedDevice, FileOutcome, RateLimiter, RecoveryTrial, RunVerdict, Settings, TrialEnd,
        UndividedDevice, VerifyLevel, VerifyOutcome, find, run,
    },
};
use world::{
    BlockDevice, Buffer, ByteCount, ByteOffset, Directory, ExtentDirectory, Random, Stability, World,
    real::{self, AccessMode, FileDevice},
};

const PAGE: usize = 8192;
const IMAGE: u64 = 48 << 20;
/// The engine's own checkpoint depth: more log than any of these tests writes.
const DEPTH: ByteCount = ByteCount::mib(20);

/// A group with `databases` databases, copied while it was in use: its files, and the rows of each database.
struct DirtyCopy {
    files: Files,
    /// The files after half of the changes of the last database.
    earlier: Files,
    rows: Vec<Rows>,
}

fn dirty_copy(databases: usize, changes: usize) -> DirtyCopy {
    dirty_copy_with_depth(databases, changes, DEPTH)
}

/// As [`dirty_copy`], with a bound of the log that a recovery replays.
fn dirty_copy_with_depth(databases: usize, changes: usize, depth: ByteCount) -> DirtyCopy {
    let folder = tempfile::tempdir().expect("a temporary folder");
    real::run(3, real::RealOptions::default(), async |world| {
        // A small cache, so that pages reach the file while their log is still needed.
        let mut config = model::config(PageSize::Kib8, ByteCount(64 * PAGE as u64));
        config.log_file = ByteCount::kib(256);
        config.checkpoint_depth = depth;
        config.log_retention = LogRetention::UntilReleased;
        config.page_stamps = PageStampMode::Off;
        config.torn_page_protection = false;
        let instance = model::open(&world, folder.path(), databases, config).await;
        let mut random = Random::new(5, "recovered");
        let mix = Mix { body_bytes_max: 700, mailboxes: 20, delete_percent: 20.0 };
        let (mut all, mut earlier) = (Vec::new(), Files::new());
        for database in instance.databases() {
            let table = model::mail_table(&database).await;
            let mut rows = Rows::new();
            let mut session = instance.session();
            model::change_at_random(&mut session, &table, &mut rows, &mut random, changes / 2, mix).await;
            earlier = files_of(folder.path());
            model::change_at_random(&mut session, &table, &mut rows, &mut random, changes / 2, mix).await;
            if depth < DEPTH {
                // The checkpoint follows in the background.
                world.sleep(Duration::from_millis(500)).await;
                model::change_at_random(&mut session, &table, &mut rows, &mut random, changes / 10, mix)
                    .await;
            }
            let row = model::random_row(&mut random, 700);
            session.insert(&table, &model::row_values((-1, -1), &row)).await.expect("a new key");
            session.commit(Durability::Stable).await.expect("a commit");
            rows.insert((-1, -1), row);
            all.push(rows);
        }
        let files = files_of(folder.path());
        instance.close().await.expect("the group closes");
        DirtyCopy { files, earlier, rows: all }
    })
}

fn folder_of(files: &Files) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (name, bytes) in files {
        fs::write(folder.path().join(name), bytes).expect("room for it");
    }
    folder
}

/// Writes an image whose extent directory has these files.
fn image_of(files: &Files, path: &Path) {
    let (files, path) = (files.clone(), path.to_owned());
    real::run(1, real::RealOptions::default(), async move |_: World| {
        let device = FileDevice::create(&path, ByteCount(IMAGE)).await.expect("room for it");
        let directory = ExtentDirectory::format(Rc::new(device)).await.expect("a directory");
        for (name, bytes) in &files {
            let file = directory.create(name, ByteCount(bytes.len() as u64)).await.expect("room for it");
            let bytes = vec![Arc::new(Buffer::copy_of(bytes))];
            file.write(ByteOffset(0), bytes, Stability::Stable).await.expect("written");
        }
    });
}

async fn divided(path: &Path) -> Rc<DividedDevice> {
    let device = FileDevice::open(path, AccessMode::Read).expect("it can be read");
    DividedDevice::open(path, Rc::new(device)).await.expect("an extent directory")
}

/// Checks a folder, or the files of an image.
fn checked(path: &Path, level: VerifyLevel, scratch: ByteCount) -> VerifyOutcome {
    let path = path.to_owned();
    real::run(1, real::RealOptions::default(), async move |world: World| {
        let found = if path.is_dir() {
            find(&[path], &[]).await.expect("it can be searched")
        } else {
            find(&[], &[divided(&path).await]).await.expect("it can be searched")
        };
        let settings = Settings { level, jobs: 2.try_into().expect("not zero"), scratch };
        let limiter = RateLimiter::new(&world, None, None);
        run(&world, &settings, found, &limiter, None).await.expect("no state is saved")
    })
}

fn at(path: &Path, level: VerifyLevel) -> VerifyOutcome {
    checked(path, level, ByteCount::mib(256))
}

fn only_trial(outcome: &VerifyOutcome) -> &RecoveryTrial {
    let [trial] = outcome.recoveries.as_slice() else { panic!("{:#?}", outcome.recoveries) };
    trial
}

fn damage_in(outcome: &VerifyOutcome) -> Vec<(PathBuf, String)> {
    let all = |file: &FileOutcome| {
        let path = file.path.clone();
        let of = |finding: &verify::FileFinding| format!("{:?}: {}", finding.severity, finding.what);
        file.findings.kept().iter().map(of).map(|what| (path.clone(), what)).collect::<Vec<_>>()
    };
    outcome.files.iter().filter(|file| file.is_damaged()).flat_map(all).collect()
}

#[test]
fn databases_in_use_come_up_with_every_row_from_a_folder_and_from_a_device() {
    let copy = dirty_copy(2, 1500);
    let folder = folder_of(&copy.files);
    let image = folder_of(&Files::new());
    let image = image.path().join("volume");
    image_of(&copy.files, &image);
    let image_before = fs::read(&image).expect("readable");
    for (place, name) in
        [(folder.path(), None), (image.as_path(), Some(format!("{}:priv1.edb", image.display())))]
    {
        let outcome = at(place, VerifyLevel::Recover);
        assert_eq!(outcome.verdict(), RunVerdict::Clean, "{:#?}", (damage_in(&outcome), &outcome.recoveries));
        let trial = only_trial(&outcome);
        let TrialEnd::Recovered(contents) = &trial.end else { panic!("{trial:#?}") };
        assert!(!contents.recovery.clean && contents.kept.0 > 0 && contents.recovery.records_read > 0);
        assert_eq!(contents.recovery.log_end.generation as usize, logs_of(&copy.files));
        let read: Vec<u64> = contents.databases.iter().map(|database| database.records).collect();
        let known: Vec<u64> = copy.rows.iter().map(|rows| rows.len() as u64).collect();
        assert_eq!(read, known);
        if let Some(name) = name {
            assert_eq!(trial.databases[0], PathBuf::from(name));
        }
    }
    assert!(files_of(folder.path()) == copy.files, "what is verified is not touched");
    assert!(fs::read(&image).expect("readable") == image_before, "what is verified is not touched");
}

fn logs_of(files: &Files) -> usize {
    files.keys().filter(|name| name.ends_with(".log") && *name != "E00tmp.log").count()
}

/// The tail of the log was lost after pages with its changes had reached the database: each file alone is in order.
#[test]
fn a_lost_end_of_the_log_is_found_by_a_recovery_alone() {
    let copy = dirty_copy(1, 4000);
    let mut files = copy.files.clone();
    let newest = files["E00.log"].clone();
    let used =
        newest.chunks(4096).rposition(|segment| segment.iter().any(|&byte| byte != 0)).expect("a header");
    // Cut off as much as it takes until a page is newer than the log.
    let cut = (1..used).step_by(2).find(|cut| {
        let log = files.get_mut("E00.log").expect("it is there");
        log.copy_from_slice(&newest);
        log[(used + 1 - cut) * 4096..].fill(0);
        let folder = folder_of(&files);
        only_trial(&at(folder.path(), VerifyLevel::Recover)).is_failed()
    });
    assert!(cut.is_some(), "pages were written while their log was young");
    let folder = folder_of(&files);
    for level in [VerifyLevel::Chain, VerifyLevel::Pages, VerifyLevel::Deep] {
        let outcome = at(folder.path(), level);
        assert_eq!(outcome.verdict(), RunVerdict::Clean, "{level:?}: {:#?}", damage_in(&outcome));
        assert!(outcome.recoveries.is_empty());
    }
    let outcome = at(folder.path(), VerifyLevel::Recover);
    assert_eq!(outcome.verdict(), RunVerdict::Damaged);
    let TrialEnd::Failed(path, finding) = &only_trial(&outcome).end else {
        panic!("{:#?}", outcome.recoveries)
    };
    assert!(path.ends_with("priv1.edb") && matches!(finding.place.part, FilePart::Page(_)), "{finding:?}");
    assert!(finding.what.starts_with("the recovery ended here: "), "{finding:?}");
}

#[test]
fn a_torn_end_of_the_log_is_no_damage_and_recovered_up_to_it() {
    let copy = dirty_copy(1, 300);
    let mut files = copy.files;
    let log = files.get_mut("E00.log").expect("it is there");
    let used = log.chunks(4096).rposition(|segment| segment.iter().any(|&byte| byte != 0)).expect("a header");
    // The last write, with its shadow.
    log[(used - 1) * 4096 + 64..(used + 1) * 4096].fill(0x5A);
    let folder = folder_of(&files);
    let outcome = at(folder.path(), VerifyLevel::Recover);
    assert_eq!(outcome.verdict(), RunVerdict::Clean, "{:#?}", (damage_in(&outcome), &outcome.recoveries));
    let TrialEnd::Recovered(contents) = &only_trial(&outcome).end else {
        panic!("{:#?}", outcome.recoveries)
    };
    let (read, known) = (contents.databases[0].records, copy.rows[0].len() as u64);
    assert!(read < known && read + 20 > known, "{read} of {known}: the last commit is lost");
}

/// A page that was written at an earlier time: its checksum is right, and there are no page stamps.
#[test]
fn a_lost_write_of_a_page_is_found_by_a_recovery() {
    if std::env::var_os("SPINDLE_FULL").is_none() {
        println!("skipped: a search of ten seconds, in full runs");
        return;
    }
    // Checkpoints follow in their own time: not each run leaves a page that was written before one and changed after it.
    let found = (1..=12)
        .find_map(|run| lost_write_in(&dirty_copy_with_depth(1, 4000 + 250 * run, ByteCount::kib(256))));
    let (number, files, finding) = found.expect("a page that was changed before the checkpoint and after it");
    assert_eq!(finding.place.part, FilePart::Page(maildb::PageNumber(number as u32)));
    assert!(finding.what.ends_with("a write was lost"), "{finding:?}");
    let folder = folder_of(&files);
    assert_eq!(at(folder.path(), VerifyLevel::Pages).verdict(), RunVerdict::Clean);
}

/// A page whose last write is lost, the files with it, and what a recovery says: of those that the log still changes.
fn lost_write_in(copy: &DirtyCopy) -> Option<(usize, Files, FileFinding)> {
    let (old, new) = (&copy.earlier["priv1.edb"], &copy.files["priv1.edb"]);
    let page = |bytes: &[u8], number: usize| bytes[(number + 1) * PAGE..][..PAGE].to_vec();
    let changed = (1..old.len() / PAGE - 2).filter(|&number| {
        let old = page(old, number);
        old != page(new, number) && old.iter().any(|&byte| byte != 0)
    });
    // Each one is a whole recovery, and the first pages change most.
    changed.take(6).find_map(|number| {
        let mut files = copy.files.clone();
        let database = files.get_mut("priv1.edb").expect("it is there");
        database[(number + 1) * PAGE..][..PAGE].copy_from_slice(&page(old, number));
        let folder = folder_of(&files);
        match &only_trial(&at(folder.path(), VerifyLevel::Recover)).end {
            TrialEnd::Failed(_, finding) => Some((number, files, finding.clone())),
            _ => None,
        }
    })
}

/// Files that a server writes meanwhile contradict each other: that is no damage.
#[test]
fn a_failed_recovery_of_files_in_use_says_that_they_are() {
    let mut files = dirty_copy(1, 2000).files;
    files.remove("E0000000002.log").expect("more than two generations");
    let folder = folder_of(&files);
    let path = folder.path().to_owned();
    let outcome = real::run(1, real::RealOptions::default(), async move |world: World| {
        let found = find(std::slice::from_ref(&path), &[]).await.expect("it can be searched");
        let log = fs::File::options().append(true).open(path.join("E00.log")).expect("it is there");
        log.set_modified(std::time::SystemTime::UNIX_EPOCH).expect("it is ours");
        let level = VerifyLevel::Recover;
        let settings = Settings { level, jobs: 2.try_into().expect("not zero"), scratch: DEPTH };
        let limiter = RateLimiter::new(&world, None, None);
        run(&world, &settings, found, &limiter, None).await.expect("no state is saved")
    });
    assert_eq!(outcome.verdict(), RunVerdict::Unfinished);
    let TrialEnd::Open(why) = &only_trial(&outcome).end else { panic!("{:#?}", outcome.recoveries) };
    assert_eq!(why, "E00.log changed meanwhile: the databases are in use; verify a snapshot of them");
}

#[test]
fn a_level_finds_what_it_reads_and_nothing_else() {
    let copy = dirty_copy(1, 2000);
    let mut files = copy.files.clone();
    let database = files.get_mut("priv1.edb").expect("it is there");
    let page = (1..database.len() / PAGE)
        .rposition(|page| database[page * PAGE..][..PAGE].iter().any(|&byte| byte != 0));
    let place = (page.expect("a page in use") + 1) * PAGE + 700;
    database[place] ^= 1;
    let image = folder_of(&Files::new());
    let image = image.path().join("volume");
    image_of(&files, &image);
    assert_eq!(at(&image, VerifyLevel::Chain).verdict(), RunVerdict::Clean, "it reads no page");
    for level in [VerifyLevel::Pages, VerifyLevel::Deep, VerifyLevel::Recover] {
        let outcome = at(&image, level);
        assert_eq!(outcome.verdict(), RunVerdict::Damaged, "{level:?}");
        let [(path, _), ..] = &damage_in(&outcome)[..] else { panic!("{level:?}") };
        assert_eq!(*path, PathBuf::from(format!("{}:priv1.edb", image.display())));
    }
    // A generation that the header names: the chain shows it.
    let mut files = copy.files.clone();
    files.remove("E0000000001.log").expect("the first generation");
    let folder = folder_of(&files);
    for level in VerifyLevel::ALL {
        let outcome = at(folder.path(), level);
        assert_eq!(outcome.verdict(), RunVerdict::Damaged, "{level:?}");
        assert!(outcome.sets[0].is_beyond_recovery(), "{level:?}");
        assert!(outcome.recoveries.iter().all(RecoveryTrial::is_open), "it is not tried in vain");
    }
}

/// The header names the generations that were needed when it was written; the recovery needs all from the checkpoint on.
#[test]
fn a_generation_missing_in_the_middle_is_found_by_a_recovery() {
    let mut files = dirty_copy(1, 2000).files;
    files.remove("E0000000002.log").expect("more than two generations");
    let folder = folder_of(&files);
    for level in [VerifyLevel::Chain, VerifyLevel::Pages, VerifyLevel::Deep] {
        let outcome = at(folder.path(), level);
        assert_eq!(outcome.verdict(), RunVerdict::Clean, "{level:?}: {:#?}", damage_in(&outcome));
        let warned = &outcome.sets[0].verdict.findings[0];
        assert!(warned.1.what.contains("before it E0000000002.log is missing"), "{warned:?}");
    }
    let outcome = at(folder.path(), VerifyLevel::Recover);
    assert_eq!(outcome.verdict(), RunVerdict::Damaged);
    let TrialEnd::Failed(path, finding) = &only_trial(&outcome).end else {
        panic!("{:#?}", outcome.recoveries)
    };
    assert!(path.ends_with("E0000000002.log"), "{}", path.display());
    assert_eq!(finding.what, "the recovery ended here: this generation of the log is missing");
}

#[test]
fn a_recovery_that_was_not_made_is_no_success() {
    let copy = dirty_copy(2, 400);
    let folder = folder_of(&copy.files);
    let outcome = checked(folder.path(), VerifyLevel::Recover, ByteCount::kib(64));
    assert_eq!(outcome.verdict(), RunVerdict::Unfinished);
    let TrialEnd::Open(why) = &only_trial(&outcome).end else { panic!("{:#?}", outcome.recoveries) };
    assert!(why.contains("need more than 64.0 KiB of memory") && why.contains("⟨scratch⟩"), "{why}");
    let mut files = copy.files.clone();
    files.remove("priv1.edb").expect("it is there");
    let folder = folder_of(&files);
    let outcome = at(folder.path(), VerifyLevel::Recover);
    assert_eq!(outcome.verdict(), RunVerdict::Unfinished);
    let TrialEnd::Open(why) = &only_trial(&outcome).end else { panic!("{:#?}", outcome.recoveries) };
    assert!(why.contains("give all of them"), "{why}");
}

#[test]
fn a_device_that_somebody_writes_to_is_named() {
    let copy = dirty_copy(1, 300);
    let image = folder_of(&Files::new());
    let image = image.path().join("volume");
    image_of(&copy.files, &image);
    let (path, files) = (image, copy.files);
    real::run(1, real::RealOptions::default(), async move |_: World| {
        let device = divided(&path).await;
        assert!(!device.has_changed().await.expect("readable"));
        let writer = FileDevice::open(&path, AccessMode::ReadWrite).expect("it can be written");
        let directory = ExtentDirectory::open(Rc::new(writer)).await.expect("a directory");
        // A page in the middle of a database is not looked at twice, the end of the current log is.
        for (name, is_seen) in [("priv1.edb", false), ("E00.log", true), ("E00.chk", true)] {
            let device = divided(&path).await;
            let file = directory.open(name).await.expect("it is there");
            let mut bytes = Buffer::copy_of(&files[name]);
            *bytes.last_mut().expect("not empty") ^= 1;
            file.write(ByteOffset(0), vec![Arc::new(bytes)], Stability::Stable).await.expect("written");
            assert_eq!(device.has_changed().await.expect("readable"), is_seen, "{name}");
        }
        let device = divided(&path).await;
        directory.rename("E00.log", "E0000000099.log").await.expect("it is there");
        assert!(device.has_changed().await.expect("readable"));
    });
}

#[test]
fn a_device_without_an_extent_directory_is_refused_by_what_it_is() {
    let folder = folder_of(&Files::from([
        ("blank".to_owned(), vec![0; 4 << 20]),
        ("foreign".to_owned(), vec![7; 4 << 20]),
        ("short".to_owned(), vec![7; 4096]),
    ]));
    let path = folder.path().to_owned();
    real::run(1, real::RealOptions::default(), async move |_: World| {
        for (name, is_blank) in [("blank", true), ("foreign", false), ("short", false)] {
            let path = path.join(name);
            let device: Rc<dyn BlockDevice> =
                Rc::new(FileDevice::open(&path, AccessMode::Read).expect("readable"));
            match DividedDevice::open(&path, device).await {
                Err(UndividedDevice::Blank(named)) => assert!(is_blank && named == path),
                Err(UndividedDevice::Foreign(named)) => assert!(!is_blank && named == path),
                other => panic!("{name}: {:?}", other.err()),
            }
        }
    });
}

/// Changes below right checksums reach the engine. It may refuse or contradict itself; it must end, and the rest of
/// the program with it.
#[test]
fn no_change_with_valid_checksums_stops_the_program() {
    let copy = dirty_copy(1, 700);
    let mut random = Random::new(9, "changes below checksums");
    let (mut whole, mut failed, mut not_tried) = (0, 0, 0);
    for _ in 0..if std::env::var_os("SPINDLE_FULL").is_some() { 2_000 } else { 30 } {
        let mut files = copy.files.clone();
        let database = files.get_mut("priv1.edb").expect("it is there");
        for _ in 0..1 + random.below(3) {
            let number = 1 + random.below(60) as usize;
            let page = &mut database[(number + 1) * PAGE..][..PAGE];
            if page.iter().all(|&byte| byte == 0) {
                continue;
            }
            // The structural parts: header, first nodes, tags.
            let places = [16..80, 80..400, PAGE - 60..PAGE];
            let place = places[random.below(3) as usize].clone();
            page[place.start + random.below(place.len() as u64) as usize] = random.below(256) as u8;
            written::seal(page, number as u32);
        }
        let folder = folder_of(&files);
        let outcome = at(folder.path(), VerifyLevel::Recover);
        match only_trial(&outcome) {
            trial if trial.is_failed() => failed += 1,
            trial if trial.is_open() => not_tried += 1,
            _ => whole += 1,
        }
    }
    println!("measured: {whole} came up whole, {failed} failed, {not_tried} were damaged before");
    assert!(failed > 0 && whole > 0, "some changes are found by the engine, some by nobody");
}

#[test]
fn one_copy_of_the_file_table_suffices_and_is_told() {
    let copy = dirty_copy(1, 300);
    let image = folder_of(&Files::new());
    let image = image.path().join("volume");
    image_of(&copy.files, &image);
    let whole = at(&image, VerifyLevel::Chain);
    assert!(whole.warnings.is_empty(), "{:?}", whole.warnings);
    for place in [100, (1 << 20) + 100] {
        let bytes = fs::read(&image).expect("readable");
        let mut damaged = bytes.clone();
        damaged[place] ^= 1;
        fs::write(&image, damaged).expect("written");
        let outcome = at(&image, VerifyLevel::Recover);
        assert_eq!(outcome.verdict(), RunVerdict::Clean, "{:?}", damage_in(&outcome));
        assert!(outcome.warnings[0].contains("one of the two copies"), "{:?}", outcome.warnings);
        fs::write(&image, bytes).expect("written");
    }
}
