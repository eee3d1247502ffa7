//! Sessions whose lines break, whose records take their time and whose peers are slow: what hosts are told is at the
//! peer, or the record says that it may not be; and once the line is well all come to an end.

use array::format::{EpochId, Stamp};
use proptest::{collection::vec, prelude::*};
use replication::{
    connect::{ConnectFinding, ConnectOutcome, HostService, Transfer, TransferWay, WayBack},
    cut::GroupCut,
    lineage::{CommonCut, Side},
    session::{
        AnswerRule, BoundPolicy, GroupSession, PassReport, ReplicationMode, SessionDemand, SessionState,
        SuspensionReason,
    },
};
use std::time::Duration;
use world::Moment;

const HOLD: Duration = Duration::from_secs(15);

fn mode_sync(is_failsafe: bool) -> ReplicationMode {
    ReplicationMode::Sync { hold: HOLD, is_failsafe }
}

fn mode_async(over: BoundPolicy) -> ReplicationMode {
    ReplicationMode::Async { behind_max: Duration::from_secs(30), behind_bytes_max: 1 << 20, over }
}

#[derive(Clone, Debug)]
enum Event {
    Write {
        part: usize,
    },
    Answer,
    /// The peer makes some of what it got stable, and says so or not.
    Peer {
        writes: u64,
        says: bool,
    },
    Pass {
        milliseconds: u64,
    },
    Connect,
    /// `by_log`: the log still has what the peer lacks.
    Compare {
        by_log: bool,
    },
    Disconnect,
    /// The record under way is stable.
    Record,
    Time {
        milliseconds: u64,
    },
    Suspend,
    Resume,
    ChangeMode(ReplicationMode),
}

/// An event of a group whose mode people change.
fn event_or_change() -> impl Strategy<Value = Event> {
    let modes = [mode_sync(false), mode_sync(true), mode_async(BoundPolicy::Behind)];
    prop_oneof![20 => event(), 1 => (0..modes.len()).prop_map(move |mode| Event::ChangeMode(modes[mode]))]
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        8 => (0..2_usize).prop_map(|part| Event::Write { part }),
        8 => Just(Event::Answer),
        6 => (1..4_u64, any::<bool>()).prop_map(|(writes, says)| Event::Peer { writes, says }),
        2 => (1..3000_u64).prop_map(|milliseconds| Event::Pass { milliseconds }),
        3 => Just(Event::Connect),
        3 => any::<bool>().prop_map(|by_log| Event::Compare { by_log }),
        2 => Just(Event::Disconnect),
        4 => Just(Event::Record),
        4 => (1..20_000_u64).prop_map(|milliseconds| Event::Time { milliseconds }),
        1 => Just(Event::Suspend),
        1 => Just(Event::Resume),
    ]
}

/// The owner of a session, and the truth that the session does not see.
struct Owner {
    session: GroupSession,
    now: Moment,
    has: GroupCut,
    peer_has: GroupCut,
    /// The stable record.
    is_alone: bool,
    recording: Option<SessionDemand>,
    /// The peer said then that it has more than before.
    said_more_at: Moment,
}

impl Owner {
    fn new(mode: ReplicationMode) -> Self {
        let (now, zero) = (Moment(0), GroupCut::zero(2));
        let session = GroupSession::new(mode, zero.clone(), (false, false), now);
        Self {
            session,
            now,
            has: zero.clone(),
            peer_has: zero,
            is_alone: false,
            recording: None,
            said_more_at: now,
        }
    }

    fn outcome(&self, by_log: bool) -> ConnectOutcome {
        let common = CommonCut { epoch: EpochId([1; 16]), cut: self.peer_has.clone() };
        let is_equal = self.peer_has == self.has;
        let way = if by_log { TransferWay::Log } else { TransferWay::BornSince };
        let (to, since) = (Side::Theirs, self.peer_has.clone());
        let transfer = Transfer { to, since, way, way_back: WayBack::NotNeeded, resumes: false };
        ConnectOutcome {
            finding: if is_equal { ConnectFinding::Equal } else { ConnectFinding::Behind(Side::Theirs) },
            common: Some(common),
            transfers: if is_equal { Vec::new() } else { vec![transfer] },
            service: HostService::AtOnce(Side::Ours),
            stands_down: None,
        }
    }

