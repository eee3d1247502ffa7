//! Two sites that live through everything: lines that are cut, either side that crashes or loses power, failovers after
//! which the old primary returns, planned failovers that anything interrupts, first copies. In sync nothing that was
//! answered is lost while the primary is not alone, and a planned failover loses nothing in any mode; two sides never serve
//! at one moment; what a failover lost is kept as a fork; in the end both sides are alike.

use crate::{
    living_site::{LivingSite, Running, SiteLine, SiteOrder},
    row_ledger::{RowLedger, check_alike},
    seeds::{assert_noticed, live_all},
    sites::{HostLedger, Site, contents, empty, fill, refusing, volumes_of},
};
use replication::{
    connect::SiteRole,
    group_state::GroupState,
    planted::{ReplicationBug, with_replication_bug},
    primary::PrimaryGroup,
    session::{BoundPolicy, ReplicationMode, SessionState},
};
use std::{cell::Cell, rc::Rc, time::Duration};
use world::{
    Random, World,
    sim::{FaultPlan, SimLimits, Simulation},
};

struct Sites {
    world: World,
    sites: [Rc<LivingSite>; 2],
    mode: ReplicationMode,
    /// Drives refuse what they are asked, and pools are full.
    has_troubles: bool,
    filled_bytes: Cell<u64>,
    ledger: Rc<HostLedger>,
    line: SiteLine,
}

impl Sites {
    fn connect(&self, random: &mut Random) {
        self.line.connect(&self.world, &self.sites, Duration::from_micros(random.below(3_000)));
    }

    fn cut(&self) {
        self.line.cut();
    }

    fn primary(&self) -> Option<Rc<PrimaryGroup>> {
        let running = self.sites.iter().filter_map(|site| site.running.borrow().clone());
        running.into_iter().find_map(|running| match running {
            Running::Primary(group) => Some(group),
            Running::Secondary(_) => None,
        })
    }

    /// The mode of a site by its record.
    fn mode_of(&self, site: usize) -> ReplicationMode {
        self.sites[site].site.kept_mode.get().unwrap_or(self.mode)
    }

    /// Changes the mode at the primary, which may crash while it does; the other side hears of it, or does not.
    async fn change_mode(&self, random: &mut Random) {
        let Some(primary) = self.sites.iter().position(|site| site.is_primary()) else { return };
        let mode = random.below(1 + MODES.len() as u64) as usize;
        let mode = MODES.get(mode).copied().unwrap_or(PERIODIC);
        self.cut();
        let _ = self.sites[primary].orders.borrow().send(SiteOrder::ChangeMode(mode));
        if random.percent(50.0) {
            self.world.sleep(Duration::from_micros(random.below(1_500))).await;
            self.sites[primary].crash(random);
            self.sites[primary].start(self.mode, &self.ledger);
        } else {
            let _ = self.sites[1 - primary].orders.borrow().send(SiteOrder::FollowMode(mode));
        }
        if random.percent(70.0) {
            self.connect(random);
        }
    }

    /// Pools that have stopped are opened again.
    fn revive(&self) {
        if self.has_troubles {
            self.sites.iter().for_each(|site| site.revive(self.mode, &self.ledger));
        }
    }

    /// Drives of a site refuse some of what they are asked, for a while; its power may go meanwhile.
    async fn trouble(&self, random: &mut Random) {
        let site = &self.sites[random.below(2) as usize];
        let faults = refusing(random);
        let one = random.percent(50.0).then(|| random.below(2) as usize);
        if random.percent(50.0) {
            self.connect(random);
        }
        site.site.trouble_drives(one, &faults);
        self.pause(random).await;
        let is_down = random.percent(50.0);
        if is_down {
            site.crash(random);
        }
        self.pause(random).await;
        site.site.trouble_drives(None, &FaultPlan::none());
        if is_down {
            site.start(self.mode, &self.ledger);
        }
        self.revive();
        if random.percent(70.0) {
            self.connect(random);
        }
    }

