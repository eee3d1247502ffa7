//! A group with volumes in two pools of each site, which live through everything: lines of one part or of all that are cut,
//! sites and single pools that crash, failovers in the middle of which the new site crashes, planned failovers that anything
//! interrupts. Whatever a site shows as primary is a state in which each write has all that was answered before it began, in
//! either pool; together, nothing that was answered is lost; in the end both sites are alike.

use crate::{
    joint_sites::{AnsweredWrite, JointLedger, JointSite, PARTS, PartFlow, PartOrder, PartSite, WRITERS},
    seeds::{assert_noticed, live_all, seeds},
    sites::{Line, Site, contents, ill_drives, line, slow_drives},
};
use array::format::WallNanoseconds;
use replication::{
    connect::SiteRole,
    planted::ReplicationBug,
    session::{ReplicationMode, SessionState},
};
use std::{cell::RefCell, rc::Rc, time::Duration};
use world::{
    Random, World,
    sim::{SimLimits, Simulation},
};

const HOLD: Duration = Duration::from_millis(300);
const EVENTS: u64 = 30;

struct Scene {
    world: World,
    mode: ReplicationMode,
    sites: [Rc<JointSite>; 2],
    ledger: Rc<JointLedger>,
    lines: RefCell<[Option<Rc<Line>>; PARTS]>,
}

impl Scene {
    fn connect(&self, part: usize, random: &mut Random) {
        self.cut(part);
        let (line, one, other) = line(&self.world, Duration::from_micros(random.below(3_000)));
        for (site, end) in self.sites.iter().zip([one, other]) {
            site.parts[part].send(PartOrder::Connect(end));
        }
        self.lines.borrow_mut()[part] = Some(line);
    }

    fn cut(&self, part: usize) {
        if let Some(line) = self.lines.borrow_mut()[part].take() {
            line.cut();
        }
    }

    fn connect_all(&self, random: &mut Random) {
        (0..PARTS).for_each(|part| self.connect(part, random));
    }

    fn cut_all(&self) {
        (0..PARTS).for_each(|part| self.cut(part));
    }

    async fn pause(&self, random: &mut Random, max_ms: u64) {
        self.world.sleep(Duration::from_micros(random.below(max_ms * 1_000))).await;
    }

    /// The site at which all parts are primary by their records.
    fn primary(&self) -> Option<usize> {
        self.sites.iter().position(|site| site.parts.iter().all(|part| part.is_primary()))
    }

    /// True within the time. Lines that ended by themselves are connected again meanwhile.
    async fn reached(
        &self,
        within: Duration,
        random: &mut Random,
        (reconnects, is_so): (bool, impl Fn(&Self) -> bool),
    ) -> bool {
        let until = self.world.now() + within;
        let mut next = self.world.now();
        while !is_so(self) {
            if self.world.now() >= until {
                return false;
            }
            if reconnects && self.world.now() >= next {
                self.reconnect_ended(random);
                next = self.world.now() + Duration::from_millis(100);
            }
            self.world.sleep(Duration::from_millis(1)).await;
        }
        true
    }

    /// A channel that came to its end is not there any more: the parts that have none get one.
    fn reconnect_ended(&self, random: &mut Random) {
        self.choose();
        self.sites.iter().for_each(|site| site.revive(self.mode, random));
        for part in 0..PARTS {
            let is_up = self.lines.borrow()[part].as_ref().is_some_and(|line| line.is_whole());
            if !is_up {
                self.connect(part, random);
            }
        }
    }

    /// If both sites have answered what the other one lacks, that of the primary counts.
    fn choose(&self) {
        for (site, other) in [(0, 1), (1, 0)] {
            for part in 0..PARTS {
                let leader = self.sites[site].parts[part].leader();
                if leader.is_some_and(|group| group.session().state() == SessionState::AwaitingChoice) {
                    self.cut(part);
                    self.sites[other].parts[part].send(PartOrder::Yield);
                }
            }
        }
    }

