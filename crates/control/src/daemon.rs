//! All threads of the daemon: started together, watched, ended together.

use crate::{
    dr::access::DrAccess,
    notice::NoticeSender,
    pool_peers::PoolPeers,
    pool_thread::{PoolSetting, PoolThread, ThreadStart},
    portal::{PortalAddresses, PortalSetting, PortalThread, no_thread},
    presenting::board::PresentationBoard,
    site::handle::SiteRequest,
};
use nbd::{ServerOptions, server::portal::MovingClient};
use report::Refusal;
use std::{collections::BTreeSet, rc::Rc, time::Duration};
use tokio::sync::mpsc;
use world::{ThreadStarter, World, with_deadline};

/// Time to open pools before a server goes on without those that are not open: their drives hang, or their logs are long.
pub const OPENED_WITHIN: Duration = Duration::from_secs(25);
/// Time to close a pool under a server that goes on.
pub const CLOSED_WITHIN: Duration = Duration::from_secs(25);

/// Pools and their portal.
pub struct DaemonSetting {
    pub pools: Vec<PoolSetting>,
    pub portal: PortalSetting,
}

/// A running daemon.
pub struct Daemon {
    world: World,
    threads: Rc<dyn ThreadStarter>,
    notices: NoticeSender,
    nbd_options: ServerOptions,
    /// Takes NBD clients back to the portal.
    send_back: mpsc::UnboundedSender<MovingClient>,
    pools: Vec<PoolThread>,
    peers: PoolPeers,
    portal: PortalThread,
    /// Clients are accepted.
    is_open: bool,
}

/// Pools that were to be opened and are not open.
pub(crate) struct AddedPools {
    /// Those that did not open, with the reasons.
    pub refused: Vec<(String, Refusal)>,
    /// Those whose openings are under way.
    pub late: Vec<PoolThread>,
}

impl Daemon {
    /// Binds the portal's addresses, opens all pools, each on its thread, and serves them.
    ///
    /// # Errors
    ///
    /// An address is taken, a pool does not open, or two pools would serve one name. Pools that were opened are closed again.
    pub async fn start(
        world: &World,
        threads: Rc<dyn ThreadStarter>,
        DaemonSetting { pools, portal }: DaemonSetting,
        notices: &NoticeSender,
    ) -> Result<Self, Refusal> {
        let mut names = BTreeSet::new();
        if let Some(twice) = pools.iter().map(|pool| &pool.name).find(|name| !names.insert(*name)) {
            return Err(Refusal::new(format!("two pools are called {twice:?}"), "name them apart"));
        }
        let mut daemon = Self::bind(world, threads, portal, notices).await?;
        let AddedPools { refused, late } = daemon.add_pools(pools).await;
        let mut refused = refused.into_iter().next().map(|(_, refusal)| refusal);
        for mut pool in late {
            let opened = pool.opened().await;
            refused = refused.or(daemon.join(pool, opened).await.err());
        }
        match refused.or_else(|| names_are_unique(&daemon.pools).err()) {
            None => {
                daemon.open();
                Ok(daemon)
            }
            Some(refusal) => {
                daemon.stop().await;
                Err(refusal)
            }
        }
    }

    /// Binds the portal's addresses, before any pool is touched: a taken address is the usual mistake. Nobody is accepted
    /// before [`Daemon::open`].
    ///
    /// # Errors
    ///
    /// An address is taken.
    pub async fn bind(
        world: &World,
        threads: Rc<dyn ThreadStarter>,
        portal: PortalSetting,
        notices: &NoticeSender,
    ) -> Result<Self, Refusal> {
        let (send_back, back) = mpsc::unbounded_channel();
        let nbd_options = portal.nbd_options.clone();
        let portal = PortalThread::start(&*threads, portal, back, notices.of("portal")).await?;
        let (world, notices) = (world.clone(), notices.clone());
        Ok(Self {
            world,
            threads,
            notices,
            nbd_options,
            send_back,
            pools: Vec::new(),
            peers: PoolPeers::default(),
            portal,
            is_open: false,
        })
    }

    /// The site for DR groups of all pools.
    pub fn dr_access(&self) -> DrAccess {
        self.peers.dr.clone()
    }

    /// Has the site answer what its pools ask.
    ///
    /// # Panics
    ///
    /// If it was called before.
    pub(crate) fn answer_pools(&self, requests: &mpsc::Sender<SiteRequest>) {
        assert!(self.peers.site.set(requests.clone()).is_ok(), "pools are of one site");
    }

    /// The presentations of all pools.
    pub(crate) fn presentations(&self) -> PresentationBoard {
        self.peers.presentations.clone()
    }

