//! The services of a site's server and their addresses, as they are shown.

use crate::console::Console;
use control::site::{SiteServer, server::ServedUri};
use nbd::NbdUri;
use report::Refusal;
use serde::Serialize;

#[derive(Serialize)]
struct ShownService<'a> {
    pool: &'a str,
    uri: &'a str,
}

/// Prints the address of everything that is served. Pools that are not were said when they stopped.
pub fn show(server: &SiteServer, console: &Console) -> Result<(), Refusal> {
    let services: Vec<(String, String)> = server
        .served()
        .into_iter()
        .map(|(pool, uri)| match uri {
            ServedUri::Nbd { address, export } => {
                (pool, NbdUri { address, others: Vec::new(), export, tls: server.uri_tls() }.to_string())
            }
            ServedUri::Iscsi { address, target, number } => {
                (pool, format!("iscsi://{address}/{target}/{number}"))
            }
        })
        .collect();
    if console.is_for_programs() {
        let shown: Vec<_> = services.iter().map(|(pool, uri)| ShownService { pool, uri }).collect();
        console.json_of(&shown)?;
    }
    for (pool, uri) in &services {
        console.say(&format!("{uri}  pool {pool}"));
    }
    if services.is_empty() && server.stopped().is_empty() {
        console.say("nothing is served: the site file has no [[target]] and no [[nbd]]");
    }
    Ok(())
}
