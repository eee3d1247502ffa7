//! Readers of the replica of a group with volumes in several pools: all of them see one cut, whichever pool they read.
//!
//! ```text
//! none ── a read ──▶ making: each pool clones its part ── all have ──▶ open ── nobody reads in any pool ──▶ none
//!   ▲                                     │ one has not
//!   └─────────────────────────────────────┘
//! ```
//!
//! Invariants:
//!
//! 1. A view has a number, which is given once. A pool shows its clones only while their number is that of the open view.
//! 2. A view is open once all pools have cloned their parts in one cut, until no pool has a reader.
//!
//! Pools are on threads of their own: this is all that their readers share.

use super::pool_groups::PoolDrGroups;
use array::format::GroupId;
use replication::joint_cut::JointCutId;
use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::sync::Notify;
use world::{World, with_deadline};

/// Time for all pools to clone their parts.
const MADE_WITHIN: Duration = Duration::from_secs(15);
/// Looks without a reader after which a pool has none.
pub(super) const LOOKS_UNUSED: u32 = 2;

#[derive(Clone, Debug, PartialEq, Eq)]
enum ViewPhase {
    /// The reason for which the last view was not made, if it was not.
    None(Option<String>),
    Making,
    Open,
}

#[derive(Clone, Debug, Default)]
struct PartReaders {
    has_made: bool,
    /// Looks since somebody read this part.
    unused: u32,
}

struct ReadersState {
    /// Number of the last view.
    number: u64,
    phase: ViewPhase,
    parts: Vec<PartReaders>,
}

/// The readers of a group at one site.
pub(crate) struct JointReaders {
    group: GroupId,
    state: Mutex<ReadersState>,
    /// Shared with all groups: the pools look which views they have to make.
    changed: Arc<Notify>,
}

impl JointReaders {
    pub fn new(group: GroupId, parts: usize, changed: &Arc<Notify>) -> Arc<Self> {
        let (phase, parts) = (ViewPhase::None(None), vec![PartReaders::default(); parts]);
        let state = Mutex::new(ReadersState { number: 0, phase, parts });
        Arc::new(Self { group, state, changed: Arc::clone(changed) })
    }

    fn lock(&self) -> MutexGuard<'_, ReadersState> {
        // Each change is whole before anything can panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A reader of a part needs a view: the number of the one that is open, or is being made from now on.
    pub fn want(&self, part: usize) -> u64 {
        let mut state = self.lock();
        let is_new = matches!(state.phase, ViewPhase::None(_));
        if is_new {
            state.number += 1;
            state.phase = ViewPhase::Making;
            state.parts.fill(PartReaders::default());
        }
        state.parts[part].unused = 0;
        let number = state.number;
        drop(state);
        if is_new {
            self.changed.notify_waiters();
        }
        number
    }

    /// The view of which a part has to be cloned here, and its cut.
    pub fn to_make(&self, part: usize) -> Option<(u64, JointCutId)> {
        let state = self.lock();
        let is_due = state.phase == ViewPhase::Making && !state.parts[part].has_made;
        is_due.then(|| (state.number, self.cut_of(state.number)))
    }

    fn cut_of(&self, number: u64) -> JointCutId {
        let mut cut = self.group.0;
        cut.iter_mut().zip(number.to_le_bytes()).for_each(|(byte, other)| *byte ^= other);
        cut[8..].iter_mut().zip(*b"readers ").for_each(|(byte, other)| *byte ^= other);
        JointCutId(cut)
    }

    /// A part was cloned for a view, or was not.
    pub fn note_made(&self, (part, number): (usize, u64), made: Result<(), String>) {
        let mut state = self.lock();
        if state.number == number && state.phase == ViewPhase::Making {
            match made {
                Ok(()) => {
                    state.parts[part].has_made = true;
                    if state.parts.iter().all(|part| part.has_made) {
                        state.phase = ViewPhase::Open;
                    }
                }
                Err(why) => state.phase = ViewPhase::None(Some(why)),
            }
        }
        drop(state);
        self.changed.notify_waiters();
    }

    /// Waits until a view is open.
    ///
    /// # Errors
    ///
    /// A pool has not cloned its part, or not in time.
    pub async fn opened(&self, world: &World, number: u64) -> Result<(), String> {
        let opened = with_deadline(world.sleep(MADE_WITHIN), Box::pin(self.wait_for(number))).await;
        opened.unwrap_or_else(|| {
            let why = format!("a pool takes longer than {} s", MADE_WITHIN.as_secs());
            let mut state = self.lock();
            if state.number == number && state.phase == ViewPhase::Making {
                state.phase = ViewPhase::None(Some(why.clone()));
            }
            Err(why)
        })
    }

