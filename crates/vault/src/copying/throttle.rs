//! The rate at which a copy reads.

use std::time::Duration;
use world::{ByteCount, Moment, World};

pub struct ReadThrottle {
    world: World,
    bytes_per_second: Option<ByteCount>,
    /// When the next read may begin.
    free_at: Moment,
}

impl ReadThrottle {
    pub fn new(world: &World, bytes_per_second: Option<ByteCount>) -> Self {
        Self { world: world.clone(), bytes_per_second, free_at: world.now() }
    }

    /// Waits until a read of so many bytes may begin.
    pub async fn wait_for(&mut self, bytes: u64) {
        let Some(rate) = self.bytes_per_second.filter(|rate| rate.0 > 0) else { return };
        self.world.sleep_until(self.free_at).await;
        // Unused rate is not made up.
        let begun = self.free_at.max(self.world.now());
        self.free_at = begun + Duration::from_secs_f64(bytes as f64 / rate.0 as f64);
    }
}
