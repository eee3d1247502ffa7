//! A volume rolled back under QEMU's clients, by a server in this process.

use crate::{
    exported::{Exported, is_here, judged, text},
    ordered_server::{OrderedServer, serve_if_it_is_one},
    own_server::OwnServer,
    pool_drives::done,
    qemu_io::{QemuIo, initiator_options},
    raw_initiator::RawInitiator,
    spindle::{Bench, is_full_run, json_of},
};
use array::{
    format::{SnapshotId, VolumeId},
    pool::RollbackGoal,
};
use std::{env, fs, net::TcpListener, process::Command, rc::Rc};
use world::{
    BlockDevice, Buffer, ByteOffset, World,
    real::{self, RealOptions},
};

async fn values(device: &Rc<dyn BlockDevice>) -> [u8; 2] {
    let mut values = [0; 2];
    for (value, at) in values.iter_mut().zip([0, 1 << 20]) {
        let read = device.read(ByteOffset(at), vec![Buffer::zeroed(65536)]).await.unwrap();
        *value = read[0][0];
        assert!(read[0].iter().all(|byte| byte == value), "one pattern");
    }
    values
}

const WROTE: &str = "wrote 65536/65536";
/// NOT READY, MANUAL INTERVENTION REQUIRED.
const WITHHELD: [u8; 3] = [2, 4, 3];
/// UNIT ATTENTION, RESET OCCURRED.
const RESET: [u8; 3] = [6, 0x29, 0];

#[test]
fn after_a_forced_rollback_no_write_of_a_session_from_before_arrives() {
    if !is_here("qemu-io", "qemu-utils") {
        return;
    }
    let bench = Bench::new();
    done(&bench.run(&["pool", "create", "mail", "--size", "200MiB", "--drives", "2"]));
    done(&bench.run(&["volume", "create", "mail/store", "64MiB"]));
    let folder = bench.path("mail");
    real::run(7, RealOptions::default(), async |world: World| {
        let server = OwnServer::begin(&world, &bench.path(""), ("mail", "store"), "127.0.0.1:0").await;
        let (pool, shared) = (server.exports.pool(&folder).unwrap(), server.shared());
        let mut by_nbd = QemuIo::begin(&bench, &world, "nbd", &server.nbd_uri);
        let mut by_iscsi = QemuIo::begin(&bench, &world, "iscsi", &server.iscsi_uri);
        by_nbd.says("write -P 1 0 64k", WROTE, 1).await;
        by_iscsi.says("write -P 1 1M 64k", WROTE, 1).await;
        pool.snapshot(&["store"], "monday", SnapshotId([9; 16])).await.unwrap();
        by_nbd.says("write -P 2 0 64k", WROTE, 2).await;
        by_iscsi.says("write -P 2 1M 64k", WROTE, 2).await;
        assert_eq!(values(&shared.device).await, [2, 2]);

        let goal = RollbackGoal::Snapshot("nothing".into());
        shared.served.roll_back(pool, ("store", goal), VolumeId([8; 16])).await.expect_err("no such one");
        assert!(shared.served.withheld_from() == Default::default(), "a failed one withholds nothing");
        by_iscsi.says("write -P 2 1M 64k", WROTE, 3).await;
        let goal = RollbackGoal::Snapshot("monday".into());
        let done = shared.served.roll_back(pool, ("store", goal), VolumeId([8; 16])).await.unwrap();
        assert_eq!(done.left_name, "store~1");
        assert!(done.withheld.nbd && done.withheld.initiators.len() == 1, "{done:?}");
        assert_eq!(values(&shared.device).await, [1, 1]);

        by_nbd.says("write -P 3 0 64k", "failed", 1).await;
        by_iscsi.says("write -P 3 1M 64k", "failed", 1).await;
        // A reconnect is not enough.
        let refused = QemuIo::begin(&bench, &world, "nbd-again", &server.nbd_uri).end().await;
        assert!(refused.contains("the export is withheld, because its contents changed"), "{refused}");
        let mut again = QemuIo::begin(&bench, &world, "iscsi-again", &server.iscsi_uri);
        again.says("write -P 3 1M 64k", "\n", 1).await;
        let refused = again.end().await;
        assert!(!refused.contains(WROTE), "{refused}");
        assert_eq!(values(&shared.device).await, [1, 1], "nothing of it arrived");

        // The initiator logs out by command; NBD clients have no names and must be readmitted.
        by_iscsi.end().await;
        assert!(shared.served.withheld_from().initiators.is_empty());
        let mut later = QemuIo::begin(&bench, &world, "iscsi-later", &server.iscsi_uri);
        later.says("write -P 4 1M 64k", WROTE, 1).await;
        shared.served.readmit_nbd().await.unwrap();
        by_nbd.says("write -P 3 0 64k", "failed", 2).await;
        let mut later_nbd = QemuIo::begin(&bench, &world, "nbd-later", &server.nbd_uri);
        later_nbd.says("write -P 4 0 64k", WROTE, 1).await;
        assert_eq!(values(&shared.device).await, [4, 4]);
        drop((later, later_nbd, by_nbd));
        server.exports.close().await.unwrap();
    });
    let shown = done(&bench.run(&["pool", "show", "mail"]));
    assert!(shown.contains("store~1"), "what was there is kept: {shown} {}", text(&folder));
}

