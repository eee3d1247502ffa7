//! Verifications that are due, and results of verifications, restores and drills, which others carry out.
//!
//! Only a verification that looked at everything is written down. One that did not is said, and tried again later: an hour
//! later, then after twice as long, a day at most.

use super::{
    SetKeeper, SetProblem,
    people::{FollowResult, wrong},
};
use crate::{
    UnixSecond,
    byte_rate::ByteRate,
    catalogue::{BackupDrill, BackupRestore, BackupRow, BackupVerification, CatalogueEntry},
    planted_keeping::{self, KeepingBug},
    verification::VERIFICATION_LEVELS,
};
use report::calendar::utc_time;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use world::Moment;

const AGAIN_MIN: Duration = Duration::from_secs(3_600);
const AGAIN_MAX: Duration = Duration::from_secs(86_400);

/// A verification, or a copy, that did not end.
pub(super) struct PutOff {
    from: Moment,
    pause: Duration,
    pub why: String,
}

impl PutOff {
    /// For an hour, or for twice as long as `before`, up to a day.
    pub fn after(before: Option<&Self>, now: Moment, why: String) -> Self {
        let pause = before.map_or(AGAIN_MIN, |before| (before.pause * 2).min(AGAIN_MAX));
        Self { from: now + pause, pause, why }
    }

    pub fn is_over(&self, now: Moment) -> bool {
        now >= self.from
    }
}

/// A verification that is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerificationDue {
    pub number: u64,
    pub name: String,
    pub level: &'static str,
    pub throttle: Option<ByteRate>,
    /// The server of the other site is to carry it out.
    pub is_at_replica: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum VerificationVerdict {
    Proven,
    Damaged,
    /// Not everything was looked at.
    Unfinished,
}

/// The result of a verification that others made of a backup's points.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerificationResult {
    /// `chain`, `pages`, `deep` or `recover`.
    pub level: String,
    /// Version of the verifier.
    pub version: String,
    pub verdict: VerificationVerdict,
    /// Damage, or the reasons why not everything was looked at.
    pub findings: Vec<String>,
    /// Identities of the points that were looked at; empty if the verifier does not say.
    pub points: Vec<String>,
}

/// The result of a restore that others carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestoreResult {
    /// The set, a database, a mailbox.
    pub what: String,
    /// `in place`, or the name beside the live one.
    pub to: String,
    pub is_good: bool,
    pub problems: Vec<String>,
}

/// The result of a drill: a backup that was restored beside the live volumes, proven and dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DrillResult {
    pub is_good: bool,
    /// Seconds from the order to the proof.
    pub rto_s: u64,
    /// Seconds of work that would have been lost.
    pub rpo_s: u64,
    pub findings: Vec<String>,
}

impl SetKeeper {
    /// The verification that is due now, if the set has them.
    pub fn verification_due(&self) -> Option<VerificationDue> {
        let policy = self.settings.verification.as_ref()?;
        let (zone, now) = (self.settings.schedules.zone(), UnixSecond(self.world.wall().seconds));
        let is_put_off =
            |number: u64| self.put_off.get(&number).is_some_and(|put_off| !put_off.is_over(self.world.now()));
        let cannot_be = |number: u64| policy.is_at_replica() && !self.is_at_replica(number);
        let number =
            policy.due(zone, now, self.catalogue(), |number| is_put_off(number) || cannot_be(number))?;
        let name = self.catalogue().row(number).expect("it is live").start.name.clone();
        let (level, throttle, is_at_replica) = (policy.level(), policy.throttle(), policy.is_at_replica());
        Some(VerificationDue { number, name, level, throttle, is_at_replica })
    }

    /// The reason why the last verification of a backup did not end, or none can begin.
    pub(super) fn not_verified(&self, number: u64) -> Option<String> {
        let wait = self.catalogue().row(number).and_then(|row| self.replica_wait(number, row));
        wait.or_else(|| self.put_off.get(&number).map(|put_off| put_off.why.clone()))
    }

    /// Says when nothing was verified for a day, and when that is over.
    pub(super) fn look_for_verification(&mut self) {
        let catalogue = self.file.catalogue();
        self.put_off.retain(|number, _| catalogue.row(*number).is_some());
        let policy = self.settings.verification.as_ref();
        let overdue = policy.and_then(|policy| policy.overdue(self.catalogue(), self.age_s()));
        let text = overdue.map(|number| {
            let row = self.catalogue().row(number).expect("it is live");
            let name = &row.start.name;
            if let Some(wait) = self.replica_wait(number, row) {
                return format!("no backup was verified for 24 h, and {name} waits for it; {wait}");
            }
            let reason = match self.put_off.get(&number).or_else(|| self.put_off.values().next_back()) {
                Some(PutOff { why, .. }) => format!("; the last one did not end: {why}"),
                None => String::new(),
            };
            format!("no backup was verified for 24 h, and {name} waits for it{reason}")
        });
        self.said.set(SetProblem::Unverified, text);
    }

