//! DR groups of two whole servers in simulated time: groups are made, moved, taken over, given up and removed over the API,
//! while lines are cut, either server is killed or loses its power between any two awaits, and hosts write over NBD.
//!
//! Checked are: both sites never serve hosts at one moment; what hosts were answered is there wherever they are served next,
//! unless a person accepted its loss; a primary that returns serves nothing before it compared, or a person said so; a change
//! that was answered with success stays; a refused one changes nothing; each is answered in bounded time; in the end both
//! sites have the same blocks.

use crate::{
    dr_hosts::Hosts,
    dr_site::{DrSite, SITES, VOLUME_BYTES, VOLUMES},
};
use control::{
    dr::{group_view::DrRole, mode::DrMode},
    web::{
        client::{ApiReply, DrGroupRow, FailoverBody, Method, NewDrGroupBody},
        rows::VolumePage,
    },
};
use nbd::Client;
use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::Arc,
    time::Duration,
};
use world::{
    BlockDevice, Buffer, ByteOffset, IoResult, Random, Stability, World,
    sim::{NetworkOptions, SimLimits, SimNetwork, Simulation},
};

/// Seeds that a planted bug may escape.
const PLANTED_SEEDS_MAX: u64 = 20;
/// Things that happen in a life.
const STEPS: usize = 16;

struct Scene {
    world: World,
    network: SimNetwork,
    sites: [Rc<DrSite>; 2],
    hosts: Rc<Hosts>,
    mode: DrMode,
    random: RefCell<Random>,
    /// UUID of the group.
    group: RefCell<String>,
    /// Since the last failover that may have lost something, both sites were alike.
    have_one_history: Cell<bool>,
    story: Rc<RefCell<Vec<String>>>,
    done: Cell<Counts>,
}

/// What happened in a life.
#[derive(Clone, Copy, Default, Debug)]
struct Counts {
    moved: u64,
    refused: u64,
    unclear: u64,
    taken_over: u64,
    crashes: u64,
    /// Writes that hosts were answered.
    answers: u64,
}

/// The outcome of a change that was asked for.
#[derive(Clone, Debug)]
enum Outcome {
    Done(DrGroupRow),
    Refused(String),
    /// The server ended, or the line was lost within: whether it was done is not known.
    Unclear,
}

impl Scene {
    fn below(&self, bound: u64) -> u64 {
        self.random.borrow_mut().below(bound)
    }

    fn percent(&self, percent: f64) -> bool {
        self.random.borrow_mut().percent(percent)
    }

    fn say(&self, text: impl AsRef<str>) {
        let at = self.world.now();
        let text = format!("{:9.3} {}", at.0 as f64 / 1e9, text.as_ref());
        if std::env::var_os("SPINDLE_TELL").is_some() {
            println!("{text}");
        }
        self.story.borrow_mut().push(text);
    }

    fn count(&self, change: impl FnOnce(&mut Counts)) {
        let mut counts = self.done.get();
        change(&mut counts);
        self.done.set(counts);
    }

    async fn sleep_ms(&self, ms: u64) {
        self.world.sleep(Duration::from_millis(ms)).await;
    }

    /// A pause of any length: a crash after it hits any await.
    async fn pause(&self) {
        let us = match self.below(3) {
            0 => self.below(2_000),
            1 => self.below(60_000),
            _ => self.below(1_500_000),
        };
        self.world.sleep(Duration::from_micros(us)).await;
    }

    fn cut(&self) {
        self.say("the line is cut");
        self.network.cut(SITES[0], SITES[1]);
        if self.percent(70.0) {
            self.network.reset(SITES[0], SITES[1]);
        }
    }

    fn restore(&self) {
        self.say("the line is back");
        self.network.restore(SITES[0], SITES[1]);
    }

    fn crash(&self, site: usize) {
        self.say(format!("{} crashes", SITES[site]));
        self.count(|counts| counts.crashes += 1);
        self.sites[site].crash(&mut self.random.borrow_mut());
    }

    fn start(&self, site: usize) {
        if !self.sites[site].node.is_up() {
            self.say(format!("{} starts", SITES[site]));
            self.sites[site].start();
        }
    }

    async fn row(&self, site: usize) -> Option<DrGroupRow> {
        self.sites[site].row(&self.world).await
    }

