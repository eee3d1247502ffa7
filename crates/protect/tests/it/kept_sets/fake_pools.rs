//! Two pools and an application after a script, with what really happened to them.

use protect::{
    backup::{Consistency, Freezable, StepError, StepResult, control_socket::LogRelease},
    catalogue::{BackupStage, CatalogueScope, CutPoint, FoundPoint, LabelWord, PointNote, SetId, file::read},
    retention::BackupProof,
    set_keeper::{
        BackupPools, MadeBackup, PoolRoom, PoolsAnswer, ReleasedLogs, RoundFreeze, SetFreezing, WantedCut,
    },
};
use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
    future::ready,
    rc::Rc,
    time::Duration,
};
use world::{LocalFuture, Moment, Random, StateFile, World, sim::SimStateFile};

const POOLS: [&str; 2] = ["east", "west"];

/// Everything that outlives a keeper, and what is known to be true.
pub struct Surroundings {
    pub disk: SimStateFile,
    points: RefCell<Vec<FoundPoint>>,
    next_point: Cell<u64>,
    /// Percent of operations that fail.
    failing: Cell<f64>,
    silent: Cell<Option<&'static str>>,
    is_full: Cell<bool>,
    /// Logs that are released cannot go.
    pub is_log_stuck: Cell<bool>,
    in_use: RefCell<BTreeSet<CutPoint>>,
    /// Backups that had begun, or were being deleted, when the faults were drawn.
    ending_before: RefCell<BTreeSet<u64>>,
    /// Stages of the backups, as of this size of the catalogue.
    stages: RefCell<BTreeMap<u64, BackupStage>>,
    read_at: Cell<u64>,
    pub made: RefCell<BTreeSet<u64>>,
    pub held: RefCell<BTreeSet<u64>>,
    pub removed_by_people: RefCell<BTreeSet<u64>>,
    pub heard: RefCell<BTreeSet<&'static str>>,
}

impl Surroundings {
    pub fn new(seed: u64) -> Self {
        Self {
            disk: SimStateFile::new("mail.catalogue", seed),
            points: RefCell::default(),
            next_point: Cell::new(1),
            failing: Cell::new(0.0),
            silent: Cell::new(None),
            is_full: Cell::new(false),
            is_log_stuck: Cell::new(false),
            in_use: RefCell::default(),
            ending_before: RefCell::default(),
            stages: RefCell::default(),
            read_at: Cell::new(0),
            made: RefCell::default(),
            held: RefCell::default(),
            removed_by_people: RefCell::default(),
            heard: RefCell::default(),
        }
    }

    pub fn draw_faults(&self, random: &mut Random) {
        // A power cut may have left a catalogue of the same size.
        self.read_at.set(0);
        self.failing.set([0.0, 5.0, 30.0][random.below(3) as usize]);
        self.silent.set(random.percent(20.0).then(|| POOLS[random.below(2) as usize]));
        self.is_full.set(random.percent(15.0));
        let points = self.points.borrow();
        let used = points.iter().filter(|_| random.percent(10.0)).map(|found| found.point.clone());
        *self.in_use.borrow_mut() = used.collect();
        *self.ending_before.borrow_mut() = self.ending();
    }

    pub fn end_faults(&self) {
        self.read_at.set(0);
        self.failing.set(0.0);
        self.silent.set(None);
        self.is_full.set(false);
        self.in_use.borrow_mut().clear();
    }

    pub fn note_made(&self, made: &MadeBackup) {
        if made.label.is_some() {
            let is_new = self.made.borrow_mut().insert(made.number);
            assert!(is_new, "number {} is given again", made.number);
        } else {
            assert!(!made.problems.is_empty(), "a backup that was not made says why");
        }
    }

    /// A person deletes a point past the set.
    pub fn remove_by_person(&self, random: &mut Random) {
        let mut points = self.points.borrow_mut();
        if points.is_empty() {
            return;
        }
        let index = random.below(points.len() as u64) as usize;
        let gone = points.remove(index);
        self.removed_by_people.borrow_mut().insert(number_of(&gone));
    }

    /// Numbers of the backups that have points.
    pub fn numbers(&self) -> BTreeSet<u64> {
        self.points.borrow().iter().map(number_of).collect()
    }

