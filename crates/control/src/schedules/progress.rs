//! The progress of all schedules: what is known of their snapshots, what is due, what was said. Plain state: the flow over it
//! says the time and gives the orders.
//!
//! Invariants:
//!
//! 1. A pool has one round under way at most, and the next begins a second after it at the earliest, a minute after one that
//!    failed.
//! 2. A volume of which no last snapshot is known is asked for: by the next round, the pool says it.
//! 3. A problem is said when it begins and when it has become another, not each time.

use super::{
    round::{PoolRound, RoundAnswer, ScheduleAnswer, ScheduleRound},
    wanted::WantedSchedule,
};
use crate::{order::OrderRefusal, view::VolumeView};
use array::format::VolumeId;
use protect::{SnapshotSchedule, TakingPace, UnixSecond};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};
use world::{Moment, WallTime};

/// Time from a failed round to the next one, and most from one look at the clock to the next.
const MINUTE: Duration = Duration::from_secs(60);
/// Time from a round to the next one of the same pool.
const ROUNDS_EVERY: Duration = Duration::from_secs(1);
/// Time that a volume is missed before that is said: views are a second old, and a volume may be being made.
const MISSED_FOR: Duration = Duration::from_secs(5);

/// The volumes of pools that are open, by the pools' names.
pub(crate) type SeenPools = BTreeMap<String, Arc<Vec<VolumeView>>>;

/// A line to say about a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ScheduleLine {
    pub pool: String,
    pub is_warning: bool,
    pub text: String,
    /// Of a problem that lasts: the schedule, or empty for all of the pool.
    pub lasting: Option<String>,
}

/// The rounds that are due now.
#[derive(Debug)]
pub(crate) struct DueRounds {
    /// By pool. They are under way from now on.
    pub rounds: Vec<(String, PoolRound)>,
    pub lines: Vec<ScheduleLine>,
    /// Time to look again.
    pub wait: Duration,
}

/// All schedules in all pools.
#[derive(Debug, Default)]
pub(crate) struct ScheduleProgress {
    pub(super) schedules: Arc<Vec<WantedSchedule>>,
    pub(super) pools: BTreeMap<String, PoolProgress>,
    /// Pools and schedules.
    strays_said: BTreeSet<(String, String)>,
    has_ended: bool,
}

#[derive(Debug, Default)]
pub(super) struct PoolProgress {
    is_under_way: bool,
    next_from: Moment,
    strays_are_known: bool,
    /// It is not open, and that was said.
    is_closed: bool,
    pub(super) problem: SaidProblem,
    pub(super) schedules: BTreeMap<String, ScheduleInPool>,
}

#[derive(Debug)]
pub(super) struct ScheduleInPool {
    pub(super) schedule: SnapshotSchedule,
    /// The last snapshot of each volume that was asked for.
    pub(super) lasts: BTreeMap<VolumeId, Option<UnixSecond>>,
    /// Its own snapshots of each volume, and times at which none was taken.
    pub(super) counts: BTreeMap<VolumeId, (usize, u64)>,
    pace: TakingPace,
    next_from: Moment,
    has_more_to_prune: bool,
    pub(super) problem: SaidProblem,
    pub(super) left: BTreeSet<String>,
    missed: BTreeMap<String, MissedVolume>,
}

#[derive(Debug)]
struct MissedVolume {
    since: Moment,
    is_said: bool,
}

impl ScheduleProgress {
    /// Goes on with these schedules. Those that stay the same keep their progress.
    pub fn set(&mut self, schedules: &Arc<Vec<WantedSchedule>>) {
        if Arc::ptr_eq(&self.schedules, schedules) {
            return;
        }
        self.schedules = Arc::clone(schedules);
        for pool in self.pools.values_mut() {
            pool.strays_are_known = false;
            pool.schedules.retain(|name, known| {
                known.missed.clear();
                schedules.iter().any(|wanted| wanted.name == *name && wanted.schedule == known.schedule)
            });
        }
    }

    /// Says nothing from now on.
    pub fn end(&mut self) {
        self.has_ended = true;
    }

