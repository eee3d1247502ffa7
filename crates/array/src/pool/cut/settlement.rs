//! Settling cuts, and operations on groups of several pools, that ended early, once their pools are seen together.
//! What is said of a cut holds for an operation: its pools have an intent in place of a cut row, and what it makes in
//! place of the snapshot.
//!
//! A cut is *whole* in some pool only after it was durable in all. So if one pool of those seen has it whole, or
//! has the snapshot and no cut row any more, or all pools are there and each has it, it is confirmed. If all pools are
//! there and one lacks it, without any that has it whole, it never was durable there, and no pool keeps it. Cut rows
//! are removed once all pools were seen and none has it pending.

use super::super::{Pool, difference::row_of_deleted};
use crate::{
    engine::Catalogue,
    error::{Error, Result},
    format::{
        GroupNumber, PoolId, RowKey, SnapshotId, WallNanoseconds,
        row::{CutRow, CutState, GroupOperation, IdSeed, IntentRow},
    },
    log::LogItem,
    simulation::sometimes::{self, Sometimes},
};
use std::{collections::BTreeMap, fmt, rc::Rc};

/// The same in all pools of a cut, or of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum UnsettledId {
    /// A cut: that of its snapshot.
    Snapshot(SnapshotId),
    /// A clone of a group, or its rollback: the seed of what it makes.
    Operation(IdSeed),
}

impl fmt::Display for UnsettledId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Snapshot(snapshot) => write!(f, "snapshot {snapshot}"),
            Self::Operation(seed) => write!(f, "clone or rollback {}", SnapshotId(seed.0)),
        }
    }
}

/// A cut, or an operation on a group, that a pool does not know to be settled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnsettledCut {
    pub id: UnsettledId,
    /// Name of the snapshot, or the group's and the snapshot's; empty while it is under way.
    pub name: String,
    /// None for a cut, and while it is under way.
    pub operation: Option<GroupOperation>,
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
    /// Another pool may lack its part; the snapshot cannot be used, the operation has not happened here.
    Pending,
    /// All pools have their parts; the snapshot can be used, but not deleted. The operation has happened.
    Whole,
    /// The pool has the snapshot, or what the operation made, and needs no other any more: so all had their parts.
    Settled,
}

/// The next step of settling a cut in one pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CutSettlement {
    /// It is whole.
    Confirm,
    /// All pools know that it is whole: its row is removed, the snapshot stays.
    Forget,
    /// A pool lacks its part: the snapshot is deleted, the operation does not happen.
    Remove,
}