    /// The pool of the site that follows is full for a while: hosts go on as before, and the rest comes once there is room.
    async fn fill_pool(&self, random: &mut Random) {
        let follower = self.sites.iter().find(|site| {
            let is_secondary = matches!(&*site.running.borrow(), Some(Running::Secondary(_)));
            is_secondary && !site.is_primary()
        });
        let Some(site) = follower else { return };
        let pool_of = || site.running.borrow().as_ref().map(|running| Rc::clone(running.member().pool()));
        self.cut();
        self.pause(random).await;
        let Some(pool) = pool_of() else { return };
        let bytes = fill(&pool).await;
        drop(pool);
        for _ in 0..3 {
            self.connect(random);
            self.pause(random).await;
            if random.percent(20.0) {
                site.crash(random);
                site.start(self.mode, &self.ledger);
            }
        }
        self.filled_bytes.update(|all| all + bytes);
        self.wait("the full pool is open", |_| site.running.borrow().is_some()).await;
        self.cut();
        let pool = pool_of();
        empty(&pool.expect("it was looked at")).await;
        self.connect(random);
    }

    async fn pause(&self, random: &mut Random) {
        self.world.sleep(Duration::from_micros(random.below(250_000))).await;
    }

    /// Promotes the secondary, whatever the primary does.
    async fn fail_over(&self, random: &mut Random) {
        let Some(old) = self.sites.iter().position(|site| site.is_primary()) else { return };
        let new = 1 - old;
        // One that has a history of its own would bring back commands that the ledger counts as lost.
        let (ours, theirs) =
            (self.sites[old].site.kept.borrow().clone(), self.sites[new].site.kept.borrow().clone());
        let is_copy = theirs.lineage.is_some() && theirs.lineage == ours.lineage;
        if theirs.role == SiteRole::Primary || !is_copy || theirs.unfinished.is_some() {
            return;
        }
        self.sites[old].crash(random);
        self.pause(random).await;
        self.cut();
        let answered = self.ledger.answered.borrow().clone();
        let was_alone = self.sites[old].site.kept.borrow().is_alone;
        self.sites[new].loss_bound.set(None);
        let answer_times = self.ledger.answer_times.borrow().clone();
        let _ = self.sites[new].orders.borrow().send(SiteOrder::Promote);
        self.wait("the other side serves", |sites| {
            sites.sites[new].is_primary() && sites.primary().is_some()
        })
        .await;
        self.world.sleep(Duration::from_millis(20)).await;
        let is_sync = matches!(self.mode_of(old), ReplicationMode::Sync { .. });
        if is_sync && !was_alone {
            let begun = self.ledger.begun.borrow();
            for (writer, &answered) in answered.iter().enumerate() {
                assert!(begun[writer].len() >= answered, "writer {writer} lost an answered command in sync");
            }
        }
        if let Some(bound) = self.sites[new].loss_bound.get() {
            let begun = self.ledger.begun.borrow();
            for (writer, times) in answer_times.iter().enumerate() {
                let known = times.iter().filter(|(at, _)| *at <= bound.since).map(|(_, index)| *index).max();
                let there = begun[writer].len();
                assert!(
                    known.unwrap_or(0) <= there,
                    "writer {writer}: {known:?} were said to be there, not {there}"
                );
            }
        }
        self.sites[old].start(self.mode, &self.ledger);
    }

    /// A planned change of the primary, in which anything may happen.
    async fn hand_over(&self, random: &mut Random) {
        let begun = |site: &Rc<LivingSite>| site.serves() && site.hosts.borrow().have_begun.get();
        let Some(old) = self.sites.iter().position(begun) else { return };
        let (from, to) = (&self.sites[old], &self.sites[1 - old]);
        if to.is_primary() {
            // Two that were promoted: a connection decides.
            return;
        }
        if !self.line.is_there() || random.percent(50.0) {
            self.connect(random);
            self.pause(random).await;
        }
        from.hands_over.set(true);
        if random.percent(60.0) {
            let fate = random.below(3);
            if random.percent(50.0) {
                // Somewhere around the record of the new role.
                for _ in 0..2_000 {
                    let is_changing = match &*from.running.borrow() {
                        Some(Running::Primary(group)) => group.session().state() == SessionState::StoodDown,
                        _ => true,
                    };
                    if is_changing || !from.hands_over.get() {
                        break;
                    }
                    self.world.sleep(Duration::from_micros(50)).await;
                }
                self.world.sleep(Duration::from_micros(random.below(900))).await;
            } else {
                self.world.sleep(Duration::from_micros(random.below(60_000))).await;
            }
            match fate {
                0 => self.cut(),
                fate => {
                    let site = &self.sites[fate as usize - 1];
                    site.crash(random);
                    // Its last frames still arrive.
                    self.pause(random).await;
                    self.cut();
                    site.start(self.mode, &self.ledger);
                }
            }
        } else {
            self.world.sleep(Duration::from_millis(400)).await;
            if from.is_primary() {
                self.cut();
            }
        }
        let is_up = |site: &Rc<LivingSite>| site.running.borrow().is_some();
        self.wait("both are up", |sites| sites.sites.iter().all(is_up)).await;
        self.world.sleep(Duration::from_millis(5)).await;
        if self.sites.iter().any(|site| site.is_primary()) {
            return;
        }
        // A person promotes one of them, and each has everything.
        self.cut();
        self.world.sleep(Duration::from_millis(5)).await;
        assert!(!self.sites.iter().any(|site| site.is_primary()), "nobody has the right");
        let site = &self.sites[random.below(2) as usize];
        site.is_lossless.set(true);
        let _ = site.orders.borrow().send(SiteOrder::Promote);
        self.wait("it is promoted", |_| site.is_primary() && !site.is_lossless.get()).await;
    }

