//! Sets whose volumes lie in a DR group: two whole servers in simulated time, both with the set in their files.
//!
//! Checked are: the site that is primary keeps the set, and the other one makes and deletes nothing; after a failover numbers,
//! holds and proofs go on; after one that may have lost something nothing of before goes until the other catalogue was seen.

use crate::dr_scene::{DrScene, VerbOutcome, in_scene};
use control::{
    dr::mode::DrMode,
    planted::{FollowBug, with_follow_bug},
    web::client::{FailoverBody, Method, SetBackupRow, SetRow},
};
use protect::planted_keeping::{KeepingBug, with_keeping_bug};
use std::{collections::BTreeSet, rc::Rc};

const SET: &str = "[[protect]]\nset = 'post'\nvolumes = ['a', 'b']\nschedules = ['3x1min']\n";
const NOT_SEEN: &str = "catalogue of boston not seen";

type Life = Result<(), String>;

fn expect(is_so: bool, what: &str, seen: &impl std::fmt::Debug) -> Life {
    if is_so { Ok(()) } else { Err(format!("{what}: {seen:?}")) }
}

fn numbers(row: &SetRow) -> BTreeSet<u64> {
    row.backups.iter().map(|backup| backup.number).collect()
}

fn role(row: &SetRow) -> &str {
    row.replication.as_ref().map_or("none", |replication| &replication.role)
}

fn backup(row: &SetRow, number: u64) -> Result<&SetBackupRow, String> {
    let found = row.backups.iter().find(|backup| backup.number == number);
    found.ok_or_else(|| format!("backup {number} is gone: {:?}", numbers(row)))
}

impl DrScene {
    async fn set(&self, site: usize) -> SetRow {
        let asked = self.sites[site].ask(&self.world, (Method::GET, "/v1/sets/post"), None, None).await;
        asked.unwrap().parsed().unwrap()
    }

    async fn order(&self, site: usize, (method, path): (Method, &str), body: Option<&str>) -> (u16, String) {
        let path = format!("/v1/sets/post/backups{path}");
        let body = body.map(str::to_owned);
        let reply = self.sites[site].ask(&self.world, (method, &path), body, None).await.unwrap();
        (reply.status, reply.body)
    }

    async fn until_role(&self, site: usize, wanted: &str) -> Result<SetRow, String> {
        for _ in 0..120 {
            let row = self.set(site).await;
            if role(&row) == wanted {
                return Ok(row);
            }
            self.sleep_ms(500).await;
        }
        Err(format!("site {site} never {wanted}: {:?}", self.set(site).await))
    }

    /// Waits until the other site has told this one what it has: it looks at its points each 10 s.
    async fn pass_s(&self, seconds: u64) {
        for _ in 0..seconds {
            self.sleep_ms(1_000).await;
        }
    }
}

/// A set that Boston keeps and Denver follows, since three minutes.
async fn followed(scene: &Rc<DrScene>) -> Life {
    for site in 0..2 {
        scene.start(site);
        scene.until_up(site).await;
    }
    *scene.sites[0].more.borrow_mut() = SET.to_owned();
    scene.create_calmly().await;
    *scene.sites[1].more.borrow_mut() = SET.to_owned();
    scene.sites[1].names_volumes.set(true);
    for site in &scene.sites {
        let applied = site.apply(&scene.world, &[]).await.unwrap();
        assert!(applied.status < 300, "{applied:?}");
    }
    scene.heal().await;
    scene.pass_s(200).await;
    let [boston, denver] = [scene.set(0).await, scene.set(1).await];
    expect((role(&boston), role(&denver)) == ("keeps", "follows"), "roles", &(&boston, &denver))?;
    expect(boston.problems.is_empty() && denver.problems.is_empty(), "problems", &(&boston, &denver))?;
    expect(numbers(&boston).len() >= 3, "backups", &boston)?;
    expect(
        scene.sites[1].catalogues.file("post").contents().is_empty(),
        "denver's catalogue",
        &"it has lines",
    )?;
    expect(denver.next_at.is_none() && denver.verification.is_none(), "nothing is due at denver", &denver)
}

/// Both sites have the same backups, and know that.
async fn check_alike(scene: &DrScene, keeper: usize) -> Life {
    // A minute passes at once; deletions travel within a second, and points are listed each 10 s.
    for _ in 0..150 {
        let [one, other] = [scene.set(keeper).await, scene.set(1 - keeper).await];
        let is_at_both = |backup: &SetBackupRow| backup.sites.len() == 2;
        if numbers(&one) == numbers(&other)
            && one.backups.iter().all(is_at_both)
            && other.backups.iter().all(is_at_both)
        {
            return Ok(());
        }
        scene.sleep_ms(1_000).await;
    }
    Err(format!("they do not become alike: {:?}", (scene.set(keeper).await, scene.set(1 - keeper).await)))
}

