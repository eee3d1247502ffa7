//! State of a group at its primary towards one peer: which answers hosts may get, and what to do next.
//!
//! The owner reports what happens, asks for [`GroupSession::demands`] and does them, and answers hosts up to
//! [`GroupSession::answerable`]. Nothing here awaits; times come from the owner's clock.
//!
//! Invariants:
//!
//! 1. What hosts were told is within what is stable here; in sync also within what the peer confirmed, except for
//!    answers given while the record that the group is alone was stable.
//! 2. From the moment at which the record that the group is alone may be removed, no answer is given that the peer
//!    did not confirm, until the record is made again. So that record may be wrong in one direction only.
//! 3. A side that has to fetch what it lost, or stands down, or has not compared since it returned, answers nothing.
//! 4. Records are streamed only in *streaming*. In any other state what hosts write is left to the next pass.
//! 5. What was confirmed never decreases, except by a comparison.
//! 6. Of a part of a group with volumes in several pools, what the peer confirmed counts once the parts are together: before,
//!    the peer would not show it.

mod backlog;
mod bounds;
mod closeness;
mod modes;

use crate::{
    connect::{ConnectFinding, ConnectOutcome, HostService, TransferWay},
    cut::GroupCut,
    lineage::Side,
};
use array::format::Stamp;
use backlog::Backlog;
use std::time::Duration;
use world::Moment;

/// A pass that takes less is the last one: the stream begins.
const LAST_PASS: Duration = Duration::from_secs(1);
/// Time for the witness to learn that a group goes on alone, after its hold: then writes are refused.
const RECORD_WITHIN: Duration = Duration::from_secs(3);
/// Passes in a row that did not halve what remains, after which a group is behind.
const SLOW_PASSES: u32 = 2;

/// Rule for answers, and for what the peer gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplicationMode {
    /// Answers wait for the peer.
    Sync {
        /// Hosts wait so long for a peer that is lost, or confirms nothing.
        hold: Duration,
        /// Then writes are refused. Otherwise the group goes on alone.
        is_failsafe: bool,
    },
    /// Answers do not wait, and the peer is behind by no more than this.
    Async { behind_max: Duration, behind_bytes_max: u64, over: BoundPolicy },
    /// The peer gets the difference of two cuts, by the clock, and keeps the last states that it got.
    Periodic { every: Duration, kept: u16 },
}

/// Policy of an asynchronous group at its bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BoundPolicy {
    /// The group says that it is behind, and goes on by passes.
    Behind,
    /// While it streams, hosts wait until the group is within its bound; but not if the peer confirms nothing.
    PushBack,
}

/// Reason of a suspension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SuspensionReason {
    Person,
    TargetFull,
    Fault,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionState {
    Suspended(SuspensionReason),
    /// There is no connection since then.
    Connecting(Moment),
    Comparing,
    /// This side gets what it had sent and lost.
    Fetching,
    /// Passes run, or the next one is due.
    Merging,
    Streaming,
    /// Both have answered writes that the other lacks: a person has to choose.
    AwaitingChoice,
    Refused(ConnectFinding),
    /// The other side is primary now.
    StoodDown,
}

/// Relation to the peer of a group in sync mode, as the record on the drives and with the witness has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SyncStanding {
    InSync,
    /// The record that the group is alone is being made.
    RecordingAlone,
    Alone,
    /// Answers wait for the peer again, and the record is being removed.
    RecordingSync,
}

/// Rule for answers to hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerRule {
    /// As soon as a write is stable here.
    AtOnce,
    /// As soon as the peer has confirmed it, too.
    Confirmed,
    /// Nothing is answered before both sides have compared.
    Wait,
    /// Nothing is answered until the peer is closer.
    PushBack,
    /// Nothing is answered for a moment, in which no part of the group answers.
    Held,
    /// Writes fail.
    Refuse,
}

/// Something that the owner has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionDemand {
    Connect,
    /// Record, here and with the witness, that the group goes on alone; then
    /// [`GroupSession::note_alone_recorded`].
    RecordAlone,
    /// Remove that record; then [`GroupSession::note_sync_recorded`].
    RecordSync,
    /// Take a cut and send what differs; then [`GroupSession::note_pass_end`].
    RunPass,
}

