//! Snapshots of volumes in several pools that this process has open, and the settlement of those that ended early.

use super::folder::OpenPool;
use crate::uuid::random_uuid;
use array::{
    error::Error,
    format::{PoolId, SnapshotId, row::CutState},
    pool::{CutMember, CutSettlement, NewSnapshot, Snapshot, UnsettledState, settle_cuts},
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
    /// UUIDs of its pools.
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
    let ids: Vec<PoolId> = pools.iter().map(|pool| pool.open.pool.id()).collect();
    let parts =
        CutMember::of_pools(&ids).map_err(|error| pools[0].open.refusal(&error, "name each pool once"))?;
    let snapshot = SnapshotId(random_uuid(world));
    let callers: Vec<_> = pools
        .iter()
        .zip(parts)
        .map(|(pool, part)| {
            let (name, note) = (name.to_owned(), note.to_owned());
            let (pool, volumes) = (Rc::clone(&pool.open.pool), pool.volumes.clone());
            world.spawn("part of a cut", async move {
                let volumes: Vec<&str> = volumes.iter().map(String::as_str).collect();
                let new = NewSnapshot { name: &name, snapshot, note: note.as_bytes() };
                pool.take_part_in_cut(&volumes, &new, part).await
            })
        })
        .collect();
    let mut answers = Vec::new();
    for (pool, caller) in pools.iter().zip(callers) {
        answers.push((pool.open, caller.await));
    }
    let failed = |is_cause: bool| {
        answers.iter().find_map(|(open, taken)| match taken {
            Err(error) if is_cause != matches!(error, Error::CutFailed(_) | Error::CutUnsettled { .. }) => {
                Some((*open, error))
            }
            _ => None,
        })
    };
    // A pool that failed for a reason of its own is the cause of the other failures.
    match failed(true).or_else(|| failed(false)) {
        Some((open, error)) => Err(open.refusal(error, "see 'spindle volume snapshot --help'")),
        None => {
            Ok(answers.iter().filter_map(|(_, taken)| taken.as_ref().ok()).max().copied().unwrap_or_default())
        }
    }
}

/// The outcome of a snapshot of several pools that ended early.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SettledCut {
    pub snapshot: String,
    pub outcome: CutOutcome,
    /// UUIDs of the pools that were not seen.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub waits_for: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
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

impl SettledCut {
    /// In a line.
    pub fn text(&self) -> String {
        let Self { snapshot, outcome, waits_for } = self;
        match outcome {
            CutOutcome::Whole => format!("{snapshot}: in all its pools"),
            CutOutcome::Removed => format!("{snapshot}: removed, since one of its pools never had its part"),
            CutOutcome::Waits => format!("{snapshot}: waits for {}", waits_for.join(", ")),
            CutOutcome::GivenUp => format!("{snapshot}: removed, without waiting for its other pools"),
            CutOutcome::Kept => format!("{snapshot}: kept; all its pools had it"),
        }
    }
}

/// Settles the snapshots of these pools that ended early. Those named `give_up` do not wait for other pools.
///
/// # Errors
///
/// A pool cannot write; or no snapshot of that name waits.
pub async fn settle(pools: &[OpenPool], give_up: Option<&str>) -> Result<Vec<SettledCut>, Refusal> {
    let all: Vec<_> = pools.iter().map(|open| Rc::clone(&open.pool)).collect();
    let done = settle_cuts(&all).await.map_err(|error| pools[0].refusal(&error, "check the drives"))?;
    let mut outcomes: BTreeMap<SnapshotId, SettledCut> = BTreeMap::new();
    for (_, cut, settlement) in done {
        let outcome = match settlement {
            CutSettlement::Confirm | CutSettlement::Forget => CutOutcome::Whole,
            CutSettlement::Remove => CutOutcome::Removed,
        };
        outcomes.insert(cut.snapshot, SettledCut { snapshot: cut.name, outcome, waits_for: Vec::new() });
    }
    let seen: Vec<PoolId> = all.iter().map(|pool| pool.id()).collect();
    for open in pools {
        for cut in open.pool.unsettled_cuts() {
            let mut settled =
                SettledCut { snapshot: cut.name.clone(), outcome: CutOutcome::Waits, waits_for: Vec::new() };
            if give_up == Some(cut.name.as_str()) {
                let given_up = open.pool.give_up_cut(cut.snapshot).await;
                given_up.map_err(|error| open.refusal(&error, "check the drives"))?;
                settled.outcome = match cut.state {
                    UnsettledState::Whole | UnsettledState::Settled => CutOutcome::Kept,
                    UnsettledState::Pending | UnsettledState::UnderWay => CutOutcome::GivenUp,
                };
            } else {
                let unseen = cut.pools.iter().filter(|pool| !seen.contains(pool));
                settled.waits_for = unseen.map(PoolId::to_string).collect();
            }
            outcomes.insert(cut.snapshot, settled);
        }
    }
    if let Some(name) = give_up
        && !outcomes.values().any(|cut| cut.snapshot == name)
    {
        let problem = format!("no snapshot {name:?} of several pools waits in these pools");
        return Err(Refusal::new(problem, "see 'spindle pool show'"));
    }
    Ok(outcomes.into_values().collect())
}