    /// Waits until a server answers.
    async fn until_up(&self, site: usize) {
        for _ in 0..3_000 {
            let asked = self.sites[site].ask(&self.world, (Method::GET, "/v1/volumes"), None, None).await;
            let page = asked.ok().and_then(|reply| reply.parsed::<VolumePage>().ok());
            if page.is_some_and(|page| !page.is_incomplete) {
                return;
            }
            self.sleep_ms(20).await;
        }
        panic!("{} does not start\n{}", SITES[site], self.describe().await);
    }

    async fn describe(&self) -> String {
        let mut text = self.story.borrow().join("\n");
        for site in &self.sites {
            if site.node.is_up() {
                text += &format!("\n{}: {:?}", site.name(), site.row(&self.world).await);
            }
            text += &format!("\n{}", site.warnings());
        }
        text
    }

    /// Site whose record says primary, if it is one alone.
    async fn primary(&self) -> Option<usize> {
        let mut primaries = Vec::new();
        for site in 0..2 {
            if self.row(site).await.is_some_and(|row| row.role == DrRole::Primary) {
                primaries.push(site);
            }
        }
        match primaries[..] {
            [primary] => Some(primary),
            _ => None,
        }
    }

    async fn failover(&self, site: usize, body: FailoverBody) -> Outcome {
        let group = self.group.borrow().clone();
        let body = serde_json::to_string(&body).unwrap();
        let path = format!("/v1/dr/groups/{group}/failover");
        let asked = self.sites[site].ask(&self.world, (Method::POST, &path), Some(body), None).await;
        self.outcome(asked)
    }

    fn outcome(&self, asked: Result<ApiReply, String>) -> Outcome {
        let outcome = match asked {
            Err(why) => {
                self.say(format!("    {why}"));
                Outcome::Unclear
            }
            Ok(reply) if reply.status < 300 => match reply.parsed() {
                Ok(row) => Outcome::Done(row),
                Err(error) => panic!("{error}"),
            },
            Ok(reply) => match reply.body.contains("was lost") || reply.body.contains("stopped") {
                true => {
                    self.say(format!("    {}", reply.body));
                    Outcome::Unclear
                }
                false => Outcome::Refused(format!("{} {}", reply.status, reply.body)),
            },
        };
        self.say(format!("    {outcome:?}"));
        self.count(|counts| match outcome {
            Outcome::Done(_) => {}
            Outcome::Refused(_) => counts.refused += 1,
            Outcome::Unclear => counts.unclear += 1,
        });
        outcome
    }

    /// Something happens while a change is under way.
    async fn disturb(&self) {
        self.pause().await;
        match self.below(6) {
            0 => self.cut(),
            site @ (1 | 2) => {
                let site = site as usize - 1;
                self.crash(site);
                self.pause().await;
                self.start(site);
            }
            3 => {
                self.crash(0);
                self.crash(1);
                self.pause().await;
                self.start(0);
                self.start(1);
            }
            _ => {}
        }
    }

    /// Something happens once the old primary has given its right away, and perhaps before the new one has it.
    async fn disturb_taking_over(&self, old: usize) {
        for _ in 0..1_000 {
            if !self.sites[old].is_primary(&self.world).await {
                break;
            }
        }
        self.world.sleep(Duration::from_micros(self.below(1_500))).await;
        match self.below(3) {
            0 => {
                self.cut();
                self.network.reset(SITES[0], SITES[1]);
            }
            site => {
                let site = site as usize - 1;
                self.crash(site);
                self.pause().await;
                self.start(site);
            }
        }
    }

    /// Makes the group, however often it is interrupted.
    async fn create(self: &Rc<Self>) {
        let reply = self.sites[0].ask(&self.world, (Method::GET, "/v1/volumes"), None, None).await.unwrap();
        let page: VolumePage = reply.parsed().unwrap();
        let volumes = page.volumes.into_iter().map(|row| row.id).collect();
        let body = NewDrGroupBody {
            name: "sg1".to_owned(),
            volumes,
            peer: SITES[1].to_owned(),
            pool: None,
            mode: self.mode.clone(),
        };
        let body = serde_json::to_string(&body).unwrap();
        for attempt in 0.. {
            self.say("the group is made");
            let own = Rc::clone(self);
            let disturbing = self.world.spawn("disturbance", async move {
                if attempt < 4 && own.percent(60.0) {
                    own.disturb().await;
                }
            });
            let asked = self.sites[0].ask(
                &self.world,
                (Method::POST, "/v1/dr/groups"),
                Some(body.clone()),
                Some("make"),
            );
            let outcome = self.outcome(asked.await);
            disturbing.await;
            if let Outcome::Done(row) = outcome {
                assert_eq!(row.role, DrRole::Primary, "{row:?}");
                *self.group.borrow_mut() = row.group;
                break;
            }
            assert!(attempt < 60, "the group cannot be made\n{}", self.describe().await);
            self.restore();
            self.until_up(0).await;
            self.until_up(1).await;
            self.sleep_ms(500).await;
        }
        self.sites[1].names_volumes.set(true);
        loop {
            self.until_up(1).await;
            if self.sites[1].apply(&self.world, &[]).await.is_ok_and(|reply| reply.status < 300) {
                return;
            }
            self.sleep_ms(200).await;
        }
    }

