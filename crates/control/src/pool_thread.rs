//! The thread of one pool: opening, orders, views, connections from the portal, closing.
//!
//! Invariant: the pool is closed last, after the change of its drives that is under way; all acknowledged writes are stable then.

use crate::{
    dr::{
        pool_groups::PoolDrGroups, rehearsal::PoolRehearsals, replica_views::PoolReplicaViews,
        shared_targets::SharedTargets,
    },
    folder_drives::FolderDrives,
    notice::NoticeSender,
    order::{Order, Orders, do_orders},
    pool_changes::PoolChanges,
    pool_peers::PoolPeers,
    presenting::pool_presentations::{PoolPresentations, ServedPresentations},
    space_counter::SpaceCounter,
    view::{FiguresPublisher, FiguresReader, PoolView, ViewPublisher},
};
use array::{format::VolumeId, pool::Pool};
use iscsi::{
    session::login::LoginRefusal,
    target::{
        ListedSession, ListedTarget, SessionFailure, Target, TargetEvent, Targets,
        access::AccessList,
        portal::{MovingConnection, ThreadTargets},
    },
};
use nbd::{
    Export, Exports, ListedExport, ServerOptions,
    server::{
        ConnectionEnd, ServerEvent,
        portal::{ListedClient, MovingClient, ThreadServer},
    },
};
use report::Refusal;
use serving::{
    export::{AssembledExports, PoolExports, WantedExports},
    figures::{PoolFigures, PoolMeters},
};
use std::{
    cell::{Cell, Ref, RefCell},
    path::Path,
    rc::Rc,
    sync::Arc,
    time::Duration,
};
use tokio::sync::{Notify, mpsc, oneshot, watch};
use world::{IoResult, JoinHandle, LocalFuture, ThreadStarter, World, with_deadline};

/// Time that initiators have to log out when the pool is closed.
const LOG_OUT_MAX: Duration = Duration::from_secs(2);

/// A pool that was opened for its thread, and what it serves.
pub struct OpenedPool {
    pub pool: Rc<Pool>,
    /// Of its drives, and of the volumes among its services.
    pub meters: Rc<PoolMeters>,
    pub services: PoolServices,
    /// For changes of its drives; `None` for a pool without a folder.
    pub drives: Option<Rc<FolderDrives>>,
    /// Closes it: all acknowledged writes are stable.
    pub close: Box<dyn FnOnce() -> LocalFuture<Result<(), Refusal>>>,
}

/// The services of a pool.
#[derive(Default)]
pub struct PoolServices {
    /// Over NBD.
    pub exports: Vec<Export>,
    /// Over iSCSI.
    pub targets: Vec<Target>,
    /// Rights on the targets.
    pub access: AccessList,
}

/// Opens a pool on its thread.
pub type PoolOpener = Box<dyn FnOnce(World, NoticeSender) -> LocalFuture<Result<OpenedPool, Refusal>> + Send>;

/// A pool to be served.
pub struct PoolSetting {
    /// The pool's name in front of people.
    pub name: String,
    pub open: PoolOpener,
}

/// The pool of a thread, as its orders see it.
pub struct ServedPool {
    /// That of the thread.
    pub world: World,
    pub pool: Rc<Pool>,
    /// The exports that orders make of its volumes.
    pub exports: PoolExports,
    /// Changes of its drives and settings, and its jobs.
    pub changes: Rc<PoolChanges>,
    /// Counts the exact space of its volumes.
    pub space: Rc<SpaceCounter>,
    /// Its volumes that another site has a copy of.
    pub(crate) dr: Rc<PoolDrGroups>,
    /// Clones of these, in which a failover is rehearsed.
    pub(crate) rehearsals: PoolRehearsals,
    /// The cuts that readers of these see.
    pub(crate) replica_views: Rc<PoolReplicaViews>,
    /// Its points that are presented to hosts.
    pub(crate) presentations: PoolPresentations,
    pub(crate) notices: NoticeSender,
    nbd: Rc<ThreadServer>,
    iscsi: Rc<ThreadTargets>,
    listed: RefCell<ListedServices>,
    /// As it was asked for last, open to hosts or not.
    wanted: RefCell<WantedExports>,
    /// As it is served.
    open: RefCell<WantedExports>,
    orders_done: Cell<u64>,
    order_under_way: Cell<Option<&'static str>>,
    /// Notified when what is served has changed: that is published at once.
    services_changed: Notify,
    services_revision: Cell<u64>,
}

