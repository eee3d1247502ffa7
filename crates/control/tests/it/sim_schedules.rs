//! Lives of a site's server with schedules, under a civil clock that tests set.

use crate::sim_site::{Drives, MIB, MadePools, SimCatalogues, SimPlaces, journal_of};
use control::{
    notice::{self, NoticeReader},
    pool_thread::ServedPool,
    site::{
        SiteContext, SiteServer,
        planning::PlanOccasion,
        server::{PortalUse, SiteServerSetting},
    },
};
use fragile::Fragile;
use report::Refusal;
use serving::pool::volume_change::{VolumeChange, perform};
use std::{cell::Cell, collections::BTreeMap, rc::Rc, sync::Arc, time::Duration};
use world::{
    ByteCount, Clock, LocalFuture, MachineUptime, Moment, Spawn, WallTime, World,
    sim::{DriveOptions, NetworkOptions, SimNetwork, SimStateFile, SimThreads, Simulation},
};

const POOLS: [&str; 2] = ["logs", "mail"];

pub const SITE: &str = "
    [[group]]
    name = 'logs'
    [[group]]
    name = 'mail'
    [[volume]]
    name = 'a'
    group = 'mail'
    gb = 0.001953125
    [[volume]]
    name = 'b'
    group = 'logs'
    gb = 0.001953125
    [[volume]]
    name = 'c'
    group = 'mail'
    gb = 0.001953125
    [[snapshots]]
    name = 'hourly'
    every_hours = 1
    keep = 4
    volumes = ['a', 'logs/b']
    [[snapshots]]
    name = 'daily'
    every_hours = 24
    at = '03:00'
    keep = 3
    groups = ['mail']
";

/// A snapshot as a pool lists it.
#[derive(Clone, Debug, PartialEq)]
pub struct ListedSnapshot {
    pub name: String,
    pub note: String,
    pub taken_s: i64,
}

/// Snapshots in the order in which they were taken, by POOL/VOLUME.
pub type Listed = BTreeMap<String, Vec<ListedSnapshot>>;

/// The parts that outlive a server.
pub struct Fixture {
    pub simulation: Simulation,
    pub drives: Drives,
    network: SimNetwork,
    made: MadePools,
    file: SimStateFile,
    pub catalogues: SimCatalogues,
    /// Civil time as the server saw it last.
    civil_s: Rc<Cell<i64>>,
}

/// A server that is to be started.
pub struct ScheduledLife {
    world: World,
    network: SimNetwork,
    drives: Drives,
    made: MadePools,
    file: SimStateFile,
    catalogues: SimCatalogues,
    clock: Rc<Cell<i64>>,
}

/// Parts of a life before its world is known.
pub struct UnbornLife {
    parts: (SimNetwork, Drives, MadePools, SimStateFile, SimCatalogues),
    civil_s: Rc<Cell<i64>>,
}

impl Fixture {
    pub fn new(seed: u64) -> Self {
        let mut simulation = Simulation::new(seed);
        let network = simulation.add_network(NetworkOptions::rack());
        let options = DriveOptions::new(ByteCount(65 * MIB));
        let drives: Drives = POOLS
            .map(|pool| (pool.to_owned(), (0..2).map(|_| simulation.add_drive(options.clone())).collect()))
            .into();
        // 2026-11-27 12:34:56.
        let civil_s = Rc::new(Cell::new(1_795_782_896));
        let file = SimStateFile::new("journal", seed);
        let catalogues = SimCatalogues::default();
        Self { simulation, drives, network, made: MadePools::default(), file, catalogues, civil_s }
    }

    pub fn life(&self) -> UnbornLife {
        let parts = (
            self.network.clone(),
            self.drives.clone(),
            Rc::clone(&self.made),
            self.file.clone(),
            self.catalogues.clone(),
        );
        UnbornLife { parts, civil_s: Rc::clone(&self.civil_s) }
    }

    /// Hides a pool from the next servers, or shows it again.
    pub fn hide_pool(&self, pool: &str, is_hidden: bool) {
        let mut made = self.made.borrow_mut();
        if is_hidden {
            made.remove(pool)
        } else {
            made.insert(pool.to_owned())
        };
    }

    /// Time passes while no server runs.
    pub fn pass(&self, seconds: i64) {
        self.civil_s.set(self.civil_s.get() + seconds);
    }

    pub fn crash(&mut self, cuts_power: bool) {
        match cuts_power {
            true => {
                self.simulation.cut_power();
                self.file.cut_power();
                self.catalogues.cut_power();
            }
            false => self.simulation.kill(),
        }
    }
}

impl UnbornLife {
    pub fn in_world(self, inner: &World) -> ScheduledLife {
        let (network, drives, made, file, catalogues) = self.parts;
        let start = self.civil_s.get();
        let ahead = Rc::new(Cell::new(start));
        let clock = SetClock { inner: inner.clone(), civil_at_start: Rc::clone(&ahead), seen: self.civil_s };
        let world = World::new(Rc::new(clock), Rc::new(InnerSpawn(inner.clone())), inner.seed());
        ScheduledLife { world, network, drives, made, file, catalogues, clock: ahead }
    }
}

/// A clock whose civil time is set by the test.
struct SetClock {
    inner: World,
    /// Civil time at the life's start, as the clock is set now.
    civil_at_start: Rc<Cell<i64>>,
    seen: Rc<Cell<i64>>,
}

impl Clock for SetClock {
    fn now(&self) -> Moment {
        self.inner.now()
    }

    fn wall(&self) -> WallTime {
        let nanos = self.inner.now().0;
        let seconds = self.civil_at_start.get() + (nanos / 1_000_000_000) as i64;
        self.seen.set(seconds);
        WallTime { seconds, nanos: (nanos % 1_000_000_000) as u32 }
    }