    /// Opens pools, all at the same time, each on a thread of its own, and waits [`OPENED_WITHIN`] for them.
    ///
    /// # Panics
    ///
    /// If a pool of that name is there already.
    pub(crate) async fn add_pools(&mut self, pools: Vec<PoolSetting>) -> AddedPools {
        let mut starting = Vec::new();
        let (mut refused, mut late) = (Vec::new(), Vec::new());
        let began = self.world.now();
        for pool in pools {
            assert!(self.pool(&pool.name).is_none(), "a pool is known by its name");
            let name = pool.name.clone();
            let start = ThreadStart {
                world: &self.world,
                threads: &*self.threads,
                notices: &self.notices,
                send_back: self.send_back.clone(),
                nbd_options: &self.nbd_options,
                peers: &self.peers,
            };
            match PoolThread::start(pool, &start) {
                Ok(pool) => starting.push(pool),
                Err(error) => refused.push((name, no_thread(&error))),
            }
        }
        for mut pool in starting {
            let left = OPENED_WITHIN.saturating_sub(self.world.now().since(began));
            match with_deadline(self.world.sleep(left), Box::pin(pool.opened())).await {
                None => late.push(pool),
                Some(opened) => {
                    let name = pool.name.clone();
                    refused.extend(self.join(pool, opened).await.err().map(|refusal| (name, refusal)));
                }
            }
        }
        self.route();
        AddedPools { refused, late }
    }

    /// Takes a pool in that is open.
    ///
    /// # Errors
    ///
    /// As `opened`: it did not open.
    pub(crate) async fn join(
        &mut self,
        pool: PoolThread,
        opened: Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        match opened {
            Ok(()) => self.pools.push(pool),
            Err(_) => drop(stop_all(vec![pool]).await),
        }
        self.route();
        opened
    }

    /// Closes a pool and ends its thread, as [`Daemon::remove_all_pools`]. Its clients are disconnected.
    pub async fn remove_pool(&mut self, name: &str) -> Option<String> {
        let index = self.pools.iter().position(|pool| pool.name == name)?;
        let pool = self.pools.remove(index);
        self.route();
        self.stop_in_time(vec![pool]).await.pop().map(|(_, why)| why)
    }

    /// Closes all pools, all at the same time, and ends their threads; the portal goes on. Returns the pools whose thread had
    /// panicked, and those that were not closed within [`CLOSED_WITHIN`], with the reasons: they go on closing.
    pub async fn remove_all_pools(&mut self) -> Vec<(String, String)> {
        let pools = std::mem::take(&mut self.pools);
        self.route();
        self.stop_in_time(pools).await
    }

    async fn stop_in_time(&self, pools: Vec<PoolThread>) -> Vec<(String, String)> {
        let stopping: Vec<_> = pools.into_iter().map(PoolThread::begin_stop).collect();
        let began = self.world.now();
        let mut failed = Vec::new();
        for (name, end) in stopping {
            let Some(mut end) = end.map(Box::pin) else { continue };
            let left = CLOSED_WITHIN.saturating_sub(self.world.now().since(began));
            match with_deadline(self.world.sleep(left), &mut end).await {
                Some(ended) => failed.extend(ended.err().map(|panic| (name, panic))),
                None => {
                    let seconds = CLOSED_WITHIN.as_secs();
                    failed.push((
                        name,
                        format!(
                            "its drives hang: it was not closed within {seconds} s, and is when they answer"
                        ),
                    ));
                    drop(self.world.spawn("late end", async move { drop(end.await) }));
                }
            }
        }
        failed
    }

    /// Accepts clients from now on.
    pub fn open(&mut self) {
        self.is_open = true;
        self.route();
    }

    /// Clients are accepted.
    pub fn is_open(&self) -> bool {
        self.is_open
    }

    fn route(&self) {
        if self.is_open {
            self.portal.route(self.pools.iter().map(PoolThread::routes).collect());
        }
    }

    pub fn addresses(&self) -> &PortalAddresses {
        &self.portal.addresses
    }

    /// In the order in which they were opened.
    pub fn pools(&self) -> &[PoolThread] {
        &self.pools
    }

    pub fn pool(&self, name: &str) -> Option<&PoolThread> {
        self.pools.iter().find(|pool| pool.name == name)
    }

    /// Stops accepting connections, closes all pools, and waits for their threads. Returns the pools whose thread had
    /// panicked, with the messages.
    pub async fn stop(self) -> Vec<(String, String)> {
        let Self { pools, portal, .. } = self;
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
