//! Locked snapshots under a primary that someone has taken over: it deletes all that it has, and the secondary keeps what is
//! locked, with its content, through lines that are cut, crashes and passes. Hosts are served all the time, and what was held
//! goes once its lock has ended.

use crate::{
    sites::{Site, VOLUMES, contents},
    streams::{Pair, RunningPrimary, RunningSecondary},
};
use array::{
    format::{SnapshotId, VolumeId, WallNanoseconds},
    pool::{NewSnapshot, Pool, Snapshot, SnapshotKey, VolumeKey},
};
use replication::{
    connect::SiteRole,
    held_snapshots::SnapshotLocks,
    planted::{ReplicationBug, with_replication_bug},
    session::{BoundPolicy, ReplicationMode},
};
use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
    time::Duration,
};
use world::{
    BlockDevice, Buffer, ByteOffset, Random, World,
    crc32c::crc32c,
    sim::{SimLimits, Simulation},
};

/// A note `until N` locks its snapshot until then, in nanoseconds since 1970.
pub struct NoteLocks(pub World);

fn locked_until(note: &[u8]) -> Option<u64> {
    str::from_utf8(note).ok()?.strip_prefix("until ")?.parse().ok()
}

impl SnapshotLocks for NoteLocks {
    fn is_locked(&self, snapshot: &Snapshot) -> bool {
        locked_until(&snapshot.note).is_some_and(|until| WallNanoseconds::of(self.0.wall()).0 < until)
    }

    fn now_unix_s(&self) -> u64 {
        self.0.wall().seconds.unsigned_abs()
    }
}

/// A snapshot of one volume, as it was taken.
#[derive(Clone, Debug)]
struct TakenSnapshot {
    until: u64,
    digest: u32,
}

#[derive(Default)]
struct LockLedger {
    taken: RefCell<BTreeMap<(SnapshotId, VolumeId), TakenSnapshot>>,
    /// Those that the secondary has had, with no pass under way.
    arrived: RefCell<BTreeSet<(SnapshotId, VolumeId)>>,
    number_next: Cell<u64>,
    /// Times that a snapshot was at the secondary, locked, and not at the primary.
    held: Cell<usize>,
    /// Those that were compared with what was taken.
    compared: Cell<usize>,
}

pub async fn digest_of(pool: &Pool, (snapshot, volume): (SnapshotId, VolumeId)) -> Option<u32> {
    let device = pool.snapshot_device(VolumeKey::Id(volume), snapshot).ok()?;
    let size = device.geometry().size.0 as usize;
    let read = device.read(ByteOffset(0), vec![Buffer::zeroed(size)]).await.ok()?;
    Some(crc32c(&[&read[0]]))
}

pub fn snapshots_of(pool: &Pool, volume: VolumeId) -> Vec<Snapshot> {
    let all = pool.snapshots(VolumeKey::Id(volume)).unwrap().into_iter();
    all.filter(|snapshot| !snapshot.name.contains('~')).collect()
}

fn names_of(pool: &Pool) -> Vec<Vec<String>> {
    let names = |volume| snapshots_of(pool, volume).into_iter().map(|snapshot| snapshot.name).collect();
    VOLUMES.into_iter().map(names).collect()
}

impl LockLedger {
    /// Takes a snapshot of one volume or of both, which is locked until then, or not at all.
    async fn take(&self, side: &RunningPrimary, random: &mut Random, until: Option<u64>) {
        let number = self.number_next.get() + 1;
        self.number_next.set(number);
        let mut id = [0; 16];
        random.fill(&mut id);
        let (id, name) = (SnapshotId(id), format!("s{number}"));
        let until = until.unwrap_or(0);
        let note = if until > 0 { format!("until {until}") } else { String::new() };
        let volumes =
            if random.percent(50.0) { VOLUMES.to_vec() } else { vec![VOLUMES[random.below(2) as usize]] };
        let keys: Vec<_> = volumes.iter().map(|&volume| VolumeKey::Id(volume)).collect();
        let new = NewSnapshot { name: &name, snapshot: id, note: note.as_bytes() };
        side.pool.take_snapshot(&keys, &new).await.unwrap();
        for volume in volumes {
            let digest = digest_of(&side.pool, (id, volume)).await.expect("it was taken");
            self.taken.borrow_mut().insert((id, volume), TakenSnapshot { until, digest });
        }
    }

