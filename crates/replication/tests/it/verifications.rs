//! Comparisons of both sites while hosts write and the stream goes on: alike sites are said to be alike, and a block that
//! differs is named, whatever crashes within a comparison.

use crate::{
    living_site::{LivingSite, Running, SiteLine},
    seeds::{escaped, live_all, seeds},
    sites::{HostLedger, Site, VOLUMES},
};
use array::{
    format::{BLOCK_BYTES, Stamp, VolumeId},
    pool::VolumeKey,
};
use replication::{
    connect::SiteRole,
    planted::ReplicationBug,
    primary::PrimaryGroup,
    session::{BoundPolicy, ReplicationMode, SessionState},
    verification::{ComparisonProgress, DifferentRange, VerifyError},
};
use std::{rc::Rc, sync::Arc, time::Duration};
use world::{
    Buffer, ByteOffset, Random, World,
    sim::{SimLimits, Simulation},
};

struct Pair {
    world: World,
    sites: [Rc<LivingSite>; 2],
    ledger: Rc<HostLedger>,
    mode: ReplicationMode,
    line: SiteLine,
}

impl Pair {
    fn connect(&self) {
        self.line.connect(&self.world, &self.sites, Duration::from_micros(400));
    }

    fn primary(&self) -> Option<Rc<PrimaryGroup>> {
        match &*self.sites[0].running.borrow() {
            Some(Running::Primary(group)) => Some(Rc::clone(group)),
            _ => None,
        }
    }

    async fn until_streaming(&self) {
        for round in 0..400 {
            let state = self.primary().map(|group| group.session().state());
            if state == Some(SessionState::Streaming) {
                return;
            }
            if round % 8 == 0 && state != Some(SessionState::Merging) {
                self.connect();
            }
            self.world.sleep(Duration::from_millis(50)).await;
        }
        panic!("it does not stream");
    }

    /// Compares; tries again if the secondary could take no cut at the moment.
    async fn compare(&self) -> Result<ComparisonProgress, VerifyError> {
        let mut attempts = 0;
        loop {
            let group = self.primary().expect("it is up");
            let progress = ComparisonProgress::default();
            match group.verify(&progress).await {
                Ok(()) => return Ok(progress),
                Err(VerifyError::Peer(why)) if why.contains("try again") && attempts < 200 => {}
                Err(error) => return Err(error),
            }
            attempts += 1;
            self.world.sleep(Duration::from_millis(10)).await;
        }
    }

    /// The secondary crashes within a comparison: that has no answer, and leaves nothing that the next one stumbles over.
    async fn crash_within(&self, random: &mut Random) {
        let (group, progress) = (self.primary().expect("it is up"), Rc::new(ComparisonProgress::default()));
        let compared = Rc::clone(&progress);
        let comparing = self.world.spawn("comparison", async move {
            group.verify(&compared).await.map_err(|error| error.to_string())
        });
        self.world.sleep(Duration::from_micros(random.below(30_000))).await;
        self.sites[1].crash(random);
        self.sites[1].start(self.mode, &self.ledger);
        self.world.sleep(Duration::from_millis(100)).await;
        self.connect();
        let outcome = comparing.await;
        assert_eq!(progress.different_blocks.get(), 0, "{outcome:?}");
        self.until_streaming().await;
    }

    /// A block of the secondary that no primary sent, behind its last command.
    async fn plant_difference(&self, (volume, block): (VolumeId, u64)) {
        let running = self.sites[1].running.borrow().clone();
        let Some(Running::Secondary(group)) = running else { panic!("it is secondary") };
        let stamp = Stamp(group.has().0 + 1);
        let device = group.member().pool().volume(VolumeKey::Id(volume)).unwrap();
        let data = vec![Arc::new(Buffer::copy_of(&[0xd1; BLOCK_BYTES]))];
        device.ensure_write(ByteOffset(block * BLOCK_BYTES as u64), &data, stamp).await.unwrap();
    }
}

async fn life(world: World, sites: [Rc<Site>; 2], mode: ReplicationMode) {
    let mut random = world.random("the comparisons");
    let sites = LivingSite::both(sites);
    for site in &sites {
        site.make().await;
    }
    let ledger = HostLedger::new();
    let pair =
        Pair { world: world.clone(), sites, ledger: Rc::clone(&ledger), mode, line: SiteLine::default() };
    pair.sites.iter().for_each(|site| site.start(mode, &ledger));
    world.sleep(Duration::from_millis(200)).await;
    pair.until_streaming().await;
    world.sleep(Duration::from_millis(300)).await;
    for round in 0..3 {
        let answers: usize = ledger.answered.borrow().iter().sum();
        let progress = pair.compare().await.unwrap();
        assert_eq!(progress.different_blocks.get(), 0, "round {round}: {:?}", progress.named.borrow());
        assert_eq!(progress.compared_bytes.get(), progress.total_bytes.get());
        assert!(progress.total_bytes.get() > 0);
        world.sleep(Duration::from_millis(30)).await;
        assert!(ledger.answered.borrow().iter().sum::<usize>() > answers, "hosts write meanwhile");
        pair.crash_within(&mut random).await;
    }
    ledger.is_over.set(true);
    world.sleep(Duration::from_millis(500)).await;
    pair.until_streaming().await;
    let (volume, block) = (VOLUMES[random.below(2) as usize], random.below(900));
    pair.plant_difference((volume, block)).await;
    for _ in 0..2 {
        let progress = pair.compare().await.unwrap();
        // The block may have had just these bytes of a host by a chance of nothing.
        assert_eq!(*progress.named.borrow(), [DifferentRange { volume, blocks: block..block + 1 }]);
        assert_eq!(progress.different_blocks.get(), 1);
    }
}

const MODES: [ReplicationMode; 2] = [
    ReplicationMode::Sync { hold: Duration::from_millis(500), is_failsafe: false },
    ReplicationMode::Async {
        behind_max: Duration::from_secs(20),
        behind_bytes_max: 64 << 20,
        over: BoundPolicy::Behind,
    },
];

fn live(seed: u64) {
    let mut simulation = Simulation::new(seed);
    let sites = [(1, SiteRole::Primary), (2, SiteRole::Secondary)]
        .map(|(n, role)| Site::new(&mut simulation, n, role));
    let mode = MODES[seed as usize % MODES.len()];
    simulation.run(SimLimits::generous(), |world| life(world, sites, mode)).completed();
}

#[test]
fn both_sites_are_compared_as_of_one_cut_while_hosts_write() {
    live_all(seeds(8, 500), live);
}

#[test]
fn planted_bugs_of_comparisons_are_noticed() {
    if !crate::is_full_run("planted bugs of comparisons are of") {
        return;
    }
    let escaped = escaped(ReplicationBug::OF_COMPARISONS, 0..40, live);
    assert!(escaped.is_empty(), "{escaped:?} escaped");
}
