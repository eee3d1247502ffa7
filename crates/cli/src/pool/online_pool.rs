//! A pool that a server has open: its volumes are changed through the API.

use super::volume_access::{ChangeFacts, ChangedVolume, EndangeredVolume};
use crate::{
    command_line::quoted,
    server::{connection::ServerConnection, place::ServerAddress},
};
use array::{
    error::Error,
    format::{RedundancyClass, row::WriteCache},
    pool::VolumeSetting,
    volume::{Bounds, Rates},
};
use control::web::{
    VolumeSpaceRow,
    client::{
        ApiReply, Method, NewCloneBody, NewSnapshotBody, NewSnapshotsBody, ReadmissionBody, RollbackBody,
        VolumeUses, in_uri,
    },
    rows::{PoolRow, RollbackRow, SnapshotPage, VolumeEntry, VolumePage},
};
use report::Refusal;
use serde::{Deserialize, Serialize};
use serving::{
    export::WithheldClients,
    pool::{
        limits::{LimitChange, LimitStatus},
        volume_change::{RollbackTo, SnapshotRef, VolumeChange, VolumeRef},
        volume_space::{SnapshotSpaceStatus, VolumeSpaceStatus},
        withholding::{ReadmissionAnswer, ReadmittedClients},
    },
};
use std::path::{Path, PathBuf};
use world::{Address, ByteCount};

const HELP: &str = "see 'spindle volume --help'";

/// A pool at a server.
pub struct OnlinePool {
    server: ServerConnection,
    /// UUID.
    id: String,
    /// Its name at the server.
    name: String,
    /// The pool in messages, as it was given.
    place: PathBuf,
    /// Its folder on the server.
    folder: PathBuf,
    /// It was given as its folder.
    is_folder: bool,
    /// The arguments that name the server, for commands to be copied.
    repeated: String,
}

/// The body of a request that creates or changes a volume. What is left out is usual, or stays.
#[derive(Default, Serialize)]
struct VolumeBody<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    size_bytes: Option<u64>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    may_shrink: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    write_cache: Option<bool>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    raid0: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    limit_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reserve_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    iops_max: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kib_per_second_max: Option<u32>,
}

impl VolumeBody<'_> {
    fn of(limits: &LimitChange) -> Self {
        Self {
            limit_bytes: limits.limit.map(|limit| limit.0),
            reserve_bytes: limits.reserve.map(|reserve| reserve.0),
            iops_max: limits.iops_max,
            kib_per_second_max: limits.kib_per_second_max,
            ..Self::default()
        }
    }
}

/// The answer to a readmission.
#[derive(Deserialize)]
struct ReadmittedRow {
    initiators: Vec<String>,
    nbd: bool,
}

impl OnlinePool {
    /// # Errors
    ///
    /// The pool is stopped.
    pub fn new(server: ServerConnection, row: PoolRow, place: &Path) -> Result<Self, Refusal> {
        let PoolRow { id, name, reason, folder, .. } = row;
        let own_name = name.clone();
        let stopped = || {
            let reason = reason.unwrap_or_else(|| "it is stopped".to_owned());
            Refusal::new(format!("pool {name}: {reason}"), "see the server's messages")
        };
        let (id, folder) = (id.ok_or_else(stopped)?, folder.map_or_else(PathBuf::new, PathBuf::from));
        Ok(Self {
            id,
            name: own_name,
            server,
            place: place.to_owned(),
            folder,
            is_folder: false,
            repeated: String::new(),
        })
    }

    /// A pool that was given as its folder.
    ///
    /// # Errors
    ///
    /// The pool is stopped.
    pub fn of_folder(server: ServerConnection, row: PoolRow, place: &Path) -> Result<Self, Refusal> {
        Ok(Self { is_folder: true, ..Self::new(server, row, place)? })
    }

