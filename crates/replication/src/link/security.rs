//! TLS of the link's connections, and who is at the other end.

use super::{
    PairedSites,
    connection::{LinkReader, LinkWriter, halves},
    hello::HelloFailure,
    pairing::{PairingChannel, PairingRole},
    refusal,
};
use crate::frame::{RefusalCode, RefusalFrame};
use array::format::SiteId;
use tls::{CertificateFingerprint, PinnedIdentity};
use world::{Stream, World};

/// Protection of connections.
#[derive(Clone, Debug)]
pub enum LinkSecurity {
    /// No protection at all: anyone can read, change and begin sessions. For tests, and for loopback.
    Plain,
    /// TLS 1.3 both ways, between paired sites only.
    Tls { identity: PinnedIdentity, paired: PairedSites },
}

/// The other end of a TLS connection.
#[derive(Clone, Copy)]
pub(super) struct AuthenticatedPeer {
    pub certificate: CertificateFingerprint,
    pub channel: PairingChannel,
}

/// A connection before its first frame.
pub(super) struct SecuredConnection {
    pub halves: (LinkReader, LinkWriter),
    /// None over plain TCP.
    pub peer: Option<AuthenticatedPeer>,
}

impl LinkSecurity {
    /// Protects a stream. `role`: the side that connects is the one that may present a token.
    pub(super) async fn secure(
        &self,
        world: &World,
        stream: Stream,
        role: PairingRole,
    ) -> Result<SecuredConnection, HelloFailure> {
        let Self::Tls { identity, .. } = self else {
            return Ok(SecuredConnection { halves: halves(stream), peer: None });
        };
        let own = identity.fingerprint();
        let pinned = match role {
            PairingRole::Presenter => identity.connect(world, stream).await,
            PairingRole::Maker => identity.accept(world, stream).await,
        };
        let pinned = pinned.map_err(|error| HelloFailure::Connection(format!("TLS: {error}")))?;
        let certificate = pinned.peer;
        let (presenter, maker) = match role {
            PairingRole::Presenter => (own, certificate),
            PairingRole::Maker => (certificate, own),
        };
        let channel = PairingChannel { binding: pinned.binding, presenter, maker };
        let peer = AuthenticatedPeer { certificate, channel };
        Ok(SecuredConnection { halves: halves(pinned.stream), peer: Some(peer) })
    }

    /// Checks that the other end is the paired site that it says it is.
    pub(super) fn check(&self, peer: Option<&AuthenticatedPeer>, site: SiteId) -> Result<(), RefusalFrame> {
        let Self::Tls { paired, .. } = self else { return Ok(()) };
        let certificate = peer.expect("every connection has TLS").certificate;
        match paired.certificate_of(site) {
            Some(known) if known == certificate => Ok(()),
            Some(_) => {
                let text = "the certificate is not the one that the sites were paired with";
                Err(refusal(RefusalCode::NotPaired, text))
            }
            None => Err(refusal(RefusalCode::NotPaired, "the sites are not paired")),
        }
    }

    /// Checks the certificate before anything is said: that of `site`, or of any paired site.
    pub(super) fn check_certificate(
        &self,
        peer: Option<&AuthenticatedPeer>,
        site: Option<SiteId>,
    ) -> Result<(), RefusalFrame> {
        let Self::Tls { paired, .. } = self else { return Ok(()) };
        let certificate = peer.expect("every connection has TLS").certificate;
        let is_known = paired.all().into_iter().any(|(_, known)| known == certificate);
        match site {
            Some(site) => self.check(peer, site),
            None if is_known => Ok(()),
            None => Err(refusal(RefusalCode::NotPaired, "the sites are not paired")),
        }
    }
}
