//! Two servers, their hosts, and what a test sees of them and does to them.

use crate::{
    dr_hosts::{DrHosts, is_read},
    dr_site::{DrSite, SITES, VOLUMES},
};
use control::{
    dr::{group_view::DrRole, mode::DrMode},
    web::{
        client::{ApiReply, DrGroupRow, FailoverBody, Method},
        rows::VolumePage,
    },
};
use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    time::Duration,
};
use world::{
    Random, World,
    sim::{NetworkOptions, SimLimits, SimNetwork, Simulation},
};

pub struct DrScene {
    pub world: World,
    pub network: SimNetwork,
    pub sites: [Rc<DrSite>; 2],
    pub hosts: Rc<DrHosts>,
    pub mode: DrMode,
    /// Denver's file names no volume: hosts find them there by the rows that came with the group.
    pub rows_travel: bool,
    pub random: RefCell<Random>,
    /// UUID of the group.
    pub group: RefCell<String>,
    /// Since the last failover that may have lost something, both sites were alike.
    pub have_one_history: Cell<bool>,
    pub story: Rc<RefCell<Vec<String>>>,
    pub done: Cell<DrCounts>,
}

/// Events of a life.
#[derive(Clone, Copy, Default, Debug)]
pub struct DrCounts {
    pub moved: u64,
    pub refused: u64,
    pub unclear: u64,
    pub taken_over: u64,
    pub crashes: u64,
    /// Writes that hosts were answered.
    pub answers: u64,
}

/// The outcome of a change that was asked for.
#[derive(Clone, Debug)]
pub enum VerbOutcome {
    Done(Box<DrGroupRow>),
    Refused(String),
    /// The server ended, or the line was lost within: whether it was done is not known.
    Unclear,
}

/// Lives a seed with two servers of one pool each and their hosts, to its end.
pub fn in_scene<T: 'static, F: Future<Output = T> + 'static>(
    seed: u64,
    group: (DrMode, bool),
    life: impl FnOnce(Rc<DrScene>) -> F,
) -> T {
    in_scene_of_pools(1, seed, group, life).0
}

