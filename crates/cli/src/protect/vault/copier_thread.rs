//! Copies to vaults by the clock, on a thread of their own: the server's, for the sets that it keeps, and an agent's, for its
//! own. A copy takes as long as its line lets it.

use super::{
    arguments::VaultPassword,
    copying::{BackupCopier, CopyingWay, MadeCopy, note_copy},
    opening::OpenVault,
};
use crate::{
    console::Console,
    protect::{
        backup_points::SetPoints,
        worker::{ServerWorker, WorkerEnd},
    },
    server::{connection::ServerConnection, place::ServerPlace},
};
use control::web::client::{BackupCopyBody, SetKeeperName, SetRow, in_uri};
use protect::set_keeper::CopyDue;
use report::Refusal;
use std::{
    path::{Path, PathBuf},
    rc::Rc,
};
use vault::layout::CHUNK_BYTES;
use world::{
    ByteCount, Job, World,
    real::{RealOptions, ThreadHandle, spawn_thread},
};

/// A copy that a set wants now.
#[derive(Clone, Debug)]
pub struct DueCopy {
    set: String,
    number: u64,
    to: String,
    stay: u32,
    password_file: Option<PathBuf>,
    throttle: Option<ByteCount>,
}

/// The thread of a server that copies what is due.
///
/// # Errors
///
/// The system has no thread left.
pub fn start_server_copier(state: &Path) -> Result<ServerWorker, Refusal> {
    ServerWorker::start("vaults", state, |world, place, end| {
        Box::pin(async move {
            let console = Console::new(false, true);
            let Ok(server) = place.connection(&world) else { return };
            let work = async || one_of_server(&world, &server, &place, (&console, &end)).await;
            end.work_until(&world, &console, "copies of backups", work).await;
        })
    })
}

/// Makes one copy, if one is due.
async fn one_of_server(
    world: &World,
    server: &ServerConnection,
    place: &ServerPlace,
    (console, end): (&Console, &WorkerEnd),
) -> Result<bool, Refusal> {
    let rows: Vec<SetRow> = server.get("/v1/sets").await?;
    let of_server = rows.iter().filter(|row| row.kept_by == SetKeeperName::Server);
    let Some(due) = of_server.filter_map(due_in).next() else { return Ok(false) };
    let set = (due.set.as_str(), due.number);
    let body = match copy_one(world, server, place, end, &due).await {
        Ok((made, vault)) => {
            if let Some(left) = &made.left {
                console
                    .warn(&format!("{}: copies that are too many are left in {}: {left}", due.set, due.to));
            }
            made.body(&vault)
        }
        // It is begun again after the next start.
        Err(_) if end.is_ordered() => return Ok(false),
        Err(refusal) => {
            let (to, problem) = (due.to.clone(), Some(refusal.to_string()));
            BackupCopyBody { to, problem, ..BackupCopyBody::default() }
        }
    };
    note_copy(server, set, &body).await?;
    Ok(true)
}

fn due_in(row: &SetRow) -> Option<DueCopy> {
    let vault = row.vault.as_ref()?;
    let due = vault.due.as_ref()?;
    Some(DueCopy {
        set: row.name.clone(),
        number: due.number,
        to: vault.to.clone(),
        stay: due.count,
        password_file: due.password_file.as_ref().map(PathBuf::from),
        throttle: due.throttle_bytes.map(ByteCount),
    })
}

impl DueCopy {
    /// The copy that a keeper wants.
    pub fn of(set: &str, due: &CopyDue) -> Self {
        Self {
            set: set.to_owned(),
            number: due.number,
            to: due.to.clone(),
            stay: due.count,
            password_file: due.password_file.clone(),
            throttle: due.throttle.map(|rate| ByteCount(rate.0)),
        }
    }
}

/// Copies a backup of an agent's set on a thread of its own.
///
/// # Errors
///
/// The system has no thread left.
pub fn copy_for_agent(
    due: DueCopy,
    place: &ServerPlace,
    end: &WorkerEnd,
) -> Result<ThreadHandle<Result<MadeCopy, Refusal>>, Refusal> {
    let (place, end) = (place.clone(), end.clone());
    let main = move |world: World| {
        Box::pin(async move {
            let server = place.connection(&world)?;
            copy_one(&world, &server, &place, &end, &due).await.map(|(made, _)| made)
        }) as _
    };
    spawn_thread("vaults", 0, RealOptions::default(), main)
        .map_err(|error| Refusal::new(format!("no thread for copies: {error}"), ""))
}

async fn copy_one(
    world: &World,
    server: &ServerConnection,
    place: &ServerPlace,
    end: &WorkerEnd,
    due: &DueCopy,
) -> Result<(MadeCopy, OpenVault), Refusal> {
    let password = VaultPassword { password_file: due.password_file.clone() };
    let vault = OpenVault::open(world, &due.to, &password).await?;
    let known = SetPoints::ask(server, &due.set).await?;
    let backup = known.whole(&due.number.to_string())?;
    let row: SetRow = server.get(&format!("/v1/sets/{}", in_uri(&due.set))).await?;
    let job = Rc::new(Job::under_way(world));
    let (cancelled, ordered, looked) = (Rc::clone(&job), end.clone(), world.clone());
    world.spawn("end of copies", async move {
        ordered.ordered(&looked).await;
        cancelled.cancel();
    });
    let copier = BackupCopier { world, server, place, vault: &vault };
    let way = CopyingWay { chunk: CHUNK_BYTES[0], throttle: due.throttle, stay: Some(due.stay) };
    let made = copier.copy((&known, backup, &row), way, &job).await?;
    Ok((made, vault))
}
