//! Detects runs that the processor of a group's thread limits, not the storage.
//!
//! A group is one thread. If it uses all of its processor, completions wait to be noticed, and measured
//! latency grows although the storage has answered.

use serde::{Deserialize, Serialize};

/// A thread that uses this share of its processor, in percent, is saturated: other work on the machine takes
/// the rest.
const BUSY_PERCENT: f64 = 95.0;

/// The thread with the highest processor use.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct BusiestThread {
    /// Its group, from 0.
    pub group: u32,
    /// Processor time / elapsed time, in percent.
    pub percent: f64,
}

impl BusiestThread {
    /// Selects the busiest thread, given the processor share (0 to 1) of each group's thread where known.
    pub fn of(shares: impl IntoIterator<Item = Option<f64>>) -> Option<Self> {
        let known = (0..).zip(shares).filter_map(|(group, share)| Some((group, share?)));
        let busiest = known.max_by(|one, other| one.1.total_cmp(&other.1));
        busiest.map(|(group, share)| Self { group, percent: share * 100.0 })
    }

    /// True if the thread was saturated.
    pub fn is_the_limit(self) -> bool {
        self.percent >= BUSY_PERCENT
    }
}

/// `the processor of group 1's thread was the limit, not the storage`.
pub fn describe_limit(thread: BusiestThread) -> String {
    format!("the processor of group {}'s thread was the limit, not the storage", thread.group + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_busiest_thread_is_named_and_only_a_full_processor_is_a_limit() {
        let busiest = BusiestThread::of([Some(0.2), None, Some(0.97)]).unwrap();
        assert_eq!(
            describe_limit(busiest),
            "the processor of group 3's thread was the limit, not the storage"
        );
        assert!(busiest.is_the_limit());
        assert!(!BusiestThread::of([Some(0.94)]).unwrap().is_the_limit());
        assert_eq!(BusiestThread::of([None, None]), None);
    }
}