    /// Deletes any snapshot of a volume, locked or not: the machine is someone else's.
    async fn delete(&self, side: &RunningPrimary, random: &mut Random) {
        let volume = VOLUMES[random.below(2) as usize];
        let all = snapshots_of(&side.pool, volume);
        if all.is_empty() {
            return;
        }
        let snapshot = all[random.below(all.len() as u64) as usize].snapshot;
        side.pool.delete_snapshot(VolumeKey::Id(volume), SnapshotKey::Id(snapshot)).await.unwrap();
    }

    /// Notes what the secondary has, and checks that it has lost nothing that is locked.
    fn look(&self, primary: &RunningPrimary, side: &RunningSecondary) {
        let now = side.now();
        let taken = self.taken.borrow();
        for volume in VOLUMES {
            let here: BTreeSet<SnapshotId> =
                snapshots_of(&side.pool, volume).into_iter().map(|found| found.snapshot).collect();
            let there: BTreeSet<SnapshotId> =
                snapshots_of(&primary.pool, volume).into_iter().map(|found| found.snapshot).collect();
            let mut arrived = self.arrived.borrow_mut();
            for (id, of) in arrived.iter().filter(|(_, of)| *of == volume) {
                let known = &taken[&(*id, *of)];
                assert!(
                    known.until <= now || here.contains(id),
                    "{id} is gone {} ns early",
                    known.until - now
                );
            }
            if side.group.member().state().unfinished.is_none() {
                arrived.extend(here.iter().map(|id| (*id, volume)));
            }
            let is_held = |id: &&SnapshotId| {
                !there.contains(id) && taken.get(&(**id, volume)).is_some_and(|known| known.until > now)
            };
            self.held.set(self.held.get() + here.iter().filter(is_held).count());
        }
    }

    /// Compares the snapshots that the secondary has with what was taken.
    async fn compare(&self, side: &RunningSecondary) {
        let taken = self.taken.borrow().clone();
        for volume in VOLUMES {
            for found in snapshots_of(&side.pool, volume) {
                let known = &taken[&(found.snapshot, volume)];
                let Some(digest) = digest_of(&side.pool, (found.snapshot, volume)).await else { continue };
                assert_eq!(digest, known.digest, "content of {}", found.name);
                self.compared.set(self.compared.get() + 1);
            }
        }
    }
}

impl RunningSecondary {
    /// Its own clock, by which locks end: nanoseconds since 1970.
    fn now(&self) -> u64 {
        WallNanoseconds::of(self.world.wall()).0
    }
}

fn both(pair: &Pair) -> Option<(Rc<RunningPrimary>, Rc<RunningSecondary>)> {
    Some((pair.primary.borrow().clone()?, pair.secondary.borrow().clone()?))
}