    fn step(&mut self, event: &Event) {
        let now = self.now;
        match *event {
            Event::Write { part } => {
                let stamp = Stamp(self.has.stamps()[part].0 + 1);
                self.has.set(part, stamp);
                self.session.note_write(part, stamp, 4096, now);
            }
            Event::Answer => {
                let cut = self.session.answerable(now);
                assert!(cut.is_within(&self.has), "only what is stable is answered");
                let is_safe = cut.is_within(&self.peer_has) || cut == *self.session.told();
                let is_sync = self.session.is_in_sync();
                assert!(!is_sync || is_safe, "told without the peer: {:?}", self.session);
                self.session.note_answers(&cut, now);
                // The introduction that the drives would make after a crash right now.
                let says_in_sync = !self.is_alone && is_sync;
                assert!(!says_in_sync || self.session.told().is_within(&self.peer_has));
                assert!(is_safe || self.is_alone || !self.session_is_sync(), "{:?}", self.session);
            }
            Event::Peer { writes, says } => {
                if self.session.state() == SessionState::Streaming {
                    for part in [0, 1] {
                        let next = self.peer_has.stamps()[part].0 + writes;
                        self.peer_has.set(part, Stamp(next.min(self.has.stamps()[part].0)));
                    }
                    if says {
                        if !self.peer_has.is_within(self.session.confirmed()) {
                            self.said_more_at = now;
                        }
                        self.session.note_confirmed(&self.peer_has, now);
                    }
                }
            }
            Event::Pass { milliseconds } => {
                if self.session.demands(now).contains(&SessionDemand::RunPass) {
                    if !self.has.is_within(self.session.confirmed()) {
                        self.said_more_at = now;
                    }
                    self.peer_has = self.has.clone();
                    let took = Duration::from_millis(milliseconds);
                    let pass = PassReport { sent_bytes: 1 << 20, took, remaining_bytes: milliseconds * 500 };
                    self.session.note_pass_end(&self.has.clone(), pass, now);
                }
            }
            Event::Connect => self.session.note_connected(),
            Event::Compare { by_log } => {
                if self.session.state() == SessionState::Comparing {
                    self.session.note_outcome(&self.outcome(by_log), now);
                }
            }
            Event::Disconnect => self.session.note_disconnected(now),
            Event::Record => self.record(),
            Event::Time { milliseconds } => {
                self.now = now + Duration::from_millis(milliseconds);
                self.session.note_time(self.now);
            }
            Event::Suspend => self.session.suspend(SuspensionReason::Person),
            Event::Resume => self.session.resume(now),
            Event::ChangeMode(mode) => {
                // The owner cuts the channel first, and waits for a record that is under way.
                self.session.note_disconnected(now);
                self.step(&Event::Record);
                self.recording = None;
                self.is_alone = self.session.is_alone_in(mode).unwrap_or(self.is_alone);
                self.session.change_mode(mode, now);
            }
        }
    }

    fn session_is_sync(&self) -> bool {
        self.session.rule(self.now) == AnswerRule::Confirmed
    }

    /// The record under way becomes stable, or the next one is begun. Once begun, it cannot be stopped.
    fn record(&mut self) {
        match self.recording.take() {
            Some(SessionDemand::RecordAlone) => {
                self.is_alone = true;
                self.session.note_alone_recorded();
            }
            Some(SessionDemand::RecordSync) => {
                self.is_alone = false;
                self.session.note_sync_recorded();
            }
            _ => {
                let is_record = |demand: &SessionDemand| {
                    matches!(demand, SessionDemand::RecordAlone | SessionDemand::RecordSync)
                };
                self.recording = self.session.demands(self.now).into_iter().find(is_record);
            }
        }
    }