    /// The rounds that are due in the pools that are open.
    pub fn rounds(&mut self, seen: &SeenPools, wall: WallTime, now: Moment) -> DueRounds {
        let mut due = DueRounds { rounds: Vec::new(), lines: Vec::new(), wait: MINUTE };
        let schedules = Arc::clone(&self.schedules);
        let of_schedules = schedules.iter().flat_map(|wanted| wanted.volumes.keys());
        let names: BTreeSet<String> = of_schedules.chain(seen.keys()).cloned().collect();
        self.pools.retain(|name, pool| names.contains(name) || pool.is_under_way);
        for name in names {
            let pool = self.pools.entry(name.clone()).or_default();
            if pool.is_under_way {
                continue;
            }
            let Some(volumes) = seen.get(&name) else {
                if !std::mem::replace(&mut pool.is_closed, true) {
                    due.lines.push(no_round(&name, "it is not open"));
                }
                continue;
            };
            if std::mem::take(&mut pool.is_closed) {
                due.lines.push(note(&name, "it is open; schedules go on".to_owned()));
            }
            if now < pool.next_from {
                due.wait = due.wait.min(pool.next_from.since(now));
                continue;
            }
            let round = pool.round((&name, &schedules), volumes, (wall, now), &mut due);
            if !round.schedules.is_empty() || round.known.is_some() {
                pool.is_under_way = true;
                due.rounds.push((name, round));
            }
        }
        due
    }

    /// Notes the answer of a round. Returns lines to say.
    pub fn note_answer(
        &mut self,
        pool_name: &str,
        answer: Result<RoundAnswer, OrderRefusal>,
        now: Moment,
    ) -> Vec<ScheduleLine> {
        let Some(pool) = self.pools.get_mut(pool_name) else { return Vec::new() };
        assert!(pool.is_under_way, "an answer is to a round");
        pool.is_under_way = false;
        let mut lines = Vec::new();
        match answer {
            Err(refusal) => {
                pool.next_from = now + MINUTE;
                lines.extend(pool.problem.begin(&refusal.to_string()).map(|why| no_round(pool_name, &why)));
            }
            Ok(answer) => {
                pool.next_from = now + ROUNDS_EVERY;
                pool.strays_are_known = true;
                if pool.problem.end() {
                    let text = "schedules take snapshots again".to_owned();
                    lines.push(note(pool_name, text));
                }
                for of_schedule in answer.schedules {
                    if let Some(known) = pool.schedules.get_mut(&of_schedule.name) {
                        known.note_answer(pool_name, of_schedule, now, &mut lines);
                    }
                }
                if answer.strays_were_sought {
                    // Those that come again later are news then.
                    self.strays_said
                        .retain(|(of, schedule)| of != pool_name || answer.strays.contains_key(schedule));
                }
                for (schedule, count) in answer.strays {
                    let text = format!(
                        "{count} snapshots were taken by a schedule {schedule} that the site file does not have for their volumes: \
                         they stay until someone deletes them"
                    );
                    if self.strays_said.insert((pool_name.to_owned(), schedule)) {
                        lines.push(note(pool_name, text));
                    }
                }
            }
        }
        if self.has_ended { Vec::new() } else { lines }
    }
}

impl PoolProgress {
    fn round(
        &mut self,
        (pool, schedules): (&str, &[WantedSchedule]),
        volumes: &[VolumeView],
        (wall, now): (WallTime, Moment),
        due: &mut DueRounds,
    ) -> PoolRound {
        let mut round = PoolRound::default();
        let mut known = BTreeSet::new();
        let named = volumes.iter().filter(|volume| volume.left_by.is_none());
        let ids: BTreeMap<&str, VolumeId> =
            named.map(|volume| (volume.name.as_str(), volume.volume)).collect();
        for wanted in schedules {
            let Some(names) = wanted.volumes.get(pool) else { continue };
            let progress = self.schedules.entry(wanted.name.clone());
            let progress = progress.or_insert_with(|| ScheduleInPool::new(wanted.schedule));
            let find = |name: &String| Some((*ids.get(name.as_str())?, name.clone()));
            let present: BTreeMap<VolumeId, String> = names.iter().filter_map(find).collect();
            known.extend(present.keys().map(|&volume| (wanted.name.clone(), volume)));
            let missed = names.iter().filter(|name| !ids.contains_key(name.as_str()));
            progress.note_missed((pool, &wanted.name), missed, now, due);
            match progress.time_to_round(&present, wall, now) {
                Some(Duration::ZERO) => round.schedules.push(ScheduleRound {
                    name: wanted.name.clone(),
                    schedule: wanted.schedule,
                    volumes: present,
                }),
                Some(wait) => due.wait = due.wait.min(wait),
                None => {}
            }
        }
        if !self.strays_are_known {
            match volumes.iter().any(|volume| volume.snapshots > 0) {
                true => round.known = Some(known),
                false => self.strays_are_known = true,
            }
        }
        round
    }
}

