//! A secondary that is connected, and whose drives hang: hosts wait for it no longer than for one that is lost.

use crate::sites::{Site, contents, line, volumes_of};
use array::volume::VolumeDevice;
use replication::{
    connect::SiteRole,
    primary::{HandOverError, PrimaryGroup},
    secondary::SecondaryGroup,
    session::{BoundPolicy, ReplicationMode, SessionState},
};
use std::{rc::Rc, sync::Arc, time::Duration};
use world::{
    BlockDevice, Buffer, ByteOffset, Moment, Stability, World,
    sim::{SimLimits, Simulation},
};

const HOLD: Duration = Duration::from_secs(5);
/// Operations of its drives take so long while they hang.
const HANGS: Duration = Duration::from_secs(40);

/// Both sites, streaming.
struct Streaming {
    world: World,
    sites: [Rc<Site>; 2],
    primary: Rc<PrimaryGroup>,
    secondary: Rc<SecondaryGroup>,
}

impl Streaming {
    async fn begin(world: World, sites: [Rc<Site>; 2], mode: ReplicationMode) -> Self {
        for site in &sites {
            site.make(&world).await;
        }
        let (member, follower) = (sites[0].open_member(&world).await, sites[1].open_member(&world).await);
        let has = member.position_after_opening().unwrap();
        let primary = PrimaryGroup::begin(&world, &member, (mode, false), has);
        let secondary = Rc::new(SecondaryGroup::new(&world, &follower, (has, false)));
        let (_, ours, theirs) = line(&world, Duration::from_millis(1));
        let (leading, following) = (Rc::clone(&primary), Rc::clone(&secondary));
        drop(world.spawn("primary", async move { drop(leading.run(&ours).await) }));
        drop(world.spawn("secondary", async move { drop(following.run(&theirs).await) }));
        let both = Self { world, sites, primary, secondary };
        both.until(|both| both.primary.session().state() == SessionState::Streaming).await;
        both
    }

    async fn until(&self, is_so: impl Fn(&Self) -> bool) {
        let limit = self.world.now() + Duration::from_secs(200);
        while !is_so(self) {
            assert!(self.world.now() < limit, "it does not come to pass: {:?}", self.primary.session());
            self.world.sleep(Duration::from_millis(1)).await;
        }
    }

    /// A host writes a block; the time until it was answered.
    async fn write(&self, index: u64) -> Duration {
        let device = VolumeDevice(volumes_of(self.primary.member().pool()).remove(0));
        let (block, before) = (Arc::new(Buffer::copy_of(&[9; 4096])), self.world.now());
        device.write(ByteOffset(index * 4096), vec![block], Stability::Stable).await.unwrap();
        self.world.now().since(before)
    }

    /// The secondary has all that the primary has.
    async fn is_alike(&self) {
        self.until(|both| both.secondary.has() >= both.primary.session().has().stamps()[0]).await;
        let pools = [self.primary.member().pool(), self.secondary.member().pool()];
        assert!(contents(pools[0]).await == contents(pools[1]).await);
    }
}

fn simulate(scene: impl AsyncFnOnce(World, [Rc<Site>; 2]) + 'static) {
    let mut simulation = Simulation::new(49);
    let sites = [(1, SiteRole::Primary), (2, SiteRole::Secondary)]
        .map(|(number, role)| Site::new(&mut simulation, number, role));
    simulation.run(SimLimits::generous(), |world| scene(world, sites)).completed();
}

#[test]
fn hosts_of_a_group_in_sync_go_on_alone_after_the_hold_and_are_in_sync_again() {
    simulate(async |world, sites| {
        let both =
            Streaming::begin(world, sites, ReplicationMode::Sync { hold: HOLD, is_failsafe: false }).await;
        assert!(both.write(0).await < Duration::from_secs(1));
        both.sites[1].hang_drives(HANGS);
        let waited = both.write(1).await;
        assert!((HOLD..HOLD + Duration::from_secs(1)).contains(&waited), "{waited:?}");
        assert!(both.primary.session().is_alone() && both.sites[0].kept.borrow().is_alone, "it is recorded");
        assert_eq!(both.primary.session().state(), SessionState::Streaming);
        for index in 2..8 {
            assert!(both.write(index).await < Duration::from_secs(1), "hosts wait for it once");
        }
        let begun: Moment = both.world.now();
        assert_eq!(both.primary.hand_over().await, Err(HandOverError::PeerSilent));
        assert!(both.world.now().since(begun) <= HOLD && both.primary.serves());
        both.sites[1].hang_drives(Duration::ZERO);
        both.until(|both| !both.primary.session().is_alone()).await;
        both.until(|both| !both.sites[0].kept.borrow().is_alone).await;
        assert!(both.write(9).await < Duration::from_secs(1));
        both.is_alike().await;
    });
}

#[test]
fn a_group_that_may_not_go_on_alone_refuses_its_hosts_after_the_hold() {
    simulate(async |world, sites| {
        let both =
            Streaming::begin(world, sites, ReplicationMode::Sync { hold: HOLD, is_failsafe: true }).await;
        both.sites[1].hang_drives(HANGS);
        let written = both.write(0);
        let refused = async {
            both.world.sleep(HOLD + Duration::from_millis(100)).await;
            assert!(!both.primary.serves() && !both.primary.session().is_alone());
            both.sites[1].hang_drives(Duration::ZERO);
        };
        let (waited, ()) = futures_util::future::join(written, refused).await;
        assert!(waited > HOLD, "it was answered when the other site had it");
        both.until(|both| both.primary.serves()).await;
        both.is_alike().await;
    });
}

#[test]
fn hosts_that_are_pushed_back_stay_and_go_on_when_the_other_site_confirms_nothing() {
    simulate(async |world, sites| {
        let mode = ReplicationMode::Async {
            behind_max: Duration::from_secs(30),
            behind_bytes_max: 8 << 10,
            over: BoundPolicy::PushBack,
        };
        let both = Streaming::begin(world, sites, mode).await;
        both.sites[1].hang_drives(HANGS);
        let mut waits = Vec::new();
        for index in 0..6 {
            waits.push(both.write(index).await);
            assert!(both.primary.serves(), "nobody is disconnected");
        }
        let waited = waits.iter().max().unwrap();
        assert!((14..=16).contains(&waited.as_secs()), "{waits:?}");
        assert!(waits[5] < Duration::from_secs(1), "they wait once: {waits:?}");
        assert!(both.primary.session().is_behind());
        both.sites[1].hang_drives(Duration::ZERO);
        both.is_alike().await;
        both.until(|both| !both.primary.session().is_behind()).await;
    });
}
