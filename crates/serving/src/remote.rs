//! Devices of other machines, by their URIs: a unit of an iSCSI target, an export of an NBD server.

use crate::certificates;
use iscsi::{
    initiator::{self, Initiator, InitiatorOptions},
    session::chap::{Credentials, Secret},
    wire::pdu::Digests,
};
use nbd::{Client, ClientOptions};
use report::Refusal;
use serde::{Deserialize, Serialize};
use std::{
    fmt,
    net::IpAddr,
    path::{Path, PathBuf},
    rc::Rc,
    time::Duration,
};
use world::{
    Address, BlockDevice, IoError, IoErrorKind, IoResult, World,
    kept_writes::KeptWrites,
    real::{Sockets, host_files},
};

/// Credentials and options for remote devices.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RemoteSettings {
    /// Our name at an iSCSI target that wants CHAP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chap_name: Option<String>,
    /// File with our CHAP secret; the environment has it if `None`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chap_secret_file: Option<PathBuf>,
    /// Name by which the target must authenticate to us (mutual CHAP).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chap_target_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chap_target_secret_file: Option<PathBuf>,
    /// CRC-32C over headers and data of iSCSI, if the target can.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub digests: bool,
}

/// True if a path is a URI of a device on another machine.
pub fn is_uri(path: &Path) -> bool {
    const SCHEMES: [&str; 5] = ["iscsi://", "nbd://", "nbds://", "nbd+unix://", "nbds+unix://"];
    path.to_str().is_some_and(|text| SCHEMES.iter().any(|scheme| text.starts_with(scheme)))
}

/// Looks up a variable of the environment, which only the program reads.
pub type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// A remote device with its credentials, which `Debug` and `Display` do not show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remote {
    /// A unit of an iSCSI target.
    Iscsi(initiator::IscsiUri, Box<InitiatorOptions>),
    /// An export of an NBD server.
    Nbd(nbd::NbdUri),
}

pub struct OpenRemote {
    pub device: Rc<dyn BlockDevice>,
    pub is_read_only: bool,
    /// Vendor, product and revision.
    pub model: Option<String>,
    pub serial: Option<String>,
}

impl Remote {
    /// The device that `path` names; `None` if it is no URI but a path in the filesystem.
    pub fn of(
        path: &Path,
        settings: &RemoteSettings,
        environment: Environment<'_>,
    ) -> Result<Option<Self>, Refusal> {
        let Some(text) = path.to_str() else { return Ok(None) };
        let refuse = |error: &dyn fmt::Display| Refusal::new(error.to_string(), "");
        if text.starts_with("iscsi://") {
            let uri = text.parse().map_err(|error: initiator::IscsiUriError| refuse(&error))?;
            return Ok(Some(Self::Iscsi(uri, Box::new(options(settings, environment)?))));
        }
        if is_uri(path) {
            let uri = text.parse().map_err(|error: nbd::NbdUriError| refuse(&error))?;
            // A folder of certificates that cannot be used is refused before the run begins.
            certificates::of_client(&uri)?;
            return Ok(Some(Self::Nbd(uri)));
        }
        Ok(None)
    }

    /// Connects. What is not answered is given up after a minute, or after `answer_max`.
    pub async fn open(&self, world: &World, answer_max: Option<Duration>) -> IoResult<OpenRemote> {
        match self {
            Self::Iscsi(uri, options) => {
                let mut options = (**options).clone();
                options.answer_max = answer_max.unwrap_or(options.answer_max);
                let device = Initiator::connect(world, Rc::new(Sockets), uri.clone(), options).await?;
                let facts = device.info().clone();
                let device = through_failovers(world, &uri.others, Rc::new(device));
                Ok(OpenRemote {
                    is_read_only: facts.is_read_only,
                    model: Some(format!("{} {} {}", facts.vendor, facts.product, facts.revision)),
                    serial: facts.serial,
                    device,
                })
            }
            Self::Nbd(uri) => {
                let tls = certificates::of_client(uri);
                let tls =
                    tls.map_err(|error| IoError::new(IoErrorKind::PermissionDenied, error.to_string()))?;
                let usual = ClientOptions::default();
                let answer_max = answer_max.unwrap_or(usual.answer_max);
                let options = ClientOptions { tls, answer_max, ..usual };
                let device = Client::connect(world, Rc::new(Sockets), uri.clone(), options).await?;
                let is_read_only = device.is_read_only();
                let device = through_failovers(world, &uri.others, Rc::new(device));
                Ok(OpenRemote { is_read_only, model: None, serial: None, device })
            }
        }
    }

