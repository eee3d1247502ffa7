//! DR groups of two whole servers in simulated time: groups are made, moved, taken over, given up and removed over the API,
//! while lines are cut, either server is killed or loses its power between any two awaits, and hosts write over NBD.
//!
//! Checked are: both sites never serve hosts at one moment; what hosts were answered is there wherever they are served next,
//! unless a person accepted its loss; a primary that returns serves nothing before it compared, or a person said so; a change
//! that was answered with success stays; a refused one changes nothing; each is answered in bounded time; in the end both
//! sites have the same blocks.

use crate::{
    dr_hosts::DrHosts,
    dr_scene::{DrCounts, DrScene},
    dr_site::DrSite,
};
use control::dr::mode::DrMode;
use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};
use world::{
    World,
    sim::{NetworkOptions, SimLimits, Simulation},
};

/// Seeds that a planted bug may escape.
const PLANTED_SEEDS_MAX: u64 = 20;
/// Things that happen in a life.
const STEPS: usize = 16;

async fn life(world: World, scene: DrScene, removes: bool) -> DrCounts {
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

fn live(seed: u64) -> (DrCounts, u64) {
    let mut simulation = Simulation::new(seed);
    let network = simulation.add_network(NetworkOptions::rack());
    let sites = [0, 1].map(|number| DrSite::new(&mut simulation, &network, number, seed));
    let mode = modes()[seed as usize % 3].clone();
    let random = RefCell::new(simulation.random("the life"));
    let story = Rc::new(RefCell::new(Vec::new()));
    let (removes, told) = (seed % 4 == 3, Rc::clone(&story));
    let told = StoryAtPanic(told);
    let counts = simulation.run(SimLimits::generous(), |world| {
        let hosts = DrHosts::new(&world, &sites);
        let scene = DrScene {
            world: world.clone(),
            network,
            sites,
            hosts,
            mode,
            // A group whose hosts use rows that came with it is not removed.
            rows_travel: !removes && seed.is_multiple_of(2),
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
    let mut all = DrCounts::default();
    for seed in seeds(8) {
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
    use control::planted::DrBug;
    let remembered_seed = |bug| match bug {
        DrBug::ConnectionNotCut => 7,
        DrBug::RecordLeftBehind => 3,
        _ => 0,
    };
    let bugs = DrBug::ALL.map(|bug| (bug, remembered_seed(bug)));
    crate::planted::assert_dr_bugs_panic(bugs, PLANTED_SEEDS_MAX, live);
}
