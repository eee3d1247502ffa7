//! Vaults in object stores: `s3://BUCKET/PREFIX`, and the settings of the account in the environment.
//!
//! Invariant: the secret is in no argument, no message and no answer.

use report::Refusal;
use std::{env, path::Path, rc::Rc};
use tls::ClientTls;
use vault::store::{S3Credentials, S3Settings, S3Store, VaultStore};
use world::{
    Address, World,
    real::{Sockets, host_files},
};

/// The scheme of such places.
const SCHEME: &str = "s3://";
/// Region if none is said; stores other than Amazon's often ignore it.
const REGION: &str = "us-east-1";
/// Bytes of a file of authorities; Debian's has 220 KB.
const BUNDLE_BYTES_MAX: u64 = 4 << 20;

/// The store at an `s3://` place; `None` if it is no such place.
///
/// # Errors
///
/// The place names no bucket, or the environment lacks the account.
pub fn store_of(world: &World, place: &str) -> Result<Option<Rc<dyn VaultStore>>, Refusal> {
    let Some(rest) = place.strip_prefix(SCHEME) else { return Ok(None) };
    let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    if bucket.is_empty() {
        return Err(Refusal::new(
            format!("{place} names no bucket"),
            "say s3://BUCKET or s3://BUCKET/PREFIX",
        ));
    }
    let said = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
    let needed = |name: &str| {
        let remedy = format!("set {name} in the environment, as for other programs of object stores");
        said(name).ok_or_else(|| Refusal::new(format!("{place}: the account is not known"), remedy))
    };
    let credentials = S3Credentials {
        key_id: needed("AWS_ACCESS_KEY_ID")?,
        secret: needed("AWS_SECRET_ACCESS_KEY")?,
        session_token: said("AWS_SESSION_TOKEN"),
    };
    let region =
        said("AWS_REGION").or_else(|| said("AWS_DEFAULT_REGION")).unwrap_or_else(|| REGION.to_owned());
    let endpoint = said("AWS_ENDPOINT_URL").unwrap_or_else(|| format!("https://s3.{region}.amazonaws.com"));
    let (host, is_encrypted) = match (endpoint.strip_prefix("https://"), endpoint.strip_prefix("http://")) {
        (Some(host), _) => (host, true),
        (None, Some(host)) => (host, false),
        (None, None) => {
            let problem = format!("AWS_ENDPOINT_URL={endpoint} is no address of an object store");
            return Err(Refusal::new(problem, "say https://HOST or http://HOST:PORT"));
        }
    };
    let host = host.trim_end_matches('/').to_owned();
    let wrong =
        |why: String| Refusal::new(format!("AWS_ENDPOINT_URL={endpoint}: {why}"), "say https://HOST:PORT");
    let address = Address::parse(&host, if is_encrypted { 443 } else { 80 });
    let address = address.map_err(|error| wrong(error.to_string()))?;
    let tls = match (&address, is_encrypted) {
        (Address::Tcp { host, .. }, true) => Some(tls_of(host, said("AWS_CA_BUNDLE"))?),
        _ => None,
    };
    let (bucket, prefix) = (bucket.to_owned(), prefix.trim_matches('/').to_owned());
    let settings = S3Settings { address, host, tls, region, bucket, prefix, credentials };
    Ok(Some(Rc::new(S3Store::new(world, Rc::new(Sockets), settings))))
}

/// Trusts the authorities of a file, or those of the machine.
fn tls_of(host: &str, bundle: Option<String>) -> Result<ClientTls, Refusal> {
    let Some(bundle) = bundle else {
        return ClientTls::trusting_system(host).map_err(|error| {
            Refusal::new(
                format!("{host}: {error}"),
                "install ca-certificates, or name the authorities in AWS_CA_BUNDLE",
            )
        });
    };
    let next = "name a file of certificates in PEM, or leave it out to trust the authorities of the machine";
    let wrong = |why: String| Refusal::new(format!("AWS_CA_BUNDLE={bundle}: {why}"), next);
    let pem = host_files::read_at_most(Path::new(&bundle), BUNDLE_BYTES_MAX);
    let pem = pem.map_err(|error| wrong(error.to_string()))?;
    ClientTls::new(host, &pem, None).map_err(|error| wrong(error.to_string()))
}
