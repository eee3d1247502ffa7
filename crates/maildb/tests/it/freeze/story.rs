//! Seeded stories of a group that is frozen while sessions commit.

use super::load::{Load, SESSIONS};
use crate::{
    model,
    simulated::{DATABASE, SimulatedDrive, open, read_all},
};
use maildb::{
    Error, FrozenGroup, Instance, InstanceConfig, LogRetention, PageSize,
    format::header::read_header,
    log::{LogFiles, LogReader},
};
use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    time::Duration,
};
use verify::in_world::{verify_database, verify_trees};
use world::{
    ByteCount, Directory, ExtentDirectory, Moment, Random, World,
    sim::{DriveOptions, FaultPlan, SimDrive, SimLimits, SimOutcome},
    with_deadline,
};

const FREEZES: usize = 3;
const DRIVE: ByteCount = ByteCount::mib(16);

/// Contents of the drive while the group was frozen.
struct Cut {
    bytes: Vec<u8>,
    answered: [usize; SESSIONS],
    generation: u32,
}

/// One group on its drive, and what it did.
struct Story {
    seed: u64,
    disk: SimulatedDrive,
    config: InstanceConfig,
    scene: Scene,
}

/// The state that the tasks of a story share.
#[derive(Clone)]
struct Scene {
    drive: Rc<SimDrive>,
    load: Rc<Load>,
    cuts: Rc<RefCell<Vec<Cut>>>,
    /// The group is frozen now.
    is_frozen: Rc<Cell<bool>>,
    /// The drive may refuse to write.
    may_fail: Rc<Cell<bool>>,
}

impl Story {
    fn new(seed: u64) -> Self {
        let disk = SimulatedDrive::formatted(seed, DriveOptions::new(DRIVE));
        let mut random = disk.simulation.random("story");
        let page_size = [PageSize::Kib4, PageSize::Kib8][random.below(2) as usize];
        let page_bytes = page_size.bytes() as u64;
        let mut config = model::config(page_size, ByteCount((64 + random.below(64)) * page_bytes));
        config.checkpoint_depth = ByteCount::kib(32 << random.below(3));
        config.coalesce = ByteCount(page_bytes << random.below(3));
        config.log_file = ByteCount::kib(64 << random.below(2));
        config.log_buffer = ByteCount::kib(64 << random.below(3));
        config.extension_pages = 32;
        config.writes_outstanding_max = 1 + random.below(8) as usize;
        config.log_retention = match random.percent(50.0) {
            true => LogRetention::Circular,
            false => LogRetention::UntilReleased,
        };
        let drive = Rc::clone(&disk.drive);
        let (load, cuts, is_frozen, may_fail) = Default::default();
        Self { seed, disk, config, scene: Scene { drive, load, cuts, is_frozen, may_fail } }
    }

    /// Opens the group, and runs `freezes` beside its load.
    fn run<F: Future<Output = ()>>(
        &mut self,
        limits: SimLimits,
        freezes: impl FnOnce(Scene, World, Rc<Instance>) -> F + 'static,
    ) -> SimOutcome<()> {
        let (config, scene, drive) = (self.config.clone(), self.scene.clone(), Rc::clone(&self.disk.drive));
        self.disk.simulation.run(limits, |world| async move {
            let directory = ExtentDirectory::open(drive).await.expect("the drive has a directory");
            let directory: Rc<dyn Directory> = Rc::new(directory);
            let instance = Rc::new(open(&world, &directory, config).await.expect("a new group opens"));
            let table = model::mail_table(&instance.databases()[0]).await;
            let sessions = scene.load.start(&world, &instance, &table);
            freezes(scene.clone(), world, Rc::clone(&instance)).await;
            scene.load.stop();
            for session in sessions {
                session.await;
            }
            let instance = Rc::into_inner(instance).expect("nobody else has it");
            if !scene.may_fail.get() {
                instance.close().await.expect("a group that works can be closed");
            }
        })
    }

    /// Opens the group after its end: it holds what must survive.
    fn expect_survival(&mut self) {
        let (config, load) = (self.config.clone(), Rc::clone(&self.scene.load));
        self.disk.run(move |world, directory| async move {
            let instance = open(&world, &directory, config).await.expect("the group opens again");
            load.expect_survival(&read_all(&instance.databases()[0]).await.expect("it can be read"));
            instance.close().await.expect("and closes");
        });
    }
}

