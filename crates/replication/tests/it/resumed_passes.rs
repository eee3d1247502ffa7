//! Passes over a line that never lasts for one: each goes on where the one before ended, whatever crashes, and though hosts
//! write, take snapshots and roll back meanwhile. In the end both sides are alike, and what had arrived did not come again.

use crate::{
    living_site::{LivingSite, Running, SiteLine, SiteOrder},
    row_ledger::{RowLedger, check_alike},
    seeds::{assert_noticed, live_all, seeds},
    sites::{HostLedger, MIB, Site, contents},
};
use replication::{
    connect::SiteRole,
    group_state::GroupState,
    merge_plan::{MergePlan, MergeStart},
    planted::ReplicationBug,
    primary::PrimaryGroup,
    session::{BoundPolicy, ReplicationMode, SessionState},
};
use std::{rc::Rc, time::Duration};
use world::{
    Random, World,
    sim::{SimLimits, Simulation},
};

/// Hosts never wait.
const MODE: ReplicationMode = ReplicationMode::Async {
    behind_max: Duration::from_secs(3_600),
    behind_bytes_max: 1 << 40,
    over: BoundPolicy::Behind,
};
/// A pass of all takes a third of a second.
const RATE_MAX: u64 = 24 * MIB;
/// A line lasts for less than that.
const LINE_MS: std::ops::Range<u64> = 20..100;
/// Bytes of one frame of a pass, at most.
const FRAME_BYTES: u64 = MIB;
/// Lines, at most: each brings something.
const LINES_MAX: u64 = 60;
/// Lines over which hosts go on writing.
const BUSY_LINES: u64 = 12;

struct Pair {
    world: World,
    sites: [Rc<LivingSite>; 2],
    ledger: Rc<HostLedger>,
    line: SiteLine,
}

impl Pair {
    fn connect(&self) {
        self.line.connect(&self.world, &self.sites, Duration::from_millis(1));
    }

    fn cut(&self) {
        self.line.cut();
    }

    fn primary(&self) -> Option<Rc<PrimaryGroup>> {
        match &*self.sites[0].running.borrow() {
            Some(Running::Primary(group)) => Some(Rc::clone(group)),
            _ => None,
        }
    }

    fn pass_bytes(&self) -> u64 {
        self.primary().map_or(0, |group| group.member().meter().pass_bytes())
    }

    fn are_alike(&self) -> bool {
        let secondary = match &*self.sites[1].running.borrow() {
            Some(Running::Secondary(group)) => group.has(),
            _ => return false,
        };
        self.primary().is_some_and(|group| {
            let has = group.session().has().stamps()[0];
            group.session().state() == SessionState::Streaming && secondary >= has
        })
    }

    async fn wait(&self, what: &str, mut is_so: impl FnMut() -> bool) {
        for _ in 0..20_000 {
            if is_so() {
                return;
            }
            self.world.sleep(Duration::from_millis(1)).await;
        }
        panic!("still not: {what}");
    }

    /// One line after the other until both are alike. Returns their number, with the bytes of all passes.
    async fn connect_again_and_again(&self, random: &mut Random, is_still: bool) -> (u64, u64) {
        let mut bytes = 0;
        for number in 1..=LINES_MAX {
            if !is_still && number == BUSY_LINES {
                self.ledger.is_over.set(true);
            }
            let before = self.pass_bytes();
            self.connect();
            let lasts = Duration::from_millis(LINE_MS.start + random.below(LINE_MS.end - LINE_MS.start));
            self.world.sleep(lasts).await;
            bytes += self.pass_bytes().saturating_sub(before);
            if self.ledger.is_over.get() && self.are_alike() {
                return (number, bytes);
            }
            self.cut();
            self.world.sleep(Duration::from_millis(1 + random.below(10))).await;
            // The bytes that a primary sent are counted until it crashes.
            let crashes = if is_still { 1..2 } else { 0..2 };
            if random.percent(30.0) {
                let site = &self.sites[(crashes.start + random.below(crashes.end - crashes.start)) as usize];
                site.crash(random);
                site.start(MODE, &self.ledger);
                self.wait("it is open again", || site.running.borrow().is_some()).await;
            }
        }
        panic!("after {LINES_MAX} lines and {bytes} bytes of passes they are not alike");
    }
}

