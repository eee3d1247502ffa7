//! The part of a site that `spindle serve` makes: addresses, targets with their units, initiators, NBD exports.
//!
//! A volume is referred to by its name, or as `GROUP/VOLUME`; a snapshot of it as `VOLUME@SNAPSHOT`.

use serde::{Deserialize, Serialize};

/// Addresses, and the part of the site that is served here.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Serving {
    /// The site that is served here; needed if there are several.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub site: String,
    /// Address of iSCSI, HOST:PORT, or none; 127.0.0.1:3260 if left out.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub iscsi: String,
    /// Address of NBD, HOST:PORT, or none; 127.0.0.1:10809 if left out.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub nbd: String,
    /// Address of the HTTP API, HOST:PORT; none if left out. Other machines need `api_tls`. The socket spindle.sock in the server's folder is always there.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api: String,
    /// Folder with certificates for the API over TLS (server-cert.pem, server-key.pem; with a ca-cert.pem, callers need certificates, too).
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_tls: String,
    /// True if other machines may reach the API without TLS: tokens pass the network in the clear.
    #[serde(skip_serializing_if = "is_false")]
    pub api_insecure: bool,
    /// Folder with certificates for NBD over TLS (ca-cert.pem, server-cert.pem, server-key.pem).
    #[serde(skip_serializing_if = "String::is_empty")]
    pub nbd_tls: String,
    /// User name of the targets for mutual CHAP.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub chap_user: String,
    /// File with the secret of `chap_user`, which only its owner can read.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub chap_secret_file: String,
}

/// Figures as Prometheus sees them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SiteMetrics {
    /// Volumes with latency histograms, as VOLUME or GROUP/VOLUME, with * for a part of a name; the first 256 if left out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub histograms: Vec<String>,
}

/// An iSCSI target.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SiteTarget {
    /// Name, unique among the targets; the end of its iSCSI name.
    pub name: String,
    /// True if all initiators may use the target, wherever they are.
    #[serde(skip_serializing_if = "is_false")]
    pub open: bool,
    /// Its logical units, of one group.
    #[serde(rename = "unit", skip_serializing_if = "Vec::is_empty")]
    pub units: Vec<SiteUnit>,
}

/// A logical unit of a target.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SiteUnit {
    /// Logical unit number, unique in the target.
    pub number: u64,
    /// Volume of the unit, or a snapshot, VOLUME@SNAPSHOT.
    pub volume: String,
    /// True if it refuses writes.
    #[serde(skip_serializing_if = "is_false")]
    pub read_only: bool,
    /// True if several hosts may use it at the same time, as clusters do.
    #[serde(skip_serializing_if = "is_false")]
    pub shared: bool,
    /// True or false to answer writes from the cache or not, whatever the volume says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write_cache: Option<bool>,
}

/// A host, by its iSCSI name, and its rights.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SiteInitiator {
    /// iSCSI name of the host, unique among the initiators.
    pub name: String,
    /// User name for CHAP.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub user: String,
    /// File with the secret of `user`, which only its owner can read.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub secret_file: String,
    /// Targets, or units as TARGET/NUMBER, that the host may read and write.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub uses: Vec<String>,
    /// Targets, or units as TARGET/NUMBER, that the host may read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reads: Vec<String>,
}

/// An NBD export.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SiteExport {
    /// Name, unique among the exports.
    pub name: String,
    /// Volume of the export, or a snapshot, VOLUME@SNAPSHOT.
    pub volume: String,
    /// True if it refuses writes.
    #[serde(skip_serializing_if = "is_false")]
    pub read_only: bool,
}

/// Somebody to be told of events.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SiteNotifier {
    /// Name, unique among the notifiers.
    pub name: String,
    /// Kind of notifier: webhook or mail.
    pub kind: String,
    /// URL of a webhook, https, or http to a loopback address.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub url: String,
    /// File with that URL instead, which only its owner can read: the URLs of some services are secrets.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub url_file: String,
    /// Mail server, HOST:PORT; port 25 if none is said.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub smtp: String,
    /// True if mail goes over TLS (STARTTLS).
    #[serde(skip_serializing_if = "is_false")]
    pub tls: bool,
    /// True if mail may go to another machine without TLS, where everyone on the way can read it.
    #[serde(skip_serializing_if = "is_false")]
    pub unencrypted: bool,
    /// User name at the mail server.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub user: String,
    /// File with the secret of a webhook's signatures, or the password of `user`, which only its owner can read.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub secret_file: String,
    /// File with the certificates of authorities for TLS; those of the system if left out.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub ca_file: String,
    /// Address that mail comes from.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub from: String,
    /// Addresses that mail goes to.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub to: Vec<String>,
    /// Least severity that is told: note, warning or error; warning if left out.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub severity: String,
    /// Time of a daily digest, HH:MM in UTC; none if left out.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub digest: String,
    /// Notifier that takes over when this one fails.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub fallback: String,
    /// Minutes of failing until then; 10 if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fallback_minutes: Option<u32>,
}

fn is_false(value: &bool) -> bool {
    !value
}
