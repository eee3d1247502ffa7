//! Sets that the server keeps, in simulated time: backups by schedules, orders of people, crashes of the server between any two
//! awaits, pools that are away.

use crate::{
    sim_schedules::{Fixture, Listed, RunningLife, ScheduledLife},
    sim_site::SimCatalogues,
};
use control::{
    planted::{SetBug, with_set_bug},
    sets::{SetKeeping, SetOrder},
    site::planning::PlanOccasion,
};
use protect::{
    catalogue::{BackupStage, CatalogueScope, PointNote, file},
    set_keeper::{PersonOrder, SetProblem, SetView},
};
use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
    time::Duration,
};
use world::{
    Random,
    sim::{SimLimits, SimOutcome, StateFileFaults},
};

const QUARTER_S: i64 = 900;

const SITE: &str = "
    [[group]]
    name = 'logs'
    [[group]]
    name = 'mail'
    [[volume]]
    name = 'a'
    group = 'mail'
    gb = 0.001953125
    [[volume]]
    name = 'b'
    group = 'logs'
    gb = 0.001953125
    [[protect]]
    set = 'post'
    volumes = ['a', 'logs/b']
    schedules = ['3x15min', '2x1d@03:00']
    [protect.keep]
    at_least = 2
";

fn run(seed: u64, test: impl AsyncFnOnce(ScheduledLife, SimCatalogues) + 'static) {
    let mut fixture = Fixture::new(seed);
    let (life, catalogues) = (fixture.life(), fixture.catalogues.clone());
    let limits = SimLimits { span: Duration::from_secs(5 * 86_400), ..SimLimits::generous() };
    fixture
        .simulation
        .run(limits, |world| async move { test(life.in_world(&world), catalogues).await })
        .completed();
}

fn view_of(life: &RunningLife, set: &str) -> SetView {
    let sets = life.server.handle().sets();
    let kept = sets.iter().find(|kept| kept.wanted.settings.name == set).unwrap();
    match &kept.keeping {
        SetKeeping::Server { view: Some(view), .. } => (**view).clone(),
        other => panic!("{other:?}"),
    }
}

async fn order(life: &RunningLife, set: &str, order: SetOrder) -> Result<u64, String> {
    let sets = life.server.handle().sets();
    let kept = sets.iter().find(|kept| kept.wanted.settings.name == set).unwrap();
    let SetKeeping::Server { orders, .. } = &kept.keeping else { panic!("{:?}", kept.keeping) };
    orders.give(order, "ada").await.map(|answer| answer.number).map_err(|refusal| format!("{refusal:?}"))
}

fn numbers(view: &SetView) -> Vec<u64> {
    view.backups.iter().map(|backup| backup.number).collect()
}

fn follow(number: u64, order: PersonOrder) -> SetOrder {
    SetOrder::Follow { number, order }
}

#[test]
fn a_set_is_backed_up_over_its_pools_by_its_schedules_and_by_people() {
    run(1, async |life, _| {
        let mut life = life.begin(SITE).await.unwrap();
        life.open();
        life.sleep(10).await;
        let first = view_of(&life, "post");
        assert_eq!(numbers(&first), [1], "{first:?}");
        assert_eq!(first.backups[0].name, "post-2026-11-27-1234-1");
        let listed = life.listed().await;
        for volume in ["mail/a", "logs/b"] {
            assert_eq!(listed[volume][0].name, "post-2026-11-27-1234-1");
        }
        assert_eq!(order(&life, "post", SetOrder::BackUp { holds: vec!["upgrade".into()] }).await, Ok(2));
        life.sleep(5 * QUARTER_S).await;
        let view = view_of(&life, "post");
        // Three of quarters, the first one of the day, and the one that is held.
        assert_eq!(numbers(&view), [1, 2, 5, 6, 7], "{view:?}");
        let refused = order(&life, "post", follow(2, PersonOrder::Delete { may_be_last: false })).await;
        assert!(refused.unwrap_err().contains("backup 2 stays: held: upgrade"));
        let release = PersonOrder::Release { hold: "upgrade".into() };
        assert_eq!(order(&life, "post", follow(2, release)).await, Ok(2));
        let delete = PersonOrder::Delete { may_be_last: false };
        assert_eq!(order(&life, "post", follow(2, delete.clone())).await, Ok(2));
        let unknown = order(&life, "post", follow(2, delete)).await.unwrap_err();
        assert!(unknown.starts_with("Unknown") && unknown.contains("there is no backup 2"), "{unknown}");
        let listed = life.listed().await;
        assert_eq!((listed["mail/a"].len(), listed["logs/b"].len()), (4, 4));
        let lines = life.said();
        assert!(
            lines.iter().any(|line| line.contains("set post: post-2026-11-27-1235-2 is deleted")),
            "{lines:?}"
        );
        assert!(lines.iter().all(|line| !line.contains("was not made")), "{lines:?}");
        life.server.stop().await;
    });
}

