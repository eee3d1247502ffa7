//! Latencies of hosts' last writes, for work that keeps them under a bound.

use std::time::Duration;
use world::Moment;

/// Writes that are kept: p99 of them is the third slowest.
const WRITES_MAX: usize = 256;
/// Older ones say nothing about now.
const KEPT_FOR: Duration = Duration::from_secs(2);

/// A ring of the last writes.
#[derive(Debug, Default)]
pub(super) struct RecentWrites {
    writes: Vec<(Moment, Duration)>,
    next: usize,
}

impl RecentWrites {
    pub fn add(&mut self, now: Moment, took: Duration) {
        match self.writes.get_mut(self.next) {
            Some(oldest) => *oldest = (now, took),
            None => self.writes.push((now, took)),
        }
        self.next = (self.next + 1) % WRITES_MAX;
    }

    /// The latency that 99 % of the writes of the last two seconds did not exceed; the longest of fewer than a hundred.
    /// `None` without a write.
    pub fn p99(&self, now: Moment) -> Option<Duration> {
        let recent = self.writes.iter().filter(|(at, _)| now.since(*at) <= KEPT_FOR);
        let mut times: Vec<Duration> = recent.map(|(_, took)| *took).collect();
        let at = (times.len() * 99).div_ceil(100).checked_sub(1)?;
        Some(*times.select_nth_unstable(at).1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p99_is_of_the_last_writes_and_forgets_what_is_old() {
        let ms = Duration::from_millis;
        let at = |millis: u64| Moment(millis * 1_000_000);
        let mut writes = RecentWrites::default();
        assert_eq!(writes.p99(at(0)), None);
        writes.add(at(0), ms(40));
        assert_eq!(writes.p99(at(1)), Some(ms(40)));
        (1..=200).for_each(|number| writes.add(at(number), ms(2)));
        assert_eq!(writes.p99(at(200)), Some(ms(2)), "one of 201 is no more than 1 %");
        (201..=203).for_each(|number| writes.add(at(number), ms(30)));
        assert_eq!(writes.p99(at(203)), Some(ms(30)));
        assert_eq!(writes.p99(at(3_000)), None);
        (0..256).for_each(|number| writes.add(at(3_000 + number), ms(1)));
        assert_eq!((writes.p99(at(3_256)), writes.writes.len()), (Some(ms(1)), WRITES_MAX));
    }
}
