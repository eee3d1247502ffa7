//! Rate at which rounds of cleaning move blocks.

use std::time::Duration;

/// Blocks that a pool of a few fast drives moves in a second, until it is measured.
const BLOCKS_PER_SECOND: f64 = 20_000.0;
/// Weight of the last round.
const WEIGHT: f64 = 0.5;

/// The average rate of the last rounds.
#[derive(Clone, Copy, Debug)]
pub(super) struct MovingRate {
    blocks_per_second: f64,
}

impl Default for MovingRate {
    fn default() -> Self {
        Self { blocks_per_second: BLOCKS_PER_SECOND }
    }
}

impl MovingRate {
    /// Takes in a round that moved `blocks` in the time `took`.
    #[must_use]
    pub fn after(self, blocks: u64, took: Duration) -> Self {
        if blocks == 0 || took.is_zero() {
            return self;
        }
        let rate = blocks as f64 / took.as_secs_f64();
        Self { blocks_per_second: self.blocks_per_second + (rate - self.blocks_per_second) * WEIGHT }
    }

    /// Blocks that are moved in the time `span`.
    pub fn blocks_in(self, span: Duration) -> u64 {
        (self.blocks_per_second * span.as_secs_f64()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_follows_the_rounds() {
        let tenth = Duration::from_millis(100);
        let mut rate = MovingRate::default();
        assert_eq!(rate.blocks_in(tenth), 2000);
        for _ in 0..20 {
            rate = rate.after(500, tenth);
        }
        assert_eq!(rate.blocks_in(tenth), 500);
        assert_eq!(rate.after(0, tenth).after(5, Duration::ZERO).blocks_in(tenth), 500);
    }
}
