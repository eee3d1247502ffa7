//! Places of pools in work over several of them.

use array::format::PoolId;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
};
use tokio::sync::OwnedMutexGuard;
use world::with_deadline;

/// A place for each pool. They are taken in the order of the pools' UUIDs, so two takers never wait for each other.
#[derive(Default)]
pub struct OperationPlaces(Mutex<BTreeMap<PoolId, Arc<tokio::sync::Mutex<()>>>>);

/// Places that are held until the last clone of this is dropped: the orders of the work have one each.
#[derive(Clone, Debug)]
pub struct HeldPlaces {
    _places: Arc<Vec<OwnedMutexGuard<()>>>,
}

impl OperationPlaces {
    /// Holds the places of these pools; `None` if they are not all free before `late` ends.
    pub async fn hold(
        &self,
        pools: impl IntoIterator<Item = PoolId>,
        late: impl Future<Output = ()>,
    ) -> Option<HeldPlaces> {
        let pools: BTreeSet<PoolId> = pools.into_iter().collect();
        let places: Vec<_> = {
            let mut all = self.0.lock().expect("nothing panics with the lock held");
            pools.into_iter().map(|pool| Arc::clone(all.entry(pool).or_default())).collect()
        };
        let taking = async move {
            let mut held = Vec::new();
            for place in places {
                held.push(place.lock_owned().await);
            }
            HeldPlaces { _places: Arc::new(held) }
        };
        with_deadline(std::pin::pin!(late), std::pin::pin!(taking)).await
    }
}
