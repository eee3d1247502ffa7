//! Clones of a group with volumes in two pools, made again and again at its secondary during [lives](crate::joint_lives) in
//! which anything fails: together they are a state of the group, with all that hosts were answered unless the primary was alone.

use crate::{
    joint_lives::{live_beside, mode_of, two_sites},
    joint_sites::{JointLedger, JointSite, PARTS, PartOrder, PartSite, PoolWork},
    seeds::{assert_noticed, live_all, seeds},
    sites::{MIB, VOLUMES, line},
};
use array::{
    error::Error,
    format::VolumeId,
    pool::{NewClone, Pool, VolumeKey},
    volume::VolumeDevice,
};
use futures_util::future::{join, join_all};
use replication::{
    joint_cut::JointCutId, planted::ReplicationBug, secondary::SecondaryGroup, session::ReplicationMode,
};
use std::{cell::Cell, rc::Rc, time::Duration};
use world::{
    BlockDevice, Buffer, ByteOffset, Random, World,
    sim::{SimLimits, Simulation},
};

const CLONE: VolumeId = VolumeId([200; 16]);

/// Clones a part with the others, and reads the clone some time later. `None` if it is not cloned.
pub async fn content_of_clone(group: &SecondaryGroup, cut: JointCutId) -> Option<Vec<u8>> {
    let pool = group.member().pool();
    let new = NewClone { name: "clone".to_owned(), volume: CLONE, is_independent: false };
    let cloned = group.clone_part(cut, &[(VOLUMES[0], new)]).await;
    let content = match cloned {
        Ok(()) => {
            let device = VolumeDevice(pool.volume(VolumeKey::Id(CLONE)).unwrap());
            let read = device.read(ByteOffset(0), vec![Buffer::zeroed(MIB as usize)]).await;
            Some(read.unwrap()[0].to_vec())
        }
        Err(_) => None,
    };
    delete_clone(pool).await;
    content
}

/// Deletes the clone, which a crash may have left.
pub async fn delete_clone(pool: &Pool) {
    match pool.delete_volume(VolumeKey::Id(CLONE), false).await {
        Ok(()) | Err(Error::NoVolume(_)) => {}
        Err(error) => panic!("{error}"),
    }
}

/// Clones all parts of a site at one moment. `None` if one is not cloned.
async fn contents_of_clones(site: &JointSite, number: u8) -> Option<Vec<Vec<u8>>> {
    let cut = JointCutId([number; 16]);
    let contents = join_all((0..PARTS).map(|part| site.work(part, PoolWork::Clone(cut)))).await;
    contents.into_iter().collect()
}

/// The thread of a pool gets no processor for a while, and later works off what came meanwhile.
async fn busy_thread(world: &World, part: &PartSite, random: &mut Random) {
    if random.percent(70.0) && part.site.node.is_up() {
        world.sleep(Duration::from_micros(random.below(1_000))).await;
        part.site.node.pause();
        world.sleep(Duration::from_micros(random.below(25_000))).await;
        part.site.node.resume();
    }
}

/// Clones that were checked.
#[derive(Default)]
pub struct CheckedClones {
    pub together: Cell<u64>,
    pub apart: Cell<u64>,
}

/// Clones the group wherever it is secondary, and checks the clones.
async fn rehearse(
    world: World,
    (sites, ledger): ([Rc<JointSite>; 2], Rc<JointLedger>),
    (mut random, is_sync): (Random, bool),
    checked: Rc<CheckedClones>,
) {
    let mut number = 0_u8;
    while !ledger.is_over.get() {
        world.sleep(Duration::from_micros(random.below(30_000))).await;
        let follows = |site: &JointSite| site.parts.iter().all(|part| part.follower().is_some());
        let Some(at) = sites.iter().position(|site| follows(site)) else { continue };
        let (from, to) = (&sites[1 - at], &sites[at]);
        if !to.shows_history_of(from) {
            continue;
        }
        let is_apart = to.parts.iter().any(|part| part.site.kept.borrow().joint.point.is_some());
        let was_alone = from.parts.iter().any(|part| part.site.kept.borrow().is_alone);
        let knew = from.known.get() == Some(from.reign.get());
        let (answered, restarts) = (ledger.answered(), ledger.restarts.get());
        number = number.wrapping_add(1);
        let busy = busy_thread(&world, &to.parts[random.below(PARTS as u64) as usize], &mut random);
        let (contents, ()) = join(contents_of_clones(to, number), busy).await;
        let Some(contents) = contents else { continue };
        if ledger.restarts.get() != restarts || !to.shows_history_of(from) {
            // The ledger counts writes as lost that the clones may have.
            continue;
        }
        let there = ledger.check(&contents);
        if is_sync && !was_alone && knew {
            let has_all = there.iter().zip(&answered).all(|(there, answered)| there >= answered);
            assert!(has_all, "hosts were answered {answered:?}, and clones have {there:?}");
        }
        let count = if is_apart { &checked.apart } else { &checked.together };
        count.update(|count| count + 1);
    }
}