    /// A planned failover, asked for at either side.
    async fn move_group(self: &Rc<Self>) {
        if self.percent(80.0) {
            self.restore();
            for _ in 0..30 {
                if self.are_alike().await {
                    break;
                }
                self.sleep_ms(100).await;
            }
        }
        let before = self.primary().await;
        let asked_at = self.below(2) as usize;
        self.say(format!("planned failover asked at {}, primary {before:?}", SITES[asked_at]));
        let expected = self.hosts.expected.take();
        let is_disturbed = self.percent(50.0);
        let own = Rc::clone(self);
        let disturbing = self.world.spawn("disturbance", async move {
            match before {
                Some(before) if is_disturbed && own.percent(60.0) => own.disturb_taking_over(before).await,
                _ if is_disturbed => own.disturb().await,
                _ => {}
            }
        });
        let outcome = self.failover(asked_at, FailoverBody::default()).await;
        match &outcome {
            Outcome::Done(_) => {
                let new = before.map(|before| 1 - before);
                self.count(|counts| counts.moved += 1);
                // Nothing else can have changed it.
                self.hosts.expected.set(new);
            }
            Outcome::Refused(_) if !is_disturbed => {
                self.hosts.expected.set(expected);
                assert_eq!(self.primary().await, before, "{outcome:?}\n{}", self.describe().await);
            }
            _ => {}
        }
        disturbing.await;
        if let Outcome::Done(_) = outcome
            && let Some(before) = before
        {
            for site in 0..2 {
                self.start(site);
                self.until_up(site).await;
            }
            let now = self.primary().await;
            assert_eq!(now, Some(1 - before), "it was moved\n{}", self.describe().await);
        }
    }

    /// The primary is lost, and the other side takes over.
    async fn take_over(self: &Rc<Self>) {
        let Some(old) = self.primary().await else { return };
        let new = 1 - old;
        if !self.have_one_history.get() {
            return;
        }
        let Some(row) = self.row(new).await else { return };
        self.crash(old);
        let kept = self.sites[old].kept().await;
        // The record may have changed meanwhile: a hand over that was under way.
        let Some(was_alone) = kept.is_alone() else { return self.start(old) };
        let is_async = matches!(self.mode, DrMode::Async { .. });
        let loses = is_async || was_alone;
        self.say(format!("{} is to take over, loses {loses}, {}", SITES[new], row.state));
        self.pause().await;
        self.hosts.expected.set(None);
        let is_disturbed = self.percent(20.0);
        let body = FailoverBody { unplanned: true, accept_any_loss: true, ..Default::default() };
        let before = self.hosts.may_lose.get();
        self.hosts.may_lose.set(before || loses);
        for attempt in 0.. {
            let (own, crashes) = (Rc::clone(self), is_disturbed && attempt == 0);
            let disturbing = self.world.spawn("disturbance", async move {
                if crashes {
                    own.pause().await;
                    own.crash(new);
                    own.pause().await;
                    own.start(new);
                }
            });
            let outcome = self.failover(new, body.clone()).await;
            disturbing.await;
            self.start(new);
            self.until_up(new).await;
            let is_primary = self.sites[new].is_primary(&self.world).await;
            match outcome {
                Outcome::Done(_) => {
                    assert!(is_primary, "it took over\n{}", self.describe().await);
                    self.count(|counts| counts.taken_over += 1);
                    self.hosts.expected.set(Some(new));
                    self.have_one_history.set(false);
                    break;
                }
                Outcome::Refused(why) if why.contains("first copy") => {
                    assert!(!is_primary && loses, "{why}");
                    self.hosts.may_lose.set(before);
                    break;
                }
                // It was done before the crash, and says that it serves; or it returned, and is asked again.
                Outcome::Refused(why) if why.contains("and serves") => {
                    self.have_one_history.set(false);
                    break;
                }
                _ => {}
            }
            assert!(attempt < 60, "nobody takes over\n{}", self.describe().await);
            self.sleep_ms(500).await;
        }
        self.pause().await;
        self.start(old);
    }