    /// The line is well from now on.
    fn heal(&mut self) {
        self.step(&Event::Resume);
        for _ in 0..40 {
            for event in [
                Event::Connect,
                Event::Compare { by_log: false },
                Event::Pass { milliseconds: 1 },
                Event::Peer { writes: u64::MAX >> 1, says: true },
                Event::Record,
                Event::Answer,
                Event::Time { milliseconds: 1 },
            ] {
                self.step(&event);
            }
        }
        assert_eq!(self.session.told(), &self.has, "everything is answered: {:?}", self.session);
        assert_eq!(self.session.confirmed(), &self.has);
        assert_eq!(self.session.exposure(self.now).bytes, 0);
        assert!(!self.session.is_behind());
    }
}

proptest! {
    #![proptest_config(crate::values::cases(3000))]

    #[test]
    fn what_hosts_are_told_in_sync_is_at_the_peer_or_recorded(
        is_failsafe in any::<bool>(),
        events in vec(event(), 1..120),
    ) {
        let mut owner = Owner::new(mode_sync(is_failsafe));
        for event in &events {
            owner.step(event);
            prop_assert!(!is_failsafe || !owner.is_alone, "failsafe never goes on alone");
        }
        owner.heal();
        prop_assert!(!owner.is_alone && owner.session.is_in_sync());
        prop_assert_eq!(owner.session.state(), SessionState::Streaming);
    }

    #[test]
    fn answers_in_async_do_not_wait_unless_hosts_are_pushed_back(
        pushes in any::<bool>(),
        events in vec(event(), 1..120),
    ) {
        let over = if pushes { BoundPolicy::PushBack } else { BoundPolicy::Behind };
        let mut owner = Owner::new(mode_async(over));
        for event in &events {
            owner.step(event);
            let exposure = owner.session.exposure(owner.now);
            let is_over = exposure.age > Duration::from_secs(30) || exposure.bytes > 1 << 20;
            let is_silent = owner.now.since(owner.said_more_at).min(exposure.age) >= Duration::from_secs(15);
            let helps = owner.session.state() == SessionState::Streaming && !is_silent;
            let wanted = if pushes && is_over && helps { AnswerRule::PushBack } else { AnswerRule::AtOnce };
            prop_assert_eq!(owner.session.rule(owner.now), wanted);
            prop_assert!(!is_over || pushes || owner.session.state() != SessionState::Streaming);
        }
        owner.heal();
    }

    #[test]
    fn in_whatever_mode_a_group_is_in_what_its_record_says_of_the_peer_is_so(
        events in vec(event_or_change(), 1..120),
    ) {
        let mut owner = Owner::new(mode_sync(false));
        for event in &events {
            owner.step(event);
        }
        owner.heal();
        prop_assert!(!owner.is_alone);
    }
}

#[test]
fn hosts_that_wait_are_answered_once_the_group_is_not_in_sync_any_more() {
    let mut owner = Owner::new(mode_sync(true));
    for event in [Event::Connect, Event::Compare { by_log: true }, Event::Write { part: 0 }] {
        owner.step(&event);
    }
    assert_eq!(owner.session.answerable(owner.now), GroupCut::zero(2), "the peer has not confirmed");
    owner.step(&Event::ChangeMode(mode_async(BoundPolicy::Behind)));
    assert_eq!(owner.session.answerable(owner.now), owner.has);
    owner.step(&Event::Answer);
    owner.step(&Event::ChangeMode(mode_sync(true)));
    assert!(owner.is_alone && !owner.session.is_in_sync(), "the peer lacks what was answered");
    owner.step(&Event::Write { part: 0 });
    assert_eq!(
        owner.session.answerable(owner.now),
        owner.has,
        "although it is failsafe: it is not in sync yet"
    );
    owner.heal();
    assert!(!owner.is_alone && owner.session.is_in_sync());
    owner.step(&Event::Write { part: 0 });
    assert_ne!(owner.session.answerable(owner.now), owner.has);
}

