//! A volume moved to another pool while clients write it over NBD and iSCSI, by a server in this process.

use crate::{
    exported::is_here,
    own_server::{OwnServer, silent},
    pool_drives::done,
    qemu_io::QemuIo,
    spindle::Bench,
};
use array::{
    error::Error,
    pool::{MovedVolume, Pool},
    volume::VolumeDevice,
};
use serving::{export::ExportedVolume, pool::folder::OpenPool};
use std::{
    cell::Cell,
    fs,
    process::{Child, Command, Stdio},
    rc::Rc,
    time::Duration,
};
use world::{
    BlockDevice, Buffer, ByteOffset, Job, Stability, World,
    real::{self, RealOptions},
};

const MIB: u64 = 1 << 20;
pub const PIECE: u64 = 64 << 10;
/// Pieces that a client of QEMU writes again and again.
pub const PIECES: u64 = 40;
/// The part of the volume that fio writes, once.
const OF_FIO: (u64, u64) = (32 * MIB, 8 * MIB);

/// Writes pieces behind `from`, each with the number of its round, until it is to end. Returns the pieces written.
pub async fn write_on(mut client: QemuIo, from: u64, ends: Rc<Cell<bool>>) -> u64 {
    let mut written = 0;
    while !ends.get() {
        let command = format!("write -P {} {} {PIECE}", pattern(written), from + written % PIECES * PIECE);
        written += 1;
        client.says(&command, "wrote 65536/65536", written as usize).await;
    }
    let said = client.end().await;
    assert!(!said.contains("failed") && !said.contains("error"), "{said}");
    written
}

pub fn pattern(number: u64) -> u64 {
    1 + number / PIECES % 250
}

/// Checks that each piece has what was written last.
async fn check(device: &dyn BlockDevice, from: u64, written: u64) {
    for piece in 0..PIECES.min(written) {
        let last = (written - 1 - piece) / PIECES * PIECES + piece;
        let read = device.read(ByteOffset(from + piece * PIECE), vec![Buffer::zeroed(PIECE as usize)]).await;
        let read = read.unwrap();
        let expected = pattern(last) as u8;
        assert!(
            read[0].iter().all(|&byte| byte == expected),
            "piece {piece} has {}, not {expected}",
            read[0][0]
        );
    }
}

/// fio with NBD, which reads again what it has written.
fn fio(bench: &Bench) -> Option<Child> {
    if !is_here("fio", "fio") {
        return None;
    }
    let (offset, size) = OF_FIO;
    let uri = format!("nbd+unix:///store?socket={}", bench.path("socket").display());
    let job = format!(
        "[writer]\nioengine=nbd\nuri={uri}\nrw=randwrite\nbs=4k\niodepth=8\noffset={offset}\nsize={size}\n\
        rate_iops=400\nverify=crc32c\nverify_fatal=1\n"
    );
    bench.make_file("job.fio", job.as_bytes());
    let said = fs::File::create(bench.path("fio")).unwrap();
    let mut command = Command::new("fio");
    command.current_dir(bench.path("")).arg("job.fio").stdin(Stdio::null());
    Some(command.stdout(said.try_clone().unwrap()).stderr(said).spawn().unwrap())
}

#[test]
fn clients_see_no_error_and_lose_nothing_while_their_volume_moves_to_another_pool() {
    if !is_here("qemu-io", "qemu-utils") {
        return;
    }
    let bench = Bench::new();
    for pool in ["mail", "fast"] {
        done(&bench.run(&["pool", "create", pool, "--size", "200MiB", "--drives", "2"]));
    }
    done(&bench.run(&["volume", "create", "mail/store", "64MiB"]));
    done(&bench.run(&["volume", "snapshot", "mail/store", "--as", "monday"]));
    real::run(7, RealOptions::default(), async |world: World| {
        let server = OwnServer::begin(&world, &bench.path(""), ("mail", "store"), "127.0.0.1:0").await;
        let fast = OpenPool::open(&world, &bench.path("fast"), &silent()).await.unwrap();
        let mail = Rc::clone(server.exports.pool(&bench.path("mail")).unwrap());
        let ends = Rc::new(Cell::new(false));
        let begin = |name: &str, uri: &str, from: u64| {
            let client = QemuIo::begin(&bench, &world, name, uri);
            world.spawn("client", write_on(client, from, Rc::clone(&ends)))
        };
        let by_nbd = begin("nbd", &server.nbd_uri, 0);
        let by_iscsi = begin("iscsi", &server.iscsi_uri, 16 * MIB);
        let fio = fio(&bench);
        world.sleep(Duration::from_millis(1_500)).await;

        let old = VolumeDevice(mail.volume("store").unwrap());
        let exported = server.shared().volume.as_ref().unwrap();
        let moved = move_to(exported, &fast.pool, &world).await;
        println!("note: held for {:?}, {moved:?}", moved.held_for);
        assert!(Rc::ptr_eq(&exported.pool(), &fast.pool));
        refuses(&mail, &old).await;
        drop(old);

        // They go on in the new pool.
        world.sleep(Duration::from_millis(1_500)).await;
        ends.set(true);
        let written = [by_nbd.await, by_iscsi.await];
        println!("note: {written:?} writes of 64 KiB");
        let store = &server.shared().device;
        let in_fast = VolumeDevice(fast.pool.volume("store").unwrap());
        for (from, written) in [0, 16 * MIB].into_iter().zip(written) {
            check(&**store, from, written).await;
            check(&in_fast, from, written).await;
        }
        if let Some(fio) = fio {
            end_fio(&bench, &world, fio).await;
        }
        let snapshots = fast.pool.snapshots("store").unwrap();
        assert_eq!(snapshots.iter().map(|snapshot| snapshot.name.as_str()).collect::<Vec<_>>(), ["monday"]);
        drop((in_fast, mail));
        server.exports.close().await.unwrap();
        fast.close().await.unwrap();
    });
    assert!(!done(&bench.run(&["pool", "show", "mail"])).contains("store"));
    assert!(done(&bench.run(&["pool", "show", "fast"])).contains("store"));
}

/// On a busy machine hosts may write as fast as the volume is copied: then it goes on when it is called again.
async fn move_to(exported: &ExportedVolume, pool: &Rc<Pool>, world: &World) -> MovedVolume {
    for _ in 0..20 {
        match exported.move_to(pool, ("store", "store"), &Job::new(world)).await {
            Err(Error::MoveTooSlow { .. }) => println!("note: the move has to go on"),
            moved => return moved.unwrap(),
        }
    }
    panic!("it does not catch up");
}

/// The old pool has no such volume, and a handle from before writes nothing.
async fn refuses(mail: &Rc<Pool>, old: &VolumeDevice) {
    assert!(matches!(mail.volume("store"), Err(Error::NoVolume(_))));
    let data = vec![std::sync::Arc::new(Buffer::zeroed(PIECE as usize))];
    old.write(ByteOffset(0), data, Stability::Stable).await.expect_err("it is in another pool");
}

async fn end_fio(bench: &Bench, world: &World, mut fio: Child) {
    let ended = loop {
        match fio.try_wait().unwrap() {
            Some(ended) => break ended,
            None => world.sleep(Duration::from_millis(50)).await,
        }
    };
    assert!(ended.success(), "{}", fs::read_to_string(bench.path("fio")).unwrap());
}
