//! Times of host commands by stage, in plain cells: of one of [`SAMPLED_EVERY`] reads and writes, for clocks cost time.
//!
//! ```text
//! write   queue: limits, locks, room │ log: until its batch is written, and after │ device: batches with parts of it
//! read    queue: limits, the map     │                                            │ device: drives
//! ```
//!
//! Invariants:
//!
//! 1. The stages of a command add up to the time from its arrival at the volume to the pool's answer.
//! 2. A command that fails is not counted.

use std::{cell::Cell, rc::Rc, time::Duration};
use world::{LatencyCounts, LatencyHistogram, Moment, World, is_sampled};

/// Counts the stages of a pool's commands.
pub(crate) struct CommandStages {
    world: World,
    until_next: Cell<u32>,
    queue: LatencyHistogram,
    log: LatencyHistogram,
    device: LatencyHistogram,
}

/// The counts of one pool's stages at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StageCounts {
    /// Of sampled reads and writes.
    pub queue: LatencyCounts,
    /// Of sampled writes.
    pub log: LatencyCounts,
    /// Of sampled reads and writes.
    pub device: LatencyCounts,
}

/// Time that drives have worked for a command, added up by those who wait for them.
pub(crate) type DeviceTime = Rc<Cell<Duration>>;

/// Times one command.
pub(crate) struct StageClock {
    stages: Rc<CommandStages>,
    begun: Moment,
    /// End of the first stage; that of the command before it is set.
    queued: Cell<Option<Moment>>,
    pub device: DeviceTime,
}

impl CommandStages {
    pub fn new(world: &World) -> Rc<Self> {
        Rc::new(Self {
            world: world.clone(),
            until_next: Cell::new(0),
            queue: LatencyHistogram::default(),
            log: LatencyHistogram::default(),
            device: LatencyHistogram::default(),
        })
    }

    pub fn counts(&self) -> StageCounts {
        StageCounts { queue: self.queue.counts(), log: self.log.counts(), device: self.device.counts() }
    }

    /// A clock for a command that arrives now, if it is to be timed.
    pub fn begin(self: &Rc<Self>) -> Option<StageClock> {
        is_sampled(&self.until_next).then(|| StageClock {
            stages: Rc::clone(self),
            begun: self.world.now(),
            queued: Cell::new(None),
            device: DeviceTime::default(),
        })
    }
}

impl StageClock {
    /// The first stage has ended: the command is in the log's queue, or its blocks are known.
    pub fn leave_queue(&self) {
        self.queued.set(Some(self.stages.world.now()));
    }

    /// A write is answered.
    pub fn end_write(self) {
        let now = self.stages.world.now();
        let queued = self.queued.get().unwrap_or(now);
        let logged = now.since(queued);
        let device = self.device.get().min(logged);
        self.stages.queue.add(queued.since(self.begun));
        self.stages.log.add(logged - device);
        self.stages.device.add(device);
    }

    /// A read is answered.
    pub fn end_read(self) {
        let now = self.stages.world.now();
        let queued = self.queued.get().unwrap_or(now);
        self.stages.queue.add(queued.since(self.begun));
        self.stages.device.add(now.since(queued));
    }
}
