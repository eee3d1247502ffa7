//! From the views of pools to conditions, once a second.
//!
//! Invariants:
//!
//! 1. What cannot be seen stays as it was: the drives of a pool that is not open, and everything while the server starts, or power is low.
//! 2. Conditions that others raise and clear (`TOLD_TOPICS`) are left alone, but for those of pools, schedules, sets and notifiers
//!    that are gone.
//! 3. After a restart, what needs time to be known stays open for that time (`SLOWLY_SEEN`).

use super::{
    board::{ConditionClaim, OpenCondition, condition_id},
    dr_claims::{group_claims, site_claims},
    drive_pace::{DrivePace, DriveWork},
    login_rate::LoginRate,
    space_level::space_kind,
};
use crate::{
    dr::LinkView,
    events::{DaemonEventLog, NumberedEvent, SOURCE},
    sets::keeper::is_topic_of_sets,
    site::{
        handle::{PoolHandle, SiteView},
        power::SitePower,
    },
    view::PoolView,
    watched::WatchedSite,
};
use array::{
    format::{PoolId, row::GroupOperation},
    mover::JobKind,
};
use report::calendar::shown_time;
use serving::{
    figures::PoolFigures,
    pool::health::{DriveHealth, PoolHealth},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};
use world::{ByteCount, DeviceOperation, Moment, WallTime};

/// Topics that are seen in the view of a pool.
const SEEN_TOPICS: [&str; 17] = [
    "settlement",
    "space",
    "drive",
    "redundancy",
    "data",
    "rebuild",
    "import",
    "format",
    "slow",
    "dr",
    "dr_hosts",
    "dr_copy",
    "dr_hosts_here",
    "dr_record",
    "dr_fork",
    "dr_held",
    "dr_withheld",
];
/// Topics that others raise and clear.
const TOLD_TOPICS: [&str; 2] = ["power", "site_file"];
/// Topics of conditions that a server that starts does not see at once, with the time after which it would have.
const SLOWLY_SEEN: [(&str, Duration); 9] = [
    ("dr_site", Duration::from_secs(15)),
    ("dr", Duration::from_secs(15)),
    ("dr_hosts", Duration::from_secs(15)),
    ("dr_copy", Duration::from_secs(60)),
    ("dr_hosts_here", Duration::from_secs(60)),
    ("slow", Duration::from_secs(180)),
    ("rebuild", Duration::from_secs(180)),
    ("journal", Duration::from_secs(180)),
    ("logins", Duration::from_secs(600)),
];
/// Time before its end at which a certificate is reported.
const EXPIRING_SECONDS: i64 = 30 * 86_400;
/// Times in a row at which a pool's thread must have ended.
const ENDED_TIMES: u32 = 3;
/// Events that are looked at for failed logins at once.
const LOOKED_AT: usize = 4096;
/// Addresses of failed logins that a text names.
const SOURCES_SHOWN: usize = 8;

/// Evaluates the conditions of one server.
pub(crate) struct ConditionEvaluator {
    paces: BTreeMap<String, DrivePace>,
    logins: LoginRate,
    /// Number of the last event that was looked at.
    looked_at: u64,
    started_at: Moment,
    /// Pools whose thread has ended, with the times that this was seen in a row: an apply may be about to say so.
    ended: BTreeMap<String, u32>,
}

impl ConditionEvaluator {
    /// An evaluator of a server that starts now.
    pub fn new(log: &DaemonEventLog, started_at: Moment) -> Self {
        Self {
            paces: BTreeMap::new(),
            logins: LoginRate::default(),
            looked_at: log.before_start(),
            started_at,
            ended: BTreeMap::new(),
        }
    }