#[test]
fn a_lost_line_holds_hosts_and_then_goes_on_alone_once_that_is_recorded() {
    let mut owner = Owner::new(mode_sync(false));
    for event in [Event::Connect, Event::Compare { by_log: true }, Event::Write { part: 0 }] {
        owner.step(&event);
    }
    assert_eq!(owner.session.state(), SessionState::Streaming);
    assert_eq!(owner.session.answerable(owner.now), GroupCut::zero(2), "the peer has not confirmed");
    owner.step(&Event::Disconnect);
    owner.step(&Event::Time { milliseconds: 14_999 });
    assert!(!owner.session.demands(owner.now).contains(&SessionDemand::RecordAlone), "hosts are held");
    owner.step(&Event::Time { milliseconds: 1 });
    assert!(owner.session.demands(owner.now).contains(&SessionDemand::RecordAlone));
    assert_eq!(owner.session.answerable(owner.now), GroupCut::zero(2), "not before it is recorded");
    owner.step(&Event::Record);
    owner.step(&Event::Record);
    assert_eq!(owner.session.answerable(owner.now), owner.has);
    owner.step(&Event::Answer);
    assert_eq!(owner.session.exposure(owner.now).age, HOLD, "a disaster now would lose so much");
    owner.heal();
}

/// The peer is connected, and its drives hang.
#[test]
fn a_peer_that_confirms_nothing_holds_hosts_no_longer_than_one_that_is_lost() {
    let mut owner = Owner::new(mode_sync(false));
    let mut failsafe = Owner::new(mode_sync(true));
    for owner in [&mut owner, &mut failsafe] {
        for event in [Event::Connect, Event::Compare { by_log: true }, Event::Write { part: 0 }] {
            owner.step(&event);
        }
        owner.step(&Event::Time { milliseconds: 14_999 });
        assert_eq!(owner.session.rule(owner.now), AnswerRule::Confirmed, "hosts are held");
        assert_eq!(owner.session.demands(owner.now), []);
        owner.step(&Event::Time { milliseconds: 1 });
    }
    assert_eq!(failsafe.session.rule(failsafe.now), AnswerRule::Refuse);
    assert_eq!(owner.session.demands(owner.now), [SessionDemand::RecordAlone]);
    assert_eq!(owner.session.answerable(owner.now), GroupCut::zero(2), "not before it is recorded");
    owner.step(&Event::Record);
    owner.step(&Event::Record);
    assert_eq!(owner.session.answerable(owner.now), owner.has);
    owner.step(&Event::Answer);
    assert_eq!(owner.session.state(), SessionState::Streaming, "what it does take still goes there");
    for owner in [&mut owner, &mut failsafe] {
        owner.step(&Event::Peer { writes: 9, says: true });
        owner.heal();
    }
    assert!(!owner.is_alone && owner.session.is_in_sync());
}

/// It was alone, came close, waits for its peer again, and that hangs.
#[test]
fn a_peer_that_hangs_while_a_group_becomes_in_sync_again_holds_hosts_no_longer() {
    let mut owner = Owner::new(mode_sync(false));
    for event in [
        Event::Suspend,
        Event::Record,
        Event::Record,
        Event::Resume,
        Event::Connect,
        Event::Compare { by_log: true },
        Event::Time { milliseconds: 1 },
        Event::Write { part: 0 },
    ] {
        owner.step(&event);
    }
    assert!(owner.is_alone && owner.session.rule(owner.now) == AnswerRule::Confirmed);
    owner.step(&Event::Time { milliseconds: 15_000 });
    assert_eq!(owner.session.demands(owner.now), [SessionDemand::RecordAlone]);
    owner.step(&Event::Record);
    owner.step(&Event::Record);
    assert_eq!(owner.session.answerable(owner.now), owner.has);
    owner.heal();
}