    /// The primary returns while the other side is not reached: it serves nothing until it compares, or a person says so.
    async fn return_alone(&self) {
        let Some(primary) = self.primary().await else { return };
        self.cut();
        self.crash(primary);
        self.pause().await;
        self.start(primary);
        let before = self.hosts.answers[primary].get();
        self.until_up(primary).await;
        self.sleep_ms(2_000 + self.below(6_000)).await;
        let answers = self.hosts.answers[primary].get() - before;
        assert_eq!(answers, 0, "{} serves before it compared", SITES[primary]);
        if self.percent(50.0) {
            let body = FailoverBody { unplanned: true, accept_any_loss: true, ..Default::default() };
            self.say(format!("{} is to serve alone", SITES[primary]));
            self.hosts.expected.set(None);
            let outcome = self.failover(primary, body).await;
            assert!(matches!(outcome, Outcome::Done(_)), "{outcome:?}\n{}", self.describe().await);
            self.hosts.expected.set(Some(primary));
            self.have_one_history.set(false);
            self.sleep_ms(1_000).await;
        }
        if self.percent(70.0) {
            self.restore();
        }
    }

    /// Changes that are refused whenever they come, or that change nothing.
    async fn ask_for_nothing(&self) {
        let site = self.below(2) as usize;
        let Some(before) = self.row(site).await else { return };
        if before.role == DrRole::Secondary && self.percent(50.0) {
            self.say(format!("{} gives way, although it is secondary", SITES[site]));
            let path = format!("/v1/dr/groups/{}/give-way", before.group);
            let asked = self.sites[site].ask(&self.world, (Method::POST, &path), None, None).await;
            let outcome = self.outcome(asked);
            assert!(matches!(outcome, Outcome::Done(_)), "{outcome:?}");
        } else if before.connected_since.is_some() {
            self.say(format!("{} is asked to take over although it is connected", SITES[site]));
            let body = FailoverBody { unplanned: true, accept_loss_s: Some(0.0), ..Default::default() };
            let outcome = self.failover(site, body).await;
            assert!(!matches!(outcome, Outcome::Done(_)), "{outcome:?}");
        }
        if let Some(after) = self.row(site).await {
            assert_eq!(after.role, before.role, "{}", self.describe().await);
        }
    }

    async fn step(self: &Rc<Self>) {
        self.pause().await;
        match self.below(16) {
            0 | 1 => self.cut(),
            2..5 => self.restore(),
            5 | 6 => {
                let site = self.below(2) as usize;
                self.crash(site);
                self.pause().await;
                self.start(site);
            }
            7 => self.return_alone().await,
            8..11 => self.move_group().await,
            11 | 12 => self.take_over().await,
            13 => self.ask_for_nothing().await,
            14 => self.sleep_ms(8_000).await,
            _ => self.person().await,
        }
        for site in 0..2 {
            self.start(site);
            self.until_up(site).await;
        }
    }

    /// A person looks at both sites, and does what the state calls for.
    async fn person(&self) {
        let rows = [self.row(0).await, self.row(1).await];
        let [Some(one), Some(other)] = &rows else { return };
        if one.state == "streaming" || other.state == "streaming" {
            self.have_one_history.set(true);
        }
        let is_secondary = |row: &&DrGroupRow| row.role == DrRole::Secondary;
        if rows.iter().flatten().all(|row| is_secondary(&row)) {
            // Nobody has the right: both have everything.
            let site = self.below(2) as usize;
            self.say(format!("{} is promoted, since nobody is primary", SITES[site]));
            let body = FailoverBody { unplanned: true, accept_any_loss: true, ..Default::default() };
            self.hosts.expected.set(None);
            if let Outcome::Done(_) = self.failover(site, body).await {
                self.hosts.expected.set(Some(site));
            }
        } else if let Some(site) = rows.iter().flatten().position(|row| row.state == "awaiting choice") {
            // The one that does not serve hosts gives way.
            let loser = if rows[site].as_ref().is_some_and(|row| row.serves) { 1 - site } else { site };
            let group = self.group.borrow().clone();
            self.say(format!("{} gives way", SITES[loser]));
            let path = format!("/v1/dr/groups/{group}/give-way");
            let asked = self.sites[loser].ask(&self.world, (Method::POST, &path), None, None).await;
            self.outcome(asked);
        }
    }

