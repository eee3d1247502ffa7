//! All threads of the daemon: started together, watched, ended together.

use crate::{
    notice::NoticeSender,
    pool_thread::{PoolSetting, PoolThread, ThreadStart},
    portal::{BoundPortal, PortalAddresses, PortalSetting, PortalThread, no_thread},
};
use report::Refusal;
use std::collections::BTreeSet;
use tokio::sync::mpsc;
use world::{ThreadStarter, World};

/// Pools and their portal.
pub struct DaemonSetting {
    pub pools: Vec<PoolSetting>,
    pub portal: PortalSetting,
}

/// A running daemon.
pub struct Daemon {
    pools: Vec<PoolThread>,
    portal: PortalThread,
}

impl Daemon {
    /// Binds the portal's addresses, opens all pools, each on its thread, and serves them.
    ///
    /// # Errors
    ///
    /// An address is taken, a pool does not open, or two pools would serve one name. Pools that were opened are closed again.
    pub async fn start(
        world: &World,
        threads: &dyn ThreadStarter,
        DaemonSetting { pools, portal }: DaemonSetting,
        notices: &NoticeSender,
    ) -> Result<Self, Refusal> {
        let mut names = BTreeSet::new();
        if let Some(twice) = pools.iter().map(|pool| &pool.name).find(|name| !names.insert(*name)) {
            return Err(Refusal::new(format!("two pools are called {twice:?}"), "name them apart"));
        }
        let (send_back, back) = mpsc::unbounded_channel();
        let nbd_options = portal.nbd_options.clone();
        // Before any pool is touched: a taken address is the usual mistake.
        let bound = BoundPortal::start(threads, portal, back, notices.of("portal")).await?;
        let start = ThreadStart { world, threads, notices, send_back, nbd_options: &nbd_options };
        let mut started = Vec::new();
        let mut refused = None;
        for pool in pools {
            match PoolThread::start(pool, &start) {
                Ok(pool) => started.push(pool),
                Err(error) => refused = refused.or_else(|| Some(no_thread(&error))),
            }
        }
        for pool in &mut started {
            // All are waited for: one that opens late must be closed, too.
            let opened = pool.opened().await;
            refused = refused.or(opened.err());
        }
        match refused.or_else(|| names_are_unique(&started).err()) {
            None => {
                let portal = bound.open(started.iter().map(PoolThread::routes).collect());
                Ok(Self { pools: started, portal })
            }
            Some(refusal) => {
                stop_all(started).await;
                bound.abandon().await;
                Err(refusal)
            }
        }
    }

    pub fn addresses(&self) -> &PortalAddresses {
        &self.portal.addresses
    }

    /// In the order of the setting.
    pub fn pools(&self) -> &[PoolThread] {
        &self.pools
    }

    pub fn pool(&self, name: &str) -> Option<&PoolThread> {
        self.pools.iter().find(|pool| pool.name == name)
    }

    /// Stops accepting connections, closes all pools, and waits for their threads. Returns the pools whose thread had
    /// panicked, with the messages.
    pub async fn stop(self) -> Vec<(String, String)> {
        let Self { pools, portal } = self;
        let portal = portal.stop().await.err().map(|panic| ("portal".to_owned(), panic));
        let mut panicked = stop_all(pools).await;
        panicked.extend(portal);
        panicked
    }
}

/// Closes pools, all at the same time.
async fn stop_all(pools: Vec<PoolThread>) -> Vec<(String, String)> {
    let stopping: Vec<_> = pools.into_iter().map(PoolThread::begin_stop).collect();
    let mut panicked = Vec::new();
    for (name, end) in stopping {
        if let Some(end) = end {
            panicked.extend(end.await.err().map(|panic| (name, panic)));
        }
    }
    panicked
}

/// Clients find exports and targets by their names alone.
fn names_are_unique(pools: &[PoolThread]) -> Result<(), Refusal> {
    let (mut exports, mut targets) = (BTreeSet::new(), BTreeSet::new());
    for view in pools.iter().filter_map(PoolThread::view) {
        let export = view.exports.iter().find(|export| !exports.insert(export.name.clone()));
        let target = view.targets.iter().find(|target| !targets.insert(target.name.to_ascii_lowercase()));
        let twice = export.map(|export| &export.name).or(target.map(|target| &target.name));
        if let Some(twice) = twice {
            let problem = format!("two pools would serve {twice:?}");
            return Err(Refusal::new(problem, "give one of them another name"));
        }
    }
    Ok(())
}
