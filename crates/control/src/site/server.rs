//! The site that is served: planned, applied, changed while clients use it.
//!
//! Invariants:
//!
//! 1. A change begins after the journal knows of the apply it belongs to, and the apply ends with its last change.
//! 2. An apply that was interrupted is done to its end by the next one of the same file, with what it was allowed to destroy.
//!    Nothing is destroyed at a start or a reload.
//! 3. A pool that does not open, or cannot be as the file says, keeps no other from being served.
//! 4. No pool is made in the place of one that was there: the journal knows each that was made or opened.

use super::{
    dr_groups_waiting::WaitingDrGroups,
    late_pools::LatePools,
    places::PoolPlaces,
    planning::SitePlanner,
    pool_answers::UnansweredPools,
    power::SitePower,
    requests::SiteRequests,
    wanted::{SiteContext, WantedSite},
    wanted_pool::WantedPool,
};
use crate::{
    conditions::condition_id,
    daemon::{AddedPools, Daemon},
    dr::{LinkHandle, access::DrAccess, group_services::PortalReach},
    journal::{DaemonJournal, JournalError, JournalPool},
    metrics::MetricsSetting,
    notice::NoticeSender,
    order::map_rows,
    portal::{NetworkMaker, PortalAddresses, PortalSetting},
    presenting::{keeper::PresentationKeeper, presenter::Presenter},
    schedules::keeper::ScheduleKeeper,
    sets::{CatalogueFiles, keeper::SetFlows},
    several_pools::OperationPlaces,
    view::VolumeView,
    watched::WatchedSite,
};
use array::format::SiteId;
use nbd::{ServerOptions, TlsMode, UriTls};
use plan::site::Site;
use report::Refusal;
use serving::export::WantedExports;
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    rc::Rc,
    sync::Arc,
};
use tls::ServerTls;
use tokio::sync::watch;
use world::{Address, Network, ThreadStarter, World};

/// Surroundings of a site's server.
pub struct SiteServerSetting {
    pub context: SiteContext,
    pub places: Rc<dyn PoolPlaces>,
    pub threads: Rc<dyn ThreadStarter>,
    pub network: NetworkMaker,
    pub journal: Arc<DaemonJournal>,
    /// Of the sets that this server keeps.
    pub catalogues: Rc<dyn CatalogueFiles>,
}

/// The clients that are to reach the site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortalUse {
    /// At the addresses of its file.
    Listen,
    /// Nobody.
    None,
}

/// A way to something that is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServedUri {
    Nbd { address: Address, export: String },
    Iscsi { address: Address, target: String, number: u64 },
}

/// A site that is served.
pub struct SiteServer {
    pub(super) world: World,
    pub(super) daemon: Daemon,
    pub(super) journal: Arc<DaemonJournal>,
    pub(super) context: SiteContext,
    pub(super) places: Rc<dyn PoolPlaces>,
    pub(super) planner: SitePlanner,
    pub(super) unanswered: UnansweredPools,
    pub(super) late: LatePools,
    pub(super) notices: NoticeSender,
    /// Pools that did not open or cannot be as the file says, with the reasons.
    pub(super) stopped: BTreeMap<String, Refusal>,
    /// Of these, pools that are not to be opened.
    pub(super) refused: BTreeMap<String, Refusal>,
    addresses: Rc<WantedAddresses>,
    pub(super) requests: SiteRequests,
    pub(super) schedules: ScheduleKeeper,
    pub(super) sets: SetFlows,
    presentations: PresentationKeeper,
    catalogues: Rc<dyn CatalogueFiles>,
    /// Of this thread: databases that are frozen.
    network: Rc<dyn Network>,
    pub(super) power: SitePower,
    /// To other sites; `None` until it was started.
    pub(super) link: Option<LinkHandle>,
    pub(super) waiting_dr_groups: WaitingDrGroups,
    /// Of work over several pools.
    pub(super) operation_places: Arc<OperationPlaces>,
    /// At the start what the file says, whatever becomes of its apply.
    pub(super) watched: watch::Sender<Arc<WatchedSite>>,
    /// As the journal has it; after a start that failed in part, as that was to serve it.
    pub(super) served_site: Arc<Site>,
    /// Exports of the pools that serve all that was wanted of them.
    pub(super) served_exports: BTreeMap<String, WantedExports>,
    /// Text of the site that each pool serves its part of.
    pub(super) served_texts: BTreeMap<String, Arc<str>>,
    /// Of the file that was applied.
    pub(super) metrics: Arc<MetricsSetting>,
    /// NBD is served over TLS alone.
    has_tls: bool,
    certificates: ServedCertificates,
}

