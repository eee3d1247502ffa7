//! `prove --pool --protect`: backups under load, one of them opened on clones and verified, and verified where it is, and
//! an earlier one brought forward with the logs of a later one.

use crate::{
    spindle::{Bench, answered, is_full_run, json_of},
    verify_sources::check_backup,
};
use array::{
    format::VolumeId,
    pool::{NewClone, OpenSetting, Pool, open},
    volume::VolumeDevice,
};
use maildb::{
    ColumnId, DatabaseLocation, Instance, InstanceConfig, PageStampMode, Value,
    format::header::read_header,
    log::{JoinEnd, JoinedLog, LogFolder},
};
use std::{fs, path::Path, rc::Rc};
use world::{
    BlockDevice, Buffer, ByteCount, ByteOffset, Directory, ExtentDirectory, World,
    real::{self, AccessMode, FileDevice, FolderDirectory, RealOptions},
};

const KEPT: usize = 2;

#[test]
fn backups_under_load_are_application_consistent_and_a_clone_of_one_verifies() {
    if !is_full_run("a backup of a run under load, opened on clones") {
        return;
    }
    let bench = Bench::new();
    let run = ["prove", "--pool", "--size", "16MiB", "--cache", "4MiB", "--duration", "6s", "--seed", "7"];
    let said = bench.run(&[&run[..], &["--protect", "every=1s,keep=2", "--report", "one"]].concat());
    answered(&said);
    let backups = lines_of_backups(&said.stderr);
    println!("note: {backups:#?}");
    assert!(backups.len() > KEPT, "{}", said.stderr);
    assert!(backups.iter().all(|line| line.contains(": application, commits waited ")), "{backups:#?}");
    let deleted = backups.iter().filter(|line| line.ends_with(" deleted")).count();
    assert_eq!(deleted, backups.len() - KEPT, "{backups:#?}");
    let html = fs::read_to_string(bench.path("one.html")).expect("a report");
    assert!(html.contains("Backups while the load was measured") && html.contains("Freeze window"));
    let document =
        json_of(&fs::read_to_string(bench.path("one.json")).expect("a report"))["document"].clone();
    assert!(
        document.to_string().contains("labelled application"),
        "the section says what the labels are worth"
    );

    let newest = backups.last().and_then(|line| line.split_once(": ")).expect("a name").0.to_owned();
    let (folder, drives) = (bench.make_folder("opened"), bench.path("spindle-data"));
    real::run(0, RealOptions::default(), async |world| {
        for pool in ["db", "log"] {
            open_backup(&world, &drives, pool, (&newest, "newest"), &folder).await;
        }
    });
    let verified = bench.run(&["verify", "opened"]);
    assert_eq!(verified.code, Some(0), "{}{}", verified.stdout, verified.stderr);
    assert!(fs::read_dir(&folder).expect("a folder").count() > 3, "databases, logs and their small files");
    check_backup(&bench, &newest);
}

/// Clones every volume of a pool as the backup has it, and copies the files on the clones into a folder.
async fn open_backup(world: &World, drives: &Path, pool: &str, (backup, clone): (&str, &str), folder: &Path) {
    let pool = open(world, &drives_of(drives, pool), OpenSetting::default()).await.expect("the pool opens");
    for (index, volume) in pool.volumes().iter().enumerate() {
        if pool.snapshots(&*volume.name).expect("listed").is_empty() {
            // A clone of the backup that was opened before.
            continue;
        }
        let names: Vec<String> =
            pool.snapshots(&*volume.name).expect("listed").into_iter().map(|found| found.name).collect();
        assert_eq!(names.len(), KEPT, "as many are kept as was said: {names:?}");
        let clone = NewClone {
            name: format!("{clone}-{index}"),
            volume: VolumeId([index as u8 + clone.as_bytes()[0]; 16]),
            is_independent: false,
        };
        pool.clone_volume(&*volume.name, Some(backup.into()), &clone).await.expect("it can be cloned");
        copy_files(&pool, &clone.name, folder).await;
    }
    pool.close().await.expect("the pool closes");
}

/// The drives of a pool of the run.
fn drives_of(drives: &Path, pool: &str) -> Vec<Rc<dyn BlockDevice>> {
    let drive = |number| drives.join(format!("sg1-{pool}-drive{number}.spindle"));
    (1..=8)
        .map(|number| {
            let device = FileDevice::open(&drive(number), AccessMode::ReadWrite).expect("a drive");
            Rc::new(device) as Rc<dyn BlockDevice>
        })
        .collect()
}

/// Copies the files on a volume into a folder.
pub async fn copy_files(pool: &Rc<Pool>, volume: &str, folder: &Path) {
    let device = VolumeDevice(pool.volume(volume).expect("just made"));
    let directory = ExtentDirectory::open(Rc::new(device)).await.expect("a directory");
    for entry in directory.list().await.expect("listed") {
        let file = directory.open(&entry.name).await.expect("there");
        let whole = Buffer::zeroed(file.geometry().size.0 as usize);
        let bytes = file.read(ByteOffset(0), vec![whole]).await.expect("readable");
        fs::write(folder.join(&entry.name), &bytes[0][..]).expect("room for it");
    }
}

