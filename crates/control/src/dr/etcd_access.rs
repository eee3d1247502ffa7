//! The way to the members of an etcd cluster: in the clear or over TLS, and the user that the site is there.
//!
//! Invariants:
//!
//! 1. A password is sent over TLS alone, and shown nowhere.
//! 2. A connection has the certificates of the site file that was applied last before it was made.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};
use tls::{ClientTls, TlsError};
use world::{Address, Network, Stream, World};

/// A user of an etcd cluster.
#[derive(Clone, PartialEq, Eq)]
pub struct EtcdUser {
    pub name: String,
    pub password: String,
}

impl fmt::Debug for EtcdUser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdUser").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Trust and identity towards witnesses over TLS, as the site file has them; `None` if it leaves that to the machine, whose
/// authorities were not read yet.
#[derive(Clone, Default)]
pub(crate) struct WitnessTls(Arc<Mutex<Option<ClientTls>>>);

impl WitnessTls {
    pub fn set(&self, tls: Option<ClientTls>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = tls;
    }

    fn to(&self, server: &str) -> Result<ClientTls, TlsError> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = &*known {
            return known.to(server);
        }
        // Reading the machine's authorities takes long for the thread of a pool, and is done once for each file.
        let of_machine = ClientTls::trusting_system(server)?;
        *known = Some(of_machine.clone());
        Ok(of_machine)
    }
}

/// A cluster as a site reaches it.
pub(super) struct EtcdCluster {
    /// Of members, which are tried in this order.
    pub members: Vec<Address>,
    /// `None` if they are spoken to in the clear.
    pub tls: Option<WitnessTls>,
    pub user: Option<EtcdUser>,
}

impl EtcdCluster {
    /// The beginning of an address of a member.
    pub fn scheme(&self) -> &'static str {
        if self.tls.is_some() { ETCD_TLS_SCHEME } else { ETCD_SCHEME }
    }

    /// A connection to a member.
    ///
    /// # Errors
    ///
    /// The member is not reached, or not trusted, or a password would be sent in the clear; in words.
    pub async fn connect(
        &self,
        world: &World,
        network: &dyn Network,
        member: &Address,
    ) -> Result<Stream, String> {
        if self.user.is_some() && self.tls.is_none() {
            return Err(format!("a password is sent over TLS alone: name its members {ETCD_TLS_SCHEME}HOST"));
        }
        let stream = network.connect(member).await.map_err(|error| error.to_string())?;
        let Some(tls) = &self.tls else { return Ok(stream) };
        let Address::Tcp { host, .. } = member else { return Err(format!("{member} is no host")) };
        let tls = tls.to(host).map_err(|error| error.to_string())?;
        tls.connect(world, stream).await.map_err(|error| format!("TLS: {error}"))
    }
}

/// Port of a member of a cluster.
pub(super) const ETCD_PORT: u16 = 2379;
/// Beginnings of its address.
pub(super) const ETCD_SCHEME: &str = "etcd://";
pub(super) const ETCD_TLS_SCHEME: &str = "etcds://";
