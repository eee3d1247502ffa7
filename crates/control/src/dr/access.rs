//! Needs of the groups of all pools of their site: its identity, and the way to witnesses.

use super::merge_turns::MergeTurns;
use array::format::{GroupId, SiteId};
use replication::{
    group_record::GroupSettings,
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
    rc::Rc,
    sync::{Arc, OnceLock},
};
use world::{Address, LocalFuture, Network, World};

/// Makes the network on the thread of a pool.
pub type SharedNetworkMaker = Arc<dyn Fn() -> Rc<dyn Network> + Send + Sync>;

/// The way to witnesses.
#[derive(Clone)]
pub struct WitnessAccess {
    pub network: SharedNetworkMaker,
    /// The secret that the sites share with their witnesses.
    pub secret: Option<WitnessSecret>,
}

/// The site for the groups of all pools. Known once the link to other sites was started.
#[derive(Clone, Default)]
pub struct DrAccess(Arc<DrAccessState>);

#[derive(Default)]
struct DrAccessState {
    site: OnceLock<SiteId>,
    witness: OnceLock<WitnessAccess>,
    merge_turns: MergeTurns,
}

impl DrAccess {
    /// Names this site. It has one name for as long as the process runs.
    pub(crate) fn set_site(&self, site: SiteId) {
        assert_eq!(*self.0.site.get_or_init(|| site), site, "a site keeps its identity");
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
        let addresses = auto.witness.iter().map(|address| Address::parse(address, WITNESS_PORT));
        let addresses: Vec<Address> =
            addresses.collect::<Result<_, _>>().map_err(|error| error.to_string())?;
        // Without an identity nothing was paired: the witness knows no such site, and gives it nothing.
        let site = self.0.site.get().copied().unwrap_or(SiteId(group.0));
        let store =
            LateWitness { world: world.clone(), access: self.clone(), addresses, client: RefCell::default() };
        Ok(Some(LeaseKeeper::new(world, Rc::new(store), group, (site, settings.peer))))
    }
}

/// A witness that is reached once the link was started.
struct LateWitness {
    world: World,
    access: DrAccess,
    addresses: Vec<Address>,
    client: RefCell<Option<WitnessClient>>,
}

impl LateWitness {
    fn client(&self) -> Result<WitnessClient, WitnessSilence> {
        if let Some(client) = &*self.client.borrow() {
            return Ok(client.clone());
        }
        let access = self.access.0.witness.get().ok_or_else(|| WitnessSilence {
            address: self.addresses[0].to_string(),
            why: "the link to other sites was not started; see [replication] listen".to_owned(),
        })?;
        let network = (access.network)();
        let client = WitnessClient::new(&self.world, network, self.addresses.clone(), access.secret.clone());
        *self.client.borrow_mut() = Some(client.clone());
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
