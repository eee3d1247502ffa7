//! Changes of volumes by orders, under simulated clients.

use crate::simulated::{Scene, initiator, nbd_client, read, start, write};
use control::{Daemon, order::OrderAnswer};
use iscsi::{
    initiator::{Initiator, IscsiUri},
    target::access::AccessList,
};
use report::Refusal;
use serving::{
    export::{WantedExport, WantedExports, WantedTarget, WantedUnit, name_of},
    pool::{
        volume_change::{RollbackTo, VolumeChange, VolumeDone, VolumeOutcome, perform},
        withholding::ReadmittedClients,
    },
};
use std::{sync::Arc, time::Duration};
use world::{BlockDevice, Buffer, ByteOffset, Stability, World, sim::SimNetwork};

const MIB: u64 = 1 << 20;

async fn change(world: &World, daemon: &Daemon, change: VolumeChange) -> Result<VolumeDone, Refusal> {
    let orders = &daemon.pool("mail").unwrap().orders;
    let answer = orders.give(world, "change", move |pool| {
        Box::pin(async move { perform(&change, &pool.exports.changeable()).await })
    });
    match answer.await {
        Ok(OrderAnswer::Done(done)) => done,
        other => panic!("{other:?}"),
    }
}

/// Serves the volume "store" of the pool "mail" over both protocols.
async fn serve(world: &World, daemon: &Daemon) {
    let volume = || "store".to_owned();
    let unit =
        WantedUnit { number: 0, volume: volume(), is_read_only: false, is_shared: false, write_cache: None };
    let wanted = WantedExports {
        nbd: vec![WantedExport { name: "mail".to_owned(), volume: volume(), is_read_only: false }],
        targets: vec![WantedTarget { name: "mail".to_owned(), units: vec![unit] }],
        access: AccessList::everybody(),
    };
    let orders = &daemon.pool("mail").unwrap().orders;
    let served = orders.give(world, "serve", move |pool| {
        Box::pin(async move { pool.serve_wanted(&wanted).map_err(|refusal| refusal.to_string()) })
    });
    assert!(matches!(served.await, Ok(OrderAnswer::Done(Ok(_)))));
    world.sleep(Duration::from_secs(1)).await;
}

async fn iscsi_client(world: &World, network: &SimNetwork) -> Initiator {
    let uri = format!("iscsi://server:3260/{}/0", name_of("mail")).parse::<IscsiUri>().unwrap();
    Initiator::connect(world, network.host("host"), uri, initiator("host")).await.unwrap()
}

#[test]
fn a_served_volume_is_rolled_back_by_force_and_its_clients_are_readmitted_at_once() {
    let mut scene = Scene::new(51);
    scene.run(|world, network, drives| async move {
        let (daemon, _) = start(&world, &network, &drives, &AccessList::everybody()).await;
        serve(&world, &daemon).await;
        let (host, by_nbd) = (iscsi_client(&world, &network).await, nbd_client(&world, &network, "mail"));
        let by_nbd = by_nbd.await.unwrap();
        write(&host, 0, 1).await;
        let snapshot = VolumeChange::Snapshot {
            volumes: vec!["store".into()],
            name: "monday".to_owned(),
            note: String::new(),
        };
        change(&world, &daemon, snapshot).await.unwrap();
        write(&by_nbd, 0, 2).await;

        let roll_back = |is_forced| VolumeChange::RollBack {
            volume: "store".into(),
            to: RollbackTo::Snapshot("monday".into()),
            is_forced,
        };
        let refused = change(&world, &daemon, roll_back(false)).await.unwrap_err().to_string();
        let name = initiator("host").name;
        assert!(refused.contains(&name) && refused.contains("NBD export mail, unit mail/0"), "{refused}");
        assert_eq!(read(&host, 0).await, 2, "nothing has changed");
        let done = change(&world, &daemon, roll_back(true)).await.unwrap();
        let VolumeOutcome::RolledBack(rolled_back) = done.outcome else { panic!("it was rolled back") };
        assert_eq!((rolled_back.withheld.initiators, rolled_back.withheld.nbd), (vec![name], true));

        let data = || vec![Arc::new(Buffer::copy_of(&[3; 4096]))];
        assert!(host.write(ByteOffset(0), data(), Stability::Stable).await.is_err(), "it is withheld");
        assert!(nbd_client(&world, &network, "mail").await.is_err(), "from all NBD clients");
        let readmit = VolumeChange::Readmit { volume: "store".into(), clients: ReadmittedClients::All };
        let readmitted = change(&world, &daemon, readmit).await.unwrap();
        assert_eq!(readmitted.volume.withheld_from, []);
        assert_eq!(read(&host, 0).await, 1, "over the same session");
        let again = nbd_client(&world, &network, "mail").await.unwrap();
        write(&again, 1, 4).await;
        assert_eq!(read(&host, 1).await, 4);
        daemon.stop().await;
    });
}

#[test]
fn a_served_volume_grows_under_its_clients_and_keeps_the_name_that_the_site_file_has() {
    let mut scene = Scene::new(52);
    scene.run(|world, network, drives| async move {
        let (daemon, _) = start(&world, &network, &drives, &AccessList::everybody()).await;
        serve(&world, &daemon).await;
        let host = iscsi_client(&world, &network).await;
        write(&host, 0, 1).await;
        let resize = VolumeChange::Resize { volume: "store".into(), size_bytes: 9 * MIB, may_shrink: false };
        change(&world, &daemon, resize).await.unwrap();
        let rename = VolumeChange::Rename { volume: "store".into(), name: "mails".to_owned() };
        let refused = change(&world, &daemon, rename).await.unwrap_err().to_string();
        assert!(
            refused.contains("rename it in the site file") && refused.contains("was = \"store\""),
            "{refused}"
        );
        write(&host, 1, 2).await;
        assert_eq!((read(&host, 0).await, read(&host, 1).await), (1, 2));
        let later = iscsi_client(&world, &network);
        assert_eq!(later.await.geometry().size.0, 9 * MIB);
        let delete = VolumeChange::Delete { volume: "store".into() };
        let refused = change(&world, &daemon, delete).await.unwrap_err().to_string();
        assert!(refused.starts_with("mail/store is served as NBD export mail, unit mail/0"), "{refused}");
        world.sleep(Duration::from_secs(1)).await;
        assert_eq!(daemon.pool("mail").unwrap().view().unwrap().volumes[0].name, "store");
        daemon.stop().await;
    });
}