/// Cost of a disaster at the primary: what hosts were told, or may be told, and the peer has not confirmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LossExposure {
    pub bytes: u64,
    /// Age of the oldest such write.
    pub age: Duration,
}

/// A pass that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PassReport {
    pub sent_bytes: u64,
    pub took: Duration,
    /// Bytes that differ now.
    pub remaining_bytes: u64,
}

/// A group at its primary, towards one peer.
#[derive(Clone, Debug)]
pub struct GroupSession {
    mode: ReplicationMode,
    state: SessionState,
    standing: SyncStanding,
    has_compared: bool,
    /// A witness has to know that the group goes on alone before it does.
    has_witness: bool,
    /// The witness gave the right to another site.
    is_fenced: bool,
    /// Since then the group waits for the record that it is alone.
    alone_wanted_since: Option<Moment>,
    has: GroupCut,
    confirmed: GroupCut,
    /// The last rise of what was confirmed.
    confirmed_at: Moment,
    /// The shortest one of the line.
    round_trip: Duration,
    /// The stream that runs began then.
    streams_since: Option<Moment>,
    told: GroupCut,
    /// Of a part of a group with volumes in several pools: what was confirmed and the peer would show, since the parts were
    /// together.
    fits: Option<GroupCut>,
    /// A part that returned has compared, and not joined yet: hosts would read what they were never answered, and the peer
    /// would not show.
    unshown_since: Option<Moment>,
    backlog: Backlog,
    is_behind: bool,
    slow_passes: u32,
    remaining_bytes: Option<u64>,
    pass_due: Moment,
    /// A periodic group runs its passes one after the other, and streams then: it is to be handed over.
    is_catching_up: bool,
    /// The owner gives its right to the peer once that has everything.
    is_handing_over: bool,
    /// A mark is being set: no part of the group answers.
    is_held: bool,
    /// Of a part of a group that is not in sync: hosts wait for the peer, so that the parts come together.
    is_gathering: bool,
}

impl GroupSession {
    /// A group that begins or returns with `has`. `is_alone`: its record says that it went on alone. A group that
    /// `returns` answers nothing before it has compared.
    pub fn new(mode: ReplicationMode, has: GroupCut, (is_alone, returns): (bool, bool), now: Moment) -> Self {
        let standing = if is_alone { SyncStanding::Alone } else { SyncStanding::InSync };
        Self {
            mode,
            state: SessionState::Connecting(now),
            standing,
            has_compared: !returns,
            has_witness: false,
            is_fenced: false,
            alone_wanted_since: None,
            confirmed: GroupCut::zero(has.parts()),
            confirmed_at: now,
            round_trip: Duration::ZERO,
            streams_since: None,
            told: has.clone(),
            fits: None,
            unshown_since: None,
            backlog: Backlog::new(has.parts()),
            has,
            is_behind: false,
            slow_passes: 0,
            remaining_bytes: None,
            pass_due: now,
            is_catching_up: false,
            is_handing_over: false,
            is_held: false,
            is_gathering: false,
        }
    }

    /// A witness has to know that the group goes on alone before it does.
    pub fn use_witness(&mut self) {
        self.has_witness = true;
    }

    /// It is a part of a group: what the peer confirms before the parts are together would not be shown there.
    pub fn use_parts(&mut self) {
        self.fits = Some(GroupCut::zero(self.has.parts()));
    }

    /// The parts are together, and were when the channel that runs began, or since: the peer would show what it confirmed.
    pub fn note_together(&mut self) {
        if let Some(fits) = &mut self.fits {
            *fits = self.confirmed.clone();
            if self.told.is_within(&self.confirmed) {
                self.unshown_since = None;
            }
        }
    }

    pub fn state(&self) -> SessionState {
        self.state
    }

    /// True once this side knows that it has every answered write.
    pub fn has_compared(&self) -> bool {
        self.has_compared
    }

    /// True while hosts are answered without the peer, and that is recorded.
    pub fn is_alone(&self) -> bool {
        self.standing == SyncStanding::Alone
    }