async fn life(world: World, sites: [Rc<Site>; 2], mode: ReplicationMode) -> (usize, usize) {
    let (mut random, ledger) = (world.random("the thief"), Rc::new(LockLedger::default()));
    sites.iter().for_each(|site| site.has_locks.set(true));
    let pair = Pair::begin(&world, sites, mode).await;
    pair.wait("both are open", |pair| both(pair).is_some()).await;
    for _ in 0..6 {
        let line = pair.connect(Duration::from_micros(random.below(3_000)));
        for _ in 0..6 {
            world.sleep(Duration::from_micros(random.below(120_000))).await;
            let (primary, _) = both(&pair).unwrap();
            let now = both(&pair).unwrap().1.now();
            match random.below(8) {
                0..4 => {
                    let until = now + random.below(4_000_000_000);
                    ledger.take(&primary, &mut random, Some(until)).await;
                }
                4 => ledger.take(&primary, &mut random, None).await,
                _ => ledger.delete(&primary, &mut random).await,
            }
            let (primary, side) = both(&pair).unwrap();
            ledger.look(&primary, &side);
        }
        let ended = *pair.secondary.borrow().as_ref().unwrap().ended.borrow();
        if random.percent(50.0) {
            // Right after a deletion, as often as not.
            let (primary, _) = both(&pair).unwrap();
            ledger.delete(&primary, &mut random).await;
            world.sleep(Duration::from_micros(random.below(6_000))).await;
            match random.below(2) {
                0 => pair.secondary_site.node.crash(),
                _ => pair.secondary_site.node.cut_power(),
            }
            line.cut();
            pair.start_secondary();
            pair.wait("it is open again", |pair| pair.secondary.borrow().is_some()).await;
        } else {
            line.cut();
            let has_ended = |pair: &Pair| *pair.secondary.borrow().as_ref().unwrap().ended.borrow() > ended;
            pair.wait("the line is lost there", has_ended).await;
        }
        let (primary, side) = both(&pair).unwrap();
        ledger.look(&primary, &side);
        ledger.compare(&side).await;
        // Sometimes the log is not enough, and a pass follows.
        world.sleep(Duration::from_micros(random.below(1_500_000))).await;
    }
    let line = pair.connect(Duration::from_millis(1));
    pair.ledger.is_over.set(true);
    world.sleep(Duration::from_millis(50)).await;
    // All goes at the primary, and the secondary follows in everything but the locks.
    let (primary, _) = both(&pair).unwrap();
    let now = both(&pair).unwrap().1.now();
    ledger.take(&primary, &mut random, Some(now + 4_000_000_000)).await;
    pair.wait("the secondary has everything", Pair::is_alike).await;
    let (primary, side) = both(&pair).unwrap();
    ledger.look(&primary, &side);
    // Others may have been deleted before they arrived.
    let arrived = ledger.arrived.borrow().clone();
    let taken = ledger.taken.borrow().clone();
    let last = arrived.iter().map(|id| taken[id].until).max().unwrap();
    assert!(last > now, "the newest one is locked");
    for volume in VOLUMES {
        for snapshot in snapshots_of(&primary.pool, volume) {
            let key = SnapshotKey::Id(snapshot.snapshot);
            primary.pool.delete_snapshot(VolumeKey::Id(volume), key).await.unwrap();
        }
    }
    pair.wait("it follows while snapshots are held", Pair::is_alike).await;
    ledger.look(&primary, &side);
    ledger.compare(&side).await;
    assert!(contents(&primary.pool).await == contents(&side.pool).await, "both are alike");
    drop(side);
    pair.secondary_site.node.crash();
    line.cut();
    pair.start_secondary();
    pair.wait("it is open again", |pair| pair.secondary.borrow().is_some()).await;
    let _line = pair.connect(Duration::from_millis(1));
    pair.wait("what is held goes once its lock has ended", |pair| {
        let (primary, side) = both(pair).unwrap();
        ledger.look(&primary, &side);
        names_of(&primary.pool) == names_of(&side.pool)
    })
    .await;
    assert!(both(&pair).unwrap().1.now() >= last, "the last one stayed to its end");
    // The record comes after the deletion.
    pair.wait("nothing is held any more", |pair| pair.secondary_site.kept.borrow().held.is_empty()).await;
    (ledger.held.get(), ledger.compared.get())
}

const MODES: [ReplicationMode; 3] = [
    ReplicationMode::Sync { hold: Duration::from_millis(500), is_failsafe: false },
    ReplicationMode::Async {
        behind_max: Duration::from_secs(3600),
        behind_bytes_max: 1 << 40,
        over: BoundPolicy::Behind,
    },
    ReplicationMode::Periodic { every: Duration::from_millis(300), kept: 2 },
];

