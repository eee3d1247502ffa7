//! Decisions about one group, one by one.

use array::format::{EpochId, GroupId, SiteId};
use replication::witness::{
    group::{SITES_MAX, WitnessAction, WitnessCondition, WitnessRefusal, WitnessRequest},
    lease::{LeaseFence, LeaseGuard, LeaseSpan},
    ledger::{GROUPS_MAX, WitnessAnswer, WitnessLedger},
};
use std::time::Duration;
use world::{Moment, WallTime};

const A: SiteId = SiteId([1; 16]);
const B: SiteId = SiteId([2; 16]);
const HEAD: EpochId = EpochId([7; 16]);
const SPAN: LeaseSpan = LeaseSpan::DEFAULT;
const WALL: WallTime = WallTime { seconds: 1_800_000_000, nanos: 0 };

/// A ledger with a clock, and sites that remember what they saw.
#[derive(Default)]
struct Fixture {
    ledger: WitnessLedger,
    now: Moment,
}

impl Fixture {
    fn ask(&mut self, site: SiteId, action: WitnessAction) -> WitnessAnswer {
        let seen = self.ledger.view(GroupId([9; 16]), self.now);
        let (fence, revision) = seen.map_or_else(Default::default, |v| (v.state.fence, v.state.revision));
        self.ask_as(site, fence, revision, action)
    }

    fn ask_as(
        &mut self,
        site: SiteId,
        fence: LeaseFence,
        revision: u64,
        action: WitnessAction,
    ) -> WitnessAnswer {
        let request = WitnessRequest { group: GroupId([9; 16]), site, fence, revision, action };
        self.ledger.apply(&request, self.now, WALL).0
    }

    fn pass(&mut self, ms: u64) {
        self.now = self.now + Duration::from_millis(ms);
    }

    fn restart(&mut self) {
        let groups = self.ledger.groups().map(|(group, state)| (group, state.clone())).collect();
        self.now = Moment(0);
        self.ledger = WitnessLedger::restarted(groups, self.now);
    }
}

fn acquire(head: EpochId, by_person: bool) -> WitnessAction {
    WitnessAction::Acquire { span: SPAN, head, by_person }
}

fn fence(answer: &WitnessAnswer) -> u64 {
    answer.view.as_ref().expect("the group is known").state.fence.0
}

#[test]
fn another_site_is_granted_the_lease_only_after_its_whole_span() {
    let mut witness = Fixture::default();
    assert_eq!(fence(&witness.ask(A, acquire(HEAD, false))), 1);
    witness.pass(2_000);
    assert_eq!(witness.ask(A, WitnessAction::Renew { head: HEAD }).result, Ok(()));
    witness.pass(2_999);
    assert_eq!(witness.ask(B, acquire(HEAD, false)).result, Err(WitnessRefusal::Held));
    assert_eq!(
        witness.ask(B, acquire(HEAD, true)).result,
        Err(WitnessRefusal::Held),
        "a person does not end it"
    );
    witness.pass(1);
    let granted = witness.ask(B, acquire(HEAD, false));
    assert_eq!((granted.result, fence(&granted)), (Ok(()), 2));
    let renewed = witness.ask_as(A, LeaseFence(1), 9, WitnessAction::Renew { head: HEAD });
    assert_eq!(renewed.result, Err(WitnessRefusal::NotHolder));
}

#[test]
fn a_restart_waits_for_the_longest_lease_and_forgets_no_fence_and_no_alone() {
    let mut witness = Fixture::default();
    witness.ask(A, acquire(HEAD, false));
    witness.pass(10_000);
    witness.restart();
    witness.pass(2_999);
    assert_eq!(witness.ask(B, acquire(HEAD, false)).result, Err(WitnessRefusal::Held));
    assert_eq!(witness.ask(A, WitnessAction::RecordAlone).result, Ok(()));
    witness.restart();
    witness.pass(3_000);
    assert_eq!(witness.ask(B, acquire(HEAD, false)).result, Err(WitnessRefusal::Alone));
    let ordered = witness.ask(B, acquire(HEAD, true));
    assert_eq!((ordered.result, fence(&ordered)), (Ok(()), 2));
    let state = ordered.view.expect("it is known").state;
    assert_eq!(state.condition, WitnessCondition::Alone { since: WALL }, "and now the other side is blocked");
    witness.pass(3_000);
    assert_eq!(witness.ask(A, acquire(HEAD, false)).result, Err(WitnessRefusal::Alone));
}

#[test]
fn a_released_lease_goes_to_the_site_it_was_released_to() {
    let mut witness = Fixture::default();
    let third = SiteId([3; 16]);
    witness.ask(A, acquire(HEAD, false));
    assert_eq!(witness.ask(A, WitnessAction::Release { to: B }).result, Ok(()));
    assert_eq!(witness.ask(third, acquire(HEAD, false)).result, Err(WitnessRefusal::Held));
    assert_eq!(witness.ask(B, acquire(HEAD, false)).result, Ok(()));
    witness.ask(B, WitnessAction::RecordAlone);
    assert_eq!(witness.ask(B, WitnessAction::Release { to: A }).result, Err(WitnessRefusal::Alone));
}