/// Certificates that are shown.
struct ServedCertificates {
    nbd: TlsMode,
    api: Option<ServerTls>,
}

/// Addresses and the folder of certificates, as the file says them.
#[derive(PartialEq)]
pub(super) struct WantedAddresses {
    nbd: Option<Address>,
    iscsi: Option<Address>,
    api: Option<Address>,
    nbd_tls: PathBuf,
    api_tls: PathBuf,
}

impl WantedAddresses {
    /// `folder` is that of the file.
    pub fn of(wanted: &WantedSite, site: &Site, folder: &Path) -> Self {
        Self {
            nbd: wanted.nbd.clone(),
            iscsi: wanted.iscsi.clone(),
            api: wanted.api.clone(),
            nbd_tls: folder.join(&site.serve.nbd_tls),
            api_tls: folder.join(&site.serve.api_tls),
        }
    }
}

impl SiteServer {
    /// This site for DR groups of all pools.
    pub fn dr_access(&self) -> DrAccess {
        self.daemon.dr_access()
    }

    /// Binds the addresses of the site file `text`, and opens those of its pools that are there. Nothing is served before an
    /// apply, and nobody is accepted before [`SiteServer::open`].
    ///
    /// # Errors
    ///
    /// The file is wrong, or asks for what there is not; an address is taken. Nothing has changed.
    pub async fn start(
        world: &World,
        setting: SiteServerSetting,
        text: &str,
        portal: PortalUse,
        notices: &NoticeSender,
    ) -> Result<Self, Refusal> {
        let SiteServerSetting { context, places, threads, network, journal, catalogues } = setting;
        let own_network = network();
        let site = parse(text)?;
        let wanted = WantedSite::of(&site, &context)?;
        let nbd_options = ServerOptions { tls: wanted.nbd_tls.clone(), ..ServerOptions::default() };
        let (nbd, iscsi) = (wanted.nbd.clone(), wanted.iscsi.clone());
        let listened = |address: &Option<Address>| address.clone().filter(|_| portal == PortalUse::Listen);
        let has_tls = matches!(wanted.nbd_tls, TlsMode::Required(_));
        let portal = PortalSetting { network, nbd: listened(&nbd), iscsi: listened(&iscsi), nbd_options };
        let daemon = Daemon::bind(world, threads, portal, notices).await?;
        daemon.dr_access().witness_tls().set(wanted.witness_tls.clone());
        if let Some(own) = journal.own_identity().map_err(|error| error.refusal())? {
            daemon.dr_access().set_site(SiteId(own.site));
        }
        begin_services(&daemon, &journal, &wanted.nbd_tls, notices)?;
        let addresses = Rc::new(WantedAddresses::of(&wanted, &site, &context.folder));
        let requests = SiteRequests::new();
        daemon.answer_pools(&requests.give);
        let unanswered = UnansweredPools::default();
        let planner = SitePlanner {
            journal: Arc::clone(&journal),
            context: context.clone(),
            places: Rc::clone(&places),
            addresses: Rc::clone(&addresses),
            view: requests.view.subscribe(),
            unanswered: unanswered.clone(),
            presentations: daemon.presentations(),
        };
        let mut server = Self {
            world: world.clone(),
            daemon,
            journal,
            context,
            places,
            planner,
            unanswered,
            late: LatePools::default(),
            notices: notices.clone(),
            stopped: BTreeMap::new(),
            refused: BTreeMap::new(),
            addresses,
            requests,
            schedules: ScheduleKeeper::new(),
            sets: SetFlows::new(),
            presentations: PresentationKeeper::default(),
            catalogues,
            network: own_network,
            power: power_of_before(notices),
            link: None,
            waiting_dr_groups: WaitingDrGroups::default(),
            operation_places: Arc::default(),
            watched: watch::Sender::new(Arc::new(wanted.watched.clone())),
            served_site: Arc::default(),
            metrics: Arc::new(wanted.metrics),
            served_exports: BTreeMap::new(),
            served_texts: BTreeMap::new(),
            has_tls,
            certificates: ServedCertificates { nbd: wanted.nbd_tls.clone(), api: wanted.api_tls.clone() },
        };
        let records = server.journal.pools().map_err(|error| error.refusal())?;
        for pool in &wanted.pools {
            if let Err(refusal) = server.planner.check_place(pool, records.get(&pool.name), &records) {
                server.refused.insert(pool.name.clone(), refusal.clone());
                server.stop_pool(&pool.name, refusal);
            }
        }
        server.open_pools(&wanted.pools).await;
        server.publish();
        Ok(server)
    }