/// Milliseconds until a group that was alone waits for its peer again, while hosts write each millisecond, and each write is
/// confirmed so long after it.
fn alone_over_line(lag_ms: u64, round_trip: Option<Duration>) -> Option<u64> {
    let mut owner = Owner::new(mode_sync(false));
    owner.step(&Event::Write { part: 0 });
    for event in [Event::Suspend, Event::Record, Event::Record, Event::Resume, Event::Connect] {
        owner.step(&event);
    }
    owner.now = Moment(3_000_000_000);
    owner.step(&Event::Compare { by_log: true });
    (1..30_000_u64).find(|&ms| {
        owner.step(&Event::Write { part: 0 });
        owner.step(&Event::Answer);
        round_trip.into_iter().for_each(|round_trip| owner.session.note_round_trip(round_trip));
        if let Some(confirmed) = ms.checked_sub(lag_ms) {
            owner.peer_has.set(0, Stamp(confirmed));
            owner.session.note_confirmed(&owner.peer_has, owner.now);
        }
        owner.step(&Event::Time { milliseconds: 1 });
        !owner.session.is_alone()
    })
}

#[test]
fn a_busy_group_is_in_sync_again_however_long_the_line_is() {
    let ms = Duration::from_millis;
    assert_eq!(alone_over_line(2, None), Some(3));
    assert_eq!(alone_over_line(25, Some(ms(20))), Some(26), "no write is confirmed earlier");
    // A line that is not as fast as hosts, and one that is not known yet.
    assert_eq!(alone_over_line(200, Some(ms(20))), Some(10_000));
    assert_eq!(alone_over_line(200, None), Some(10_000));
    assert_eq!(alone_over_line(700, Some(ms(20))), None, "hosts would wait for it");
}

/// With each return of the line it looked as if it had just been lost.
#[test]
fn a_line_that_comes_and_goes_holds_hosts_no_longer_than_one_that_is_lost() {
    let mut owner = Owner::new(mode_sync(false));
    owner.step(&Event::Connect);
    owner.step(&Event::Compare { by_log: true });
    owner.step(&Event::Write { part: 0 });
    for _ in 0..3 {
        owner.step(&Event::Disconnect);
        owner.step(&Event::Time { milliseconds: 2_500 });
        owner.step(&Event::Connect);
        owner.step(&Event::Time { milliseconds: 2_500 });
    }
    assert_eq!(owner.session.demands(owner.now), [SessionDemand::RecordAlone]);
}

#[test]
fn hosts_are_pushed_back_while_that_helps() {
    let mut owner = Owner::new(mode_async(BoundPolicy::PushBack));
    owner.step(&Event::Connect);
    owner.step(&Event::Compare { by_log: true });
    for _ in 0..=256 {
        owner.step(&Event::Write { part: 0 });
    }
    assert_eq!(owner.session.rule(owner.now), AnswerRule::PushBack, "over a mebibyte");
    owner.step(&Event::Time { milliseconds: 14_000 });
    assert_eq!(owner.session.rule(owner.now), AnswerRule::PushBack);
    owner.step(&Event::Time { milliseconds: 1_000 });
    assert_eq!(owner.session.rule(owner.now), AnswerRule::AtOnce, "the peer confirms nothing");
    assert!(owner.session.is_behind());
    owner.step(&Event::Time { milliseconds: 60_000 });
    owner.step(&Event::Disconnect);
    assert_eq!(owner.session.rule(owner.now), AnswerRule::AtOnce, "a lost line holds up no host");
    owner.heal();
}

#[test]
fn a_record_that_is_being_removed_counts_as_removed_when_the_line_is_lost() {
    let mut owner = Owner::new(mode_sync(false));
    for event in [
        Event::Suspend,
        Event::Record,
        Event::Record,
        Event::Write { part: 0 },
        Event::Answer,
        Event::Resume,
        Event::Connect,
        Event::Compare { by_log: true },
        Event::Peer { writes: 9, says: true },
        // Its removal is begun.
        Event::Record,
        Event::Disconnect,
        Event::Write { part: 1 },
    ] {
        owner.step(&event);
    }
    assert!(owner.is_alone);
    let before = owner.session.told().clone();
    assert_eq!(owner.session.answerable(owner.now), before);
    owner.step(&Event::Record);
    assert!(!owner.is_alone, "it is removed, too late to be stopped");
    assert_eq!(owner.session.answerable(owner.now), before);
    for _ in 0..2 {
        owner.step(&Event::Record);
    }
    assert_eq!(owner.session.answerable(owner.now), owner.has, "it is made again");
    owner.heal();
}

