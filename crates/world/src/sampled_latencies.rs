//! Latencies of some of many events, in plain cells: where the clock would cost more than what is learned.
//!
//! Invariants:
//!
//! 1. Of every [`SAMPLED_EVERY`] events that begin one is timed: the first. A prime, so that no load that repeats itself has
//!    the same kind of event timed each time.
//! 2. An event that was begun and is never ended is not counted.

use crate::{LatencyCounts, LatencyHistogram, Moment, World};
use std::{cell::Cell, rc::Rc};

/// One of so many events is timed.
pub const SAMPLED_EVERY: u32 = 7;

/// Counts the latencies of sampled events.
pub struct SampledLatencies {
    world: World,
    /// Events until the next one that is timed.
    until_next: Cell<u32>,
    latencies: LatencyHistogram,
}

impl SampledLatencies {
    pub fn new(world: &World) -> Rc<Self> {
        Rc::new(Self {
            world: world.clone(),
            until_next: Cell::new(0),
            latencies: LatencyHistogram::default(),
        })
    }

    /// The time now, if the event that begins is to be timed.
    pub fn begin(&self) -> Option<Moment> {
        is_sampled(&self.until_next).then(|| self.world.now())
    }

    /// Counts an event that was to be timed.
    pub fn end(&self, begun: Moment) {
        self.latencies.add(self.world.now().since(begun));
    }

    pub fn counts(&self) -> LatencyCounts {
        self.latencies.counts()
    }
}

/// True for one of [`SAMPLED_EVERY`] calls; the first one if the cell begins with 0.
pub fn is_sampled(until_next: &Cell<u32>) -> bool {
    match until_next.get() {
        0 => {
            until_next.set(SAMPLED_EVERY - 1);
            true
        }
        left => {
            until_next.set(left - 1);
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::{SimLimits, Simulation};
    use std::time::Duration;

    #[test]
    fn one_of_seven_events_is_timed() {
        let run = Simulation::new(3).run(SimLimits::generous(), |world| async move {
            let latencies = SampledLatencies::new(&world);
            for _ in 0..15 {
                let begun = latencies.begin();
                world.sleep(Duration::from_micros(3)).await;
                begun.into_iter().for_each(|begun| latencies.end(begun));
            }
            let counts = latencies.counts();
            assert_eq!((counts.count(), counts.total()), (3, Duration::from_micros(9)));
        });
        run.completed();
    }
}
