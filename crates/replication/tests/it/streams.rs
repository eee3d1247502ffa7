//! A stream between two sites while hosts write: lines that are cut, secondaries that crash. What the secondary has is
//! a prefix at every cut; in sync it has all that was answered; after healing both are alike.

use crate::sites::{
    HostLedger, LineEnd, Site, Stop, WRITERS, contents, contents_of, line, volume_ids, volumes_of,
};
use array::{
    format::{BLOCK_BYTES, VolumeId},
    pool::{NewClone, Pool, VolumeKey},
    volume::VolumeDevice,
};
use replication::{
    connect::SiteRole,
    planted::{ReplicationBug, with_replication_bug},
    primary::PrimaryGroup,
    secondary::{SecondaryGroup, ShownCloneError},
    session::{BoundPolicy, ReplicationMode, SessionState},
};
use std::{cell::RefCell, rc::Rc, sync::Arc, time::Duration};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use world::{
    BlockDevice, Buffer, ByteOffset, Stability, World,
    sim::{SimLimits, Simulation},
    with_deadline,
};

/// A side that runs: its pool, its group, and the lines that it gets.
pub struct RunningPrimary {
    pub pool: Rc<Pool>,
    pub group: Rc<PrimaryGroup>,
}

pub struct RunningSecondary {
    pub world: World,
    pub pool: Rc<Pool>,
    pub group: Rc<SecondaryGroup>,
    /// Connections that have ended.
    pub ended: RefCell<usize>,
}

type Slot<T> = Rc<RefCell<Option<Rc<T>>>>;

async fn primary_main(
    world: World,
    (site, mode): (Rc<Site>, ReplicationMode),
    running: Slot<RunningPrimary>,
    ledger: Rc<HostLedger>,
    mut lines: UnboundedReceiver<LineEnd>,
) {
    let member = site.open_member(&world).await;
    let has = member.position_after_opening().unwrap();
    let group = PrimaryGroup::begin(&world, &member, (mode, false), has);
    let (pool, stop) = (Rc::clone(member.pool()), Rc::new(Stop::default()));
    for writer in 0..WRITERS {
        let random = world.random(&format!("writer {writer}"));
        drop(world.spawn(
            "host",
            Rc::clone(&ledger).write((world.clone(), Rc::clone(&stop)), writer, volumes_of(&pool), random),
        ));
    }
    *running.borrow_mut() = Some(Rc::new(RunningPrimary { pool, group: Rc::clone(&group) }));
    while let Some(line) = lines.recv().await {
        group.run(&line).await;
    }
}

async fn secondary_main(
    world: World,
    site: Rc<Site>,
    running: Slot<RunningSecondary>,
    mut lines: UnboundedReceiver<LineEnd>,
) {
    let member = site.open_member(&world).await;
    let has = member.position_after_opening().unwrap();
    member.end_going_back().await.unwrap();
    let (pool, group) =
        (Rc::clone(member.pool()), Rc::new(SecondaryGroup::new(&world, &member, (has, true))));
    if site.has_locks.get() {
        drop(world.spawn("locks", delete_unlocked(world.clone(), Rc::clone(&group))));
    }
    let world = world.clone();
    let side = Rc::new(RunningSecondary { world, pool, group: Rc::clone(&group), ended: RefCell::new(0) });
    *running.borrow_mut() = Some(Rc::clone(&side));
    while let Some(line) = lines.recv().await {
        group.run(&line).await;
        *side.ended.borrow_mut() += 1;
    }
}

/// Looks again and again whether locks have ended, as a site does.
async fn delete_unlocked(world: World, group: Rc<SecondaryGroup>) {
    loop {
        world.sleep(Duration::from_millis(40)).await;
        group.delete_unlocked().await.unwrap();
    }
}

pub struct Pair {
    world: World,
    pub secondary_site: Rc<Site>,
    pub ledger: Rc<HostLedger>,
    pub primary: Slot<RunningPrimary>,
    pub secondary: Slot<RunningSecondary>,
    lines: UnboundedSender<LineEnd>,
    secondary_lines: RefCell<UnboundedSender<LineEnd>>,
}

impl Pair {
    pub async fn begin(world: &World, sites: [Rc<Site>; 2], mode: ReplicationMode) -> Self {
        for site in &sites {
            let (made, world_of) = (Rc::clone(site), site.node.clone());
            let (done, finished) = tokio::sync::oneshot::channel();
            world_of.start(|world| async move {
                made.make(&world).await;
                assert!(done.send(()).is_ok(), "the test waits for it");
            });
            finished.await.unwrap();
            site.node.crash();
        }
        let [one, other] = sites;
        let (lines, primary_lines) = unbounded_channel();
        let pair = Self {
            world: world.clone(),
            secondary_site: other,
            ledger: HostLedger::new(),
            primary: Rc::default(),
            secondary: Rc::default(),
            lines,
            secondary_lines: RefCell::new(unbounded_channel().0),
        };
        let (ledger, running) = (Rc::clone(&pair.ledger), Rc::clone(&pair.primary));
        let node = one.node.clone();
        node.start(|world| primary_main(world, (one, mode), running, ledger, primary_lines));
        pair.start_secondary();
        pair
    }

