//! The portal's thread: one listener for each protocol, in front of all pools.
//!
//! Invariant: the portal routes by the pools' newest views. A name that two pools have is served by the first of them, and
//! the daemon refuses such a setting before it starts.

use crate::{
    notice::NoticeSender,
    pool_thread::{PoolRoutes, current, iscsi_reporter, nbd_reporter},
    view::PoolView,
};
use iscsi::target::{
    Targets,
    access::AccessList,
    portal::{MovingConnection, TargetDirectory, TargetPlace, serve_portal},
};
use nbd::{
    ListedExport, ServerOptions,
    server::portal::{ExportDirectory, MovingClient, Portal},
};
use report::Refusal;
use serving::export::listen_refusal;
use std::{rc::Rc, sync::Arc};
use tokio::sync::{mpsc, oneshot, watch};
use world::{Address, IoError, Listener, LocalFuture, Network, ThreadEnd, ThreadStarter, World};

/// Gives the portal's thread its network stack.
pub type NetworkMaker = Box<dyn Fn() -> Rc<dyn Network> + Send>;

/// Addresses and limits of the portal.
pub struct PortalSetting {
    pub network: NetworkMaker,
    pub nbd: Option<Address>,
    pub iscsi: Option<Address>,
    /// Limits of each pool's thread, and the TLS policy.
    pub nbd_options: ServerOptions,
}

/// Bound addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortalAddresses {
    pub nbd: Option<Address>,
    pub iscsi: Option<Address>,
}

/// The portal's thread, seen from another one.
pub(crate) struct PortalThread {
    pub addresses: PortalAddresses,
    /// None before clients are accepted.
    routes: watch::Sender<Option<Vec<PoolRoutes>>>,
    stop: oneshot::Sender<()>,
    end: ThreadEnd,
}

impl PortalThread {
    /// Starts the thread and binds the addresses; nobody is accepted before there are routes. `back` are clients that pools
    /// send back.
    ///
    /// # Errors
    ///
    /// There is no thread left, or an address could not be bound.
    pub async fn start(
        threads: &dyn ThreadStarter,
        setting: PortalSetting,
        back: mpsc::UnboundedReceiver<MovingClient>,
        notices: NoticeSender,
    ) -> Result<Self, Refusal> {
        let (tell, addresses) = oneshot::channel();
        let (routes, take_routes) = watch::channel(None);
        let (stop, stopped) = oneshot::channel::<()>();
        let main = move |world: World| -> LocalFuture<()> {
            Box::pin(run(world, setting, (tell, take_routes, stopped), back, notices))
        };
        let end = threads.start("portal", Box::new(main)).map_err(|error| no_thread(&error))?;
        match addresses.await {
            Ok(addresses) => Ok(Self { addresses: addresses?, routes, stop, end }),
            Err(_) => {
                let why = end.await.err().unwrap_or_else(|| "it has ended".to_owned());
                Err(Refusal::new(format!("the portal's thread: {why}"), "see the log"))
            }
        }
    }

    /// Serves these pools from now on. The first call begins to accept connections.
    pub fn route(&self, pools: Vec<PoolRoutes>) {
        self.routes.send_replace(Some(pools));
    }

    /// Stops accepting connections; those that pools have stay. The error is the message of a panic.
    pub async fn stop(self) -> Result<(), String> {
        let Self { routes, stop, end, .. } = self;
        // The thread may have ended.
        let _ = stop.send(());
        drop(routes);
        end.await
    }
}

/// The refusal of a thread that could not be started.
pub(crate) fn no_thread(error: &IoError) -> Refusal {
    Refusal::new(error.to_string(), "raise the limits of threads and open files (ulimit -u, -n)")
}

type Signals = (
    oneshot::Sender<Result<PortalAddresses, Refusal>>,
    watch::Receiver<Option<Vec<PoolRoutes>>>,
    oneshot::Receiver<()>,
);