const OWN: &str = "iqn.2026-11.test:own";
/// One that has the same nexus whenever it logs in.
const STEADY: &str = "iqn.2026-11.test:steady";
const OTHER: &str = "iqn.2026-11.test:other";
const LOGS: &str = "logs/log";

/// A portal that stays the same when the server is started again.
fn free_portal() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

/// "pool/store", rolled back under an initiator, which goes on, and under an NBD client. Nothing serves it any more.
struct RolledBack<'b> {
    bench: &'b Bench,
    portal: String,
    own: Option<QemuIo>,
    steady: Option<RawInitiator>,
    /// Of NBD and iSCSI.
    uris: [String; 2],
}

impl<'b> RolledBack<'b> {
    async fn begin(bench: &'b Bench, world: &World, test: &str, is_killed: bool) -> Self {
        done(&bench.run(&["pool", "create", "pool", "--size", "200MiB", "--drives", "2"]));
        done(&bench.run(&["volume", "create", "pool/store", "16MiB"]));
        let portal = free_portal();
        let program = Command::new(env::current_exe().unwrap());
        let mut server = OrderedServer::begin(program, test, bench, &portal);
        let uris = server.order("uris").split(' ').map(str::to_owned).collect::<Vec<_>>();
        let uris: [String; 2] = uris.try_into().unwrap();
        let mut nbd = QemuIo::begin(bench, world, "nbd", &uris[0]);
        let mut own = QemuIo::begin_as(bench, world, "own", (&uris[1], OWN));
        own.says("write -P 1 1M 64k", WROTE, 1).await;
        nbd.says("write -P 1 0 64k", WROTE, 1).await;
        server.must("snapshot", "done");
        own.says("write -P 2 1M 64k", WROTE, 2).await;
        let mut steady = RawInitiator::begin(&uris[1], STEADY);
        assert_eq!((steady.test_unit_ready(), steady.test_unit_ready()), (Some(RESET), None));
        server.must("roll back", &format!("store~1, withheld from {OWN} {STEADY}; same"));
        assert_eq!(steady.test_unit_ready(), Some(WITHHELD));
        own.says("write -P 3 1M 64k", "write failed", 1).await;
        if !is_killed {
            server.must("close", "closed");
        }
        drop((server, nbd));
        Self { bench, portal, own: Some(own), steady: Some(steady), uris }
    }

    fn own(&mut self) -> &mut QemuIo {
        self.own.as_mut().unwrap()
    }

    /// The program as the server.
    fn exported(&self, more: &[&str]) -> Exported {
        let nbd = format!("unix:{}", self.bench.path("socket").display());
        let arguments = [&["pool/store"][..], more, &["--nbd", &nbd, "--iscsi", &self.portal]].concat();
        let log = fs::File::create(self.bench.path("log")).unwrap();
        Exported::begin_with_log(self.bench, &arguments, log.into())
    }

    fn log(&self) -> String {
        fs::read_to_string(self.bench.path("log")).unwrap()
    }

    /// The initiator with a steady nexus comes back over a new connection.
    fn logs_in_again(&mut self) {
        self.steady = None;
        let mut session = RawInitiator::begin(&self.uris[1], STEADY);
        assert_eq!(session.test_unit_ready(), Some(WITHHELD));
        self.steady = Some(session);
    }

