//! A run of one seed: incarnations one after the other, over drives that outlive them.

use super::{
    drive::SimDrive,
    drive_options::DriveOptions,
    executor::{Executor, NodeSpawner, SimClock, Step},
    network::{NetworkOptions, SimNetwork},
    node::SimNode,
    trace::SimTrace,
};
use crate::{Moment, Random, Spawn, World};
use std::{cell::RefCell, future::Future, rc::Rc, time::Duration};

/// Polls at one moment after which a run counts as livelocked: time would never move again.
const POLLS_AT_ONE_MOMENT_MAX: u64 = 1_000_000;

/// Polls a crash waits for a stable write, if one should be in flight.
const POLLS_TO_A_STABLE_WRITE_MAX: u64 = 300;

/// SimLimits that stop an incarnation.
#[derive(Clone, Copy, Debug)]
pub struct SimLimits {
    /// Stops after this many polls of tasks: a crash can hit between any two awaits of any task.
    pub polls: Option<u64>,
    /// At the poll limit, waits up to 300 more polls until a stable write is in flight: that is when there is
    /// most to tear.
    pub in_a_stable_write: bool,
    /// Stops after this much virtual time.
    pub span: Duration,
}

impl SimLimits {
    /// No crash, and an hour of virtual time.
    pub fn generous() -> Self {
        Self { polls: None, in_a_stable_write: false, span: Duration::from_secs(3600) }
    }
}