    async fn wait(&self, what: &str, mut is_so: impl FnMut(&Self) -> bool) {
        for _ in 0..30_000 {
            self.revive();
            if is_so(self) {
                return;
            }
            self.world.sleep(Duration::from_millis(1)).await;
        }
        panic!("still not: {what}\n{}", self.describe());
    }

    fn describe(&self) -> String {
        let all = self.sites.iter().map(|site| match &*site.running.borrow() {
            Some(Running::Primary(group)) => {
                format!("primary {:?} {:?}\n", group.session().state(), group.introduction())
            }
            Some(Running::Secondary(group)) => format!("secondary {:?}\n", group.introduction()),
            None => "down\n".to_owned(),
        });
        all.collect()
    }

    /// Heals everything, and waits until both are alike.
    async fn heal(&self, random: &mut Random) {
        for round in 0..400 {
            self.revive();
            if round % 8 == 0 {
                self.cut();
                for (site, living) in self.sites.iter().enumerate() {
                    if self.mode_of(site) == PERIODIC {
                        // It never streams.
                        let _ = living.orders.borrow().send(SiteOrder::ChangeMode(MODES[1]));
                    }
                }
                self.connect(random);
            }
            self.world.sleep(Duration::from_millis(100)).await;
            if self.are_alike() {
                return;
            }
            let is_up = |site: &Rc<LivingSite>| site.running.borrow().is_some() && !site.is_primary();
            if round % 40 == 39 && self.sites.iter().all(is_up) {
                // A hand over was cut off after all: a person promotes one of them.
                self.cut();
                let _ = self.sites[0].orders.borrow().send(SiteOrder::Promote);
            }
            let is_choice =
                self.primary().is_some_and(|group| group.session().state() == SessionState::AwaitingChoice);
            if is_choice {
                // A person says that the primary's history counts.
                let loser = self.sites.iter().find(|site| !site.is_primary());
                if let Some(loser) = loser {
                    self.cut();
                    let _ = loser.orders.borrow().send(SiteOrder::Yield);
                }
            }
        }
        panic!("they do not become alike\n{}", self.describe());
    }

    fn are_alike(&self) -> bool {
        let running: Vec<Running> =
            self.sites.iter().filter_map(|site| site.running.borrow().clone()).collect();
        let primary = running.iter().find_map(|running| match running {
            Running::Primary(group) => Some(group),
            Running::Secondary(_) => None,
        });
        let secondary = running.iter().find_map(|running| match running {
            Running::Secondary(group) => Some(group),
            Running::Primary(_) => None,
        });
        let (Some(primary), Some(secondary)) = (primary, secondary) else { return false };
        let session = primary.session();
        session.state() == SessionState::Streaming
            && session.confirmed().stamps()[0] >= session.has().stamps()[0]
            && secondary.has() >= session.has().stamps()[0]
            && self.ledger.is_over.get()
    }
}

