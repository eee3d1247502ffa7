//! A hash of all events in order: two runs of a seed must agree on it.

/// A running hash. Not cryptographic: it must differ when runs do, not resist an attacker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SimTrace(u64);

impl SimTrace {
    pub(super) fn new(seed: u64) -> Self {
        let mut trace = Self(0x51_7c_c1_b7_27_22_0a_95);
        trace.note(seed);
        trace
    }

    pub(super) fn note(&mut self, word: u64) {
        // Multiplication by an odd number and rotation are both one to one: no event is swallowed.
        self.0 = (self.0 ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    }

    pub(super) fn note_bytes(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.note(u64::from_le_bytes(*word));
        }
        for &byte in rest {
            self.note(u64::from(byte));
        }
    }

    pub fn value(self) -> u64 {
        self.0
    }
}
