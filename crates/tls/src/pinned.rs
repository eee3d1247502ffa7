//! TLS 1.3 between two parties that know each other's certificate: no authority, no names.
//!
//! Each side has a certificate that it made itself, and proves in the handshake that it holds the key. The handshake
//! takes any certificate: the caller compares its fingerprint with the one it knows.

use super::{FixedTime, TlsError, TlsIdentity, provider};
use crate::EncryptedStream;
use ring::digest::{SHA256, digest};
use rustls::{
    ClientConfig, DigitallySignedStruct, DistinguishedName, Error, ServerConfig, SignatureScheme,
    client::{
        Resumption,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::verify_tls13_signature,
    pki_types::{CertificateDer, ServerName, UnixTime},
    server::{
        NoServerSessionStorage,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
    version::TLS13,
};
use std::{fmt, io, sync::Arc};
use tokio::io::AsyncWriteExt;
use tokio_rustls::{TlsAcceptor, TlsConnector};
use world::{Stream, World};

/// Label of the exported key (RFC 5705) that binds what is said over a connection to it.
const BINDING_LABEL: &[u8] = b"EXPORTER-spindle-channel-binding";

/// SHA-256 of a certificate.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CertificateFingerprint(pub [u8; 32]);

impl fmt::Display for CertificateFingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for CertificateFingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CertificateFingerprint({self})")
    }
}

/// The certificate and key of this side, with the settings for both ends of connections. Clones share them.
#[derive(Clone)]
pub struct PinnedIdentity {
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
    fingerprint: CertificateFingerprint,
}

/// A stream to a party that holds the key of a certificate.
pub struct PinnedStream {
    pub stream: Stream,
    /// Of the other side's certificate.
    pub peer: CertificateFingerprint,
    /// The same at both ends of this connection, and at no other.
    pub binding: [u8; 32],
}

impl fmt::Debug for PinnedIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PinnedIdentity({})", self.fingerprint)
    }
}

impl PinnedIdentity {
    /// Makes a key (Ed25519) and a certificate for it. Both are PEM: the certificate, then the key (PKCS #8).
    ///
    /// # Errors
    ///
    /// The system has no randomness.
    pub fn generate() -> Result<(String, String), TlsError> {
        let fail = |error: rcgen::Error| TlsError::of("a new certificate")(&error);
        let mut params = rcgen::CertificateParams::default();
        params.distinguished_name.push(rcgen::DnType::CommonName, "Spindle site");
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).map_err(fail)?;
        let certificate = params.self_signed(&key).map_err(fail)?;
        Ok((certificate.pem(), key.serialize_pem()))
    }

    /// Uses what [`PinnedIdentity::generate`] has made.
    ///
    /// # Errors
    ///
    /// Certificate or key cannot be used, or they do not match.
    pub fn new(identity: TlsIdentity<'_>) -> Result<Self, TlsError> {
        let fail = |error: Error| TlsError::of("the certificate and its key")(&error);
        let (chain, key) = identity.read()?;
        let fingerprint = fingerprint(&chain[0]);
        let mut server = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])
            .expect("the provider knows it")
            .with_client_cert_verifier(Arc::new(AnyCertificate))
            .with_single_cert(chain.clone(), key.clone_key())
            .map_err(fail)?;
        server.session_storage = Arc::new(NoServerSessionStorage {});
        server.send_tls13_tickets = 0;
        let mut client = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])
            .expect("the provider knows it")
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyCertificate))
            .with_client_auth_cert(chain, key)
            .map_err(fail)?;
        client.resumption = Resumption::disabled();
        client.enable_sni = false;
        Ok(Self { server: server.into(), client: client.into(), fingerprint })
    }

    pub fn fingerprint(&self) -> CertificateFingerprint {
        self.fingerprint
    }

    /// Performs the handshake as the side that connected. The caller compares the fingerprint, and limits the time.
    ///
    /// # Errors
    ///
    /// The other side cannot be agreed with, does not hold the key of its certificate, or has broken off.
    pub async fn connect(&self, world: &World, stream: Stream) -> io::Result<PinnedStream> {
        let mut config = (*self.client).clone();
        config.time_provider = Arc::new(FixedTime(world.wall()));
        let name = ServerName::try_from("site").expect("it is a name");
        let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
        let (peer, binding) = authenticated(&stream.get_ref().1.peer_certificates(), |output| {
            stream.get_ref().1.export_keying_material(output, BINDING_LABEL, None)
        })?;
        Ok(PinnedStream { stream: Box::new(EncryptedStream(stream)), peer, binding })
    }

    /// Performs the handshake as the side that accepted. The caller compares the fingerprint, and limits the time.
    ///
    /// # Errors
    ///
    /// As [`PinnedIdentity::connect`].
    pub async fn accept(&self, world: &World, stream: Stream) -> io::Result<PinnedStream> {
        let mut config = (*self.server).clone();
        config.time_provider = Arc::new(FixedTime(world.wall()));
        let accepted = TlsAcceptor::from(Arc::new(config)).accept(stream).into_fallible().await;
        let stream = match accepted {
            Ok(stream) => stream,
            Err((error, mut stream)) => {
                let _ = stream.shutdown().await;
                return Err(error);
            }
        };
        let (peer, binding) = authenticated(&stream.get_ref().1.peer_certificates(), |output| {
            stream.get_ref().1.export_keying_material(output, BINDING_LABEL, None)
        })?;
        Ok(PinnedStream { stream: Box::new(EncryptedStream(stream)), peer, binding })
    }
}

/// The certificate whose key the other side of a handshake has, and the connection's binding.
fn authenticated(
    certificates: &Option<&[CertificateDer<'_>]>,
    export: impl FnOnce([u8; 32]) -> Result<[u8; 32], Error>,
) -> io::Result<(CertificateFingerprint, [u8; 32])> {
    let first = certificates.and_then(|chain| chain.first());
    let first = first.ok_or_else(|| io::Error::other("the other side has no certificate"))?;
    let binding = export([0; 32]).map_err(io::Error::other)?;
    Ok((fingerprint(first), binding))
}

fn fingerprint(certificate: &CertificateDer<'_>) -> CertificateFingerprint {
    let hash = digest(&SHA256, certificate);
    CertificateFingerprint(hash.as_ref().try_into().expect("SHA-256 has 32 bytes"))
}

/// Takes any certificate whose key the other side holds.
#[derive(Debug)]
struct AnyCertificate;

impl AnyCertificate {
    fn verify(
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = provider().signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, &algorithms)
    }

    fn schemes() -> Vec<SignatureScheme> {
        provider().signature_verification_algorithms.supported_schemes()
    }
}

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("TLS 1.2 is not used".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Self::verify(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        Self::schemes()
    }
}

impl ClientCertVerifier for AnyCertificate {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("TLS 1.2 is not used".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Self::verify(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        Self::schemes()
    }
}
