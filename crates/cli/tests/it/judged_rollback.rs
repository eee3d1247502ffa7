//! XFS, mounted in the guest and written to while its volume is rolled back: in full runs.
//!
//! A rollback beside hosts is a library call. Each test starts itself again in the guest's network, and is the server
//! there.

use crate::{
    guest::Guest,
    judged_by_linux::{PORTAL, Served, boot},
    ordered_server::{OrderedServer, serve_if_it_is_one},
    pool_drives::done,
    spindle::Bench,
};
use std::env;

const THIS_TEST: &str = "judged_rollback::nothing_that_xfs_cached_arrives_after_a_forced_rollback";
const INITIATOR: &str = "iqn.2026-11.test.guest:1";

#[test]
fn nothing_that_xfs_cached_arrives_after_a_forced_rollback() {
    if serve_if_it_is_one() {
        return;
    }
    let Some(mut guest) = boot() else { return };
    let bench = Bench::new();
    done(&bench.run(&["pool", "create", "pool", "--drives", "2", "--size", "2GiB"]));
    done(&bench.run(&["volume", "create", "pool/store", "512MiB"]));
    let mut server = begin(&bench, &guest);
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

    // The server is killed, started again, ended in order, which asks for logouts, and started once more. Each time the
    // guest logs in again, and sends again what was not answered.
    write_in_background(&mut guest);
    server.must("roll back", &done_so.replace("~1", "~3"));
    drop(server);
    guest.must("sleep 3");
    let served = Served::begin(&bench, &guest, &["pool/store"]);
    is_logged_in(&mut guest);
    guest.must("sleep 5");
    served.end();
    guest.must("sleep 3");
    let mut server = begin(&bench, &guest);
    is_logged_in(&mut guest);
    nothing_arrives(&mut guest, &mut server, &target);
    monday_is_back(&mut guest, &mut server, &target);
    guest.must(&format!("umount /mnt && {}", log_out(&target)));
    server.must("close", "closed");
    drop(server);
    before_is_kept(&bench, &mut guest);
}

/// The server in the guest's network.
fn begin(bench: &Bench, guest: &Guest) -> OrderedServer {
    let program = guest.beside(&env::current_exe().unwrap().display().to_string());
    OrderedServer::begin(program, THIS_TEST, bench, "0.0.0.0:3260")
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
fn nothing_arrives(guest: &mut Guest, server: &mut OrderedServer, target: &str) {
    server.must("compare", "same");
    guest.must("sleep 5");
    server.must("compare", "same");
    guest.must("ip link set eth0 down; sleep 15; ip link set eth0 up");
    is_logged_in(guest);
    server.must("compare", "same");
    let store = device(guest, target);
    guest.must_not(&format!("dd if=/dev/urandom of={store} bs=4k count=1 oflag=direct"));
    guest.run("sync");
    guest.must("kill $(cat /writers) 2> /dev/null; sleep 2; umount /mnt || umount -l /mnt");
    server.must("compare", "same");
    server.must("withheld", INITIATOR);
}

/// The guest's session comes back.
fn is_logged_in(guest: &mut Guest) {
    guest.must(
        "for i in $(seq 20); do iscsiadm -m session -P 1 | grep -q 'Session State: LOGGED_IN' && break; sleep 2; done",
    );
    let session = guest.must("iscsiadm -m session -P 1");
    assert!(session.contains("Session State: LOGGED_IN"), "it comes back: {session}");
}

/// After a logout by command, the initiator may use the volume as it was on Monday.
fn monday_is_back(guest: &mut Guest, server: &mut OrderedServer, target: &str) {
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
