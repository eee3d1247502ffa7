//! Bounds of an asynchronous group: how far its peer may be behind, and what happens beyond.

use super::{BoundPolicy, GroupSession, ReplicationMode, SessionState};
use std::time::Duration;
use world::Moment;

/// Hosts are pushed back while the peer comes closer, and so long after its last confirmation: they give up at 30 s.
const PUSH_BACK_WITHIN: Duration = Duration::from_secs(15);

impl GroupSession {
    /// Hosts wait for the peer of an asynchronous group to come within its bound, while waiting helps.
    pub(super) fn pushes_back(&self, now: Moment) -> bool {
        self.state == SessionState::Streaming
            && self.is_over(now)
            && self.peer_silence(now) < PUSH_BACK_WITHIN
    }

    pub(super) fn is_over(&self, now: Moment) -> bool {
        match self.mode {
            ReplicationMode::Async { behind_max, behind_bytes_max, .. } => {
                self.backlog.bytes() > behind_bytes_max || self.backlog.age(now) > behind_max
            }
            _ => false,
        }
    }

    /// An asynchronous group that is over its bound goes on by passes, or holds its hosts.
    pub(super) fn check_bound(&mut self, now: Moment) {
        if !self.is_over(now) {
            return;
        }
        self.is_behind = true;
        let goes_on = matches!(self.mode, ReplicationMode::Async { over: BoundPolicy::Behind, .. });
        if goes_on && self.state == SessionState::Streaming {
            self.leave_stream(SessionState::Merging);
            self.pass_due = now;
        }
    }
}
