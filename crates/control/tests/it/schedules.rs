//! Schedules of snapshots in simulated time: weeks with restarts, crashes, a clock that is set, and a pool that is busy.
//!
//! A model says which snapshots each schedule has of each volume. After each part of a life it is compared with the pools.

use crate::{
    sim_schedules::{Fixture, Listed, SITE, ScheduledLife},
    sim_site::Drives,
};
use array::volume::VolumeDevice;
use control::site::planning::PlanOccasion;
use protect::{ScheduleMark, SnapshotSchedule, TakingPace, UnixSecond};
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use world::{
    BlockDevice, Buffer, ByteOffset, Random, Stability,
    sim::{FaultPlan, SimLimits, SimOutcome},
};

const HOUR_S: i64 = 3600;
/// Seconds by which a snapshot may be later than the model has it: after a jump, the clock is looked at within a minute.
const LATE_S: i64 = 62;

/// A part of a life.
#[derive(Clone, Debug)]
enum Spell {
    Run {
        seconds: i64,
    },
    Jump {
        seconds: i64,
    },
    /// Its thread is busy with another order.
    Busy {
        pool: &'static str,
        seconds: i64,
    },
    Person {
        name: String,
    },
}

/// The model of one schedule on one volume.
#[derive(Clone, Debug)]
struct Model {
    schedule: SnapshotSchedule,
    /// Oldest first.
    taken: Vec<i64>,
    pace: TakingPace,
    elapsed_s: i64,
}

impl Model {
    /// Runs the clock on; nothing is taken in the first `busy_s`.
    fn run(&mut self, from: i64, seconds: i64, busy_s: i64) {
        let mut passed = busy_s.min(seconds);
        while passed <= seconds {
            let now = UnixSecond(from + passed);
            let due = self.schedule.due_at(self.taken.last().map(|&time| UnixSecond(time)), now);
            let paced = self.pace.allows_from(self.schedule.interval_s()).as_secs() as i64 - self.elapsed_s;
            let at = (due.0 - from).max(paced).max(passed);
            if at > seconds {
                break;
            }
            self.taken.push(from + at);
            self.pace.note_taken(Duration::from_secs((self.elapsed_s + at).unsigned_abs()));
            passed = at;
        }
        let surplus = self.schedule.surplus(self.taken.len());
        self.taken.drain(..surplus);
        self.elapsed_s += seconds;
    }

    /// Compares it with a pool, which it follows from then on.
    fn check(&mut self, found: &[i64]) -> Result<(), String> {
        let is_like = |(model, found): (&i64, &i64)| (0..=LATE_S).contains(&(found - model));
        let is_same = self.taken.len() == found.len() && self.taken.iter().zip(found).all(is_like);
        if !is_same {
            return Err(format!("{found:?}, and the model has {:?}", self.taken));
        }
        self.taken = found.to_vec();
        Ok(())
    }
}

/// By schedule, and pool and volume.
type Models = BTreeMap<(&'static str, &'static str), Model>;

fn models() -> Models {
    let schedule = |hours, at, keep| SnapshotSchedule::new(hours, at, keep).unwrap();
    let model = |schedule| Model { schedule, taken: Vec::new(), pace: TakingPace::default(), elapsed_s: 0 };
    let (hourly, daily) = (schedule(1.0, None, 4), schedule(24.0, Some("03:00"), 3));
    [
        ("hourly", "mail/a", hourly),
        ("hourly", "logs/b", hourly),
        ("daily", "mail/a", daily),
        ("daily", "mail/c", daily),
    ]
    .map(|(name, volume, schedule)| ((name, volume), model(schedule)))
    .into()
}

fn own(listed: &Listed, (schedule, volume): (&str, &str)) -> Vec<i64> {
    let mark = ScheduleMark { schedule };
    let of_volume = listed.get(volume).into_iter().flatten();
    of_volume
        .filter(|snapshot| mark.is_on(snapshot.note.as_bytes()))
        .map(|snapshot| snapshot.taken_s)
        .collect()
}

fn persons(listed: &Listed) -> usize {
    let all = listed.values().flatten();
    all.filter(|snapshot| ["", "by hand"].contains(&snapshot.note.as_str())).count()
}