/// The end of an incarnation. After anything but `Completed`, call [`Simulation::cut_power`] or
/// [`Simulation::kill`] before the next one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SimOutcome<T> {
    /// `main` returned; the drives completed their operations.
    Completed(T),
    /// The poll limit was reached.
    Crashed,
    /// The time limit was reached.
    TimedOut,
    /// No task is ready and no event is pending; these tasks wait.
    Deadlocked(Vec<&'static str>),
    /// Tasks wake each other forever without time passing.
    Livelocked(Vec<&'static str>),
}

impl<T> SimOutcome<T> {
    /// The result of a `main` that must have returned. Panics otherwise.
    pub fn completed(self) -> T {
        match self {
            Self::Completed(value) => value,
            Self::Crashed => panic!("the run was stopped at its poll limit"),
            Self::TimedOut => panic!("the run did not end within its virtual time"),
            Self::Deadlocked(tasks) => panic!("deadlock: these tasks wait for nothing: {tasks:?}"),
            Self::Livelocked(tasks) => panic!("livelock: time stands still; tasks: {tasks:?}"),
        }
    }
}

/// A simulated world: one seed, one executor, drives and networks.
pub struct Simulation {
    executor: Rc<Executor>,
    seed: u64,
    incarnations: u64,
    drives: Vec<Rc<SimDrive>>,
    /// True if drives still hold operations of a crashed incarnation.
    is_crashed: bool,
    clocks: Random,
}

impl Simulation {
    /// A simulation without drives; everything in it follows from `seed`.
    pub fn new(seed: u64) -> Self {
        Self {
            executor: Executor::new(seed),
            seed,
            incarnations: 0,
            drives: Vec::new(),
            is_crashed: false,
            clocks: Random::new(seed, "civil clocks"),
        }
    }

    /// Adds a zeroed drive.
    pub fn add_drive(&mut self, options: DriveOptions) -> Rc<SimDrive> {
        let number = self.drives.len() as u64;
        let drive = Rc::new(SimDrive::new(Rc::clone(&self.executor), self.seed, number, options));
        self.drives.push(Rc::clone(&drive));
        drive
    }

    /// Adds a network without listeners.
    pub fn add_network(&self, options: NetworkOptions) -> SimNetwork {
        SimNetwork::new(Rc::clone(&self.executor), self.seed, options)
    }

    /// Adds a node that is down: a machine with tasks, clock, drives and network connections of its own.
    pub fn add_node(&self, name: &str) -> SimNode {
        SimNode::new(Rc::clone(&self.executor), self.seed, name)
    }

    /// The random stream `name` of the whole run.
    pub fn random(&self, name: &str) -> Random {
        Random::new(self.seed, name)
    }

    pub fn trace(&self) -> SimTrace {
        self.executor.trace()
    }

    /// Virtual time since the start.
    pub fn now(&self) -> Moment {
        self.executor.now()
    }

    /// Polls in the latest incarnation.
    pub fn polls(&self) -> u64 {
        self.executor.polls()
    }

    /// Runs `main` in a new incarnation until it returns or a limit stops it; then all its tasks are dropped.
    ///
    /// The incarnation's civil clock is off by up to a day: order must never come from it.
    pub fn run<T, F>(&mut self, limits: SimLimits, main: impl FnOnce(World) -> F) -> SimOutcome<T>
    where
        T: 'static,
        F: Future<Output = T> + 'static,
    {
        assert!(!self.is_crashed, "call cut_power or kill after a crash");
        self.incarnations += 1;
        let wall_ahead = self.clocks.below(2 * 86_400) as i64 - 86_400;
        self.executor.open(wall_ahead);
        let clock = Rc::new(SimClock::of_main(&self.executor));
        let spawner: Rc<dyn Spawn> = Rc::new(NodeSpawner::of_main(&self.executor));
        let world_seed = self.seed ^ self.incarnations.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let world = World::new(clock, Rc::clone(&spawner), world_seed);

        let result = Rc::new(RefCell::new(None));
        let slot = Rc::clone(&result);
        let main = main(world);
        spawner.spawn("main", Box::pin(async move { *slot.borrow_mut() = Some(main.await) }));
        let outcome = self.drive_until(limits, &result);
        self.executor.close();
        match outcome {
            SimOutcome::Completed(_) => self.drives.iter().for_each(|drive| drive.complete_all()),
            _ => self.is_crashed = true,
        }
        outcome
    }

    fn drive_until<T>(&self, limits: SimLimits, result: &RefCell<Option<T>>) -> SimOutcome<T> {
        let end = self.executor.now() + limits.span;
        let mut polls_at_this_moment = 0;
        loop {
            if let Some(value) = result.borrow_mut().take() {
                return SimOutcome::Completed(value);
            }
            if self.is_crash_due(limits) {
                return SimOutcome::Crashed;
            }
            match self.executor.step(end) {
                Step::Polled => polls_at_this_moment += 1,
                Step::Passed => polls_at_this_moment = 0,
                Step::Deadlock => return SimOutcome::Deadlocked(self.executor.task_names()),
                Step::TimeUp => return SimOutcome::TimedOut,
            }
            if polls_at_this_moment > POLLS_AT_ONE_MOMENT_MAX {
                return SimOutcome::Livelocked(self.executor.task_names());
            }
        }
    }

    fn is_crash_due(&self, limits: SimLimits) -> bool {
        let polls = self.executor.polls();
        let Some(limit) = limits.polls.filter(|&limit| polls >= limit) else { return false };
        !limits.in_a_stable_write
            || polls >= limit + POLLS_TO_A_STABLE_WRITE_MAX
            || self.drives.iter().any(|drive| drive.has_stable_write_under_way())
    }

    /// Cuts power: drives lose what was not stable, in part and torn, and come back.
    pub fn cut_power(&mut self) {
        self.drives.iter().for_each(|drive| drive.cut_power());
        self.is_crashed = false;
    }

    /// Kills the process: writes in flight land in part; accepted data stays in the drives' caches, as
    /// volatile as before.
    pub fn kill(&mut self) {
        self.drives.iter().for_each(|drive| drive.lose_host());
        self.is_crashed = false;
    }
}

/// Runs `main` once in a simulation of its own and returns its result and the trace. Panics if it does not
/// end.
pub fn run<T, F>(seed: u64, main: impl FnOnce(World) -> F) -> (T, SimTrace)
where
    T: 'static,
    F: Future<Output = T> + 'static,
{
    let mut simulation = Simulation::new(seed);
    let value = simulation.run(SimLimits::generous(), main).completed();
    (value, simulation.trace())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// Ten tasks that take turns by sleeping; returns the order in which they ended.
    async fn racers(world: World) -> Vec<u64> {
        let order = Rc::new(RefCell::new(Vec::new()));
        let tasks: Vec<_> = (0..10)
            .map(|number| {
                let (own, order) = (world.clone(), Rc::clone(&order));
                world.spawn("racer", async move {
                    own.sleep(Duration::from_millis(5)).await;
                    order.borrow_mut().push(number);
                })
            })
            .collect();
        for task in tasks {
            task.await;
        }
        order.take()
    }

    #[test]
    fn a_seed_is_one_run_and_seeds_differ() {
        assert_eq!(run(7, racers), run(7, racers));
        let (first, first_trace) = run(7, racers);
        let (second, second_trace) = run(8, racers);
        assert_ne!(first, second);
        assert_ne!(first_trace, second_trace);
    }

    #[test]
    fn sleeps_end_at_their_moment_in_virtual_time() {
        let (ended, _) = run(1, |world| async move {
            let late = world.spawn("late", {
                let world = world.clone();
                async move {
                    world.sleep(Duration::from_secs(86_400 / 48)).await;
                    world.now()
                }
            });
            world.sleep(Duration::from_micros(3)).await;
            (world.now(), late.await)
        });
        assert_eq!(ended, (Moment(3_000), Moment(1_800 * 1_000_000_000)));
    }

    #[test]
    fn deadlock_livelock_and_limits_are_distinguished() {
        let short = SimLimits { span: Duration::from_secs(1), ..SimLimits::generous() };
        let forever = |_| std::future::pending::<()>();
        assert_eq!(Simulation::new(1).run(short, forever), SimOutcome::Deadlocked(vec!["main"]));
        let spin = |_| {
            std::future::poll_fn(|context: &mut std::task::Context<'_>| {
                context.waker().wake_by_ref();
                std::task::Poll::<()>::Pending
            })
        };
        assert_eq!(Simulation::new(1).run(short, spin), SimOutcome::Livelocked(vec!["main"]));
        let sleeper = |world: World| async move { world.sleep(Duration::from_secs(9)).await };
        assert_eq!(Simulation::new(1).run(short, sleeper), SimOutcome::TimedOut);
        let crash = SimLimits { polls: Some(0), ..short };
        assert_eq!(Simulation::new(1).run(crash, sleeper), SimOutcome::Crashed);
    }

    #[test]
    fn a_crash_drops_every_task_even_if_a_destructor_spawns() {
        struct Last(World, Rc<Cell<u32>>);
        impl Drop for Last {
            fn drop(&mut self) {
                let count = Rc::clone(&self.1);
                count.set(count.get() + 1);
                self.0.spawn("too late", async move { count.set(100) });
            }
        }
        let dropped = Rc::new(Cell::new(0));
        let mut simulation = Simulation::new(3);
        let counted = Rc::clone(&dropped);
        let outcome =
            simulation.run(SimLimits { polls: Some(11), ..SimLimits::generous() }, |world| async move {
                for _ in 0..10 {
                    let last = Last(world.clone(), Rc::clone(&counted));
                    let own = world.clone();
                    world.spawn("holder", async move {
                        own.sleep(Duration::from_secs(5)).await;
                        drop(last);
                    });
                }
                std::future::pending::<()>().await;
            });
        assert_eq!((outcome, dropped.get()), (SimOutcome::Crashed, 10));
        simulation.cut_power();
        let second = simulation.run(SimLimits::generous(), |world| async move { world.now() });
        assert_eq!((second, dropped.get()), (SimOutcome::Completed(Moment(0)), 10));
    }

    #[test]
    fn each_incarnation_has_its_own_streams_and_civil_clock() {
        let mut simulation = Simulation::new(5);
        let mut draw = || {
            simulation
                .run(SimLimits::generous(), |world| async move {
                    (world.random("signatures").next_u64(), world.wall())
                })
                .completed()
        };
        let (first, second) = (draw(), draw());
        assert_ne!(first.0, second.0);
        assert_ne!(first.1, second.1);
    }
}
