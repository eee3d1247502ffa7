//! XFS, mounted in the guest and written to while its volume is rolled back: in full runs.
//!
//! A rollback beside hosts is a library call. This test starts itself again in the guest's network, and is the server there.

use crate::{
    guest::Guest,
    judged_by_linux::{PORTAL, Served, boot},
    own_server::OwnServer,
    pool_drives::done,
    spindle::Bench,
};
use array::{
    format::{SnapshotId, VolumeId},
    pool::{Pool, RollbackGoal},
};
use std::{
    env,
    io::{BufRead, BufReader, Write, stdin},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Stdio},
    sync::mpsc::{TryRecvError, channel},
    thread,
    time::Duration,
};
use world::{
    BlockDevice, Buffer, ByteOffset, World,
    real::{self, RealOptions},
};

/// Folder of the pool, to the process that is to be the server.
const SERVER: &str = "SPINDLE_TEST_SERVER";
const THIS_TEST: &str = "judged_rollback::nothing_that_xfs_cached_arrives_after_a_forced_rollback";
/// Before each answer, as the test harness prints lines of its own.
const ANSWER: &str = "answer: ";
const INITIATOR: &str = "iqn.2026-11.test.guest:1";
const COMPARED_AT_ONCE: usize = 4 << 20;

#[test]
fn nothing_that_xfs_cached_arrives_after_a_forced_rollback() {
    if let Some(folder) = env::var_os(SERVER) {
        return serve(&PathBuf::from(folder));
    }
    let Some(mut guest) = boot() else { return };
    let bench = Bench::new();
    done(&bench.run(&["pool", "create", "pool", "--drives", "2", "--size", "2GiB"]));
    done(&bench.run(&["volume", "create", "pool/store", "512MiB"]));
    let mut server = Server::begin(&bench, &guest);
    let target = find_target(&mut guest);
    state_of_monday(&mut guest, &target);
    server.must("snapshot", "done");
    guest.must(
        "cd /mnt && rm f2 && for i in 1 5 6; do dd if=/dev/urandom of=f$i bs=1M count=4; done; \
        sync && md5sum f* > /later; cd /",
    );

    write_in_background(&mut guest);
    let done_so = format!("store~1, withheld from {INITIATOR}; same");
    server.must("roll back", &done_so);
    nothing_arrives(&mut guest, &mut server, &target);
    monday_is_back(&mut guest, &mut server, &target);

    // Commands are under way on a connection that is broken, and are sent again when it is back.
    write_in_background(&mut guest);
    guest.must("ip link set eth0 down");
    server.must("roll back", &done_so.replace("~1", "~2"));
    nothing_arrives(&mut guest, &mut server, &target);
    monday_is_back(&mut guest, &mut server, &target);
    guest.must(&format!("umount /mnt && {}", log_out(&target)));
    server.must("close", "closed");
    drop(server);
    before_is_kept(&bench, &mut guest);
}

/// XFS with the files of Monday, mounted.
fn state_of_monday(guest: &mut Guest, target: &str) {
    let store = log_in(guest, target);
    guest.must(&format!("mkfs.xfs -f -q {store} && mount -t xfs {store} /mnt"));
    guest.must(
        "cd /mnt && for i in 1 2 3 4; do dd if=/dev/urandom of=f$i bs=1M count=4; done; \
        sync && md5sum f* > /monday; cd /",
    );
}

/// Direct writes, of which several are under way at any time; writes that wait for the disk; dirty pages.
fn write_in_background(guest: &mut Guest) {
    guest.must(
        "fio --name=v --filename=/mnt/fio.dat --size=32m --rw=randwrite --bs=4k --direct=1 --ioengine=libaio --iodepth=8 \
        --time_based --runtime=600 > /fio.log 2>&1 & echo $! > /writers",
    );
    for (file, flags) in [("synced", "conv=fsync"), ("dirty", "conv=notrunc")] {
        guest.must(&format!(
            "while dd if=/dev/urandom of=/mnt/{file} bs=64k count=16 {flags} 2> /dev/null; do sleep 0.2; done & \
            echo $! >> /writers"
        ));
    }
    guest.must(
        "sleep 6; for writer in $(cat /writers); do kill -0 $writer || touch /died; done; [ ! -e /died ]",
    );
}

/// At once, later, while XFS is synced and unmounted, and over a new connection, which replays what was not answered.
fn nothing_arrives(guest: &mut Guest, server: &mut Server, target: &str) {
    server.must("compare", "same");
    guest.must("sleep 5");
    server.must("compare", "same");
    guest.must(
        "ip link set eth0 down; sleep 15; ip link set eth0 up; for i in $(seq 20); do \
        iscsiadm -m session -P 1 | grep -q 'Session State: LOGGED_IN' && break; sleep 2; done",
    );
    let session = guest.must("iscsiadm -m session -P 1");
    assert!(session.contains("Session State: LOGGED_IN"), "it comes back: {session}");
    server.must("compare", "same");
    let store = device(guest, target);
    guest.must_not(&format!("dd if=/dev/urandom of={store} bs=4k count=1 oflag=direct"));
    guest.run("sync");
    guest.must("kill $(cat /writers) 2> /dev/null; sleep 2; umount /mnt || umount -l /mnt");
    server.must("compare", "same");
    server.must("withheld", INITIATOR);
}

/// After a logout by command, the initiator may use the volume as it was on Monday.
fn monday_is_back(guest: &mut Guest, server: &mut Server, target: &str) {
    guest.must(&log_out(target));
    server.must("withheld", "");
    server.must("compare", "same");
    let store = log_in(guest, target);
    has_files(guest, &store, "/monday", "f5");
    guest.must(&format!("mount -t xfs {store} /mnt"));
}