    fn machine_uptime(&self) -> MachineUptime {
        self.inner.machine_uptime()
    }

    fn sleep_until(&self, moment: Moment) -> LocalFuture<()> {
        self.inner.sleep_until(moment)
    }
}

struct InnerSpawn(World);

impl Spawn for InnerSpawn {
    fn spawn(&self, name: &'static str, task: LocalFuture<()>) {
        drop(self.0.spawn(name, task));
    }

    fn yield_now(&self) -> LocalFuture<()> {
        self.0.yield_now()
    }

    fn work(&self, cost: Duration) -> LocalFuture<()> {
        self.0.work(cost)
    }
}

/// A server that runs.
pub struct RunningLife {
    pub world: World,
    pub server: SiteServer,
    pub notices: NoticeReader,
    clock: Rc<Cell<i64>>,
}

fn said(refusal: Refusal) -> String {
    refusal.to_string()
}

impl ScheduledLife {
    /// Starts the server and applies the file; schedules run once it is open.
    pub async fn begin(self, text: &str) -> Result<RunningLife, String> {
        self.begin_by(text, PlanOccasion::Apply).await
    }

    /// As [`ScheduledLife::begin`]; at a start, pools that cannot be opened are left out.
    pub async fn begin_by(self, text: &str, occasion: PlanOccasion) -> Result<RunningLife, String> {
        let Self { world, network, drives, made, file, catalogues, clock } = self;
        let network = Fragile::new(network);
        let setting = SiteServerSetting {
            context: SiteContext { folder: "/".into(), state: "/state".into(), site: None },
            places: Rc::new(SimPlaces { drives, made }),
            threads: Rc::new(SimThreads(world.clone())),
            network: Box::new(move || network.get().host("server")),
            journal: Arc::new(journal_of(&file)?),
            catalogues: Rc::new(catalogues),
        };
        let (sender, notices) = notice::channel("serve");
        let server = SiteServer::start(&world, setting, text, PortalUse::Listen, &sender).await;
        let server = server.map_err(said)?;
        let mut life = RunningLife { world, server, notices, clock };
        life.apply(text, occasion).await?;
        Ok(life)
    }
}

impl RunningLife {
    pub async fn apply(&mut self, text: &str, occasion: PlanOccasion) -> Result<(), String> {
        let plan = self.server.plan(text, &[], occasion).await.map_err(said)?;
        self.server.apply(plan, |_| ()).await.map_err(said)
    }

    pub fn open(&mut self) {
        self.server.open();
    }

    pub fn civil_s(&self) -> i64 {
        self.world.wall().seconds
    }

    pub async fn sleep(&self, seconds: i64) {
        self.world.sleep(Duration::from_secs(seconds.unsigned_abs())).await;
    }

    /// Sets the civil clock.
    pub fn jump(&self, seconds: i64) {
        self.clock.set(self.clock.get() + seconds);
        self.civil_s();
    }

    /// Keeps a pool's orders waiting.
    pub fn begin_long_order(&self, pool: &str, seconds: i64) {
        let pool = self.server.handle().look().pools[pool].clone();
        let span = Duration::from_secs(seconds.unsigned_abs());
        drop(pool.begin("long", move |served| Box::pin(async move { served.world.sleep(span).await })));
    }

    pub async fn order<T: Send + 'static>(
        &self,
        pool: &str,
        work: impl FnOnce(Rc<ServedPool>) -> LocalFuture<T> + Send + 'static,
    ) -> T {
        let pool = self.server.handle().look().pools[pool].clone();
        pool.begin("test", work).unwrap().await.unwrap()
    }

    pub async fn take_by_hand(&self, pool: &str, volume: &str, name: &str, note: &str) -> Result<(), String> {
        let (name, note) = (name.to_owned(), note.to_owned());
        let change = VolumeChange::Snapshot { volumes: vec![volume.into()], name, note };
        let taken = self.order(pool, move |served| {
            Box::pin(async move { perform(&change, &served.exports.changeable()).await.map(drop) })
        });
        taken.await.map_err(said)
    }

    pub async fn listed(&self) -> Listed {
        let mut all = Listed::new();
        for pool in self.server.handle().look().pools.keys() {
            let rows = self.order(pool, |served| {
                Box::pin(async move {
                    let volumes = served.pool.volumes();
                    let rows = volumes.into_iter().map(|volume| {
                        let snapshots = served.pool.snapshots(volume.volume).unwrap();
                        let listed = snapshots.into_iter().map(|snapshot| ListedSnapshot {
                            name: snapshot.name,
                            note: String::from_utf8(snapshot.note).unwrap(),
                            taken_s: (snapshot.created_at.0 / 1_000_000_000) as i64,
                        });
                        (volume.name, listed.collect::<Vec<_>>())
                    });
                    rows.collect::<Vec<_>>()
                })
            });
            let of_pool = rows.await.into_iter();
            all.extend(of_pool.map(|(volume, snapshots)| (format!("{pool}/{volume}"), snapshots)));
        }
        all
    }

    /// Warnings and notes since the last call, as `pool: text`.
    pub fn said(&mut self) -> Vec<String> {
        let mut lines = Vec::new();
        while let Some(notice) = self.notices.try_next() {
            lines.push(format!("{}: {}", notice.thread, notice.text));
        }
        lines
    }

    pub async fn end(mut self) -> Result<(), String> {
        let lines = self.said();
        self.server.stop().await;
        match lines.into_iter().find(|line| line.contains("schedule")) {
            Some(line) => Err(format!("said: {line}")),
            None => Ok(()),
        }
    }
}
