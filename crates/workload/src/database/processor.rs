//! Whether the processor of a group's thread, not the storage, set the limit.
//!
//! A group is one thread. While that uses all of its processor, completions wait to be noticed, and latencies
//! grow though the storage has answered: what was measured is the thread's doing as much as the storage's.

use serde::{Deserialize, Serialize};

/// A thread that uses this much of its processor, in percent, has none left: the rest is lost to whatever
/// else the machine does.
const BUSY_PERCENT: f64 = 95.0;

/// The thread of a run that used most of its processor.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct BusiestThread {
    /// Its group, from 0.
    pub group: u32,
    /// Processor time by time, in percent.
    pub percent: f64,
}

impl BusiestThread {
    /// Of the threads of all groups, each with its share of a processor, 0 to 1, where that is known.
    pub fn of(shares: impl IntoIterator<Item = Option<f64>>) -> Option<Self> {
        let known = (0..).zip(shares).filter_map(|(group, share)| Some((group, share?)));
        let busiest = known.max_by(|one, other| one.1.total_cmp(&other.1));
        busiest.map(|(group, share)| Self { group, percent: share * 100.0 })
    }

    /// Whether it had no processor left.
    pub fn is_the_limit(self) -> bool {
        self.percent >= BUSY_PERCENT
    }
}

/// `the processor of group 1's thread was the limit, not the storage`.
pub fn words(thread: BusiestThread) -> String {
    format!("the processor of group {}'s thread was the limit, not the storage", thread.group + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_busiest_thread_is_named_and_only_a_full_processor_is_a_limit() {
        let busiest = BusiestThread::of([Some(0.2), None, Some(0.97)]).unwrap();
        assert_eq!(words(busiest), "the processor of group 3's thread was the limit, not the storage");
        assert!(busiest.is_the_limit());
        assert!(!BusiestThread::of([Some(0.94)]).unwrap().is_the_limit());
        assert_eq!(BusiestThread::of([None, None]), None);
    }
}
