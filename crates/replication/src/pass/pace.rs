//! Pace of the sending side of a pass: within the rate that people set, and so that hosts' writes stay short.
//!
//! While p99 of hosts' writes is above [`SLOWER_ABOVE`] the share of the time in which the pass reads and sends is halved,
//! again and again, down to [`SHARE_MIN`]; below [`FASTER_BELOW`] it rises. So a pass ends under any load.

use crate::{
    frame::FRAME_BLOCKS_MAX,
    member::GroupMember,
    merge_gate::MergeStandstill,
    merge_plan::MergeStart,
    planted::{self, ReplicationBug},
};
use array::pool::Pool;
use std::{rc::Rc, time::Duration};
use world::{Moment, World};

/// Hosts are kept under 20 ms: the pass gives way before.
const SLOWER_ABOVE: Duration = Duration::from_millis(12);
const FASTER_BELOW: Duration = Duration::from_millis(8);
const SHARE_MIN: f64 = 1.0 / 16.0;
const SLOWER: f64 = 0.5;
const FASTER: f64 = 1.25;
/// Interval of looking at hosts' writes.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// The longest pause for hosts after one piece.
const PAUSE_MAX: Duration = Duration::from_millis(250);
/// Interval of looking whether a window has opened, or the plan is another one.
const WINDOW_LOOK: Duration = Duration::from_secs(1);
/// Blocks of a piece while hosts need the drives.
const SMALL_PIECE: u64 = 32;

pub(crate) struct PassPace {
    world: World,
    pool: Rc<Pool>,
    /// Share of the time in which the pass works.
    share: f64,
    looked_at: Moment,
    /// The rate allows nothing before this moment.
    next_from: Moment,
}

impl PassPace {
    pub fn new(world: &World, pool: &Rc<Pool>) -> Self {
        let now = world.now();
        Self { world: world.clone(), pool: Rc::clone(pool), share: 1.0, looked_at: now, next_from: now }
    }

    /// Blocks of the next piece, at most.
    pub fn piece_blocks(&self) -> u64 {
        if self.share < 1.0 { SMALL_PIECE } else { FRAME_BLOCKS_MAX as u64 }
    }

    /// A piece has been sent. Waits as long as the plan of the group and hosts want it.
    pub async fn rest(&mut self, (bytes, took): (u64, Duration), member: &GroupMember) {
        self.await_window(member).await;
        let rate_max = member.merge_plan().rate_max;
        let now = self.world.now();
        if let Some(rate) = rate_max.filter(|_| !planted::is(ReplicationBug::RateIgnored)) {
            // No time that was not used is made up for.
            let takes = Duration::from_secs_f64(bytes as f64 / rate.max(1) as f64);
            self.next_from = self.next_from.max(Moment(now.0.saturating_sub(took.as_nanos() as u64))) + takes;
        } else {
            self.next_from = now;
        }
        self.rest_until(took, self.next_from).await;
    }

    /// A piece has been read. Waits as long as hosts want it.
    pub async fn give_way(&mut self, took: Duration) {
        self.rest_until(took, Moment::default()).await;
    }

    async fn rest_until(&mut self, took: Duration, from: Moment) {
        let now = self.world.now();
        if now.since(self.looked_at) >= LOOK_EVERY {
            self.looked_at = now;
            self.share = next_share(self.share, self.pool.throttle().write_p99);
        }
        let pause = took.mul_f64(1.0 / self.share - 1.0).min(PAUSE_MAX);
        let until = from.max(now + pause);
        if until > now {
            self.world.sleep_until(until).await;
        }
    }
}

impl PassPace {
    /// The window of the group has closed within the pass: that stands still, and others have the turn meanwhile.
    async fn await_window(&self, member: &GroupMember) {
        let is_closed = || match member.merge_plan().start {
            MergeStart::Window(window) => Some(window.opens_in(self.world.wall())),
            _ => None,
        };
        let mut has_waited = false;
        while let Some(left) = is_closed().filter(|left| *left > Duration::ZERO) {
            has_waited = true;
            member.merge_gate().into_iter().for_each(|gate| gate.leave());
            member.meter.set_standstill(Some(MergeStandstill::Window(left)));
            self.world.sleep(left.min(WINDOW_LOOK)).await;
        }
        if has_waited {
            member.meter.set_standstill(None);
        }
    }
}

fn next_share(share: f64, write_p99: Option<Duration>) -> f64 {
    match write_p99 {
        Some(p99) if p99 > SLOWER_ABOVE => (share * SLOWER).max(SHARE_MIN),
        Some(p99) if p99 >= FASTER_BELOW => share,
        _ => (share * FASTER).min(1.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_gives_way_while_hosts_writes_are_long_and_never_stops() {
        let ms = |millis| Some(Duration::from_millis(millis));
        let slower = next_share(1.0, ms(13));
        assert!(slower < 1.0 && next_share(slower, ms(10)) == slower && next_share(slower, ms(2)) > slower);
        let mut share = 1.0;
        (0..100).for_each(|_| share = next_share(share, ms(500)));
        assert_eq!(share, SHARE_MIN);
        (0..100).for_each(|_| share = next_share(share, None));
        assert_eq!(share, 1.0);
    }
}