#[test]
fn a_lost_catalogue_is_made_again_from_the_notes_in_the_pools() {
    run(7, async |life, catalogues| {
        let mut life = life.begin(SITE).await.unwrap();
        life.open();
        life.sleep(10).await;
        assert_eq!(order(&life, "post", SetOrder::BackUp { holds: Vec::new() }).await, Ok(2));
        let lost = view_of(&life, "post");
        let orders = || {
            let sets = life.server.handle().sets();
            let SetKeeping::Server { orders, .. } = &sets[0].keeping else { panic!("{sets:?}") };
            orders.clone()
        };
        let refused = format!("{:?}", orders().rebuild(None).await.unwrap_err());
        assert!(refused.contains("no pool has a backup of post that is not in its catalogue"), "{refused}");
        assert_eq!(numbers(&view_of(&life, "post")), [1, 2], "it stays as it was");
        // The file is gone, and the set goes on with an empty one.
        catalogues.lose("post");
        life.sleep(QUARTER_S).await;
        let new = view_of(&life, "post");
        assert_ne!(new.id, lost.id);
        assert!(new.problems.contains_key(&SetProblem::Strays), "{new:?}");
        let made_since = numbers(&new);
        let rebuilt = orders().rebuild(None).await.unwrap();
        assert_eq!((rebuilt.id.to_string(), rebuilt.backups.len()), (lost.id.clone(), 2), "{rebuilt:?}");
        life.sleep(10).await;
        let view = view_of(&life, "post");
        assert_eq!(view.id, lost.id);
        let names = |view: &SetView| -> Vec<String> {
            view.backups.iter().map(|backup| backup.name.clone()).collect()
        };
        assert!(names(&view).starts_with(&names(&lost)), "{view:?}");
        // Those of the catalogue in between are another's now, and stay.
        let strays = &view.problems[&SetProblem::Strays];
        assert!(strays.contains(&format!("{} points are of another", 2 * made_since.len())), "{strays}");
        let made = order(&life, "post", SetOrder::BackUp { holds: Vec::new() }).await.unwrap();
        assert!(made > 2, "numbers go on");
        // Its parts are of one file: of another one, none is read.
        let part = orders().read_catalogue(0, None).await.unwrap();
        assert_eq!(orders().read_catalogue(0, Some(0)).await.unwrap(), part);
        let refused = format!("{:?}", orders().read_catalogue(part.len() as u64, Some(1)).await.unwrap_err());
        assert!(
            refused.contains("Refused") && refused.contains("summed up while they were read"),
            "{refused}"
        );
        life.server.stop().await;
    });
}

#[test]
fn a_catalogue_that_cannot_be_written_stops_its_set_until_it_can() {
    run(2, async |life, catalogues| {
        let mut life = life.begin(&minutes()).await.unwrap();
        life.open();
        life.sleep(10).await;
        let before = numbers(&view_of(&life, "post"));
        catalogues.file("post").set_faults(StateFileFaults { no_space: 0..u64::MAX, ..Default::default() });
        life.said();
        // The next minute begins with a line that finds no space.
        life.sleep(70).await;
        let sets = life.server.handle().sets();
        let SetKeeping::Server { problem: Some(problem), view: Some(view), .. } = &sets[0].keeping else {
            panic!("{sets:?}")
        };
        assert_eq!(numbers(view), before, "what it showed last");
        let refused = order(&life, "post", SetOrder::BackUp { holds: Vec::new() }).await.unwrap_err();
        assert!(refused.contains("set post is not kept now: ") && refused.contains(problem), "{refused}");
        let lines = life.said();
        assert!(
            lines.iter().any(|line| line.contains("serve: set post: ") && line.contains(problem)),
            "{lines:?}"
        );
        catalogues.file("post").set_faults(StateFileFaults::default());
        life.sleep(100).await;
        let view = view_of(&life, "post");
        assert!(
            view.problems.is_empty() && view.backups.last().unwrap().number > *before.last().unwrap(),
            "{view:?}"
        );
        assert!(matches!(&life.server.handle().sets()[0].keeping, SetKeeping::Server { problem: None, .. }));
        life.server.stop().await;
    });
}