#[test]
fn an_earlier_backup_is_brought_forward_with_the_logs_of_the_next() {
    if !is_full_run("a backup brought forward with the logs of the next") {
        return;
    }
    let bench = Bench::new();
    let run = ["prove", "--pool", "--size", "16MiB", "--cache", "4MiB", "--duration", "4s", "--seed", "8"];
    answered(&bench.run(&[&run[..], &["--protect", "every=1s,keep=2,logs=kept"]].concat()));
    let drives = bench.path("spindle-data");
    let folders = [bench.make_folder("earlier"), bench.make_folder("later")];
    real::run(0, RealOptions::default(), async |world| {
        let backups = names_of_backups(&world, &drives).await;
        for ((backup, clone), folder) in backups.iter().zip(["earlier", "later"]).zip(&folders) {
            for pool in ["db", "log"] {
                open_backup(&world, &drives, pool, (backup, clone), folder).await;
            }
        }
        let [base, later] = folders.each_ref().map(|folder| LogFolder {
            directory: Rc::new(FolderDirectory::open(folder).expect("a folder")),
            name: folder.display().to_string(),
        });
        let joined = JoinedLog::prove("E00", base, vec![later], JoinEnd::Newest).await.expect("one log");
        println!("note: {:?}", joined.summary());
        assert!(joined.summary().commits > 0, "the load went on: {:?}", joined.summary());
        joined.join().await.expect("joined");
        let [forward, later] =
            [all_records(&world, &folders[0]).await, all_records(&world, &folders[1]).await];
        assert!(later.len() > 1000, "{} records", later.len());
        assert!(forward == later, "{} and {} records", forward.len(), later.len());
    });
    let verified = bench.run(&["verify", "earlier"]);
    assert_eq!(verified.code, Some(0), "{}{}", verified.stdout, verified.stderr);
}

/// The backups of a run, oldest first.
async fn names_of_backups(world: &World, drives: &Path) -> Vec<String> {
    let devices = drives_of(drives, "log");
    let pool = open(world, &devices, OpenSetting::default()).await.expect("the pool opens");
    let volume = pool.volumes().remove(0);
    let names = pool.snapshots(&*volume.name).expect("listed").into_iter().map(|found| found.name).collect();
    pool.close().await.expect("the pool closes");
    names
}

/// Recovers the group in a folder; every record of every table, in its order.
pub async fn all_records(world: &World, folder: &Path) -> Vec<Vec<(ColumnId, Value)>> {
    let directory: Rc<dyn Directory> = Rc::new(FolderDirectory::open(folder).expect("a folder"));
    let mut names: Vec<String> =
        directory.list().await.expect("listed").into_iter().map(|entry| entry.name).collect();
    names.retain(|name| name.ends_with(".edb"));
    names.sort();
    let first = directory.open(&names[0]).await.expect("there");
    let page_size = read_header(&first).await.expect("readable").best().expect("whole").page_size;
    let locations = names
        .into_iter()
        .map(|file_name| DatabaseLocation { directory: Rc::clone(&directory), file_name })
        .collect();
    let config = InstanceConfig {
        page_stamps: PageStampMode::Off,
        ..InstanceConfig::new(page_size, ByteCount::mib(16))
    };
    let instance = Instance::open(world, directory, locations, config).await.expect("the group opens");
    let mut records = Vec::new();
    for database in instance.databases() {
        for name in database.table_names() {
            let table = database.table(&name).expect("listed");
            let mut cursor = database.cursor(&table, &[]).expect("from the first");
            loop {
                let batch = cursor.next_rows().await.expect("readable");
                if batch.is_empty() {
                    break;
                }
                records.extend(batch);
            }
        }
    }
    instance.close().await.expect("it closes");
    records
}

/// Lines of the test log about backups, without their times.
fn lines_of_backups(stderr: &str) -> Vec<String> {
    let begin = |line: &str| line.find("backup-").map(|at| line[at..].to_owned());
    stderr.lines().filter_map(begin).collect()
}

#[test]
fn bad_values_of_protect_are_refused_in_one_line() {
    let bench = Bench::new();
    let refused = |words: &[&str]| bench.refused(&[&["prove"], words].concat());
    let lacks = refused(&["--pool", "--protect", "every=10s"]);
    assert!(lacks.contains("it lacks keep=; write every=TIME,keep=N, such as every=10s,keep=24"), "{lacks}");
    let zero = refused(&["--pool", "--protect", "every=0s,keep=3"]);
    assert!(zero.contains("every=0s: whole seconds from 1s to 24h are possible"), "{zero}");
    let alone = refused(&["--protect", "every=10s,keep=3"]);
    assert!(alone.contains("--pool"), "{alone}");
    let search = refused(&["--pool", "--max", "--protect", "every=10s,keep=3"]);
    assert!(search.contains("--protect with a search"), "{search}");
}
