//! One attempt to deliver a message over a channel.

use super::{
    composing::{NotifierMessage, mail_bytes},
    lane::NotifierContext,
    smtp::{self, SmtpEnvelope},
    wanted::{NotifierChannel, WantedNotifier},
    webhook::{self, WebhookTarget},
};

/// A message was accepted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct DeliveryReceipt {
    /// Receivers of mail that were refused, with the reasons.
    pub refused: Vec<String>,
}

/// A message was not accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DeliveryFailure {
    pub why: String,
    /// The receiver refuses this message, not all of them: it will not be accepted later either.
    pub is_for_good: bool,
}

impl From<String> for DeliveryFailure {
    fn from(why: String) -> Self {
        Self { why, is_for_good: false }
    }
}

impl From<&str> for DeliveryFailure {
    fn from(why: &str) -> Self {
        why.to_owned().into()
    }
}

/// Sends a message over the channel of `notifier`.
pub(super) async fn deliver(
    NotifierContext { world, network, .. }: &NotifierContext,
    notifier: &WantedNotifier,
    message: &NotifierMessage,
) -> Result<DeliveryReceipt, DeliveryFailure> {
    let surroundings = (world, &**network);
    match &*notifier.channel {
        NotifierChannel::Webhook { address, host, path, tls, secret, .. } => {
            let (tls, secret) = (tls.as_ref(), secret.as_ref());
            let target = WebhookTarget { address, host, path, tls, secret };
            webhook::post(surroundings, &target, message).await?;
            Ok(DeliveryReceipt::default())
        }
        NotifierChannel::Mail { address, tls, login, from, to, .. } => {
            let (tls, login) = (tls.as_ref(), login.as_ref());
            let envelope = SmtpEnvelope { address, tls, login, from, to };
            let mail = mail_bytes(message, &notifier.name, (from, to));
            smtp::send(surroundings, &envelope, &mail).await
        }
    }
}