    /// True while hosts of a group in sync are answered only what the peer has.
    pub fn waits_for_peer(&self) -> bool {
        self.is_sync() && !self.is_alone()
    }

    /// The witness gave the right to another site: nothing is answered before both sites have compared.
    pub fn note_right_lost(&mut self, now: Moment) {
        self.note_disconnected(now);
        self.is_fenced = true;
        self.has_compared = false;
    }

    /// True until a comparison shows that this side is primary all the same.
    pub fn is_fenced(&self) -> bool {
        self.is_fenced
    }

    /// A person says that the other site is off: this one answers without it from now on. The record that it is alone is
    /// stable.
    pub fn go_on_without_peer(&mut self) {
        self.unshown_since = None;
        self.standing = SyncStanding::Alone;
        self.has_compared = true;
        self.alone_wanted_since = None;
    }

    /// Everything that is stable here.
    pub fn has(&self) -> &GroupCut {
        &self.has
    }

    pub fn told(&self) -> &GroupCut {
        &self.told
    }

    pub fn confirmed(&self) -> &GroupCut {
        &self.confirmed
    }

    /// True if the peer is further behind than the mode allows, or passes do not catch up.
    pub fn is_behind(&self) -> bool {
        self.is_behind
    }

    /// True if the introduction may say that nothing was answered without the peer.
    pub fn is_in_sync(&self) -> bool {
        self.is_sync() && matches!(self.standing, SyncStanding::InSync | SyncStanding::RecordingAlone)
    }

    pub fn exposure(&self, now: Moment) -> LossExposure {
        LossExposure { bytes: self.backlog.bytes(), age: self.backlog.age(now) }
    }

    /// Time since the peer confirmed anything, while there is something to confirm.
    pub fn peer_silence(&self, now: Moment) -> Duration {
        now.since(self.confirmed_at).min(self.backlog.age(now))
    }

    /// True while the group streams and answers no more than the peer confirmed, also before: parts of a group may join.
    pub fn is_close(&self) -> bool {
        self.state == SessionState::Streaming
            && (self.is_sync() || self.is_gathering)
            && matches!(self.standing, SyncStanding::InSync | SyncStanding::RecordingSync)
            && self.told.is_within(&self.confirmed)
    }

    /// The rule for answers.
    pub fn rule(&self, now: Moment) -> AnswerRule {
        match self.state {
            SessionState::StoodDown | SessionState::Fetching => return AnswerRule::Refuse,
            SessionState::Refused(ConnectFinding::TwoPrimaries) => return AnswerRule::Refuse,
            _ if self.is_fenced => return AnswerRule::Refuse,
            _ if !self.has_compared => return AnswerRule::Wait,
            _ if self.unshown_since.is_some() => return AnswerRule::Wait,
            _ => {}
        }
        match self.mode {
            // Nothing more is answered that the peer would lack.
            _ if self.is_handing_over || self.is_gathering => AnswerRule::Confirmed,
            _ if self.is_held => AnswerRule::Held,
            ReplicationMode::Sync { hold, is_failsafe } => match self.standing {
                SyncStanding::Alone => AnswerRule::AtOnce,
                _ if is_failsafe && self.is_hold_over(hold, now) => AnswerRule::Refuse,
                SyncStanding::RecordingAlone if self.is_record_late(hold, now) => AnswerRule::Refuse,
                // Writes that the peer confirmed before the line was lost may still be answered.
                SyncStanding::InSync | SyncStanding::RecordingAlone | SyncStanding::RecordingSync => {
                    AnswerRule::Confirmed
                }
            },
            ReplicationMode::Async { over: BoundPolicy::PushBack, .. } if self.pushes_back(now) => {
                AnswerRule::PushBack
            }
            ReplicationMode::Async { .. } | ReplicationMode::Periodic { .. } => AnswerRule::AtOnce,
        }
    }

    /// Hosts may be answered up to this cut.
    pub fn answerable(&self, now: Moment) -> GroupCut {
        let limit = match self.rule(now) {
            AnswerRule::AtOnce => self.has.clone(),
            AnswerRule::Confirmed => self.has.common(self.safe_at_peer()),
            AnswerRule::Wait | AnswerRule::PushBack | AnswerRule::Held | AnswerRule::Refuse => {
                return self.told.clone();
            }
        };
        limit.union(&self.told)
    }

