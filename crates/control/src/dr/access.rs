//! Needs of the groups of all pools of their site: its identity, the way to witnesses, the rows that came with groups, the
//! clients at other sites, and the sets that follow groups.

pub use super::etcd_access::EtcdUser;
use super::{
    etcd_access::{ETCD_PORT, ETCD_SCHEME, ETCD_TLS_SCHEME, EtcdCluster, WitnessTls},
    etcd_witness::EtcdWitness,
    joint_readers::JointReaders,
    kept_services::KeptServices,
    merge_turns::MergeTurns,
    remembered_clients::ClientMemory,
    set_memory::SetMemory,
};
use array::format::{GroupId, SiteId};
use replication::{
    group_record::GroupSettings,
    joint_group::{JointGroup, JointPart},
    witness::{
        client::{WITNESS_PORT, WitnessClient, WitnessReply, WitnessSilence, WitnessStore},
        group::WitnessRequest,
        keeper::LeaseKeeper,
        ledger::WitnessView,
        session::WitnessSecret,
    },
};
use std::{
    cell::RefCell,
    collections::BTreeMap,
    rc::Rc,
    sync::{Arc, Mutex, OnceLock, PoisonError},
};
use tokio::sync::Notify;
use world::{Address, LocalFuture, Network, World};

/// Makes the network on the thread of a pool.
pub type SharedNetworkMaker = Arc<dyn Fn() -> Rc<dyn Network> + Send + Sync>;

/// The way to witnesses.
#[derive(Clone)]
pub struct WitnessAccess {
    pub network: SharedNetworkMaker,
    /// The secret that the sites share with their witnesses.
    pub secret: Option<WitnessSecret>,
    /// The user that they are in an etcd cluster.
    pub user: Option<EtcdUser>,
}

/// The site for the groups of all pools. Known once the link to other sites was started.
#[derive(Clone, Default)]
pub struct DrAccess(Arc<DrAccessState>);

#[derive(Default)]
struct DrAccessState {
    site: OnceLock<SiteId>,
    witness: OnceLock<WitnessAccess>,
    witness_tls: WitnessTls,
    services: KeptServices,
    clients: ClientMemory,
    sets: SetMemory,
    merge_turns: MergeTurns,
    /// Groups with volumes in several pools.
    joints: Mutex<BTreeMap<GroupId, Arc<JointGroup>>>,
    joint_readers: Mutex<BTreeMap<GroupId, Arc<JointReaders>>>,
    /// A view of such a group is to be made, or was made.
    readers_changed: Arc<Notify>,
}

impl DrAccess {
    /// Names this site. It has one name for as long as the process runs.
    pub(crate) fn set_site(&self, site: SiteId) {
        assert_eq!(*self.0.site.get_or_init(|| site), site, "a site keeps its identity");
    }

    /// The rows that came with groups.
    pub(crate) fn services(&self) -> &KeptServices {
        &self.0.services
    }

    /// The clients of groups at their other sites.
    pub(crate) fn clients(&self) -> &ClientMemory {
        &self.0.clients
    }

    /// Sets of backups that follow groups.
    pub(crate) fn sets(&self) -> &SetMemory {
        &self.0.sets
    }

    /// The group that a part is of.
    pub(super) fn joint(&self, part: &JointPart) -> Arc<JointGroup> {
        let mut joints = self.0.joints.lock().unwrap_or_else(PoisonError::into_inner);
        let new = || JointGroup::new(part.parts.into());
        Arc::clone(joints.entry(part.whole).or_insert_with(new))
    }

    /// The readers of the group that a part is of.
    pub(super) fn joint_readers(&self, part: &JointPart) -> Arc<JointReaders> {
        let mut readers = self.0.joint_readers.lock().unwrap_or_else(PoisonError::into_inner);
        let new = || JointReaders::new(part.whole, part.parts.into(), &self.0.readers_changed);
        Arc::clone(readers.entry(part.whole).or_insert_with(new))
    }

    pub(super) fn readers_changed(&self) -> &Arc<Notify> {
        &self.0.readers_changed
    }

    /// The turns of the groups that merge.
    pub(super) fn merge_turns(&self) -> &MergeTurns {
        &self.0.merge_turns
    }

    /// Opens the way to witnesses.
    pub fn set_witness(&self, access: WitnessAccess) {
        // A second link of one process is of the same file.
        let _ = self.0.witness.set(access);
    }

    /// Trust and identity towards witnesses over TLS.
    pub(crate) fn witness_tls(&self) -> &WitnessTls {
        &self.0.witness_tls
    }