fn draw(random: &mut Random, number: u64) -> Vec<Spell> {
    let mut spells = Vec::new();
    for part in 0..1 + random.below(3) {
        let seconds = 600 + random.below(20 * HOUR_S as u64) as i64;
        spells.push(match random.below(6) {
            0 => Spell::Jump { seconds: random.below(20_000) as i64 - 10_000 },
            1 => Spell::Jump { seconds: (random.below(6) as i64 - 3) * 366 * 24 * HOUR_S },
            2 => Spell::Busy { pool: ["mail", "logs"][random.below(2) as usize], seconds: seconds / 4 },
            3 => Spell::Person { name: format!("daily-2026-11-27-{number:02}{part:02}") },
            _ => Spell::Run { seconds },
        });
        spells.push(Spell::Run { seconds });
    }
    spells
}

/// One life, compared with the model part by part. Returns the model, and the number of a person's snapshots.
async fn live(
    life: ScheduledLife,
    mut models: Models,
    spells: Vec<Spell>,
) -> Result<(Models, usize), String> {
    let mut life = life.begin(SITE).await?;
    // What a crash left is the truth.
    let listed = life.listed().await;
    for (key, model) in &mut models {
        model.taken = own(&listed, *key);
        (model.pace, model.elapsed_s) = (TakingPace::default(), 0);
        if model.taken.len() > model.schedule.keep() + 1 {
            return Err(format!("{key:?} has {} snapshots", model.taken.len()));
        }
    }
    let mut known_persons = persons(&listed);
    life.open();
    life.sleep(10).await;
    models.values_mut().for_each(|model| model.run(life.civil_s() - 10, 10, 0));
    for spell in spells {
        let from = life.civil_s();
        let (pool, busy_s, seconds) = match &spell {
            Spell::Run { seconds } => ("", 0, *seconds),
            Spell::Jump { seconds } => {
                life.jump(*seconds);
                continue;
            }
            Spell::Busy { pool, seconds } => {
                life.begin_long_order(pool, *seconds);
                // Rounds that were given, and a second between two, come behind it.
                (*pool, *seconds, seconds + LATE_S)
            }
            Spell::Person { name } => {
                let note = if known_persons.is_multiple_of(2) { "" } else { "by hand" };
                life.take_by_hand("mail", "a", name, note).await?;
                known_persons += 1;
                continue;
            }
        };
        life.sleep(seconds).await;
        for (key, model) in &mut models {
            let is_busy = key.1.split('/').next() == Some(pool);
            model.run(from, seconds, if is_busy { busy_s } else { 0 });
        }
        // A snapshot that is due just now may be there or not: a little later it is.
        life.sleep(2 * LATE_S).await;
        models.values_mut().for_each(|model| model.run(from + seconds, 2 * LATE_S, 0));
        let listed = life.listed().await;
        for (key, model) in &mut models {
            let found = own(&listed, *key);
            model.check(&found).map_err(|why| format!("{key:?} after {spell:?}: {why}"))?;
        }
        if persons(&listed) != known_persons {
            return Err(format!("a person's snapshot was pruned: {listed:?}"));
        }
    }
    life.end().await?;
    Ok((models, known_persons))
}

fn lives(seed: u64, number_of: u64) -> Result<u64, String> {
    let mut fixture = Fixture::new(seed);
    let mut random = fixture.simulation.random("lives");
    let mut known_persons = 0;
    let mut crashes = 0;
    for number in 0..number_of {
        let spells = draw(&mut random, number);
        // Half of the crashes are at the start, where snapshots are made up.
        let polls = match random.below(4) {
            0 => Some(1 + random.below(2_500)),
            1 => Some(1 + random.below(300_000)),
            _ => None,
        };
        let limits = SimLimits { polls, span: Duration::from_secs(40 * 86_400), ..SimLimits::generous() };
        let life = fixture.life();
        let shown = format!("life {number}: {spells:?}");
        match fixture.simulation.run(limits, |world| live(life.in_world(&world), models(), spells)) {
            SimOutcome::Completed(Ok((_, persons))) if persons >= known_persons => known_persons = persons,
            SimOutcome::Completed(Ok((_, persons))) => {
                return Err(format!("{shown}: {persons} snapshots of persons are left of {known_persons}"));
            }
            SimOutcome::Completed(Err(why)) => return Err(format!("{shown}: {why}")),
            SimOutcome::Crashed => {
                crashes += 1;
                fixture.crash(random.percent(50.0));
            }
            other => return Err(format!("{shown}: {other:?}")),
        }
        fixture.pass(random.below(3 * 86_400) as i64);
    }
    Ok(crashes)
}

