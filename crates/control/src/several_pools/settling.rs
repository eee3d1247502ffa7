//! Settlement of snapshots and operations over several pools that ended early, by orders to the pools that are open.

use super::PartsRefusal;
use crate::{pool_thread::ServedPool, site::handle::PoolHandle};
use array::{
    format::{PoolId, row::GroupOperation},
    pool::{UnsettledCut, UnsettledId, settlements},
};
use report::Refusal;
use serving::pool::{
    cut::{CutOutcome, SettledOperation, nothing_to_give_up},
    folder::refusal,
};
use std::{collections::BTreeMap, path::Path, rc::Rc};
use world::{LocalFuture, with_deadline};

/// The outcome of a snapshot or an operation that ended early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettledOnline {
    /// Name of the snapshot; the group's and the snapshot's for an operation.
    pub name: String,
    pub operation: Option<SettledOperation>,
    pub outcome: CutOutcome,
    /// Pools of it that were not asked.
    pub waits_for: Vec<PoolId>,
}

impl SettledOnline {
    fn of(cut: &UnsettledCut, outcome: CutOutcome) -> Self {
        let operation =
            cut.operation.as_ref().map(|operation: &GroupOperation| SettledOperation::of(operation));
        Self { name: cut.name.clone(), operation, outcome, waits_for: Vec::new() }
    }
}

/// Settles what ended early in these pools, as `serving::pool::cut::settle` does in stopped ones. The caller holds the places
/// of all of them.
///
/// # Errors
///
/// A pool does not answer, or cannot write; nothing waits of the name that is to be given up.
pub async fn settle(
    pools: &[PoolHandle],
    give_up: Option<&str>,
) -> Result<BTreeMap<UnsettledId, SettledOnline>, PartsRefusal> {
    let mut outcomes = BTreeMap::new();
    let seen = loop {
        let seen = look(pools).await?;
        let steps = settlements(&seen);
        if steps.is_empty() {
            break seen;
        }
        for (of, id, settlement) in steps {
            let pool = pools.iter().find(|pool| pool.id == of).expect("it was seen");
            order(pool, move |served| Box::pin(async move { served.pool.settle_cut(id, settlement).await }))
                .await?;
            let cut = seen[&of].iter().find(|cut| cut.id == id).expect("it has a step");
            outcomes.insert(id, SettledOnline::of(cut, CutOutcome::of_step(settlement)));
        }
    };
    for pool in pools {
        // Those that are settled elsewhere are among them, and wait for nothing.
        for cut in seen[&pool.id].iter().filter(|cut| !cut.pools.is_empty()) {
            let mut settled = SettledOnline::of(cut, CutOutcome::Waits);
            if give_up == Some(cut.name.as_str()) {
                let id = cut.id;
                order(pool, move |served| Box::pin(async move { served.pool.give_up_cut(id).await })).await?;
                settled.outcome = CutOutcome::of_given_up(cut.state);
            } else {
                let is_unseen = |of: &&PoolId| pools.iter().all(|pool| pool.id != **of);
                settled.waits_for = cut.pools.iter().filter(is_unseen).copied().collect();
            }
            outcomes.insert(cut.id, settled);
        }
    }
    match give_up {
        Some(name) if !outcomes.values().any(|settled| settled.name == name) => {
            Err(PartsRefusal::Refused(nothing_to_give_up(name)))
        }
        _ => Ok(outcomes),
    }
}

/// Waits until the views of pools show what was settled, or `late` ends.
pub async fn show_settled(pools: &[PoolHandle], late: impl Future<Output = ()>) {
    let shown = async {
        for pool in pools {
            let revision =
                order(pool, |served| Box::pin(async move { Ok(served.pool.catalogue_revision()) }));
            if let Ok(revision) = revision.await {
                pool.shows(revision).await;
            }
        }
    };
    // A view that is late shows it later.
    let _ = with_deadline(late, shown).await;
}

/// The cuts and operations of these pools that are not settled, with what others of them have settled.
async fn look(pools: &[PoolHandle]) -> Result<BTreeMap<PoolId, Vec<UnsettledCut>>, PartsRefusal> {
    let mut seen = BTreeMap::new();
    for pool in pools {
        let cuts = order(pool, |served| Box::pin(async move { Ok(served.pool.unsettled_cuts()) })).await?;
        seen.insert(pool.id, cuts);
    }
    let ids: Vec<UnsettledId> = seen.values().flatten().map(|cut| cut.id).collect();
    for pool in pools.iter().filter(|_| !ids.is_empty()) {
        let ids = ids.clone();
        let settled = order(pool, |served| {
            Box::pin(async move {
                Ok(ids.into_iter().filter_map(|id| served.pool.settled_cut(id)).collect::<Vec<_>>())
            })
        });
        seen.get_mut(&pool.id).expect("put above").extend(settled.await?);
    }
    Ok(seen)
}

async fn order<T: Send + 'static>(
    pool: &PoolHandle,
    work: impl FnOnce(Rc<ServedPool>) -> LocalFuture<array::error::Result<T>> + Send + 'static,
) -> Result<T, PartsRefusal> {
    let name = pool.name.clone();
    let not_taken = |refusal| PartsRefusal::NotTaken { pool: name.clone(), refusal };
    let pending = pool.begin("settle", |served| {
        Box::pin(async move {
            let done = work(Rc::clone(&served)).await;
            served.show_changes();
            done
        })
    });
    let done = pending.map_err(not_taken)?.await.map_err(not_taken)?;
    done.map_err(|error| {
        let refused: Refusal = refusal(Path::new(&pool.name), &error, "check the drives");
        PartsRefusal::Refused(refused)
    })
}