    /// True if the set has drills by the clock, and one is due.
    pub fn has_drill_due(&self) -> bool {
        let (zone, now) = (self.settings.schedules.zone(), UnixSecond(self.world.wall().seconds));
        let policy = self.settings.drill.as_ref();
        policy.is_some_and(|policy| policy.is_due(zone, now, self.catalogue()))
    }

    /// Says when no drill was good for long, and when that is over.
    pub(super) fn look_for_drill(&mut self) {
        let policy = self.settings.drill.as_ref();
        let is_overdue = policy.is_some_and(|policy| policy.is_overdue(self.catalogue(), self.age_s()));
        let text = is_overdue.then(|| {
            let text = match self.catalogue().last_drill() {
                Some(last) => format!("the last one, at {}, was bad", utc_time(last.0)),
                None => "there was none at all".to_owned(),
            };
            format!("no drill was good for 35 days or more; {text}")
        });
        self.said.set(SetProblem::Undrilled, text);
    }

    pub(super) fn note_verification(
        &mut self,
        number: u64,
        row: &BackupRow,
        result: &VerificationResult,
        by: &str,
    ) -> FollowResult {
        let VerificationResult { level, version, verdict, findings, .. } = result.clone();
        if !VERIFICATION_LEVELS.contains(&level.as_str()) {
            let known = VERIFICATION_LEVELS.join(", ");
            return Err(wrong(number, format!("cannot be verified at the level {level:?}; known: {known}")));
        }
        let name = &row.start.name;
        let first = findings.first().map(|first| format!(": {first}")).unwrap_or_default();
        if verdict == VerificationVerdict::Unfinished && !planted_keeping::is(KeepingBug::UnfinishedIsProven)
        {
            let why = findings.first().cloned().unwrap_or_else(|| "no reason is known".to_owned());
            let put_off = PutOff::after(self.put_off.get(&number), self.world.now(), why);
            self.put_off.insert(number, put_off);
            self.said
                .warn(format!("{name} is not verified; not everything could be checked ({level}){first}"));
            return Ok(());
        }
        let is_good = verdict != VerificationVerdict::Damaged;
        let by = by.to_owned();
        let verified = BackupVerification { backup: number, level, by, version, is_good, findings };
        let level = verified.level.clone();
        self.append(CatalogueEntry::Verified(verified))?;
        self.put_off.remove(&number);
        match is_good {
            true => self.said.note(format!("{name} is proven ({level})")),
            false => self.said.warn(format!("{name} is damaged ({level}){first}")),
        }
        self.look_for_verification();
        Ok(())
    }

    pub(super) fn note_restore(
        &mut self,
        number: u64,
        row: &BackupRow,
        result: &RestoreResult,
        by: &str,
    ) -> FollowResult {
        let RestoreResult { what, to, is_good, problems } = result.clone();
        let name = &row.start.name;
        let text = match is_good {
            true => format!("{by} restored {what} from {name} ({to})"),
            false => format!("{by} restored {what} from {name} ({to}) in part: {}", problems.join("; ")),
        };
        let (by, logs) = (by.to_owned(), "none".to_owned());
        self.append(CatalogueEntry::Restored(BackupRestore {
            backup: number,
            what,
            to,
            logs,
            by,
            is_good,
            problems,
        }))?;
        match is_good {
            true => self.said.note(text),
            false => self.said.warn(text),
        }
        Ok(())
    }

    pub(super) fn note_drill(
        &mut self,
        number: u64,
        row: &BackupRow,
        result: &DrillResult,
        by: &str,
    ) -> FollowResult {
        let DrillResult { is_good, rto_s, rpo_s, findings } = result.clone();
        let name = &row.start.name;
        let text = match (is_good, findings.first()) {
            (true, _) => format!("the drill with {name} was good: restored and proven after {rto_s} s"),
            (false, Some(first)) => format!("the drill with {name} was bad: {first}"),
            (false, None) => format!("the drill with {name} was bad"),
        };
        let by = by.to_owned();
        let drill = BackupDrill { backup: number, by, is_good, rto_s, rpo_s, findings };
        self.append(CatalogueEntry::Drilled(drill))?;
        self.look_for_drill();
        match is_good {
            true => self.said.note(text),
            false => self.said.warn(text),
        }
        Ok(())
    }
}
