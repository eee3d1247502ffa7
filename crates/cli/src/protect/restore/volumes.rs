//! The volumes of a set while they are restored: looked at, taken back, or cloned.
//!
//! Invariant: a volume that is as its point is left alone.

use crate::{console::Console, protect::temporary_clones::make_clone, server::connection::ServerConnection};
use control::web::{
    client::{BackupPointRow, DrGroupList, DrGroupRow, Method, RollbackBody, VolumeUses, in_uri},
    differences::DifferenceEnd,
    rows::{RollbackRow, VolumeEntry, VolumePage},
};
use report::Refusal;
use serde::Serialize;

/// A volume, and the point that it goes back to.
pub(super) struct RestoredVolume {
    pub volume: VolumeEntry,
    pub point: BackupPointRow,
    /// Hosts that use it.
    pub users: Vec<String>,
    /// It is as its point, or nothing of it is restored.
    pub is_done: bool,
}

/// The early end of a restore.
pub(super) struct EarlyEnd {
    pub refusal: Refusal,
    /// Volumes were restored, or cloned, before.
    pub has_changed: bool,
}

impl EarlyEnd {
    /// Of a restore that has changed volumes.
    pub(super) fn after_changes(problem: String, remedy: String) -> Self {
        Self { refusal: Refusal::new(problem, remedy), has_changed: true }
    }
}

impl From<Refusal> for EarlyEnd {
    fn from(refusal: Refusal) -> Self {
        Self { refusal, has_changed: false }
    }
}

#[derive(Serialize)]
pub(super) struct RestoredRow {
    /// `POOL/VOLUME`.
    pub volume: String,
    /// Name of the snapshot.
    pub snapshot: String,
    /// The volume with the state of before, or the clone; none if it was as its point already.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub made: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub used_by: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub withheld_from: Vec<String>,
}

/// The volumes as they are now.
pub(super) async fn look_at_all(
    server: &ServerConnection,
    points: &[BackupPointRow],
) -> Result<Vec<RestoredVolume>, Refusal> {
    let mut volumes = Vec::new();
    for point in points {
        volumes.push(look_at(server, point.clone()).await?);
    }
    Ok(volumes)
}

async fn look_at(server: &ServerConnection, point: BackupPointRow) -> Result<RestoredVolume, Refusal> {
    let path = format!("/v1/volumes/{}", in_uri(&point.volume_id));
    let volume: VolumeEntry = server.get(&path).await?;
    let users = users_of(server, &point.volume_id).await?;
    let is_done = is_unchanged_since(server, &path, &point.name).await?;
    Ok(RestoredVolume { volume, point, users, is_done })
}

/// Hosts that use a volume.
pub(super) async fn users_of(server: &ServerConnection, volume_id: &str) -> Result<Vec<String>, Refusal> {
    let uses: VolumeUses = server.get(&format!("/v1/volumes/{}/uses", in_uri(volume_id))).await?;
    let mut users = uses.initiators;
    if uses.nbd_clients {
        users.push("NBD clients".to_owned());
    }
    Ok(users)
}

/// True if nothing differs between a snapshot of a volume and now.
async fn is_unchanged_since(server: &ServerConnection, path: &str, snapshot: &str) -> Result<bool, Refusal> {
    let mut is_unchanged = false;
    let path = format!("{path}/difference?from={}&summary=true", in_uri(snapshot));
    let take = |line: &str| {
        if let Ok(DifferenceEnd { totals }) = serde_json::from_str(line) {
            let all = [&totals.data, &totals.zeroes, &totals.discarded, &totals.beyond_size];
            is_unchanged = all.iter().all(|total| total.bytes == 0);
        }
        Ok(())
    };
    server.get_lines(&path, take).await?;
    Ok(is_unchanged)
}

pub(super) fn refuse_users(volumes: &[RestoredVolume], is_forced: bool) -> Result<(), Refusal> {
    let used = volumes.iter().find(|volume| !volume.users.is_empty() && !volume.is_done);
    match used.filter(|_| !is_forced) {
        None => Ok(()),
        Some(used) => Err(Refusal::new(
            format!("{} is used by {}: nothing was restored", used.path(), used.users.join(", ")),
            "end the mail server, unmount and log out, or say ⟨force⟩ to withhold the volumes; ⟨as⟩ NAME restores beside them",
        )),
    }
}

pub(super) async fn roll_back_all(
    server: &ServerConnection,
    volumes: &[RestoredVolume],
    console: &Console,
) -> Result<Vec<RestoredRow>, EarlyEnd> {
    let mut rows: Vec<RestoredRow> = Vec::new();
    for volume in volumes {
        if volume.is_done {
            rows.push(volume.row());
            continue;
        }
        let body = RollbackBody {
            snapshot: Some(volume.point.name.clone()),
            force: true,
            ..RollbackBody::default()
        };
        match rollback_row(server, volume, &body).await {
            Ok(row) => rows.push(row),
            Err(refusal) => return Err(volume.ended_early(&rows, &refusal)),
        }
        console.say_progress(&format!("{}: restored", volume.path()));
    }
    Ok(rows)
}

