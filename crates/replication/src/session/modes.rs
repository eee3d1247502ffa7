//! The mode of a group and its changes, and the moments in which hosts wait although the mode does not want it.
//!
//! Invariant: a mode counts once it is recorded, together with whether hosts were answered what the peer may lack.

use super::{AnswerRule, GroupSession, ReplicationMode, SessionState, SyncStanding};
use world::Moment;

impl GroupSession {
    /// No host is answered until this is said again, with false. Of no use in sync, where hosts wait for the peer anyway.
    pub fn hold(&mut self, is_held: bool) {
        self.is_held = is_held;
    }

    /// Hosts wait for the peer, although the group is not in sync, or do so no more: then nothing may be sent that does not fit.
    pub fn gather(&mut self, is_gathering: bool) {
        self.is_gathering = is_gathering && !self.is_sync();
    }

    pub fn is_gathering(&self) -> bool {
        self.is_gathering
    }

    /// The mode is sync.
    pub fn is_sync(&self) -> bool {
        matches!(self.mode, ReplicationMode::Sync { .. })
    }

    /// True if the parts of the group may show this moment: it streams, and no host waits for the peer.
    pub fn may_mark(&self, now: Moment) -> bool {
        self.state == SessionState::Streaming && !self.is_sync() && self.rule(now) == AnswerRule::AtOnce
    }

    /// True if the record of a group has to call it alone once it goes over to another mode; `None` if that stays. One that was
    /// not in sync has answered what the peer may lack.
    pub fn is_alone_in(&self, mode: ReplicationMode) -> Option<bool> {
        match (self.mode, mode) {
            (ReplicationMode::Sync { .. }, ReplicationMode::Sync { .. }) => None,
            (_, ReplicationMode::Sync { .. }) => Some(true),
            _ => Some(false),
        }
    }

    /// The owner has recorded another mode, and what [`GroupSession::is_alone_in`] says of it.
    ///
    /// # Panics
    ///
    /// If a connection runs: its flows go by the mode.
    pub fn change_mode(&mut self, mode: ReplicationMode, now: Moment) {
        assert!(!self.is_connected(), "the mode changes between two connections");
        if let Some(is_alone) = self.is_alone_in(mode) {
            self.standing = if is_alone { SyncStanding::Alone } else { SyncStanding::InSync };
            self.alone_wanted_since = None;
        }
        self.mode = mode;
        self.pass_due = now;
        (self.is_behind, self.is_catching_up, self.is_gathering) = (false, false, false);
    }

    fn is_connected(&self) -> bool {
        match self.state {
            SessionState::Comparing
            | SessionState::Fetching
            | SessionState::Merging
            | SessionState::Streaming => true,
            SessionState::Suspended(_)
            | SessionState::Connecting(_)
            | SessionState::AwaitingChoice
            | SessionState::Refused(_)
            | SessionState::StoodDown => false,
        }
    }

    /// A periodic group brings its peer everything now, and streams then: it is to be handed over.
    pub fn begin_catching_up(&mut self, now: Moment) {
        let is_periodic = matches!(self.mode, ReplicationMode::Periodic { .. });
        if is_periodic && self.state == SessionState::Merging {
            (self.is_catching_up, self.pass_due) = (true, self.pass_due.min(now));
        }
    }

    /// True until the group goes by its clock again.
    pub fn is_catching_up(&self) -> bool {
        self.is_catching_up
    }

    /// A periodic group goes by its clock again.
    pub fn end_catching_up(&mut self, now: Moment) {
        let ReplicationMode::Periodic { every, .. } = self.mode else { return };
        if std::mem::take(&mut self.is_catching_up) && self.state == SessionState::Streaming {
            self.leave_stream(SessionState::Merging);
            self.pass_due = now + every;
        }
    }

    /// The moment of the next pass of a group that waits for its clock.
    pub fn next_pass(&self, now: Moment) -> Option<Moment> {
        let is_periodic = matches!(self.mode, ReplicationMode::Periodic { .. });
        let waits = is_periodic && self.state == SessionState::Merging && self.pass_due > now;
        waits.then_some(self.pass_due)
    }
}