    pub fn start_secondary(&self) {
        let (lines, taken) = unbounded_channel();
        *self.secondary_lines.borrow_mut() = lines;
        self.secondary.take();
        let (site, running) = (Rc::clone(&self.secondary_site), Rc::clone(&self.secondary));
        self.secondary_site.node.start(|world| secondary_main(world, site, running, taken));
    }

    /// Its secondary keeps the last states that passes bring.
    pub fn keep_points(&self, kept: u16) {
        let mode = ReplicationMode::Periodic { every: Duration::from_secs(1), kept };
        self.secondary.borrow().as_ref().unwrap().group.member().keep_points_of(mode);
    }

    pub fn connect(&self, delay: Duration) -> Rc<crate::sites::Line> {
        let (line, ours, theirs) = line(&self.world, delay);
        assert!(self.lines.send(ours).is_ok() && self.secondary_lines.borrow().send(theirs).is_ok());
        line
    }

    pub async fn wait(&self, what: &str, mut is_so: impl FnMut(&Self) -> bool) {
        for _ in 0..60_000 {
            if is_so(self) {
                return;
            }
            self.world.sleep(Duration::from_millis(1)).await;
        }
        panic!("after a minute still not: {what}; {}", self.describe());
    }

    fn describe(&self) -> String {
        let primary = self.primary.borrow().as_ref().map(|side| side.group.introduction());
        let secondary = self.secondary.borrow().as_ref().map(|side| side.group.introduction());
        format!("{:?}, {primary:?}, {secondary:?}", self.state())
    }

    /// The secondary has everything, and the primary knows it.
    pub fn is_alike(&self) -> bool {
        let (primary, secondary) =
            (self.primary.borrow().clone().unwrap(), self.secondary.borrow().clone().unwrap());
        let has = primary.group.session().has().stamps()[0];
        primary.group.session().confirmed().stamps()[0] == has && secondary.group.has() == has
    }

    pub fn state(&self) -> Option<SessionState> {
        self.primary.borrow().as_ref().map(|side| side.group.session().state())
    }

    /// Checks what the secondary has while nothing is applied.
    async fn check(&self, answered: &[usize], is_sync: bool) {
        let side = self.secondary.borrow().clone().unwrap();
        let whole = is_sync.then_some(answered);
        let counts = self.ledger.check_prefix(&volumes_of(&side.pool), whole).await.unwrap();
        if is_sync {
            for (writer, (&there, &answered)) in counts.iter().zip(answered).enumerate() {
                assert!(there >= answered, "writer {writer} was answered {answered}, and {there} is there");
            }
        }
    }
}

async fn life(
    world: World,
    sites: [Rc<Site>; 2],
    (mode, rounds, crash_percent): (ReplicationMode, usize, f64),
) -> usize {
    let mut random = world.random("the line");
    let is_sync = matches!(mode, ReplicationMode::Sync { .. });
    let pair = Pair::begin(&world, sites, mode).await;
    pair.wait("both are open", |pair| pair.primary.borrow().is_some() && pair.secondary.borrow().is_some())
        .await;
    for _ in 0..rounds {
        let delay = Duration::from_micros(random.below(4_000));
        let line = pair.connect(delay);
        pair.wait("it streams", |pair| pair.state() == Some(SessionState::Streaming)).await;
        world.sleep(Duration::from_micros(random.below(300_000))).await;
        let in_sync = pair.primary.borrow().as_ref().unwrap().group.session().is_in_sync();
        let ended = *pair.secondary.borrow().as_ref().unwrap().ended.borrow();
        let mut answered = pair.ledger.answered.borrow().clone();
        if random.percent(crash_percent) {
            match random.below(2) {
                0 => pair.secondary_site.node.crash(),
                _ => pair.secondary_site.node.cut_power(),
            }
            // Frames that it had sent before still arrive.
            world.sleep(delay).await;
            answered = pair.ledger.answered.borrow().clone();
            line.cut();
            pair.start_secondary();
            pair.wait("it is open again", |pair| pair.secondary.borrow().is_some()).await;
        } else {
            line.cut();
            let has_ended = |pair: &Pair| *pair.secondary.borrow().as_ref().unwrap().ended.borrow() > ended;
            pair.wait("the line is lost there", has_ended).await;
        }
        pair.check(&answered, is_sync && in_sync).await;
        // Sometimes longer than hosts are held.
        let away = if random.percent(30.0) { 3_000_000 } else { 200_000 };
        world.sleep(Duration::from_micros(random.below(away))).await;
    }
    let _line = pair.connect(Duration::from_millis(1));
    world.sleep(Duration::from_millis(500)).await;
    pair.ledger.is_over.set(true);
    world.sleep(Duration::from_millis(50)).await;
    pair.wait("the secondary has everything", Pair::is_alike).await;
    if is_sync {
        pair.wait("it is in sync", |pair| {
            pair.primary.borrow().as_ref().unwrap().group.session().is_in_sync()
        })
        .await;
    }
    let (primary, secondary) =
        (pair.primary.borrow().clone().unwrap(), pair.secondary.borrow().clone().unwrap());
    assert!(contents(&primary.pool).await == contents(&secondary.pool).await, "both are alike");
    pair.ledger.answered.borrow().iter().sum()
}