    /// A session of that initiator reaches the volume.
    fn is_admitted(&self) {
        let mut session = RawInitiator::begin(&self.uris[1], STEADY);
        assert_eq!((session.test_unit_ready(), session.test_unit_ready()), (Some(RESET), None));
    }

    fn nbd_is_refused(&self) {
        let output = judged("qemu-io", &["-f", "raw", "-c", "write -P 3 0 64k", &self.uris[0]]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains("the export is withheld, because its contents changed"), "{said}");
    }

    /// Runs commands of an initiator that logs in for them, and out again.
    fn once_as(&self, initiator: &str, commands: &[&str]) -> String {
        let options = initiator_options(&self.uris[1], initiator);
        let commands = commands.iter().flat_map(|command| ["-c", command]);
        let arguments: Vec<&str> =
            ["-t", "none", "--image-opts", &options].into_iter().chain(commands).collect();
        let output = judged("qemu-io", &arguments);
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    }

    /// Clients from which `pool show` says that the volume is withheld.
    fn shown(&self) -> serde_json::Value {
        let shown = json_of(&done(&self.bench.run(&["pool", "show", "pool", "--json"])));
        let volumes = shown["volumes"].as_array().unwrap();
        volumes.iter().find(|volume| volume["name"] == "store").unwrap()["withheld"].clone()
    }
}

fn withheld_after_a_restart(test: &str, is_killed: bool) {
    if serve_if_it_is_one() || !is_here("qemu-io", "qemu-utils") {
        return;
    }
    let bench = Bench::new();
    done(&bench.run(&["pool", "create", "logs", "--size", "100MiB", "--drives", "2"]));
    done(&bench.run(&["volume", "create", LOGS, "8MiB"]));
    real::run(7, RealOptions::default(), async |world: World| {
        let mut rolled_back = RolledBack::begin(&bench, &world, test, is_killed).await;
        let shown = rolled_back.shown();
        assert_eq!(
            (&shown["initiators"], &shown["nbd"]),
            (&json_of(&format!("[{OWN:?}, {STEADY:?}]")), &true.into())
        );

        // On one thread. The initiator logs in again.
        let exported = rolled_back.exported(&[]);
        let log = rolled_back.log();
        assert!(log.contains(&format!("it is withheld from {OWN}, {STEADY} and all NBD clients")), "{log}");
        rolled_back.own().says("write -P 3 1M 64k", "write failed", 2).await;
        rolled_back.logs_in_again();
        rolled_back.nbd_is_refused();
        let said = rolled_back.once_as(OTHER, &["read -P 1 1M 64k", "write -P 5 2M 64k"]);
        assert!(said.contains(WROTE) && !said.contains("failed"), "another initiator: {said}");
        // An ordered stop asks for a logout, which does not count.
        exported.end();
        // A thread for each pool.
        let exported = rolled_back.exported(&[LOGS]);
        rolled_back.own().says("write -P 3 1M 64k", "write failed", 3).await;
        rolled_back.logs_in_again();
        rolled_back.nbd_is_refused();
        assert!(
            rolled_back
                .log()
                .contains("warning: pool: pool/store was rolled back, or failed over with a loss, at "),
            "{}",
            rolled_back.log()
        );
        drop(exported);
        let exported = rolled_back.exported(&[]);
        rolled_back.own().says("write -P 3 1M 64k", "write failed", 4).await;
        let said = rolled_back.once_as(OTHER, &["read -P 1 0 64k", "read -P 1 1M 64k", "read -P 5 2M 64k"]);
        assert!(!said.contains("failed"), "nothing of it has arrived: {said}");

        // It logs out of its own accord. That lasts, whatever ends the server.
        rolled_back.logs_in_again();
        rolled_back.steady.take().unwrap().log_out();
        rolled_back.is_admitted();
        // Later writes are in the pool behind the readmission.
        assert!(rolled_back.once_as(OTHER, &["write -P 5 2M 64k"]).contains(WROTE));
        drop(exported);
        let shown = rolled_back.shown();
        assert_eq!((&shown["initiators"], &shown["nbd"]), (&json_of(&format!("[{OWN:?}]")), &true.into()));
        let exported = rolled_back.exported(&[]);
        rolled_back.is_admitted();
        // libiscsi has come back by another nexus, whose logout says nothing about the first.
        rolled_back.own().says("write -P 3 1M 64k", "write failed", 5).await;
        rolled_back.own.take().unwrap().end().await;
        let said = rolled_back.once_as(OWN, &["write -P 4 1M 64k"]);
        assert!(said.contains("NOT READY") && !said.contains(WROTE), "{said}");
        exported.end();
        let said = done(&bench.run(&["volume", "readmit", "pool/store", "--nbd", "--initiator", OWN]));
        assert_eq!(said, format!("pool/store: readmitted: {OWN} and all NBD clients\n"));
        let exported = rolled_back.exported(&[]);
        assert!(!rolled_back.log().contains("withheld"), "{}", rolled_back.log());
        let said = judged("qemu-io", &["-f", "raw", "-c", "write -P 4 0 64k", &rolled_back.uris[0]]);
        assert!(String::from_utf8_lossy(&said.stdout).contains(WROTE), "{said:?}");
        exported.end();
    });
    done(&bench.run(&["pool", "scrub", "pool"]));
}

