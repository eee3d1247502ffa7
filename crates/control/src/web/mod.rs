//! The daemon's API over HTTP, on a thread of its own ([the decision](../../../../docs/decisions/2026-11-27-the-api.md)).
//!
//! Reading order: `local_world` and `connections` (HTTP over a world's network), `problem`, `caller` and `browser_sessions` (who may do what),
//! `changing` (audit and keys around each change), `expected_tags` (versions of rows), then the resources: `health`, `pools`, `segment_map`, `drives`, `drive_warnings`, `jobs`, `volumes`, `space`, `uses`,
//! `snapshots`, `points`, `presentations`, `cuts`, `group_orders` and what they do (`groups`, `group_changes`), `site`, `row_changes` and what they change (`targets`, `initiators`, `exports`, `schedules`), `sets` with `set_rows` and `set_results`, `sessions`, `power`,
//! `metrics`, `reports`, `events`, `conditions`, `notifiers`, `tokens`, `audit`; `router` puts them together, [`client`] calls them, and [`page_setting`]
//! is for pages that call them in the process.
//!
//! Invariants:
//!
//! 1. A GET sends a pool nothing, but for pages of snapshots, differences, the exact space and the uses of a volume, and the whole status and
//!    the segments of a pool; and once after a start, jobs that are to go on.
//! 2. A change is in the audit before it begins, and its outcome after it.
//! 3. Everything but health and the description of the API needs a caller (`caller`).

mod audit;
mod browser_sessions;
mod caller;
mod changing;
pub mod client;
mod conditions;
mod connections;
mod cuts;
pub mod differences;
mod dr_forks;
mod dr_groups;
mod dr_kept_states;
mod dr_line_tests;
mod dr_loss;
mod dr_mode_changes;
mod dr_parts;
mod dr_rehearsals;
mod dr_rows;
mod dr_sites;
mod dr_suspensions;
mod dr_verifications;
pub mod dr_withheld;
mod drive_warnings;
mod drives;
mod events;
mod expected_tags;
mod exports;
mod group_changes;
mod group_orders;
pub mod group_rows;
mod groups;
mod health;
pub mod health_rows;
pub mod history;
mod imports;
mod initiators;
mod jobs;
mod local_world;
mod metrics;
mod notifiers;
mod orders;
pub mod page_setting;
mod patient_stream;
mod points;
mod pools;
mod power;
mod presentations;
mod problem;
mod reports;
mod router;
mod row_changes;
pub mod rows;
mod schedules;
mod segment_map;
mod sessions;
mod set_results;
mod set_rows;
mod sets;
mod site;
mod site_advice;
mod snapshots;
mod space;
mod targets;
mod tokens;
mod transfers;
mod uses;
mod volumes;

pub use crate::journal::tokens::CallerRole;
pub use caller::ApiPeer;
pub use connections::CONNECTIONS_MAX;
pub(crate) use dr_suspensions::standstill_words;
pub use drives::{DeviceAccessBody, DriveGrowth, NewDriveBody};
pub use pools::{DomainBody, PoolPatch, SparingChoice};
pub use problem::ApiProblem;
pub use router::openapi_json;
pub use space::VolumeSpaceRow;
pub use tokens::{MadeToken, NewToken, TokenRow, make_token, token_text};

use crate::{
    dr::LinkHandle,
    events::DaemonEventLog,
    history::{HistoryFiles, PerformanceHistory},
    job_keeper::JobKeeper,
    journal::DaemonJournal,
    notice::NoticeSender,
    portal::{NetworkMaker, no_thread},
    report_folder::ReportFolder,
    site::handle::SiteHandle,
};
use array::format::PoolId;
use browser_sessions::BrowserSessions;
use caller::FailedLogins;
use changing::KeysUnderWay;
use connections::Entrance;
use events::STREAMS_MAX;
use local_world::LocalWorld;
use page_setting::{PageSetting, PagesAdder};
use report::Refusal;
use segment_map::KeptMap;
use serving::{export::listen_refusal, pool::room::RoomStatus};
use std::{
    collections::BTreeMap,
    rc::Rc,
    sync::{Arc, Mutex},
};
use tls::ServerTls;
use tokio::sync::{Semaphore, oneshot};
use world::{Address, JoinHandle, LocalFuture, ThreadStarter, World};

/// Orders that only read, at the same time: the others of a pool's queue are for changes.
const READERS_MAX: usize = 8;

