//! A site with one pool or two in simulated time: a whole server on a machine of its own, with its API, its NBD exports, and
//! the link to the other site. The link is plain: certificates would be new ones in each run of a seed.

use crate::sim_site::{Drives, MIB, MadePools, SimCatalogues, SimPlaces, journal_of};
use array::{
    pool::{OpenSetting, Pool, VolumeKey, open},
    volume::VolumeDevice,
};
use control::{
    dr::{LinkProtection, LinkThread, LinkThreadSetting, group_view::DrRole},
    events::DaemonEventLog,
    journal::pairings::{OwnIdentity, PairedSite},
    notice,
    site::{
        SiteContext, SiteServer,
        planning::PlanOccasion,
        server::{PortalUse, SiteServerSetting},
    },
    web::{
        WebSetting, WebThread,
        client::{ApiClient, ApiReply, DrGroupList, DrGroupRow, Method, SiteBody},
    },
};
use fragile::Fragile;
use nbd::{Client, ClientOptions, NbdUri};
use replication::{
    connect::SiteRole,
    group_record::{GroupRecord, load_records},
};
use report::Refusal;
use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::Arc,
    time::Duration,
};
use world::{
    Address, BlockDevice, Buffer, ByteCount, ByteOffset, IoResult, Random, World,
    sim::{DriveOptions, SimNetwork, SimNode, SimStateFile, SimThreads, Simulation},
    with_deadline,
};

pub const SITES: [&str; 2] = ["boston", "denver"];
pub const VOLUMES: [&str; 2] = ["a", "b"];
/// Names of the pools. The first volume lies in the first one, the second one in the last one that there is.
const POOLS: [&str; 2] = ["mail", "tape"];
/// Size of each volume.
pub const VOLUME_BYTES: u64 = MIB;
/// Virtual time in which every request has to be answered.
const ANSWER_WITHIN: Duration = Duration::from_secs(90);

pub struct DrSite {
    /// Of both sites: 0 or 1.
    pub number: usize,
    pub node: SimNode,
    network: SimNetwork,
    /// Of each pool.
    drives: Drives,
    made: MadePools,
    journal: SimStateFile,
    /// Of sets, in its state folder.
    pub catalogues: SimCatalogues,
    /// Its file names the volumes.
    pub names_volumes: Cell<bool>,
    /// More tables of its file.
    pub more: RefCell<String>,
    /// Opens its pool while it is down.
    reader: SimNode,
    warnings: Rc<RefCell<Vec<String>>>,
}

/// A group as its pools keep it, and the contents of its volumes.
#[derive(Default)]
pub struct KeptDrSite {
    /// Of its part in each pool.
    pub records: Vec<GroupRecord>,
    /// By name of the volume.
    pub contents: Vec<Vec<u8>>,
}

impl DrSite {
    /// A site that is down, with one or two pools.
    pub fn new(
        simulation: &mut Simulation,
        network: &SimNetwork,
        (number, pools): (usize, usize),
        seed: u64,
    ) -> Rc<Self> {
        let name = SITES[number];
        let (node, reader) = (simulation.add_node(name), simulation.add_node(&format!("reader of {name}")));
        let options = DriveOptions::new(ByteCount(65 * MIB));
        let mut drives = Drives::new();
        for pool in &POOLS[..pools] {
            let own: Vec<_> = (0..2).map(|_| simulation.add_drive(options.clone())).collect();
            for drive in &own {
                node.attach(drive);
                reader.attach(drive);
            }
            drives.insert((*pool).to_owned(), own);
        }
        Rc::new(Self {
            number,
            node,
            network: network.clone(),
            drives,
            made: MadePools::default(),
            journal: SimStateFile::new(name, seed),
            catalogues: SimCatalogues::default(),
            names_volumes: Cell::new(number == 0),
            more: RefCell::default(),
            reader,
            warnings: Rc::default(),
        })
    }