/// Names of what a pool serves.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ListedServices {
    pub exports: Vec<ListedExport>,
    pub targets: Vec<ListedTarget>,
    pub access: Arc<AccessList>,
    /// Of DR groups.
    pub shared: Arc<SharedTargets>,
}

impl ServedPool {
    /// Replaces what is served to new connections. Clients that are connected keep what they have.
    pub fn serve(&self, PoolServices { exports, targets, access }: PoolServices) {
        let listed = |export: &Export| ListedExport {
            name: export.name.clone(),
            description: export.description.clone(),
            is_stopped: false,
        };
        let listed_now = ListedServices {
            exports: exports.iter().map(listed).collect(),
            targets: targets
                .iter()
                .map(|target| ListedTarget {
                    name: target.name.clone(),
                    units: target.units.keys().copied().collect(),
                })
                .collect(),
            access: Arc::new(access.clone()),
            shared: Arc::clone(&self.listed.borrow().shared),
        };
        self.nbd.set_exports(Exports::of_thread(exports));
        self.iscsi.set_targets(self.iscsi.targets().replaced_by(targets, access));
        self.listed.replace(listed_now);
        self.services_revision.set(self.services_revision.get() + 1);
        self.services_changed.notify_one();
    }

    /// Serves what is wanted instead of what is served. Units that stay the same keep their sessions; an initiator that has lost
    /// a unit or a right loses its session, and one that has gained units learns of it. Returns warnings.
    ///
    /// # Errors
    ///
    /// There is no such volume or snapshot, or it cannot be read. Everything is as it was.
    pub fn serve_wanted(&self, wanted: &WantedExports) -> Result<Vec<String>, Refusal> {
        let mut warnings = self.serve_open(wanted)?;
        warnings.extend(self.dr.replicas_of_no_group(wanted));
        self.dr.note_wanted(wanted);
        self.share_targets();
        Ok(warnings)
    }

    fn serve_open(&self, wanted: &WantedExports) -> Result<Vec<String>, Refusal> {
        self.dr.note_serving(wanted);
        let (open, presentations) = self.with_presentations(wanted);
        let AssembledExports { nbd, targets, warnings } = self.exports.assemble(&open)?;
        self.presentations.note_served(presentations);
        self.wanted.replace(wanted.clone());
        self.serve(PoolServices { exports: nbd, targets, access: open.access.clone() });
        self.iscsi.targets().update_sessions();
        self.open.replace(open);
        self.share_targets();
        Ok(warnings)
    }

    /// Shows the targets that the other sites of DR groups have, too.
    fn share_targets(&self) {
        let shared = self.dr.shared_targets(&self.open.borrow());
        let portals = shared.portals.clone();
        self.iscsi.set_targets(self.iscsi.targets().with_portals(portals));
        self.listed.borrow_mut().shared = Arc::new(shared);
        self.services_revision.set(self.services_revision.get() + 1);
        self.services_changed.notify_one();
    }

    /// The exports that are wanted, as hosts reach them now: without the volumes of DR groups that do not serve, with what came with those that
    /// do.
    pub(crate) fn effective(&self, wanted: &WantedExports) -> WantedExports {
        self.with_presentations(wanted).0
    }

    fn with_presentations(&self, wanted: &WantedExports) -> (WantedExports, ServedPresentations) {
        let all = self.rehearsals.with_clones(&self.pool, self.dr.served_part(wanted));
        self.presentations.with_presented(&self.pool, all, self.world.wall().seconds)
    }

