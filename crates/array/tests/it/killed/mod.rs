//! A pool on real files whose process is killed again and again.
//!
//! A child process writes, discards and takes snapshots, and reports through a pipe each command that it
//! begins and each that is acknowledged. The parent kills it without warning, opens the pool, reads every
//! sector of the volume and of each snapshot, and compares with a model that it computes itself:
//!
//! - a sector has the value of the last acknowledged command, or of the one that was under way;
//! - a snapshot has for each sector a value acknowledged before the snapshot began, or one begun before it
//!   was acknowledged;
//! - a snapshot reads the same every time.
//!
//! Now and then a drive's file is removed, and children work while the pool is rebuilt: first on the
//! remaining drives, later also on a new one. The next drive is removed only when the rebuilt copies are
//! stable.

mod child;
mod model;

use crate::scene::MIB;
use array::{
    format::{DriveId, PoolId, SparingLevel, VolumeId, row::WriteCache},
    pool::{NewDrive, NewPool, NewVolume, OpenSetting, Pool, VolumeSetting, create, open},
    volume::VolumeDevice,
};
use model::{PoolModel, SECTORS, SnapshotKnown, sectors_of};
use std::{
    fs,
    io::{BufRead, BufReader},
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    rc::Rc,
    thread,
    time::Duration,
};
use world::{
    BlockDevice, Buffer, ByteCount, ByteOffset, Random, World,
    real::{self, AccessMode, FileDevice, RealOptions},
};

const FOLDER: &str = "SPINDLE_KILL_FOLDER";
const ROUND: &str = "SPINDLE_KILL_ROUND";
const VOLUME: &str = "mail";
const DRIVES: u64 = 4;
/// The minimum size.
const DRIVE: ByteCount = ByteCount::mib(49);
/// After this many rounds a drive is removed.
const LOSS_EVERY: u64 = 4;

/// Checkpoints every few writes, and a cache too small for the trees.
fn setting() -> OpenSetting {
    OpenSetting {
        table_entries: 1500,
        cache_bytes: 64 << 10,
        log_blocks: 2048,
        interval: Duration::from_millis(200),
        ..OpenSetting::default()
    }
}

/// The present drives, in the order of their names.
fn drive_paths(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("the folder exists");
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    paths
}

async fn open_pool(world: &World, folder: &Path) -> Rc<Pool> {
    let open_drive = |path: PathBuf| FileDevice::open(&path, AccessMode::ReadWrite).expect("a drive opens");
    let devices: Vec<Rc<dyn BlockDevice>> =
        drive_paths(folder).into_iter().map(|path| Rc::new(open_drive(path)) as _).collect();
    open(world, &devices, setting()).await.expect("the pool opens")
}

/// A drive on a new file, named by its number.
async fn new_drive(folder: &Path, number: u64) -> NewDrive {
    let path = folder.join(format!("drive{number:04}"));
    let device = FileDevice::create(&path, DRIVE).await.expect("a file");
    let mut drive = [1; 16];
    drive[..8].copy_from_slice(&(number + 1).to_le_bytes());
    NewDrive { drive: DriveId(drive), serial: format!("FILE{number}"), device: Rc::new(device), domain: None }
}

async fn make_pool(world: &World, folder: &Path) {
    let mut drives = Vec::new();
    for number in 0..DRIVES {
        drives.push(new_drive(folder, number).await);
    }
    let new = NewPool {
        pool: PoolId([7; 16]),
        name: "killed".to_owned(),
        slot_bytes: MIB as u32,
        sparing: SparingLevel::None,
    };
    create(world, &new, &drives).await.expect("a pool is made");
    drop(drives);
    let pool = open_pool(world, folder).await;
    let size_bytes = SECTORS as u64 * model::SECTOR as u64;
    // A kill does not affect the kernel's cache: acknowledged writes survive, flushed or not.
    let setting = VolumeSetting { write_cache: WriteCache::On, ..VolumeSetting::default() };
    let volume = NewVolume { name: VOLUME.to_owned(), volume: VolumeId([1; 16]), size_bytes, setting };
    pool.create_volume(&volume).await.expect("a volume is made");
    pool.close().await.expect("it closes");
}

