//! TLS 1.2 and 1.3 for servers and clients, over the connections of a world: NBD's STARTTLS, HTTPS, and the link
//! between two sites.
//!
//! The cryptography provider draws keys and nonces, not the world: two runs of one seed differ in these
//! bytes. Certificates are judged by the world's wall clock at the time of the handshake.

mod certificate_end;
mod pinned;

pub use certificate_end::certificate_end;
pub use pinned::{CertificateFingerprint, PinnedIdentity, PinnedStream};

use rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    client::{Resumption, WebPkiServerVerifier},
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject},
    server::{NoServerSessionStorage, WebPkiClientVerifier},
    time_provider::TimeProvider,
};
use std::{
    fmt,
    io::{self, IoSlice},
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll},
    time::Duration,
};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio_rustls::{TlsAcceptor, TlsConnector, server};
use world::{
    Stream, WallTime, World,
    network::{ByteStream, handover::MovableStream},
    with_deadline,
};

/// Time for a rejected client to read the TLS alert.
const FAREWELL_MAX: Duration = Duration::from_secs(1);

/// A certificate or key that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{what}: {problem}")]
pub struct TlsError {
    what: &'static str,
    problem: String,
}

impl TlsError {
    fn of(what: &'static str) -> impl Fn(&dyn fmt::Display) -> Self {
        move |problem| Self { what, problem: problem.to_string() }
    }
}

/// A certificate chain and its private key, both PEM.
#[derive(Clone, Copy)]
pub struct TlsIdentity<'a> {
    /// The end-entity certificate, then the intermediate ones.
    pub certificate: &'a [u8],
    /// PKCS #8, PKCS #1 or SEC 1.
    pub key: &'a [u8],
}

impl TlsIdentity<'_> {
    fn read(self) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), TlsError> {
        let key = PrivateKeyDer::from_pem_slice(self.key);
        let key = key.map_err(|error| TlsError::of("the private key")(&error))?;
        Ok((certificates("the certificate", self.certificate)?, key))
    }
}

fn certificates(what: &'static str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let found = found.map_err(|error| TlsError::of(what)(&error))?;
    if found.is_empty() { Err(TlsError::of(what)(&"no certificate found")) } else { Ok(found) }
}

fn authorities(pem: &[u8]) -> Result<Arc<RootCertStore>, TlsError> {
    let what = "the authority's certificate";
    let mut store = RootCertStore::empty();
    for certificate in certificates(what, pem)? {
        store.add(certificate).map_err(|error| TlsError::of(what)(&error))?;
    }
    Ok(store.into())
}

/// TLS settings of a server. Clones are the same: a renewed certificate counts for all of them.
#[derive(Clone, Debug)]
pub struct ServerTls(Arc<Mutex<ServerSettings>>);

#[derive(Clone, Debug)]
struct ServerSettings {
    config: Arc<ServerConfig>,
    asks_who: bool,
}

impl ServerTls {
    /// Presents `identity`. With `clients`, PEM certificates of authorities, clients must present a
    /// certificate issued by one of them.
    ///
    /// # Errors
    ///
    /// A certificate or key cannot be used, or they do not match.
    pub fn new(identity: TlsIdentity<'_>, clients: Option<&[u8]>) -> Result<Self, TlsError> {
        let (chain, key) = identity.read()?;
        let verifier = match clients {
            None => WebPkiClientVerifier::no_client_auth(),
            Some(pem) => WebPkiClientVerifier::builder_with_provider(authorities(pem)?, provider())
                .build()
                .map_err(|error| TlsError::of("the authority's certificate")(&error))?,
        };
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .expect("the provider knows them")
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain, key)
            .map_err(|error| TlsError::of("the certificate and its key")(&error))?;
        // No resumption: every connection verifies certificates.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        let settings = ServerSettings { config: config.into(), asks_who: clients.is_some() };
        Ok(Self(Arc::new(Mutex::new(settings))))
    }

    /// True if clients must present a certificate.
    pub fn asks_who(&self) -> bool {
        self.settings().asks_who
    }

    /// Has the next handshakes use what `newer` uses now. Connections go on.
    pub fn renew(&self, newer: &Self) {
        let newer = newer.settings();
        *self.0.lock().expect("nothing panics with the lock held") = newer;
    }

    fn settings(&self) -> ServerSettings {
        self.0.lock().expect("nothing panics with the lock held").clone()
    }

    /// Performs the handshake on a connection that may still move to another thread.
    ///
    /// # Errors
    ///
    /// The client cannot be agreed with, or is not trusted, which it is told; or it has broken off.
    pub async fn accept(
        &self,
        world: &World,
        stream: MovableStream,
    ) -> io::Result<server::TlsStream<MovableStream>> {
        let mut config = (*self.settings().config).clone();
        config.time_provider = Arc::new(FixedTime(world.wall()));
        match TlsAcceptor::from(Arc::new(config)).accept(stream).into_fallible().await {
            Ok(stream) => Ok(stream),
            Err((error, stream)) => {
                with_deadline(world.sleep(FAREWELL_MAX), drain(stream)).await;
                Err(error)
            }
        }
    }
}

