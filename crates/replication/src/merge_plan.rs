//! When the passes of a group may run, and how fast: what people set, and a site must not forget.

use std::time::Duration;
use world::WallTime;

/// Minutes of a day.
const DAY_MINUTES: u16 = 24 * 60;
/// Groups that may merge at one time with one peer, at most.
pub const MERGES_AT_ONCE_MAX: u8 = 64;

/// A suspension of a group at its primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Suspension {
    pub reason: crate::session::SuspensionReason,
    /// By the wall clock of the site, in seconds since 1970.
    pub since_unix_s: u64,
}

/// The rule for passes of a group that is primary here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MergePlan {
    pub start: MergeStart,
    /// Bytes of blocks a second that a pass sends, at most.
    pub rate_max: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MergeStart {
    /// Whatever else merges.
    AtOnce,
    /// So many groups with the same peer at one time, the others in the order of their names.
    Staggered(u8),
    /// One after the other, and within this time of each day alone.
    Window(DayWindow),
}

impl Default for MergePlan {
    /// One group after the other, as fast as hosts and the line allow.
    fn default() -> Self {
        Self { start: MergeStart::Staggered(1), rate_max: None }
    }
}

impl MergePlan {
    /// Nothing holds a pass up.
    pub const UNBOUND: Self = Self { start: MergeStart::AtOnce, rate_max: None };

    /// The rule that this plan breaks, if it breaks one.
    pub fn contradiction(&self) -> Option<&'static str> {
        match self.start {
            MergeStart::Staggered(groups) if !(1..=MERGES_AT_ONCE_MAX).contains(&groups) => {
                Some("the number of groups that merge at one time")
            }
            _ if self.rate_max == Some(0) => Some("the rate of merges"),
            _ => None,
        }
    }
}

/// A time of each day, in UTC. It may go over midnight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DayWindow {
    from_minute: u16,
    until_minute: u16,
}

impl DayWindow {
    /// A window between two minutes of the day. `None` if it is empty, or one is of no day.
    pub fn new(from_minute: u16, until_minute: u16) -> Option<Self> {
        let is_of_day = |minute| minute < DAY_MINUTES;
        let is_valid = from_minute != until_minute && is_of_day(from_minute) && is_of_day(until_minute);
        is_valid.then_some(Self { from_minute, until_minute })
    }

    /// First minute of the window, and the first one behind it.
    pub fn minutes(&self) -> (u16, u16) {
        (self.from_minute, self.until_minute)
    }

    pub fn contains(&self, wall: WallTime) -> bool {
        let minute = (wall.seconds.rem_euclid(86_400) / 60) as u16;
        let (from, until) = self.minutes();
        match from < until {
            true => (from..until).contains(&minute),
            false => minute >= from || minute < until,
        }
    }

    /// Time until the window opens; zero while it is open.
    pub fn opens_in(&self, wall: WallTime) -> Duration {
        if self.contains(wall) {
            return Duration::ZERO;
        }
        let second = wall.seconds.rem_euclid(86_400);
        let left = (i64::from(self.from_minute) * 60 - second).rem_euclid(86_400);
        Duration::from_secs(left as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(hour: i64, minute: i64) -> WallTime {
        WallTime { seconds: 1_795_737_600 + hour * 3600 + minute * 60, nanos: 0 }
    }

    #[test]
    fn windows_may_go_over_midnight() {
        assert_eq!(at(0, 0).seconds % 86_400, 0);
        let night = DayWindow::new(22 * 60, 5 * 60).unwrap();
        let times = [(21, 59), (22, 0), (23, 59), (0, 0), (4, 59), (5, 0), (12, 0)];
        let open = times.map(|(hour, minute)| night.contains(at(hour, minute)));
        assert_eq!(open, [false, true, true, true, true, false, false]);
        let left = times.map(|(hour, minute)| night.opens_in(at(hour, minute)).as_secs() / 60);
        assert_eq!(left, [1, 0, 0, 0, 0, 17 * 60, 10 * 60]);
        let noon = DayWindow::new(11 * 60, 13 * 60).unwrap();
        assert!(noon.contains(at(12, 59)) && !noon.contains(at(13, 0)) && !noon.contains(at(3, 0)));
        assert_eq!(noon.opens_in(at(13, 0)).as_secs(), 22 * 3600);
        assert_eq!((DayWindow::new(5, 5), DayWindow::new(0, 1440)), (None, None));
    }
}