#[test]
fn a_set_of_an_agent_is_shown_and_not_kept_and_other_rules_count_at_once() {
    run(3, async |life, catalogues| {
        let agent = minutes().replace(
            "[protect.keep]",
            "[protect.freeze]\n kind = 'filesystem'\n mounts = ['/srv']\n [protect.keep]",
        );
        let mut life = life.begin(&agent).await.unwrap();
        life.open();
        life.sleep(70).await;
        assert!(matches!(life.server.handle().sets()[0].keeping, SetKeeping::Agent));
        assert_eq!(catalogues.file("post").contents(), b"", "nobody opened its catalogue");
        life.apply(&minutes(), PlanOccasion::Reload).await.unwrap();
        life.sleep(200).await;
        let (all, first) = (numbers(&view_of(&life, "post")), view_of(&life, "post").id);
        assert!(all.len() == 4, "three of minutes, and the one of the quarter: {all:?}");
        life.apply(&minutes().replace("3x1min", "1x1min"), PlanOccasion::Reload).await.unwrap();
        life.sleep(60).await;
        let view = view_of(&life, "post");
        assert_eq!((view.backups.len(), view.id), (2, first), "the same catalogue, with other rules");
        life.apply(&agent, PlanOccasion::Reload).await.unwrap();
        life.said();
        life.sleep(70).await;
        assert_eq!(life.listed().await["mail/a"].len(), 2, "its backups stay");
        life.server.stop().await;
    });
}

/// The same site with backups each minute.
fn minutes() -> String {
    SITE.replace("'3x15min', '2x1d@03:00'", "'3x1min', '2x15min'").replace("at_least = 2", "at_least = 1")
}

/// Backups of a set that a server has shown, whatever became of it then.
#[derive(Clone, Debug, Default)]
struct SeenBackups {
    numbers: BTreeSet<u64>,
    /// Holds that nobody released, by number.
    held: BTreeMap<u64, String>,
}

impl SeenBackups {
    fn note(&mut self, view: &SetView) {
        self.numbers.extend(numbers(view));
    }

    /// Compares catalogue and pools with each other, and with what was seen; the pools in `hidden` are away.
    fn check(&self, catalogues: &SimCatalogues, listed: &Listed, hidden: Option<&str>) -> Result<(), String> {
        let handle = catalogues.file("post").open();
        let read = file::read(&handle, CatalogueScope::All).map_err(|error| error.to_string())?;
        let Some(read) = read else { return Err("there is no catalogue".to_owned()) };
        let rows: BTreeMap<u64, _> = read.catalogue.rows().collect();
        let is_hidden = |volume: &str| hidden == volume.split('/').next();
        let mut slots = BTreeSet::new();
        for (number, row) in &rows {
            let volumes = row.start.volumes.iter().filter(|volume| !is_hidden(volume));
            let has_point = |volume: &&String| listed[*volume].iter().any(|one| one.name == row.start.name);
            let (all, there) = (volumes.clone().count(), volumes.filter(has_point).count());
            let is_right = match row.stage {
                BackupStage::Cut => there == all,
                BackupStage::Failed | BackupStage::Deleted => there == 0,
                // A pool that is away may have more of it.
                BackupStage::Begun | BackupStage::Deleting => hidden.is_some(),
                BackupStage::Lost => false,
            };
            if !is_right {
                return Err(format!(
                    "backup {number} is {:?}, and {there} of {all} points are there",
                    row.stage
                ));
            }
            if row.stage != BackupStage::Failed {
                for slot in &row.start.slots {
                    if !slots.insert((slot.of, slot.start_s)) {
                        return Err(format!("backup {number} fills a slot of {} again", slot.of));
                    }
                }
            }
        }
        for (volume, snapshots) in listed {
            for snapshot in snapshots {
                let Ok(Some(note)) = PointNote::decode(snapshot.note.as_bytes()) else { continue };
                if !rows.contains_key(&note.sequence) {
                    return Err(format!("{volume}@{} is in no catalogue", snapshot.name));
                }
            }
        }
        let is_known = |number: &&u64| {
            let stage = rows.get(*number).map(|row| row.stage);
            matches!(stage, Some(BackupStage::Cut | BackupStage::Deleting | BackupStage::Deleted))
        };
        if let Some(number) = self.numbers.iter().find(|number| !is_known(number)) {
            return Err(format!("backup {number} was shown, and is {:?}", rows.get(number)));
        }
        let is_held = |(number, hold): &(&u64, &String)| {
            rows.get(*number).is_some_and(|row| row.stage == BackupStage::Cut && row.holds.contains(*hold))
        };
        match self.held.iter().find(|held| !is_held(held)) {
            Some((number, hold)) => Err(format!("backup {number} was held by {hold}, and is not")),
            None => Ok(()),
        }
    }
}

