//! Tracks which acknowledged writes of a remote device a flush still has to make stable.
//!
//! Invariants:
//!
//! 1. A flush covers only acknowledged writes.
//! 2. If the connection breaks between a write's acknowledgement and a flush, the flush fails: another server
//!    may answer after the reconnect, and the old one may have lost its cache.

#[derive(Debug, Default)]
pub struct FlushTracker {
    /// Volatile writes acknowledged so far.
    answered: u64,
    /// Number of those known to be stable: the first `flushed` of them.
    flushed: u64,
    may_have_lost: bool,
}

impl FlushTracker {
    /// Writes acknowledged so far. A flush that starts now makes these stable.
    pub fn answered(&self) -> u64 {
        self.answered
    }

    /// Records an acknowledged volatile write.
    pub fn wrote(&mut self) {
        self.answered += 1;
    }

    /// Records a completed flush that started when `answered_before` writes were acknowledged.
    pub fn flushed(&mut self, answered_before: u64) {
        self.flushed = self.flushed.max(answered_before);
        assert!(self.flushed <= self.answered, "only what was written is flushed");
    }

    /// Records that the connection broke. Returns true if acknowledged writes may be lost: flushes in flight
    /// must then fail. If there are none (`has_flushes` is false), the loss is kept for the next flush.
    pub fn broke(&mut self, has_flushes: bool) -> bool {
        let may_have_lost = self.may_have_lost || self.flushed < self.answered;
        self.flushed = self.answered;
        self.may_have_lost = may_have_lost && !has_flushes;
        may_have_lost
    }

    /// True if acknowledged writes may be lost and no flush has failed for it yet. Resets the state: the loss
    /// is reported once.
    pub fn take_loss(&mut self) -> bool {
        std::mem::take(&mut self.may_have_lost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_at_a_broken_connection_is_reported_once() {
        let mut tracker = FlushTracker::default();
        assert!(!tracker.broke(false) && !tracker.take_loss(), "nothing was written");
        tracker.wrote();
        let before = tracker.answered();
        tracker.wrote();
        tracker.flushed(before);
        assert!(tracker.broke(false), "the second write may be lost");
        assert!(tracker.take_loss() && !tracker.take_loss());
        tracker.wrote();
        tracker.flushed(tracker.answered());
        assert!(!tracker.broke(true));
        tracker.wrote();
        assert!(tracker.broke(true) && !tracker.take_loss(), "the flushes in flight reported it");
    }
}