/// Clones what the secondary shows, again and again while it follows: each clone is a prefix of what hosts wrote and stays as
/// it is, and the stream goes on.
async fn clone_while_following(world: World, sites: [Rc<Site>; 2], mode: ReplicationMode) -> usize {
    let mut random = world.random("the clones");
    let pair = Pair::begin(&world, sites, mode).await;
    pair.wait("both are open", |pair| pair.primary.borrow().is_some() && pair.secondary.borrow().is_some())
        .await;
    let mut made = 0;
    for _ in 0..6 {
        let line = pair.connect(Duration::from_micros(random.below(2_000)));
        for _ in 0..4 {
            world.sleep(Duration::from_micros(random.below(60_000))).await;
            let side = pair.secondary.borrow().clone().unwrap();
            made += usize::from(clone_and_check(&world, &pair, &side).await);
        }
        pair.wait("it streams", |pair| pair.state() == Some(SessionState::Streaming)).await;
        if random.percent(30.0) {
            pair.secondary_site.node.crash();
            line.cut();
            pair.start_secondary();
            pair.wait("it is open again", |pair| pair.secondary.borrow().is_some()).await;
        } else {
            line.cut();
        }
    }
    let _line = pair.connect(Duration::from_millis(1));
    pair.ledger.is_over.set(true);
    world.sleep(Duration::from_millis(50)).await;
    pair.wait("the secondary has everything", Pair::is_alike).await;
    let (primary, secondary) =
        (pair.primary.borrow().clone().unwrap(), pair.secondary.borrow().clone().unwrap());
    // Nothing is written any more: twice the same.
    for _ in 0..2 {
        assert!(clone_and_check(&world, &pair, &secondary).await, "it has all of the last command");
    }
    assert!(contents(&primary.pool).await == contents(&secondary.pool).await, "both are alike");
    made
}

/// False if there was nothing to clone at the moment.
async fn clone_and_check(world: &World, pair: &Pair, side: &RunningSecondary) -> bool {
    let clone = |(index, volume): (u8, VolumeId)| {
        let name = format!("clone {index}");
        (volume, NewClone { name, volume: VolumeId([200 + index; 16]), is_independent: false })
    };
    let clones: Vec<_> = (0..).zip(volume_ids()).map(clone).collect();
    match side.group.clone_shown(&clones).await {
        Ok(()) => {}
        Err(ShownCloneError::Pool(error)) => panic!("{error}"),
        Err(_) => return false,
    }
    let volume = |(_, clone): &(VolumeId, NewClone)| side.pool.volume(VolumeKey::Id(clone.volume)).unwrap();
    let volumes: Vec<_> = clones.iter().map(volume).collect();
    pair.ledger.check_prefix(&volumes, None).await.unwrap();
    let before = contents_of(&volumes).await;
    world.sleep(Duration::from_millis(20)).await;
    assert!(contents_of(&volumes).await == before, "a clone stays as it is");
    drop(volumes);
    for (_, clone) in &clones {
        side.pool.delete_volume(VolumeKey::Id(clone.volume), false).await.unwrap();
    }
    true
}

const MODES: [ReplicationMode; 3] = [
    ReplicationMode::Sync { hold: Duration::from_secs(1), is_failsafe: false },
    ReplicationMode::Sync { hold: Duration::from_secs(1), is_failsafe: true },
    ReplicationMode::Async {
        behind_max: Duration::from_secs(3600),
        behind_bytes_max: 1 << 40,
        over: BoundPolicy::Behind,
    },
];

/// The life of a pair of sites. Panics at the first violation.
fn live(seed: u64, (rounds, crash_percent): (usize, f64)) {
    let mut simulation = Simulation::new(seed);
    let sites = [(1, SiteRole::Primary), (2, SiteRole::Secondary)]
        .map(|(n, role)| Site::new(&mut simulation, n, role));
    let mode = MODES[seed as usize % MODES.len()];
    let answered = simulation
        .run(SimLimits::generous(), |world| life(world, sites, (mode, rounds, crash_percent)))
        .completed();
    assert!(answered > 100, "hosts were answered {answered} times");
}