/// A part of a life of a server.
#[derive(Clone, Debug)]
enum Spell {
    Run {
        seconds: i64,
    },
    Now {
        hold: Option<String>,
    },
    /// Of the oldest backup that is shown.
    Hold {
        hold: String,
    },
    Delete,
    /// The site file does not have the set meanwhile.
    WithoutSet {
        seconds: i64,
    },
}

type SeenLedger = Rc<RefCell<SeenBackups>>;

async fn live(
    life: ScheduledLife,
    (catalogues, seen): (SimCatalogues, SeenLedger),
    spells: Vec<Spell>,
    hidden: Option<&'static str>,
) -> Result<(), String> {
    let occasion = if hidden.is_some() { PlanOccasion::Start } else { PlanOccasion::Apply };
    let mut life = life.begin_by(&minutes(), occasion).await?;
    life.open();
    life.sleep(3).await;
    for spell in spells.into_iter().chain([Spell::Run { seconds: 20 }]) {
        let oldest = view_of(&life, "post").backups.first().map(|backup| backup.number);
        match &spell {
            Spell::Run { seconds } => life.sleep(*seconds).await,
            Spell::Now { hold } => {
                let given = SetOrder::BackUp { holds: hold.iter().cloned().collect() };
                if let (Ok(number), Some(hold)) = (order(&life, "post", given).await, hold) {
                    seen.borrow_mut().held.insert(number, hold.clone());
                }
            }
            Spell::Hold { hold } => {
                let Some(number) = oldest else { continue };
                let given = follow(number, PersonOrder::Hold { hold: hold.clone() });
                if order(&life, "post", given).await.is_ok() {
                    seen.borrow_mut().held.insert(number, hold.clone());
                }
            }
            Spell::Delete => {
                let Some(number) = oldest else { continue };
                let given = follow(number, PersonOrder::Delete { may_be_last: true });
                let is_held = seen.borrow().held.contains_key(&number);
                if order(&life, "post", given).await.is_ok() && is_held {
                    return Err(format!("backup {number} is held and was deleted"));
                }
            }
            Spell::WithoutSet { seconds } => {
                if hidden.is_some() {
                    continue;
                }
                let text = minutes();
                let without = &text[..text.find("[[protect]]").unwrap()];
                life.apply(without, PlanOccasion::Reload).await?;
                // The flow ends a round that is under way.
                life.sleep(1).await;
                let before = life.listed().await;
                life.sleep(*seconds).await;
                let after = life.listed().await;
                if before != after {
                    return Err(format!("the file has no set, and {before:?} became {after:?}"));
                }
                life.apply(&text, PlanOccasion::Reload).await?;
                life.sleep(3).await;
            }
        }
        // A round that is under way ends first.
        while life.civil_s() % 60 < 5 {
            life.sleep(1).await;
        }
        let view = view_of(&life, "post");
        seen.borrow_mut().note(&view);
        let is_waiting = hidden.is_none() && view.problems.contains_key(&SetProblem::Waiting);
        if is_waiting || view.problems.contains_key(&SetProblem::Strays) {
            return Err(format!("after {spell:?}: {:?}", view.problems));
        }
        let listed = life.listed().await;
        let checked = seen.borrow().check(&catalogues, &listed, hidden);
        checked.map_err(|why| format!("after {spell:?}: {why}"))?;
    }
    life.server.stop().await;
    Ok(())
}