    /// The other site takes over, whatever the primary does: that is down.
    async fn fail_over(&self, random: &mut Random) {
        let Some(old) = self.primary() else { return };
        let (from, to) = (&self.sites[old], &self.sites[1 - old]);
        if !to.shows_history_of(from) {
            return;
        }
        let was_alone = from.parts.iter().any(|part| part.site.kept.borrow().is_alone);
        let may_lose = was_alone || self.is_async();
        let (answered, knew) = (self.ledger.answered(), from.known.get() == Some(from.reign.get()));
        let times = self.ledger.answer_times();
        from.crash(random);
        self.pause(random, 20).await;
        self.cut_all();
        let bounds = self.loss_bounds(to);
        for round in 0.. {
            to.revive(self.mode, random);
            let first = random.below(PARTS as u64) as usize;
            to.parts[first].send(PartOrder::Promote);
            if round == 0 && random.percent(40.0) {
                // It dies between two parts, or within one.
                self.pause(random, 30).await;
                to.crash(random);
                to.start(self.mode);
                self.pause(random, 60).await;
                continue;
            }
            self.pause(random, 10).await;
            to.parts[1 - first].send(PartOrder::Promote);
            if self.reached(Duration::from_secs(2), random, (false, |_: &Self| to.serves())).await {
                break;
            }
            assert!(round < 20, "the other site does not take over: {:?}", to.parts[0].site.kept.borrow());
        }
        let knows = |_: &Self| to.known.get() == Some(to.reign.get());
        assert!(self.reached(Duration::from_secs(2), random, (false, knows)).await, "hosts go on");
        if knew {
            // Everything that was answered by the time that is said is there.
            let there = self.ledger.begun();
            for (writer, times) in times.iter().enumerate() {
                let is_known =
                    |write: &&AnsweredWrite| bounds[write.part].is_some_and(|bound| write.at <= bound);
                let known = times.iter().filter(is_known).map(|write| write.index).max();
                assert!(
                    known.unwrap_or(0) <= there[writer],
                    "host {writer}: {known:?} by {bounds:?}, {there:?}"
                );
            }
        }
        if !may_lose && knew {
            let there = self.ledger.begun();
            for (writer, &answered) in answered.iter().enumerate() {
                assert!(there[writer] >= answered, "host {writer} was answered {answered}: {there:?}");
            }
        }
        from.start(self.mode);
    }

    fn is_async(&self) -> bool {
        matches!(self.mode, ReplicationMode::Async { .. })
    }

    /// The time of each part, by its own clock, up to which a promotion of a site loses no answer, if it is known.
    fn loss_bounds(&self, site: &JointSite) -> Vec<Option<WallNanoseconds>> {
        let now = WallNanoseconds::of(self.world.wall());
        let bound = |part: &PartSite| part.follower()?.loss_bound(now).map(|bound| bound.since);
        site.parts.iter().map(bound).collect()
    }

    /// A planned change of the primary, which may not come to its end: then the rest of it is done.
    async fn hand_over(&self, random: &mut Random) {
        let Some(old) = self.primary().filter(|&old| self.sites[old].serves()) else { return };
        let (from, to) = (&self.sites[old], &self.sites[1 - old]);
        self.ledger.is_draining.set(true);
        let idle = |scene: &Self| scene.ledger.under_way.get() == 0;
        if self.reached(Duration::from_secs(2), random, (true, idle)).await {
            let interrupted = random.percent(40.0);
            for part in &from.parts {
                part.hands_over.set(true);
            }
            if interrupted {
                self.pause(random, 60).await;
                match random.below(3) {
                    0 => self.cut(random.below(PARTS as u64) as usize),
                    1 => self.restart_part(old, random).await,
                    _ => self.restart_part(1 - old, random).await,
                }
            }
            self.pause(random, 400).await;
            self.end_mixture(from, to, random).await;
        }
        self.ledger.is_draining.set(false);
    }

    /// Nobody serves while the parts are primary at two sites: one gets all.
    async fn end_mixture(&self, from: &Rc<JointSite>, to: &Rc<JointSite>, random: &mut Random) {
        let is_over = |_: &Self| {
            let count = to.parts.iter().filter(|part| part.is_primary()).count();
            count == 0 || count == PARTS
        };
        self.bring(from, to, random, is_over).await;
    }

    /// Brings all parts to a site.
    async fn bring(
        &self,
        from: &Rc<JointSite>,
        to: &Rc<JointSite>,
        random: &mut Random,
        is_over: impl Fn(&Self) -> bool,
    ) {
        for _ in 0..200 {
            if is_over(self) {
                return;
            }
            for (old, new) in from.parts.iter().zip(&to.parts) {
                if !new.is_primary() && old.is_primary() {
                    old.hands_over.set(true);
                } else if !new.is_primary() {
                    // It was given away, and did not arrive.
                    self.cut_all();
                    self.pause(random, 5).await;
                    new.send(PartOrder::Promote);
                }
            }
            self.pause(random, 100).await;
            self.reconnect_ended(random);
            self.pause(random, 300).await;
        }
        panic!("the parts stay at two sites: {}", self.text());
    }