    /// The same, at a server that was named by `address`.
    pub fn named_by(self, address: &ServerAddress) -> Self {
        Self { repeated: address.repeated(), ..self }
    }

    /// The arguments that name the server, each behind a blank; none for one that is found by the pool.
    pub fn repeated(&self) -> &str {
        &self.repeated
    }

    pub fn is_folder(&self) -> bool {
        self.is_folder
    }

    /// True if the server is on this machine, as far as can be known: a port may lead elsewhere.
    pub fn is_here(&self) -> bool {
        matches!(self.server.address(), Address::Unix(_))
    }

    /// The pool as a word of a command.
    pub fn word(&self) -> String {
        quoted(&self.place.display().to_string())
    }

    /// The pool as a word of a command, with the server.
    pub fn word_and_server(&self) -> PathBuf {
        PathBuf::from(format!("{}{}", self.word(), self.repeated))
    }

    /// The pool as it was given.
    pub fn place(&self) -> &Path {
        &self.place
    }

    /// Its folder on the server.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Its name at the server.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its UUID.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The row of a volume.
    ///
    /// # Errors
    ///
    /// There is no such volume; the server does not answer.
    pub async fn volume_row(&self, name: &str) -> Result<VolumeEntry, Refusal> {
        self.volume(&VolumeRef::Name(name.to_owned())).await
    }

    /// As [`OnlinePool::volume_row`], also if work that was interrupted left it with `end` behind its name.
    ///
    /// # Errors
    ///
    /// As there.
    pub async fn volume_row_or(&self, name: &str, end: &str) -> Result<VolumeEntry, Refusal> {
        let found = self.volume_row(name).await;
        match found {
            Ok(row) => Ok(row),
            Err(missing) => self.volume_row(&format!("{name}{end}")).await.map_err(|_| missing),
        }
    }

    /// The path of its resources at the server, which `end` follows.
    pub fn path(&self, end: &str) -> String {
        format!("/v1/pools/{}{end}", self.id)
    }