    /// Opens the pools that are there and not open, and records where they are.
    pub(super) async fn open_pools(&mut self, pools: &[WantedPool]) {
        let is_closed = |pool: &&WantedPool| {
            self.places.is_made(pool)
                && self.daemon.pool(&pool.name).is_none()
                && !self.refused.contains_key(&pool.name)
                && !self.late.has(&pool.name)
        };
        let closed: Vec<WantedPool> = pools.iter().filter(is_closed).cloned().collect();
        let settings = closed.iter().map(|pool| self.places.open(pool)).collect();
        let AddedPools { refused, late } = self.daemon.add_pools(settings).await;
        for (name, refusal) in refused {
            self.stop_pool(&name, refusal);
        }
        for pool in late {
            let wanted = closed.iter().find(|wanted| wanted.name == pool.name).expect("it was asked for");
            self.await_late(wanted, pool);
        }
        for pool in closed.iter().filter(|pool| self.daemon.pool(&pool.name).is_some()) {
            self.stopped.remove(&pool.name);
            if let Err(error) = self.record(pool) {
                self.notices.of(&pool.name).warn(error.refusal().to_string());
            }
        }
        self.settle_pools().await;
    }

    /// Records where an open pool is. A group may have had another name.
    pub(super) fn record(&self, pool: &WantedPool) -> Result<(), JournalError> {
        let known = JournalPool { folder: pool.folder.clone(), being_made: None };
        let records = self.journal.pools()?;
        // A start whose disk is full has nothing to write about pools that are as they were.
        if records.get(&pool.name) != Some(&known) {
            self.journal.put_pool(&pool.name, &known)?;
        }
        for (name, record) in records {
            if name != pool.name && self.places.is_one_folder(&record.folder, &pool.folder) {
                self.journal.forget_pool(&name)?;
            }
        }
        Ok(())
    }

    /// Goes on without a pool.
    pub(super) fn stop_pool(&mut self, name: &str, refusal: Refusal) {
        if self.stopped.get(name) != Some(&refusal) {
            let line = format!(
                "pool {name} is not as the file says: {refusal}; the other pools are served without what it lacks"
            );
            // Its condition is the event.
            self.notices.of(name).show(line);
        }
        self.stopped.insert(name.to_owned(), refusal);
    }

    /// The ways to everything that is served, with the pool's name.
    pub fn served(&self) -> Vec<(String, ServedUri)> {
        let PortalAddresses { nbd, iscsi } = self.daemon.addresses();
        let mut all = Vec::new();
        for pool in self.daemon.pools() {
            let Some(view) = pool.view() else { continue };
            let mut served = Vec::new();
            if let Some(address) = nbd {
                let exports = view.exports.iter().map(|export| export.name.clone());
                served.extend(exports.map(|export| ServedUri::Nbd { address: address.clone(), export }));
            }
            if let Some(address) = iscsi {
                for target in view.targets.iter() {
                    let uri = |&number: &u64| ServedUri::Iscsi {
                        address: address.clone(),
                        target: target.name.clone(),
                        number,
                    };
                    served.extend(target.units.iter().map(uri));
                }
            }
            all.extend(served.into_iter().map(|uri| (pool.name.clone(), uri)));
        }
        all
    }

    /// The address at which exports are served over NBD.
    pub(super) fn nbd_address(&self) -> Option<Address> {
        self.daemon.addresses().nbd.clone()
    }

    /// The address of the API that the file says.
    pub fn api_address(&self) -> Option<&Address> {
        self.addresses.api.as_ref()
    }

    /// Certificates of the API; `None` if it is served in the clear.
    pub fn api_certificates(&self) -> Option<&ServerTls> {
        self.certificates.api.as_ref()
    }

    /// Certificates are renewed under servers that go on: the next connections see those of the file that is applied.
    pub(super) fn renew_certificates(&self, wanted: &WantedSite) {
        if let (TlsMode::Required(used), TlsMode::Required(newer)) = (&self.certificates.nbd, &wanted.nbd_tls)
        {
            used.renew(newer);
        }
        if let (Some(used), Some(newer)) = (&self.certificates.api, &wanted.api_tls) {
            used.renew(newer);
        }
        self.daemon.dr_access().witness_tls().set(wanted.witness_tls.clone());
    }