#[test]
fn passes_that_do_not_catch_up_make_a_group_behind() {
    let mut owner = Owner::new(mode_async(BoundPolicy::Behind));
    owner.step(&Event::Write { part: 0 });
    owner.step(&Event::Connect);
    owner.step(&Event::Compare { by_log: false });
    assert_eq!(owner.session.state(), SessionState::Merging);
    let pass =
        |remaining_bytes| PassReport { sent_bytes: 1 << 20, took: Duration::from_secs(1), remaining_bytes };
    for (remaining, is_behind) in [(64 << 20, false), (40 << 20, false), (21 << 20, true)] {
        owner.session.note_pass_end(&owner.has.clone(), pass(remaining), owner.now);
        assert_eq!(owner.session.is_behind(), is_behind, "{remaining}");
        assert_eq!(owner.session.state(), SessionState::Merging);
    }
    owner.session.note_pass_end(&owner.has.clone(), pass(1 << 20), owner.now);
    assert_eq!(owner.session.state(), SessionState::Streaming, "a second of line is left");
}

#[test]
fn who_returns_answers_nothing_before_it_has_compared() {
    let zero = GroupCut::zero(2);
    let mut session = GroupSession::new(mode_async(BoundPolicy::Behind), zero, (false, true), Moment(0));
    session.note_write(0, Stamp(1), 4096, Moment(0));
    assert_eq!(session.rule(Moment(0)), AnswerRule::Wait);
    let mut owner = Owner { session, ..Owner::new(mode_async(BoundPolicy::Behind)) };
    owner.has.set(0, Stamp(1));
    owner.step(&Event::Connect);
    owner.step(&Event::Compare { by_log: true });
    assert_eq!(owner.session.rule(owner.now), AnswerRule::AtOnce);
    let outcome = owner.outcome(true).mirrored();
    let deposed = ConnectOutcome { stands_down: Some(Side::Ours), ..outcome };
    owner.session.note_outcome(&deposed, owner.now);
    assert_eq!(owner.session.rule(owner.now), AnswerRule::Refuse);
    assert_eq!(owner.session.state(), SessionState::StoodDown);
    owner.session.note_disconnected(owner.now);
    assert_eq!(owner.session.state(), SessionState::StoodDown, "it stays down");
}

#[test]
fn a_periodic_group_runs_its_passes_by_the_clock() {
    let every = Duration::from_secs(600);
    let mut owner = Owner::new(ReplicationMode::Periodic { every, kept: 1 });
    owner.step(&Event::Write { part: 0 });
    owner.step(&Event::Connect);
    owner.step(&Event::Compare { by_log: true });
    let is_due = |owner: &Owner| owner.session.demands(owner.now).contains(&SessionDemand::RunPass);
    assert!(is_due(&owner), "the peer is behind");
    owner.step(&Event::Time { milliseconds: 20_000 });
    owner.step(&Event::Pass { milliseconds: 20_000 });
    assert!(!is_due(&owner));
    assert_eq!(owner.session.rule(owner.now), AnswerRule::AtOnce);
    owner.step(&Event::Time { milliseconds: 579_999 });
    assert!(!is_due(&owner));
    owner.step(&Event::Time { milliseconds: 1 });
    assert!(is_due(&owner), "from the beginning of the one before");
    owner.step(&Event::Time { milliseconds: 700_000 });
    owner.step(&Event::Pass { milliseconds: 700_000 });
    assert!(owner.session.is_behind() && is_due(&owner), "a pass takes longer than its period");
    owner.step(&Event::Time { milliseconds: 1 });
    owner.step(&Event::Disconnect);
    owner.step(&Event::Connect);
    owner.step(&Event::Compare { by_log: true });
    assert_eq!(owner.session.state(), SessionState::Merging, "nothing is streamed");
}