    /// A text of the server with the pool as it was given, where that has its folder. Paths of files stay, unless it was
    /// given as its folder.
    pub fn as_given(&self, text: &str) -> String {
        let (folder, place) = (self.folder.display().to_string(), self.place.display().to_string());
        if folder.is_empty() {
            return text.to_owned();
        }
        let mut parts = text.split(&folder);
        let mut given = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            // Another folder whose name begins with that of this one, or that lies elsewhere.
            let is_name = |c: char| c.is_alphanumeric() || "-_.".contains(c);
            let is_other = part.starts_with(|next: char| next.is_alphanumeric() || "-_".contains(next))
                || given.ends_with(is_name);
            let is_file = part.starts_with('/') && !self.is_folder;
            given += if is_other || is_file { &folder } else { &place };
            given += part;
        }
        given
    }

    pub fn server(&self) -> &ServerConnection {
        &self.server
    }

    /// Services and clients of the volume that a change of `volume` concerns: of one that a rollback left, the volume itself.
    ///
    /// # Errors
    ///
    /// There is no such volume; the server does not answer.
    pub async fn uses(&self, volume: &VolumeRef) -> Result<VolumeUses, Refusal> {
        let mut row = self.volume(volume).await?;
        if let Some(name) = row.left_by {
            row = self.volume(&VolumeRef::Name(name)).await?;
        }
        self.server.get(&format!("/v1/volumes/{}/uses", row.id)).await
    }

    /// Facts of a volume; `None` if it has no such snapshot.
    ///
    /// # Errors
    ///
    /// There is no such volume; the server does not answer.
    pub async fn facts(
        &self,
        volume: &VolumeRef,
        snapshot: Option<&str>,
    ) -> Result<Option<EndangeredVolume>, Refusal> {
        let row = self.volume(volume).await?;
        if let Some(name) = snapshot {
            let path = format!("/v1/volumes/{}/snapshots?name={}", row.id, in_uri(name));
            let page: SnapshotPage = self.server.get(&path).await?;
            if page.snapshots.is_empty() {
                return Ok(None);
            }
        }
        let uses = self.uses(volume).await?;
        Ok(Some(EndangeredVolume {
            size: ByteCount(row.size_bytes),
            is_needed: row.snapshots > 0 || row.group.is_some() || !uses.services.is_empty(),
            uses: uses_behind_comma(&uses),
        }))
    }

    /// The exact space of a volume, counted now.
    ///
    /// # Errors
    ///
    /// There is no such volume; the count goes on for more than 30 s; the server does not answer.
    pub async fn space(&self, volume: &VolumeRef) -> Result<VolumeSpaceStatus, Refusal> {
        let row = self.volume(volume).await?;
        let space: VolumeSpaceRow =
            self.server.get(&format!("/v1/volumes/{}/space?max_age_seconds=0", row.id)).await?;
        let (mut snapshots, mut after) = (Vec::new(), String::new());
        loop {
            let path = format!("/v1/volumes/{}/snapshots?exact_space=true&limit=5000{after}", row.id);
            let page: SnapshotPage = self.server.get(&path).await?;
            snapshots.extend(page.snapshots.into_iter().map(|snapshot| SnapshotSpaceStatus {
                name: snapshot.name,
                reclaimable_bytes: snapshot.reclaimable_bytes.unwrap_or_default(),
            }));
            match page.next {
                Some(next) => after = format!("&after={next}"),
                None => break,
            }
        }
        Ok(VolumeSpaceStatus {
            as_of: Some(space.as_of),
            used_bytes: space.used_bytes,
            volume_bytes: space.volume_bytes,
            snapshots_bytes: space.snapshots_bytes,
            others_bytes: space.others_bytes,
            reclaimable_bytes: space.reclaimable_bytes,
            snapshots,
        })
    }

    /// Makes a change.
    ///
    /// # Errors
    ///
    /// As of a stopped pool; or because of clients; or the server does not answer.
    pub async fn perform(&self, change: &VolumeChange) -> Result<ChangedVolume, Refusal> {
        match change {
            VolumeChange::Create { name, size_bytes, write_cache, raid0, limits } => {
                let body = VolumeBody {
                    name: Some(name),
                    size_bytes: Some(*size_bytes),
                    write_cache: Some(*write_cache),
                    raid0: *raid0,
                    ..VolumeBody::of(limits)
                };
                let path = format!("/v1/pools/{}/volumes", self.id);
                let reply = self.send(Method::POST, &path, Some(&body)).await?;
                Ok(changed(self.new_one(reply, name)?.parsed()?))
            }
            VolumeChange::Set { volume, limits, write_cache } => {
                let write_cache = *write_cache;
                self.patch(volume, &VolumeBody { write_cache, ..VolumeBody::of(limits) }).await
            }
            VolumeChange::Resize { volume, size_bytes, may_shrink } => {
                let (size_bytes, may_shrink) = (Some(*size_bytes), *may_shrink);
                self.patch(volume, &VolumeBody { size_bytes, may_shrink, ..VolumeBody::default() }).await
            }
            VolumeChange::Rename { volume, name } => {
                self.patch(volume, &VolumeBody { name: Some(name), ..VolumeBody::default() }).await
            }
            VolumeChange::Delete { volume } => self.of_volume(Method::DELETE, volume, "").await,
            VolumeChange::Snapshot { volumes, name, note } => self.snapshot(volumes, name, note).await,
            VolumeChange::DeleteSnapshot { volume, snapshot } => {
                let row = self.volume(volume).await?;
                let snapshot = self.snapshot_id(&row, snapshot).await?;
                let path = format!("/v1/volumes/{}/snapshots/{snapshot}", row.id);
                self.send(Method::DELETE, &path, None::<&()>).await?.checked()?;
                Ok(changed(row))
            }
            VolumeChange::Clone { source, snapshot, name, is_independent } => {
                let row = self.volume(source).await?;
                let body = NewCloneBody {
                    name: name.clone(),
                    snapshot: name_of(snapshot.as_ref()),
                    independent: *is_independent,
                };
                let path = format!("/v1/volumes/{}/clones", row.id);
                Ok(changed(self.send(Method::POST, &path, Some(&body)).await?.parsed()?))
            }
            VolumeChange::RollBack { volume, to, is_forced } => {
                let row = self.volume(volume).await?;
                let (snapshot, to_volume) = match to {
                    RollbackTo::Snapshot(snapshot) => (name_of(Some(snapshot)), None),
                    RollbackTo::Volume(other) => (None, Some(self.volume(other).await?.name)),
                    RollbackTo::Left => (None, None),
                };
                let body = RollbackBody { snapshot, to_volume, force: *is_forced };
                let path = format!("/v1/volumes/{}/rollback", row.id);
                let done: RollbackRow = self.send(Method::POST, &path, Some(&body)).await?.parsed()?;
                let withheld =
                    WithheldClients { initiators: done.withheld_from, nbd: done.withheld_from_nbd };
                let facts = ChangeFacts::RolledBack {
                    left_name: done.left,
                    size_before: ByteCount(done.size_before_bytes),
                    withheld,
                };
                Ok(ChangedVolume { facts, ..changed(done.volume) })
            }
            VolumeChange::Fill { volume } => self.of_volume(Method::PUT, volume, "/filling").await,
            VolumeChange::CancelFilling { volume } => {
                self.of_volume(Method::DELETE, volume, "/filling").await
            }
            VolumeChange::Readmit { volume, clients } => {
                let row = self.volume(volume).await?;
                let body = match clients {
                    ReadmittedClients::All => ReadmissionBody { all: true, ..ReadmissionBody::default() },
                    ReadmittedClients::Named { initiators, nbd } => {
                        ReadmissionBody { initiators: initiators.clone(), nbd: *nbd, all: false }
                    }
                };
                let path = format!("/v1/volumes/{}/readmission", row.id);
                let done: ReadmittedRow = self.send(Method::POST, &path, Some(&body)).await?.parsed()?;
                let answer = ReadmissionAnswer { initiators: done.initiators, nbd: done.nbd };
                Ok(ChangedVolume { facts: ChangeFacts::Readmitted(answer), ..changed(row) })
            }
        }
    }

    async fn snapshot(
        &self,
        volumes: &[VolumeRef],
        name: &str,
        note: &str,
    ) -> Result<ChangedVolume, Refusal> {
        let mut rows = Vec::new();
        for volume in volumes {
            rows.push(self.volume(volume).await?);
        }
        let (name, note) = (name.to_owned(), note.to_owned());
        let reply = match &rows[..] {
            [row] => {
                let body = NewSnapshotBody { name: name.clone(), note };
                self.send(Method::POST, &format!("/v1/volumes/{}/snapshots", row.id), Some(&body)).await?
            }
            _ => {
                let volumes = rows.iter().map(|row| row.id.clone()).collect();
                let body = NewSnapshotsBody { name: name.clone(), note, volumes, within_ms: None };
                self.send(Method::POST, &format!("/v1/pools/{}/snapshots", self.id), Some(&body)).await?
            }
        };
        self.new_one(reply, &name)?.checked()?;
        let first = rows.into_iter().next();
        first.map(changed).ok_or_else(|| Refusal::new("a snapshot of no volume", HELP))
    }

    async fn patch(&self, volume: &VolumeRef, patch: &VolumeBody<'_>) -> Result<ChangedVolume, Refusal> {
        let path = format!("/v1/volumes/{}", self.volume(volume).await?.id);
        Ok(changed(self.send(Method::PATCH, &path, Some(patch)).await?.parsed()?))
    }

    /// A change without a body; `end` is the end of its path.
    async fn of_volume(
        &self,
        method: Method,
        volume: &VolumeRef,
        end: &str,
    ) -> Result<ChangedVolume, Refusal> {
        let row = self.volume(volume).await?;
        let path = format!("/v1/volumes/{}{end}", row.id);
        self.send(method, &path, None::<&()>).await?.checked()?;
        Ok(changed(row))
    }

    pub(super) async fn send<B: Serialize>(
        &self,
        method: Method,
        path: &str,
        body: Option<&B>,
    ) -> Result<ApiReply, Refusal> {
        self.server.change(method, path, body).await
    }

    /// Programs may ask for the same thing twice and find it done; a person learns that the name is taken.
    fn new_one(&self, reply: ApiReply, name: &str) -> Result<ApiReply, Refusal> {
        let is_other = reply.problem().is_some_and(|problem| problem.kind == "urn:spindle:exists");
        match is_other || reply.status == 200 {
            true => Err(self.refusal(&Error::NameTaken(name.to_owned()))),
            false => Ok(reply),
        }
    }

    async fn volume(&self, volume: &VolumeRef) -> Result<VolumeEntry, Refusal> {
        match volume {
            VolumeRef::Id(id) => self.server.get(&format!("/v1/volumes/{id}")).await,
            VolumeRef::Name(name) => {
                let path = format!("/v1/volumes?pool={}&name={}", self.id, in_uri(name));
                let page: VolumePage = self.server.get(&path).await?;
                let found = page.volumes.into_iter().next();
                found.ok_or_else(|| self.refusal(&Error::NoVolume(name.clone())))
            }
        }
    }

    /// UUID of a snapshot.
    pub(super) async fn snapshot_id(
        &self,
        volume: &VolumeEntry,
        snapshot: &SnapshotRef,
    ) -> Result<String, Refusal> {
        let name = match snapshot {
            SnapshotRef::Id(id) => return Ok(id.to_string()),
            SnapshotRef::Name(name) => name,
        };
        let path = format!("/v1/volumes/{}/snapshots?name={}", volume.id, in_uri(name));
        let page: SnapshotPage = self.server.get(&path).await?;
        let missing = Error::NoSnapshot { volume: volume.name.clone(), snapshot: name.clone() };
        page.snapshots.into_iter().next().map(|row| row.id).ok_or_else(|| self.refusal(&missing))
    }

    fn refusal(&self, error: &Error) -> Refusal {
        serving::pool::folder::refusal(&self.place, error, HELP)
    }
}

