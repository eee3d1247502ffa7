//! Volumes and snapshots of a server as devices, over exports that are gone when the verb ends.

use crate::{
    protect::backup_exports::{begin_export, delete_export},
    server::{connection::ServerConnection, place::ServerPlace},
};
use control::web::client::BackupPointRow;
use nbd::{Client, ClientOptions, NbdUri};
use report::Refusal;
use serving::certificates;
use std::rc::Rc;
use world::{World, real::Sockets};

/// Exports that the verb made. Those of one that was killed are used again by the next one, and deleted then.
pub struct VaultExports<'s> {
    server: &'s ServerConnection,
    place: &'s ServerPlace,
    /// Start of their names.
    prefix: String,
    names: Vec<String>,
}

impl<'s> VaultExports<'s> {
    /// Exports for one vault: copies into two at once do not use each other's.
    pub fn new(server: &'s ServerConnection, place: &'s ServerPlace, vault_id: &str) -> Self {
        let prefix = format!("vault-{}", vault_id.get(..8).unwrap_or(vault_id));
        Self { server, place, prefix, names: Vec::new() }
    }

    /// Exports a snapshot for reading alone, and connects to it.
    ///
    /// # Errors
    ///
    /// The server serves no NBD, or does not answer.
    pub async fn snapshot(&mut self, world: &World, point: &BackupPointRow) -> Result<Client, Refusal> {
        let name = format!("{}-{}-{}", self.prefix, point.snapshot_id, self.names.len());
        self.names.push(name.clone());
        let uri = begin_export(world, self.server, (&name, point), self.place).await?;
        connect(world, &uri).await
    }

    /// Deletes the exports.
    ///
    /// # Errors
    ///
    /// The server does not answer.
    pub async fn delete(&self) -> Result<(), Refusal> {
        for name in &self.names {
            delete_export(self.server, name).await?;
        }
        Ok(())
    }
}

/// Connects to an NBD export.
///
/// # Errors
///
/// It is not reached.
pub async fn connect(world: &World, uri: &str) -> Result<Client, Refusal> {
    let uri: NbdUri = uri.parse().map_err(|error| Refusal::new(format!("{uri}: {error}"), ""))?;
    let options = ClientOptions { tls: certificates::of_client(&uri)?, ..ClientOptions::default() };
    let shown = uri.to_string();
    let client = Client::connect(world, Rc::new(Sockets), uri, options).await;
    client.map_err(|error| {
        Refusal::new(format!("{shown}: {error}"), "check its address, and that it is served")
    })
}