    async fn restart_part(&self, site: usize, random: &mut Random) {
        let part = random.below(PARTS as u64) as usize;
        self.sites[site].crash_part(part, random);
        if random.percent(30.0) {
            // The others go on without it.
            self.pause(random, 800).await;
        }
        self.sites[site].start_part(part, self.mode);
    }

    async fn event(&self, random: &mut Random) {
        match random.below(100) {
            0..30 => self.connect_all(random),
            30..40 => self.reconnect_ended(random),
            40..50 => self.cut(random.below(PARTS as u64) as usize),
            50..57 => self.cut_all(),
            57..67 => self.restart_part(random.below(2) as usize, random).await,
            67..75 => {
                let site = &self.sites[random.below(2) as usize];
                site.crash(random);
                self.pause(random, 50).await;
                site.start(self.mode);
            }
            75..88 => self.fail_over(random).await,
            _ => self.hand_over(random).await,
        }
    }

    async fn live(&self, mut random: Random) {
        for _ in 0..EVENTS {
            self.event(&mut random).await;
            let long = if random.percent(40.0) { 900 } else { 120 };
            self.pause(&mut random, long).await;
        }
        if self.is_async() || self.ledger.is_slow.get() {
            // A hand over may still wait for the parts, or for drives.
            self.cut_all();
            self.pause(&mut random, 100).await;
        }
        if self.ledger.is_slow.take() {
            self.world.sleep(Duration::from_secs(3)).await;
        }
        // Parts that are still at two sites come together.
        if self.primary().is_none() {
            let has_any = |site: &Rc<JointSite>| site.parts.iter().any(|part| part.is_primary());
            let to = if has_any(&self.sites[1]) { 1 } else { 0 };
            self.bring(&self.sites[1 - to], &self.sites[to], &mut random, |scene| scene.primary().is_some())
                .await;
        }
        let is_together = |scene: &Self| {
            scene.primary().is_some_and(|site| {
                let site = &scene.sites[site];
                let is_close =
                    |part: &PartSite| part.leader().is_some_and(|group| group.session().is_close());
                site.serves() && site.joint.borrow().is_together() && site.parts.iter().all(is_close)
            })
        };
        let follows = |scene: &Self| scene.are_shown();
        if self.is_async() {
            let followed = self.reached(Duration::from_secs(60), &mut random, (true, follows)).await;
            assert!(followed, "the parts do not stream: {}", self.text());
            self.ledger.is_over.set(true);
            self.world.sleep(Duration::from_millis(500)).await;
            let followed = self.reached(Duration::from_secs(60), &mut random, (true, follows)).await;
            assert!(followed, "no mark shows everything: {}", self.text());
            return self.compare().await;
        }
        let together = self.reached(Duration::from_secs(60), &mut random, (true, is_together)).await;
        assert!(together, "the parts do not come together: {}", self.text());
        self.ledger.is_over.set(true);
        self.world.sleep(Duration::from_millis(500)).await;
        let together = self.reached(Duration::from_secs(60), &mut random, (true, is_together)).await;
        assert!(together, "the parts do not stay together: {}", self.text());
        self.compare().await;
    }

    /// All parts stream at a site that serves; once hosts are over, the other site shows all that they wrote.
    fn are_shown(&self) -> bool {
        let Some(at) = self.primary().filter(|&at| self.sites[at].serves()) else { return false };
        let mut parts = self.sites[at].parts.iter().zip(&self.sites[1 - at].parts);
        parts.all(|(leader, follower)| {
            let (Some(leader), Some(follower)) = (leader.leader(), follower.follower()) else { return false };
            let session = leader.session();
            // No record has the stamps of cuts that the primary took.
            let is_sent = session.exposure(self.world.now()).bytes == 0;
            let is_shown = || is_sent && follower.shown() >= session.confirmed().stamps()[0];
            session.state() == SessionState::Streaming && (!self.ledger.is_over.get() || is_shown())
        })
    }