/// Freezes a group while it works, and opens every cut taken meanwhile; returns their number.
pub fn frozen_again_and_again(seed: u64) -> usize {
    let mut story = Story::new(seed);
    let limits = SimLimits { span: Duration::from_secs(60), ..SimLimits::generous() };
    story.run(limits, freeze_often).completed();
    let cuts = std::mem::take(&mut *story.scene.cuts.borrow_mut());
    for cut in &cuts {
        story.expect_cut(cut);
    }
    story.scene.load.require_answered();
    story.expect_survival();
    cuts.len()
}

/// Crashes a group at some moment of its work; true if it was frozen then.
pub fn crashed(seed: u64) -> bool {
    let mut story = Story::new(seed);
    let mut random = story.disk.simulation.random("crash");
    let polls = 2_f64.powf(9.0 + random.unit() * 4.0) as u64;
    let span = Duration::from_millis(random.below(400));
    // Few tasks are polled while the group is frozen, but time passes.
    let limits = match random.percent(50.0) {
        true => SimLimits { polls: Some(polls), ..SimLimits::generous() },
        false => SimLimits { span, ..SimLimits::generous() },
    };
    let outcome = story.run(limits, freeze_often);
    let is_ended = matches!(outcome, SimOutcome::Completed(()) | SimOutcome::Crashed | SimOutcome::TimedOut);
    assert!(is_ended, "{outcome:?}");
    match random.percent(70.0) {
        true => story.disk.simulation.cut_power(),
        false => story.disk.simulation.kill(),
    }
    story.expect_survival();
    story.scene.is_frozen.get()
}

/// Lets writes fail while a group is being frozen, or is frozen; true if that stopped it.
pub fn failing(seed: u64) -> bool {
    let mut story = Story::new(seed);
    let limits = SimLimits { span: Duration::from_secs(60), ..SimLimits::generous() };
    story
        .run(limits, |scene, world, instance| async move {
            let mut random = world.random("failing writes");
            let faults =
                FaultPlan { failed_write_percent: 100.0, failed_flush_percent: 100.0, ..FaultPlan::none() };
            world.sleep(Duration::from_millis(5 + random.below(50))).await;
            let deadline = world.now() + Duration::from_secs(5);
            if random.percent(50.0) {
                scene.may_fail.set(true);
                let (drive, after) = (Rc::clone(&scene.drive), Duration::from_micros(random.below(4000)));
                let failing = world.clone();
                world.spawn("failing writes", async move {
                    failing.sleep(after).await;
                    drive.set_faults(faults);
                });
                if let Ok(frozen) = instance.freeze(deadline).await {
                    scene.load.require_answered();
                    world.sleep(Duration::from_millis(5)).await;
                    assert!(frozen.thaw(), "failing writes do not thaw a group");
                }
                return;
            }
            // Nothing is written while the group is frozen: nobody notices.
            let frozen = instance.freeze(deadline).await.expect("the drive works");
            scene.drive.set_faults(faults);
            world.sleep(Duration::from_millis(random.below(300))).await;
            scene.drive.set_faults(FaultPlan::none());
            assert!(frozen.thaw());
            let before = scene.load.answered();
            world.sleep(Duration::from_millis(50)).await;
            assert!(scene.load.failed.get() == 0 && scene.load.answered() > before, "the load goes on");
        })
        .completed();
    story.disk.drive.set_faults(FaultPlan::none());
    story.disk.simulation.cut_power();
    story.expect_survival();
    story.scene.load.failed.get() > 0
}

async fn freeze_often(scene: Scene, world: World, instance: Rc<Instance>) {
    let mut random = world.random("freezes");
    for _ in 0..FREEZES {
        world.sleep(Duration::from_millis(1 + random.below(40))).await;
        let is_short = random.percent(15.0);
        let span = if is_short { random.below(3000) } else { 50_000 + random.below(100_000) };
        let deadline = world.now() + Duration::from_micros(span);
        // Given up at any moment of its preparation, a freeze leaves nothing held: the load ends.
        let patience = if random.percent(25.0) { random.below(4000) } else { 1_000_000 };
        let patience = world.sleep(Duration::from_micros(patience));
        match with_deadline(patience, instance.freeze(deadline)).await {
            Some(Ok(frozen)) => scene.hold(&world, frozen, deadline, &mut random).await,
            Some(Err(Error::NotFrozen(_))) => {
                assert!(is_short && world.now() >= deadline, "50 ms are enough for a drive without faults");
            }
            Some(Err(other)) => panic!("the drive works, but {other}"),
            None => {}
        }
    }
}