/// The next steps for the cuts of these pools. Once they are done, call it again, until there are none.
pub fn settlements(seen: &BTreeMap<PoolId, Vec<UnsettledCut>>) -> Vec<(PoolId, UnsettledId, CutSettlement)> {
    let all = seen.values().flatten();
    let known: BTreeMap<UnsettledId, &[PoolId]> =
        all.filter(|cut| !cut.pools.is_empty()).map(|cut| (cut.id, &cut.pools[..])).collect();
    let mut steps = Vec::new();
    for (id, pools) in known {
        let state_in = |pool: &PoolId| {
            let cuts = seen.get(pool)?;
            Some(cuts.iter().find(|cut| cut.id == id).map(|cut| cut.state))
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
        steps.extend(concerned.map(|(pool, _)| (pool, id, settlement)));
    }
    steps
}

/// Settles the cuts of these pools, and the operations on groups, as far as the pools that they need are among them.
/// Returns what became of each in each pool; those without an entry stay as they are.
///
/// # Errors
///
/// A pool cannot write.
pub async fn settle_cuts(pools: &[Rc<Pool>]) -> Result<Vec<(PoolId, UnsettledCut, CutSettlement)>> {
    let mut done = Vec::new();
    loop {
        let mut seen: BTreeMap<PoolId, Vec<UnsettledCut>> =
            pools.iter().map(|pool| (pool.id(), pool.unsettled_cuts())).collect();
        let unsettled: Vec<UnsettledId> = seen.values().flatten().map(|cut| cut.id).collect();
        for pool in pools {
            let settled = unsettled.iter().filter_map(|&id| pool.settled_cut(id));
            seen.get_mut(&pool.id()).expect("put above").extend(settled);
        }
        let steps = settlements(&seen);
        if steps.is_empty() {
            return Ok(done);
        }
        for (of, id, settlement) in steps {
            let pool = pools.iter().find(|pool| pool.id() == of).expect("it was seen");
            pool.settle_cut(id, settlement).await?;
            let cut = seen[&of].iter().find(|cut| cut.id == id).expect("it has a step");
            done.push((of, cut.clone(), settlement));
        }
    }
}

impl Pool {
    /// The cuts, and the operations on groups, that this pool does not know to be settled.
    pub fn unsettled_cuts(&self) -> Vec<UnsettledCut> {
        let (state, under_way) = (self.shared.state.borrow(), self.cuts_under_way.borrow());
        let catalogue = &state.catalogue;
        let cuts = catalogue.cuts().map(|(snapshot, row)| {
            let name = catalogue.points_of_snapshot(snapshot).next().map(|(_, _, row)| row.name.clone());
            UnsettledCut {
                id: UnsettledId::Snapshot(snapshot),
                name: name.unwrap_or_default(),
                operation: None,
                created_at: row.created_at,
                state: row.state.into(),
                pools: row.pools.clone(),
            }
        });
        let operations =
            catalogue.shared_intents().map(|(group, row)| unsettled_operation(catalogue, group, row));
        let known = cuts.chain(operations).filter(|cut| !under_way.contains(&cut.id));
        let begun = under_way.iter().map(|&id| UnsettledCut {
            id,
            name: String::new(),
            operation: None,
            created_at: WallNanoseconds(0),
            state: UnsettledState::UnderWay,
            pools: Vec::new(),
        });
        known.chain(begun).collect()
    }

    /// The cut or operation, if this pool has its snapshot, or what it made, and no other row of it any more.
    pub fn settled_cut(&self, id: UnsettledId) -> Option<UnsettledCut> {
        let state = self.shared.state.borrow();
        let catalogue = &state.catalogue;
        if self.cuts_under_way.borrow().contains(&id) {
            return None;
        }
        let (name, created_at) = match id {
            UnsettledId::Snapshot(snapshot) => {
                let is_settled = catalogue.cut(snapshot).is_none();
                let (_, _, row) = catalogue.points_of_snapshot(snapshot).next().filter(|_| is_settled)?;
                (row.name.clone(), row.created_at)
            }
            UnsettledId::Operation(seed) => {
                let is_settled = catalogue.shared_intents().all(|(_, intent)| intent.seed != seed);
                (is_settled && catalogue.has_happened(seed)).then_some((String::new(), WallNanoseconds(0)))?
            }
        };
        let state = UnsettledState::Settled;
        Some(UnsettledCut { id, name, operation: None, created_at, state, pools: Vec::new() })
    }

    /// Does a step of settling a cut or an operation. Does nothing if it is done already.
    ///
    /// # Errors
    ///
    /// It is under way; or the pool cannot write.
    pub async fn settle_cut(&self, id: UnsettledId, settlement: CutSettlement) -> Result<()> {
        if self.cuts_under_way.borrow().contains(&id) {
            return Err(Error::CutFailed("it is still under way".to_owned()));
        }
        match settlement {
            CutSettlement::Confirm => sometimes::reached(Sometimes::CutConfirmedLater),
            CutSettlement::Forget => (),
            CutSettlement::Remove => sometimes::reached(Sometimes::CutRemovedLater),
        }
        match id {
            UnsettledId::Snapshot(snapshot) => self.settle(snapshot, settlement).await,
            UnsettledId::Operation(seed) => self.settle_operation(seed, settlement).await,
        }
    }

    /// Gives up waiting for the other pools of a cut or an operation: a pending snapshot is deleted, a whole one stays,
    /// and is settled for this pool; a pending operation does not happen here, a whole one has.
    ///
    /// # Errors
    ///
    /// None with this identity waits; it is under way; or the pool cannot write.
    pub async fn give_up_cut(&self, id: UnsettledId) -> Result<()> {
        let waiting = self.unsettled_cuts().into_iter().find(|cut| cut.id == id);
        let settlement = match waiting.map(|cut| cut.state) {
            Some(UnsettledState::Pending | UnsettledState::UnderWay) => CutSettlement::Remove,
            Some(UnsettledState::Whole | UnsettledState::Settled) => CutSettlement::Forget,
            None => return Err(Error::NoCut(id)),
        };
        self.settle_cut(id, settlement).await
    }

    /// Logs a step of settling a cut; nothing, if it is done already.
    pub(super) async fn settle(&self, snapshot: SnapshotId, settlement: CutSettlement) -> Result<()> {
        let one_at_a_time = self.shared.lock_changes().await;
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

impl From<CutState> for UnsettledState {
    fn from(state: CutState) -> Self {
        match state {
            CutState::Pending => Self::Pending,
            CutState::Whole => Self::Whole,
        }
    }
}

fn unsettled_operation(catalogue: &Catalogue, group: GroupNumber, intent: &IntentRow) -> UnsettledCut {
    let shared = intent.shared.as_ref().expect("it is one of several pools");
    let points = catalogue.group_points(group, intent.snapshot);
    let snapshot = points.first().map_or("", |point| &point.row.name);
    UnsettledCut {
        id: UnsettledId::Operation(intent.seed),
        name: format!("{}@{snapshot}", catalogue.group_name(group).unwrap_or_default()),
        operation: Some(intent.operation.clone()),
        created_at: intent.created_at,
        state: shared.state.into(),
        pools: shared.pools.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: PoolId = PoolId([1; 16]);
    const B: PoolId = PoolId([2; 16]);
    const CUT: UnsettledId = UnsettledId::Snapshot(SnapshotId([9; 16]));

    /// The steps for a cut of two pools, each in a state, without it, or not seen.
    fn steps(states: [Option<Option<UnsettledState>>; 2]) -> Vec<(PoolId, CutSettlement)> {
        let seen = [A, B].into_iter().zip(states).filter_map(|(pool, state)| {
            let cuts = state?.map(|state| UnsettledCut {
                id: CUT,
                name: "monday".to_owned(),
                operation: None,
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
