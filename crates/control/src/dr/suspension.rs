//! Groups that are stopped without being taken apart: suspended by a person at the primary, or by a target without room.
//!
//! Invariants:
//!
//! 1. Hosts are served as before: a group whose hosts would be refused is not suspended by a person.
//! 2. A target without room says so once, and refuses connections until it may have room: nothing is sent in vain.

use super::{
    group_view::DrGroupView,
    hosted_group::{HostedGroup, words_of},
    thread_channel::ThreadChannel,
};
use replication::{
    channel::{ChannelEnd, FrameChannel},
    connect::SiteRole,
    frame::{FrameBody, RefusalCode, RefusalFrame},
    merge_plan::MergePlan,
    primary::PrimaryGroup,
    secondary::{NO_ROOM, SecondaryEnd, is_out_of_room},
    session::{ReplicationMode, SessionState, SuspensionReason},
};
use report::Refusal;
use std::{
    cell::{Cell, RefCell},
    time::Duration,
};
use world::{Moment, WallTime};

/// A target without room tries again after so long, although its pool seems as full as before: a limit or a reserve may be
/// another one.
const TRY_ANYWAY: Duration = Duration::from_secs(15);
/// Room that has to have become free before it tries earlier.
const ROOM_FREED: u64 = 64 << 20;

/// Reasons of a secondary for having no connection.
#[derive(Default)]
pub(super) struct StopNotes {
    /// The primary said that it is suspended, or this side that it has no room.
    stopped: RefCell<Option<(Moment, WallTime, String)>>,
    /// The pool was full at this moment, with so many bytes free.
    full: Cell<Option<(Moment, u64)>>,
}

impl HostedGroup {
    /// Suspends the group: no channel runs.
    pub(super) async fn suspend(&self, group: &PrimaryGroup) -> Result<(), Refusal> {
        let name = &self.settings().name;
        if matches!(self.settings().mode, ReplicationMode::Sync { is_failsafe: true, .. }) {
            let problem = format!(
                "{name} refuses its hosts without the other site (failsafe): its mail would stand still"
            );
            return Err(Refusal::new(problem, "make it without ⟨failsafe⟩, or cut the line by other means"));
        }
        group.suspend(SuspensionReason::Person).await.map_err(|error| self.refusal(&error))?;
        self.occurred(
            "dr_suspended",
            "suspended by a person: the other site gets nothing until it is resumed",
        );
        self.note_end("suspended by a person".to_owned());
        Ok(())
    }

    /// Goes on, by a plan.
    pub(super) async fn resume(&self, group: &PrimaryGroup, plan: MergePlan) -> Result<(), Refusal> {
        let was_suspended = self.member.suspension().is_some();
        group.resume(plan).await.map_err(|error| self.refusal(&error))?;
        if was_suspended {
            self.occurred("dr_resumed", "resumed: the other site gets what it lacks");
        }
        Ok(())
    }

    /// Refuses a channel of a primary that is suspended. One whose target was full looks whether it has room again.
    pub(super) async fn refuses_suspended(&self, group: &PrimaryGroup, channel: &ThreadChannel) -> bool {
        group.look_for_room();
        let Some(refusal) = group.suspension_refusal() else { return false };
        // The other end may have gone.
        let _ = channel.send(FrameBody::Refusal(refusal)).await;
        true
    }

    /// A target without room suspends its group: hosts go on.
    pub(super) async fn suspend_if_full(&self, group: &PrimaryGroup, end: &ChannelEnd) {
        let ChannelEnd::Refused(RefusalFrame { code: RefusalCode::Full, .. }) = end else { return };
        let was_known = self.member.suspension().is_some();
        match group.suspend(SuspensionReason::TargetFull).await {
            Ok(()) if !was_known => self.warn(
                "the pool at the other site is full: nothing is sent until it has room; hosts are served here as before",
            ),
            Ok(()) => {}
            Err(error) => self.note_end(error.to_string()),
        }
    }

    /// Refuses a channel of a secondary whose pool is as full as before.
    pub(super) async fn refuses_full(&self, channel: &ThreadChannel) -> bool {
        let Some((at, free_then)) = self.stops.full.get() else { return false };
        let is_waiting = self.world.now().since(at) < TRY_ANYWAY;
        if !is_waiting || self.free_bytes() >= free_then + ROOM_FREED {
            self.stops.full.set(None);
            return false;
        }
        let refusal = RefusalFrame { code: RefusalCode::Full, text: NO_ROOM.to_owned() };
        let _ = channel.send(FrameBody::Refusal(refusal)).await;
        true
    }

    fn free_bytes(&self) -> u64 {
        let space = self.member.pool().space();
        space.usable_bytes.saturating_sub(space.used_bytes)
    }

    /// Notes the end of a channel of a secondary.
    pub(super) fn note_stop(&self, end: &SecondaryEnd) {
        let (now, wall) = (self.world.now(), self.world.wall());
        let text = match end {
            SecondaryEnd::Failed(error) if is_out_of_room(error) => {
                if self.stops.stopped.borrow().is_none() {
                    self.warn(
                        "the pool is full: nothing more is taken from the other site until it has room",
                    );
                }
                self.stops.full.set(Some((now, self.free_bytes())));
                NO_ROOM.to_owned()
            }
            SecondaryEnd::Channel(ChannelEnd::Refused(refusal)) if refusal.code == RefusalCode::Suspended => {
                refusal.text.clone()
            }
            // A word after the last refusal says that it is over.
            _ => return,
        };
        *self.stops.stopped.borrow_mut() = Some((now, wall, text));
    }

    /// Adds why nothing is sent, or a merge stands still.
    pub(super) fn add_suspension(&self, view: &mut DrGroupView) {
        let state = self.member.state();
        let report = &mut view.report;
        report.merge_plan = state.merge;
        report.standstill = self.member.meter().standstill();
        if let Some(suspension) = state.suspension {
            let since = WallTime { seconds: suspension.since_unix_s as i64, nanos: 0 };
            report.suspended = Some((suspension.reason, since));
            if matches!(view.state, "connecting" | "comparing") && view.serves {
                view.state = words_of(SessionState::Suspended(suspension.reason));
            }
        }
        let word_at = self.member.meter().word_at();
        let stopped = self.stops.stopped.borrow();
        let is_so = |noted: &&(Moment, WallTime, String)| {
            state.role == SiteRole::Secondary && word_at.is_none_or(|word| word < noted.0)
        };
        report.stopped = stopped.as_ref().filter(is_so).map(|(_, wall, text)| (*wall, text.clone()));
    }
}