    /// True if what it carries can be read on its way: neither encrypted, nor within this machine.
    pub fn is_in_the_clear(&self) -> bool {
        let (first, others, is_encrypted) = match self {
            Self::Iscsi(uri, _) => (&uri.address, &uri.others, false),
            Self::Nbd(uri) => (&uri.address, &uri.others, uri.tls.is_some()),
        };
        let is_here = |address: &Address| match address {
            Address::Unix(_) => true,
            Address::Tcp { host, .. } => {
                host == "localhost" || host.parse().is_ok_and(|address: IpAddr| address.is_loopback())
            }
        };
        let is_all_here = is_here(first) && others.iter().all(is_here);
        !(is_encrypted || is_all_here)
    }

    /// The transport, for a report.
    pub fn reach(&self) -> &'static str {
        match self {
            Self::Iscsi(..) => "iSCSI, one session a group",
            Self::Nbd(uri) if uri.tls.is_some() => "NBD over TLS, one connection a group",
            Self::Nbd(_) => "NBD, one connection a group",
        }
    }
}

/// A device with other addresses goes on at another site: what the one before may have lost is written again there.
fn through_failovers(world: &World, others: &[Address], device: Rc<dyn BlockDevice>) -> Rc<dyn BlockDevice> {
    if others.is_empty() { device } else { Rc::new(KeptWrites::new(world, device)) }
}

impl fmt::Display for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Iscsi(uri, _) => uri.fmt(f),
            Self::Nbd(uri) => uri.fmt(f),
        }
    }
}

fn options(settings: &RemoteSettings, environment: Environment<'_>) -> Result<InitiatorOptions, Refusal> {
    let digests = Digests { header: settings.digests, data: settings.digests };
    let credentials = |name: &Option<String>, file: &Option<PathBuf>, variable: &'static str, setting| {
        let of = |name: &String| {
            let secret = secret(file.as_deref(), (variable, environment), setting)?;
            Ok::<_, Refusal>(Credentials { name: name.clone(), secret })
        };
        name.as_ref().map(of).transpose()
    };
    let own = credentials(
        &settings.chap_name,
        &settings.chap_secret_file,
        "SPINDLE_CHAP_SECRET",
        "⟨chap-secret-file⟩",
    )?;
    let targets = credentials(
        &settings.chap_target_name,
        &settings.chap_target_secret_file,
        "SPINDLE_CHAP_TARGET_SECRET",
        "⟨chap-target-secret-file⟩",
    )?;
    if let (Some(own), Some(target)) = (&own, &targets)
        && own.secret == target.secret
    {
        let problem = "both ends have the same CHAP secret, so that a target need not know it";
        return Err(Refusal::new(problem, "give each a secret of its own"));
    }
    Ok(InitiatorOptions {
        credentials: own,
        target_credentials: targets,
        digests,
        ..InitiatorOptions::default()
    })
}

/// A secret from a file, or else from the environment.
fn secret(
    file: Option<&Path>,
    (variable, environment): (&str, Environment<'_>),
    setting: &str,
) -> Result<Secret, Refusal> {
    let (text, place) = match file {
        Some(file) => {
            let text = host_files::read(file).map_err(|error| {
                Refusal::new(error.to_string(), format!("give a file that can be read with {setting}"))
            })?;
            (text, file.display().to_string())
        }
        None => match environment(variable) {
            Some(text) => (text.into_bytes(), variable.to_owned()),
            None => {
                let remedy = format!("put it into a file and say {setting} FILE, or into {variable}");
                return Err(Refusal::new("CHAP needs a secret", remedy));
            }
        },
    };
    let line = text.strip_suffix(b"\n").unwrap_or(&text);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    Secret::new(line).map_err(|error| Refusal::new(format!("{place}: {error}"), "choose another secret"))
}
