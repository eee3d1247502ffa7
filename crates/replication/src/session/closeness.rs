//! The distance of a peer at which a group in sync, that was alone, waits for it again.

use super::{GroupSession, ReplicationMode, SessionState, SyncStanding};
use std::time::Duration;
use world::Moment;

/// A group in sync is in sync again once the oldest unconfirmed write is younger than this and [`CLOSE_ROUND_TRIPS`]: hosts
/// then wait so long, once. A write that is on its way over a long line is never younger than one round trip.
const CLOSE: Duration = Duration::from_millis(10);
const CLOSE_ROUND_TRIPS: u32 = 2;
/// A peer that has come no closer within this time of the stream is taken at [`CLOSE_AT_LAST`]: busy hosts would keep it apart
/// for ever. From then on the line holds them back.
const CLOSE_WITHIN: Duration = Duration::from_secs(10);
const CLOSE_AT_LAST: Duration = Duration::from_millis(500);

impl GroupSession {
    /// A group that is alone waits for its peer again once that is close.
    pub(super) fn wait_for_peer_if_close(&mut self, now: Moment) {
        let is_close = self.backlog.age(now) <= self.close_enough(now);
        if self.state == SessionState::Streaming && self.standing == SyncStanding::Alone && is_close {
            self.standing = SyncStanding::RecordingSync;
        }
    }

    /// Age of the oldest unconfirmed write of a peer that is close.
    fn close_enough(&self, now: Moment) -> Duration {
        let near = CLOSE + self.round_trip * CLOSE_ROUND_TRIPS;
        let ReplicationMode::Sync { hold, .. } = self.mode else { return near };
        match self.streams_since {
            // The wait is within the hold.
            Some(since) if now.since(since) >= CLOSE_WITHIN => near.max(CLOSE_AT_LAST.min(hold / 2)),
            _ => near,
        }
    }

    /// The shortest round trip of the line.
    pub fn note_round_trip(&mut self, round_trip: Duration) {
        self.round_trip = round_trip;
    }
}
