//! A load: random commands of one size, with a fixed number under way.

use array::volume::VolumeDevice;
use std::{cell::Cell, rc::Rc, sync::Arc, time::Duration};
use world::{BlockDevice, Buffer, ByteOffset, IoError, Moment, Random, Stability, World};

/// A load on a volume.
#[derive(Clone, Copy)]
pub struct Load {
    pub read_percent: f64,
    pub bytes: usize,
    pub depth: u64,
    /// Stability of its writes.
    pub stability: Stability,
}

/// End of a load.
#[derive(Clone)]
pub enum Until {
    Then(Moment),
    /// After so many commands were begun.
    Commands(Rc<Cell<u64>>),
}

impl Until {
    pub fn commands(count: u64) -> Self {
        Self::Commands(Rc::new(Cell::new(count)))
    }

    /// True if another command may begin.
    fn goes_on(&self, now: Moment) -> bool {
        match self {
            Self::Then(end) => now < *end,
            Self::Commands(left) => left.get().checked_sub(1).map(|less| left.set(less)).is_some(),
        }
    }
}

/// A command that was completed.
#[derive(Clone, Copy, Debug)]
pub struct Command {
    pub is_read: bool,
    pub begun: Moment,
    pub took: Duration,
}

impl Load {
    /// Runs the load on a volume. Returns its commands.
    pub async fn run(
        self,
        world: &World,
        device: &VolumeDevice,
        until: Until,
    ) -> Result<Vec<Command>, IoError> {
        let lanes: Vec<_> = (0..self.depth)
            .map(|lane| {
                let random = world.random(&format!("lane {lane}"));
                world.spawn("lane", self.lane(world.clone(), device.clone(), random, until.clone()))
            })
            .collect();
        let mut commands = Vec::new();
        for lane in lanes {
            commands.extend(lane.await?);
        }
        Ok(commands)
    }

    async fn lane(
        self,
        world: World,
        device: VolumeDevice,
        mut random: Random,
        until: Until,
    ) -> Result<Vec<Command>, IoError> {
        let mut commands = Vec::new();
        let places = device.geometry().size.0 / self.bytes as u64;
        let mut data = Buffer::zeroed(self.bytes);
        random.fill(&mut data);
        let data = Arc::new(data);
        let mut buffers = vec![Buffer::zeroed(self.bytes)];
        loop {
            let begun = world.now();
            if !until.goes_on(begun) {
                return Ok(commands);
            }
            let at = ByteOffset(random.below(places) * self.bytes as u64);
            let is_read = random.percent(self.read_percent);
            if is_read {
                buffers = device.read(at, buffers).await?;
            } else {
                device.write(at, vec![Arc::clone(&data)], self.stability).await?;
            }
            commands.push(Command { is_read, begun, took: world.now().since(begun) });
        }
    }
}

/// Mean, median, 99th and 99.9th percentile, and maximum in microseconds, as JSON.
pub fn latencies<'a>(commands: impl IntoIterator<Item = &'a Command>) -> String {
    let mut values: Vec<f64> = commands.into_iter().map(|command| command.took.as_secs_f64() * 1e6).collect();
    values.sort_by(f64::total_cmp);
    let at = |share: f64| values.get((values.len() as f64 * share) as usize).copied().unwrap_or(0.0);
    let mean = values.iter().sum::<f64>() / values.len().max(1) as f64;
    format!(
        "{{\"mean\": {mean:.1}, \"median\": {:.1}, \"p99\": {:.1}, \"p999\": {:.1}, \"max\": {:.1}}}",
        at(0.5),
        at(0.99),
        at(0.999),
        values.last().copied().unwrap_or(0.0)
    )
}