    /// Serves again what is wanted: other volumes of DR groups may be open to hosts now.
    pub(crate) fn serve_again(&self) {
        if let Err(refusal) = self.try_serve_again() {
            self.notices.warn(format!("what hosts may reach could not be changed: {refusal}"));
        }
    }

    /// As [`Self::serve_again`], for callers who need to know.
    ///
    /// # Errors
    ///
    /// Something that is wanted cannot be served: everything is as it was.
    pub(crate) fn try_serve_again(&self) -> Result<(), Refusal> {
        let wanted = self.wanted.borrow().clone();
        self.serve_open(&wanted).map(|_| ())
    }

    /// Ends the clients of exports and targets with these volumes that are not served any more. Returns how many are left.
    pub(crate) fn end_clients_of(&self, volumes: &[VolumeId]) -> usize {
        let names: Vec<String> = self
            .pool
            .volumes()
            .into_iter()
            .filter(|info| volumes.contains(&info.volume))
            .map(|info| info.name)
            .collect();
        let wanted = self.dr.with_all_rows(&self.wanted.borrow());
        let mut left = 0;
        for client in self.nbd.listed_clients() {
            if wanted.nbd.iter().any(|export| export.name == client.export && names.contains(&export.volume))
            {
                self.nbd.end_client(client.number);
                left += 1;
            }
        }
        for session in self.iscsi.targets().sessions() {
            let is_of = |target: &&serving::export::WantedTarget| {
                serving::export::name_of(&target.name) == session.target
            };
            let has = |number: u64| {
                let target = wanted.targets.iter().find(is_of);
                target.is_some_and(|target| {
                    target.units.iter().any(|unit| unit.number == number && names.contains(&unit.volume))
                })
            };
            if session.units.iter().any(|&(number, _)| has(number)) {
                self.iscsi.targets().end_session(&self.world, session.number);
                left += 1;
            }
        }
        left
    }

    /// The exports that hosts reach now.
    pub(crate) fn open_exports(&self) -> Ref<'_, WantedExports> {
        self.open.borrow()
    }

    /// A number that grows when what is served changes.
    pub fn services_revision(&self) -> u64 {
        self.services_revision.get()
    }

    /// Has the view published now: something was changed that its caller will look for.
    pub(crate) fn show_changes(&self) {
        self.services_changed.notify_one();
    }

    pub(crate) async fn services_changed(&self) {
        // Whichever comes first.
        let _ = with_deadline(self.changes.changed(), self.services_changed.notified()).await;
    }

    pub(crate) fn listed(&self) -> ListedServices {
        self.listed.borrow().clone()
    }

    pub(crate) fn begin_order(&self, name: &'static str) {
        assert!(self.order_under_way.replace(Some(name)).is_none(), "orders are done one at a time");
    }

    pub(crate) fn end_order(&self) {
        assert!(self.order_under_way.take().is_some(), "an order that ends has begun");
        self.orders_done.set(self.orders_done.get() + 1);
    }

    pub(crate) fn nbd_clients(&self) -> usize {
        self.nbd.clients()
    }

    pub(crate) fn iscsi_sessions(&self) -> usize {
        self.iscsi.targets().session_count()
    }

    pub(crate) fn listed_sessions(&self) -> Vec<ListedSession> {
        self.iscsi.targets().sessions()
    }

    pub(crate) fn listed_clients(&self) -> Vec<ListedClient> {
        self.nbd.listed_clients()
    }

    pub(crate) fn end_iscsi_session(&self, number: u64) -> bool {
        self.iscsi.targets().end_session(&self.world, number)
    }

    pub(crate) fn end_nbd_client(&self, number: u64) -> bool {
        self.nbd.end_client(number)
    }

    pub(crate) fn orders_done(&self) -> u64 {
        self.orders_done.get()
    }

    pub(crate) fn order_under_way(&self) -> Option<&'static str> {
        self.order_under_way.get()
    }
}

