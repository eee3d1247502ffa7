//! A volume rolled back under QEMU's clients, by a server in this process.

use crate::{
    exported::{is_here, text},
    own_server::OwnServer,
    pool_drives::done,
    qemu_io::QemuIo,
    spindle::Bench,
};
use array::{
    format::{SnapshotId, VolumeId},
    pool::RollbackGoal,
};
use std::rc::Rc;
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
        shared.served.readmit_nbd();
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
