//! The JSON gateway of a member of an etcd cluster (API v3), over one connection: keys and values in base64, numbers of 64
//! bits as text.

use super::etcd_access::{EtcdCluster, EtcdUser};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use http_body_util::{BodyExt, Full, Limited};
use hyper::{
    Method, Request,
    body::Bytes,
    client::conn::http1::{self, SendRequest},
    header,
};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use std::time::Duration;
use world::{Address, Network, World};

/// Bytes of an answer, at most: groups are small and few.
const ANSWER_BYTES_MAX: usize = 4 << 20;
/// Characters of a refusal that are shown.
const REFUSAL_CHARS_MAX: usize = 160;

pub(super) struct EtcdGateway {
    sender: SendRequest<Full<Bytes>>,
    host: String,
    /// Of the user whose requests these are.
    token: Option<String>,
}

/// A value of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EtcdValue {
    pub bytes: Vec<u8>,
    /// The revision of the cluster that wrote it.
    pub revision: i64,
    /// The lease that it ends with; 0 without one.
    pub lease: i64,
}

impl EtcdGateway {
    pub async fn connect(
        (world, network): (&World, &dyn Network),
        cluster: &EtcdCluster,
        member: &Address,
    ) -> Result<Self, String> {
        let stream = cluster.connect(world, network, member).await?;
        let (sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
        // It ends with the sender.
        drop(world.spawn("a connection to etcd", async move { drop(connection.await) }));
        let mut gateway = Self { sender, host: member.to_string(), token: None };
        if let Some(EtcdUser { name, password }) = &cluster.user {
            let user = json!({ "name": name, "password": password });
            let answer = gateway.post("/v3/auth/authenticate", &user).await?;
            gateway.token = answer["token"].as_str().map(str::to_owned);
        }
        Ok(gateway)
    }

    /// Values of two keys at one moment; what the cluster has agreed on.
    pub async fn read_together(&mut self, keys: [&str; 2]) -> Result<[Option<EtcdValue>; 2], String> {
        let reads = keys.map(|key| json!({ "request_range": { "key": in_base64(key.as_bytes()) } }));
        let answer = self.post("/v3/kv/txn", &json!({ "success": reads })).await?;
        let value_of = |index: usize| {
            let found = &answer["responses"][index]["response_range"]["kvs"][0];
            if found.is_null() { Ok(None) } else { value(found).map(Some) }
        };
        match answer["succeeded"].as_bool() {
            Some(true) => Ok([value_of(0)?, value_of(1)?]),
            _ => Err(odd(&answer)),
        }
    }

    /// All keys that begin with a text.
    pub async fn read_all(&mut self, begin: &str) -> Result<Vec<(String, EtcdValue)>, String> {
        let mut end = begin.as_bytes().to_vec();
        *end.last_mut().expect("a text") += 1;
        let range = json!({ "key": in_base64(begin.as_bytes()), "range_end": in_base64(&end) });
        let answer = self.post("/v3/kv/range", &range).await?;
        let all = answer["kvs"].as_array().map(Vec::as_slice).unwrap_or_default();
        all.iter()
            .map(|found| {
                let key = String::from_utf8(bytes(&found["key"])?).map_err(|_| odd(found))?;
                Ok((key, value(found)?))
            })
            .collect()
    }

    /// Writes keys, each with a lease or 0, if others have these revisions still; 0 is of a key that is not there. False if
    /// one has changed.
    pub async fn write_if_unchanged(
        &mut self,
        compared: &[(&str, i64)],
        written: &[(&str, Vec<u8>, i64)],
    ) -> Result<bool, String> {
        let compare: Vec<Value> = compared
            .iter()
            .map(|(key, revision)| {
                json!({ "key": in_base64(key.as_bytes()), "target": "MOD", "result": "EQUAL",
                        "mod_revision": revision.to_string() })
            })
            .collect();
        let writes: Vec<Value> = written
            .iter()
            .map(|(key, bytes, lease)| {
                json!({ "request_put": { "key": in_base64(key.as_bytes()), "value": in_base64(bytes),
                                         "lease": lease.to_string() } })
            })
            .collect();
        let answer = self.post("/v3/kv/txn", &json!({ "compare": compare, "success": writes })).await?;
        // A value that is false is left out.
        Ok(answer["succeeded"].as_bool().unwrap_or(false))
    }

    /// A new lease, and its length.
    pub async fn grant(&mut self, span: Duration) -> Result<(i64, Duration), String> {
        let seconds = span.as_secs() + u64::from(span.subsec_nanos() > 0);
        let answer = self.post("/v3/lease/grant", &json!({ "TTL": seconds.to_string() })).await?;
        Ok((number(&answer["ID"]).ok_or_else(|| odd(&answer))?, length(&answer)))
    }

    /// Extends a lease; its length from now on, and zero if it has ended.
    pub async fn keep_alive(&mut self, lease: i64) -> Result<Duration, String> {
        let answer = self.post("/v3/lease/keepalive", &json!({ "ID": lease.to_string() })).await?;
        Ok(length(&answer["result"]))
    }

    async fn post(&mut self, path: &str, body: &Value) -> Result<Value, String> {
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(path)
            .header(header::HOST, &self.host)
            .header(header::CONTENT_TYPE, "application/json");
        if let Some(token) = &self.token {
            request = request.header(header::AUTHORIZATION, token);
        }
        let request =
            request.body(Full::new(Bytes::from(body.to_string()))).map_err(|error| error.to_string())?;
        self.sender.ready().await.map_err(|error| error.to_string())?;
        let response = self.sender.send_request(request).await.map_err(|error| error.to_string())?;
        let status = response.status();
        let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
        let body = body.map_err(|error| error.to_string())?.to_bytes();
        if !status.is_success() {
            let said: String = String::from_utf8_lossy(&body)
                .chars()
                .filter(|char| !char.is_control())
                .take(REFUSAL_CHARS_MAX)
                .collect();
            return Err(format!("it answered {status}: {said}"));
        }
        serde_json::from_slice(&body).map_err(|error| format!("its answer is no JSON: {error}"))
    }
}

fn in_base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

fn bytes(found: &Value) -> Result<Vec<u8>, String> {
    // An empty value is left out.
    STANDARD.decode(found.as_str().unwrap_or_default()).map_err(|_| odd(found))
}

fn number(found: &Value) -> Option<i64> {
    found.as_str().and_then(|text| text.parse().ok()).or_else(|| found.as_i64())
}

fn value(found: &Value) -> Result<EtcdValue, String> {
    let revision = number(&found["mod_revision"]).ok_or_else(|| odd(found))?;
    Ok(EtcdValue { bytes: bytes(&found["value"])?, revision, lease: number(&found["lease"]).unwrap_or(0) })
}

/// The length of a lease in an answer; one that has ended has none.
fn length(answer: &Value) -> Duration {
    Duration::from_secs(number(&answer["TTL"]).and_then(|seconds| seconds.try_into().ok()).unwrap_or(0))
}

fn odd(answer: &Value) -> String {
    let said: String = answer.to_string().chars().take(REFUSAL_CHARS_MAX).collect();
    format!("an answer that etcd does not give: {said}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_the_gateway_writes_them() {
        let found = json!({ "key": "Zm9v", "create_revision": "2", "mod_revision": "9", "version": "1",
                            "value": "YmFy", "lease": "7587888888888888888" });
        let expected = EtcdValue { bytes: b"bar".to_vec(), revision: 9, lease: 7_587_888_888_888_888_888 };
        assert_eq!(value(&found), Ok(expected));
        let empty = EtcdValue { bytes: Vec::new(), revision: 9, lease: 0 };
        assert_eq!(value(&json!({ "mod_revision": "9" })), Ok(empty));
        assert!(value(&json!({ "value": "YmFy" })).unwrap_err().contains("etcd does not give"));
        assert!(value(&json!({ "mod_revision": "9", "value": "*" })).is_err());
    }

    #[test]
    fn a_lease_that_has_ended_has_no_length() {
        assert_eq!(length(&json!({ "ID": "5", "TTL": "3" })), Duration::from_secs(3));
        for ended in [json!({ "ID": "5" }), json!({ "TTL": "-1" }), json!(null)] {
            assert_eq!(length(&ended), Duration::ZERO);
        }
    }
}