/// A pool's thread, seen from another one.
pub struct PoolThread {
    pub name: String,
    pub orders: Orders,
    pub(crate) views: watch::Receiver<Arc<PoolView>>,
    pub(crate) figures: watch::Receiver<Arc<PoolFigures>>,
    routes: PoolRoutes,
    opened: oneshot::Receiver<Result<(), Refusal>>,
    stop: oneshot::Sender<()>,
    /// Taken once it was awaited.
    end: Option<JoinHandle<Result<(), String>>>,
}

/// The ways by which connections reach a pool's thread.
#[derive(Clone)]
pub(crate) struct PoolRoutes {
    pub nbd: mpsc::UnboundedSender<MovingClient>,
    pub iscsi: mpsc::UnboundedSender<MovingConnection>,
    pub views: watch::Receiver<Arc<PoolView>>,
}

/// Surroundings of a new pool thread.
pub(crate) struct ThreadStart<'a> {
    /// Watches the thread.
    pub world: &'a World,
    pub threads: &'a dyn ThreadStarter,
    pub notices: &'a NoticeSender,
    /// Takes clients back to the portal.
    pub send_back: mpsc::UnboundedSender<MovingClient>,
    pub nbd_options: &'a ServerOptions,
    pub peers: &'a PoolPeers,
}

impl PoolThread {
    /// Starts the thread; the pool is open once [`PoolThread::opened`] says so.
    pub(crate) fn start(PoolSetting { name, open }: PoolSetting, start: &ThreadStart<'_>) -> IoResult<Self> {
        let (orders, order_queue) = Orders::channel();
        let (show, views) = watch::channel(Arc::<PoolView>::default());
        let (count, figures) = watch::channel(Arc::<PoolFigures>::default());
        let (nbd, nbd_clients) = mpsc::unbounded_channel();
        let (iscsi, iscsi_connections) = mpsc::unbounded_channel();
        let (tell_opened, opened) = oneshot::channel();
        let (stop, stopped) = oneshot::channel();
        let notices = start.notices.of(&name);
        let (send_back, nbd_options) = (start.send_back.clone(), start.nbd_options.clone());
        let own_name = name.clone();
        let (own_orders, peers) = (orders.clone(), start.peers.clone());
        let main = move |world: World| -> LocalFuture<()> {
            Box::pin(async move {
                match open(world.clone(), notices.clone()).await {
                    Err(refusal) => drop(tell_opened.send(Err(refusal))),
                    Ok(opened) => {
                        let arrivals = Arrivals { nbd: nbd_clients, iscsi: iscsi_connections, stopped };
                        let servers =
                            Servers { name: own_name, notices, send_back, nbd_options, own_orders, peers };
                        let reports = Reports { orders: order_queue, show, count, tell_opened };
                        run(world, opened, reports, arrivals, servers).await;
                    }
                }
            })
        };
        let ended = start.threads.start(&format!("pool {name}"), Box::new(main))?;
        let notices = start.notices.of(&name);
        let end = start.world.spawn("pool watch", async move {
            let end = ended.await;
            if let Err(panic) = &end {
                notices.warn(format!(
                    "stopped by an error of the program: {panic}; other pools go on; start again to open it"
                ));
            }
            end
        });
        let routes = PoolRoutes { nbd, iscsi, views: views.clone() };
        Ok(Self { name, orders, views, figures, routes, opened, stop, end: Some(end) })
    }

    /// Waits until the pool is open.
    ///
    /// # Errors
    ///
    /// The refusal of the opening, or the panic that ended it.
    pub(crate) async fn opened(&mut self) -> Result<(), Refusal> {
        match (&mut self.opened).await {
            Ok(opened) => opened,
            Err(_) => {
                let end = self.end.take().expect("a pool is opened once");
                let why = end.await.err().unwrap_or_else(|| "its thread has ended".to_owned());
                Err(Refusal::new(format!("{}: {why}", self.name), "see the log"))
            }
        }
    }

    pub(crate) fn routes(&self) -> PoolRoutes {
        self.routes.clone()
    }

    /// The newest view; `None` once the thread has ended.
    pub fn view(&self) -> Option<Arc<PoolView>> {
        current(&self.views)
    }