/// What the first rollback left has all that was synced before it.
fn before_is_kept(bench: &Bench, guest: &mut Guest) {
    guest.must("iscsiadm -m node -o delete");
    done(&bench.run(&["volume", "clone", "pool/store~1", "pool/before"]));
    let served = Served::begin(bench, guest, &["pool/before"]);
    let target = find_target(guest);
    let before = log_in(guest, &target);
    has_files(guest, &before, "/later", "f2");
    drop(served);
}

/// The filesystem has the files of a list, not the other one, and no damage. It is not mounted before and afterwards.
fn has_files(guest: &mut Guest, device: &str, list: &str, other: &str) {
    guest.must(&format!(
        "mount -t xfs {device} /mnt && cd /mnt && md5sum -c {list} && [ ! -e {other} ]; is_so=$?; cd /; \
        [ $is_so = 0 ] && umount /mnt && xfs_repair -n {device}"
    ));
}

fn log_out(target: &str) -> String {
    format!("iscsiadm -m node -T {target} -p {PORTAL} -u")
}

fn find_target(guest: &mut Guest) -> String {
    let found = guest.must(&format!("iscsiadm -m discovery -t st -p {PORTAL}"));
    found.split_whitespace().last().unwrap().to_owned()
}

/// The guest's device of a target, after a login.
fn log_in(guest: &mut Guest, target: &str) -> String {
    guest.must(&format!("iscsiadm -m node -T {target} -p {PORTAL} -l && sleep 1 && udevadm settle"));
    device(guest, target)
}

fn device(guest: &mut Guest, target: &str) -> String {
    let link = format!("/dev/disk/by-path/ip-{PORTAL}-iscsi-{target}-lun-0");
    let find = format!("for i in $(seq 9); do [ -e {link} ] && break; sleep 1; done; readlink -f {link}");
    // A shell of the guest that was started again prompts.
    guest.must(&find).split_whitespace().last().unwrap().to_owned()
}

/// This program in the guest's network, as a server that takes orders; killed when dropped.
struct Server {
    child: Child,
    answers: BufReader<ChildStdout>,
}

impl Server {
    fn begin(bench: &Bench, guest: &Guest) -> Self {
        let mut command = guest.beside(&env::current_exe().unwrap().display().to_string());
        command.args(["--exact", THIS_TEST, "--nocapture"]).env(SERVER, bench.path(""));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        let mut server = Self { child, answers };
        assert_eq!(server.answer(), "serving");
        server
    }

    #[track_caller]
    fn answer(&mut self) -> String {
        let mut line = String::new();
        while !line.starts_with(ANSWER) {
            line.clear();
            assert!(self.answers.read_line(&mut line).unwrap() > 0, "the server has ended");
        }
        line[ANSWER.len()..].trim_end().to_owned()
    }

    /// Gives an order, and expects that answer.
    #[track_caller]
    fn must(&mut self, order: &str, expected: &str) {
        let stdin = self.child.stdin.as_mut().unwrap();
        writeln!(stdin, "{order}").unwrap();
        stdin.flush().unwrap();
        assert_eq!(self.answer(), expected, "{order}");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The server: takes orders from standard input until it is to close.
fn serve(folder: &Path) {
    let (tell, orders) = channel();
    thread::spawn(move || stdin().lines().map_while(Result::ok).try_for_each(|order| tell.send(order)));
    real::run(7, RealOptions::default(), async |world: World| {
        let server = OwnServer::begin(&world, folder, ("pool", "store"), "0.0.0.0:3260").await;
        let pool = server.exports.pool(&folder.join("pool")).unwrap().clone();
        let mut rollbacks = 0;
        println!("{ANSWER}serving");
        loop {
            let order = match orders.try_recv() {
                Ok(order) => order,
                Err(TryRecvError::Empty) => {
                    world.sleep(Duration::from_millis(5)).await;
                    continue;
                }
                Err(TryRecvError::Disconnected) => return,
            };
            let answer = match order.as_str() {
                "snapshot" => {
                    pool.snapshot(&["store"], "monday", SnapshotId([9; 16])).await.unwrap();
                    "done".to_owned()
                }
                "roll back" => {
                    rollbacks += 1;
                    let (goal, left) = (RollbackGoal::Snapshot("monday".into()), VolumeId([rollbacks; 16]));
                    let served = &server.shared().served;
                    let done = served.roll_back(&pool, ("store", goal), left).await.unwrap();
                    let withheld = done.withheld.initiators.join(" ");
                    format!("{}, withheld from {withheld}; {}", done.left_name, compare(&server, &pool).await)
                }
                "compare" => compare(&server, &pool).await,
                "withheld" => server.shared().served.withheld_from().initiators.join(" "),
                "close" => break,
                other => panic!("{other:?}"),
            };
            println!("{ANSWER}{answer}");
        }
        drop(pool);
        server.exports.close().await.unwrap();
        println!("{ANSWER}closed");
    });
}

/// The exported volume beside the snapshot, byte for byte.
async fn compare(server: &OwnServer, pool: &Pool) -> String {
    let (store, monday) = (&server.shared().device, pool.snapshot_device("store", "monday").unwrap());
    for at in (0..store.geometry().size.0).step_by(COMPARED_AT_ONCE) {
        let buffer = || vec![Buffer::zeroed(COMPARED_AT_ONCE)];
        let now = store.read(ByteOffset(at), buffer()).await.unwrap();
        let then = monday.read(ByteOffset(at), buffer()).await.unwrap();
        if let Some(within) = now[0].iter().zip(&then[0][..]).position(|(now, then)| now != then) {
            return format!("byte {} differs", at + within as u64);
        }
    }
    "same".to_owned()
}