    /// Heals everything, and waits until both sites are alike.
    async fn heal(&self) {
        for round in 0..600 {
            if round % 20 == 0 {
                self.restore();
            }
            for site in 0..2 {
                self.start(site);
            }
            self.sleep_ms(200).await;
            if self.are_alike().await {
                return;
            }
            if round % 10 == 9 {
                self.person().await;
            }
        }
        panic!("the sites do not become alike\n{}", self.describe().await);
    }

    async fn are_alike(&self) -> bool {
        let rows = [self.row(0).await, self.row(1).await];
        let [Some(one), Some(other)] = &rows else { return false };
        let (primary, secondary) = if one.role == DrRole::Primary { (one, other) } else { (other, one) };
        let is_sync = matches!(self.mode, DrMode::Sync { .. });
        secondary.role == DrRole::Secondary
            && primary.serves
            && primary.state == "streaming"
            && secondary.state == "following"
            && primary.unconfirmed_bytes == 0
            && !(is_sync && primary.is_alone)
    }

    /// Compares what both sites have once hosts are gone.
    async fn compare(&self) {
        self.hosts.is_over.set(true);
        while !self.hosts.has_ended.get() {
            self.sleep_ms(10).await;
        }
        self.heal().await;
        self.say("the end");
        for site in 0..2 {
            self.crash(site);
        }
        let [one, other] = [self.sites[0].kept().await, self.sites[1].kept().await];
        for (name, (one, other)) in VOLUMES.iter().zip(one.contents.iter().zip(&other.contents)) {
            let differs = one.chunks(4096).zip(other.chunks(4096)).position(|(one, other)| one != other);
            assert_eq!(differs, None, "the first block of volume {name} that differs");
        }
        self.hosts.check_end(&one.contents);
    }

    /// Takes the group apart at both sites, however often that is interrupted.
    async fn remove(self: &Rc<Self>) {
        let Some(primary) = self.primary().await else { return };
        self.hosts.only.set(Some(primary));
        let group = self.group.borrow().clone();
        let first = self.below(2) as usize;
        for site in [first, 1 - first] {
            for attempt in 0.. {
                self.say(format!("the group is removed at {}", SITES[site]));
                let (own, crashes) = (Rc::clone(self), attempt < 2 && self.percent(50.0));
                let disturbing = self.world.spawn("disturbance", async move {
                    if crashes {
                        own.pause().await;
                        own.crash(site);
                        own.pause().await;
                        own.start(site);
                    }
                });
                let path = format!("/v1/dr/groups/{group}");
                let key = format!("remove at {site}");
                let asked =
                    self.sites[site].ask(&self.world, (Method::DELETE, &path), None, Some(&key)).await;
                self.say(format!("    {asked:?}"));
                let is_done = asked.is_ok_and(|reply| reply.status < 300);
                disturbing.await;
                self.until_up(site).await;
                if is_done {
                    break;
                }
                if self.row(site).await.is_none() {
                    // A key that was not answered says nothing.
                    break;
                }
                assert!(attempt < 20, "it is not removed\n{}", self.describe().await);
            }
            assert!(self.row(site).await.is_none(), "it was removed\n{}", self.describe().await);
        }
        for site in 0..2 {
            if self.percent(50.0) {
                self.crash(site);
                self.start(site);
                self.until_up(site).await;
            }
            assert!(self.row(site).await.is_none(), "it was removed\n{}", self.describe().await);
            self.sleep_ms(100).await;
            for volume in VOLUMES {
                let client = self.sites[site].connect(&self.world, volume).await;
                let written = match client {
                    Ok(client) => write_last_block(&client).await,
                    Err(error) => Err(error),
                };
                // Both are volumes of hosts again.
                written.unwrap_or_else(|error| panic!("{volume} of {}: {error}", SITES[site]));
            }
        }
    }
}

/// Writes a block that no host of the ledger has.
async fn write_last_block(client: &Client) -> IoResult<()> {
    let at = ByteOffset(VOLUME_BYTES - 4096);
    client.write(at, vec![Arc::new(Buffer::zeroed(4096))], Stability::Stable).await
}