    pub fn name(&self) -> &'static str {
        SITES[self.number]
    }

    /// The site file.
    pub fn text(&self) -> String {
        let name = self.name();
        let mut text = format!(
            "[serve]\nsite = '{name}'\nnbd = '{name}:10809'\niscsi = '{name}:3260'\n[[site]]\nname = '{name}'\n\
             "
        );
        for pool in self.drives.keys() {
            text += &format!("[[group]]\nname = '{pool}'\n");
        }
        if self.names_volumes.get() {
            for (volume, pool) in VOLUMES.iter().zip(self.pools_of_volumes()) {
                text += &format!(
                    "[[volume]]\nname = '{volume}'\ngroup = '{pool}'\ngb = {:?}\n[[nbd]]\nname = '{volume}'\nvolume = '{pool}/{volume}'\n",
                    VOLUME_BYTES as f64 / (1u64 << 30) as f64
                );
            }
        }
        text + &self.more.borrow()
    }

    pub fn has_several_pools(&self) -> bool {
        self.drives.len() > 1
    }

    /// The pool of each volume.
    fn pools_of_volumes(&self) -> [&'static str; VOLUMES.len()] {
        [POOLS[0], POOLS[self.drives.len() - 1]]
    }

    /// Starts the server, which is down.
    pub fn start(self: &Rc<Self>) {
        let own = Rc::clone(self);
        self.node.start(|world| async move {
            own.live(world).await.unwrap_or_else(|why| panic!("{}: {why}", own.name()));
        });
    }

    /// Ends at once, with or without its power.
    pub fn crash(&self, random: &mut Random) {
        if !self.node.is_up() {
            return;
        }
        match random.below(2) {
            0 => self.node.crash(),
            _ => {
                self.node.cut_power();
                self.journal.cut_power();
                self.catalogues.cut_power();
            }
        }
    }

    async fn live(&self, world: World) -> Result<(), String> {
        let said = |refusal: Refusal| refusal.to_string();
        let journal = Arc::new(journal_of(&self.journal)?);
        self.pair(&journal)?;
        let (name, text) = (self.name(), self.text());
        let network = || {
            let own = Fragile::new((self.node.clone(), self.network.clone()));
            Box::new(move || {
                let (node, network) = own.get();
                node.network(network)
            })
        };
        let threads = Rc::new(SimThreads(world.clone()));
        let setting = SiteServerSetting {
            context: SiteContext { folder: "/".into(), state: "/state".into(), site: None },
            places: Rc::new(SimPlaces { drives: self.drives.clone(), made: Rc::clone(&self.made) }),
            threads: Rc::clone(&threads) as _,
            network: network(),
            journal: Arc::clone(&journal),
            catalogues: Rc::new(self.catalogues.clone()),
        };
        let (notices, mut reader) = notice::channel("serve");
        let mut server =
            SiteServer::start(&world, setting, &text, PortalUse::Listen, &notices).await.map_err(said)?;
        let setting = LinkThreadSetting {
            network: network(),
            address: Address::parse(&format!("{name}:7789"), 0).unwrap(),
            protection: LinkProtection::Plain,
            name: name.to_owned(),
            site: server.handle(),
            journal: Arc::clone(&journal),
            access: server.dr_access(),
        };
        let link = LinkThread::start(&world, &*threads, setting, notices.of("link")).await.map_err(said)?;
        server.use_link(link.handle.clone());
        let setting = WebSetting {
            network: network(),
            addresses: vec![(self.socket(), "socket")],
            tls: server.api_certificates().cloned(),
            own_user: 1000,
            site: server.handle(),
            journal: Arc::clone(&journal),
            events: DaemonEventLog::new(world.wall()),
            history: Box::new(control::history::MemoryHistory::default()),
            reports: None,
            link: Some(link.handle.clone()),
            pages: None,
        };
        let _web = WebThread::start(&world, &*threads, setting, notices.of("api")).await.map_err(said)?;
        let plan = server.plan(&text, &[], PlanOccasion::Start).await.map_err(said)?;
        // As 'serve' does: a DR group of the file may lack its other site.
        if let Err(refusal) = server.apply(plan, |_| ()).await {
            self.warnings.borrow_mut().push(refusal.to_string());
        }
        server.open();
        let warnings = Rc::clone(&self.warnings);
        world.spawn("warnings", async move {
            while let Some(notice) = reader.next().await {
                if notice.is_warning {
                    warnings.borrow_mut().push(format!("{notice:?}"));
                }
            }
        });
        loop {
            let request = server.next_request().await;
            server.answer(request).await;
        }
    }

    /// The sites are paired from the beginning; Denver connects.
    fn pair(&self, journal: &control::DaemonJournal) -> Result<(), String> {
        let said = |error: control::JournalError| error.to_string();
        if journal.own_identity().map_err(said)?.is_some()
            && !journal.paired_sites().map_err(said)?.is_empty()
        {
            return Ok(());
        }
        let other = 1 - self.number;
        let (certificate, key) = (String::new(), String::new());
        let own = OwnIdentity { site: [self.number as u8 + 1; 16], certificate, key };
        journal.put_own_identity(&own).map_err(said)?;
        let addresses = if other == 0 { vec![format!("{}:7789", SITES[other])] } else { Vec::new() };
        let paired = PairedSite {
            site: [other as u8 + 1; 16],
            certificate: [0; 32],
            name: SITES[other].to_owned(),
            is_named_by_itself: false,
            addresses,
        };
        journal.put_paired_site(&paired).map_err(said)
    }

    fn socket(&self) -> Address {
        Address::Unix(format!("/{}.sock", self.name()).into())
    }

    /// Asks the API.
    ///
    /// # Errors
    ///
    /// The server did not answer.
    ///
    /// # Panics
    ///
    /// If it neither answered nor ended within a minute and a half.
    pub async fn ask(
        &self,
        world: &World,
        (method, path): (Method, &str),
        body: Option<String>,
        key: Option<&str>,
    ) -> Result<ApiReply, String> {
        let client = ApiClient::new(self.network.host(self.name()), self.socket(), None);
        let headers: Vec<(&str, &str)> = key.into_iter().map(|key| ("idempotency-key", key)).collect();
        let what = format!("{method} {path}");
        let asked = client.send(method, path, body, &headers);
        let answered = with_deadline(world.sleep(ANSWER_WITHIN), asked).await;
        let answered = answered.unwrap_or_else(|| panic!("{}: {what} has no answer", self.name()));
        answered.map_err(|refusal| refusal.to_string())
    }

    /// Applies the site file as it is now.
    pub async fn apply(&self, world: &World, destroy: &[String]) -> Result<ApiReply, String> {
        let body = SiteBody { text: self.text(), destroy: destroy.to_vec() };
        let body = serde_json::to_string(&body).unwrap();
        self.ask(world, (Method::POST, "/v1/site/apply"), Some(body), None).await
    }

    /// Its group, if it is up and has one; of a group in several pools, all parts as one.
    pub async fn row(&self, world: &World) -> Option<DrGroupRow> {
        self.rows(world).await.into_iter().reduce(both_parts)
    }

    /// The parts of its group.
    pub async fn rows(&self, world: &World) -> Vec<DrGroupRow> {
        let asked = self.ask(world, (Method::GET, "/v1/dr/groups"), None, None).await;
        let Some(list) = asked.ok().and_then(|reply| reply.parsed::<DrGroupList>().ok()) else {
            return Vec::new();
        };
        assert!(list.damaged.is_empty(), "{list:?}");
        list.groups
    }

    pub async fn is_primary(&self, world: &World) -> bool {
        self.row(world).await.is_some_and(|row| row.role == DrRole::Primary)
    }

    /// Connects a host to the export of a volume.
    pub async fn connect(&self, world: &World, volume: &str) -> IoResult<Client> {
        let address = Address::parse(&format!("{}:10809", self.name()), 0).unwrap();
        let uri = NbdUri { address, others: Vec::new(), export: volume.to_owned(), tls: None };
        let options = ClientOptions { connect_max: Duration::from_secs(2), ..ClientOptions::default() };
        Client::connect(world, self.network.host("host"), uri, options).await
    }

    /// Reads what the pools of a site that is down have, as its server would find it.
    pub async fn kept(&self) -> KeptDrSite {
        assert!(!self.node.is_up(), "its server has the pool");
        let (tell, told) = tokio::sync::oneshot::channel();
        let drives = self.drives.clone();
        self.reader.start(|world| async move {
            let mut kept = KeptDrSite::default();
            for (name, drives) in drives {
                let drives: Vec<_> = drives.into_iter().map(|drive| drive as Rc<dyn BlockDevice>).collect();
                let opened = open(&world, &drives, OpenSetting::default()).await;
                kept.read(&opened.unwrap_or_else(|error| panic!("{name}: {error}"))).await;
            }
            assert!(tell.send(kept).is_ok(), "it is awaited");
            std::future::pending::<()>().await;
        });
        let kept = told.await.expect("it reads to its end");
        self.reader.crash();
        kept
    }

    /// Warnings of its servers, for a failure.
    pub fn warnings(&self) -> String {
        let warnings = self.warnings.borrow();
        warnings.iter().rev().take(12).rev().map(|warning| format!("{}: {warning}\n", self.name())).collect()
    }
}

