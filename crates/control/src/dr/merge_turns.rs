//! Turns of the groups of all pools of a site that merge with one other site.
//!
//! Invariants:
//!
//! 1. Of the groups that take turns with a peer, no more merge at one time than the plan of each allows. First copies have
//!    turns of their own.
//! 2. The next one is the group that had the fewest turns since its connection began; of these, the first by name.

use crate::planted::{self, DrBug};
use array::format::{GroupId, SiteId};
use replication::{
    merge_gate::{MergeGate, MergeStandstill, TurnRequest},
    merge_plan::MergeStart,
};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
};
use world::World;

/// Of the whole process: the pools have threads of their own.
#[derive(Clone, Default)]
pub(crate) struct MergeTurns(Arc<Mutex<TurnTable>>);

type TurnTable = BTreeMap<SiteId, Vec<MergingGroup>>;

/// A group that merges or waits.
struct MergingGroup {
    group: GroupId,
    name: String,
    is_first_copy: bool,
    has_turn: bool,
    turns_before: u32,
}

impl MergeTurns {
    fn table(&self) -> MutexGuard<'_, TurnTable> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// The turns of one group.
    pub fn of_group(&self, world: &World, (group, name): (GroupId, &str), peer: SiteId) -> GroupTurns {
        GroupTurns { turns: self.clone(), world: world.clone(), group, name: name.to_owned(), peer }
    }
}

pub(crate) struct GroupTurns {
    turns: MergeTurns,
    world: World,
    group: GroupId,
    name: String,
    peer: SiteId,
}

impl MergeGate for GroupTurns {
    fn enter(&self, request: &TurnRequest) -> Result<(), MergeStandstill> {
        let at_once_max = match request.start {
            MergeStart::AtOnce => usize::MAX,
            MergeStart::Staggered(groups) => groups.into(),
            MergeStart::Window(window) => {
                let left = window.opens_in(self.world.wall());
                if !left.is_zero() {
                    self.leave();
                    return Err(MergeStandstill::Window(left));
                }
                1
            }
        };
        let mut table = self.turns.table();
        let all = table.entry(self.peer).or_default();
        let has_turn = all.iter().any(|known| known.group == self.group && known.has_turn);
        all.retain(|known| known.group != self.group);
        let TurnRequest { is_first_copy, turns_before, .. } = *request;
        let is_before = |known: &&MergingGroup| {
            let is_earlier = (known.turns_before, &known.name) < (turns_before, &self.name);
            known.is_first_copy == is_first_copy && (known.has_turn || is_earlier)
        };
        let before: Vec<String> = all.iter().filter(is_before).map(|known| known.name.clone()).collect();
        let has_turn = has_turn || before.len() < at_once_max || planted::is_in_dr(DrBug::TurnsIgnored);
        let name = self.name.clone();
        all.push(MergingGroup { group: self.group, name, is_first_copy, has_turn, turns_before });
        if has_turn { Ok(()) } else { Err(MergeStandstill::Turn(before)) }
    }

    fn leave(&self) {
        let mut table = self.turns.table();
        if let Some(all) = table.get_mut(&self.peer) {
            all.retain(|known| known.group != self.group);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use replication::merge_plan::DayWindow;
    use std::time::Duration;
    use world::sim::{SimLimits, Simulation};

    const PEER: SiteId = SiteId([9; 16]);

    fn request(start: MergeStart, turns_before: u32) -> TurnRequest {
        TurnRequest { start, is_first_copy: false, turns_before }
    }

    /// Groups a to d with one peer take turns.
    fn take_turns(world: &World) {
        let turns = MergeTurns::default();
        let group = |number: u8, name: &str| turns.of_group(world, (GroupId([number; 16]), name), PEER);
        let (a, b, c, d) = (group(1, "a"), group(2, "b"), group(3, "c"), group(4, "d"));
        let one = |turns_before| request(MergeStart::Staggered(1), turns_before);
        let waits = |names: &[&str]| {
            Err(MergeStandstill::Turn(names.iter().map(|name| (*name).to_owned()).collect()))
        };
        assert_eq!(b.enter(&one(0)), Ok(()));
        assert_eq!(c.enter(&one(0)), waits(&["b"]));
        assert_eq!(a.enter(&one(0)), waits(&["b"]));
        assert_eq!(b.enter(&one(0)), Ok(()), "it keeps its turn");
        // A first copy has turns of its own, and so has another peer.
        assert_eq!(d.enter(&TurnRequest { is_first_copy: true, ..one(0) }), Ok(()));
        let elsewhere = turns.of_group(world, (GroupId([5; 16]), "e"), SiteId([8; 16]));
        assert_eq!(elsewhere.enter(&one(0)), Ok(()));
        b.leave();
        assert_eq!(c.enter(&one(0)), waits(&["a"]));
        assert_eq!(a.enter(&one(0)), Ok(()));
        // One that does not catch up gives its turn up.
        a.leave();
        assert_eq!(a.enter(&one(1)), waits(&["c"]));
        assert_eq!(c.enter(&request(MergeStart::Staggered(2), 0)), Ok(()));
        assert_eq!(a.enter(&request(MergeStart::Staggered(2), 1)), Ok(()));
        assert_eq!(b.enter(&request(MergeStart::AtOnce, 0)), Ok(()));
        // The clock of the simulation says what time of the day it is.
        let minute = (world.wall().seconds.rem_euclid(86_400) / 60) as u16;
        let later = DayWindow::new((minute + 60) % 1440, (minute + 120) % 1440).expect("it is a window");
        b.leave();
        let closed = b.enter(&request(MergeStart::Window(later), 0));
        assert!(matches!(closed, Err(MergeStandstill::Window(left)) if left <= Duration::from_secs(3600)));
    }

    #[test]
    fn groups_take_turns_by_name_and_let_others_go_first() {
        Simulation::new(1).run(SimLimits::generous(), |world| async move { take_turns(&world) }).completed();
    }

    #[cfg(debug_assertions)]
    #[test]
    fn turns_that_are_ignored_are_noticed() {
        use crate::planted::with_dr_bug;
        let run = || groups_take_turns_by_name_and_let_others_go_first();
        assert!(with_dr_bug(DrBug::TurnsIgnored, || std::panic::catch_unwind(run)).is_err());
    }
}