fn live(seed: u64) -> (usize, usize) {
    let mut simulation = Simulation::new(seed);
    let sites = [(1, SiteRole::Primary), (2, SiteRole::Secondary)]
        .map(|(n, role)| Site::new(&mut simulation, n, role));
    let mode = MODES[seed as usize % MODES.len()];
    simulation.run(SimLimits::generous(), |world| life(world, sites, mode)).completed()
}

#[test]
fn locked_snapshots_stay_at_the_secondary_whatever_its_primary_deletes() {
    let seeds = match std::env::var("SPINDLE_SEED") {
        Ok(seed) => seed.parse().map(|seed: u64| seed..seed + 1).unwrap(),
        Err(_) => 0..if std::env::var_os("SPINDLE_FULL").is_some() { 1_000 } else { 3 },
    };
    let (mut held, mut compared) = (0, 0);
    for seed in seeds {
        println!("SPINDLE_SEED={seed}");
        let of_life = live(seed);
        (held, compared) = (held + of_life.0, compared + of_life.1);
    }
    println!("note: locked snapshots were seen held {held} times, and {compared} contents compared");
    assert!(held > 20 && compared > 20, "{held} held, {compared} compared");
}

#[test]
fn planted_bugs_of_locked_snapshots_are_noticed() {
    if !crate::is_full_run("planted bugs of locked snapshots are of") {
        return;
    }
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let mut escaped = Vec::new();
    for bug in ReplicationBug::OF_LOCKS {
        let is_noticed =
            |seed| with_replication_bug(bug, || std::panic::catch_unwind(|| live(seed)).is_err());
        match (0..30).find(|&seed| is_noticed(seed)) {
            Some(seed) => println!("{bug:?}: seed {seed}"),
            None => escaped.push(bug),
        }
    }
    std::panic::set_hook(hook);
    assert!(escaped.is_empty(), "{escaped:?} escaped");
}

/// A new snapshot with the name of one that is held: the held one stays under another name.
async fn name_again(world: World, sites: [Rc<Site>; 2]) {
    sites.iter().for_each(|site| site.has_locks.set(true));
    let pair = Pair::begin(&world, sites, MODES[0]).await;
    pair.ledger.is_over.set(true);
    pair.wait("both are open", |pair| both(pair).is_some()).await;
    let _line = pair.connect(Duration::ZERO);
    let (primary, side) = both(&pair).unwrap();
    let (ids, key) = ([SnapshotId([1; 16]), SnapshotId([2; 16])], VolumeKey::Id(VOLUMES[0]));
    let new = |snapshot| NewSnapshot { name: "s1", snapshot, note: b"until 9000000000000000000" };
    primary.pool.take_snapshot(&[key], &new(ids[0])).await.unwrap();
    pair.wait("it has the first one", Pair::is_alike).await;
    let digest = digest_of(&side.pool, (ids[0], VOLUMES[0])).await;
    primary.pool.delete_snapshot(key, SnapshotKey::Id(ids[0])).await.unwrap();
    primary.pool.take_snapshot(&[key], &new(ids[1])).await.unwrap();
    pair.wait("it follows", Pair::is_alike).await;
    let there: Vec<Snapshot> = side.pool.snapshots(key).unwrap();
    let names: Vec<&str> = there.iter().map(|snapshot| snapshot.name.as_str()).collect();
    assert_eq!(names, ["s1~fork1", "s1"]);
    assert_eq!(there[1].snapshot, ids[1]);
    assert_eq!(digest_of(&side.pool, (there[0].snapshot, VOLUMES[0])).await, digest);
}

#[test]
fn a_new_snapshot_may_have_the_name_of_a_held_one() {
    let mut simulation = Simulation::new(1);
    let sites = [(1, SiteRole::Primary), (2, SiteRole::Secondary)]
        .map(|(n, role)| Site::new(&mut simulation, n, role));
    simulation.run(SimLimits::generous(), |world| name_again(world, sites)).completed();
}
