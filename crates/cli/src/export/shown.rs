//! Lines of an export before it serves: one for each address of each export, or JSON.

use crate::console::Console;
use report::Refusal;
use serde::Serialize;
use serving::export::{EffectiveWriteCache, ExportEndpoint, SharedDevice};
use std::path::PathBuf;
use world::{Address, ByteCount};

/// An address, and the exports that are found there.
pub struct ShownEndpoint {
    pub address: Address,
    /// Clients need rights or a certificate.
    pub is_restricted: bool,
    pub exports: Vec<ShownExport>,
}

pub struct ShownExport {
    pub uri: String,
    pub path: PathBuf,
    pub size: ByteCount,
    pub is_read_only: bool,
    pub write_cache: EffectiveWriteCache,
    /// Identity that initiators see; iSCSI only.
    pub identity: Option<String>,
}

/// One export as JSON.
#[derive(Serialize)]
struct ServedExport<'a> {
    uri: &'a str,
    path: &'a PathBuf,
    bytes: u64,
    read_only: bool,
    write_cache: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    identity: Option<&'a str>,
}

impl ShownEndpoint {
    pub fn of(endpoint: &ExportEndpoint, shared: &[SharedDevice]) -> Self {
        let identity = |index: usize| Some(endpoint.identities.as_ref()?.get(index)?.to_string());
        let exports =
            endpoint.offers.iter().zip(shared).enumerate().map(|(index, (offer, shared))| ShownExport {
                uri: offer.uri.clone(),
                path: shared.path.clone(),
                size: shared.device.geometry().size,
                is_read_only: offer.is_read_only,
                write_cache: offer.write_cache.clone(),
                identity: identity(index),
            });
        Self {
            address: endpoint.address.clone(),
            is_restricted: endpoint.is_restricted,
            exports: exports.collect(),
        }
    }
}

/// Prints what is served, and at which addresses.
pub fn tell(endpoints: &[ShownEndpoint], as_json: bool, console: &Console) -> Result<(), Refusal> {
    let served = || endpoints.iter().flat_map(|endpoint| &endpoint.exports);
    if as_json {
        let all = served().map(|export| ServedExport {
            uri: &export.uri,
            path: &export.path,
            bytes: export.size.0,
            read_only: export.is_read_only,
            write_cache: export.write_cache.is_on,
            identity: export.identity.as_deref(),
        });
        console.json_of(&all.collect::<Vec<_>>())?;
    }
    for ShownExport { uri, path, size, is_read_only, write_cache, .. } in served() {
        let writes = if *is_read_only { "read-only".to_owned() } else { write_cache.to_string() };
        console.say(&format!("{uri}  {}  {size}, {writes}", path.display()));
    }
    if let Some(endpoint) =
        endpoints.iter().find(|endpoint| !endpoint.address.is_local() && !endpoint.is_restricted)
    {
        console.warn(&format!(
            "anyone who reaches {} can read and write: there is no access control",
            endpoint.address
        ));
    }
    console.say("serving; Ctrl-C ends it");
    Ok(())
}