async fn life(
    world: World,
    sites: [Rc<Site>; 2],
    (mode, extra): (ReplicationMode, Extra),
    rows: Option<Rc<RowLedger>>,
) -> usize {
    let mut random = world.random("the life");
    let living = LivingSite::both(sites);
    for site in &living {
        site.make().await;
    }
    let ledger = HostLedger::of(rows.clone());
    let line = SiteLine::default();
    let (clock, of_hosts) = (world.clone(), Rc::clone(&ledger));
    let has_troubles = extra == Extra::Troubles;
    ledger.may_fail.set(has_troubles);
    living.iter().for_each(|living| living.site.may_fail.set(has_troubles));
    let all = Sites {
        world: clock,
        sites: living,
        mode,
        has_troubles,
        filled_bytes: Cell::new(0),
        ledger: of_hosts,
        line,
    };
    all.sites.iter().for_each(|site| site.start(mode, &ledger));
    all.wait("both are open", |all| all.sites.iter().all(|site| site.running.borrow().is_some())).await;
    all.connect(&mut random);
    let watched = all.sites.clone();
    let clock = world.clone();
    drop(world.spawn("watch", async move {
        loop {
            let serving = watched.iter().filter(|site| site.serves()).count();
            assert!(serving < 2, "two sides serve hosts");
            clock.sleep(Duration::from_micros(500)).await;
        }
    }));
    for _ in 0..16 {
        all.pause(&mut random).await;
        all.revive();
        match random.below(if extra == Extra::None { 12 } else { 16 }) {
            0..3 => all.cut(),
            3..6 => all.connect(&mut random),
            6..8 => {
                let site = &all.sites[random.below(2) as usize];
                site.crash(&mut random);
                site.start(mode, &ledger);
                if random.percent(70.0) {
                    all.connect(&mut random);
                }
            }
            8 => all.fail_over(&mut random).await,
            9 | 10 => all.hand_over(&mut random).await,
            12..14 if all.has_troubles => all.trouble(&mut random).await,
            14.. if all.has_troubles => all.fill_pool(&mut random).await,
            12.. => all.change_mode(&mut random).await,
            _ => world.sleep(Duration::from_millis(1_500)).await,
        }
    }
    ledger.is_over.set(true);
    world.sleep(Duration::from_millis(50)).await;
    all.heal(&mut random).await;
    let pools = all.sites.iter().map(|site| site.running.borrow().as_ref().unwrap().member().pool().clone());
    let pools: Vec<_> = pools.collect();
    if let Some(rows) = rows {
        check_alike(&rows, [&pools[0], &pools[1]]).await;
        rows.check_snapshots(&pools[1], None).await;
        return rows.compared.get() as usize;
    }
    if has_troubles {
        println!(
            "note: {} pools failed, {} MiB filled",
            ledger.pools_failed.get(),
            all.filled_bytes.get() >> 20
        );
    }
    ledger.check_prefix(&volumes_of(&pools[0]), None).await.unwrap();
    let [one, other] = [contents(&pools[0]).await, contents(&pools[1]).await];
    for (volume, (one, other)) in one.iter().zip(&other).enumerate() {
        let differs = one.chunks(4096).zip(other.chunks(4096)).position(|(one, other)| one != other);
        assert_eq!(differs, None, "the block of volume {volume} that differs first");
    }
    ledger.answered.borrow().iter().sum()
}

const MODES: [ReplicationMode; 3] = [
    ReplicationMode::Sync { hold: Duration::from_millis(500), is_failsafe: false },
    ReplicationMode::Async {
        behind_max: Duration::from_secs(2),
        behind_bytes_max: 64 << 20,
        over: BoundPolicy::Behind,
    },
    ReplicationMode::Sync { hold: Duration::from_secs(5), is_failsafe: true },
];

/// A mode that lives with changes have, too.
const PERIODIC: ReplicationMode = ReplicationMode::Periodic { every: Duration::from_millis(300), kept: 2 };

fn live(seed: u64) -> usize {
    live_with(seed, None, Extra::None)
}

/// Accidents and changes that only some lives have.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Extra {
    None,
    /// People change the mode.
    Modes,
    /// Drives refuse what they are asked.
    Troubles,
}

fn live_with(seed: u64, rows: Option<Rc<RowLedger>>, extra: Extra) -> usize {
    if let Some(rows) = &rows {
        // They were found in thousands of lives, before promotions wrote.
        rows.promotes_bare.set(ReplicationBug::OF_RARE_PASSES.iter().any(|(_, rare)| *rare == seed));
    }
    let mut simulation = Simulation::new(seed);
    let drive_mib = if extra == Extra::Troubles { 64 } else { 320 };
    let sites = [(1, SiteRole::Primary), (2, SiteRole::Secondary)]
        .map(|site| Site::with_drives(&mut simulation, drive_mib, site));
    if seed % 2 == 1 {
        // A new replica, for which everything has to be copied.
        *sites[1].kept.borrow_mut() = GroupState::new_replica();
    }
    let mode = MODES[seed as usize % MODES.len()];
    simulation.run(SimLimits::generous(), |world| life(world, sites, (mode, extra), rows)).completed()
}

/// The seeds to run: `few`, or those that the environment names (`cargo xtask sim replication`).
fn seeds(few: u64) -> std::ops::Range<u64> {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    match number("SPINDLE_SEED") {
        Some(first) => first..first + number("SPINDLE_SEEDS").unwrap_or(1),
        None => 0..if std::env::var_os("SPINDLE_FULL").is_some() { 2_000 } else { few },
    }
}