    async fn compare(&self) {
        for part in 0..PARTS {
            let mut all = Vec::new();
            for site in &self.sites {
                let flow = site.parts[part].flow.borrow().clone().expect("it is up");
                let member = match &flow {
                    PartFlow::Primary(group) => group.member(),
                    PartFlow::Secondary(group) => group.member(),
                };
                all.push(contents(member.pool()).await);
            }
            assert!(all[0] == all[1], "part {part} differs");
        }
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for site in &self.sites {
            for part in &site.parts {
                let state = part.site.kept.borrow();
                let session = part.leader().map(|group| {
                    let session = group.session();
                    let (exposure, confirmed) = (session.exposure(self.world.now()), session.confirmed());
                    format!("{:?}, {exposure:?}, {confirmed:?} confirmed", session.state())
                });
                let shown = part.follower().map(|group| (group.has(), group.shown(), group.is_in_doubt()));
                let joint = &state.joint;
                text += &format!(
                    "\n{:?} fence {:?} {session:?} {shown:?} joined {:?}, {}, {}",
                    state.role,
                    state.fence,
                    joint.joined,
                    if joint.point.is_some() { "a point" } else { "no point" },
                    if joint.next.is_some() { "the next one" } else { "no next one" },
                );
            }
        }
        text
    }
}

fn live(seed: u64) {
    live_beside(seed, mode_of(seed), |_, _| {});
}

/// The mode of a life in sync.
pub fn mode_of(seed: u64) -> ReplicationMode {
    ReplicationMode::Sync { hold: HOLD, is_failsafe: seed % 4 == 1 }
}

/// A primary and a secondary, which are down.
pub fn two_sites(simulation: &mut Simulation) -> [Rc<JointSite>; 2] {
    let mut site = |number, role| Site::new(simulation, number, role);
    [
        JointSite::new([site(1, SiteRole::Primary), site(2, SiteRole::Primary)]),
        JointSite::new([site(3, SiteRole::Secondary), site(4, SiteRole::Secondary)]),
    ]
}

/// A life with something that goes on beside it.
pub fn live_beside(
    seed: u64,
    mode: ReplicationMode,
    beside: impl FnOnce(&World, (&[Rc<JointSite>; 2], &Rc<JointLedger>)) + 'static,
) {
    let mut simulation = Simulation::new(seed);
    let sites = two_sites(&mut simulation);
    let mut random = Random::new(seed, "events");
    let ran = simulation.run(SimLimits::generous(), |world| async move {
        let ledger = JointLedger::new();
        for site in &sites {
            site.make().await;
            site.start(mode);
        }
        let place = || (world.clone(), sites.clone());
        drop(world.spawn("what hosts know", Rc::clone(&ledger).keep(place())));
        for writer in 0..WRITERS {
            let own = world.random(&format!("host {writer}"));
            drop(world.spawn("a host", Rc::clone(&ledger).write(place(), writer, own)));
        }
        beside(&world, (&sites, &ledger));
        let lines = RefCell::default();
        let scene = Scene { world: world.clone(), mode, sites: sites.clone(), ledger, lines };
        scene.connect_all(&mut random);
        scene.live(random).await;
    });
    ran.completed();
}

#[test]
fn a_group_over_two_pools_is_shown_in_one_state_whatever_fails() {
    live_all(seeds(8, 2_000), live);
}

fn pools_of(sites: &[Rc<JointSite>; 2]) -> Vec<Rc<Site>> {
    sites.iter().flat_map(|site| &site.parts).map(|part| Rc::clone(&part.site)).collect()
}

#[test]
fn a_group_over_two_pools_is_shown_in_one_state_though_drives_are_slow() {
    live_all(seeds(6, 1_000), |seed| {
        live_beside(seed, mode_of(seed), move |world, (sites, ledger)| {
            ledger.is_slow.set(true);
            let slow = slow_drives(world.clone(), pools_of(sites), (600, Rc::clone(&ledger.is_slow)));
            drop(world.spawn("slow drives", slow));
        });
    });
}

#[test]
fn a_group_over_two_pools_is_shown_in_one_state_though_drives_refuse() {
    live_all(seeds(4, 1_000), live_with_ill_drives);
}

/// The part that is left at a site has stamps of cuts alone, which no record brings to its peer, and no host writes.
#[test]
fn a_part_that_has_cuts_alone_is_handed_over() {
    live_with_ill_drives(213);
}

fn live_with_ill_drives(seed: u64) {
    live_beside(seed, mode_of(seed), move |world, (sites, ledger)| {
        ledger.is_slow.set(true);
        let all = pools_of(sites);
        all.iter().for_each(|site| site.may_fail.set(true));
        for site in sites {
            site.crash(&mut Random::new(seed, "a first crash"));
            site.start(mode_of(seed));
        }
        let ill = ill_drives(world.clone(), all, (1_200, Rc::clone(&ledger.is_slow)));
        drop(world.spawn("ill drives", ill));
    });
}

#[test]
fn mistakes_of_parts_that_join_are_noticed() {
    assert_noticed(ReplicationBug::OF_JOINT_GROUPS, 400, live);
}