/// Services and clients in words, behind a comma; empty if there are none.
fn uses_behind_comma(VolumeUses { services, initiators, nbd_clients }: &VolumeUses) -> String {
    let mut clients = initiators.clone();
    clients.extend(nbd_clients.then(|| "NBD clients".to_owned()));
    match (services.is_empty(), clients.is_empty()) {
        (true, _) => String::new(),
        (false, true) => format!(", served as {}", services.join(", ")),
        (false, false) => format!(", served as {}, to {}", services.join(", "), clients.join(", ")),
    }
}

fn name_of(snapshot: Option<&SnapshotRef>) -> Option<String> {
    snapshot.map(|snapshot| snapshot.key().to_string())
}

fn changed(row: VolumeEntry) -> ChangedVolume {
    let setting = VolumeSetting {
        class: if row.raid0 { RedundancyClass::Raid0 } else { RedundancyClass::Raid1 },
        write_cache: if row.write_cache { WriteCache::On } else { WriteCache::Off },
        bounds: Bounds { reserve_bytes: row.reserve_bytes, limit_bytes: row.limit_bytes },
        rates: Rates { iops_max: row.iops_max, kib_per_second_max: row.kib_per_second_max },
    };
    ChangedVolume {
        name: row.name,
        size: ByteCount(row.size_bytes),
        limits: LimitStatus::of(&setting),
        facts: ChangeFacts::None,
    }
}
