//! Exports of a backup's snapshots, by which this machine reads them.
//!
//! Invariant: the exports are gone when their reader ends. Those of one that was killed are used again by the next one of the
//! same purpose and backup, and deleted then.

use super::backup_points::PointsOfBackup;
use crate::server::{connection::ServerConnection, place::ServerPlace};
use control::web::client::{BackupPointRow, ExportRow, Method, NewExportBody, in_uri};
use nbd::NbdUri;
use protect::backup_schedule::set_and_sequence_of;
use report::Refusal;
use serving::remote::{Remote, RemoteSettings};
use std::{path::Path, rc::Rc, time::Duration};
use world::{Address, BlockDevice, World};

/// Time for an export to be there, and the interval of looking for it.
const SERVED_WITHIN: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Exports of the snapshots of one backup, for as long as they are read.
pub struct BackupExports {
    /// Their names, with what each exports.
    exports: Vec<(String, BackupPointRow)>,
}

impl BackupExports {
    /// Of these points; `purpose` begins their names.
    pub fn of(purpose: &str, backup: &PointsOfBackup, points: Vec<BackupPointRow>) -> Self {
        let name = |(index, point)| (format!("{purpose}-{}-{index}", backup.name), point);
        Self { exports: points.into_iter().enumerate().map(name).collect() }
    }

    /// Makes the exports, read-only, and returns their URIs in the order of the points.
    ///
    /// # Errors
    ///
    /// The server cannot export one, or serves no NBD.
    pub async fn begin(
        &self,
        world: &World,
        server: &ServerConnection,
        place: &ServerPlace,
    ) -> Result<Vec<String>, Refusal> {
        let mut uris = Vec::new();
        for (name, point) in &self.exports {
            uris.push(begin_export(world, server, (name, point), place).await?);
        }
        Ok(uris)
    }

    /// `POOL/VOLUME@SNAPSHOT` of each, in the order of the points.
    pub fn snapshots(&self) -> impl Iterator<Item = String> {
        self.exports.iter().map(|(_, point)| format!("{}/{}@{}", point.pool, point.volume, point.name))
    }

    /// Deletes the exports; one that was not made is gone.
    ///
    /// # Errors
    ///
    /// The server does not answer, or refuses.
    pub async fn delete(&self, server: &ServerConnection) -> Result<(), Refusal> {
        for (name, _) in &self.exports {
            delete_export(server, name).await?;
        }
        Ok(())
    }
}

/// A text with the names of exports for people in place of their URIs, which are gone when it is read.
pub fn in_names(named: &[(String, String)], text: &str) -> String {
    named.iter().fold(text.to_owned(), |text, (uri, name)| text.replace(uri, name))
}

/// Opens the device behind the URI of an export; `name` is for people, `remedy` what they do if it is not reached.
///
/// # Errors
///
/// It is not reached.
pub async fn open_export(
    world: &World,
    (uri, name): (&str, &str),
    remedy: &str,
) -> Result<Rc<dyn BlockDevice>, Refusal> {
    let remote = Remote::of(Path::new(uri), &RemoteSettings::default(), &|_| None)?;
    let remote = remote.ok_or_else(|| Refusal::new(format!("{uri} is no URI of an export"), ""))?;
    let opened = remote.open(world, None).await;
    Ok(opened.map_err(|error| Refusal::new(format!("{name}: {error}"), remedy))?.device)
}

/// Deletes the exports that a reader of a set's backups left behind which was killed. No other reader with this purpose may be
/// there.
///
/// # Errors
///
/// The server does not answer, or refuses.
pub async fn delete_left(server: &ServerConnection, purpose: &str, set: &str) -> Result<(), Refusal> {
    let is_left = |row: &&ExportRow| {
        let of_backup = row.name.strip_prefix(purpose).and_then(|rest| rest.strip_prefix('-'));
        let backup = of_backup.and_then(|rest| Some(rest.rsplit_once('-')?.0));
        backup.and_then(set_and_sequence_of).is_some_and(|(of, _)| of == set)
    };
    let rows: Vec<ExportRow> = server.get("/v1/exports").await?;
    for row in rows.iter().filter(is_left) {
        delete_export(server, &row.name).await?;
    }
    Ok(())
}

/// Deletes an export; one that is gone is no error.
///
/// # Errors
///
/// The server does not answer, or refuses.
pub async fn delete_export(server: &ServerConnection, name: &str) -> Result<(), Refusal> {
    let path = format!("/v1/exports/{}?force=true", in_uri(name));
    let reply = server.change_to_its_end(Method::DELETE, &path, None::<&()>).await?;
    if reply.status != 404 {
        reply.checked()?;
    }
    Ok(())
}

/// Exports a snapshot, and returns the URI by which it is reached from here.
///
/// # Errors
///
/// As of [`begin_export_of`].
pub async fn begin_export(
    world: &World,
    server: &ServerConnection,
    (name, point): (&str, &BackupPointRow),
    place: &ServerPlace,
) -> Result<String, Refusal> {
    let volume = format!("{}/{}@{}", point.pool, point.volume, point.name);
    begin_export_of(world, server, (name, volume, true), place).await
}

/// Exports a volume or a snapshot, and returns the URI by which it is reached from here.
///
/// # Errors
///
/// The server cannot export it, or serves no NBD.
pub async fn begin_export_of(
    world: &World,
    server: &ServerConnection,
    (name, volume, read_only): (&str, String, bool),
    place: &ServerPlace,
) -> Result<String, Refusal> {
    let body = NewExportBody { name: name.to_owned(), volume, read_only };
    server.change_to_its_end(Method::POST, "/v1/exports", Some(&body)).await?.checked()?;
    reachable_uri(world, server, name, place).await
}

/// Waits until an export is served, and returns the URI by which it is reached from here.
///
/// # Errors
///
/// The server serves no NBD, or not this export.
pub async fn reachable_uri(
    world: &World,
    server: &ServerConnection,
    name: &str,
    place: &ServerPlace,
) -> Result<String, Refusal> {
    let path = format!("/v1/exports/{}", in_uri(name));
    let until = world.now() + SERVED_WITHIN;
    loop {
        let row: ExportRow = server.get(&path).await?;
        let Some(uri) = row.uri else {
            return Err(Refusal::new(
                "the server serves no NBD, by which its snapshots would be read",
                "say nbd = \"127.0.0.1\" under [serve] in its site file",
            ));
        };
        if row.is_served {
            return from_here(&uri, server, place);
        }
        if world.now() >= until {
            return Err(Refusal::new(
                format!("export {name} is not served"),
                "see the messages of the server",
            ));
        }
        world.sleep(LOOK_EVERY).await;
    }
}

/// The URI with the server's host, where it listens on all of its addresses, and the certificates to check it by.
fn from_here(uri: &str, server: &ServerConnection, place: &ServerPlace) -> Result<String, Refusal> {
    let mut uri: NbdUri =
        uri.parse().map_err(|error| Refusal::new(format!("the server's export {uri}: {error}"), ""))?;
    if let Address::Tcp { host, .. } = &mut uri.address
        && ["0.0.0.0", "::"].contains(&host.as_str())
    {
        *host = match server.address() {
            Address::Tcp { host, .. } => host.clone(),
            Address::Unix(_) => "127.0.0.1".to_owned(),
        };
    }
    if let Some(tls) = &mut uri.tls {
        tls.certificates = place.address.server_tls.clone();
    }
    Ok(uri.to_string())
}
