//! The files of secrets that a site names.

use super::sealing::SECRET_BYTES_MAX;
use plan::site::Site;
use report::Refusal;
use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};
use world::{IoErrorKind, real::host_files};

/// Files in a folder of certificates.
const CERTIFICATES: [&str; 3] = ["ca-cert.pem", "server-cert.pem", "server-key.pem"];
const TLS_LABEL: &str = "certificate ";
const API_TLS_LABEL: &str = "api certificate ";
/// Without it, a server asks nobody for a certificate.
const CLIENTS: &str = "ca-cert.pem";
const NOTIFIER_LABEL: &str = "notifier ";
const AUTHORITY_LABEL: &str = "authority of notifier ";
const INITIATOR_LABEL: &str = "initiator ";
const TARGETS_LABEL: &str = "targets";

/// A secret, as it lies in its file.
#[derive(Clone, PartialEq, Eq)]
pub struct SiteSecret {
    /// The owner of the secret, the same in all pools.
    pub label: String,
    pub bytes: Vec<u8>,
}

/// The files of a site's secrets, by what they are the secrets of. Paths are from the root.
fn files(site: &Site) -> Vec<(String, PathBuf)> {
    let users = site.initiators.iter().filter(|initiator| !initiator.secret_file.is_empty());
    let mut files: Vec<(String, PathBuf)> = users
        .map(|initiator| {
            (format!("{INITIATOR_LABEL}{}", initiator.name), initiator.secret_file.clone().into())
        })
        .collect();
    if !site.serve.chap_secret_file.is_empty() {
        files.push((TARGETS_LABEL.to_owned(), site.serve.chap_secret_file.clone().into()));
    }
    for (label, folder) in [(TLS_LABEL, &site.serve.nbd_tls), (API_TLS_LABEL, &site.serve.api_tls)] {
        if !folder.is_empty() {
            let folder = Path::new(folder);
            files.extend(CERTIFICATES.map(|name| (format!("{label}{name}"), folder.join(name))));
        }
    }
    for notifier in &site.notifiers {
        for (label, file) in [(NOTIFIER_LABEL, &notifier.secret_file), (AUTHORITY_LABEL, &notifier.ca_file)] {
            if !file.is_empty() {
                files.push((format!("{label}{}", notifier.name), file.into()));
            }
        }
    }
    files
}

/// True of a file that not every folder of certificates has.
pub(super) fn is_of_clients(label: &str) -> bool {
    [TLS_LABEL, API_TLS_LABEL].iter().any(|kind| label.strip_prefix(kind) == Some(CLIENTS))
}

/// The secrets of a site, and a line for each that cannot be read. Paths are from the root.
pub fn read(site: &Site) -> (Vec<SiteSecret>, Vec<String>) {
    let (mut secrets, mut lines) = (Vec::new(), Vec::new());
    for (label, path) in files(site) {
        match host_files::read_at_most(&path, SECRET_BYTES_MAX as u64) {
            Ok(bytes) => secrets.push(SiteSecret { label, bytes }),
            // Not every folder of certificates has one for clients.
            Err(error) if error.kind() == IoErrorKind::NotFound && is_of_clients(&label) => {}
            Err(error) => lines.push(format!("the secret of {label} is not kept in the pools: {error}")),
        }
    }
    (secrets, lines)
}

/// Labels of the secrets that a site names.
pub fn labels(site: &Site) -> Vec<String> {
    files(site).into_iter().map(|(label, _)| label).collect()
}

/// Has a site name its secrets' files below `folder`, a name of a folder beside the site file. Returns where each belongs.
pub fn place_below(site: &mut Site, folder: &str) -> Vec<(String, PathBuf)> {
    let fixed = [TARGETS_LABEL, "nbd-tls", "api-tls"];
    let mut used: BTreeSet<String> = fixed.map(str::to_owned).into();
    for initiator in site.initiators.iter_mut().filter(|initiator| !initiator.secret_file.is_empty()) {
        initiator.secret_file = format!("{folder}/{}", free_name(&initiator.name, &mut used));
    }
    for notifier in &mut site.notifiers {
        let name = format!("notifier-{}", notifier.name);
        for (file, end) in [(&mut notifier.secret_file, ""), (&mut notifier.ca_file, "-ca.pem")] {
            if !file.is_empty() {
                *file = format!("{folder}/{}", free_name(&format!("{name}{end}"), &mut used));
            }
        }
    }
    if !site.serve.chap_secret_file.is_empty() {
        site.serve.chap_secret_file = format!("{folder}/{TARGETS_LABEL}");
    }
    if !site.serve.nbd_tls.is_empty() {
        site.serve.nbd_tls = format!("{folder}/nbd-tls");
    }
    if !site.serve.api_tls.is_empty() {
        site.serve.api_tls = format!("{folder}/api-tls");
    }
    files(site)
}

/// Writes a secret for its owner alone.
///
/// # Errors
///
/// The file is there with other contents, or cannot be written.
pub fn write(path: &Path, bytes: &[u8]) -> Result<(), Refusal> {
    let refused = |error: world::IoError| Refusal::new(error.to_string(), "check the folder");
    if host_files::metadata(path).is_ok() {
        if host_files::read_at_most(path, SECRET_BYTES_MAX as u64).is_ok_and(|there| there == bytes) {
            return Ok(());
        }
        let problem = format!("{} is there, with another secret", path.display());
        return Err(Refusal::new(problem, "move it away, or name another file with ⟨output⟩"));
    }
    if let Some(folder) = path.parent() {
        host_files::create_private_dir_all(folder).map_err(refused)?;
    }
    host_files::write_secret(path, bytes).map_err(refused)
}

/// A file name that is not used, after a name.
fn free_name(name: &str, used: &mut BTreeSet<String>) -> String {
    let plain = file_name(name);
    let mut name = plain.clone();
    for number in 2.. {
        if used.insert(name.clone()) {
            break;
        }
        name = format!("{plain}-{number}");
    }
    name
}

/// A name as that of a file.
fn file_name(name: &str) -> String {
    let plain = |character: char| match character {
        'a'..='z' | 'A'..='Z' | '0'..='9' | '.' | '-' | '_' => character,
        _ => '_',
    };
    name.chars().map(plain).collect::<String>().trim_start_matches('.').chars().take(200).collect()
}