fn draw(random: &mut Random, number: u64) -> Vec<Spell> {
    let spells = 1 + random.below(3);
    (0..spells)
        .map(|part| match random.below(6) {
            0 => Spell::Now { hold: random.percent(50.0).then(|| format!("now {number}-{part}")) },
            1 => Spell::Hold { hold: format!("hold {number}-{part}") },
            2 => Spell::Delete,
            3 => Spell::WithoutSet { seconds: 61 },
            _ => Spell::Run { seconds: 20 + random.below(150) as i64 },
        })
        .collect()
}

/// Lives of a server, which crash or end. Returns the number of crashes.
fn lives(
    seed: u64,
    plan: &mut dyn FnMut(&mut Random, u64) -> LifePlan,
    number_of: u64,
) -> Result<u64, String> {
    let mut fixture = Fixture::new(seed);
    let mut random = fixture.simulation.random("lives");
    let seen = SeenLedger::default();
    let mut crashes = 0;
    for number in 0..number_of {
        let LifePlan { spells, hidden, polls } = plan(&mut random, number);
        if let Some(pool) = hidden {
            fixture.hide_pool(pool, true);
        }
        let limits = SimLimits { polls, span: Duration::from_secs(86_400), ..SimLimits::generous() };
        let (life, surroundings) = (fixture.life(), (fixture.catalogues.clone(), Rc::clone(&seen)));
        let shown = format!("life {number}: {spells:?}, without {hidden:?}, {polls:?} polls");
        match fixture
            .simulation
            .run(limits, |world| live(life.in_world(&world), surroundings, spells, hidden))
        {
            SimOutcome::Completed(Ok(())) => {}
            SimOutcome::Completed(Err(why)) => return Err(format!("{shown}: {why}")),
            SimOutcome::Crashed => {
                crashes += 1;
                fixture.crash(random.percent(50.0));
            }
            other => return Err(format!("{shown}: {other:?}")),
        }
        if let Some(pool) = hidden {
            fixture.hide_pool(pool, false);
        }
        fixture.pass(random.below(300) as i64);
    }
    Ok(crashes)
}

struct LifePlan {
    spells: Vec<Spell>,
    hidden: Option<&'static str>,
    /// Steps of tasks after which the server crashes.
    polls: Option<u64>,
}

#[test]
fn whatever_crashes_each_backup_is_there_or_was_deleted_by_name() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let (seeds, number_of) = match number("SPINDLE_SEED") {
        // `cargo xtask sim protect`
        Some(first) => (first..first + number("SPINDLE_SEEDS").unwrap_or(1), 6),
        None if std::env::var_os("SPINDLE_FULL").is_some() => (0..100, 30),
        None => (0..2, 6),
    };
    let (mut crashes, count) = (0, seeds.end - seeds.start);
    for seed in seeds {
        println!("SPINDLE_SEED={seed}");
        let plan = &mut |random: &mut Random, number| LifePlan {
            spells: draw(random, number),
            // The first life makes the pools.
            hidden: (number > 0 && random.percent(20.0)).then(|| ["mail", "logs"][random.below(2) as usize]),
            polls: (number > 0 && random.percent(60.0)).then(|| 1 + random.below(6_000)),
        };
        match lives(seed, plan, number_of) {
            Ok(more) => crashes += more,
            Err(violation) => panic!("seed {seed}: {violation}"),
        }
    }
    assert!(crashes > 0 || count == 1, "{crashes} crashes in {count} seeds");
}

/// Backups that push others out, a pool that is away, a file without the set.
fn calm_lives() -> Result<u64, String> {
    let plan = &mut |_: &mut Random, number| LifePlan {
        spells: match number {
            0 => vec![Spell::Run { seconds: 260 }],
            1 => vec![Spell::Run { seconds: 70 }],
            _ => vec![Spell::WithoutSet { seconds: 70 }],
        },
        hidden: (number == 1).then_some("logs"),
        polls: None,
    };
    lives(1, plan, 3)
}

#[test]
fn each_planted_bug_of_sets_is_noticed() {
    assert_eq!(calm_lives(), Ok(0));
    for bug in SetBug::ALL {
        let noticed = with_set_bug(bug, calm_lives);
        println!("note: {bug:?}: {noticed:?}");
        assert!(noticed.is_err(), "{bug:?} escaped");
    }
}
