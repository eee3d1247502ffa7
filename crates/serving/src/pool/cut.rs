//! Snapshots of volumes in several pools that this process has open, and the settlement of those that ended early.

use super::{folder::OpenPool, partner_pools::Partners};
use crate::uuid::random_uuid;
use array::{
    error::Error,
    format::{
        PoolId, SnapshotId,
        row::{CutState, GroupOperation},
    },
    pool::{
        CutMember, CutSettlement, GroupSnapshot, NewSnapshot, Pool, Snapshot, UnsettledCut, UnsettledId,
        UnsettledState, settle_cuts,
    },
};
use report::Refusal;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, rc::Rc, time::Duration};
use world::World;

/// A snapshot that this pool does not know to be in all its pools, or that others may not know to be.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CutStatus {
    pub snapshot: String,
    /// It can be used: all its pools have their parts.
    pub is_whole: bool,
    /// Folders or UUIDs of its pools.
    pub pools: Vec<String>,
}

impl CutStatus {
    /// None for most snapshots.
    pub fn of(snapshot: &Snapshot) -> Option<Self> {
        let cut = snapshot.cut.as_ref()?;
        Some(Self {
            snapshot: snapshot.name.clone(),
            is_whole: cut.state == CutState::Whole,
            pools: cut.pools.iter().map(PoolId::to_string).collect(),
        })
    }

    /// As [`Self::of`], for a snapshot of a group.
    pub fn of_group(snapshot: &GroupSnapshot, partners: &Partners) -> Option<Self> {
        let cut = snapshot.cut.as_ref()?;
        Some(Self {
            snapshot: snapshot.name.clone(),
            is_whole: cut.state == CutState::Whole,
            pools: cut.pools.iter().map(|&pool| partners.name_of(pool)).collect(),
        })
    }

    /// In a line.
    pub fn text(&self) -> String {
        let (all, pools) = (self.pools.len(), self.pools.join(", "));
        if self.is_whole {
            format!("kept until its {all} pools were seen together ({pools}): 'spindle pool settle'")
        } else {
            format!(
                "pending, it cannot be used until its {all} pools were seen together ({pools}): 'spindle pool settle'"
            )
        }
    }
}

/// Volumes of one pool, by name.
pub struct PoolVolumes<'a> {
    pub open: &'a OpenPool,
    pub volumes: Vec<String>,
}

/// Takes one snapshot of volumes in several pools. Returns the longest time that hosts were held.
///
/// # Errors
///
/// The first refusal of a pool. Unless it says that the snapshot is pending, no pool has it.
pub async fn snapshot_over_pools(
    world: &World,
    pools: &[PoolVolumes<'_>],
    name: &str,
    note: &str,
) -> Result<Duration, Refusal> {
    let snapshot = SnapshotId(random_uuid(world));
    let opened = pools.iter().map(|pool| pool.open);
    let held = with_all_pools(world, opened, "see 'spindle volume snapshot --help'", |pool, part| {
        let (name, note) = (name.to_owned(), note.to_owned());
        let of_pool = pools.iter().find(|of_pool| of_pool.open.pool.id() == pool.id());
        let volumes = of_pool.expect("it is one of them").volumes.clone();
        async move {
            let volumes: Vec<&str> = volumes.iter().map(String::as_str).collect();
            let new = NewSnapshot { name: &name, snapshot, note: note.as_bytes() };
            pool.take_part_in_cut(&volumes, &new, part).await
        }
    });
    Ok(held.await?.into_iter().max().unwrap_or_default())
}

/// Has all pools take part in something at the same time. Returns their answers, in the same order.
///
/// # Errors
///
/// The first refusal of a pool; rather of one that failed for a reason of its own, which is the cause of the others.
pub(super) async fn with_all_pools<T: 'static, F>(
    world: &World,
    pools: impl IntoIterator<Item = &OpenPool>,
    remedy: &str,
    take_part: impl Fn(Rc<Pool>, CutMember) -> F,
) -> Result<Vec<T>, Refusal>
where
    F: Future<Output = Result<T, Error>> + 'static,
{
    let pools: Vec<&OpenPool> = pools.into_iter().collect();
    let ids: Vec<PoolId> = pools.iter().map(|open| open.pool.id()).collect();
    let parts = CutMember::of_pools(&ids).map_err(|error| pools[0].refusal(&error, "name each pool once"))?;
    let begun = pools.iter().zip(parts);
    let begun = begun
        .map(|(open, part)| world.spawn("part of several pools", take_part(Rc::clone(&open.pool), part)));
    let callers: Vec<_> = begun.collect();
    let (mut answers, mut errors) = (Vec::new(), Vec::new());
    for (open, caller) in pools.iter().zip(callers) {
        match caller.await {
            Ok(answer) => answers.push(answer),
            Err(error) => errors.push((open, error)),
        }
    }
    let cause = errors.iter().find(|(_, error)| !is_effect(error)).or(errors.first());
    cause.map_or(Ok(answers), |(open, error)| Err(open.refusal(error, remedy)))
}

/// True for an error that follows from what another pool refused.
pub(super) fn is_effect(error: &Error) -> bool {
    matches!(error, Error::CutFailed(_) | Error::OperationFailed(_) | Error::CutUnsettled { .. })
}

