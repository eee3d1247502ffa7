//! A failover that may have lost what hosts were answered: two whole servers in simulated time, hosts that were connected to
//! the one that is lost, and crashes of the other one at any await before, within and behind the failover.
//!
//! Checked are: whenever the other site is primary, it withholds the volumes that were in use from their clients, and no
//! others; none of these is served before it is readmitted, whatever crashes; afterwards it is. A failover that was refused
//! withholds from nobody. A failover to a snapshot shows that to all hosts, and never what is newer, but in a fork.

use crate::dr_scene::{DrScene, VerbOutcome, in_scene};
use control::{
    dr::{group_view::DrRole, mode::DrMode},
    web::{
        client::{FailoverBody, Method, NewSnapshotsBody},
        rows::VolumePage,
    },
};
use nbd::Client;
use std::{cell::Cell, rc::Rc, sync::Arc, time::Duration};
use world::{BlockDevice, Buffer, ByteOffset, Stability};

const BLOCK: usize = 4096;
/// Name of a snapshot of all volumes.
const STATE: &str = "monday";

/// The first byte of a volume.
async fn read(client: &Client) -> Option<u8> {
    let read = client.read(ByteOffset(0), vec![Buffer::zeroed(BLOCK)]).await;
    read.ok().map(|buffers| buffers[0][0])
}

async fn write(client: &Client, byte: u8) {
    let block = Arc::new(Buffer::copy_of(&[byte; BLOCK]));
    client.write(ByteOffset(0), vec![block], Stability::Stable).await.expect("it is served");
}

/// Takes a snapshot of all volumes at Boston.
async fn snapshot(scene: &DrScene) {
    let boston = &scene.sites[0];
    let reply = boston.ask(&scene.world, (Method::GET, "/v1/volumes"), None, None).await.unwrap();
    let page: VolumePage = reply.parsed().unwrap();
    let volumes = page.volumes.into_iter().map(|row| row.id).collect();
    let body = NewSnapshotsBody { name: STATE.to_owned(), volumes, ..NewSnapshotsBody::default() };
    let body = Some(serde_json::to_string(&body).unwrap());
    let taken = boston.ask(&scene.world, (Method::POST, "/v1/snapshots"), body, None).await.unwrap();
    assert!(taken.status < 300, "{taken:?}");
}

/// A host that comes back to Denver again and again, with what it had cached.
async fn come_back(scene: Rc<DrScene>, is_readmitted: Rc<Cell<bool>>, was_served: Rc<Cell<Option<u8>>>) {
    loop {
        let pause = Duration::from_micros(500 + scene.below(6_000));
        scene.world.sleep(pause).await;
        let before = is_readmitted.get();
        if let Ok(client) = scene.sites[1].connect(&scene.world, "a").await
            && let Some(byte) = read(&client).await
        {
            assert!(before || is_readmitted.get(), "a host is served with what it had cached");
            was_served.set(Some(byte));
            return;
        }
    }
}

