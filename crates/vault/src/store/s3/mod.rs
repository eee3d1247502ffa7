//! A vault in a bucket of an S3 object store.
//!
//! Every request can be repeated: a write has the name and the bytes of before, a deletion finds nothing. So one that failed on
//! the way, or that the store was too busy for, is sent again a few times, each after a longer pause.
//!
//! Objects are written only if there is none of their name (`if-none-match`), so a key with a policy that asks for this header,
//! and lets it delete locks alone, can add to a vault and take nothing away. A store that does not know the header ignores it,
//! or says so once.

mod listing;
mod signature;

pub use signature::S3Credentials;

use super::{VaultFile, VaultFileKind, VaultStore};
use http_body_util::{BodyExt, Full};
use hyper::{Request, StatusCode, body::Bytes, client::conn::http1, header};
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use listing::{S3Page, element};
use sha2::{Digest, Sha256};
use signature::{SignedParts, encode, hex, query_text};
use std::{
    cell::{Cell, RefCell},
    io,
    rc::Rc,
    time::Duration,
};
use tls::ClientTls;
use world::{Address, IoError, IoErrorKind, IoResult, LocalFuture, Network, WallTime, World, with_deadline};

/// Attempts, the pause after the first, and the time limit of each.
const ATTEMPTS: u32 = 6;
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const ATTEMPT_MAX: Duration = Duration::from_secs(120);
/// Connections kept open.
const IDLE_MAX: usize = 8;

/// The bucket, and how to reach it.
#[derive(Clone)]
pub struct S3Settings {
    /// Of the endpoint.
    pub address: Address,
    /// The endpoint's name and port for the header `host`.
    pub host: String,
    pub tls: Option<ClientTls>,
    pub region: String,
    pub bucket: String,
    /// Start of all names, without a slash at its end; may be empty.
    pub prefix: String,
    pub credentials: S3Credentials,
}

pub struct S3Store(Rc<S3Inner>);

struct S3Inner {
    world: World,
    network: Rc<dyn Network>,
    settings: S3Settings,
    idle: RefCell<Vec<http1::SendRequest<Full<Bytes>>>>,
    /// The store said that it has no conditional writes.
    is_unconditional: Cell<bool>,
}

/// A request to the store.
#[derive(Clone)]
struct S3Request {
    method: &'static str,
    /// Name of the object below the bucket; empty for the bucket.
    key: String,
    query: Vec<(&'static str, String)>,
    range: Option<(u64, usize)>,
    body: Bytes,
    /// If there is no object of this name.
    is_for_new: bool,
}

/// The reason why a request got no answer.
enum S3Failure {
    /// It may be sent again.
    Passing(String),
    /// The store is not the one that is meant, or nobody vouches for it: nothing was sent.
    Untrusted(String),
}

impl S3Failure {
    fn passing(error: impl ToString) -> Self {
        Self::Passing(error.to_string())
    }
}

struct S3Answer {
    status: StatusCode,
    body: Bytes,
}

impl S3Store {
    pub fn new(world: &World, network: Rc<dyn Network>, settings: S3Settings) -> Self {
        Self(Rc::new(S3Inner {
            world: world.clone(),
            network,
            settings,
            idle: RefCell::default(),
            is_unconditional: Cell::default(),
        }))
    }

    fn request(&self, method: &'static str, key: String) -> S3Request {
        S3Request { method, key, query: Vec::new(), range: None, body: Bytes::new(), is_for_new: false }
    }

    fn key(&self, path: &str) -> String {
        match self.0.settings.prefix.as_str() {
            "" => path.to_owned(),
            prefix => format!("{prefix}/{path}"),
        }
    }
}

impl S3Inner {
    /// Sends a request until it is answered. An answer of success, or `NotFound`, or why not.
    async fn send(&self, request: S3Request) -> IoResult<S3Answer> {
        let what = format!("{} s3://{}/{}", request.method, self.settings.bucket, request.key);
        let mut pause = FIRST_PAUSE;
        let mut attempt = 0;
        loop {
            attempt += 1;
            let sent = with_deadline(self.world.sleep(ATTEMPT_MAX), self.send_once(&request)).await;
            let late = || Err(S3Failure::Passing(format!("no answer within {} s", ATTEMPT_MAX.as_secs())));
            let sent = sent.unwrap_or_else(late);
            let why = match sent {
                Ok(answer) if answer.status.is_success() => return Ok(answer),
                Ok(answer) => {
                    let story = format!("{what}: {}", answer.story());
                    match answer.status.as_u16() {
                        404 => return Err(IoError::new(IoErrorKind::NotFound, story)),
                        412 => return Err(IoError::new(IoErrorKind::AlreadyExists, story)),
                        501 if request.is_for_new && !self.is_unconditional.replace(true) => story,
                        409 if request.is_for_new => story,
                        416 => return Err(IoError::new(IoErrorKind::OutOfRange, story)),
                        401 | 403 => return Err(IoError::new(IoErrorKind::PermissionDenied, story)),
                        507 => return Err(IoError::new(IoErrorKind::NoSpace, story)),
                        429 | 500.. => story,
                        _ => return Err(IoError::new(IoErrorKind::Other, story)),
                    }
                }
                Err(S3Failure::Untrusted(why)) => {
                    return Err(IoError::new(IoErrorKind::PermissionDenied, format!("{what}: {why}")));
                }
                Err(S3Failure::Passing(why)) => format!("{what}: {why}"),
            };
            if attempt >= ATTEMPTS {
                return Err(IoError::new(IoErrorKind::Disconnected, why));
            }
            self.world.sleep(pause).await;
            pause *= 2;
        }
    }