    /// The catalogue has a backup in one of these stages before this happens to its points.
    fn expect_stage(&self, number: u64, allowed: &[BackupStage], what: &str) {
        // Reading it again and again takes time: it is looked at while something fails.
        if self.failing.get() == 0.0 && self.silent.get().is_none() && !self.is_full.get() {
            return;
        }
        let size = self.disk.open().size().expect("power");
        if self.read_at.replace(size) != size {
            let read = read(&self.disk.open(), CatalogueScope::Live).expect("intact").expect("a catalogue");
            let stages = read.catalogue.rows().map(|(number, row)| (number, row.stage));
            *self.stages.borrow_mut() = stages.collect();
        }
        let stage = self.stages.borrow().get(&number).copied();
        assert!(
            stage.is_some_and(|stage| allowed.contains(&stage)),
            "backup {number} {what}, which is {stage:?}"
        );
    }

    /// The backup of this name is full, proven, and has all its points.
    fn expect_proven(&self, name: &str) {
        let read = read(&self.disk.open(), CatalogueScope::Live).expect("intact").expect("a catalogue");
        let (number, row) = read
            .catalogue
            .live()
            .find(|(_, row)| row.start.name == name)
            .unwrap_or_else(|| panic!("logs go for {name}, which is no backup that exists"));
        assert!(row.start.kind.is_full() && row.label == Some(LabelWord::Application), "{name} has all logs");
        assert_eq!(row.proof(), BackupProof::Proven, "logs go for {name}");
        let points = self.points.borrow();
        let there = points.iter().filter(|found| number_of(found) == number).count();
        assert_eq!(there, row.points.len(), "logs go for {name}, whose points are gone");
    }

    /// Backups whose points may have to go whatever uses them.
    fn ending(&self) -> BTreeSet<u64> {
        let Some(read) = read(&self.disk.open(), CatalogueScope::Live).expect("intact") else {
            return BTreeSet::new();
        };
        let rows = read.catalogue.rows().filter(|(_, row)| row.stage != BackupStage::Cut);
        rows.map(|(number, _)| number).collect()
    }
}

fn number_of(found: &FoundPoint) -> u64 {
    PointNote::decode(&found.note).expect("a note").expect("of a backup").sequence
}

/// The pools as one keeper asks them.
pub struct FakePools {
    world: World,
    place: Rc<Surroundings>,
    random: Rc<RefCell<Random>>,
}

impl FakePools {
    pub fn new(world: &World, place: &Rc<Surroundings>) -> Self {
        let random = Rc::new(RefCell::new(world.random("pools")));
        Self { world: world.clone(), place: Rc::clone(place), random }
    }

    fn fails(random: &RefCell<Random>, place: &Surroundings) -> bool {
        random.borrow_mut().percent(place.failing.get())
    }
}

/// Some time, with other tasks between.
async fn pause(world: &World, random: &RefCell<Random>) {
    let span = Duration::from_millis(random.borrow_mut().below(30));
    world.sleep(span).await;
}

impl BackupPools for FakePools {
    fn points(&self, set: &SetId) -> LocalFuture<PoolsAnswer> {
        let (world, place, random) = (self.world.clone(), Rc::clone(&self.place), Rc::clone(&self.random));
        let set = set.clone();
        Box::pin(async move {
            pause(&world, &random).await;
            let failed = POOLS
                .into_iter()
                .filter(|pool| place.silent.get() == Some(pool) || Self::fails(&random, &place));
            let silent: BTreeMap<String, String> =
                failed.map(|pool| (pool.to_owned(), "it is closed".to_owned())).collect();
            let asked: BTreeSet<String> = POOLS
                .iter()
                .map(|pool| (*pool).to_owned())
                .filter(|pool| !silent.contains_key(pool))
                .collect();
            let points = place.points.borrow();
            let is_of_set = |found: &&FoundPoint| {
                let note = PointNote::decode(&found.note).expect("a note").expect("of a backup");
                asked.contains(&found.point.pool) && note.set == set
            };
            let found = points.iter().filter(is_of_set).cloned().collect();
            let in_use = place.in_use.borrow().clone();
            PoolsAnswer { found, in_use, asked, silent, of_others: BTreeMap::new() }
        })
    }