#[test]
fn weeks_with_restarts_crashes_jumps_and_busy_pools_leave_what_the_model_has() {
    if !crate::is_full_run("weeks of schedules are of") {
        return;
    }
    // Views that are published every second take most of the time.
    let (seeds, number_of) = (60, 40);
    let mut crashes = 0;
    for seed in 0..seeds {
        match lives(seed, number_of) {
            Ok(more) => crashes += more,
            Err(violation) => panic!("seed {seed}: {violation}"),
        }
    }
    assert!(crashes > 0, "{crashes} crashes in {seeds} seeds");
}

fn run(seed: u64, test: impl AsyncFnOnce(ScheduledLife, Drives) + 'static) {
    let mut fixture = Fixture::new(seed);
    let (life, drives) = (fixture.life(), fixture.drives.clone());
    let limits = SimLimits { span: Duration::from_secs(5 * 86_400), ..SimLimits::generous() };
    let run =
        fixture.simulation.run(limits, |world| async move { test(life.in_world(&world), drives).await });
    run.completed();
}

fn about<'l>(lines: &'l [String], words: &str) -> Vec<&'l String> {
    lines.iter().filter(|line| line.contains(words)).collect()
}

fn names(listed: &Listed, volume: &str, start: &str) -> Vec<String> {
    let of_volume = listed[volume].iter().filter(|snapshot| snapshot.name.starts_with(start));
    of_volume.map(|snapshot| snapshot.name.clone()).collect()
}

#[test]
fn what_is_served_what_another_schedule_took_and_what_is_gone_stays_and_is_said_once() {
    if !crate::is_full_run("schedules beside others are of") {
        return;
    }
    run(1, async |life, _| {
        let mut life = life.begin(SITE).await.unwrap();
        life.open();
        life.sleep(5).await;
        let first = names(&life.listed().await, "mail/a", "hourly");
        assert_eq!(first, ["hourly-2026-11-27-1234"], "a schedule begins at once");
        let served = format!("{SITE}[[nbd]]\nname = 'first'\nvolume = 'mail/a@{}'\n", first[0]);
        life.apply(&served, PlanOccasion::Reload).await.unwrap();
        life.said();
        life.sleep(8 * HOUR_S).await;
        let lines = life.said();
        let [line] = about(&lines, "stays")[..] else { panic!("{lines:?}") };
        assert!(
            line.contains("schedule hourly: a@hourly-2026-11-27-1234 stays, although 4 newer ones do"),
            "{line}"
        );
        assert_eq!(names(&life.listed().await, "mail/a", "hourly").len(), 5);
        assert_eq!(names(&life.listed().await, "logs/b", "hourly").len(), 4);

        let renamed = SITE.replace("'hourly'", "'frequent'");
        life.apply(&renamed, PlanOccasion::Reload).await.unwrap();
        life.sleep(8 * HOUR_S).await;
        let lines = life.said();
        assert_eq!(
            about(&lines, "snapshots were taken by a schedule hourly").len(),
            2,
            "one a pool: {lines:?}"
        );
        let listed = life.listed().await;
        assert_eq!(names(&listed, "mail/a", "hourly").len(), 5);
        assert_eq!(names(&listed, "mail/a", "frequent").len(), 4);

        life.order("mail", |served| {
            Box::pin(async move { served.pool.delete_volume("c", true).await.is_ok() })
        })
        .await;
        life.sleep(24 * HOUR_S).await;
        let lines = life.said();
        assert_eq!(about(&lines, "schedule daily: there is no volume c").len(), 1, "{lines:?}");
        assert_eq!(names(&life.listed().await, "mail/a", "daily").len(), 3, "the others go on");
        life.end().await.unwrap();
    });
}

#[test]
fn a_full_pool_takes_and_prunes_snapshots_as_before() {
    if !crate::is_full_run("schedules of a full pool are of") {
        return;
    }
    run(2, async |life, _| {
        let large = "[[volume]]\nname = 'large'\ngroup = 'mail'\ngb = 0.0625\n";
        let mut life = life.begin(&format!("{SITE}{large}")).await.unwrap();
        life.open();
        life.sleep(5).await;
        let full = life.order("mail", |served| {
            Box::pin(async move {
                let volume = VolumeDevice(served.pool.volume("large").unwrap());
                for block in 0..16_384 {
                    let data = vec![Arc::new(Buffer::copy_of(&[7; 4096]))];
                    if volume.write(ByteOffset(block * 4096), data, Stability::Stable).await.is_err() {
                        return true;
                    }
                }
                false
            })
        });
        assert!(full.await, "the volume is larger than the pool");
        life.sleep(6 * HOUR_S).await;
        assert_eq!(names(&life.listed().await, "mail/a", "hourly").len(), 4);
        life.end().await.unwrap();
    });
}

