//! Sets whose volumes lie in a DR group: two whole servers in simulated time, both with the set in their files.
//!
//! Checked are: the site that is primary keeps the set, and the other one makes and deletes nothing; after a failover numbers,
//! holds and proofs go on; after one that may have lost something nothing of before goes until the other catalogue was seen.

use crate::dr_scene::{DrScene, VerbOutcome, in_scene};
use control::{
    dr::mode::DrMode,
    planted::{DrBug, FollowBug, with_dr_bug, with_follow_bug},
    web::client::{FailoverBody, Method, SetBackupRow, SetRow},
};
use protect::planted_keeping::{KeepingBug, with_keeping_bug};
use std::{collections::BTreeSet, rc::Rc};

const SET: &str = "[[protect]]\nset = 'post'\nvolumes = ['a', 'b']\nschedules = ['3x1min']\n";
const AT_REPLICA: &str = "verify = { level = 'recover', at = 'replica', throttle = '200MB/s' }\n";
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
    followed_with(scene, "").await
}

/// The same, with more keys of the set.
async fn followed_with(scene: &Rc<DrScene>, keys: &str) -> Life {
    for site in 0..2 {
        scene.start(site);
        scene.until_up(site).await;
    }
    *scene.sites[0].more.borrow_mut() = SET.to_owned();
    scene.create_calmly().await;
    scene.sites.iter().for_each(|site| *site.more.borrow_mut() = format!("{SET}{keys}"));
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
    expect(
        denver.next_at.is_none() && (denver.verification.is_none() || !keys.is_empty()),
        "nothing is due at denver",
        &denver,
    )
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

/// The backup that a site wants verified now, and a verdict of its points with this result.
fn due_of(row: &SetRow, result: &str) -> Option<(u64, String)> {
    let due = row.verification.as_ref()?.due?;
    let points = row.backups.iter().find(|backup| backup.number == due)?.points.iter();
    let points: Vec<String> =
        points.map(|point| format!("\"{}/{}\"", point.volume_id, point.snapshot_id)).collect();
    let points = points.join(",");
    Some((due, format!(r#"{{"level":"recover","version":"2","result":"{result}","points":[{points}]}}"#)))
}

impl DrScene {
    /// Waits until a site is to verify a backup above `number`.
    async fn until_due(&self, site: usize, number: u64, result: &str) -> Result<(u64, String), String> {
        for _ in 0..400 {
            if let Some(due) = due_of(&self.set(site).await, result).filter(|due| due.0 > number) {
                return Ok(due);
            }
            self.sleep_ms(500).await;
        }
        Err(format!("nothing is due at site {site}: {:?}", (self.set(0).await, self.set(1).await)))
    }

    async fn until_proof(&self, site: usize, number: u64, proof: &str) -> Result<SetBackupRow, String> {
        for _ in 0..120 {
            let row = self.set(site).await;
            if backup(&row, number)?.proof == proof {
                return Ok(backup(&row, number)?.clone());
            }
            self.sleep_ms(250).await;
        }
        Err(format!("{number} never {proof} at site {site}: {:?}", self.set(site).await))
    }

    /// Has a site make a full backup, which stays.
    async fn back_up(&self, site: usize) -> Life {
        let made = self.order(site, (Method::POST, ""), Some(r#"{"hold":"audit"}"#)).await;
        expect(made.0 < 300, "a backup", &made)
    }

    async fn note(&self, site: usize, number: u64, verdict: &str) -> (u16, String) {
        self.order(site, (Method::POST, &format!("/{number}/verifications")), Some(verdict)).await
    }
}

async fn verified_there(scene: Rc<DrScene>) -> Life {
    followed_with(&scene, AT_REPLICA).await?;
    scene.back_up(0).await?;
    let (first, verdict) = scene.until_due(1, 0, "proven").await?;
    let rules = scene.set(1).await.verification.unwrap();
    expect(rules.throttle_bytes == Some(200_000_000) && rules.level == "recover", "its rules", &rules)?;
    let own = scene.set(0).await.verification.and_then(|rules| rules.due);
    expect(own.is_none(), "nothing is due at boston", &own)?;
    // A newer one does not take its place while it is looked at.
    scene.back_up(0).await?;
    scene.pass_s(30).await;
    let (due, _) = scene.until_due(1, 0, "proven").await?;
    expect(due == first, "the first one goes on", &(first, due))?;
    // The point of a clone, or that of another backup.
    let denver = scene.set(1).await;
    let other = denver.backups.iter().find(|one| one.number != first && !one.points.is_empty());
    let Some(other) = other else { return Err("there is one backup alone".to_owned()) };
    let (wrong, right) = (&other.points[0], &backup(&denver, first)?.points[0]);
    let of_other = verdict.replace(&right.snapshot_id, &wrong.snapshot_id);
    expect(of_other != verdict, "another point", &of_other)?;
    let refused = scene.note(1, first, &of_other).await;
    expect(refused.0 == 409, "the verdict of another point", &refused)?;
    let shallow = scene.note(1, first, &verdict.replace("recover", "chain")).await;
    expect(shallow.0 == 409, "the verdict of another level", &shallow)?;
    expect(backup(&scene.set(0).await, first)?.proof == "unproven", "it proves nothing", &first)?;
    // The link is lost before the verdict arrives.
    scene.cut();
    scene.pass_s(20).await;
    let noted = scene.note(1, first, &verdict).await;
    expect(noted.0 == 200, "the verdict", &noted)?;
    scene.pass_s(60).await;
    let boston = scene.set(0).await;
    let waits = backup(&boston, first)?.not_verified.clone().unwrap_or_default();
    expect(waits.contains("denver, which verifies, is not connected since"), "why it waits", &waits)?;
    expect(boston.verification.is_some_and(|rules| rules.due.is_none()), "nothing is due at boston", &first)?;
    scene.restore();
    scene.heal().await;
    let proven = scene.until_proof(0, first, "proven").await?;
    let by = proven.verified_by.unwrap_or_default();
    expect(by.starts_with("site denver: "), "where it was proven", &by)?;
    scene.until_proof(1, first, "proven").await?;
    // A crash there begins it again, and one here too.
    let (second, _) = scene.until_due(1, first, "damaged").await?;
    scene.crash(1);
    scene.start(1);
    scene.until_up(1).await;
    scene.heal().await;
    scene.until_due(1, first, "damaged").await?;
    scene.crash(0);
    scene.start(0);
    scene.until_up(0).await;
    scene.heal().await;
    scene.until_role(0, "keeps").await?;
    let (third, verdict) = scene.until_due(1, first, "damaged").await?;
    expect(third == second, "the same is due", &(second, third))?;
    // Its catalogue may ask for the last time before the crash.
    scene.pass_s(20).await;
    let noted = scene.note(1, third, &verdict).await;
    expect(noted.0 == 200, "a bad verdict", &noted)?;
    scene.until_proof(0, third, "damaged").await?;
    // The roles turn.
    scene.move_over().await;
    scene.until_role(1, "keeps").await?;
    scene.until_role(0, "follows").await?;
    scene.back_up(1).await?;
    let (fourth, verdict) = scene.until_due(0, third, "proven").await?;
    let noted = scene.note(0, fourth, &verdict).await;
    expect(noted.0 == 200, "the verdict at boston", &noted)?;
    let by = scene.until_proof(1, fourth, "proven").await?.verified_by.unwrap_or_default();
    expect(by.starts_with("site boston: "), "where it was proven", &by)
}

/// Locks of the backups of `followed_with`.
const LOCKED: &str = "keep = { lock = '8min' }\n";
const LOCK_S: u64 = 480;

impl DrScene {
    /// Someone who has taken over a site deletes the snapshots of a backup, whatever is locked.
    async fn steal(&self, site: usize, number: u64) -> Life {
        for point in backup(&self.set(site).await, number)?.points.clone() {
            let path = format!("/v1/volumes/{}/snapshots/{}", point.volume_id, point.snapshot_id);
            let asked = self.sites[site].ask(&self.world, (Method::DELETE, &path), None, None).await?;
            expect(asked.status == 204, "a deletion", &asked)?;
        }
        Ok(())
    }

    /// Denver has a backup that boston deleted, and says so.
    async fn check_held(&self, number: u64) -> Life {
        let row = self.set(1).await;
        let kept = backup(&row, number)?;
        let says =
            |reason: &String| reason.starts_with("deleted where the set is kept, and locked here for ");
        expect(kept.points.len() == 2, "its snapshots", kept)?;
        expect(kept.stays.iter().any(says), "why it stays", &kept.stays)
    }
}

/// The newest backup that both sites have, and that boston then deletes.
async fn stolen_backup(scene: &Rc<DrScene>) -> Result<u64, String> {
    followed_with(scene, LOCKED).await?;
    check_alike(scene, 0).await?;
    let row = scene.set(0).await;
    let newest =
        row.backups.iter().filter(|backup| backup.sites.len() == 2).map(|backup| backup.number).max();
    let number = newest.ok_or("no backup is at both sites")?;
    scene.steal(0, number).await?;
    scene.pass_s(25).await;
    Ok(number)
}

async fn held_against_a_thief(scene: Rc<DrScene>) -> Life {
    let number = stolen_backup(&scene).await?;
    scene.check_held(number).await?;
    // Replication goes on, over a crash, and a pass after a line that was lost for long.
    scene.crash(1);
    scene.start(1);
    scene.until_up(1).await;
    scene.heal().await;
    scene.until_role(1, "follows").await?;
    scene.pass_s(80).await;
    scene.check_held(number).await?;
    let newest = numbers(&scene.set(1).await).last().copied();
    expect(newest > Some(number), "later backups arrive", &newest)?;
    scene.pass_s(LOCK_S).await;
    let denver = scene.set(1).await;
    let is_there = denver.backups.iter().any(|one| one.number == number && !one.points.is_empty());
    expect(!is_there, "it goes once its lock has ended", &denver)
}

/// Denver takes over while it holds what a thief deleted: its own set has the backup then.
async fn taken_over_from_a_thief(scene: Rc<DrScene>) -> Life {
    let number = stolen_backup(&scene).await?;
    scene.cut();
    scene.crash(0);
    scene.until_lost().await;
    let body = FailoverBody { unplanned: true, accept_any_loss: true, ..FailoverBody::default() };
    let taken = scene.failover(1, body).await;
    expect(matches!(taken, VerbOutcome::Done(_)), "the failover", &taken)?;
    scene.until_role(1, "keeps").await?;
    scene.pass_s(LOCK_S / 2).await;
    let denver = scene.set(1).await;
    let kept = backup(&denver, number)?;
    let says_held = kept.stays.iter().any(|reason| reason.starts_with("deleted"));
    expect(kept.points.len() == 2 && !kept.stays.is_empty() && !says_held, "it is denver's own", kept)
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

#[test]
fn a_set_is_verified_at_the_site_that_follows() {
    for seed in 0..2 {
        live(seed, verified_there).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
    }
}

#[cfg(debug_assertions)]
#[test]
fn a_locked_backup_stays_at_the_other_site_whatever_a_stolen_one_deletes() {
    let lived = |seed| with_dr_bug(DrBug::LockedDeleted, || live(seed, held_against_a_thief));
    for seed in 0..2 {
        lived(seed).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
    }
    let taken_over = with_dr_bug(DrBug::LockedDeleted, || live(0, taken_over_from_a_thief));
    taken_over.unwrap_or_else(|why| panic!("{why}"));
    for bug in [FollowBug::LocksNotLookedAt, FollowBug::HeldForGood] {
        let noticed = with_follow_bug(bug, || lived(0));
        println!("note: {bug:?}: {noticed:?}");
        assert!(noticed.is_err(), "{bug:?} escaped");
    }
}

#[cfg(debug_assertions)]
#[test]
fn each_planted_bug_of_sets_in_dr_groups_is_noticed() {
    let check = |bug: &dyn std::fmt::Debug, noticed: Life| {
        println!("note: {bug:?}: {noticed:?}");
        assert!(noticed.is_err(), "{bug:?} escaped");
    };
    for bug in [FollowBug::KeptBySecondary, FollowBug::SuccessionForgotten] {
        check(&bug, with_follow_bug(bug, || live(0, planned)));
    }
    let bug = FollowBug::VerdictOfAnotherClone;
    check(&bug, with_follow_bug(bug, || live(0, verified_there)));
    for bug in [KeepingBug::TakenOverBlindly, KeepingBug::NumbersOfOtherSiteForgotten] {
        check(&bug, with_keeping_bug(bug, || live(0, unplanned)));
    }
}