    /// Brings all conditions up to date.
    pub fn evaluate(
        &mut self,
        log: &DaemonEventLog,
        (site, watched, link): (&SiteView, &WatchedSite, Option<&LinkView>),
        (now, wall): (Moment, WallTime),
    ) -> Vec<Arc<NumberedEvent>> {
        self.count_logins(log, now);
        if !site.is_open || site.power == SitePower::Low {
            return Vec::new();
        }
        let mut claims = Vec::new();
        // Pools of which everything is seen.
        let mut seen = BTreeSet::new();
        let mut drives = BTreeSet::new();
        for (name, pool) in &site.pools {
            let health = pool.view().and_then(|view| view.health.clone());
            let of_pool = health.iter().flat_map(|health| &health.drives);
            drives.extend(of_pool.filter_map(|drive| drive.status.drive.clone()));
            let kind_of_space = log.condition(&condition_id("space", name, "")).map(|open| open.kind);
            self.claim_pool(name, pool, kind_of_space.as_deref(), now, (&mut claims, &mut seen));
            claims.extend(settlement_claim(name, pool, site));
            if let Some(view) = pool.view() {
                claims.extend(group_claims(name, &view.dr, link, wall));
            }
        }
        claims.extend(link.into_iter().flat_map(|link| site_claims(site, link, wall)));
        for (name, refusal) in &site.stopped {
            let claim = ConditionClaim::new("pool_not_open", name, refusal.problem());
            claims.push(claim.with_next(refusal.remedy()));
        }
        self.paces.retain(|name, _| site.pools.contains_key(name));
        self.ended.retain(|name, _| site.pools.contains_key(name));
        for (thread, mut sources) in self.logins.threads(now) {
            let others = sources.len().saturating_sub(SOURCES_SHOWN);
            sources.truncate(SOURCES_SHOWN);
            let others = if others > 0 { format!(" and {others} others") } else { String::new() };
            let text =
                format!("ten or more logins failed within a minute, from {}{others}", sources.join(", "));
            claims.push(ConditionClaim::new("logins_failing", &thread, text));
        }
        for certificate in &watched.certificates {
            claims.extend(certificate_claim(certificate, wall.seconds));
        }
        let is_known = |name: &str| site.pools.contains_key(name) || site.stopped.contains_key(name);
        let age = now.since(self.started_at);
        // It was open before, and may not be known yet.
        let is_early = |open: &OpenCondition| {
            let needed = SLOWLY_SEEN.iter().find(|(topic, _)| *topic == open.topic).map(|(_, time)| *time);
            needed.is_some_and(|needed| age < needed) && !log.is_touched(&open.id)
        };
        let is_notifier = |name: &str| watched.notifiers.iter().any(|one| one.name == name);
        // Without a subject it is about all of a pool's.
        let has_schedule = |pool: &str, name: &str| {
            watched.schedules.iter().any(|known| known.0 == pool && (name.is_empty() || known.1 == name))
        };
        let is_in_scope = |open: &OpenCondition| match open.topic.as_str() {
            _ if is_early(open) => false,
            // A pool that is in neither list is served no more.
            "warned" => {
                !is_known(&open.pool) || (seen.contains(&open.pool) && !drives.contains(&open.subject))
            }
            "schedule" => !is_known(&open.pool) || !has_schedule(&open.pool, &open.subject),
            topic if is_topic_of_sets(topic) => !watched.sets.contains(&open.subject),
            "notifier" | "receiver" => !is_notifier(&open.subject),
            "journal" => !log.is_touched(&open.id),
            topic if TOLD_TOPICS.contains(&topic) => false,
            topic if SEEN_TOPICS.contains(&topic) => seen.contains(&open.pool) || !is_known(&open.pool),
            _ => true,
        };
        let events = log.evaluate(is_in_scope, &claims, wall);
        log.note_evaluated();
        events
    }