async fn life(world: World, scene: Scene, removes: bool) -> Counts {
    let scene = Rc::new(scene);
    scene.start(0);
    scene.start(1);
    scene.until_up(0).await;
    scene.until_up(1).await;
    drop(world.spawn("hosts", Rc::clone(&scene.hosts).live()));
    // Hosts use the volumes before there is a group.
    scene.sleep_ms(300).await;
    scene.create().await;
    for _ in 0..STEPS {
        scene.step().await;
        scene.person().await;
    }
    scene.heal().await;
    let answers = || scene.hosts.answers.iter().map(Cell::get).sum::<u64>();
    let before = answers();
    scene.sleep_ms(10_000).await;
    assert!(answers() > before, "hosts are served\n{}", scene.describe().await);
    if removes {
        scene.remove().await;
    } else {
        scene.compare().await;
    }
    scene.count(|counts| counts.answers = answers());
    scene.done.get()
}

fn modes() -> [DrMode; 3] {
    [
        DrMode::Sync { hold_ms: 500, failsafe: false },
        DrMode::Async { behind_ms: 2_000, behind_bytes: 64 << 20, push_back: false },
        DrMode::Sync { hold_ms: 3_000, failsafe: true },
    ]
}

fn live(seed: u64) -> (Counts, u64) {
    let mut simulation = Simulation::new(seed);
    let network = simulation.add_network(NetworkOptions::rack());
    let sites = [0, 1].map(|number| DrSite::new(&mut simulation, &network, number, seed));
    let mode = modes()[seed as usize % 3].clone();
    let random = RefCell::new(simulation.random("the life"));
    let story = Rc::new(RefCell::new(Vec::new()));
    let (removes, told) = (seed % 4 == 3, Rc::clone(&story));
    let told = StoryAtPanic(told);
    let counts = simulation.run(SimLimits::generous(), |world| {
        let hosts = Hosts::new(&world, &sites);
        let scene = Scene {
            world: world.clone(),
            network,
            sites,
            hosts,
            mode,
            random,
            group: RefCell::default(),
            have_one_history: Cell::new(false),
            story,
            done: Cell::default(),
        };
        life(world, scene, removes)
    });
    drop(told);
    (counts.completed(), simulation.polls())
}

/// Prints what happened if a seed fails.
struct StoryAtPanic(Rc<RefCell<Vec<String>>>);

impl Drop for StoryAtPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("{}", self.0.borrow().join("\n"));
        }
    }
}

/// The seeds to run: `few`, or those that the environment names (`cargo xtask sim sites`).
fn seeds(few: u64) -> std::ops::Range<u64> {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    match number("SPINDLE_SEED") {
        Some(first) => first..first + number("SPINDLE_SEEDS").unwrap_or(1),
        None => 0..if std::env::var_os("SPINDLE_FULL").is_some() { 2_000 } else { few },
    }
}

#[test]
fn two_sites_keep_what_hosts_were_answered_whatever_is_asked_and_whatever_crashes() {
    let mut all = Counts::default();
    for seed in seeds(20) {
        println!("SPINDLE_SEED={seed}");
        let (counts, polls) = live(seed);
        println!("    {counts:?}, {polls} polls");
        all.moved += counts.moved;
        all.refused += counts.refused;
        all.unclear += counts.unclear;
        all.taken_over += counts.taken_over;
        all.crashes += counts.crashes;
        all.answers += counts.answers;
    }
    println!("{all:?}");
}

#[cfg(debug_assertions)]
#[test]
fn each_planted_bug_of_dr_groups_is_noticed_within_a_few_seeds() {
    use control::planted::{DrBug, with_dr_bug};
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let mut escaped = Vec::new();
    for bug in DrBug::ALL {
        // The tests begin near seeds that show these: the others would only take time.
        let first = match bug {
            DrBug::ConnectionNotCut => 7,
            DrBug::RecordLeftBehind => 3,
            _ => 0,
        };
        let is_noticed = |&seed: &u64| with_dr_bug(bug, || std::panic::catch_unwind(|| live(seed)).is_err());
        match (first..first + PLANTED_SEEDS_MAX).find(is_noticed) {
            Some(seed) => println!("note: {bug:?} was noticed by seed {seed}"),
            None => escaped.push(bug),
        }
    }
    std::panic::set_hook(hook);
    assert!(escaped.is_empty(), "{escaped:?} escaped {PLANTED_SEEDS_MAX} seeds");
}
