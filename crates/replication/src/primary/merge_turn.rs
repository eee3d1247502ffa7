//! The turn of a group among those that merge with its peer.

use super::PrimaryGroup;
use crate::merge_gate::TurnRequest;
use futures_util::future::select;
use std::{pin::pin, time::Duration};

/// Interval of asking for a turn.
const ASK_EVERY: Duration = Duration::from_millis(100);

/// Wish for a turn, or the turn; given up when it is dropped.
pub(super) struct MergeTurn<'g> {
    group: &'g PrimaryGroup,
    has_turn: bool,
    waits: bool,
    turns_before: u32,
}

impl<'g> MergeTurn<'g> {
    pub fn of(group: &'g PrimaryGroup) -> Self {
        Self { group, has_turn: false, waits: false, turns_before: 0 }
    }

    /// True if a pass may begin now.
    pub fn enter(&mut self, is_first_copy: bool) -> bool {
        let member = &self.group.member;
        let Some(gate) = member.merge_gate() else { return true };
        let request =
            TurnRequest { start: member.merge_plan().start, is_first_copy, turns_before: self.turns_before };
        let entered = gate.enter(&request);
        (self.has_turn, self.waits) = (entered.is_ok(), entered.is_err());
        member.meter.set_standstill(entered.err());
        self.has_turn
    }

    /// Waits until it is to be asked for again.
    pub async fn wait(&self) {
        let group = self.group;
        let changed = group.changed.notified();
        select(pin!(changed), pin!(group.world.sleep(ASK_EVERY))).await;
    }

    /// Others may go first.
    pub fn leave(&mut self) {
        if self.has_turn || self.waits {
            self.turns_before += u32::from(self.has_turn);
            (self.has_turn, self.waits) = (false, false);
            self.group.member.meter.set_standstill(None);
            self.group.member.merge_gate().into_iter().for_each(|gate| gate.leave());
        }
    }
}

impl Drop for MergeTurn<'_> {
    fn drop(&mut self) {
        self.leave();
    }
}