    async fn wait_for(&self, number: u64) -> Result<(), String> {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // Listed before the look, so that a change on another thread after it is not missed.
            changed.as_mut().enable();
            {
                let state = self.lock();
                match &state.phase {
                    _ if state.number != number => return Err("its view was closed".to_owned()),
                    ViewPhase::Open => return Ok(()),
                    ViewPhase::None(Some(why)) => return Err(why.clone()),
                    ViewPhase::None(None) => return Err("its view was closed".to_owned()),
                    ViewPhase::Making => {}
                }
            }
            changed.await;
        }
    }

    /// A look at a pool that has clones of a view. True while they stay.
    pub fn note_use(&self, (part, number): (usize, u64), is_used: bool) -> bool {
        let mut state = self.lock();
        if state.number != number {
            return false;
        }
        let unused = &mut state.parts[part].unused;
        *unused = if is_used { 0 } else { unused.saturating_add(1) };
        if state.phase == ViewPhase::Open && state.parts.iter().all(|part| part.unused >= LOOKS_UNUSED) {
            state.phase = ViewPhase::None(None);
        }
        !matches!(state.phase, ViewPhase::None(_))
    }

    /// A pool that was opened again has no clones of a view: nobody reads it there.
    pub fn note_lost(&self, (part, number): (usize, u64)) {
        let mut state = self.lock();
        if state.number == number {
            state.parts[part].unused = LOOKS_UNUSED;
        }
    }
}

impl PoolDrGroups {
    /// The readers of the group with volumes in several pools that a group is a part of, and its index.
    pub(super) fn joint_readers(&self, group: GroupId) -> Option<(Arc<JointReaders>, usize)> {
        let groups = self.groups.borrow();
        let part = groups.get(&group)?.settings().joint?;
        Some((self.access.joint_readers(&part), part.index.into()))
    }

    /// The groups here that are parts of groups with volumes in several pools.
    pub(super) fn joint_groups(&self) -> Vec<GroupId> {
        let groups = self.groups.borrow();
        groups
            .iter()
            .filter(|(_, hosted)| hosted.settings().joint.is_some())
            .map(|(group, _)| *group)
            .collect()
    }

    pub(super) fn readers_changed(&self) -> Arc<Notify> {
        Arc::clone(self.access.readers_changed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn readers() -> Arc<JointReaders> {
        JointReaders::new(GroupId([7; 16]), 2, &Arc::default())
    }

    #[test]
    fn a_view_is_open_once_all_parts_are_there_and_until_nobody_reads_any() {
        let readers = readers();
        assert_eq!(readers.to_make(0), None);
        let number = readers.want(0);
        assert_eq!((readers.want(1), readers.to_make(0)), (number, readers.to_make(1)), "one view, one cut");
        readers.note_made((0, number), Ok(()));
        assert_eq!(readers.to_make(0), None);
        assert!(readers.to_make(1).is_some() && readers.lock().phase == ViewPhase::Making);
        readers.note_made((1, number), Ok(()));
        assert_eq!(readers.lock().phase, ViewPhase::Open);
        // Part 1 is read, part 0 is not.
        for _ in 0..5 {
            assert!(readers.note_use((0, number), false) && readers.note_use((1, number), true));
        }
        assert_eq!(readers.want(0), number, "the cut of the first read");
        assert!(readers.note_use((1, number), false) && readers.note_use((1, number), false));
        assert!(readers.note_use((0, number), false), "one look without a reader is not enough");
        assert!(!readers.note_use((0, number), false) && !readers.note_use((1, number), false));
        let next = readers.want(1);
        assert!(next > number && readers.to_make(0).is_some_and(|(_, cut)| cut != readers.cut_of(number)));
        assert!(!readers.note_use((0, number), true), "clones of an older view go");
    }

    #[test]
    fn a_part_that_is_not_cloned_or_was_lost_ends_the_view() {
        let readers = readers();
        let number = readers.want(0);
        readers.note_made((0, number), Ok(()));
        readers.note_made((1, number), Err("full".to_owned()));
        assert_eq!(readers.lock().phase, ViewPhase::None(Some("full".to_owned())));
        assert!(!readers.note_use((0, number), true));
        let number = readers.want(0);
        // A late answer to the view before says nothing of this one.
        readers.note_made((1, number - 1), Err("late".to_owned()));
        readers.note_made((0, number), Ok(()));
        readers.note_made((1, number), Ok(()));
        readers.note_lost((1, number));
        assert!(readers.note_use((0, number), true), "the other part is read");
        assert!(readers.note_use((0, number), false) && !readers.note_use((0, number), false));
    }
}
