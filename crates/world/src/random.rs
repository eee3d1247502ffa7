//! Seeded randomness in named streams.
//!
//! Each concern draws from a stream of its own (`"scheduling"`, `"workload"`, `"signatures"`), so one more
//! draw in one place changes no other. The generator is xoshiro256++: its definition fixes the output for a
//! seed.

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// A deterministic stream of random numbers.
#[derive(Clone, Debug)]
pub struct Random(Xoshiro256PlusPlus);

impl Random {
    /// The stream `name` of `seed`.
    pub fn new(seed: u64, name: &str) -> Self {
        // FNV-1a: the streams only have to differ, always in the same way.
        let salt = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        Self(Xoshiro256PlusPlus::seed_from_u64(seed ^ salt))
    }

    pub fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Uniform in `0..bound`; `bound` is more than zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "an empty range has no member");
        // Widening multiply: bias below bound / 2^64, nothing for our bounds.
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// Uniform in [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// True with probability `percent` / 100.
    pub fn percent(&mut self, percent: f64) -> bool {
        self.unit() * 100.0 < percent
    }

    pub fn fill(&mut self, bytes: &mut [u8]) {
        self.0.fill_bytes(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_of_a_seed_repeat_and_differ_from_each_other() {
        let draw = |name| {
            let mut stream = Random::new(7, name);
            [stream.next_u64(), stream.next_u64()]
        };
        assert_eq!(draw("workload"), draw("workload"));
        assert_ne!(draw("workload"), draw("faults"));
    }

    #[test]
    fn below_stays_below_and_reaches_every_member() {
        let mut stream = Random::new(1, "test");
        let mut seen = [false; 5];
        for _ in 0..200 {
            seen[stream.below(5) as usize] = true;
        }
        assert_eq!(seen, [true; 5]);
    }
}
