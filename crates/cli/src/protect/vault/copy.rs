//! `spindle protect vault copy`.

use super::{
    arguments::VaultCopyArguments,
    differences::{base_of, difference},
    exported::VaultExports,
    opening::OpenVault,
    watch::VaultWatch,
};
use crate::{
    console::Console,
    exit_status::ExitStatus,
    protect::{
        backup_points::{PointsOfBackup, SetPoints},
        restore::points_to_restore,
    },
    server::{connection::ServerConnection, place::ServerPlace},
};
use control::web::client::{
    BackupCopyBody, BackupPointRow, Method, SetBackupRow, SetKeeperName, SetRow, in_uri,
};
use protect::backup_schedule::BackupKind;
use report::Refusal;
use serde::Serialize;
use std::rc::Rc;
use vault::{
    contents::{CopiedBackup, copied_backups},
    copying::{self, CopyOrder, CopyOutcome, VolumeSource},
    layout::SliceLayout,
    record::{BackupRecord, RECORD_FORMAT, RECORD_VERSION, VolumeRecord},
};
use world::{BlockDevice, ByteCount, World};

/// The answer as JSON.
#[derive(Serialize)]
struct CopyAnswer<'a> {
    set: &'a str,
    backup: &'a str,
    vault: String,
    /// Name of the snapshot there.
    snapshot: String,
    /// The vault had it already.
    was_there: bool,
    read_bytes: u64,
    stored_bytes: u64,
    /// Volumes that were read as a whole.
    read_whole: Vec<String>,
    /// The catalogue of the set has it.
    is_noted: bool,
}

/// Runs the verb to its end.
pub async fn run(
    world: &World,
    arguments: &VaultCopyArguments,
    place: &ServerPlace,
    console: &Console,
) -> Result<ExitStatus, Refusal> {
    let server = place.connection(world)?;
    let known = SetPoints::ask(&server, &arguments.set).await?;
    let backup = known.meant(arguments.backup.as_deref())?;
    let mut points = points_to_restore(&known, backup)?;
    points.sort_by(|a, b| (&a.pool, &a.volume).cmp(&(&b.pool, &b.volume)));
    let vault = OpenVault::open(world, &arguments.to, &arguments.password).await?;
    let copies = copied_backups(&vault.repository).await.map_err(|error| vault.refused(&error))?;
    let (catalogue, number) = (backup.note.set.to_string(), backup.note.sequence);
    let (backup_name, mut answer) = (backup.name.clone(), answer(arguments, backup, &vault));
    if let Some(copy) = copies.iter().find(|copy| is_of(copy, &catalogue, number)) {
        (answer.snapshot, answer.was_there) = (copy.id.to_string(), true);
        console.say(&format!("{backup_name}: {} has it already", vault.place()));
        return tell(&answer, console);
    }
    let row = set_row(&server, &arguments.set).await?;
    let mut exports = VaultExports::new(&server, place, &vault.repository.config.id);
    let copied = async {
        let mut volumes = Vec::new();
        for point in &points {
            volumes.push(source(world, arguments, (&server, &known, &copies), point, &mut exports).await?);
        }
        let record = record(arguments, backup, &row);
        let watch = VaultWatch::begin(world, console, "copy");
        let order = CopyOrder { record, volumes, throttle: arguments.throttle };
        let copied = copying::copy(&vault.repository, order, &watch.job).await;
        watch.end();
        copied.map_err(|error| vault.refused(&error))
    };
    let copied = copied.await;
    let deleted = exports.delete().await;
    let CopyOutcome { snapshot, read_bytes, stored_bytes, whole, resumed_packs } = copied?;
    deleted?;
    (answer.snapshot, answer.read_bytes, answer.stored_bytes) =
        (snapshot.to_string(), read_bytes, stored_bytes);
    let (read, stored) = (ByteCount(read_bytes), ByteCount(stored_bytes));
    console.say(&format!("{backup_name}: copied to {}: {read} read, {stored} stored", vault.place()));
    for (volume, why) in &whole {
        console.say(&format!("  {volume}: all that is allocated was read: {why}"));
    }
    if resumed_packs > 0 {
        console.say(&format!("  {resumed_packs} packs of a copy that ended early were used"));
    }
    answer.read_whole = whole.into_iter().map(|(volume, _)| volume).collect();
    answer.is_noted = row.kept_by == SetKeeperName::Server;
    if answer.is_noted {
        let path = format!("/v1/sets/{}/backups/{number}/copies", in_uri(&arguments.set));
        let body = BackupCopyBody { to: vault.place(), id: snapshot.to_string(), bytes: stored_bytes };
        server.change_to_its_end(Method::POST, &path, Some(&body)).await?.checked()?;
    } else {
        console.warn("an agent keeps the set: its catalogue does not have this copy");
    }
    tell(&answer, console)
}