impl KeptDrSite {
    /// Adds what a pool has. The pools come in the order of their volumes.
    async fn read(&mut self, pool: &Rc<Pool>) {
        let records = load_records(pool).into_iter();
        self.records.extend(records.map(|(_, record)| record.expect("records are whole")));
        for name in VOLUMES {
            let found = pool.volumes().into_iter().find(|info| info.name == name);
            let Some(info) = found else { continue };
            let device = VolumeDevice(pool.volume(VolumeKey::Id(info.volume)).unwrap());
            let read = device.read(ByteOffset(0), vec![Buffer::zeroed(VOLUME_BYTES as usize)]).await;
            self.contents.push(read.expect("no drive is damaged").remove(0).to_vec());
        }
    }

    /// By the records of its group: is it primary, and does it answer without its peer?
    pub fn is_alone(&self) -> Option<bool> {
        let states = || self.records.iter().map(|record| &record.state);
        let is_primary = !self.records.is_empty() && states().all(|state| state.role == SiteRole::Primary);
        is_primary.then(|| states().any(|state| state.is_alone))
    }
}

/// Two parts of a group as one: primary if both are, and whatever one of them lacks.
fn both_parts(one: DrGroupRow, other: DrGroupRow) -> DrGroupRow {
    // A state that calls for a person comes first, then one that is not as it should be.
    let rank = |row: &DrGroupRow| match row.state.as_str() {
        "awaiting choice" => 0,
        "streaming" | "following" => 2,
        _ => 1,
    };
    let (worse, better) = if rank(&other) < rank(&one) { (other, one) } else { (one, other) };
    let are_both = |role| worse.role == role && better.role == role;
    DrGroupRow {
        role: if are_both(DrRole::Primary) { DrRole::Primary } else { DrRole::Secondary },
        serves: worse.serves && better.serves,
        is_alone: worse.is_alone || better.is_alone,
        unconfirmed_bytes: worse.unconfirmed_bytes + better.unconfirmed_bytes,
        connected_since: worse.connected_since.clone().and(better.connected_since),
        withheld: worse.withheld.iter().cloned().chain(better.withheld).collect(),
        ..worse
    }
}