    fn claim_pool(
        &mut self,
        name: &str,
        pool: &PoolHandle,
        kind_of_space: Option<&str>,
        now: Moment,
        (claims, seen): (&mut Vec<ConditionClaim>, &mut BTreeSet<String>),
    ) {
        let view = pool.view();
        let times = self.ended.entry(name.to_owned()).or_default();
        *times = if view.is_none() { *times + 1 } else { 0 };
        let why = match &view {
            Some(view) => view.failure.clone(),
            None if *times < ENDED_TIMES => return,
            None => Some("by an error of the program".to_owned()),
        };
        if let Some(why) = why {
            claims.push(ConditionClaim::new("pool_failed", name, format!("the pool has stopped: {why}")));
            return;
        }
        let Some(view) = view else { return };
        let Some(health) = &view.health else { return };
        seen.insert(name.to_owned());
        claims.extend(space_claim(name, &view, kind_of_space));
        claims.extend(health.drives.iter().filter_map(|drive| drive_claim(name, drive)));
        claims.extend(copies_claims(name, health));
        claims.extend(import_claim(name, &view));
        claims.extend(format_claim(name, health));
        if let Some(figures) = pool.figures() {
            let pace = self.paces.entry(name.to_owned()).or_default();
            pace.measure(now, || work_of(&figures));
            claims.extend(pace.slow().into_iter().map(|slow| {
                let (mean, median) = (slow.mean.as_millis(), slow.median.as_millis());
                let text = format!(
                    "drive {} is slow: {mean} ms for a read or write, the median drive {median} ms",
                    slow.name
                );
                ConditionClaim::new("drive_slow", name, text).of(slow.name)
            }));
        }
    }

    fn count_logins(&mut self, log: &DaemonEventLog, now: Moment) {
        for event in log.after(self.looked_at, LOOKED_AT) {
            self.looked_at = event.id;
            if event.report.event == "login_failed" {
                let source = event.report.details.get(SOURCE).and_then(|source| source.as_str());
                self.logins.add(&event.report.pool, source.unwrap_or_default(), now);
            }
        }
    }
}

/// Work over several pools that ended early, in one of them.
fn settlement_claim(name: &str, pool: &PoolHandle, site: &SiteView) -> Option<ConditionClaim> {
    let view = pool.view()?;
    let open: BTreeSet<PoolId> =
        site.pools.values().filter(|pool| pool.view().is_some()).map(|pool| pool.id).collect();
    let waits = view.unsettled.iter().map(|cut| {
        let lacking = cut.pools.iter().filter(|pool| !open.contains(pool));
        let lacking: Vec<String> = lacking.map(|pool| format!("pool {pool}")).collect();
        let what = match &cut.operation {
            None => "a snapshot over several pools",
            Some(GroupOperation::Clone { .. }) => "a clone of a group",
            Some(GroupOperation::RollBack) => "a rollback of a group",
        };
        match lacking.is_empty() {
            true => format!("{what}, {}, is not settled: 'spindle pool settle' does it", cut.name),
            false => format!("{what}, {}, waits for {}, which is not open", cut.name, lacking.join(", ")),
        }
    });
    let waits: Vec<String> = waits.collect();
    (!waits.is_empty()).then(|| ConditionClaim::new("settlement_waits", name, waits.join("; ")))
}

fn space_claim(name: &str, view: &PoolView, open: Option<&str>) -> Option<ConditionClaim> {
    let (used, usable) = (view.used.0, view.usable.0);
    let kind = space_kind(used, usable, open)?;
    let percent = u128::from(used) * 100 / u128::from(usable.max(1));
    let text = format!("{percent} % full: {} used of {}", ByteCount(used), ByteCount(usable));
    Some(ConditionClaim::new(kind, name, text))
}

/// A drive that is missing, failed or out of date; one that joins or leaves is none.
fn drive_claim(name: &str, drive: &DriveHealth) -> Option<ConditionClaim> {
    let status = &drive.status;
    if status.is_in_use || !drive.is_recorded || drive.leaving.is_some() {
        return None;
    }
    let why = status.reason.clone().unwrap_or_else(|| "it is out of date, or not used".to_owned());
    let subject = status.drive.clone().unwrap_or_else(|| status.name.clone());
    let text = format!("drive {} is not in use: {why}", status.name);
    Some(ConditionClaim::new("drive_failed", name, text).of(subject))
}