#[test]
fn a_pool_without_space_is_said_once_and_has_one_snapshot_made_up() {
    if !crate::is_full_run("schedules of a pool without space are of") {
        return;
    }
    run(4, async |life, drives| {
        let mut life = life.begin(SITE).await.unwrap();
        life.open();
        life.sleep(5).await;
        let set_faults = |no_space_percent| {
            let faults = FaultPlan { no_space_percent, ..FaultPlan::none() };
            drives["mail"].iter().for_each(|drive| drive.set_faults(faults.clone()));
        };
        set_faults(100.0);
        // Until 13:04.
        life.sleep(1_800).await;
        let lines = life.said();
        assert_eq!(about(&lines, "schedule hourly: no snapshot was taken").len(), 1, "{lines:?}");
        let listed = life.listed().await;
        assert_eq!(names(&listed, "mail/a", "hourly").len(), 1);
        assert_eq!(names(&listed, "logs/b", "hourly").len(), 2, "another pool goes on");
        set_faults(0.0);
        life.sleep(20 * 60).await;
        assert_eq!(names(&life.listed().await, "mail/a", "hourly").len(), 2);
        let lines = life.said();
        assert_eq!(about(&lines, "schedule hourly: snapshots are taken again").len(), 1, "{lines:?}");
        life.end().await.unwrap();
    });
}

#[test]
fn a_pool_that_has_stopped_is_said_once_and_has_one_snapshot_made_up_after_the_restart() {
    let mut fixture = Fixture::new(5);
    let limits = SimLimits { span: Duration::from_secs(5 * 86_400), ..SimLimits::generous() };
    let (life, drives) = (fixture.life(), fixture.drives.clone());
    let first = fixture.simulation.run(limits, |world| async move {
        let mut life = life.in_world(&world).begin(SITE).await.unwrap();
        life.open();
        life.sleep(5).await;
        let faults = FaultPlan { failed_write_percent: 100.0, ..FaultPlan::none() };
        drives["mail"].iter().for_each(|drive| drive.set_faults(faults.clone()));
        life.sleep(3 * HOUR_S).await;
        let lines = life.said();
        assert_eq!(about(&lines, "schedule hourly: no snapshot was taken").len(), 1, "{lines:?}");
        assert_eq!(names(&life.listed().await, "logs/b", "hourly").len(), 4, "another pool goes on");
        drives["mail"].iter().for_each(|drive| drive.set_faults(FaultPlan::none()));
        life.server.stop().await;
    });
    first.completed();
    let life = fixture.life();
    let second = fixture.simulation.run(limits, |world| async move {
        let mut life = life.in_world(&world).begin(SITE).await.unwrap();
        life.open();
        life.sleep(60).await;
        assert_eq!(names(&life.listed().await, "mail/a", "hourly").len(), 2);
        life.end().await.unwrap();
    });
    second.completed();
}

#[test]
fn a_pool_that_was_closed_for_hours_has_one_snapshot_made_up() {
    run(3, async |life, _| {
        let mut life = life.begin(SITE).await.unwrap();
        life.open();
        life.sleep(5).await;
        let logs = "[[group]]\nname = 'logs'\n[[volume]]\nname = 'b'\ngroup = 'logs'\ngb = 0.001953125\n\
                    [[snapshots]]\nname = 'hourly'\nevery_hours = 1\nkeep = 4\nvolumes = ['logs/b']\n";
        life.apply(logs, PlanOccasion::Reload).await.unwrap();
        life.sleep(3 * HOUR_S).await;
        life.apply(SITE, PlanOccasion::Reload).await.unwrap();
        life.sleep(60).await;
        let listed = life.listed().await;
        let of_mail = names(&listed, "mail/a", "hourly");
        assert_eq!(of_mail, ["hourly-2026-11-27-1234", "hourly-2026-11-27-1535"]);
        assert_eq!(names(&listed, "logs/b", "hourly").len(), 4);
        life.end().await.unwrap();
    });
}
