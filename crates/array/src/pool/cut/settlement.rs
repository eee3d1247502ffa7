//! Settling cuts that ended early, once their pools are seen together.
//!
//! A cut is *whole* in some pool only after it was durable in all. So if one pool of those seen has it whole, or
//! has the snapshot and no cut row any more, or all pools are there and each has it, it is confirmed. If all pools are
//! there and one lacks it, without any that has it whole, it never was durable there, and no pool keeps it. Cut rows
//! are removed once all pools were seen and none has it pending.

use super::super::{Pool, difference::row_of_deleted};
use crate::{
    error::{Error, Result},
    format::{
        PoolId, RowKey, SnapshotId, WallNanoseconds,
        row::{CutRow, CutState},
    },
    log::LogItem,
    simulation::sometimes::{self, Sometimes},
};
use std::{collections::BTreeMap, rc::Rc};

/// A cut that a pool does not know to be settled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnsettledCut {
    pub snapshot: SnapshotId,
    /// Name of the snapshot; empty while the cut is under way.
    pub name: String,
    pub created_at: WallNanoseconds,
    pub state: UnsettledState,
    /// All pools of the cut, ascending; none while it is under way, or once it is settled.
    pub pools: Vec<PoolId>,
}

/// Progress of a cut in one pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnsettledState {
    /// This process takes it just now.
    UnderWay,
    /// Another pool may lack its part; the snapshot cannot be used.
    Pending,
    /// All pools have their parts; the snapshot can be used, but not deleted.
    Whole,
    /// The pool has the snapshot, and needs no other any more: so all had their parts.
    Settled,
}

/// The next step of settling a cut in one pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CutSettlement {
    /// It is whole.
    Confirm,
    /// All pools know that it is whole: its row is removed, the snapshot stays.
    Forget,
    /// A pool lacks its part: the snapshot is deleted.
    Remove,
}

/// The next steps for the cuts of these pools. Once they are done, call it again, until there are none.
pub fn settlements(seen: &BTreeMap<PoolId, Vec<UnsettledCut>>) -> Vec<(PoolId, SnapshotId, CutSettlement)> {
    let all = seen.values().flatten();
    let known: BTreeMap<SnapshotId, &[PoolId]> =
        all.filter(|cut| !cut.pools.is_empty()).map(|cut| (cut.snapshot, &cut.pools[..])).collect();
    let mut steps = Vec::new();
    for (snapshot, pools) in known {
        let state_in = |pool: &PoolId| {
            let cuts = seen.get(pool)?;
            Some(cuts.iter().find(|cut| cut.snapshot == snapshot).map(|cut| cut.state))
        };
        let states: Vec<(PoolId, Option<Option<UnsettledState>>)> =
            pools.iter().map(|pool| (*pool, state_in(pool))).collect();
        let has = |state| states.iter().any(|(_, found)| *found == Some(Some(state)));
        if has(UnsettledState::UnderWay) {
            continue;
        }
        let are_all_seen = states.iter().all(|(_, found)| found.is_some());
        let is_missing = states.iter().any(|(_, found)| *found == Some(None));
        let has_pending = has(UnsettledState::Pending);
        let has_whole = has(UnsettledState::Whole) || has(UnsettledState::Settled);
        let (settlement, of) = match () {
            () if has_pending && (has_whole || are_all_seen && !is_missing) => {
                (CutSettlement::Confirm, UnsettledState::Pending)
            }
            () if has_pending && are_all_seen => (CutSettlement::Remove, UnsettledState::Pending),
            () if !has_pending && are_all_seen => (CutSettlement::Forget, UnsettledState::Whole),
            () => continue,
        };
        let concerned = states.into_iter().filter(|(_, found)| *found == Some(Some(of)));
        steps.extend(concerned.map(|(pool, _)| (pool, snapshot, settlement)));
    }
    steps
}