#[test]
fn two_sites_live_through_crashes_and_failovers_and_are_alike_in_the_end() {
    for seed in seeds(12) {
        println!("SPINDLE_SEED={seed}");
        live(seed);
    }
}

#[test]
fn modes_of_two_sites_change_through_crashes_and_failovers() {
    for seed in seeds(12) {
        println!("SPINDLE_SEED={seed}");
        live_with(seed, None, Extra::Modes);
    }
}

#[test]
fn planted_bugs_of_changed_modes_are_noticed() {
    crate::seeds::assert_noticed(ReplicationBug::OF_MODES, 60, |seed| {
        live_with(seed, None, Extra::Modes);
    });
}

#[test]
fn drives_that_refuse_for_a_while_and_then_lose_their_power_cost_nothing_that_was_answered() {
    live_all(seeds(12), |seed| {
        live_with(seed, None, Extra::Troubles);
    });
}

#[test]
fn planted_bugs_that_drives_show_are_noticed() {
    if !crate::is_full_run("planted bugs that drives show are of") {
        return;
    }
    assert_noticed(ReplicationBug::OF_TROUBLES, 2_000, |seed| {
        live_with(seed, None, Extra::Troubles);
    });
}

#[test]
fn sizes_and_snapshots_of_two_sites_are_alike_through_crashes_and_failovers() {
    let rows = Rc::new(RowLedger::default());
    let mut compared = 0;
    let rare = ReplicationBug::OF_RARE_PASSES.map(|(_, seed)| seed);
    for seed in seeds(8).chain(rare) {
        println!("SPINDLE_SEED={seed}");
        let ledger = Rc::new(RowLedger::default());
        compared += live_with(seed, Some(Rc::clone(&ledger)), Extra::None);
        let counts = *ledger.counts.borrow();
        rows.counts.borrow_mut().iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
    }
    let counts = *rows.counts.borrow();
    println!(
        "note: {compared} snapshots compared; writes, discards, resizes, snapshots, deletions, rollbacks: {counts:?}"
    );
    assert!(compared > 100 && counts.iter().all(|count| *count > 8), "{compared} compared, {counts:?}");
}

#[test]
fn planted_bugs_of_changes_of_rows_are_noticed() {
    if !crate::is_full_run("planted bugs of changes of rows are of") {
        return;
    }
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let mut escaped = Vec::new();
    let rare = ReplicationBug::OF_RARE_PASSES.map(|(bug, _)| bug);
    for bug in ReplicationBug::OF_ROWS.into_iter().chain(rare) {
        let is_noticed = |seed| {
            let life = || live_with(seed, Some(Rc::default()), Extra::None);
            with_replication_bug(bug, || {
                std::panic::catch_unwind(std::panic::AssertUnwindSafe(life)).is_err()
            })
        };
        let few = match ReplicationBug::OF_RARE_PASSES.iter().find(|(rare, _)| *rare == bug) {
            Some(&(_, seed)) => seed..seed + 1,
            None => 0..60,
        };
        match few.clone().find(|&seed| is_noticed(seed)) {
            Some(seed) => println!("{bug:?}: seed {seed}"),
            None => escaped.push(bug),
        }
    }
    std::panic::set_hook(hook);
    assert!(escaped.is_empty(), "{escaped:?} escaped");
}

#[test]
fn planted_bugs_of_planned_failovers_are_noticed() {
    if !crate::is_full_run("planted bugs of planned failovers are of") {
        return;
    }
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let mut escaped = Vec::new();
    let is_full = std::env::var_os("SPINDLE_FULL").is_some();
    // A hand over before the last confirmation takes hundreds of lives to show.
    let is_quick = |bug: &ReplicationBug| is_full || *bug != ReplicationBug::HandedOverUnconfirmed;
    for bug in ReplicationBug::OF_HAND_OVERS.into_iter().filter(is_quick) {
        let is_noticed =
            |seed| with_replication_bug(bug, || std::panic::catch_unwind(|| live(seed)).is_err());
        let count = if is_full { 2_000 } else { 100 };
        match (0..count).find(|&seed| is_noticed(seed)) {
            Some(seed) => println!("{bug:?}: seed {seed}"),
            None => escaped.push(bug),
        }
    }
    std::panic::set_hook(hook);
    assert!(escaped.is_empty(), "{escaped:?} escaped");
}
