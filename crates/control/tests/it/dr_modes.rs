//! Modes of a DR group that are changed over the API, while hosts write, lines are cut, groups are moved and either server crashes
//! between any two awaits: nothing that hosts were answered is lost, what was answered with success is so, and the site that
//! follows has the same mode in the end.

use crate::{
    dr_scene::{DrScene, VerbOutcome, in_scene},
    dr_site::SITES,
    seeds::Seeds,
};
use control::{
    dr::{group_view::DrRole, mode::DrMode},
    web::client::{DrGroupPatch, Method},
};
use std::{cell::Cell, rc::Rc};

/// Things that happen in a life.
const STEPS: usize = 12;
/// Looks at a site that follows until it has the mode of its primary, every 200 ms.
const FOLLOWED_LOOKS: usize = 50;

const MODES: [DrMode; 5] = [
    DrMode::Sync { hold_ms: 500, failsafe: false },
    DrMode::Sync { hold_ms: 3_000, failsafe: false },
    DrMode::Sync { hold_ms: 3_000, failsafe: true },
    DrMode::Async { behind_ms: 2_000, behind_bytes: 64 << 20, push_back: false },
    DrMode::Periodic { every_ms: 1_000, keep: 2 },
];

impl DrScene {
    async fn ask_for_mode(&self, site: usize, mode: &DrMode) -> VerbOutcome {
        self.say(format!("{} is asked for {mode}", SITES[site]));
        let path = format!("/v1/dr/groups/{}", self.group.borrow());
        let body = serde_json::to_string(&DrGroupPatch { mode: mode.clone() }).unwrap();
        let asked = self.sites[site].ask(&self.world, (Method::PATCH, &path), Some(body), None).await;
        self.outcome(asked)
    }

    /// Changes the mode, perhaps while a server crashes. True if it was answered with success.
    async fn change_mode(self: &Rc<Self>, mode: &DrMode) -> bool {
        let site = self.below(2) as usize;
        let role = self.row(site).await.map(|row| row.role);
        let own = Rc::clone(self);
        let is_disturbed = self.percent(40.0);
        let disturbing = self.world.spawn("disturbance", async move {
            if is_disturbed {
                own.pause().await;
                let crashed = own.below(2) as usize;
                own.crash(crashed);
                own.pause().await;
                own.start(crashed);
            }
        });
        let outcome = self.ask_for_mode(site, mode).await;
        disturbing.await;
        match outcome {
            VerbOutcome::Done(row) => {
                assert_eq!((row.role, &row.mode), (DrRole::Primary, mode), "{row:?}");
                self.until_up(site).await;
                let now = self.row(site).await.map(|row| row.mode);
                assert_eq!(now.as_ref(), Some(mode), "it was answered\n{}", self.describe().await);
                true
            }
            VerbOutcome::Refused(why) => {
                assert!(is_disturbed || role == Some(DrRole::Secondary), "{why}\n{}", self.describe().await);
                false
            }
            VerbOutcome::Unclear => false,
        }
    }

    /// Waits until both sites have one mode.
    async fn until_followed(&self) {
        for _ in 0..FOLLOWED_LOOKS {
            let modes = [self.row(0).await, self.row(1).await].map(|row| row.map(|row| row.mode));
            if modes[0].is_some() && modes[0] == modes[1] {
                return;
            }
            self.sleep_ms(200).await;
        }
        panic!("the sites have different modes\n{}", self.describe().await);
    }
}

async fn life(scene: Rc<DrScene>) -> usize {
    scene.start(0);
    scene.start(1);
    scene.until_up(0).await;
    scene.until_up(1).await;
    drop(scene.world.spawn("hosts", Rc::clone(&scene.hosts).live()));
    scene.create_calmly().await;
    let mut changed = 0;
    for _ in 0..STEPS {
        scene.pause().await;
        match scene.below(8) {
            0 => scene.cut(),
            1 | 2 => scene.restore(),
            3 => scene.move_group().await,
            _ => {
                let mode = MODES[scene.below(MODES.len() as u64) as usize].clone();
                changed += usize::from(scene.change_mode(&mode).await);
            }
        }
        for site in 0..2 {
            scene.start(site);
            scene.until_up(site).await;
        }
        scene.person().await;
    }
    scene.restore();
    // A periodic group never streams.
    for attempt in 0.. {
        if let Some(primary) = scene.primary().await
            && let VerbOutcome::Done(_) = scene.ask_for_mode(primary, &MODES[scene.below(4) as usize]).await
        {
            break;
        }
        assert!(attempt < 60, "it is not changed\n{}", scene.describe().await);
        scene.sleep_ms(500).await;
        scene.person().await;
    }
    scene.heal().await;
    scene.until_followed().await;
    let answers = || scene.hosts.answers.iter().map(Cell::get).sum::<u64>();
    let before = answers();
    scene.sleep_ms(10_000).await;
    assert!(answers() > before, "hosts are served\n{}", scene.describe().await);
    scene.compare().await;
    changed
}

#[test]
fn modes_change_under_hosts_and_both_sites_agree_whatever_crashes() {
    let mut changed = 0;
    Seeds::of(6, 1_000).live_all(|seed| {
        let mode = MODES[seed as usize % 4].clone();
        changed += in_scene(seed, (mode, seed % 2 == 1), life);
        Ok(())
    });
    println!("note: {changed} changes");
}