fn copies_claims(name: &str, health: &PoolHealth) -> Vec<ConditionClaim> {
    let mut claims = Vec::new();
    if health.degraded_segments > 0 {
        let (segments, copies) = (health.degraded_segments, health.copies);
        let text = format!("{segments} segments have fewer than {copies} copies");
        claims.push(ConditionClaim::new("redundancy_reduced", name, text));
    }
    if health.lost_segments > 0 {
        let text = format!("{} segments of raid0 volumes are missing", health.lost_segments);
        claims.push(ConditionClaim::new("data_missing", name, text));
    }
    if let Some(job) = health.jobs.iter().find(|job| job.kind == JobKind::Rebuild && job.is_running) {
        let left = job
            .time_left
            .map_or_else(String::new, |left| format!("; about {} minutes left", left.as_secs().div_ceil(60)));
        claims.push(ConditionClaim::new("rebuild", name, format!("missing copies are being made{left}")));
    }
    claims
}

/// An import that waits for its source, or for room.
fn import_claim(name: &str, view: &PoolView) -> Option<ConditionClaim> {
    let import = view.transfers.iter().find(|job| job.kind == JobKind::Import && job.is_running)?;
    let problem = import.problem.as_ref()?;
    Some(ConditionClaim::new("import_waits", name, format!("the import does not go on: {problem}")))
}

/// A pool that an older program made, or upgraded last.
fn format_claim(name: &str, health: &PoolHealth) -> Option<ConditionClaim> {
    let text = health.format.text(name)?;
    Some(ConditionClaim::new("pool_format_old", name, text))
}

fn work_of(figures: &PoolFigures) -> BTreeMap<String, DriveWork> {
    let mut all = BTreeMap::new();
    for drive in figures.drives.iter().filter(|drive| drive.is_in_use) {
        let work: &mut DriveWork = all.entry(drive.label.name.clone()).or_default();
        for operation in [DeviceOperation::Read, DeviceOperation::Write] {
            if let Some(latencies) = drive.counts.of(operation).latencies() {
                work.operations += latencies.count();
                work.time += latencies.total();
            }
        }
    }
    all
}

