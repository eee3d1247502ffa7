//! A server, asked over its API.

use array::format::VolumeId;
use control::web::{
    client::{ApiClient, ApiReply, Method},
    rows::PoolRow,
};
use report::Refusal;
use serde::{Serialize, de::DeserializeOwned};
use serving::uuid::random_uuid;
use std::{rc::Rc, time::Duration};
use tls::ClientTls;
use world::{Address, World, real::Sockets};

/// Between two requests for a change that takes long.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// Status of an answer by a server that starts or ends, or for a pool that is stopped.
const UNAVAILABLE: u16 = 503;

/// The way to one server. Each request has a connection of its own.
pub struct ServerConnection {
    client: ApiClient,
    address: Address,
    world: World,
}

impl ServerConnection {
    pub fn new(world: &World, address: Address, token: Option<String>) -> Self {
        let client = ApiClient::new(Rc::new(Sockets), address.clone(), token);
        Self { client, address, world: world.clone() }
    }

    pub fn address(&self) -> &Address {
        &self.address
    }

    /// The same over TLS.
    pub fn encrypted(self, tls: ClientTls) -> Self {
        let client = self.client.encrypted(tls, &self.world);
        Self { client, ..self }
    }

    /// True if something answers there, whatever it says.
    pub async fn answers(&self) -> bool {
        self.client.send(Method::GET, "/healthz", None, &[]).await.is_ok()
    }

    /// Pools of the server that this caller may see.
    ///
    /// # Errors
    ///
    /// It does not answer, or refuses this caller.
    pub async fn pools(&self) -> Result<Vec<PoolRow>, Refusal> {
        self.client.get("/v1/pools").await
    }

    /// Gets a resource.
    ///
    /// # Errors
    ///
    /// The server's problem, or that it did not answer.
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Refusal> {
        self.client.get(path).await
    }

    /// Gets a resource of lines, and passes each on as it comes.
    ///
    /// # Errors
    ///
    /// The server's problem, or that it broke off; or that of `take`.
    pub async fn get_lines(
        &self,
        path: &str,
        take: impl FnMut(&str) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        self.client.get_lines(path, take).await
    }

    /// Gets a resource, if the server answers: one that ends or starts does not.
    ///
    /// # Errors
    ///
    /// The server's problem.
    pub async fn get_if_up<T: DeserializeOwned>(&self, path: &str) -> Result<Result<T, Refusal>, Refusal> {
        match self.client.send(Method::GET, path, None, &[]).await {
            Err(refusal) => Ok(Err(refusal)),
            Ok(reply) if reply.status == UNAVAILABLE => Ok(reply.parsed()),
            Ok(reply) => reply.parsed().map(Ok),
        }
    }

    /// Gets a resource as it is.
    ///
    /// # Errors
    ///
    /// The server's problem, or that it did not answer.
    pub async fn get_text(&self, path: &str) -> Result<ApiReply, Refusal> {
        self.client.send(Method::GET, path, None, &[]).await?.checked()
    }

    /// Asks for a change that is done once, also if the connection breaks. A problem is a reply.
    ///
    /// # Errors
    ///
    /// The server did not answer: it may be done, or not.
    pub async fn change<B: Serialize>(
        &self,
        method: Method,
        path: &str,
        body: Option<&B>,
    ) -> Result<ApiReply, Refusal> {
        let body = body.map(|body| serde_json::to_string(body).expect("bodies can be written as JSON"));
        let key = VolumeId(random_uuid(&self.world)).to_string();
        self.client.change((method, path), body, &key).await
    }

    /// As [`Self::change`], with a body that is JSON already.
    ///
    /// # Errors
    ///
    /// As of [`Self::change`].
    pub async fn send_json(&self, method: Method, path: &str, body: String) -> Result<ApiReply, Refusal> {
        let key = VolumeId(random_uuid(&self.world)).to_string();
        self.client.change((method, path), Some(body), &key).await
    }

    /// As [`Self::change`]; one that takes long is waited for until it has ended.
    ///
    /// # Errors
    ///
    /// As of [`Self::change`].
    pub async fn change_to_its_end<B: Serialize>(
        &self,
        method: Method,
        path: &str,
        body: Option<&B>,
    ) -> Result<ApiReply, Refusal> {
        let body = body.map(|body| serde_json::to_string(body).expect("bodies can be written as JSON"));
        let key = VolumeId(random_uuid(&self.world)).to_string();
        loop {
            let sent = self.client.change((method.clone(), path), body.clone(), &key).await;
            let reply = sent.map_err(|refusal| {
                Refusal::new(format!("{}; it may be done, or not", refusal.problem()), refusal.remedy())
            })?;
            let kind = reply.problem().map(|problem| problem.kind);
            match kind.as_deref() {
                Some("urn:spindle:goes-on" | "urn:spindle:under-way") => self.world.sleep(AGAIN_AFTER).await,
                _ => return Ok(reply),
            }
        }
    }

    /// Asks for something without a key: it changes nothing, or its answer is not to be kept.
    ///
    /// # Errors
    ///
    /// The server did not answer. A problem is a reply.
    pub async fn post(&self, path: &str, body: &impl Serialize) -> Result<ApiReply, Refusal> {
        let body = serde_json::to_string(body).expect("bodies can be written as JSON");
        self.client.send(Method::POST, path, Some(body), &[]).await
    }
}