    /// The newest view, also of a thread that has ended.
    pub(crate) fn last_view(&self) -> Arc<PoolView> {
        Arc::clone(&self.views.borrow())
    }

    /// The newest figures; `None` once the thread has ended.
    pub fn figures(&self) -> Option<Arc<PoolFigures>> {
        current(&self.figures)
    }

    /// Reads the figures wherever they are wanted, as long as they are.
    pub fn figures_reader(&self) -> FiguresReader {
        FiguresReader::new(&self.name, &self.figures)
    }

    /// Waits until the view shows what is served since a revision, or the thread has ended.
    pub(crate) async fn shows_services(&self, revision: u64) {
        let mut views = self.views.clone();
        // An error is the end of the thread.
        let _ = views.wait_for(|view| view.services_revision >= revision).await;
    }

    /// Asks the thread to close its pool and to end. Returns its name and its end, if that was not awaited yet.
    pub(crate) fn begin_stop(self) -> (String, Option<JoinHandle<Result<(), String>>>) {
        // The thread may have ended.
        let _ = self.stop.send(());
        (self.name, self.end)
    }
}

/// The newest view or figures of a pool whose thread has not ended.
pub(crate) fn current<T>(views: &watch::Receiver<Arc<T>>) -> Option<Arc<T>> {
    views.has_changed().is_ok().then(|| Arc::clone(&views.borrow()))
}

/// The queues from other threads.
struct Arrivals {
    nbd: mpsc::UnboundedReceiver<MovingClient>,
    iscsi: mpsc::UnboundedReceiver<MovingConnection>,
    stopped: oneshot::Receiver<()>,
}

struct Servers {
    /// Of the pool.
    name: String,
    notices: NoticeSender,
    send_back: mpsc::UnboundedSender<MovingClient>,
    nbd_options: ServerOptions,
    /// For other pools.
    own_orders: Orders,
    peers: PoolPeers,
}

/// The thread's ends of what others see and give.
struct Reports {
    orders: mpsc::Receiver<Order>,
    show: watch::Sender<Arc<PoolView>>,
    count: watch::Sender<Arc<PoolFigures>>,
    tell_opened: oneshot::Sender<Result<(), Refusal>>,
}

/// Serves an open pool until its stop; then closes it.
async fn run(
    world: World,
    OpenedPool { pool, meters, services, drives, close }: OpenedPool,
    Reports { orders, show, count, tell_opened }: Reports,
    arrivals: Arrivals,
    Servers { name, notices, send_back, nbd_options, own_orders, peers }: Servers,
) {
    // The portal may have ended, as when all end.
    let back = Rc::new(move |client| drop(send_back.send(client)));
    let nbd = ThreadServer::new(&world, nbd_options, nbd_reporter(&notices), back);
    let iscsi = ThreadTargets::new(&world, Targets::default(), iscsi_reporter(&notices));
    let served = Rc::new(ServedPool {
        world: world.clone(),
        exports: PoolExports::new(&world, (&pool, &meters), Path::new(&name)),
        changes: PoolChanges::new(&world, &pool, drives, &peers),
        space: SpaceCounter::new(&world, &pool),
        dr: PoolDrGroups::open((&world, &pool), &notices, &peers.dr),
        rehearsals: PoolRehearsals::default(),
        replica_views: PoolReplicaViews::new(),
        presentations: PoolPresentations::new(&peers.presentations, pool.id()),
        notices: notices.clone(),
        pool,
        nbd: Rc::clone(&nbd),
        iscsi: Rc::clone(&iscsi),
        listed: RefCell::default(),
        wanted: RefCell::default(),
        open: RefCell::default(),
        orders_done: Cell::new(0),
        order_under_way: Cell::new(None),
        services_changed: Notify::new(),
        services_revision: Cell::new(0),
    });
    served.serve(services);
    let holds = peers.presentations.clone();
    served.exports.set_holds(Rc::new(move |volume, snapshot| holds.check_not_held(volume, snapshot)));
    served.dr.watch(&served);
    PoolRehearsals::watch(&served);
    PoolReplicaViews::watch(&served);
    let mut publisher = ViewPublisher::new(&world, &served, show);
    publisher.publish().await;
    world.spawn("orders", do_orders(Rc::clone(&served), orders));
    world.spawn("views", publisher.run());
    world.spawn("figures", FiguresPublisher::new(&served, &meters, count).run());
    let Arrivals { nbd: mut clients, iscsi: mut connections, stopped } = arrivals;
    let takes_clients = Rc::clone(&nbd);
    world.spawn("nbd arrivals", async move {
        while let Some(client) = clients.recv().await {
            takes_clients.take(client);
        }
    });
    let takes_connections = Rc::clone(&iscsi);
    world.spawn("iscsi arrivals", async move {
        while let Some(connection) = connections.recv().await {
            takes_connections.take(connection);
        }
    });
    let id = served.pool.id();
    peers.add(id, own_orders);
    // Nobody may wait for it.
    let _ = tell_opened.send(Ok(()));
    // The sender is dropped with its daemon: that is a stop too.
    let _ = stopped.await;
    peers.remove(id);
    peers.dr.services().remove_pool(id);
    // An initiator that does not log out when asked loses nothing either.
    with_deadline(world.sleep(LOG_OUT_MAX), iscsi.targets().log_out_all()).await;
    served.exports.settle().await;
    if let Err(refusal) = close().await {
        notices.warn(refusal.to_string());
    }
}