    /// The cut that the peer would show if it took over.
    fn safe_at_peer(&self) -> &GroupCut {
        match &self.fits {
            // The record says until then that it answered without its peer.
            Some(fits) if self.standing != SyncStanding::RecordingSync => fits,
            _ => &self.confirmed,
        }
    }

    /// Hosts are about to be answered up to a cut.
    ///
    /// # Panics
    ///
    /// If they may not.
    pub fn note_answers(&mut self, cut: &GroupCut, now: Moment) {
        assert!(cut.is_within(&self.answerable(now)), "{cut:?} is not to be answered yet");
        self.told = self.told.union(cut);
    }

    /// A write is stable here.
    pub fn note_write(&mut self, part: usize, stamp: Stamp, bytes: u64, now: Moment) {
        assert!(stamp > self.has.stamps()[part], "stamps of a part ascend");
        self.has.set(part, stamp);
        // The peer may have it before the drives here.
        if self.confirmed.stamps()[part] < stamp {
            self.backlog.add(part, stamp, bytes, now, self.state == SessionState::Streaming);
        }
        self.check_bound(now);
    }

    /// A cut was taken here: everything up to its stamp is stable.
    pub fn note_cut(&mut self, part: usize, stamp: Stamp) {
        let stamp = self.has.stamps()[part].max(stamp);
        self.has.set(part, stamp);
        self.backlog.cut(part);
    }

    /// The peer has everything up to a cut stable.
    pub fn note_confirmed(&mut self, cut: &GroupCut, now: Moment) {
        if !cut.is_within(&self.confirmed) {
            self.confirmed_at = now;
        }
        self.confirmed = self.confirmed.union(cut);
        self.backlog.confirm(&self.confirmed);
        self.wait_for_peer_if_close(now);
        if self.state == SessionState::Streaming && !self.is_over(now) {
            self.is_behind = false;
        }
    }

    /// Time has passed.
    pub fn note_time(&mut self, now: Moment) {
        self.wait_for_peer_if_close(now);
        let is_held = matches!(self.standing, SyncStanding::InSync | SyncStanding::RecordingSync);
        if let ReplicationMode::Sync { hold, is_failsafe: false } = self.mode
            && is_held
            && self.has_compared
            && !self.is_handing_over
            && (self.is_hold_over(hold, now)
                || self.unshown_since.is_some_and(|since| now.since(since) >= hold))
        {
            self.standing = SyncStanding::RecordingAlone;
        }
        match self.standing {
            SyncStanding::RecordingAlone => drop(self.alone_wanted_since.get_or_insert(now)),
            _ => self.alone_wanted_since = None,
        }
        self.check_bound(now);
    }

    pub fn note_connected(&mut self) {
        if matches!(self.state, SessionState::Connecting(_)) {
            self.state = SessionState::Comparing;
        }
    }

    /// The log no longer has what is to be streamed: passes bring it.
    pub fn note_log_lost(&mut self, now: Moment) {
        if self.state == SessionState::Streaming {
            self.leave_stream(SessionState::Merging);
            self.pass_due = now;
            self.go_on_alone();
        }
    }

    /// The connection is lost, or was given up.
    pub fn note_disconnected(&mut self, now: Moment) {
        if !matches!(self.state, SessionState::Suspended(_) | SessionState::StoodDown) {
            let since = match self.state {
                SessionState::Connecting(since) => since,
                _ => now,
            };
            self.leave_stream(SessionState::Connecting(since));
        }
    }