impl ScheduleInPool {
    fn new(schedule: SnapshotSchedule) -> Self {
        Self {
            schedule,
            lasts: BTreeMap::new(),
            counts: BTreeMap::new(),
            pace: TakingPace::default(),
            next_from: Moment::default(),
            has_more_to_prune: false,
            problem: SaidProblem::default(),
            left: BTreeSet::new(),
            missed: BTreeMap::new(),
        }
    }

    /// Time until a round is to be given, zero if that is now; `None` without volumes.
    fn time_to_round(
        &self,
        present: &BTreeMap<VolumeId, String>,
        wall: WallTime,
        now: Moment,
    ) -> Option<Duration> {
        let civil = UnixSecond(wall.seconds);
        let mut spans = present.keys().map(|volume| match self.lasts.get(volume) {
            _ if self.has_more_to_prune => (Duration::ZERO, false),
            None => (Duration::ZERO, false),
            Some(&last) => {
                let seconds = self.schedule.due_at(last, civil).0 - civil.0;
                let whole = Duration::from_secs(seconds.unsigned_abs());
                (whole.saturating_sub(Duration::from_nanos(u64::from(wall.nanos))), true)
            }
        });
        let first = spans.next()?;
        let (due, takes) = spans.fold(first, |one, other| {
            // A new volume does not wait for the pace of the others.
            if (other.0, other.1) < (one.0, one.1) { other } else { one }
        });
        let paced = Moment::default() + self.pace.allows_from(self.schedule.interval_s());
        let paced = if takes { paced.since(now) } else { Duration::ZERO };
        Some(due.max(paced).max(self.next_from.since(now)))
    }

    fn note_missed<'n>(
        &mut self,
        (pool, schedule): (&str, &str),
        names: impl Iterator<Item = &'n String>,
        now: Moment,
        due: &mut DueRounds,
    ) {
        let names: BTreeSet<&String> = names.collect();
        self.missed.retain(|name, _| names.contains(name));
        for name in names {
            let new = MissedVolume { since: now, is_said: false };
            let missed = self.missed.entry(name.clone()).or_insert(new);
            if missed.is_said {
                continue;
            }
            let left = MISSED_FOR.saturating_sub(now.since(missed.since));
            if left.is_zero() {
                missed.is_said = true;
                due.lines.push(warning(pool, format!("schedule {schedule}: there is no volume {name}")));
            } else {
                due.wait = due.wait.min(left);
            }
        }
    }

    fn note_answer(
        &mut self,
        pool: &str,
        answer: ScheduleAnswer,
        now: Moment,
        lines: &mut Vec<ScheduleLine>,
    ) {
        let ScheduleAnswer { name, lasts, counts, taken, failure, left, has_more } = answer;
        // First snapshots of new volumes do not put off those of the others.
        let is_of_known =
            lasts.iter().any(|(volume, last)| self.lasts.get(volume).is_some_and(|known| known != last));
        self.lasts.extend(lasts);
        self.counts.extend(counts);
        self.has_more_to_prune = has_more;
        if !taken.is_empty() && is_of_known {
            self.pace.note_taken(now.since(Moment::default()));
        }
        match failure {
            Some(refusal) => {
                self.next_from = now + MINUTE;
                let text = |why: String| {
                    format!("schedule {name}: no snapshot was taken, and one is tried every minute: {why}")
                };
                let line = |why| ScheduleLine { lasting: Some(name.clone()), ..warning(pool, text(why)) };
                lines.extend(self.problem.begin(&refusal.to_string()).map(line));
            }
            None if self.problem.end() => {
                let text = format!("schedule {name}: snapshots are taken again");
                lines.push(note(pool, text));
            }
            None => {}
        }
        for (snapshot, refusal) in left.iter().filter(|(snapshot, _)| !self.left.contains(*snapshot)) {
            let keep = self.schedule.keep();
            let text = format!("schedule {name}: {snapshot} stays, although {keep} newer ones do: {refusal}");
            lines.push(warning(pool, text));
        }
        self.left = left.into_keys().collect();
    }
}