    fn cut(&self, cut: WantedCut, deadline: Moment) -> LocalFuture<Result<Vec<CutPoint>, StepError>> {
        let (world, place, random) = (self.world.clone(), Rc::clone(&self.place), Rc::clone(&self.random));
        Box::pin(async move {
            pause(&world, &random).await;
            let note = PointNote::decode(cut.note.as_bytes()).expect("a note").expect("of a backup");
            place.expect_stage(note.sequence, &[BackupStage::Begun], "is cut");
            assert_eq!(note.points as usize, cut.volumes.len());
            if Self::fails(&random, &place) {
                // A pool that answers late has done it.
                let late = random.borrow_mut().below(25);
                world.sleep(Duration::from_secs(late)).await;
            }
            if world.now() >= deadline && random.borrow_mut().percent(50.0) {
                return Err(StepError("too late".to_owned()));
            }
            let mut points = Vec::new();
            for volume in &cut.volumes {
                pause(&world, &random).await;
                if place.silent.get() == Some(&volume.pool) || Self::fails(&random, &place) {
                    return Err(StepError(format!("pool {} is closed", volume.pool)));
                }
                let id = place.next_point.replace(place.next_point.get() + 1).to_string();
                let point = CutPoint { pool: volume.pool.clone(), volume: volume.volume.clone(), id };
                points.push(point.clone());
                let found = FoundPoint { point, name: cut.name.clone(), note: cut.note.clone().into_bytes() };
                place.points.borrow_mut().push(found);
            }
            pause(&world, &random).await;
            if Self::fails(&random, &place) { Err(StepError("no answer".to_owned())) } else { Ok(points) }
        })
    }

    fn remove(&self, points: Vec<CutPoint>) -> LocalFuture<StepResult> {
        let (world, place, random) = (self.world.clone(), Rc::clone(&self.place), Rc::clone(&self.random));
        Box::pin(async move {
            for point in points {
                pause(&world, &random).await;
                if place.silent.get() == Some(&point.pool) || Self::fails(&random, &place) {
                    return Err(StepError(format!("pool {} is closed", point.pool)));
                }
                let found = place.points.borrow().iter().find(|found| found.point == point).map(number_of);
                let Some(number) = found else { continue };
                place.expect_stage(number, &[BackupStage::Begun, BackupStage::Deleting], "loses a point");
                if place.in_use.borrow().contains(&point) {
                    let is_of_before = place.ending_before.borrow().contains(&number);
                    assert!(is_of_before, "backup {number} is in use, and is to go");
                    return Err(StepError("a clone uses it".to_owned()));
                }
                place.points.borrow_mut().retain(|found| found.point != point);
            }
            Ok(())
        })
    }

    fn rooms(&self) -> LocalFuture<Vec<PoolRoom>> {
        let used_bytes = if self.place.is_full.get() { 96 } else { 50 };
        let room = |pool: &str| PoolRoom { pool: pool.to_owned(), used_bytes, capacity_bytes: 100 };
        Box::pin(ready(vec![room("east")]))
    }
}

/// An application that does not always freeze, or thaws early.
pub struct ShakyApplication {
    world: World,
    place: Rc<Surroundings>,
    random: Rc<RefCell<Random>>,
}

impl ShakyApplication {
    pub fn of(world: &World, place: &Rc<Surroundings>) -> Self {
        let random = Rc::new(RefCell::new(world.random("application")));
        Self { world: world.clone(), place: Rc::clone(place), random }
    }

    fn step(&self) -> LocalFuture<StepResult> {
        let (world, random) = (self.world.clone(), Rc::clone(&self.random));
        let fails = random.borrow_mut().percent(self.place.failing.get() / 2.0);
        Box::pin(async move {
            pause(&world, &random).await;
            if fails { Err(StepError("as drawn".to_owned())) } else { Ok(()) }
        })
    }
}

impl SetFreezing for ShakyApplication {
    fn round(&self, _point: &str) -> RoundFreeze {
        RoundFreeze {
            things: vec![Rc::new(Self::of(&self.world, &self.place))],
            hook_runs: Box::new(Vec::new),
        }
    }

    fn release_logs(&self, point: &str) -> LocalFuture<Vec<ReleasedLogs>> {
        self.place.expect_proven(point);
        let (answers, is_stuck) = (self.step(), self.place.is_log_stuck.get());
        Box::pin(async move {
            let answered = answers.await.map(|()| LogRelease::Released { oldest: 7 });
            let result = match is_stuck {
                true => Err(StepError("the log volume is gone".to_owned())),
                false => answered,
            };
            vec![ReleasedLogs { of: "mail.sock".to_owned(), result }]
        })
    }
}

impl Freezable for ShakyApplication {
    fn describe(&self) -> String {
        "a shaky application".to_owned()
    }

    fn consistency(&self) -> Consistency {
        Consistency::Application
    }

    fn prepare(&self) -> LocalFuture<StepResult> {
        self.step()
    }

    fn freeze(&self, _deadline: Moment) -> LocalFuture<StepResult> {
        self.step()
    }

    fn thaw(&self) -> LocalFuture<Result<bool, StepError>> {
        let step = self.step();
        Box::pin(async move { Ok(step.await.is_ok()) })
    }

    fn after(&self) -> LocalFuture<StepResult> {
        self.step()
    }
}