#[test]
fn a_secondary_has_a_prefix_at_every_cut_and_everything_that_was_answered_in_sync() {
    let seeds = match std::env::var("SPINDLE_SEED") {
        Ok(seed) => seed.parse().map(|seed: u64| seed..seed + 1).unwrap(),
        Err(_) => 0..if std::env::var_os("SPINDLE_FULL").is_some() { 2_000 } else { 10 },
    };
    for seed in seeds {
        println!("SPINDLE_SEED={seed}");
        live(seed, (6, 40.0));
    }
}

#[test]
fn clones_of_a_secondary_that_follows_are_prefixes_and_stay() {
    let seeds = if std::env::var_os("SPINDLE_FULL").is_some() { 0..500 } else { 0..6_u64 };
    let mut made = 0;
    for seed in seeds {
        println!("SPINDLE_SEED={seed}");
        let mut simulation = Simulation::new(seed);
        let sites = [(1, SiteRole::Primary), (2, SiteRole::Secondary)]
            .map(|(n, role)| Site::new(&mut simulation, n, role));
        let mode = MODES[seed as usize % MODES.len()];
        made += simulation
            .run(SimLimits::generous(), |world| clone_while_following(world, sites, mode))
            .completed();
    }
    assert!(made > 10, "only {made} clones were made");
}

#[test]
fn planted_bugs_of_streams_are_noticed() {
    if !crate::is_full_run("planted bugs of streams are of") {
        return;
    }
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let mut escaped = Vec::new();
    for bug in ReplicationBug::OF_STREAMS {
        let is_noticed =
            |seed| with_replication_bug(bug, || std::panic::catch_unwind(|| live(seed, (10, 90.0))).is_err());
        // Their moments are rare: the test begins near a seed that shows them.
        let first = match bug {
            ReplicationBug::BatchConfirmedWithFirst => 127,
            ReplicationBug::PartTakenForAll => 6,
            _ => 0,
        };
        match (first..first + 200).find(|&seed| is_noticed(seed)) {
            Some(seed) => println!("{bug:?}: seed {seed}"),
            None => escaped.push(bug),
        }
    }
    std::panic::set_hook(hook);
    assert!(escaped.is_empty(), "{escaped:?} escaped 200 seeds");
}

/// One write at a time, and nothing else: the line comes back at any moment of it.
async fn single_writes(world: World, sites: [Rc<Site>; 2]) {
    let mode = ReplicationMode::Sync { hold: Duration::from_secs(60), is_failsafe: false };
    let pair = Pair::begin(&world, sites, mode).await;
    pair.ledger.is_over.set(true);
    pair.wait("both are open", |pair| pair.primary.borrow().is_some() && pair.secondary.borrow().is_some())
        .await;
    let mut line = pair.connect(Duration::ZERO);
    pair.wait("they stream", |pair| pair.state() == Some(SessionState::Streaming)).await;
    let device = VolumeDevice(Rc::clone(&volumes_of(&pair.primary.borrow().as_ref().unwrap().pool)[0]));
    let mut random = world.random("single writes");
    for round in 0..80 {
        line.cut();
        world.sleep(Duration::from_micros(random.below(3_000))).await;
        // Of one record, and of several.
        let blocks = if random.percent(50.0) { 1 } else { 70 + random.below(60) };
        let data = (0..blocks).map(|_| Arc::new(Buffer::zeroed(BLOCK_BYTES))).collect();
        let written = device.write(ByteOffset(0), data, Stability::Stable);
        let written = world.spawn("write", written);
        world.sleep(Duration::from_micros(random.below(4_000))).await;
        line = pair.connect(Duration::from_micros(random.below(300)));
        // A connection that ends is made again, as the link does.
        let mut written = written;
        for attempt in 0.. {
            let limit = world.sleep(Duration::from_millis(250));
            if with_deadline(limit, &mut written).await.is_some() {
                break;
            }
            assert!(
                attempt < 20,
                "round {round}: a write of {blocks} blocks waits for another one; {}",
                pair.describe()
            );
            if matches!(pair.state(), Some(SessionState::Connecting(_))) {
                line = pair.connect(Duration::ZERO);
            }
        }
    }
}

#[test]
fn a_single_write_is_answered_whenever_the_line_comes_back() {
    for seed in 0..4 {
        println!("seed {seed}");
        let mut simulation = Simulation::new(seed);
        let sites = [(1, SiteRole::Primary), (2, SiteRole::Secondary)]
            .map(|(n, role)| Site::new(&mut simulation, n, role));
        simulation.run(SimLimits::generous(), |world| single_writes(world, sites)).completed();
    }
}