impl Scene {
    /// Holds a freeze: nothing is written and nothing answered until it ends, in one of three ways.
    async fn hold(&self, world: &World, frozen: FrozenGroup, deadline: Moment, random: &mut Random) {
        let answered = self.load.answered();
        self.load.require_answered();
        self.is_frozen.set(true);
        let writes = self.drive.statistics().writes;
        let left = deadline.since(world.now()).as_micros() as u64;
        let end = random.below(3);
        // Before the deadline, or just up to it.
        let held = if end == 0 { left - left / 100 } else { random.below(left) };
        let cut_after = random.below(held + 1);
        world.sleep(Duration::from_micros(cut_after)).await;
        let mut bytes = vec![0; DRIVE.0 as usize];
        self.drive.peek(0, &mut bytes);
        world.sleep(Duration::from_micros(held - cut_after)).await;
        assert_eq!(self.load.answered(), answered, "a commit was answered while the group was frozen");
        assert_eq!(self.drive.statistics().writes, writes, "something was written while it was frozen");
        assert!(frozen.is_held() && frozen.deadline() == deadline);
        self.cuts.borrow_mut().push(Cut { bytes, answered, generation: frozen.generation() });
        match end {
            0 => {
                world.sleep_until(deadline + Duration::from_micros(1)).await;
                self.is_frozen.set(false);
                assert!(!frozen.is_held(), "the deadline has passed");
                assert!(!frozen.thaw(), "the deadline was first");
            }
            1 => drop(frozen),
            _ => assert!(frozen.thaw(), "nobody thawed it before"),
        }
        self.is_frozen.set(false);
    }
}

impl Story {
    /// Opens a cut: its headers are marked, its last log generation is empty, it holds exactly what was
    /// answered, and every page is sound.
    fn expect_cut(&self, cut: &Cut) {
        let mut disk = SimulatedDrive::formatted(self.seed, DriveOptions::new(DRIVE));
        disk.drive.poke(0, &cut.bytes);
        let (config, load) = (self.config.clone(), Rc::clone(&self.scene.load));
        let (generation, answered) = (cut.generation, cut.answered);
        disk.run(move |world, directory| async move {
            expect_mark(&directory, generation).await;
            let instance = open(&world, &directory, config).await.expect("the cut opens");
            let found = read_all(&instance.databases()[0]).await.expect("and can be read");
            load.expect_exactly(&found, answered);
            instance.close().await.expect("and closed");
            let file = || directory.open(DATABASE);
            let header = read_header(&file().await.expect("there")).await.expect("readable");
            assert_eq!(header.best().expect("whole").snapshot, None, "the database lives on: no mark");
            let file = file().await.expect("there");
            let pages = verify_database(Rc::clone(&file), DATABASE, &mut |_, _| {}).await.expect("readable");
            assert!(pages.is_clean(), "{:?}", pages.damaged);
            let trees = verify_trees(file, DATABASE).await.expect("readable");
            assert!(trees.findings.is_empty(), "{:?}", trees.findings);
        });
    }
}

/// The header names the freeze, and no record lies in the generation that began with it.
async fn expect_mark(directory: &Rc<dyn Directory>, generation: u32) {
    let file = directory.open(DATABASE).await.expect("there");
    let header = read_header(&file).await.expect("readable");
    let mark = header.best().expect("whole").snapshot.expect("a frozen database is marked");
    assert_eq!(mark.generation_max, generation - 1);
    assert!(mark.generation_min <= mark.generation_max && mark.position.generation < generation);
    let files = LogFiles::scan(directory, "E00").await.expect("readable");
    assert_eq!(files.newest(), Some(generation), "the log is in the new generation");
    let mut reader = LogReader::from_oldest(files).expect("connected");
    let mut end = None;
    while let Some(entry) = reader.next().await.expect("whole") {
        end = Some(entry.end);
    }
    assert_eq!(end, Some(mark.position), "the log ends where the mark says");
}