    /// Both sides agree on an outcome; ours is this side. To be called with the outcome of a person's choice, too.
    pub fn note_outcome(&mut self, outcome: &ConnectOutcome, now: Moment) {
        if matches!(self.state, SessionState::Suspended(_) | SessionState::Connecting(_)) {
            return;
        }
        let serves = match outcome.service {
            HostService::AtOnce(side) | HostService::AfterTransfer(side) => side == Side::Ours,
            HostService::EachAlone => true,
            HostService::Nobody => false,
        };
        if outcome.stands_down == Some(Side::Ours) {
            self.leave_stream(SessionState::StoodDown);
            return;
        }
        if let Some(common) = &outcome.common {
            // Writes that the peer has above it will go.
            self.confirmed = self.confirmed.common(&common.cut);
        }
        let state = match (outcome.finding, outcome.transfers.first()) {
            (ConnectFinding::Diverged, None) => SessionState::AwaitingChoice,
            (finding, None) if finding != ConnectFinding::Equal || !serves => SessionState::Refused(finding),
            (_, None) => SessionState::Streaming,
            (_, Some(transfer)) if transfer.to == Side::Ours => SessionState::Fetching,
            (_, Some(transfer)) if transfer.way == TransferWay::Log => SessionState::Streaming,
            _ => SessionState::Merging,
        };
        let is_periodic = matches!(self.mode, ReplicationMode::Periodic { .. });
        let state = match state {
            SessionState::Streaming if is_periodic && !self.is_catching_up => SessionState::Merging,
            state => state,
        };
        if state == SessionState::Fetching || outcome.finding == ConnectFinding::TwoPrimaries {
            // Although it served before: only the next comparison shows that it has every answered write.
            self.has_compared = false;
        } else if serves {
            let is_sync = self.is_sync();
            if !self.has_compared && is_sync && self.fits.is_some() && self.standing != SyncStanding::Alone {
                self.unshown_since = Some(now);
            }
            (self.has_compared, self.is_fenced) = (true, false);
        }
        if state == SessionState::Streaming {
            if let Some(common) = &outcome.common {
                self.confirmed = common.cut.clone();
                self.backlog.confirm(&common.cut);
            }
            self.state = state;
            self.streams_since = Some(now);
            // Passes catch up a backlog over the bound, though the log has it.
            self.check_bound(now);
        } else {
            self.leave_stream(state);
            // A periodic group that lacks nothing waits for its clock.
            if !is_periodic || outcome.finding != ConnectFinding::Equal {
                self.pass_due = now;
            }
        }
        // Passes do not hold answers, so a group in sync goes on alone until the stream is close.
        if state == SessionState::Merging {
            self.go_on_alone();
        }
    }

    /// This side has got what it lacked. What comes next is compared again.
    pub fn note_fetched(&mut self, has: GroupCut) {
        if self.state == SessionState::Fetching {
            assert!(self.has.is_within(&has), "nothing is lost by fetching");
            (self.told, self.has) = (has.clone(), has);
            self.state = SessionState::Comparing;
        }
    }

    /// A pass has ended: the peer shows its cut.
    pub fn note_pass_end(&mut self, cut: &GroupCut, pass: PassReport, now: Moment) {
        if self.state != SessionState::Merging {
            return;
        }
        self.note_confirmed(cut, now);
        let took = pass.took.max(Duration::from_millis(1));
        let rate = pass.sent_bytes as f64 / took.as_secs_f64();
        let is_short = pass.remaining_bytes == 0
            || rate > 0.0 && pass.remaining_bytes as f64 / rate <= LAST_PASS.as_secs_f64();
        let has_halved = self.remaining_bytes.is_none_or(|before| pass.remaining_bytes <= before / 2);
        self.slow_passes = if has_halved { 0 } else { self.slow_passes + 1 };
        self.remaining_bytes = Some(pass.remaining_bytes);
        match self.mode {
            ReplicationMode::Periodic { .. } if self.is_catching_up && !is_short => self.pass_due = now,
            ReplicationMode::Periodic { every, .. } if !self.is_catching_up => {
                let next = self.pass_due + every;
                self.is_behind = next < now;
                self.pass_due = next.max(now);
            }
            _ if is_short => {
                (self.slow_passes, self.remaining_bytes) = (0, None);
                (self.state, self.streams_since) = (SessionState::Streaming, Some(now));
            }
            _ => self.is_behind |= self.slow_passes >= SLOW_PASSES,
        }
    }

    pub fn note_alone_recorded(&mut self) {
        if self.standing == SyncStanding::RecordingAlone {
            self.standing = SyncStanding::Alone;
            self.unshown_since = None;
        }
    }