/// Address of a peer, without its port.
fn source_of(peer: &str) -> &str {
    peer.rsplit_once(':').map_or(peer, |(address, _)| address)
}

pub(crate) fn nbd_reporter(notices: &NoticeSender) -> Rc<dyn Fn(ServerEvent)> {
    let notices = notices.clone();
    Rc::new(move |event| match event {
        ServerEvent::Connected { peer, export, is_encrypted } => {
            let how = if is_encrypted { " over TLS" } else { "" };
            notices.note(format!("{peer} uses {export:?}{how}"));
        }
        ServerEvent::Disconnected { peer, why: None } => notices.note(format!("{peer} is done")),
        ServerEvent::Disconnected { peer, why: Some(why) } => {
            let text = format!("{peer}: {why}");
            match why {
                ConnectionEnd::Tls(_) | ConnectionEnd::Refused(_) => {
                    notices.login_failed(source_of(&peer), text);
                }
                _ => notices.note(text),
            }
        }
        ServerEvent::NotAccepted(error) => notices.warn(error.to_string()),
    })
}

pub(crate) fn iscsi_reporter(notices: &NoticeSender) -> Rc<dyn Fn(TargetEvent)> {
    let notices = notices.clone();
    Rc::new(move |event| match event {
        TargetEvent::LoggedIn { peer, initiator, target: Some(target) } => {
            notices.note(format!("{peer} {initiator} uses {target}"));
        }
        TargetEvent::LoggedIn { peer, initiator, target: None } => {
            notices.note(format!("{peer} {initiator} asks for targets"));
        }
        TargetEvent::Ended { peer, why: None } => notices.note(format!("{peer} is done")),
        TargetEvent::Ended { peer, why: Some(SessionFailure::LoginsThrottled(throttled)) } => {
            // Once a minute.
            if throttled.is_news {
                notices.login_failed(source_of(&peer), format!("{peer}: {throttled}"));
            }
        }
        TargetEvent::Ended { peer, why: Some(why) } => {
            let text = format!("{peer}: {why}");
            match why {
                // A pool that has stopped, or another portal: the host has done nothing wrong.
                SessionFailure::LoginRefused(LoginRefusal::UNAVAILABLE | LoginRefusal::MOVED) => {
                    notices.note(text);
                }
                SessionFailure::LoginRefused(_) | SessionFailure::CommandBeforeLogin => {
                    notices.login_failed(source_of(&peer), text);
                }
                _ => notices.note(text),
            }
        }
        TargetEvent::NotAccepted(error) => notices.warn(error.to_string()),
    })
}