/// Settles the cuts of these pools, as far as the pools that they need are among them. Returns what became of each
/// snapshot in each pool; those without an entry stay as they are.
///
/// # Errors
///
/// A pool cannot write.
pub async fn settle_cuts(pools: &[Rc<Pool>]) -> Result<Vec<(PoolId, UnsettledCut, CutSettlement)>> {
    let mut done = Vec::new();
    loop {
        let mut seen: BTreeMap<PoolId, Vec<UnsettledCut>> =
            pools.iter().map(|pool| (pool.id(), pool.unsettled_cuts())).collect();
        let unsettled: Vec<SnapshotId> = seen.values().flatten().map(|cut| cut.snapshot).collect();
        for pool in pools {
            let settled = unsettled.iter().filter_map(|&snapshot| pool.settled_cut(snapshot));
            seen.get_mut(&pool.id()).expect("put above").extend(settled);
        }
        let steps = settlements(&seen);
        if steps.is_empty() {
            return Ok(done);
        }
        for (id, snapshot, settlement) in steps {
            let pool = pools.iter().find(|pool| pool.id() == id).expect("it was seen");
            pool.settle_cut(snapshot, settlement).await?;
            let cut = seen[&id].iter().find(|cut| cut.snapshot == snapshot).expect("it has a step");
            done.push((id, cut.clone(), settlement));
        }
    }
}

impl Pool {
    /// The cuts that this pool does not know to be settled.
    pub fn unsettled_cuts(&self) -> Vec<UnsettledCut> {
        let (state, under_way) = (self.shared.state.borrow(), self.cuts_under_way.borrow());
        let catalogue = &state.catalogue;
        let rows = catalogue.cuts().filter(|(snapshot, _)| !under_way.contains(snapshot));
        let known = rows.map(|(snapshot, row)| {
            let name = catalogue.points_of_snapshot(snapshot).next().map(|(_, _, row)| row.name.clone());
            UnsettledCut {
                snapshot,
                name: name.unwrap_or_default(),
                created_at: row.created_at,
                state: match row.state {
                    CutState::Pending => UnsettledState::Pending,
                    CutState::Whole => UnsettledState::Whole,
                },
                pools: row.pools.clone(),
            }
        });
        let begun = under_way.iter().map(|&snapshot| UnsettledCut {
            snapshot,
            name: String::new(),
            created_at: WallNanoseconds(0),
            state: UnsettledState::UnderWay,
            pools: Vec::new(),
        });
        known.chain(begun).collect()
    }

    /// The cut, if this pool has its snapshot and no cut row any more.
    pub fn settled_cut(&self, snapshot: SnapshotId) -> Option<UnsettledCut> {
        let state = self.shared.state.borrow();
        let is_unsettled =
            state.catalogue.cut(snapshot).is_some() || self.cuts_under_way.borrow().contains(&snapshot);
        let (_, _, row) = state.catalogue.points_of_snapshot(snapshot).next().filter(|_| !is_unsettled)?;
        Some(UnsettledCut {
            snapshot,
            name: row.name.clone(),
            created_at: row.created_at,
            state: UnsettledState::Settled,
            pools: Vec::new(),
        })
    }

    /// Does a step of settling a cut. Does nothing if it is done already.
    ///
    /// # Errors
    ///
    /// The cut is under way; or the pool cannot write.
    pub async fn settle_cut(&self, snapshot: SnapshotId, settlement: CutSettlement) -> Result<()> {
        if self.cuts_under_way.borrow().contains(&snapshot) {
            return Err(Error::CutFailed("it is still under way".to_owned()));
        }
        match settlement {
            CutSettlement::Confirm => sometimes::reached(Sometimes::CutConfirmedLater),
            CutSettlement::Forget => (),
            CutSettlement::Remove => sometimes::reached(Sometimes::CutRemovedLater),
        }
        self.settle(snapshot, settlement).await
    }

    /// Gives up waiting for the other pools of a cut: a pending snapshot is deleted, a whole one stays, and is
    /// settled for this pool.
    ///
    /// # Errors
    ///
    /// No cut with this snapshot waits; it is under way; or the pool cannot write.
    pub async fn give_up_cut(&self, snapshot: SnapshotId) -> Result<()> {
        let state = self.shared.state.borrow().catalogue.cut(snapshot).map(|row| row.state);
        let settlement = match state {
            Some(CutState::Pending) => CutSettlement::Remove,
            Some(CutState::Whole) => CutSettlement::Forget,
            None => return Err(Error::NoCut(snapshot)),
        };
        self.settle_cut(snapshot, settlement).await
    }