    async fn send_once(&self, request: &S3Request) -> Result<S3Answer, S3Failure> {
        let mut sender = self.connection().await?;
        let signed = self.signed(request);
        let response = sender.send_request(signed).await.map_err(S3Failure::passing)?;
        let status = response.status();
        let body = response.into_body().collect().await.map_err(S3Failure::passing)?.to_bytes();
        let mut idle = self.idle.borrow_mut();
        if idle.len() < IDLE_MAX && !sender.is_closed() {
            idle.push(sender);
        }
        Ok(S3Answer { status, body })
    }

    /// A connection that was used before, or a new one.
    async fn connection(&self) -> Result<http1::SendRequest<Full<Bytes>>, S3Failure> {
        loop {
            let idle = self.idle.borrow_mut().pop();
            let Some(mut idle) = idle else { break };
            if idle.ready().await.is_ok() {
                return Ok(idle);
            }
        }
        let mut stream = self.network.connect(&self.settings.address).await.map_err(S3Failure::passing)?;
        if let Some(tls) = &self.settings.tls {
            stream = tls.connect(&self.world, stream).await.map_err(|error| self.tls_failure(&error))?;
        }
        let (sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(S3Failure::passing)?;
        self.world.spawn("object store", async move {
            // The request over it knows of its end.
            let _ = connection.await;
        });
        Ok(sender)
    }

    /// A certificate that is not trusted is so the next time, too.
    fn tls_failure(&self, error: &io::Error) -> S3Failure {
        match error.kind() {
            io::ErrorKind::InvalidData => S3Failure::Untrusted(format!(
                "the TLS of {} is refused: {error}; the authorities of the machine count, or those in AWS_CA_BUNDLE",
                self.settings.host
            )),
            _ => S3Failure::Passing(format!("no TLS: {error}")),
        }
    }

    fn signed(&self, request: &S3Request) -> Request<Full<Bytes>> {
        let settings = &self.settings;
        let path = match request.key.as_str() {
            "" => format!("/{}", encode(&settings.bucket, true)),
            key => format!("/{}/{}", encode(&settings.bucket, true), encode(key, true)),
        };
        let now = Timestamp::from_second(self.world.wall().seconds).unwrap_or(Timestamp::UNIX_EPOCH);
        let time = now.strftime("%Y%m%dT%H%M%SZ").to_string();
        let body_sum = hex(&Sha256::digest(&request.body));
        let mut headers = vec![
            ("host", settings.host.clone()),
            ("x-amz-content-sha256", body_sum.clone()),
            ("x-amz-date", time.clone()),
        ];
        if let Some((at, length)) = request.range {
            headers.push(("range", format!("bytes={at}-{}", at + (length as u64).saturating_sub(1))));
        }
        if request.is_for_new && !self.is_unconditional.get() {
            headers.push(("if-none-match", "*".to_owned()));
        }
        if let Some(token) = &settings.credentials.session_token {
            headers.push(("x-amz-security-token", token.clone()));
        }
        let parts = SignedParts {
            method: request.method,
            path: &path,
            query: &request.query,
            headers: &headers,
            body_sum: &body_sum,
            time: &time,
            region: &settings.region,
        };
        let authorization = parts.authorization(&settings.credentials);
        let uri = match request.query.is_empty() {
            true => path,
            false => format!("{path}?{}", query_text(&request.query)),
        };
        let mut built = Request::builder().method(request.method).uri(uri);
        for (name, value) in &headers {
            built = built.header(*name, value);
        }
        let built = built.header(header::AUTHORIZATION, authorization);
        built.body(Full::new(request.body.clone())).expect("names are encoded")
    }
}

impl S3Answer {
    /// The store's message, or its status.
    fn story(&self) -> String {
        let text = String::from_utf8_lossy(&self.body);
        match (element(&text, "Code"), element(&text, "Message")) {
            (Some(code), Some(message)) => format!("{code}: {message}"),
            _ => self.status.to_string(),
        }
    }
}

impl VaultStore for S3Store {
    fn describe(&self) -> String {
        let S3Settings { bucket, prefix, .. } = &self.0.settings;
        match prefix.as_str() {
            "" => format!("s3://{bucket}"),
            prefix => format!("s3://{bucket}/{prefix}"),
        }
    }