/// Surroundings of the API.
pub struct WebSetting {
    pub network: NetworkMaker,
    /// Addresses, with the setting that names each.
    pub addresses: Vec<(Address, &'static str)>,
    /// Certificates for those that are no sockets; `None` in the clear.
    pub tls: Option<ServerTls>,
    /// The server's own user, who may do everything on the Unix socket.
    pub own_user: u32,
    pub site: SiteHandle,
    pub journal: Arc<DaemonJournal>,
    pub events: DaemonEventLog,
    /// Files of the performance over time.
    pub history: Box<dyn HistoryFiles>,
    /// Reports that people look at; `None` if the server keeps none.
    pub reports: Option<ReportFolder>,
    /// To other sites, if this one listens for them.
    pub link: Option<LinkHandle>,
    /// Puts pages for people before the API's paths.
    pub pages: Option<PagesAdder>,
}

/// Surroundings that all handlers share.
struct Api {
    world: LocalWorld,
    site: SiteHandle,
    journal: Arc<DaemonJournal>,
    notices: NoticeSender,
    events: DaemonEventLog,
    history: PerformanceHistory,
    reports: Option<ReportFolder>,
    /// Places of streams.
    streams: Arc<Semaphore>,
    own_user: u32,
    failed_logins: FailedLogins,
    sessions: BrowserSessions,
    keys: KeysUnderWay,
    /// Places of orders that only read.
    readers: Semaphore,
    /// Places of statuses with all volumes.
    counts: Semaphore,
    /// The place of a count of room, and the last counts.
    room_places: Arc<Semaphore>,
    rooms: Arc<Mutex<BTreeMap<PoolId, CountedRoom>>>,
    /// The place of a look at segments, and the last maps.
    segment_places: Arc<Semaphore>,
    segment_maps: Arc<Mutex<BTreeMap<PoolId, KeptMap>>>,
    jobs: JobKeeper,
    link: Option<LinkHandle>,
}

type ApiState = Arc<Api>;

/// A count of a pool's room.
struct CountedRoom {
    /// Of the pool's catalogue.
    revision: u64,
    /// A count may take longer than it is kept.
    ended_unix_s: i64,
    room: RoomStatus,
}

/// The API's thread, seen from another one.
pub struct WebThread {
    /// In the order of the setting.
    pub addresses: Vec<Address>,
    stop: oneshot::Sender<()>,
    end: JoinHandle<Result<(), String>>,
}

impl WebThread {
    /// Binds the addresses and serves the API there.
    ///
    /// # Errors
    ///
    /// There is no thread left, or an address is taken.
    pub async fn start(
        world: &World,
        threads: &dyn ThreadStarter,
        setting: WebSetting,
        notices: NoticeSender,
    ) -> Result<Self, Refusal> {
        let (tell, bound) = oneshot::channel();
        let (stop, stopped) = oneshot::channel::<()>();
        let own = notices.clone();
        let main =
            move |world: World| -> LocalFuture<()> { Box::pin(run(world, setting, (tell, stopped), own)) };
        let ended = threads.start("api", Box::new(main)).map_err(|error| no_thread(&error))?;
        let end = world.spawn("api watch", async move {
            let end = ended.await;
            if let Err(panic) = &end {
                notices.warn(format!(
                    "the API has stopped by an error of the program: {panic}; hosts are served on; start again to have it back"
                ));
            }
            end
        });
        match bound.await {
            Ok(addresses) => Ok(Self { addresses: addresses?, stop, end }),
            Err(_) => {
                let why = end.await.err().unwrap_or_else(|| "it has ended".to_owned());
                Err(Refusal::new(format!("the thread of the API: {why}"), "see the log"))
            }
        }
    }

    /// Ends all connections and the thread. The error is the message of a panic.
    pub async fn stop(self) -> Result<(), String> {
        let Self { stop, end, .. } = self;
        // The thread may have ended.
        let _ = stop.send(());
        end.await
    }
}

type Signals = (oneshot::Sender<Result<Vec<Address>, Refusal>>, oneshot::Receiver<()>);

async fn run(world: World, setting: WebSetting, (tell, stopped): Signals, notices: NoticeSender) {
    let WebSetting {
        network,
        addresses,
        tls,
        own_user,
        site,
        journal,
        events,
        history,
        reports,
        link,
        pages,
    } = setting;
    let network = network();
    let mut listeners = Vec::new();
    for (address, name) in addresses {
        match network.listen(&address).await {
            Ok(listener) => listeners.push(listener),
            Err(error) => return drop(tell.send(Err(listen_refusal(&error, name)))),
        }
    }
    // Nobody may wait for it.
    let _ = tell.send(Ok(listeners.iter().map(|listener| listener.address()).collect()));
    let jobs = JobKeeper::new(&journal, &notices);
    let history = PerformanceHistory::new(history);
    world.spawn("history", history.clone().run(world.clone(), site.clone(), notices.clone()));
    let api = Arc::new(Api {
        world: LocalWorld::new(&world),
        site,
        journal,
        notices,
        events,
        history,
        reports,
        streams: Arc::new(Semaphore::new(STREAMS_MAX)),
        own_user,
        failed_logins: FailedLogins::default(),
        sessions: BrowserSessions::default(),
        keys: KeysUnderWay::default(),
        readers: Semaphore::new(READERS_MAX),
        counts: Semaphore::new(1),
        room_places: Arc::new(Semaphore::new(1)),
        rooms: Arc::default(),
        segment_places: Arc::new(Semaphore::new(1)),
        segment_maps: Arc::default(),
        jobs,
        link,
    });
    let (keeping, own) = (Arc::clone(&api), world.clone());
    world.spawn("jobs", async move { keeping.jobs.run(&own, &keeping.site).await });
    let router = router::router(Arc::clone(&api));
    let router = match pages {
        Some(with_pages) => with_pages(PageSetting::new(router, &api.world)),
        None => router,
    };
    for listener in listeners {
        let listener: Rc<dyn world::Listener> = listener.into();
        let entrance = Entrance { api: Arc::clone(&api), router: router.clone(), tls: tls.clone() };
        world.spawn("api", connections::serve(world.clone(), listener, entrance));
    }
    // The sender is dropped with its daemon: that is a stop too.
    let _ = stopped.await;
}