/// True if a copy is of this backup.
fn is_of(copy: &CopiedBackup, catalogue: &str, number: u64) -> bool {
    copy.record.catalogue == catalogue && copy.record.backup == number
}

fn answer<'a>(
    arguments: &'a VaultCopyArguments,
    backup: &'a PointsOfBackup,
    vault: &OpenVault,
) -> CopyAnswer<'a> {
    CopyAnswer {
        set: &arguments.set,
        backup: &backup.name,
        vault: vault.place(),
        snapshot: String::new(),
        was_there: false,
        read_bytes: 0,
        stored_bytes: 0,
        read_whole: Vec::new(),
        is_noted: false,
    }
}

fn tell(answer: &CopyAnswer<'_>, console: &Console) -> Result<ExitStatus, Refusal> {
    if console.is_for_programs() {
        console.json_of(answer)?;
    }
    console.finish(ExitStatus::Pass)
}

async fn set_row(server: &ServerConnection, set: &str) -> Result<SetRow, Refusal> {
    server.get(&format!("/v1/sets/{}", in_uri(set))).await
}

/// A volume to be copied: exported, with its difference to the vault.
async fn source(
    world: &World,
    arguments: &VaultCopyArguments,
    (server, known, copies): (&ServerConnection, &SetPoints, &[CopiedBackup]),
    point: &BackupPointRow,
    exports: &mut VaultExports<'_>,
) -> Result<VolumeSource, Refusal> {
    let layout = SliceLayout::with_chunks(arguments.chunk);
    let since = match base_of(copies, known, point, layout) {
        Some(base) => difference(server, &base, point).await?,
        None => None,
    };
    let device = Rc::new(exports.snapshot(world, point).await?);
    let geometry = device.geometry();
    let record = VolumeRecord {
        pool: point.pool.clone(),
        volume: point.volume.clone(),
        volume_id: point.volume_id.clone(),
        snapshot: point.name.clone(),
        snapshot_id: point.snapshot_id.clone(),
        size_bytes: geometry.size.0,
        block_bytes: geometry.sector,
        layout,
    };
    Ok(VolumeSource { record, device: Rc::clone(&device) as Rc<dyn BlockDevice>, holes: Some(device), since })
}

/// The record of the backup, by the notes of its points and by the server's catalogue.
fn record(arguments: &VaultCopyArguments, backup: &PointsOfBackup, row: &SetRow) -> BackupRecord {
    let note = &backup.note;
    let known: Option<&SetBackupRow> = row.backups.iter().find(|row| row.number == note.sequence);
    let kind = match note.kind {
        BackupKind::Full => "full",
        BackupKind::InterimLogs => "logs",
        BackupKind::InterimCrash => "crash",
    };
    let reasons = known.map(|row| row.reasons.clone()).unwrap_or_default();
    BackupRecord {
        format: RECORD_FORMAT.to_owned(),
        version: RECORD_VERSION,
        set: arguments.set.clone(),
        catalogue: note.set.to_string(),
        backup: note.sequence,
        name: backup.name.clone(),
        kind: kind.to_owned(),
        label: known.map_or(note.label.word(), |row| &row.label).to_owned(),
        reason: reasons.first().cloned(),
        evidence: reasons,
        needs: note.needs,
        note: note.encode(),
        cut_at: known.map(|row| row.at.clone()),
        volumes: Vec::new(),
        program: format!("spindle {}", env!("CARGO_PKG_VERSION")),
    }
}