    /// Buckets have no folders; whether there is a bucket shows.
    fn prepare(&self) -> LocalFuture<IoResult<()>> {
        let listed = self.list(VaultFileKind::Snapshot);
        Box::pin(async move { listed.await.map(drop) })
    }

    /// An object is there as a whole, or not.
    fn sweep(&self, _: WallTime) -> LocalFuture<IoResult<()>> {
        Box::pin(async { Ok(()) })
    }

    fn list(&self, kind: VaultFileKind) -> LocalFuture<IoResult<Vec<VaultFile>>> {
        let (inner, prefix) = (Rc::clone(&self.0), self.key(&format!("{}/", kind.folder())));
        let request = self.request("GET", String::new());
        Box::pin(async move {
            let (mut files, mut token) = (Vec::new(), None);
            loop {
                let mut query = vec![("list-type", "2".to_owned()), ("prefix", prefix.clone())];
                query.extend(token.map(|token| ("continuation-token", token)));
                let answer = inner.send(S3Request { query, ..request.clone() }).await?;
                let page = str::from_utf8(&answer.body).ok().and_then(S3Page::decode);
                let damaged =
                    || IoError::new(IoErrorKind::Damaged, format!("listing {prefix}: it is no list"));
                let page = page.ok_or_else(damaged)?;
                files.extend(page.files);
                token = page.token;
                if token.is_none() {
                    files.sort();
                    return Ok(files);
                }
            }
        })
    }

    fn read(&self, kind: VaultFileKind, name: &str, bytes_max: u64) -> LocalFuture<IoResult<Vec<u8>>> {
        let (inner, request) = (Rc::clone(&self.0), self.request("GET", self.key(&kind.path(name))));
        Box::pin(async move {
            let key = request.key.clone();
            let answer = inner.send(request).await?;
            if answer.body.len() as u64 > bytes_max {
                let story = format!("reading {key}: it has more than {bytes_max} bytes");
                return Err(IoError::new(IoErrorKind::Damaged, story));
            }
            Ok(answer.body.to_vec())
        })
    }

    fn read_range(
        &self,
        kind: VaultFileKind,
        name: &str,
        (at, length): (u64, usize),
    ) -> LocalFuture<IoResult<Vec<u8>>> {
        let (inner, request) = (Rc::clone(&self.0), self.request("GET", self.key(&kind.path(name))));
        Box::pin(async move {
            let key = request.key.clone();
            let answer = inner.send(S3Request { range: Some((at, length)), ..request }).await?;
            if answer.body.len() != length {
                let story = format!("reading {key}: {} bytes at {at} instead of {length}", answer.body.len());
                return Err(IoError::new(IoErrorKind::OutOfRange, story));
            }
            Ok(answer.body.to_vec())
        })
    }

    fn write(&self, kind: VaultFileKind, name: &str, bytes: Vec<u8>) -> LocalFuture<IoResult<()>> {
        let (inner, request) = (Rc::clone(&self.0), self.request("PUT", self.key(&kind.path(name))));
        Box::pin(async move {
            let body = Bytes::from(bytes);
            let written =
                inner.send(S3Request { body: body.clone(), is_for_new: true, ..request.clone() }).await;
            match written {
                // Its name is the sum of its content: an earlier attempt wrote it.
                Err(error) if error.kind() == IoErrorKind::AlreadyExists && kind != VaultFileKind::Config => {
                    Ok(())
                }
                Err(error) if error.kind() == IoErrorKind::AlreadyExists => {
                    let there = inner.send(S3Request { method: "GET", ..request }).await?;
                    if there.body == body { Ok(()) } else { Err(error) }
                }
                written => written.map(drop),
            }
        })
    }

    fn delete(&self, kind: VaultFileKind, name: &str) -> LocalFuture<IoResult<()>> {
        let (inner, request) = (Rc::clone(&self.0), self.request("DELETE", self.key(&kind.path(name))));
        Box::pin(async move { inner.send(request).await.map(drop) })
    }
}
