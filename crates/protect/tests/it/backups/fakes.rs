//! An application that is frozen and a cutter, each after a script, and a journal of what was asked of them.

use super::span;
use protect::backup::{BackupCutter, Consistency, Freezable, StepError, StepResult};
use std::{
    cell::{Cell, RefCell},
    future::pending,
    rc::Rc,
    time::Duration,
};
use world::{LocalFuture, Moment, Random, World};

/// A step that was asked of a thing, by its number, or of the cutter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Prepare(usize),
    Freeze(usize),
    Hold,
    Cut,
    Release,
    Thaw(usize),
    After(usize),
}

impl Step {
    pub fn undoes(self) -> bool {
        matches!(self, Self::Release | Self::Thaw(_) | Self::After(_))
    }

    pub fn order_of_undoing(self) -> (u8, i64) {
        match self {
            Self::Thaw(number) => (1, -(number as i64)),
            Self::After(number) => (2, -(number as i64)),
            _ => (0, 0),
        }
    }
}

#[derive(Default)]
pub struct Journal(RefCell<Vec<Step>>);

impl Journal {
    pub fn steps(&self) -> Vec<Step> {
        self.0.borrow().clone()
    }

    fn add(&self, step: Step) {
        self.0.borrow_mut().push(step);
    }
}

/// The course of a step.
#[derive(Clone, Copy)]
enum Course {
    Succeeds(Duration),
    Fails(Duration),
    Hangs,
}

impl Course {
    fn draw(random: &mut Random) -> Self {
        match random.below(20) {
            0 => Self::Fails(span(random)),
            1 => Self::Hangs,
            _ => Self::Succeeds(span(random)),
        }
    }

    fn run(self, world: &World) -> LocalFuture<StepResult> {
        let world = world.clone();
        Box::pin(async move {
            match self {
                Self::Succeeds(span) => {
                    world.sleep(span).await;
                    Ok(())
                }
                Self::Fails(span) => {
                    world.sleep(span).await;
                    Err(StepError("as scripted".to_owned()))
                }
                Self::Hangs => pending().await,
            }
        })
    }
}

/// An application that thaws at its deadline, or earlier if it dies.
pub struct FakeApplication {
    world: World,
    journal: Rc<Journal>,
    number: usize,
    consistency: Consistency,
    /// Of prepare, freeze, thaw and after.
    courses: [Course; 4],
    /// Dies so long after it was frozen.
    life: Option<Duration>,
    /// Says that it was frozen even if its freeze failed, as a hook does that knows no better.
    boasts: bool,
    /// From when until when it was frozen, at most.
    frozen: Cell<Option<(Moment, Moment)>>,
    thawed: Cell<Option<Moment>>,
}

impl FakeApplication {
    pub fn new(world: &World, journal: &Rc<Journal>, number: usize, random: &mut Random) -> Rc<Self> {
        let consistency =
            if random.percent(50.0) { Consistency::Application } else { Consistency::Filesystem };
        let courses = [0; 4].map(|_| Course::draw(random));
        let life = random.percent(10.0).then(|| span(random));
        let boasts = random.percent(30.0);
        let (frozen, thawed) = Default::default();
        let (world, journal) = (world.clone(), Rc::clone(journal));
        Rc::new(Self { world, journal, number, consistency, courses, life, boasts, frozen, thawed })
    }

    /// One that does everything at once.
    pub fn sound(world: &World, journal: &Rc<Journal>) -> Rc<Self> {
        let (frozen, thawed) = Default::default();
        let courses = [Course::Succeeds(Duration::from_millis(1)); 4];
        let (world, journal, consistency) = (world.clone(), Rc::clone(journal), Consistency::Application);
        Rc::new(Self {
            world,
            journal,
            number: 0,
            consistency,
            courses,
            life: None,
            boasts: false,
            frozen,
            thawed,
        })
    }

    pub fn was_frozen_at(&self, moment: Moment) -> bool {
        let thawed = self.thawed.get().is_some_and(|thawed| thawed < moment);
        !thawed && self.frozen.get().is_some_and(|(from, until)| (from..=until).contains(&moment))
    }

