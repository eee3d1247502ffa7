//! Verifications and drills on a thread of their own, beside work that must not wait: the server's, for the sets that it keeps,
//! and an agent's verifications, for its own.

use super::{
    backup_exports::delete_left,
    backup_points::SetPoints,
    drills::{DrillCheck, note_drill},
    temporary_clones::delete_overdue,
    verification::{BackupVerifier, DueBackup, VerifiedBackup, VerifyingWay, due_in, verify_due},
    worker::{ServerWorker, WorkerEnd},
};
use crate::{
    console::Console,
    server::{connection::ServerConnection, place::ServerPlace},
    verify::{Watching, arguments::parse_level},
};
use control::web::client::{SetKeeperName, SetRow};
use protect::set_keeper::VerificationDue;
use report::Refusal;
use std::{collections::BTreeSet, path::Path, time::Duration};
use world::{
    ByteCount, World,
    real::{RealOptions, ThreadHandle, spawn_thread},
};

/// Begin the names of the exports.
const OF_SERVER: &str = "verifying";
const OF_AGENT: &str = "agent-verifying";
/// Interval of looks for clones and exports whose time has passed.
const OVERDUE_EVERY: Duration = Duration::from_secs(600);

/// The thread of a server that verifies what is due, and holds drills.
///
/// # Errors
///
/// The system has no thread left.
pub fn start_server_verifier(state: &Path) -> Result<ServerWorker, Refusal> {
    ServerWorker::start("verifier", state, |world, place, end| {
        Box::pin(async move { keep_verifying(&world, &place, &end).await })
    })
}

async fn keep_verifying(world: &World, place: &ServerPlace, end: &WorkerEnd) {
    let console = Console::new(false, true);
    let watching = end.watching();
    let Ok(server) = place.connection(world) else { return };
    let verifier = BackupVerifier { world, server: &server, place, console: &console, watching: &watching };
    let mut cleared = BTreeSet::new();
    let mut looked_for_overdue = None;
    let work = async || {
        // Clones of mail hosts and drills that died.
        if looked_for_overdue.is_none_or(|at| world.now().since(at) >= OVERDUE_EVERY) {
            delete_overdue(&server, world.wall().seconds, &console).await?;
            looked_for_overdue = Some(world.now());
        }
        one_of_server(&verifier, &mut cleared).await
    };
    end.work_until(world, &console, "verifications of backups", work).await;
}

/// Verifies one backup, or holds one drill, if one is due.
async fn one_of_server(
    verifier: &BackupVerifier<'_>,
    cleared: &mut BTreeSet<String>,
) -> Result<bool, Refusal> {
    let rows: Vec<SetRow> = verifier.server.get("/v1/sets").await?;
    let is_ours = |row: &&SetRow| row.kept_by == SetKeeperName::Server;
    let has_rules = |row: &&SetRow| is_ours(row) && row.verification.is_some();
    for row in rows.iter().filter(has_rules).filter(|row| !cleared.contains(&row.name)) {
        delete_left(verifier.server, OF_SERVER, &row.name).await?;
    }
    cleared.extend(rows.iter().filter(has_rules).map(|row| row.name.clone()));
    if let Some(due) = rows.iter().filter_map(due_in).find(|due| !due.is_elsewhere) {
        verify_due(verifier, &due, OF_SERVER).await?;
        return Ok(true);
    }
    let is_due = |row: &&SetRow| row.drill.as_ref().is_some_and(|drill| drill.is_due);
    let Some(set) = rows.iter().filter(is_ours).find(is_due) else { return Ok(false) };
    let throttle = set.verification.as_ref().and_then(|rules| rules.throttle_bytes).map(ByteCount);
    let check = DrillCheck::Databases { throttle };
    let held = verifier.hold_drill(&set.name, None, check).await?;
    note_drill(verifier.server, &set.name, &held).await?;
    Ok(true)
}

/// Verifies a backup of an agent's set on a thread of its own.
///
/// # Errors
///
/// The system has no thread left.
pub fn verify_for_agent(
    set: &str,
    due: &VerificationDue,
    place: &ServerPlace,
    end: &WorkerEnd,
) -> Result<ThreadHandle<Result<VerifiedBackup, Refusal>>, Refusal> {
    let due = DueBackup {
        set: set.to_owned(),
        number: due.number,
        level: parse_level(due.level).expect("the levels of policies are those of the verifier"),
        throttle: due.throttle.map(|rate| ByteCount(rate.0)),
        is_elsewhere: false,
    };
    let (place, end) = (place.clone(), end.clone());
    let main = move |world: World| {
        Box::pin(async move {
            let (console, watching) = (Console::new(false, true), end.watching());
            let server = place.connection(&world)?;
            verify_one(&world, &server, &place, (&console, &watching), &due).await
        }) as _
    };
    spawn_thread("verifier", 0, RealOptions::default(), main)
        .map_err(|error| Refusal::new(format!("no thread for verifications: {error}"), ""))
}

async fn verify_one(
    world: &World,
    server: &ServerConnection,
    place: &ServerPlace,
    (console, watching): (&Console, &Watching),
    due: &DueBackup,
) -> Result<VerifiedBackup, Refusal> {
    delete_left(server, OF_AGENT, &due.set).await?;
    let known = SetPoints::ask(server, &due.set).await?;
    let way = VerifyingWay { purpose: OF_AGENT, level: due.level, throttle: due.throttle };
    let verifier = BackupVerifier { world, server, place, console, watching };
    verifier.verify(&known, known.whole(&due.number.to_string())?, way).await
}