async fn life(scene: Rc<DrScene>) {
    let world = scene.world.clone();
    for site in 0..2 {
        scene.start(site);
        scene.until_up(site).await;
    }
    scene.create().await;
    scene.heal().await;
    // A refused failover withholds from nobody.
    let host = scene.sites[0].connect(&world, "a").await.expect("boston serves it");
    let other = scene.sites[0].connect(&world, "b").await.expect("boston serves it");
    write(&host, 7).await;
    write(&other, 7).await;
    snapshot(&scene).await;
    write(&host, 8).await;
    write(&other, 8).await;
    drop(other);
    let at = scene.percent(50.0).then(|| STATE.to_owned());
    let shown = if at.is_some() { 7 } else { 8 };
    let any = FailoverBody { unplanned: true, accept_any_loss: true, at, ..FailoverBody::default() };
    assert!(!matches!(scene.failover(1, any.clone()).await, VerbOutcome::Done(_)), "it is connected");
    assert_eq!(scene.row(1).await.unwrap().withheld, [], "it was refused");
    scene.sleep_ms(2_000).await;
    if scene.percent(50.0) {
        scene.crash(1);
        scene.start(1);
        scene.until_up(1).await;
        scene.heal().await;
    }
    scene.crash(0);
    scene.until_lost().await;
    if scene.percent(50.0) {
        scene.crash(1);
        scene.start(1);
        scene.until_up(1).await;
    }
    let (is_readmitted, was_served) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(None)));
    drop(
        world
            .spawn("a host", come_back(Rc::clone(&scene), Rc::clone(&is_readmitted), Rc::clone(&was_served))),
    );
    take_over(&scene, &any).await;
    check_withheld(&scene).await;
    if scene.percent(50.0) {
        scene.crash(1);
        scene.start(1);
        scene.until_up(1).await;
        check_withheld(&scene).await;
        take_over(&scene, &any).await;
    }
    scene.sleep_ms(500).await;
    let other = scene.sites[1].connect(&world, "b").await.expect("nobody had it");
    assert_eq!(read(&other).await, Some(shown));
    is_readmitted.set(true);
    scene.readmit(1).await;
    for _ in 0..200 {
        if was_served.get().is_some() {
            break;
        }
        scene.sleep_ms(20).await;
    }
    assert_eq!(was_served.get(), Some(shown), "it is readmitted\n{}", scene.describe().await);
    assert_eq!(scene.row(1).await.unwrap().forks.is_empty(), shown == 8, "what is newer is in forks");
    assert_eq!(scene.row(1).await.unwrap().withheld, []);
    // The other site has what this one has, and what it had beyond is its fork.
    scene.heal().await;
    assert_eq!(scene.row(1).await.unwrap().withheld, []);
}

/// Has Denver take over, while it crashes at any await.
async fn take_over(scene: &Rc<DrScene>, any: &FailoverBody) {
    for attempt in 0..60 {
        let own = Rc::clone(scene);
        let disturbing = scene.world.spawn("disturbance", async move {
            if attempt < 3 {
                let us = own.below(4_000);
                own.world.sleep(Duration::from_micros(us)).await;
                own.crash(1);
                own.sleep_ms(5).await;
                own.start(1);
            }
        });
        let outcome = scene.failover(1, any.clone()).await;
        disturbing.await;
        scene.start(1);
        scene.until_up(1).await;
        check_withheld(scene).await;
        match outcome {
            VerbOutcome::Done(row) => {
                let named: Vec<_> = row.withheld.iter().map(|host| (host.host(), &*host.volumes)).collect();
                assert_eq!(named, [("all NBD clients", &["mail/a".to_owned()][..])]);
                if scene.row(1).await.is_some_and(|row| row.serves) {
                    return;
                }
            }
            VerbOutcome::Refused(why) if why.contains("and serves") => return,
            _ => {}
        }
        scene.sleep_ms(300).await;
    }
    panic!("nobody takes over\n{}", scene.describe().await);
}

/// A site that is primary withholds the volume that was in use.
async fn check_withheld(scene: &DrScene) {
    let Some(row) = scene.row(1).await else { return };
    if row.role == DrRole::Primary {
        assert!(
            row.withheld.iter().any(|host| host.initiator.is_none() && host.volumes == ["mail/a"]),
            "it is primary, and withheld from nobody\n{}",
            scene.describe().await
        );
    }
}

fn live(seed: u64) {
    let mode = DrMode::Async { behind_ms: 2_000, behind_bytes: 64 << 20, push_back: false };
    in_scene(seed, (mode, seed.is_multiple_of(2)), life);
}

#[test]
fn hosts_of_a_lost_site_are_never_served_before_they_are_readmitted() {
    let seeds = if std::env::var_os("SPINDLE_FULL").is_some() { 300 } else { 6 };
    for seed in 0..seeds {
        println!("SPINDLE_SEED={seed}");
        live(seed);
    }
}

#[cfg(debug_assertions)]
#[test]
fn each_planted_bug_of_withholding_is_noticed() {
    use control::planted::DrBug;
    let bugs = DrBug::OF_WITHHOLDING.map(|bug| (bug, 0));
    crate::planted::assert_dr_bugs_panic(bugs, 20, live);
}
