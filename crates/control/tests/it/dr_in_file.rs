//! DR groups of a site file, whose apply is cut short as either server crashes or loses its power: the next apply goes on with
//! the same group at both sites, and has nothing left to change.

use crate::dr_scene::{DrScene, in_scene_of_pools};
use control::{
    dr::{group_view::DrRole, mode::DrMode},
    web::{
        client::{ApiReply, DrGroupRow, Method, SiteBody},
        rows::SitePlan,
    },
};
use std::{rc::Rc, time::Duration};

const GROUP: &str = "[[replication.dr_group]]\nname = 'sg1'\nvolumes = ['a', 'b']\nto = 'denver'\nkind = 'synchronous'\n\
                     hold_seconds = 0.5\n";
/// The crash comes within so many microseconds of the request: an apply takes about as long.
const UNTIL_CRASH_US: u64 = 8_000;
/// Attempts of an apply, one a second: the sites have to find each other. What a creation leaves is undone much later.
const APPLIES_MAX: usize = 60;

async fn apply(scene: &DrScene) -> Result<ApiReply, String> {
    scene.sites[0].apply(&scene.world, &[]).await
}

async fn plan(scene: &DrScene) -> SitePlan {
    let body = SiteBody { text: scene.sites[0].text(), destroy: Vec::new() };
    let body = Some(serde_json::to_string(&body).unwrap());
    let reply = scene.sites[0].ask(&scene.world, (Method::POST, "/v1/site/plan"), body, None).await;
    reply.unwrap().parsed().unwrap()
}

/// True if Denver had something of the group already when the servers were back, and Boston had not all of it.
async fn life(scene: Rc<DrScene>) -> bool {
    scene.start(0);
    scene.start(1);
    scene.until_up(0).await;
    scene.until_up(1).await;
    // The sites find each other.
    scene.sleep_ms(3_000).await;
    *scene.sites[0].more.borrow_mut() = GROUP.to_owned();
    let own = Rc::clone(&scene);
    drop(scene.world.spawn("apply", async move {
        let asked = apply(&own).await;
        own.say(format!("{asked:?}"));
    }));
    scene.world.sleep(Duration::from_micros(scene.below(UNTIL_CRASH_US))).await;
    let crashed = scene.below(3);
    for site in 0..2 {
        if crashed == 2 || crashed == site {
            scene.crash(site as usize);
        }
    }
    scene.pause().await;
    scene.start(0);
    scene.start(1);
    scene.until_up(0).await;
    scene.until_up(1).await;
    let parts = async |site: usize| scene.sites[site].rows(&scene.world).await.len();
    let pools = if scene.sites[0].has_several_pools() { 2 } else { 1 };
    let is_half_made = parts(1).await > 0 && parts(0).await < pools;
    let mut applies = 0;
    loop {
        let reply = apply(&scene).await.unwrap();
        scene.say(format!("{reply:?}"));
        if reply.status == 200 {
            break;
        }
        applies += 1;
        assert!(applies < APPLIES_MAX, "{}\n{}", reply.body, scene.describe().await);
        scene.sleep_ms(1_000).await;
    }
    scene.sleep_ms(5_000).await;
    let rows = [scene.row(0).await, scene.row(1).await].map(|row| row.expect("both sites have it"));
    assert_eq!([parts(0).await, parts(1).await], [pools; 2], "{}", scene.describe().await);
    assert_eq!(rows[0].group, rows[1].group, "it is one group");
    let whole = |row: &DrGroupRow| row.part.as_ref().map(|part| part.whole.clone());
    assert_eq!(whole(&rows[0]), whole(&rows[1]));
    assert_eq!([rows[0].role, rows[1].role], [DrRole::Primary, DrRole::Secondary]);
    assert_eq!(rows[0].state, "streaming", "{}", scene.describe().await);
    assert_eq!(plan(&scene).await.changes, []);
    is_half_made
}

fn live_in(pools: usize, seed: u64) -> bool {
    let mode = DrMode::Sync { hold_ms: 500, failsafe: false };
    in_scene_of_pools(pools, seed, (mode, false), life).0
}

fn live(seed: u64) -> bool {
    live_in(1, seed)
}

fn live_all(pools: usize) {
    let seeds = match std::env::var("SPINDLE_SEED") {
        Ok(seed) => seed.parse().map(|seed: u64| seed..seed + 1).unwrap(),
        Err(_) => 0..if std::env::var_os("SPINDLE_FULL").is_some() { 1_000 } else { 10 },
    };
    let is_one = seeds.end == seeds.start + 1;
    let mut half_made = 0;
    for seed in seeds {
        println!("SPINDLE_SEED={seed}");
        half_made += usize::from(live_in(pools, seed));
    }
    assert!(is_one || half_made > 0, "no crash came between the two sides");
}

#[test]
fn an_apply_that_was_cut_short_goes_on_with_the_same_group() {
    live_all(1);
}

#[test]
fn an_apply_of_a_group_in_two_pools_that_was_cut_short_goes_on_with_the_same_parts() {
    live_all(2);
}

#[cfg(debug_assertions)]
#[test]
fn a_group_that_is_made_twice_is_noticed() {
    use control::planted::DrBug;
    crate::planted::assert_dr_bugs_panic([(DrBug::MakingForgotten, 4)], 80, live);
}

#[cfg(debug_assertions)]
#[test]
fn a_part_that_an_apply_does_not_go_on_with_is_noticed() {
    use control::planted::DrBug;
    crate::planted::assert_dr_bugs_panic([(DrBug::HalfMadeTakenForMade, 6)], 80, |seed| live_in(2, seed));
}