#[test]
fn requests_that_were_delayed_take_nothing_away() {
    let mut witness = Fixture::default();
    witness.ask(A, acquire(HEAD, false));
    let alone = witness.ask(A, WitnessAction::RecordAlone).view.expect("it is known").state.revision;
    // The end of *alone* is on its way when the line is lost once more.
    witness.ask(A, WitnessAction::RecordAlone);
    let late = witness.ask_as(A, LeaseFence(1), alone, WitnessAction::RecordSync);
    assert_eq!(late.result, Err(WitnessRefusal::Changed));
    assert_eq!(witness.ask(A, WitnessAction::RecordSync).result, Ok(()));
    // A release is on its way when its sender begins again.
    assert_eq!(fence(&witness.ask(A, acquire(HEAD, false))), 2);
    let late = witness.ask_as(A, LeaseFence(1), 0, WitnessAction::Release { to: B });
    assert_eq!(late.result, Err(WitnessRefusal::NotHolder));
    let late = witness.ask_as(A, LeaseFence(0), 0, acquire(HEAD, false));
    assert_eq!(late.result, Err(WitnessRefusal::Changed));
}

#[test]
fn a_site_of_another_history_is_not_granted_the_lease() {
    let mut witness = Fixture::default();
    let [second, third, foreign] = [2, 3, 4].map(|byte| EpochId([byte; 16]));
    witness.ask(A, acquire(HEAD, false));
    witness.ask(A, WitnessAction::Renew { head: second });
    witness.ask(A, WitnessAction::Renew { head: third });
    witness.pass(3_000);
    for head in [HEAD, foreign] {
        assert_eq!(witness.ask(B, acquire(head, false)).result, Err(WitnessRefusal::OtherHistory));
    }
    assert_eq!(witness.ask(B, acquire(second, false)).result, Ok(()));
}

#[test]
fn a_fence_is_above_all_that_sites_know_and_claims_have_a_limit() {
    let mut witness = Fixture::default();
    assert_eq!(fence(&witness.ask_as(A, LeaseFence(41), 0, acquire(HEAD, false))), 42);
    let absurd = witness.ask_as(A, LeaseFence(u64::MAX), 0, acquire(HEAD, false));
    assert_eq!(absurd.result, Err(WitnessRefusal::Fence));
}

#[test]
fn groups_and_sites_have_limits() {
    let mut ledger = WitnessLedger::default();
    let mut ask = |group: u16, site: u8, action| {
        let mut name = [5; 16];
        name[..2].copy_from_slice(&group.to_le_bytes());
        let site = SiteId([site; 16]);
        let request =
            WitnessRequest { group: GroupId(name), site, fence: LeaseFence(1), revision: 0, action };
        ledger.apply(&request, Moment(0), WALL).0.result
    };
    for group in 0..GROUPS_MAX as u16 {
        assert_eq!(ask(group, 1, acquire(HEAD, false)), Ok(()));
    }
    assert_eq!(ask(GROUPS_MAX as u16, 1, acquire(HEAD, false)), Err(WitnessRefusal::Full));
    assert_eq!(ask(GROUPS_MAX as u16, 1, WitnessAction::RecordAlone), Err(WitnessRefusal::Unknown));
    for site in 2..=SITES_MAX as u8 {
        assert_eq!(ask(0, site, WitnessAction::RecordAlone), Err(WitnessRefusal::NotHolder));
    }
    assert_eq!(ask(0, 99, WitnessAction::RecordAlone), Err(WitnessRefusal::Full));
}

#[test]
fn a_guard_stops_before_the_witness_does_and_starts_again_only_with_a_higher_fence() {
    let mut guard = LeaseGuard::default();
    let sent = Moment(5_000_000_000);
    assert!(!guard.may_answer(Moment(0)));
    guard.grant(sent, LeaseFence(3), SPAN);
    assert!(guard.may_answer(sent + Duration::from_millis(2_939)));
    assert!(!guard.may_answer(sent + Duration::from_millis(2_940)), "49/50 of 3 s");
    guard.grant(sent + Duration::from_secs(9), LeaseFence(2), SPAN);
    assert!(!guard.may_answer(sent + Duration::from_secs(9)), "a lower fence");
    guard.give_up(LeaseFence(3));
    guard.grant(sent + Duration::from_secs(9), LeaseFence(3), SPAN);
    assert!(!guard.may_answer(sent + Duration::from_secs(9)), "it was given up");
    guard.grant(sent + Duration::from_secs(9), LeaseFence(4), SPAN);
    assert!(guard.may_answer(sent + Duration::from_secs(9)));
}
