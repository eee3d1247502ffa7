//! A message to a webhook: one POST of JSON, signed.
//!
//! The header `spindle-signature` is `sha256=` and the HMAC-SHA256, in hexadecimal, of the value of `spindle-timestamp`, a dot,
//! and the body. A receiver drops what it has had by `spindle-id`, and what is old by the timestamp.

use super::{composing::NotifierMessage, delivery::DeliveryFailure};
use crate::hexadecimal::hexadecimal;
use axum::body::Body;
use http_body_util::{BodyExt, Limited};
use hyper::{Method, Request, StatusCode, client::conn::http1, header};
use hyper_util::rt::TokioIo;
use ring::hmac;
use std::{future::pending, time::Duration};
use tls::ClientTls;
use world::{Address, Network, World, with_deadline};

/// Time for a message to be accepted.
const ACCEPTED_WITHIN: Duration = Duration::from_secs(30);
/// Time for the text of a refusal.
const TEXT_WITHIN: Duration = Duration::from_secs(2);
/// Bytes of such a text, at most.
const TEXT_BYTES_MAX: usize = 4096;
/// Characters of an answer that are shown.
const ANSWER_CHARS_MAX: usize = 200;

/// The receiver.
pub(super) struct WebhookTarget<'a> {
    pub address: &'a Address,
    pub host: &'a str,
    pub path: &'a str,
    pub tls: Option<&'a ClientTls>,
    pub secret: Option<&'a hmac::Key>,
}

/// Sends a message, and waits until it is accepted: the status 2xx is that, whatever text comes with it.
pub(super) async fn post(
    (world, network): (&World, &dyn Network),
    target: &WebhookTarget<'_>,
    message: &NotifierMessage,
) -> Result<(), DeliveryFailure> {
    let posted = with_deadline(world.sleep(ACCEPTED_WITHIN), post_at_once((world, network), target, message));
    let timeout = || Err(format!("no answer within {} s", ACCEPTED_WITHIN.as_secs()).into());
    posted.await.unwrap_or_else(timeout)
}

async fn post_at_once(
    (world, network): (&World, &dyn Network),
    target: &WebhookTarget<'_>,
    message: &NotifierMessage,
) -> Result<(), DeliveryFailure> {
    let body = message.json.to_string();
    let timestamp = world.wall().seconds.to_string();
    let mut request = Request::builder()
        .method(Method::POST)
        .uri(target.path)
        .header(header::HOST, target.host)
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::USER_AGENT, "spindle")
        .header("spindle-id", &message.id)
        .header("spindle-timestamp", &timestamp);
    if let Some(key) = target.secret {
        let signature = hmac::sign(key, format!("{timestamp}.{body}").as_bytes());
        request = request.header("spindle-signature", format!("sha256={}", hexadecimal(signature.as_ref())));
    }
    let request = request.body(Body::from(body)).map_err(|error| error.to_string())?;
    let stream = network.connect(target.address).await.map_err(|error| error.to_string())?;
    let stream = match target.tls {
        Some(tls) => tls.connect(world, stream).await.map_err(|error| format!("TLS: {error}"))?,
        None => stream,
    };
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
    let exchange = async {
        let response = sender.send_request(request).await?;
        let status = response.status();
        if status.is_success() {
            return Ok((status, None));
        }
        let text = Limited::new(response.into_body(), TEXT_BYTES_MAX).collect();
        let text = with_deadline(world.sleep(TEXT_WITHIN), text).await;
        Ok::<_, hyper::Error>((status, text.and_then(Result::ok)))
    };
    // The exchange knows of the connection's end.
    let connection = async {
        let _ = connection.await;
        pending::<()>().await;
    };
    let answered = with_deadline(connection, exchange).await.expect("the connection does not end first");
    let (status, text) = answered.map_err(|error| error.to_string())?;
    if status.is_success() {
        return Ok(());
    }
    let body = text.map(|text| text.to_bytes()).unwrap_or_default();
    let said: String = String::from_utf8_lossy(&body)
        .chars()
        .map(|char| if char.is_control() { ' ' } else { char })
        .take(ANSWER_CHARS_MAX)
        .collect();
    let why = format!("it answered {status} {}", said.trim()).trim_end().to_owned();
    // The others are about the way, or about who asks.
    let of_message =
        [StatusCode::BAD_REQUEST, StatusCode::PAYLOAD_TOO_LARGE, StatusCode::UNPROCESSABLE_ENTITY];
    Err(DeliveryFailure { why, is_for_good: of_message.contains(&status) })
}
