//! The pools of a daemon as their threads see each other: by UUID, for work that needs two of them.
//!
//! Invariant: a pool is here while its thread serves it. One whose thread has panicked takes no orders any more.

use crate::{
    dr::access::DrAccess, order::Orders, presenting::board::PresentationBoard, site::handle::SiteRequest,
};
use array::format::PoolId;
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, OnceLock},
};
use tokio::sync::mpsc;

/// The pools that are open. Clones are one list.
#[derive(Clone, Default)]
pub struct PoolPeers {
    orders: Arc<Mutex<BTreeMap<PoolId, Orders>>>,
    /// For DR groups of all pools.
    pub(crate) dr: DrAccess,
    /// Points that are presented to hosts.
    pub(crate) presentations: PresentationBoard,
    /// The way to the server of the site; none for pools without one.
    pub(crate) site: Arc<OnceLock<mpsc::Sender<SiteRequest>>>,
}

impl PoolPeers {
    pub(crate) fn add(&self, pool: PoolId, orders: Orders) {
        self.all().insert(pool, orders);
    }

    pub(crate) fn remove(&self, pool: PoolId) {
        self.all().remove(&pool);
    }

    /// Gives orders to a pool; `None` if it is not open.
    pub(crate) fn orders(&self, pool: PoolId) -> Option<Orders> {
        self.all().get(&pool).cloned()
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<PoolId, Orders>> {
        self.orders.lock().expect("nothing panics with the lock held")
    }
}