    /// The record that the group is alone is removed. If the peer was lost meanwhile, the hold begins then.
    pub fn note_sync_recorded(&mut self) {
        if self.standing == SyncStanding::RecordingSync && self.told.is_within(&self.confirmed) {
            self.standing = SyncStanding::InSync;
        }
    }

    /// The owner wants to give its right to the peer. False if the group does not stream. Any end of the stream ends this,
    /// too.
    pub fn begin_hand_over(&mut self) -> bool {
        self.is_handing_over = self.state == SessionState::Streaming;
        self.is_handing_over
    }

    /// True from [`GroupSession::begin_hand_over`] until the stream ends, or this side stands down.
    pub fn is_handing_over(&self) -> bool {
        self.is_handing_over
    }

    /// The owner keeps its right.
    pub fn cancel_hand_over(&mut self) {
        self.is_handing_over = false;
    }

    /// The owner is about to record that it is secondary: nothing is answered from now on.
    ///
    /// # Panics
    ///
    /// If no hand over is under way.
    pub fn stand_down(&mut self) {
        assert!(self.is_handing_over, "a side gives up its right while it hands over");
        self.leave_stream(SessionState::StoodDown);
    }

    pub fn suspend(&mut self, reason: SuspensionReason) {
        if self.state != SessionState::StoodDown {
            self.leave_stream(SessionState::Suspended(reason));
            self.go_on_alone();
        }
    }

    pub fn resume(&mut self, now: Moment) {
        if matches!(self.state, SessionState::Suspended(_)) {
            self.state = SessionState::Connecting(now);
        }
    }

    /// The owner's tasks now; each until it is reported as done.
    pub fn demands(&self, now: Moment) -> Vec<SessionDemand> {
        let mut demands = Vec::new();
        match self.standing {
            _ if self.state == SessionState::StoodDown => {}
            SyncStanding::RecordingAlone => demands.push(SessionDemand::RecordAlone),
            SyncStanding::RecordingSync if self.told.is_within(&self.confirmed) => {
                demands.push(SessionDemand::RecordSync);
            }
            _ => {}
        }
        match self.state {
            SessionState::Connecting(_) => demands.push(SessionDemand::Connect),
            SessionState::Merging if self.pass_due <= now => demands.push(SessionDemand::RunPass),
            _ => {}
        }
        demands
    }

    /// A group in sync that may answer without its peer is about to do so.
    fn go_on_alone(&mut self) {
        if let ReplicationMode::Sync { is_failsafe: false, .. } = self.mode
            && self.standing == SyncStanding::InSync
        {
            self.standing = SyncStanding::RecordingAlone;
        }
    }

    fn leave_stream(&mut self, state: SessionState) {
        (self.state, self.streams_since) = (state, None);
        self.backlog.collapse();
        self.is_handing_over = false;
        (self.slow_passes, self.remaining_bytes) = (0, None);
        // The record may be gone already.
        if self.standing == SyncStanding::RecordingSync {
            self.standing = SyncStanding::RecordingAlone;
        }
    }

    /// The witness does not learn that the group goes on alone, and hosts wait for that, or for the hold that came before.
    fn is_record_late(&self, hold: Duration, now: Moment) -> bool {
        let within = match self.state {
            // The peer is back, and what hosts wait for is on its way; unless it is connected and confirms nothing.
            SessionState::Streaming if self.backlog.age(now) < hold => return false,
            SessionState::Streaming | SessionState::Connecting(_) => RECORD_WITHIN,
            _ => hold + RECORD_WITHIN,
        };
        self.has_witness && self.alone_wanted_since.is_some_and(|since| now.since(since) >= within)
    }

    /// Hosts of a group in sync have waited for as long as they may: for a peer that is lost, or for one that is connected
    /// and confirms nothing, as its drives hang.
    fn is_hold_over(&self, hold: Duration, now: Moment) -> bool {
        match self.state {
            SessionState::Suspended(_) | SessionState::AwaitingChoice | SessionState::Refused(_) => true,
            SessionState::Connecting(since) if now.since(since) >= hold => true,
            _ => self.backlog.age(now) >= hold,
        }
    }
}