/// Reads what a rejected client still sends. Closing at once would reset the connection, and the client might
/// not read the alert.
async fn drain(mut stream: MovableStream) {
    if stream.shutdown().await.is_ok() {
        let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
    }
}

/// TLS settings of a client.
#[derive(Clone, Debug)]
pub struct ClientTls {
    config: Arc<ClientConfig>,
    server: ServerName<'static>,
}

impl ClientTls {
    /// Trusts a server that presents a certificate for `server` (a host name or IP address) issued by one of
    /// the PEM `authorities`; presents `identity` if asked.
    ///
    /// # Errors
    ///
    /// A certificate, key or name cannot be used.
    pub fn new(
        server: &str,
        authorities_pem: &[u8],
        identity: Option<TlsIdentity<'_>>,
    ) -> Result<Self, TlsError> {
        let what = "the authority's certificate";
        Self::trusting(server, (authorities(authorities_pem)?, what), identity)
    }

    /// Trusts a server that presents a certificate for `server` (a host name or IP address) issued by an authority that this
    /// machine trusts.
    ///
    /// # Errors
    ///
    /// The name cannot be used, or the machine trusts nobody.
    pub fn trusting_system(server: &str) -> Result<Self, TlsError> {
        let what = "the machine's authorities";
        let mut roots = RootCertStore::empty();
        let found = rustls_native_certs::load_native_certs();
        // Machines have some that are too old to be read.
        roots.add_parsable_certificates(found.certs);
        if roots.is_empty() {
            let why = found.errors.first().map_or("none is installed".to_owned(), ToString::to_string);
            return Err(TlsError::of(what)(&why));
        }
        Self::trusting(server, (roots.into(), what), None)
    }

    /// The same trust and identity, for a server of another name.
    ///
    /// # Errors
    ///
    /// The name cannot be used.
    pub fn to(&self, server: &str) -> Result<Self, TlsError> {
        Ok(Self { config: Arc::clone(&self.config), server: server_name(server)? })
    }

    fn trusting(
        server: &str,
        (roots, what): (Arc<RootCertStore>, &'static str),
        identity: Option<TlsIdentity<'_>>,
    ) -> Result<Self, TlsError> {
        let server = server_name(server)?;
        let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider())
            .build()
            .map_err(|error| TlsError::of(what)(&error))?;
        let builder = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .expect("the provider knows them")
            .with_webpki_verifier(verifier);
        let mut config = match identity {
            None => builder.with_no_client_auth(),
            Some(identity) => {
                let (chain, key) = identity.read()?;
                builder
                    .with_client_auth_cert(chain, key)
                    .map_err(|error| TlsError::of("the certificate and its key")(&error))?
            }
        };
        config.resumption = Resumption::disabled();
        Ok(Self { config: config.into(), server })
    }

    /// Performs the handshake; the connection stays on its thread.
    ///
    /// # Errors
    ///
    /// The server cannot be agreed with, or is not trusted; or it has broken off.
    pub async fn connect(&self, world: &World, stream: Stream) -> io::Result<Stream> {
        let mut config = (*self.config).clone();
        config.time_provider = Arc::new(FixedTime(world.wall()));
        let connector = TlsConnector::from(Arc::new(config));
        Ok(Box::new(EncryptedStream(connector.connect(self.server.clone(), stream).await?)))
    }
}

fn server_name(text: &str) -> Result<ServerName<'static>, TlsError> {
    ServerName::try_from(text.to_owned()).map_err(|error| TlsError::of("the server's name")(&error))
}

/// An encrypted stream, which stays on its thread.
pub struct EncryptedStream<T>(pub T);

impl<T: AsyncRead + AsyncWrite + Unpin> ByteStream for EncryptedStream<T> {}

impl<T: AsyncRead + Unpin> AsyncRead for EncryptedStream<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().0).poll_read(context, into)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for EncryptedStream<T> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().0).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().0).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().0).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().0).poll_shutdown(context)
    }
}

/// The TLS error behind `error`, if there is one.
pub fn tls_failure(error: &io::Error) -> Option<String> {
    let tls_failure = error.get_ref()?.downcast_ref::<rustls::Error>()?;
    Some(tls_failure.to_string())
}

fn provider() -> Arc<CryptoProvider> {
    ring::default_provider().into()
}

/// The time of the handshake.
#[derive(Debug)]
struct FixedTime(WallTime);

impl TimeProvider for FixedTime {
    fn current_time(&self) -> Option<UnixTime> {
        let seconds = u64::try_from(self.0.seconds).ok()?;
        Some(UnixTime::since_unix_epoch(Duration::new(seconds, self.0.nanos)))
    }
}