    /// The TLS part of NBD URIs.
    pub fn uri_tls(&self) -> Option<UriTls> {
        self.has_tls.then(UriTls::default)
    }

    /// Pools that are there and did not open, with the reasons.
    pub fn stopped(&self) -> &BTreeMap<String, Refusal> {
        &self.stopped
    }

    /// Notifiers and certificates of the site file that was applied last, or with which the server starts.
    pub fn watched(&self) -> watch::Receiver<Arc<WatchedSite>> {
        self.watched.subscribe()
    }

    pub fn daemon(&self) -> &Daemon {
        &self.daemon
    }

    /// Accepts clients, takes snapshots by the schedules of the file that was applied, and keeps its sets, from now on.
    pub fn open(&mut self) {
        self.daemon.open();
        self.publish();
        self.requests.answer_plans(&self.world, self.planner.clone());
        self.watch_closed_pools();
        let site = self.handle();
        self.schedules.start(&self.world, site.clone(), &self.notices);
        let around =
            (Rc::clone(&self.catalogues), Rc::clone(&self.network), self.daemon.dr_access().sets().clone());
        self.sets.start(&self.world, site.clone(), around, &self.notices);
        let board = self.daemon.presentations();
        let presenter = Presenter { site, board, notices: self.notices.clone() };
        self.presentations.start(&self.world, presenter, &self.journal);
    }

    /// Ends all sessions, closes all pools, and waits for their threads. Returns the threads that had panicked, with the
    /// messages.
    pub async fn stop(mut self) -> Vec<(String, String)> {
        self.requests.end_plans().await;
        // They would miss the pools.
        self.schedules.stop().await;
        self.sets.stop().await;
        self.presentations.stop().await;
        // Pools that are closed have not failed.
        self.requests.view.send_replace(Arc::default());
        self.daemon.stop().await
    }

    /// The volumes of a pool that is open.
    pub async fn volumes(&self, pool: &str) -> Result<Vec<VolumeView>, Refusal> {
        self.order(pool, "volumes", |pool| {
            Box::pin(async move { Ok(map_rows(&pool.world, pool.pool.volumes(), VolumeView::of).await) })
        })
        .await
    }
}

/// A server that was restarted on a battery is on it still, until somebody says otherwise; after low power, it is started because
/// the power is back.
fn power_of_before(notices: &NoticeSender) -> SitePower {
    match notices.condition(&condition_id("power", "power", "")) {
        Some(open) if open.kind == "on_battery" => SitePower::OnBattery,
        _ => SitePower::OnLine,
    }
}

/// Has the pools find what came with DR groups, before they are opened.
fn begin_services(
    daemon: &Daemon,
    journal: &Arc<DaemonJournal>,
    nbd_tls: &TlsMode,
    notices: &NoticeSender,
) -> Result<(), Refusal> {
    let access = daemon.dr_access();
    let unusable = access.services().load(journal).map_err(|error| error.refusal())?;
    let unread = access.clients().load(journal).map_err(|error| error.refusal())?;
    let unknown = access.sets().load(journal).map_err(|error| error.refusal())?;
    daemon.presentations().load(journal).map_err(|error| error.refusal())?;
    unusable.iter().chain(&unread).chain(&unknown).for_each(|line| notices.warn(line.clone()));
    let reach = |address: &Option<Address>, is_certified: bool| match address {
        None => PortalReach::Nobody,
        Some(address) if address.is_local() => PortalReach::Local,
        Some(_) if is_certified => PortalReach::Certified,
        Some(_) => PortalReach::Everyone,
    };
    let PortalAddresses { nbd, iscsi } = daemon.addresses();
    let asks_who = matches!(nbd_tls, TlsMode::Required(tls) if tls.asks_who());
    access.services().set_reach((reach(nbd, asks_who), reach(iscsi, false)), iscsi.clone());
    Ok(())
}

/// The site of a file's text, with the groups that it leaves to be understood.
///
/// # Errors
///
/// The line and the reason for which it is no site file.
pub fn parse(text: &str) -> Result<Site, Refusal> {
    let refused = |problem: String| Refusal::new(format!("the site file: {problem}"), "");
    let site = Site::from_toml(text).map_err(|error| refused(error.to_string()))?;
    let whole = site.clone().with_groups_said();
    // It was looked at without the groups; with them, two volumes may have one name.
    match if whole == site { None } else { whole.fault() } {
        Some(fault) => Err(refused(fault)),
        None => Ok(whole),
    }
}