/// As [`in_scene`], with one or two pools at each site. Returns the number of polls, too, which is the same whenever the seed
/// is lived.
pub fn in_scene_of_pools<T: 'static, F: Future<Output = T> + 'static>(
    pools: usize,
    seed: u64,
    (mode, rows_travel): (DrMode, bool),
    life: impl FnOnce(Rc<DrScene>) -> F,
) -> (T, u64) {
    let mut simulation = Simulation::new(seed);
    let network = simulation.add_network(NetworkOptions::rack());
    let sites = [0, 1].map(|number| DrSite::new(&mut simulation, &network, (number, pools), seed));
    let random = RefCell::new(simulation.random("the life"));
    let story = Rc::new(RefCell::new(Vec::new()));
    let told = StoryAtPanic(Rc::clone(&story));
    let lived = simulation.run(SimLimits::generous(), |world| {
        let hosts = DrHosts::new(&world, &sites);
        life(Rc::new(DrScene {
            world,
            network,
            sites,
            hosts,
            mode,
            rows_travel,
            random,
            group: RefCell::default(),
            have_one_history: Cell::new(false),
            story,
            done: Cell::default(),
        }))
    });
    drop(told);
    (lived.completed(), simulation.polls())
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

impl DrScene {
    pub fn below(&self, bound: u64) -> u64 {
        self.random.borrow_mut().below(bound)
    }

    pub fn percent(&self, percent: f64) -> bool {
        self.random.borrow_mut().percent(percent)
    }

    pub fn say(&self, text: impl AsRef<str>) {
        let at = self.world.now();
        let text = format!("{:9.3} {}", at.0 as f64 / 1e9, text.as_ref());
        if std::env::var_os("SPINDLE_TELL").is_some() {
            println!("{text}");
        }
        self.story.borrow_mut().push(text);
    }

    pub fn count(&self, change: impl FnOnce(&mut DrCounts)) {
        let mut counts = self.done.get();
        change(&mut counts);
        self.done.set(counts);
    }

    pub async fn sleep_ms(&self, ms: u64) {
        self.world.sleep(Duration::from_millis(ms)).await;
    }

    /// A pause of any length: a crash after it hits any await.
    pub async fn pause(&self) {
        let us = match self.below(3) {
            0 => self.below(2_000),
            1 => self.below(60_000),
            _ => self.below(1_500_000),
        };
        self.world.sleep(Duration::from_micros(us)).await;
    }

    pub fn cut(&self) {
        self.say("the line is cut");
        self.network.cut(SITES[0], SITES[1]);
        if self.percent(70.0) {
            self.network.reset(SITES[0], SITES[1]);
        }
    }

    pub fn restore(&self) {
        self.say("the line is back");
        self.network.restore(SITES[0], SITES[1]);
    }

    pub fn crash(&self, site: usize) {
        self.say(format!("{} crashes", SITES[site]));
        self.count(|counts| counts.crashes += 1);
        self.sites[site].crash(&mut self.random.borrow_mut());
    }

    pub fn start(&self, site: usize) {
        if !self.sites[site].node.is_up() {
            self.say(format!("{} starts", SITES[site]));
            self.sites[site].start();
        }
    }

    pub async fn row(&self, site: usize) -> Option<DrGroupRow> {
        self.sites[site].row(&self.world).await
    }

    /// Waits until a server answers.
    pub async fn until_up(&self, site: usize) {
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

    pub async fn describe(&self) -> String {
        let mut text = self.story.borrow().join("\n");
        for site in &self.sites {
            if site.node.is_up() {
                for row in site.rows(&self.world).await {
                    text += &format!("\n{}: {row:?}", site.name());
                }
            }
            text += &format!("\n{}", site.warnings());
        }
        text
    }

    /// The parts of the group are primary at two sites, which an interrupted failover leaves.
    async fn is_divided(&self) -> bool {
        let mut primaries = [0, 0];
        let mut parts = 0;
        for (site, primaries) in self.sites.iter().zip(&mut primaries) {
            let rows = site.rows(&self.world).await;
            *primaries = rows.iter().filter(|row| row.role == DrRole::Primary).count();
            parts = parts.max(rows.len());
        }
        primaries.iter().any(|&primaries| (1..parts).contains(&primaries))
    }

    /// Site whose record says primary, if it is one alone.
    pub async fn primary(&self) -> Option<usize> {
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

    pub async fn failover(&self, site: usize, body: FailoverBody) -> VerbOutcome {
        let group = self.group.borrow().clone();
        let body = serde_json::to_string(&body).unwrap();
        let path = format!("/v1/dr/groups/{group}/failover");
        let asked = self.sites[site].ask(&self.world, (Method::POST, &path), Some(body), None).await;
        self.outcome(asked)
    }

    pub fn outcome(&self, asked: Result<ApiReply, String>) -> VerbOutcome {
        let outcome = match asked {
            Err(why) => {
                self.say(format!("    {why}"));
                VerbOutcome::Unclear
            }
            Ok(reply) if reply.status < 300 => match reply.parsed() {
                Ok(row) => VerbOutcome::Done(Box::new(row)),
                Err(error) => panic!("{error}"),
            },
            Ok(reply) => match reply.body.contains("was lost") || reply.body.contains("stopped") {
                true => {
                    self.say(format!("    {}", reply.body));
                    VerbOutcome::Unclear
                }
                false => VerbOutcome::Refused(format!("{} {}", reply.status, reply.body)),
            },
        };
        self.say(format!("    {outcome:?}"));
        self.count(|counts| match outcome {
            VerbOutcome::Done(_) => {}
            VerbOutcome::Refused(_) => counts.refused += 1,
            VerbOutcome::Unclear => counts.unclear += 1,
        });
        outcome
    }

    /// Hosts from which a site withholds volumes are stopped, which these hosts always are before they look again, and
    /// readmitted.
    pub async fn readmit(&self, site: usize) {
        if self.row(site).await.is_none_or(|row| row.withheld.is_empty()) {
            return;
        }
        self.say(format!("{} readmits its hosts", SITES[site]));
        let asked = self.sites[site].ask(&self.world, (Method::GET, "/v1/volumes"), None, None).await;
        let Some(page) = asked.ok().and_then(|reply| reply.parsed::<VolumePage>().ok()) else { return };
        for volume in page.volumes.iter().filter(|row| VOLUMES.contains(&row.name.as_str())) {
            let path = format!("/v1/volumes/{}/readmission", volume.id);
            let body = Some(r#"{"all":true}"#.to_owned());
            // It may have ended meanwhile: then it is asked again.
            drop(self.sites[site].ask(&self.world, (Method::POST, &path), body, None).await);
        }
    }

    /// A person looks at both sites, and does what the state calls for.
    pub async fn person(&self) {
        for site in 0..2 {
            self.readmit(site).await;
        }
        let rows = [self.row(0).await, self.row(1).await];
        let [Some(one), Some(other)] = &rows else { return };
        if one.state == "streaming" || other.state == "streaming" {
            self.have_one_history.set(true);
        }
        let is_secondary = |row: &&DrGroupRow| row.role == DrRole::Secondary;
        if self.is_divided().await {
            self.gather_parts().await;
        } else if rows.iter().flatten().all(|row| is_secondary(&row)) {
            // Nobody has the right: both have everything.
            let site = self.below(2) as usize;
            self.say(format!("{} is promoted, since nobody is primary", SITES[site]));
            let body = FailoverBody { unplanned: true, accept_any_loss: true, ..Default::default() };
            self.hosts.expected.set(None);
            if let VerbOutcome::Done(_) = self.failover(site, body).await {
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

    /// Brings the parts of a divided group to one site, as the server says.
    async fn gather_parts(&self) {
        // A part may be served for up to a second after another has moved, to which nobody writes then.
        self.sleep_ms(2_000).await;
        for (site, volume) in [0, 1].into_iter().flat_map(|site| VOLUMES.map(|volume| (site, volume))) {
            let Ok(client) = self.sites[site].connect(&self.world, volume).await else { continue };
            let is_served = is_read(&client).await && self.is_divided().await;
            let text = if is_served { self.describe().await } else { String::new() };
            assert!(!is_served, "{} serves {volume} of a divided group\n{text}", SITES[site]);
        }
        let site = self.below(2) as usize;
        self.say(format!("{} is to have all parts", SITES[site]));
        self.hosts.expected.set(None);
        match self.failover(site, FailoverBody::default()).await {
            VerbOutcome::Done(_) => self.hosts.expected.set(self.primary().await),
            VerbOutcome::Refused(why) if why.contains("--unplanned") => {
                let has_primary = async |site: usize| {
                    let rows = self.sites[site].rows(&self.world).await;
                    rows.iter().any(|row| row.role == DrRole::Primary)
                };
                let site = if has_primary(site).await { site } else { 1 - site };
                self.say(format!("{} gets the part that nobody has", SITES[site]));
                let body = FailoverBody { unplanned: true, accept_any_loss: true, ..Default::default() };
                if let VerbOutcome::Done(_) = self.failover(site, body).await {
                    self.hosts.expected.set(Some(site));
                }
            }
            _ => {}
        }
    }

    /// Waits until Denver has noticed that Boston is gone.
    pub async fn until_lost(&self) {
        for _ in 0..1_000 {
            if self.row(1).await.is_some_and(|row| row.connected_since.is_none()) {
                return;
            }
            self.sleep_ms(20).await;
        }
        panic!("the line is not lost\n{}", self.describe().await);
    }

    /// Heals everything, and waits until both sites are alike.
    pub async fn heal(&self) {
        for round in 0..600 {
            if round % 20 == 0 {
                self.restore();
            }
            for site in 0..2 {
                self.start(site);
            }
            self.sleep_ms(200).await;
            if self.are_alike().await {
                self.readmit(0).await;
                self.readmit(1).await;
                return;
            }
            if round % 10 == 9 {
                self.person().await;
            }
        }
        panic!("the sites do not become alike\n{}", self.describe().await);
    }

    pub async fn are_alike(&self) -> bool {
        let rows = [self.row(0).await, self.row(1).await];
        let [Some(one), Some(other)] = &rows else { return false };
        let (primary, secondary) = if one.role == DrRole::Primary { (one, other) } else { (other, one) };
        let is_sync = matches!(primary.mode, DrMode::Sync { .. });
        secondary.role == DrRole::Secondary
            && primary.serves
            && primary.state == "streaming"
            && secondary.state == "following"
            && primary.unconfirmed_bytes == 0
            && !(is_sync && primary.is_alone)
    }

    /// Compares what both sites have once hosts are gone.
    pub async fn compare(&self) {
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
}
