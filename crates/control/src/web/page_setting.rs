//! Surroundings of pages that are served before the API's paths, and call the API in the process as any client does.

use super::local_world::LocalWorld;
use axum::Router;
use std::time::Duration;
use world::with_deadline;

/// Makes the router of pages, with the API's as its fallback.
pub type PagesAdder = fn(PageSetting) -> Router;

/// Surroundings of pages.
#[derive(Clone)]
pub struct PageSetting {
    /// The whole API. A request to it needs an [`ApiPeer`](super::ApiPeer) among its extensions.
    pub api: Router,
    world: LocalWorld,
}

impl PageSetting {
    pub(super) fn new(api: Router, world: &LocalWorld) -> Self {
        Self { api, world: world.clone() }
    }

    /// Seconds since 1970, UTC.
    pub fn unix_s(&self) -> i64 {
        self.world.unix_s()
    }

    /// The result of work that ends within a time; `None` if it does not, and the work is dropped.
    pub async fn within<T>(&self, time: Duration, work: impl Future<Output = T>) -> Option<T> {
        with_deadline(self.world.sleep(time), work).await
    }

    /// For keys of requests.
    pub fn random_uuid(&self) -> [u8; 16] {
        self.world.random_uuid()
    }
}
