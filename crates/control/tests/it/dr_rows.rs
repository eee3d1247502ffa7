//! The rows by which hosts reach a group travel with it: two whole servers in simulated time, of which the second one has no
//! row of the group in its file. Rows change at the primary, servers crash and lines are cut meanwhile.
//!
//! Checked are: hosts are served at the other site by the names that the primary had last while both were connected, and by no
//! other; a secondary serves none of them; what came is there after a crash; a name of the site's own file stays its own, and the
//! clash is said.

use crate::{
    dr_scene::{DrScene, VerbOutcome, in_scene},
    dr_site::SITES,
};
use control::{dr::mode::DrMode, web::client::FailoverBody};
use std::rc::Rc;

/// A row for volume `a` with another name than its own.
const RENAMED: &str = "[[nbd]]\nname = 'second'\nvolume = 'mail/a'\n";

/// Hosts at the other site get the rows of both files, in this order of events.
async fn life(scene: Rc<DrScene>) {
    let world = scene.world.clone();
    for site in 0..2 {
        scene.start(site);
        scene.until_up(site).await;
    }
    scene.create().await;
    let [boston, denver] = &scene.sites;
    assert!(is_closed(&scene, 1, "a").await, "a secondary serves nothing");
    scene.heal().await;
    // Another name at the primary, while the other site may be away.
    let is_away = scene.percent(50.0);
    if is_away {
        scene.crash(1);
    }
    *boston.more.borrow_mut() = RENAMED.to_owned();
    let applied = boston.apply(&world, &[]).await.expect("it is up");
    assert!(applied.status < 300, "{applied:?}");
    scene.start(1);
    scene.until_up(1).await;
    scene.heal().await;
    scene.sleep_ms(1_000).await;
    assert!(is_closed(&scene, 1, "second").await, "a secondary serves nothing");
    let row = denver.row(&world).await.unwrap();
    assert!(row.could_serve.as_ref().is_some_and(|could| could.could_serve), "{row:?}");
    // The rows survive.
    scene.crash(1);
    scene.start(1);
    scene.until_up(1).await;
    match scene.percent(50.0) {
        // The primary is lost.
        true => {
            scene.crash(0);
            scene.until_lost().await;
            let body = FailoverBody { unplanned: true, accept_any_loss: true, ..FailoverBody::default() };
            assert!(matches!(scene.failover(1, body).await, VerbOutcome::Done(_)));
        }
        false => {
            scene.heal().await;
            scene.move_over().await;
            assert!(is_closed(&scene, 0, "second").await, "it gave them away");
        }
    }
    for name in ["a", "b", "second"] {
        assert!(!is_closed(&scene, 1, name).await, "{name} is served\n{}", scene.describe().await);
    }
    // This site's own row has a name from now on, under the hosts that have it.
    let own = "[[volume]]\nname = 'own'\ngroup = 'mail'\ngb = 0.0005\n[[nbd]]\nname = 'second'\nvolume = 'mail/own'\n";
    *denver.more.borrow_mut() = own.to_owned();
    let applied = denver.apply(&world, &[]).await.expect("it is up");
    assert!(applied.status < 300, "{applied:?}");
    scene.sleep_ms(1_000).await;
    let row = denver.row(&world).await.unwrap();
    assert_eq!(row.row_clashes, ["the name of NBD export second is taken by own"]);
    let size = denver.connect(&world, "second").await.unwrap();
    assert!(world::BlockDevice::geometry(&size).size < world::ByteCount::mib(1), "it is the site's own");
    // Back: rows of the other site's file never return to it.
    scene.start(0);
    scene.until_up(0).await;
    scene.heal().await;
    scene.move_over().await;
    boston.more.borrow_mut().clear();
    let applied = boston.apply(&world, &[]).await.expect("it is up");
    assert!(applied.status < 300, "{applied:?}");
    scene.sleep_ms(1_000).await;
    assert!(is_closed(&scene, 0, "second").await, "its file has it no more\n{}", scene.describe().await);
    assert!(!is_closed(&scene, 0, "a").await, "{}", scene.describe().await);
    let row = denver.row(&world).await.unwrap();
    assert!(row.row_clashes.is_empty() && row.could_serve.is_some_and(|could| could.could_serve));
}

async fn is_closed(scene: &DrScene, site: usize, export: &str) -> bool {
    // A change is served at once, and seen by the portal soon.
    scene.sleep_ms(300).await;
    scene.sites[site].connect(&scene.world, export).await.is_err()
}

impl DrScene {
    /// A planned failover, which is refused while the stream begins.
    pub async fn move_over(&self) {
        for _ in 0..20 {
            if let VerbOutcome::Done(_) = self.failover(0, FailoverBody::default()).await {
                return;
            }
            self.heal().await;
        }
        panic!("it is not moved\n{}", self.describe().await);
    }
}

fn live(seed: u64) {
    let mode = DrMode::Sync { hold_ms: 500, failsafe: false };
    in_scene(seed, (mode, true), life);
}

#[test]
fn hosts_find_the_same_names_at_the_other_site_whose_file_has_none_of_them() {
    for seed in 0..6 {
        println!("SPINDLE_SEED={seed} of {}", SITES[1]);
        live(seed);
    }
}

#[cfg(debug_assertions)]
#[test]
fn each_planted_bug_of_rows_that_travel_is_noticed() {
    use control::planted::DrBug;
    let bugs = DrBug::OF_ROWS.map(|bug| (bug, u64::from(bug == DrBug::RowsNotJournalled)));
    crate::planted::assert_dr_bugs_panic(bugs, 4, live);
}