async fn run(
    world: World,
    PortalSetting { network, nbd, iscsi, nbd_options }: PortalSetting,
    (tell, mut routes, stopped): Signals,
    mut back: mpsc::UnboundedReceiver<MovingClient>,
    notices: NoticeSender,
) {
    let network = network();
    let bound = async {
        Ok((listen(&*network, nbd, "⟨nbd⟩").await?, listen(&*network, iscsi, "⟨iscsi⟩").await?))
    };
    let (nbd, iscsi) = match bound.await {
        Ok(bound) => bound,
        Err(refusal) => return drop(tell.send(Err(refusal))),
    };
    let addresses = PortalAddresses {
        nbd: nbd.as_ref().map(|listener| listener.address()),
        iscsi: iscsi.as_ref().map(|listener| listener.address()),
    };
    // Nobody may wait for it.
    let _ = tell.send(Ok(addresses));
    if routes.wait_for(Option::is_some).await.is_err() {
        return;
    }
    let directory = Rc::new(Directory { routes, discovery: Targets::default() });
    let portal = Portal::new(&world, Rc::clone(&directory) as _, nbd_options, nbd_reporter(&notices));
    let takes_back = Rc::clone(&portal);
    world.spawn("nbd clients back", async move {
        while let Some(client) = back.recv().await {
            takes_back.take_back(client);
        }
    });
    if let Some(listener) = nbd {
        world.spawn("nbd portal", portal.serve(listener));
    }
    if let Some(listener) = iscsi {
        let serving = serve_portal(world.clone(), listener, directory, iscsi_reporter(&notices));
        world.spawn("iscsi portal", serving);
    }
    // The sender is dropped with its daemon: that is a stop too.
    let _ = stopped.await;
}

/// Listens at an address, which a setting gives; `None` if there is none.
async fn listen(
    network: &dyn Network,
    address: Option<Address>,
    setting: &str,
) -> Result<Option<Rc<dyn Listener>>, Refusal> {
    let Some(address) = address else { return Ok(None) };
    let bound = network.listen(&address).await;
    bound.map(|listener| Some(listener.into())).map_err(|error| listen_refusal(&error, setting))
}

/// The pools by what they serve.
struct Directory {
    routes: watch::Receiver<Option<Vec<PoolRoutes>>>,
    /// Sessions of discovery.
    discovery: Targets,
}

impl Directory {
    fn pools(&self) -> Vec<PoolRoutes> {
        self.routes.borrow().clone().unwrap_or_default()
    }

    /// The pool with the wanted service, and whether its thread runs.
    fn find(&self, has: impl Fn(&PoolView) -> bool) -> Option<(PoolRoutes, bool)> {
        // The last view of a pool that has ended stays.
        let pool = self.pools().into_iter().find(|pool| has(&pool.views.borrow()))?;
        let runs = current(&pool.views).is_some();
        Some((pool, runs))
    }

    fn find_target(&self, target: &str) -> Option<(PoolRoutes, bool)> {
        self.find(|view| {
            // A target of which all units are closed is served nowhere here.
            let mut open = view.targets.iter().filter(|listed| !listed.units.is_empty());
            open.any(|listed| listed.name.eq_ignore_ascii_case(target))
        })
    }
}

impl ExportDirectory for Directory {
    fn listed(&self) -> Vec<ListedExport> {
        let of_pool = |pool: &PoolRoutes| {
            let is_stopped = current(&pool.views).is_none();
            let exports = Arc::clone(&pool.views.borrow().exports);
            let listed = |export: &ListedExport| ListedExport { is_stopped, ..export.clone() };
            exports.iter().map(listed).collect::<Vec<_>>()
        };
        self.pools().iter().flat_map(of_pool).collect()
    }

    fn send(&self, export: &str, client: MovingClient) -> bool {
        let pool = self.find(|view| view.exports.iter().any(|listed| listed.name == export));
        pool.is_some_and(|(pool, _)| pool.nbd.send(client).is_ok())
    }
}

impl TargetDirectory for Directory {
    fn targets(&self) -> Targets {
        let views: Vec<_> = self.pools().iter().map(|pool| Arc::clone(&pool.views.borrow())).collect();
        let of_others = views.iter().map(|view| &view.shared_targets.access);
        let access = AccessList::merged(views.iter().map(|view| &*view.access).chain(of_others));
        let listed = views.iter().flat_map(|view| {
            let served = view.targets.iter().chain(&view.shared_targets.listed);
            served.cloned().collect::<Vec<_>>()
        });
        let portals = views.iter().flat_map(|view| view.shared_targets.portals.clone());
        self.discovery.with_listed(listed).with_access(access).with_portals(portals)
    }

    fn place(&self, target: &str) -> TargetPlace {
        match self.find_target(target) {
            Some((_, true)) => TargetPlace::Thread,
            Some((_, false)) => TargetPlace::Stopped,
            None => TargetPlace::Nowhere,
        }
    }

    fn send(&self, target: &str, connection: MovingConnection) -> bool {
        self.find_target(target).is_some_and(|(pool, _)| pool.iscsi.send(connection).is_ok())
    }
}
