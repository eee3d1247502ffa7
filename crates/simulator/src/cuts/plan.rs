//! The decisions of a seed.

use array::simulation::canary::Canary;
use world::{ByteCount, Random, sim::DriveOptions};

const MIB: u64 = 1 << 20;

/// Options of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CutRunOptions {
    /// A bug to plant.
    pub bug: Option<Canary>,
}

/// The parameters of a run.
#[derive(Clone, Debug)]
pub struct CutRunPlan {
    /// Drives of each pool.
    pub drives: [usize; 2],
    pub drive: DriveOptions,
    /// Hosts, each with a block of its own in both pools.
    pub hosts: usize,
    /// Writes of the hosts wait for no drive; every few of them they flush.
    pub write_cache: bool,
    /// Incarnations that may crash.
    pub cycles: usize,
    /// Cuts of each incarnation, at most.
    pub cuts: u64,
    /// The longest that a pool's thread is busy with other things between two steps of a cut, in
    /// microseconds.
    pub thread_delay_us: u64,
    /// Of a hundred cuts, those whose caller in one pool goes away in between.
    pub leaving_percent: f64,
    /// Of a hundred incarnations, those in which the drives of one pool stop to take writes.
    pub failing_percent: f64,
    /// Of a hundred incarnations, those in which one pool is opened alone first.
    pub alone_percent: f64,
    /// Of a hundred cuts, those of the group.
    pub group_percent: f64,
    /// Clones and rollbacks of the group in each incarnation, at most.
    pub operations: u64,
}

impl CutRunPlan {
    pub fn draw(random: &mut Random) -> Self {
        let mut percent = |most: f64| if random.percent(50.0) { random.unit() * most } else { 0.0 };
        let (leaving_percent, failing_percent) = (percent(30.0), percent(40.0));
        let alone_percent = percent(60.0);
        Self {
            drives: [2 + random.below(2) as usize, 2 + random.below(2) as usize],
            drive: DriveOptions::new(ByteCount(65 * MIB)),
            hosts: 1 + random.below(3) as usize,
            write_cache: random.percent(40.0),
            cycles: 2 + random.below(4) as usize,
            cuts: 1 + random.below(6),
            thread_delay_us: [0, 200, 3000][random.below(3) as usize],
            leaving_percent,
            failing_percent,
            alone_percent,
            group_percent: if random.percent(80.0) { 60.0 } else { 0.0 },
            operations: random.below(9),
        }
    }
}