    /// Logs a step of settling a cut; nothing, if it is done already.
    pub(super) async fn settle(&self, snapshot: SnapshotId, settlement: CutSettlement) -> Result<()> {
        let one_at_a_time = self.shared.changing.lock().await;
        let Some(row) = self.shared.state.borrow().catalogue.cut(snapshot).cloned() else { return Ok(()) };
        let key = RowKey::of_cut(snapshot);
        let items = match (settlement, row.state) {
            (CutSettlement::Confirm, CutState::Pending) => {
                let whole = CutRow { state: CutState::Whole, ..row };
                vec![LogItem::Put { row: key, bytes: whole.encode() }]
            }
            (CutSettlement::Forget, CutState::Whole) => vec![LogItem::Remove(key)],
            (CutSettlement::Remove, CutState::Pending) => self.without_cut(snapshot),
            (CutSettlement::Confirm, CutState::Whole) => return Ok(()),
            (CutSettlement::Forget, CutState::Pending) | (CutSettlement::Remove, CutState::Whole) => {
                unreachable!("a pending cut is not forgotten, a whole one is not removed")
            }
        };
        self.answer(one_at_a_time, self.log.append_together(items)).await
    }

    /// The record that removes a cut with its snapshot.
    pub(super) fn without_cut(&self, snapshot: SnapshotId) -> Vec<LogItem> {
        let state = self.shared.state.borrow();
        let points = state.catalogue.points_of_snapshot(snapshot);
        let deleted = points.map(|(branch, stamp, row)| LogItem::Put {
            row: RowKey::of_point(branch, stamp),
            bytes: row_of_deleted(row.clone()).encode(),
        });
        deleted.chain([LogItem::Remove(RowKey::of_cut(snapshot))]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: PoolId = PoolId([1; 16]);
    const B: PoolId = PoolId([2; 16]);
    const CUT: SnapshotId = SnapshotId([9; 16]);

    /// The steps for a cut of two pools, each in a state, without it, or not seen.
    fn steps(states: [Option<Option<UnsettledState>>; 2]) -> Vec<(PoolId, CutSettlement)> {
        let seen = [A, B].into_iter().zip(states).filter_map(|(pool, state)| {
            let cuts = state?.map(|state| UnsettledCut {
                snapshot: CUT,
                name: "monday".to_owned(),
                created_at: WallNanoseconds(1),
                state,
                pools: if matches!(state, UnsettledState::UnderWay | UnsettledState::Settled) {
                    Vec::new()
                } else {
                    vec![A, B]
                },
            });
            Some((pool, cuts.into_iter().collect()))
        });
        settlements(&seen.collect()).into_iter().map(|(pool, _, step)| (pool, step)).collect()
    }

    #[test]
    fn a_cut_is_settled_by_what_all_its_pools_have() {
        use CutSettlement::{Confirm, Forget, Remove};
        use UnsettledState::{Pending, Settled, UnderWay, Whole};
        let (pending, whole, lacks, unseen) = (Some(Some(Pending)), Some(Some(Whole)), Some(None), None);
        assert_eq!(steps([pending, pending]), [(A, Confirm), (B, Confirm)]);
        assert_eq!(steps([pending, whole]), [(A, Confirm)]);
        assert_eq!(steps([whole, whole]), [(A, Forget), (B, Forget)]);
        assert_eq!(steps([lacks, whole]), [(B, Forget)]);
        assert_eq!(steps([pending, lacks]), [(A, Remove)]);
        assert_eq!(steps([pending, unseen]), []);
        assert_eq!(steps([whole, unseen]), []);
        assert_eq!(steps([pending, Some(Some(UnderWay))]), [], "it may become durable yet");
        assert_eq!(steps([lacks, lacks]), []);
        assert_eq!(steps([pending, Some(Some(Settled))]), [(A, Confirm)], "the other had given up waiting");
        assert_eq!(steps([whole, Some(Some(Settled))]), [(A, Forget)]);
    }
}