    pub fn is_frozen(&self) -> bool {
        self.was_frozen_at(self.world.now())
    }
}

impl Freezable for FakeApplication {
    fn describe(&self) -> String {
        format!("application {}", self.number)
    }

    fn consistency(&self) -> Consistency {
        self.consistency
    }

    fn prepare(&self) -> LocalFuture<StepResult> {
        self.journal.add(Step::Prepare(self.number));
        self.courses[0].run(&self.world)
    }

    fn freeze(&self, deadline: Moment) -> LocalFuture<StepResult> {
        self.journal.add(Step::Freeze(self.number));
        let course = self.courses[1];
        // One that answers later than its deadline was never frozen.
        if let Course::Succeeds(span) = course {
            let from = self.world.now() + span;
            let until = self.life.map_or(deadline, |life| deadline.min(from + life));
            self.frozen.set((from <= deadline).then_some((from, until)));
        }
        course.run(&self.world)
    }

    fn thaw(&self) -> LocalFuture<Result<bool, StepError>> {
        self.journal.add(Step::Thaw(self.number));
        let was_frozen = self.is_frozen();
        let is_first = was_frozen || (self.boasts && self.frozen.get().is_none());
        self.thawed.set(Some(self.world.now()));
        let thawing = self.courses[2].run(&self.world);
        Box::pin(async move { thawing.await.map(|()| is_first) })
    }

    fn after(&self) -> LocalFuture<StepResult> {
        self.journal.add(Step::After(self.number));
        self.courses[3].run(&self.world)
    }
}

#[derive(Clone, Copy)]
pub struct CutterScript {
    hold: Course,
    cut: Course,
    release: Course,
    removal: Course,
}

impl CutterScript {
    pub fn draw(random: &mut Random) -> Self {
        let mut course = || Course::draw(random);
        Self { hold: course(), cut: course(), release: course(), removal: course() }
    }

    pub fn sound() -> Self {
        let course = Course::Succeeds(Duration::from_millis(1));
        Self { hold: course, cut: course, release: course, removal: course }
    }
}

/// A cutter behind a connection: a cut whose caller has left is taken all the same, unless it is too late.
pub struct FakeCutter {
    world: World,
    journal: Rc<Journal>,
    script: CutterScript,
    is_there: Rc<Cell<bool>>,
    returned_at: Rc<Cell<Option<Moment>>>,
}

impl FakeCutter {
    pub fn new(world: &World, journal: &Rc<Journal>, script: CutterScript) -> Self {
        let (is_there, returned_at) = Default::default();
        Self { world: world.clone(), journal: Rc::clone(journal), script, is_there, returned_at }
    }

    pub fn is_there(&self) -> bool {
        self.is_there.get()
    }

    pub fn returned_at(&self) -> Option<Moment> {
        self.returned_at.get()
    }

    pub fn refuses_removal(&self) -> bool {
        !matches!(self.script.removal, Course::Succeeds(_))
    }
}

impl BackupCutter for FakeCutter {
    fn hold(&self, _deadline: Moment) -> LocalFuture<StepResult> {
        self.journal.add(Step::Hold);
        self.script.hold.run(&self.world)
    }

    fn cut(&self, _name: &str, deadline: Moment) -> LocalFuture<StepResult> {
        self.journal.add(Step::Cut);
        let (world, is_there) = (self.world.clone(), Rc::clone(&self.is_there));
        let (returned_at, cutting) = (Rc::clone(&self.returned_at), self.script.cut.run(&self.world));
        Box::pin(self.world.spawn("cut", async move {
            cutting.await?;
            if world.now() > deadline {
                return Err(StepError("it arrived too late".to_owned()));
            }
            is_there.set(true);
            returned_at.set(Some(world.now()));
            Ok(())
        }))
    }

    fn release(&self) -> LocalFuture<StepResult> {
        self.journal.add(Step::Release);
        self.script.release.run(&self.world)
    }

    fn remove(&self, _name: &str) -> LocalFuture<StepResult> {
        let (is_there, removing) = (Rc::clone(&self.is_there), self.script.removal.run(&self.world));
        Box::pin(async move {
            removing.await?;
            is_there.set(false);
            Ok(())
        })
    }
}