fn certificate_claim(certificate: &crate::watched::WatchedCertificate, now: i64) -> Option<ConditionClaim> {
    let left = certificate.ends_unix_s - now;
    let (kind, verb) = match left {
        ..=0 => ("certificate_expired", "expired"),
        1..EXPIRING_SECONDS => ("certificate_expiring", "expires"),
        _ => return None,
    };
    let file = certificate.file.display().to_string();
    let text = format!("the certificate {file} {verb} {}", shown_time(certificate.ends_unix_s));
    Some(ConditionClaim::new(kind, "serve", text).of(file))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::events::EventRecords;
    use report::Refusal;
    use std::path::PathBuf;

    const WALL: WallTime = WallTime { seconds: 1_795_782_896, nanos: 0 };

    fn at(seconds: u64) -> Moment {
        Moment(seconds * 1_000_000_000)
    }

    fn open_site() -> SiteView {
        let stopped = BTreeMap::from([("mail".to_owned(), Refusal::new("no drives", "connect them"))]);
        SiteView { is_open: true, stopped, ..SiteView::default() }
    }

    fn ids(log: &DaemonEventLog) -> Vec<String> {
        log.conditions().into_iter().map(|open| open.id).collect()
    }

    /// The log of a server that is started again, with these conditions.
    fn restarted(claims: &[ConditionClaim]) -> DaemonEventLog {
        let before = DaemonEventLog::new(WALL);
        claims.iter().for_each(|claim| drop(before.raise(claim, WALL)));
        let conditions = before.conditions();
        DaemonEventLog::of(EventRecords { conditions, ..EventRecords::default() }, WALL)
    }

    #[test]
    fn a_restart_ends_nothing_that_it_cannot_know_yet() {
        let claim = |kind| ConditionClaim::new(kind, "mail", "as before");
        let log = restarted(&[
            claim("drive_slow").of("a"),
            claim("rebuild"),
            ConditionClaim::new("logins_failing", "portal", "many"),
            ConditionClaim::new("on_battery", "power", "so"),
            ConditionClaim::new("notifier_failing", "notify", "no answer").of("ops"),
            ConditionClaim::new("notifier_failing", "notify", "no answer").of("gone"),
        ]);
        let mut evaluator = ConditionEvaluator::new(&log, at(0));
        let ops = "[[notify]]\nname = 'ops'\nkind = 'webhook'\nurl = 'http://127.0.0.1/'\n";
        let site = plan::site::Site::from_toml(ops).unwrap();
        let folder = PathBuf::from("/");
        let notifiers = crate::notifying::wanted_notifiers(&site, (&folder, false)).unwrap();
        let watched = WatchedSite { notifiers, ..WatchedSite::default() };
        evaluator.evaluate(&log, (&SiteView::default(), &watched, None), (at(1), WALL));
        assert!(!log.is_evaluated() && ids(&log).len() == 6, "nothing is seen before the site is open");
        evaluator.evaluate(&log, (&open_site(), &watched, None), (at(2), WALL));
        let told = ["logins:portal", "notifier:notify:ops", "pool:mail", "power:power"];
        assert!(log.is_evaluated());
        assert_eq!(ids(&log), [&told[..], &["rebuild:mail", "slow:mail:a"]].concat());
        evaluator.evaluate(
            &log,
            (&SiteView { is_open: true, ..SiteView::default() }, &watched, None),
            (at(601), WALL),
        );
        assert_eq!(ids(&log), ["notifier:notify:ops", "power:power"]);
    }

    #[test]
    fn a_schedule_that_a_pool_has_no_more_misses_nothing() {
        let claim = |schedule: &str| ConditionClaim::new("schedule_missed", "mail", "no room").of(schedule);
        let log = restarted(&[claim("hourly"), claim("daily"), claim("")]);
        let mut evaluator = ConditionEvaluator::new(&log, at(0));
        let pair = |pool: &str, name: &str| (pool.to_owned(), name.to_owned());
        let schedules = vec![pair("mail", "hourly"), pair("logs", "daily")];
        let mut watched = WatchedSite { schedules, ..WatchedSite::default() };
        evaluator.evaluate(&log, (&open_site(), &watched, None), (at(1), WALL));
        assert_eq!(ids(&log), ["pool:mail", "schedule:mail", "schedule:mail:hourly"]);
        watched.schedules.remove(0);
        evaluator.evaluate(&log, (&open_site(), &watched, None), (at(2), WALL));
        assert_eq!(ids(&log), ["pool:mail"]);
    }

    #[test]
    fn a_set_that_the_file_has_no_more_has_no_problem() {
        let claim = |kind, set: &str| ConditionClaim::new(kind, "serve", "why").of(set);
        let claims = [
            claim("set_failing", "mail"),
            claim("set_not_kept", "mail"),
            claim("set_failing", "old"),
            claim("set_full", "old"),
            claim("set_waiting", "old"),
            claim("set_has_strays", "old"),
            claim("set_left_points", "old"),
            claim("set_unverified", "old"),
            claim("set_undrilled", "old"),
            claim("set_uncopied", "old"),
            claim("set_unreleased", "old"),
            claim("set_not_kept", "old"),
        ];
        let log = restarted(&claims);
        let mut evaluator = ConditionEvaluator::new(&log, at(0));
        let watched = WatchedSite { sets: vec!["mail".to_owned()], ..WatchedSite::default() };
        evaluator.evaluate(&log, (&open_site(), &watched, None), (at(1), WALL));
        assert_eq!(ids(&log), ["pool:mail", "set_catalogue:serve:mail", "set_rounds:serve:mail"]);
    }

    #[test]
    fn a_pool_that_is_served_no_more_has_not_failed() {
        let log = restarted(&[ConditionClaim::new("space_80", "mail", "81 % full")]);
        let mut evaluator = ConditionEvaluator::new(&log, at(0));
        let (gone, watched) = (SiteView { is_open: true, ..SiteView::default() }, WatchedSite::default());
        let events = evaluator.evaluate(&log, (&gone, &watched, None), (at(1), WALL));
        assert!(events.len() == 1 && crate::kinds::is_cleared(&events[0].report));
        assert_eq!(ids(&log), Vec::<String>::new());
    }
}