fn live(seed: u64) -> Rc<CheckedClones> {
    live_in(seed, mode_of(seed))
}

/// A life in which the group is cloned again and again.
pub fn live_in(seed: u64, mode: ReplicationMode) -> Rc<CheckedClones> {
    let checked = Rc::<CheckedClones>::default();
    let noted = Rc::clone(&checked);
    live_beside(seed, mode, move |world, (sites, ledger)| {
        let place = (sites.clone(), Rc::clone(ledger));
        let random = Random::new(seed, "rehearsals");
        let how = (random, matches!(mode, ReplicationMode::Sync { .. }));
        drop(world.spawn("rehearsals", rehearse(world.clone(), place, how, noted)));
    });
    checked
}

#[test]
fn clones_of_a_group_over_two_pools_are_one_state_whatever_fails() {
    let (together, apart) = (Cell::new(0), Cell::new(0));
    live_all(seeds(6, 1_000), |seed| {
        let checked = live(seed);
        together.update(|sum| sum + checked.together.get());
        apart.update(|sum| sum + checked.apart.get());
    });
    println!("{} clones together, {} apart", together.get(), apart.get());
    if std::env::var_os("SPINDLE_SEED").is_none() {
        assert!(
            together.get() > 100 && apart.get() > 5,
            "{} together, {} apart",
            together.get(),
            apart.get()
        );
    }
}

#[test]
fn clones_of_parts_that_fit_by_chance_alone_are_noticed() {
    assert_noticed(ReplicationBug::OF_JOINT_CLONES, 100, |seed| drop(live(seed)));
}

#[test]
fn a_pool_that_hangs_fails_the_cut_and_holds_hosts_of_the_others_for_a_moment() {
    let mut simulation = Simulation::new(7);
    let sites = two_sites(&mut simulation);
    let mode = ReplicationMode::Sync { hold: Duration::from_secs(20), is_failsafe: false };
    let ran = simulation.run(SimLimits::generous(), |world| async move {
        let [primary, secondary] = &sites;
        for site in &sites {
            site.make().await;
            site.start(mode);
        }
        let mut lines = Vec::new();
        for part in 0..PARTS {
            let (whole, one, other) = line(&world, Duration::from_millis(1));
            for (site, end) in sites.iter().zip([one, other]) {
                site.parts[part].send(PartOrder::Connect(end));
            }
            lines.push(whole);
        }
        while !primary.serves() || !primary.joint.borrow().is_together() {
            world.sleep(Duration::from_millis(10)).await;
        }
        let write = |part, block| primary.work(part, PoolWork::Write(block, vec![1; 4096]));
        assert!(write(0, 0).await.is_some() && write(1, 0).await.is_some());
        assert!(contents_of_clones(secondary, 1).await.is_some());
        let hanging = &secondary.parts[1].site;
        hanging.hang_drives(Duration::from_secs(4));
        // A write that is on its way to the drives that hang.
        let own = Rc::clone(primary);
        drop(world.spawn("a host", async move {
            assert!(own.work(1, PoolWork::Write(1, vec![1; 4096])).await.is_some());
        }));
        world.sleep(Duration::from_millis(50)).await;
        let began = world.now();
        let hosts = async {
            let mut longest = Duration::ZERO;
            while world.now().since(began) < Duration::from_secs(3) {
                let before = world.now();
                assert!(write(0, 2).await.is_some());
                longest = longest.max(world.now().since(before));
                world.sleep(Duration::from_millis(5)).await;
            }
            longest
        };
        let (contents, longest) = join(contents_of_clones(secondary, 2), hosts).await;
        assert!(contents.is_none(), "half a group is no clone");
        println!("hosts of the pool that works waited {longest:?} at most");
        assert!(longest < Duration::from_millis(700), "{longest:?}");
        hanging.hang_drives(Duration::ZERO);
        world.sleep(Duration::from_secs(10)).await;
        assert!(contents_of_clones(secondary, 3).await.is_some());
    });
    ran.completed();
}