    /// The right of a group that has a witness.
    ///
    /// # Errors
    ///
    /// An address is none.
    pub(super) fn keeper(
        &self,
        world: &World,
        group: GroupId,
        settings: &GroupSettings,
    ) -> Result<Option<Rc<LeaseKeeper>>, String> {
        let Some(auto) = &settings.auto else { return Ok(None) };
        let (kind, addresses) = WitnessKind::parse(&auto.witness)?;
        // Without an identity nothing was paired: the witness knows no such site, and gives it nothing.
        let site = self.0.site.get().copied().unwrap_or(SiteId(group.0));
        let (world_of, access) = (world.clone(), self.clone());
        let store = LateWitness { world: world_of, access, kind, addresses, client: RefCell::default() };
        let (store, sites) = (Rc::new(store), (site, settings.peer));
        Ok(Some(match &settings.joint {
            // One right for all parts.
            Some(part) => {
                let right = Arc::clone(self.joint(part).right());
                LeaseKeeper::of_part(world, store, part.whole, sites, (right, part.index.into()))
            }
            None => LeaseKeeper::new(world, store, group, sites),
        }))
    }
}

/// The program that is a witness.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WitnessKind {
    /// `spindle witness`.
    BuiltIn,
    /// A cluster; an address is of a member.
    Etcd,
    /// The same over TLS.
    EtcdTls,
}

/// The next step for addresses that are none of a witness.
pub(crate) const WITNESS_ADDRESSES: &str = "say HOST or HOST:PORT, or etcd://HOST:PORT or etcds://HOST:PORT";

impl WitnessKind {
    /// The kind that addresses are of: HOST or HOST:PORT, or the same behind `etcd://` or `etcds://`.
    ///
    /// # Errors
    ///
    /// One is no address, or they are of several kinds.
    pub fn parse(addresses: &[String]) -> Result<(Self, Vec<Address>), String> {
        let (mut kinds, mut parsed) = (Vec::new(), Vec::new());
        for address in addresses {
            let (kind, port, host) = if let Some(host) = address.strip_prefix(ETCD_SCHEME) {
                (Self::Etcd, ETCD_PORT, host)
            } else if let Some(host) = address.strip_prefix(ETCD_TLS_SCHEME) {
                (Self::EtcdTls, ETCD_PORT, host)
            } else {
                (Self::BuiltIn, WITNESS_PORT, address.as_str())
            };
            kinds.push(kind);
            let host = host.trim_end_matches('/');
            parsed.push(Address::parse(host, port).map_err(|error| error.to_string())?);
        }
        match kinds.first() {
            Some(kind) if kinds.iter().all(|other| other == kind) => Ok((*kind, parsed)),
            Some(_) => Err("a group has one witness, and its addresses are of several kinds".to_owned()),
            None => Err("it has no address".to_owned()),
        }
    }
}

/// A witness that is reached once the link was started.
struct LateWitness {
    world: World,
    access: DrAccess,
    kind: WitnessKind,
    addresses: Vec<Address>,
    client: RefCell<Option<Rc<dyn WitnessStore>>>,
}

impl LateWitness {
    fn client(&self) -> Result<Rc<dyn WitnessStore>, WitnessSilence> {
        if let Some(client) = &*self.client.borrow() {
            return Ok(Rc::clone(client));
        }
        let access = self.access.0.witness.get().ok_or_else(|| WitnessSilence {
            address: self.addresses[0].to_string(),
            why: "the link to other sites was not started; see [replication] listen".to_owned(),
        })?;
        let network = (access.network)();
        let addresses = self.addresses.clone();
        let client: Rc<dyn WitnessStore> = match self.kind {
            WitnessKind::BuiltIn => {
                Rc::new(WitnessClient::new(&self.world, network, addresses, access.secret.clone()))
            }
            WitnessKind::Etcd | WitnessKind::EtcdTls => {
                let tls = (self.kind == WitnessKind::EtcdTls).then(|| self.access.witness_tls().clone());
                let cluster = EtcdCluster { members: addresses, tls, user: access.user.clone() };
                Rc::new(EtcdWitness::new(&self.world, network, cluster))
            }
        };
        *self.client.borrow_mut() = Some(Rc::clone(&client));
        Ok(client)
    }
}

impl WitnessStore for LateWitness {
    fn ask(&self, request: WitnessRequest) -> LocalFuture<Result<WitnessReply, WitnessSilence>> {
        let client = self.client();
        Box::pin(async move { client?.ask(request).await })
    }

    fn list(&self) -> LocalFuture<Result<Vec<WitnessView>, WitnessSilence>> {
        let client = self.client();
        Box::pin(async move { client?.list().await })
    }
}