/// The outcome of a snapshot of several pools, or of a clone or rollback of a group, that ended early.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SettledCut {
    /// Its name; the group's and the snapshot's for an operation.
    pub snapshot: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation: Option<SettledOperation>,
    pub outcome: CutOutcome,
    /// Folders or UUIDs of the pools that were not seen.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub waits_for: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CutOutcome {
    /// It is in all its pools.
    Whole,
    /// It was removed: one of its pools never had its part.
    Removed,
    /// Not all its pools were seen.
    Waits,
    /// It was removed from these pools on request, before all were seen.
    GivenUp,
    /// It stays in these pools, and does not wait for the others any more.
    Kept,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SettledOperation {
    Clone,
    Rollback,
}

impl SettledOperation {
    pub fn of(operation: &GroupOperation) -> Self {
        match operation {
            GroupOperation::Clone { .. } => Self::Clone,
            GroupOperation::RollBack => Self::Rollback,
        }
    }

    /// The past of the verb.
    pub fn word(self) -> &'static str {
        match self {
            Self::Clone => "cloned",
            Self::Rollback => "rolled back",
        }
    }
}

impl SettledCut {
    /// In a line.
    pub fn text(&self) -> String {
        let Self { snapshot, operation, outcome, waits_for } = self;
        if let Some(operation) = operation {
            let done = operation.word();
            return match outcome {
                CutOutcome::Whole => format!("{snapshot}: {done} in all its pools"),
                CutOutcome::Removed => {
                    format!("{snapshot}: not {done} in any pool, since one of them never had its part")
                }
                CutOutcome::Waits => {
                    format!("{snapshot}: {done} once it was seen with {}", waits_for.join(", "))
                }
                CutOutcome::GivenUp => format!("{snapshot}: not {done} here, whatever its other pools did"),
                CutOutcome::Kept => format!("{snapshot}: {done} here; all its pools had decided it"),
            };
        }
        match outcome {
            CutOutcome::Whole => format!("{snapshot}: in all its pools"),
            CutOutcome::Removed => format!("{snapshot}: removed, since one of its pools never had its part"),
            CutOutcome::Waits => format!("{snapshot}: waits for {}", waits_for.join(", ")),
            CutOutcome::GivenUp => format!("{snapshot}: removed, without waiting for its other pools"),
            CutOutcome::Kept => format!("{snapshot}: kept; all its pools had it"),
        }
    }
}

/// Settles the snapshots of these pools, and the operations on groups, that ended early. Those named `give_up` do not
/// wait for other pools.
///
/// # Errors
///
/// A pool cannot write; or no snapshot of that name waits.
pub async fn settle(pools: &[OpenPool], give_up: Option<&str>) -> Result<Vec<SettledCut>, Refusal> {
    let all: Vec<_> = pools.iter().map(|open| Rc::clone(&open.pool)).collect();
    let done = settle_cuts(&all).await.map_err(|error| pools[0].refusal(&error, "check the drives"))?;
    let mut outcomes: BTreeMap<UnsettledId, SettledCut> = BTreeMap::new();
    for (_, cut, settlement) in done {
        outcomes.insert(cut.id, SettledCut::of(&cut, CutOutcome::of_step(settlement)));
    }
    let seen: Vec<PoolId> = all.iter().map(|pool| pool.id()).collect();
    for open in pools {
        let partners = Partners::near(open.folder(), &[]);
        for cut in open.pool.unsettled_cuts() {
            let mut settled = SettledCut::of(&cut, CutOutcome::Waits);
            if give_up == Some(cut.name.as_str()) {
                let given_up = open.pool.give_up_cut(cut.id).await;
                given_up.map_err(|error| open.refusal(&error, "check the drives"))?;
                settled.outcome = CutOutcome::of_given_up(cut.state);
            } else {
                let unseen = cut.pools.iter().filter(|pool| !seen.contains(pool));
                settled.waits_for = unseen.map(|&pool| partners.name_of(pool)).collect();
            }
            outcomes.insert(cut.id, settled);
        }
    }
    if let Some(name) = give_up
        && !outcomes.values().any(|cut| cut.snapshot == name)
    {
        return Err(nothing_to_give_up(name));
    }
    Ok(outcomes.into_values().collect())
}

impl SettledCut {
    fn of(cut: &UnsettledCut, outcome: CutOutcome) -> Self {
        let operation = cut.operation.as_ref().map(SettledOperation::of);
        Self { snapshot: cut.name.clone(), operation, outcome, waits_for: Vec::new() }
    }
}

impl CutOutcome {
    /// The outcome of a step of settling.
    pub fn of_step(settlement: CutSettlement) -> Self {
        match settlement {
            CutSettlement::Confirm | CutSettlement::Forget => Self::Whole,
            CutSettlement::Remove => Self::Removed,
        }
    }

    /// The outcome for a pool that waits no more for the others.
    pub fn of_given_up(state: UnsettledState) -> Self {
        match state {
            UnsettledState::Whole | UnsettledState::Settled => Self::Kept,
            UnsettledState::Pending | UnsettledState::UnderWay => Self::GivenUp,
        }
    }
}

/// The refusal to give up a snapshot that does not wait.
pub fn nothing_to_give_up(name: &str) -> Refusal {
    let problem = format!("no snapshot {name:?} of several pools waits in these pools, nor an operation");
    Refusal::new(problem, "see 'spindle pool show'")
}