/// Rolls a volume back.
pub(super) async fn rollback_row(
    server: &ServerConnection,
    volume: &RestoredVolume,
    body: &RollbackBody,
) -> Result<RestoredRow, Refusal> {
    let path = format!("/v1/volumes/{}/rollback", in_uri(&volume.volume.id));
    let done: RollbackRow = server.change_to_its_end(Method::POST, &path, Some(body)).await?.parsed()?;
    let mut withheld_from = done.withheld_from;
    withheld_from.extend(done.withheld_from_nbd.then(|| "all NBD clients".to_owned()));
    let made = Some(format!("{}/{}", volume.volume.pool, done.left));
    Ok(RestoredRow { made, withheld_from, ..volume.row() })
}

pub(super) async fn clone_all(
    server: &ServerConnection,
    volumes: &[RestoredVolume],
    suffix: &str,
    console: &Console,
) -> Result<Vec<RestoredRow>, EarlyEnd> {
    let mut rows: Vec<RestoredRow> = Vec::new();
    refuse_taken_names(server, volumes.iter(), suffix).await?;
    for volume in volumes {
        let name = volume.name_beside(suffix);
        let cloned = make_clone(server, &volume.volume.id, (Some(&volume.point.name), &name)).await;
        if let Err(refusal) = cloned {
            return Err(volume.ended_early(&rows, &refusal));
        }
        let made = format!("{}/{name}", volume.volume.pool);
        console.say_progress(&format!("{made}: cloned"));
        rows.push(RestoredRow { made: Some(made), ..volume.row() });
    }
    Ok(rows)
}

/// Refuses to let clones take the places of volumes that lie in a DR group.
pub(super) async fn refuse_in_dr_group(
    server: &ServerConnection,
    volumes: &[RestoredVolume],
    remedy: &str,
) -> Result<(), Refusal> {
    let list: DrGroupList = server.get("/v1/dr/groups").await?;
    for volume in volumes {
        let (pool, name) = (&volume.volume.pool, &volume.volume.name);
        let is_of = |group: &&DrGroupRow| group.pool == *pool && group.volumes.contains(name);
        if let Some(group) = list.groups.iter().find(is_of) {
            let problem = format!(
                "{} is in DR group {}, whose other site has no clone that takes its place: nothing was changed",
                volume.path(),
                group.name
            );
            return Err(Refusal::new(problem, remedy));
        }
    }
    Ok(())
}

/// Refuses to clone volumes beside if there is a volume of such a name.
pub(super) async fn refuse_taken_names(
    server: &ServerConnection,
    volumes: impl Iterator<Item = &RestoredVolume>,
    suffix: &str,
) -> Result<(), Refusal> {
    for volume in volumes {
        let name = volume.name_beside(suffix);
        let page: VolumePage = server.get(&format!("/v1/volumes?name={}", in_uri(&name))).await?;
        if page.volumes.iter().any(|known| known.pool == volume.volume.pool) {
            let problem =
                format!("there is a volume {}/{name} already: nothing was cloned", volume.volume.pool);
            return Err(Refusal::new(problem, "choose another name, or delete it"));
        }
    }
    Ok(())
}

/// Clones a volume as it is now; returns the path of the clone.
pub(super) async fn clone_live(
    server: &ServerConnection,
    volume: &RestoredVolume,
    suffix: &str,
) -> Result<String, Refusal> {
    let name = volume.name_beside(suffix);
    make_clone(server, &volume.volume.id, (None, &name)).await?;
    Ok(format!("{}/{name}", volume.volume.pool))
}

impl RestoredVolume {
    /// The name of its clone.
    fn name_beside(&self, suffix: &str) -> String {
        format!("{}-{suffix}", self.volume.name)
    }

    pub(super) fn path(&self) -> String {
        format!("{}/{}", self.volume.pool, self.volume.name)
    }

    pub(super) fn row(&self) -> RestoredRow {
        RestoredRow {
            volume: self.path(),
            snapshot: self.point.name.clone(),
            made: None,
            used_by: self.users.clone(),
            withheld_from: Vec::new(),
        }
    }

    /// The refusal of a restore in which this volume failed after others.
    pub(super) fn ended_early(&self, done: &[RestoredRow], refusal: &Refusal) -> EarlyEnd {
        let done: Vec<&str> = done.iter().filter(|row| row.made.is_some()).map(|row| &*row.volume).collect();
        let before = match done.is_empty() {
            true => "nothing was changed".to_owned(),
            false => format!("{} is done", done.join(", ")),
        };
        let refusal = Refusal::new(
            format!("{}: {}; {before}", self.path(), refusal.problem()),
            format!("{}; then give the same command again, before a host connects", refusal.remedy()),
        );
        EarlyEnd { refusal, has_changed: !done.is_empty() }
    }
}