/// A problem that lasts, as it was said: without its numbers, and as a whole.
#[derive(Debug, Default)]
pub(super) struct SaidProblem(Option<(String, String)>);

impl SaidProblem {
    /// The problem in words.
    pub fn text(&self) -> Option<String> {
        self.0.as_ref().map(|(_, text)| text.clone())
    }

    /// Returns it if it is to be said: it is new, in more than its numbers.
    fn begin(&mut self, problem: &str) -> Option<String> {
        let kind: String = problem.chars().filter(|char| !char.is_ascii_digit()).collect();
        let is_new = self.0.as_ref().map(|(known, _)| known) != Some(&kind);
        self.0 = Some((kind, problem.to_owned()));
        is_new.then(|| problem.to_owned())
    }

    /// Returns true if there was one.
    fn end(&mut self) -> bool {
        self.0.take().is_some()
    }
}

fn warning(pool: &str, text: String) -> ScheduleLine {
    ScheduleLine { pool: pool.to_owned(), is_warning: true, text, lasting: None }
}

fn note(pool: &str, text: String) -> ScheduleLine {
    ScheduleLine { pool: pool.to_owned(), is_warning: false, text, lasting: None }
}

fn no_round(pool: &str, why: &str) -> ScheduleLine {
    let text = format!("no schedule takes snapshots, and each is tried every minute: {why}");
    ScheduleLine { lasting: Some(String::new()), ..warning(pool, text) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use world::ByteCount;

    const START: i64 = 1_795_782_896;

    fn progress() -> ScheduleProgress {
        let schedule = SnapshotSchedule::new(1.0, None, 2).unwrap();
        let names = |name: &str| BTreeSet::from([name.to_owned()]);
        let volumes = [("mail", "a"), ("logs", "b")];
        let volumes = volumes.map(|(pool, volume)| (pool.to_owned(), names(volume))).into();
        let mut progress = ScheduleProgress::default();
        progress.set(&Arc::new(vec![WantedSchedule { name: "hourly".to_owned(), schedule, volumes }]));
        progress
    }

    fn seen(pools: &[(&str, &str)]) -> SeenPools {
        let view = |name: &str| VolumeView {
            name: name.to_owned(),
            volume: VolumeId([name.as_bytes()[0]; 16]),
            size: ByteCount(0),
            branch: 0,
            setting: Default::default(),
            snapshots: 0,
            group: None,
            left_by: None,
        };
        pools.iter().map(|(pool, volume)| ((*pool).to_owned(), Arc::new(vec![view(volume)]))).collect()
    }

    fn at(second: i64) -> (WallTime, Moment) {
        (WallTime { seconds: START + second, nanos: 0 }, Moment(second.unsigned_abs() * 1_000_000_000))
    }

    fn rounds(
        progress: &mut ScheduleProgress,
        seen: &SeenPools,
        second: i64,
    ) -> (Vec<String>, usize, Duration) {
        let (wall, now) = at(second);
        let DueRounds { rounds, lines, wait } = progress.rounds(seen, wall, now);
        (rounds.into_iter().map(|(pool, _)| pool).collect(), lines.len(), wait)
    }

    fn taken(volume: &str, second: i64) -> Result<RoundAnswer, OrderRefusal> {
        let last = Some(UnixSecond(START + second));
        let answer = ScheduleAnswer {
            name: "hourly".to_owned(),
            lasts: BTreeMap::from([(VolumeId([volume.as_bytes()[0]; 16]), last)]),
            taken: vec!["it".to_owned()],
            ..ScheduleAnswer::default()
        };
        Ok(RoundAnswer { schedules: vec![answer], ..RoundAnswer::default() })
    }

    #[test]
    fn a_pool_that_answers_late_keeps_no_other_waiting() {
        let (mut progress, both) = (progress(), seen(&[("mail", "a"), ("logs", "b")]));
        assert_eq!(rounds(&mut progress, &both, 0).0, ["logs", "mail"]);
        assert_eq!(progress.note_answer("logs", taken("b", 0), at(0).1), []);
        // The next hour begins 1,504 s later; the clock is looked at every minute all the same.
        assert_eq!(rounds(&mut progress, &both, 1), (vec![], 0, MINUTE));
        assert_eq!(rounds(&mut progress, &both, 1_500), (vec![], 0, Duration::from_secs(4)));
        assert_eq!(rounds(&mut progress, &both, 1_504).0, ["logs"]);
        progress.note_answer("mail", taken("a", 0), at(1_600).1);
        assert_eq!(rounds(&mut progress, &both, 1_601).0, ["mail"]);
    }

    #[test]
    fn problems_are_said_once_and_tried_again_after_a_minute() {
        let (mut progress, one) = (progress(), seen(&[("mail", "a")]));
        let (pools, lines, _) = rounds(&mut progress, &one, 0);
        assert_eq!((&pools[..], lines), (&["mail".to_owned()][..], 1), "logs is not open");
        let lines = progress.note_answer("mail", Err(OrderRefusal::Full), at(0).1);
        assert!(lines[0].is_warning && lines[0].text.contains("tried every minute"), "{lines:?}");
        assert_eq!(rounds(&mut progress, &one, 59), (vec![], 0, Duration::from_secs(1)));
        assert_eq!(rounds(&mut progress, &one, 60).0, ["mail"]);
        assert_eq!(progress.note_answer("mail", Err(OrderRefusal::Full), at(60).1), []);
        assert_eq!(progress.note_answer("gone", Err(OrderRefusal::Full), at(60).1), []);
        assert_eq!(rounds(&mut progress, &one, 120).0, ["mail"]);
        let lines = progress.note_answer("mail", taken("a", 120), at(120).1);
        assert_eq!(lines[0].text, "schedules take snapshots again");
    }

    #[test]
    fn a_volume_that_is_missed_for_seconds_is_said() {
        let (mut progress, other) = (progress(), seen(&[("mail", "x"), ("logs", "b")]));
        assert_eq!(rounds(&mut progress, &other, 0), (vec!["logs".to_owned()], 0, MISSED_FOR));
        assert_eq!(rounds(&mut progress, &other, 5).1, 1);
        assert_eq!(rounds(&mut progress, &other, 65), (vec![], 0, MINUTE));
        let both = seen(&[("mail", "a"), ("logs", "b")]);
        assert_eq!(rounds(&mut progress, &both, 66).0, ["mail"], "it is there again");
    }

    #[test]
    fn a_pool_that_closes_again_is_said_again() {
        let (mut progress, one) = (progress(), seen(&[("mail", "a")]));
        let both = seen(&[("mail", "a"), ("logs", "b")]);
        assert_eq!(rounds(&mut progress, &one, 0).1, 1);
        assert_eq!(rounds(&mut progress, &one, 1).1, 0, "once");
        assert_eq!(rounds(&mut progress, &both, 2).1, 1, "it is open");
        progress.note_answer("logs", taken("b", 2), at(2).1);
        // Nothing was due in between.
        assert_eq!(rounds(&mut progress, &both, 4).1, 0);
        assert_eq!(rounds(&mut progress, &one, 5).1, 1, "it is closed");
    }

    #[test]
    fn strays_that_come_again_are_said_again() {
        let (mut progress, one) = (progress(), seen(&[("mail", "a")]));
        let mut lines_of = |strays: &[&str], second| {
            assert_eq!(rounds(&mut progress, &one, second).0, ["mail"]);
            let strays = strays.iter().map(|name| ((*name).to_owned(), 3)).collect();
            let answer = RoundAnswer { strays, strays_were_sought: true, ..RoundAnswer::default() };
            progress.note_answer("mail", Ok(answer), at(second).1).len()
        };
        let told = [lines_of(&["old"], 0), lines_of(&["old"], 2), lines_of(&[], 4), lines_of(&["old"], 6)];
        assert_eq!(told, [1, 0, 0, 1]);
    }
}