#[test]
fn a_server_that_was_killed_after_a_rollback_still_withholds_the_volume() {
    if !is_full_run("a kill after a rollback") {
        return;
    }
    let test = "withheld::a_server_that_was_killed_after_a_rollback_still_withholds_the_volume";
    withheld_after_a_restart(test, true);
}

#[test]
fn a_server_that_was_ended_after_a_rollback_still_withholds_the_volume() {
    let test = "withheld::a_server_that_was_ended_after_a_rollback_still_withholds_the_volume";
    withheld_after_a_restart(test, false);
}

#[test]
fn clients_are_readmitted_while_nobody_serves_the_volume() {
    if serve_if_it_is_one() || !is_here("qemu-io", "qemu-utils") {
        return;
    }
    let bench = Bench::new();
    real::run(7, RealOptions::default(), async |world: World| {
        let test = "withheld::clients_are_readmitted_while_nobody_serves_the_volume";
        let mut rolled_back = RolledBack::begin(&bench, &world, test, true).await;
        let shown = done(&bench.run(&["pool", "show", "pool"]));
        let line = shown.lines().find(|line| line.contains("volume store:")).unwrap();
        let clients = format!("Z from {OWN}, {STEADY} and all NBD clients");
        assert!(line.contains(", withheld since 20") && line.ends_with(&clients), "{line}");
        let refused = |arguments: &[&str], problem: &str| {
            let said = bench.run(arguments);
            assert_eq!((said.code, said.stderr.contains(problem)), (Some(2), true), "{}", said.stderr);
        };
        let readmit = ["volume", "readmit", "pool/store"];
        for (flags, problem) in [
            (&["--initiator", OTHER][..], "pool/store is not withheld from iqn.2026-11.test:other"),
            (
                &["--initiator", OWN, "--initiator", OTHER],
                "pool/store is not withheld from iqn.2026-11.test:other",
            ),
            (&[], "--initiator <NAME>"),
            (&["--all", "--nbd"], "cannot be used with"),
        ] {
            refused(&[&readmit[..], flags].concat(), problem);
        }
        refused(&["volume", "readmit", "pool/store@monday", "--all"], "is a snapshot");
        done(&bench.run(&["pool", "create", "other", "--size", "100MiB", "--drives", "2"]));
        refused(&["volume", "move", "pool/store", "other/store"], "readmit them first");

        let answer = [&readmit[..], &["--initiator", OWN, "--json"]].concat();
        let answer = json_of(&done(&bench.run(&answer)));
        let expected = format!(
            r#"{{"path": "pool/store", "done": "readmitted", "initiators": [{OWN:?}], "nbd": false}}"#
        );
        assert_eq!(answer, json_of(&expected));
        let exported = rolled_back.exported(&[]);
        rolled_back.own().says("write -P 6 1M 64k", WROTE, 3).await;
        rolled_back.nbd_is_refused();
        rolled_back.logs_in_again();
        exported.end();
        refused(&[&readmit[..], &["--initiator", OWN]].concat(), "is not withheld from iqn.2026-11.test:own");
        for said in [format!("readmitted: {STEADY} and all NBD clients"), "withheld from nobody".to_owned()] {
            let all = done(&bench.run(&[&readmit[..], &["--all"]].concat()));
            assert_eq!(all, format!("pool/store: {said}\n"));
        }
        assert_eq!(rolled_back.shown(), serde_json::Value::Null);
    });
}