/// Starts the child, kills it after `life` of work, and returns the lines that it printed.
fn run_child(folder: &Path, round: u64, life: Duration) -> Vec<String> {
    let mut child = Command::new(std::env::current_exe().expect("this test program"))
        .args(["--exact", "killed::child::works_until_it_is_killed", "--ignored", "--nocapture"])
        .arg("--test-threads=1")
        .env(FOLDER, folder)
        .env(ROUND, round.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .expect("the child starts");
    let out = BufReader::new(child.stdout.take().expect("its output is piped"));
    let (ready, is_ready) = std::sync::mpsc::channel();
    let reader = thread::spawn(move || {
        let mut lines = Vec::new();
        for line in out.lines() {
            // A line that the kill truncated has no end mark, and too few words.
            let Ok(line) = line else { break };
            if line.ends_with("killed ready") {
                let _ = ready.send(());
            }
            lines.push(line);
        }
        lines
    });
    is_ready.recv_timeout(Duration::from_secs(60)).expect("the child opens the pool");
    thread::sleep(life);
    child.kill().expect("the child can be killed");
    let status = child.wait().expect("the child has ended");
    assert_eq!(status.signal(), Some(9), "round {round}: the child ended without the kill: {status}");
    reader.join().expect("the reader has ended")
}

async fn read_all(device: &dyn BlockDevice) -> Vec<u8> {
    const AT_ONCE: usize = 1 << 20;
    let mut bytes = Vec::new();
    for at in (0..device.geometry().size.0).step_by(AT_ONCE) {
        let length = AT_ONCE.min((device.geometry().size.0 - at) as usize);
        let read = device.read(ByteOffset(at), vec![Buffer::zeroed(length)]).await.expect("it is read");
        bytes.extend_from_slice(&read[0]);
    }
    bytes
}

/// Opens the pool and checks all promises. `known` becomes its current content.
async fn check_round(world: &World, folder: &Path, round: u64, known: &mut PoolModel) {
    let pool = open_pool(world, folder).await;
    let volume = VolumeDevice(pool.volume(VOLUME).expect("it exists"));
    known.settle_volume(round, &sectors_of(&read_all(&volume).await));
    let snapshots = pool.snapshots(VOLUME).expect("the volume exists");
    let names: Vec<String> = snapshots.iter().map(|snapshot| snapshot.name.clone()).collect();
    known.settle_names(round, &names);
    for name in names {
        let device = pool.snapshot_device(VOLUME, &name).expect("it exists");
        known.settle_snapshot(round, &name, &sectors_of(&read_all(&device).await));
    }
    assert_eq!(pool.failure(), None, "round {round}");
    if pool.drives_present() < DRIVES as usize {
        let drive = new_drive(folder, DRIVES + round).await;
        pool.add_drive(&drive).await.expect("it is taken in");
    }
    // Before that a kill may undo the rebuild repeatedly, and the pool does not promise to survive two lost
    // drives.
    if loses_a_drive(round + 1) {
        pool.rebuild().await.expect("it ends, and lasts");
        assert_eq!(pool.degraded().segments, 0, "round {round}: {:?}", pool.space());
    }
    if round.is_multiple_of(5) {
        let found = pool.scrub().await.expect("it ends");
        assert!(found.lost.is_empty(), "round {round}: {:?}", found.lost);
    }
    if round.is_multiple_of(2) {
        pool.close().await.expect("it closes");
    }
}

/// True if a drive is removed before this round.
fn loses_a_drive(round: u64) -> bool {
    round % LOSS_EVERY == LOSS_EVERY - 1
}

/// Removes the file of a drive, like a pulled drive.
fn lose_a_drive(folder: &Path, random: &mut Random) {
    let paths = drive_paths(folder);
    fs::remove_file(&paths[random.below(paths.len() as u64) as usize]).expect("removed");
}

fn kill_again_and_again(rounds: u64) {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a temporary folder");
    let path = folder.path().to_owned();
    real::run(0, RealOptions::default(), async |world| make_pool(&world, &path).await);
    let mut random = Random::new(20, "kills");
    let mut known = PoolModel::default();
    let (mut answered, mut frozen) = (0, 0);
    for round in 0..rounds {
        if loses_a_drive(round) {
            lose_a_drive(&path, &mut random);
        }
        let life = Duration::from_millis(5 + random.below(400));
        let lines = run_child(&path, round, life);
        answered += known.hear(round, &lines);
        known = real::run(round, RealOptions::default(), async |world| {
            check_round(&world, &path, round, &mut known).await;
            known
        });
        frozen +=
            known.snapshots.values().filter(|snapshot| matches!(snapshot, SnapshotKnown::Frozen(_))).count();
    }
    println!("measured: {rounds} kills, {answered} commands answered, {frozen} looks at frozen snapshots");
    assert!(answered > rounds, "the child worked: {answered}");
}

/// `cargo xtask test --full` kills 200 times.
#[test]
fn killed_processes_lose_nothing_acknowledged() {
    kill_again_and_again(if std::env::var_os("SPINDLE_FULL").is_some() { 200 } else { 20 });
}