/// Hosts write before the first line, and then no more (`is_still`) or for some lines.
async fn life(world: World, sites: [Rc<Site>; 2], is_still: bool) {
    let mut random = world.random("the life");
    let living = LivingSite::both(sites);
    for site in &living {
        site.make().await;
    }
    let rows = (!is_still).then(Rc::<RowLedger>::default);
    let ledger = HostLedger::of(rows.clone());
    let pair = Pair { world: world.clone(), sites: living, ledger, line: SiteLine::default() };
    pair.sites.iter().for_each(|site| site.start(MODE, &pair.ledger));
    pair.wait("both are open", || pair.sites.iter().all(|site| site.running.borrow().is_some())).await;
    pair.connect();
    pair.wait("the primary serves", || pair.primary().is_some_and(|group| group.serves())).await;
    pair.cut();
    world.sleep(Duration::from_millis(1_500)).await;
    pair.ledger.is_over.set(is_still);
    world.sleep(Duration::from_millis(50)).await;
    let plan = MergePlan { start: MergeStart::AtOnce, rate_max: Some(RATE_MAX) };
    pair.sites[0].orders.borrow().send(SiteOrder::Suspend).unwrap();
    pair.sites[0].orders.borrow().send(SiteOrder::Resume(plan)).unwrap();
    pair.wait("it is recorded", || pair.sites[0].site.kept.borrow().merge == plan).await;
    let (lines, bytes) = pair.connect_again_and_again(&mut random, is_still).await;
    let pools = pair.sites.iter().map(|site| site.running.borrow().as_ref().unwrap().member().pool().clone());
    let pools: Vec<_> = pools.collect();
    if let Some(rows) = rows {
        check_alike(&rows, [&pools[0], &pools[1]]).await;
        rows.check_snapshots(&pools[1], None).await;
        return;
    }
    let [one, other] = [contents(&pools[0]).await, contents(&pools[1]).await];
    assert!(one == other, "both have the same blocks");
    let written =
        one.iter().flat_map(|volume| volume.chunks(4096)).filter(|block| block[0] != 0).count() as u64;
    let most = written * 4096 * 105 / 100 + lines * FRAME_BYTES;
    println!("note: {lines} lines, {bytes} bytes of passes, {} written", written * 4096);
    assert!(lines > 2 && bytes <= most, "{lines} lines, {bytes} bytes of passes instead of {most} at most");
}

fn live_as(seed: u64, is_still: bool) {
    let mut simulation = Simulation::new(seed);
    let sites = [(1, SiteRole::Primary), (2, SiteRole::Secondary)]
        .map(|(n, role)| Site::new(&mut simulation, n, role));
    if seed % 2 == 1 {
        // A first copy.
        *sites[1].kept.borrow_mut() = GroupState::new_replica();
    }
    simulation.run(SimLimits::generous(), |world| life(world, sites, is_still)).completed();
}

#[test]
fn what_a_lost_line_has_brought_does_not_come_again() {
    live_all(seeds(8, 1_000), |seed| live_as(seed, true));
}

#[test]
fn passes_that_are_never_finished_at_once_bring_everything_beside_busy_hosts() {
    live_all(seeds(8, 1_000), |seed| live_as(seed, false));
}

#[test]
fn planted_bugs_of_resumed_passes_are_noticed() {
    if !crate::is_full_run("planted bugs of resumed passes are of") {
        return;
    }
    assert_noticed(ReplicationBug::OF_RESUMED_PASSES, 300, |seed| live_as(seed, false));
    assert_noticed([(ReplicationBug::BroughtForgotten, 0)], 10, |seed| live_as(seed, true));
}
