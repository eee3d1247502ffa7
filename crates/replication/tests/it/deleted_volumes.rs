//! A primary that deletes a volume of the group: none of today does, so a frame of its own is sent. A volume with a locked
//! snapshot stays with all that it has, whatever the primary repeats; another one goes.

use crate::{
    locked_snapshots::{digest_of, snapshots_of},
    sites::{LineEnd, Site, VOLUMES, line},
};
use array::{
    format::{EpochId, Fence, SnapshotId, Stamp, WallNanoseconds},
    pool::{NewSnapshot, VolumeKey},
};
use replication::{
    channel::FrameChannel,
    connect::SiteRole,
    frame::{FrameBody, RecordFrame, SentChange},
    planted::{ReplicationBug, with_replication_bug},
    primary::PrimaryGroup,
    secondary::{SecondaryEnd, SecondaryGroup},
    session::{ReplicationMode, SessionState},
};
use std::{rc::Rc, time::Duration};
use world::{
    World,
    sim::{SimLimits, Simulation},
    with_deadline,
};

const MODE: ReplicationMode = ReplicationMode::Sync { hold: Duration::from_millis(500), is_failsafe: false };

/// One line, until the secondary ends it, or for two seconds. The primary's end of the line is the thief's, too.
async fn deletion_is_followed(
    world: &World,
    (primary, secondary): (&Rc<PrimaryGroup>, &Rc<SecondaryGroup>),
) -> Option<SecondaryEnd> {
    let (cut, ours, theirs) = line(world, Duration::from_millis(1));
    let ours: Rc<LineEnd> = Rc::new(ours);
    let (leading, channel) = (Rc::clone(primary), Rc::clone(&ours));
    drop(world.spawn("primary", async move { drop(leading.run(&*channel).await) }));
    let following = Rc::clone(secondary);
    let followed = world.spawn("secondary", async move { following.run(&theirs).await });
    let has_snapshot = || !snapshots_of(secondary.member().pool(), VOLUMES[0]).is_empty();
    while primary.session().state() != SessionState::Streaming || !has_snapshot() {
        world.sleep(Duration::from_millis(1)).await;
    }
    world.sleep(Duration::from_millis(50)).await;
    let has = secondary.has();
    let record = RecordFrame {
        part: 0,
        fence: Fence(1),
        epoch: EpochId([1; 16]),
        told: has,
        accepted_at: WallNanoseconds::of(world.wall()),
        goes_on: false,
        changes: vec![(Stamp(has.0 + 1), SentChange::VolumeDeleted { volume: VOLUMES[0] })],
    };
    ours.send(FrameBody::Record(record)).await.unwrap();
    let ended = with_deadline(world.sleep(Duration::from_secs(2)), followed).await;
    cut.cut();
    ended
}

async fn life(world: World, sites: [Rc<Site>; 2], is_locked: bool) {
    sites.iter().for_each(|site| site.has_locks.set(true));
    for site in &sites {
        site.make(&world).await;
    }
    let (member, follower) = (sites[0].open_member(&world).await, sites[1].open_member(&world).await);
    let has = member.position_after_opening().unwrap();
    let primary = PrimaryGroup::begin(&world, &member, (MODE, false), has);
    let secondary = Rc::new(SecondaryGroup::new(&world, &follower, (has, false)));
    let (snapshot, pool) = (SnapshotId([7; 16]), follower.pool());
    let key = VolumeKey::Id(VOLUMES[0]);
    let note = if is_locked { "until 9000000000000000000" } else { "" };
    let new = NewSnapshot { name: "s1", snapshot, note: note.as_bytes() };
    member.pool().take_snapshot(&[key], &new).await.unwrap();
    if !is_locked {
        let ended = deletion_is_followed(&world, (&primary, &secondary)).await;
        assert!(ended.is_none(), "a volume that may go ends nothing: {ended:?}");
        assert!(pool.volume(key).is_err(), "it is gone");
        assert!(pool.volume(VolumeKey::Id(VOLUMES[1])).is_ok(), "the other one stays");
        return;
    }
    let mut before = None;
    for _ in 0..2 {
        let ended = deletion_is_followed(&world, (&primary, &secondary)).await;
        let Some(SecondaryEnd::Failed(error)) = ended else { panic!("it ended by {ended:?}") };
        let text = error.to_string();
        assert!(text.contains("its snapshot \"s1\" is locked, so the volume stays"), "{text}");
        let digest = digest_of(pool, (snapshot, VOLUMES[0])).await.expect("it is there");
        assert_eq!(*before.get_or_insert(digest), digest, "its content");
    }
}

fn live(is_locked: bool) {
    let mut simulation = Simulation::new(5);
    let sites = [(1, SiteRole::Primary), (2, SiteRole::Secondary)]
        .map(|(n, role)| Site::new(&mut simulation, n, role));
    simulation.run(SimLimits::generous(), |world| life(world, sites, is_locked)).completed();
}

#[test]
fn a_volume_with_a_locked_snapshot_stays_though_its_primary_deletes_it() {
    live(true);
    live(false);
}

#[test]
fn a_secondary_that_follows_such_a_deletion_is_noticed() {
    let follows = || with_replication_bug(ReplicationBug::LockedVolumeDeleted, || live(true));
    assert!(std::panic::catch_unwind(follows).is_err());
}