async fn planned(scene: Rc<DrScene>) -> Life {
    followed(&scene).await?;
    check_alike(&scene, 0).await?;
    let refused = scene.order(1, (Method::POST, ""), Some("{}")).await;
    expect(refused.0 == 409 && refused.1.contains("site boston"), "an order at denver", &refused)?;
    // A hold and a proof of which no note knows.
    let first = *numbers(&scene.set(0).await).last().unwrap();
    let held = scene.order(0, (Method::PUT, &format!("/{first}/holds/audit")), None).await;
    expect(held.0 == 200, "a hold", &held)?;
    let proof = r#"{"level":"recover","version":"1","result":"proven"}"#;
    let noted = scene.order(0, (Method::POST, &format!("/{first}/verifications")), Some(proof)).await;
    expect(noted.0 == 200, "a proof", &noted)?;
    scene.move_over().await;
    let denver = scene.until_role(1, "keeps").await?;
    scene.until_role(0, "follows").await?;
    scene.pass_s(200).await;
    let later = scene.set(1).await;
    expect(later.problems.is_empty(), "problems at denver", &later)?;
    let kept = backup(&later, first)?;
    expect(kept.holds == ["audit"] && kept.proof == "proven", "what boston knew", kept)?;
    let by = kept.verified_by.clone().unwrap_or_default();
    expect(by.starts_with("site boston: "), "the place of the proof", &by)?;
    let highest = |row: &SetRow| numbers(row).last().copied().unwrap_or(0);
    let (before, after) = (highest(&denver).max(first), highest(&later));
    expect(after > before && after < before + 10, "numbers go on", &(before, after))?;
    expect(later.backups.len() <= 5, "the rules go on", &numbers(&later))?;
    check_alike(&scene, 1).await?;
    // And back.
    scene.move_over().await;
    scene.until_role(0, "keeps").await?;
    scene.pass_s(200).await;
    let back = scene.set(0).await;
    expect(back.problems.is_empty() && highest(&back) > after, "boston goes on", &back)?;
    expect(backup(&back, first)?.holds == ["audit"], "the hold", &back)?;
    expect(back.backups.len() <= 5, "the rules go on", &numbers(&back))?;
    check_alike(&scene, 0).await
}

async fn unplanned(scene: Rc<DrScene>) -> Life {
    followed(&scene).await?;
    check_alike(&scene, 0).await?;
    // Boston is lost before this arrives.
    scene.cut();
    let held = *numbers(&scene.set(0).await).first().unwrap();
    let done = scene.order(0, (Method::PUT, &format!("/{held}/holds/audit")), None).await;
    expect(done.0 == 200, "a hold", &done)?;
    scene.pass_s(130).await;
    let lost = numbers(&scene.set(0).await);
    scene.crash(0);
    scene.until_lost().await;
    let here: BTreeSet<u64> = numbers(&scene.set(1).await);
    let body = FailoverBody { unplanned: true, accept_any_loss: true, ..FailoverBody::default() };
    let taken = scene.failover(1, body).await;
    expect(matches!(taken, VerbOutcome::Done(_)), "the failover", &taken)?;
    scene.until_role(1, "keeps").await?;
    // A crash within changes nothing.
    scene.crash(1);
    scene.start(1);
    scene.until_up(1).await;
    let body = FailoverBody { unplanned: true, accept_any_loss: true, ..FailoverBody::default() };
    drop(scene.failover(1, body).await);
    scene.until_role(1, "keeps").await?;
    let mut own = BTreeSet::new();
    for _ in 0..20 {
        scene.pass_s(20).await;
        own.extend(numbers(&scene.set(1).await).difference(&here));
    }
    let denver = scene.set(1).await;
    for number in &here {
        let kept = backup(&denver, *number)?;
        expect(kept.holds.iter().any(|hold| hold == NOT_SEEN), "it waits", kept)?;
    }
    expect(!own.is_empty(), "denver makes backups", &denver)?;
    expect(own.is_disjoint(&lost), "numbers that boston gave", &(&own, &lost))?;
    // Boston returns, and its catalogue is seen.
    scene.restore();
    scene.start(0);
    scene.until_up(0).await;
    scene.heal().await;
    scene.until_role(0, "follows").await?;
    scene.pass_s(200).await;
    let denver = scene.set(1).await;
    let is_waiting = |backup: &SetBackupRow| backup.holds.iter().any(|hold| hold == NOT_SEEN);
    expect(!denver.backups.iter().any(is_waiting), "nothing waits any more", &denver)?;
    expect(backup(&denver, held)?.holds == ["audit"], "the hold that did not arrive", &denver)?;
    expect(denver.backups.len() <= 5, "the rules go on", &numbers(&denver))
}

fn live<F: Future<Output = Life> + 'static>(seed: u64, life: impl FnOnce(Rc<DrScene>) -> F) -> Life {
    in_scene(seed, (DrMode::Sync { hold_ms: 500, failsafe: false }, false), life)
}

#[test]
fn a_planned_failover_takes_the_set_along_and_back() {
    for seed in 0..2 {
        live(seed, planned).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
    }
}

#[test]
fn after_an_unplanned_failover_nothing_goes_before_the_other_catalogue_was_seen() {
    for seed in 0..2 {
        live(seed, unplanned).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
    }
}

#[cfg(debug_assertions)]
#[test]
fn each_planted_bug_of_sets_in_dr_groups_is_noticed() {
    let check = |bug: &dyn std::fmt::Debug, noticed: Life| {
        println!("note: {bug:?}: {noticed:?}");
        assert!(noticed.is_err(), "{bug:?} escaped");
    };
    for bug in FollowBug::ALL {
        check(&bug, with_follow_bug(bug, || live(0, planned)));
    }
    for bug in [KeepingBug::TakenOverBlindly, KeepingBug::NumbersOfOtherSiteForgotten] {
        check(&bug, with_keeping_bug(bug, || live(0, unplanned)));
    }
}
