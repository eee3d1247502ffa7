//! `spindle pool show` and `force-open`.

use super::{
    damaged, job_text::job_text, online_pool::OnlinePool, pool_place::PoolPlace, volume_access::VerbOptions,
};
use crate::{
    console::{Console, StderrNotices},
    exit_status::ExitStatus,
};
use array::pool::OpenSetting;
use control::web::{health_rows::JobRow, rows::PoolRow};
use report::{Refusal, duration::show_duration};
use serde::Serialize;
use serving::pool::{
    events::EventReport,
    folder::{HeldPool, OpenPool, is_held},
    record::is_pool,
    snapshot_room::room_to_make,
    status::{DriveStatus, PoolStatus, PublishedStatus, used_of},
};
use std::{path::Path, time::Duration};
use world::{ByteCount, World, real::AccessMode};

/// The process that has a pool open publishes its status every minute.
const SILENCE_MAX_SECONDS: u64 = 180;

/// [`PoolStatus`], and the process that has the pool open, if any.
#[derive(Serialize)]
struct ShowAnswer<'a> {
    #[serde(flatten)]
    shown: &'a PoolStatus,
    in_use: Option<InUse<'a>>,
    /// The server that has the pool open, if one has.
    #[serde(skip_serializing_if = "Option::is_none")]
    server: Option<ShownServer>,
}

/// The server that has the pool open.
#[derive(Serialize)]
struct ShownServer {
    address: String,
    /// The change of drives or settings that is under way.
    #[serde(skip_serializing_if = "Option::is_none")]
    change_under_way: Option<String>,
    jobs: Vec<JobRow>,
}

/// The process that has the pool open.
#[derive(Serialize)]
struct InUse<'a> {
    process: u32,
    opened_at: &'a str,
    written_at: &'a str,
    age_seconds: u64,
    /// Why nothing is written any more, if so.
    stopped: Option<&'a str>,
    /// Oldest first.
    events: &'a [EventReport],
}

/// Opens a pool without the drives that are missing; from then on it opens without them.
pub async fn force_open(world: &World, folder: &Path, json: bool) -> Result<ExitStatus, Refusal> {
    let open = OpenPool::open_without_missing(world, folder, &StderrNotices::shared()).await?;
    let there = open.pool.drives_present();
    open.close().await?;
    let console = Console::new(json, false);
    if json {
        console.json_of(&serde_json::json!({ "path": folder, "drives_in_use": there }))?;
    }
    console.say(&format!("{}: open with {there} drives, and closed again", folder.display()));
    console.finish(ExitStatus::Pass)
}

/// Prints a pool's status: opens and closes it, or asks the server that has it open, or reads what another process that has it
/// open published.
pub async fn show(world: &World, pool: &Path, options: VerbOptions<'_>) -> Result<ExitStatus, Refusal> {
    let console = Console::new(options.json, false);
    let place = match PoolPlace::of_pool(world, pool, options.server).await {
        // A server that starts or does not let this caller in: its process has published a status.
        Err(_) if options.server.server.is_none() && is_pool(pool) && is_held(pool) => PoolPlace::Folder,
        place => place?,
    };
    if let PoolPlace::Served(served) = &place {
        match show_served(world, served, &console).await {
            // One that ends, or that has no such status, may have published one.
            Err(_) if served.is_folder() && is_held(pool) => {}
            shown => return shown,
        }
    }
    if is_pool(pool) && is_held(pool) {
        return show_published(world, pool, &console);
    }
    let held = HeldPool::take(world, pool, AccessMode::ReadWrite).await?;
    let open = match held.open(world, OpenSetting::default(), &StderrNotices::shared()).await {
        Ok(open) => open,
        Err(failure) => return damaged::show(world, *failure, options.json).await,
    };
    let shown = PoolStatus::with_snapshot_room(&open).await;
    open.close().await?;
    if options.json {
        console.json_of(&ShowAnswer { shown: &shown, in_use: None, server: None })?
    } else {
        say(&console, pool, &shown)
    }
    console.finish(ExitStatus::Pass)
}

/// The status that a server gives, with its jobs, and the events that it published if its folder can be read.
async fn show_served(world: &World, pool: &OnlinePool, console: &Console) -> Result<ExitStatus, Refusal> {
    let shown = pool.status().await?;
    let server = pool.server();
    let row: PoolRow = server.get(&pool.path("")).await?;
    let jobs: Vec<JobRow> = server.get(&pool.path("/jobs")).await?;
    let address = server.address().to_string();
    // Behind a port may be another machine, with other folders.
    let published = pool.is_here().then(|| PublishedStatus::published(pool.folder()).ok()).flatten();
    let stopped = row.reason.is_some();
    if console.is_for_programs() {
        let in_use = published.as_ref().map(|status| InUse::of(status, status.age_seconds(world.wall())));
        let server = ShownServer { address, change_under_way: row.change_under_way, jobs };
        console.json_of(&ShowAnswer { shown: &shown, in_use, server: Some(server) })?;
    } else {
        say(console, pool.place(), &shown);
        let since = published.as_ref().map_or(String::new(), |status| format!(" since {}", status.opened_at));
        console.say(&format!("  open in the server at {address}{since}"));
        if let Some(change) = &row.change_under_way {
            console.say(&format!("  under way: {change}"));
        }
        for job in jobs.iter().filter(|job| job.is_open()) {
            console.say(&format!("  job {}", job_text(job)));
        }
        if let Some(reason) = &row.reason {
            console.say(&format!("  stopped: {}; nothing is written any more", pool.as_given(reason)));
        }
        for event in published.iter().flat_map(|status| &status.events) {
            console.say(&format!("  {} {}", event.time, pool.as_given(&event.line())));
        }
    }
    console.finish(if stopped { ExitStatus::Fail } else { ExitStatus::Pass })
}

impl<'a> InUse<'a> {
    fn of(status: &'a PublishedStatus, age_seconds: u64) -> Self {
        Self {
            process: status.process,
            opened_at: &status.opened_at,
            written_at: &status.written_at,
            age_seconds,
            stopped: status.stopped.as_deref(),
            events: &status.events,
        }
    }
}

/// A pool that has stopped is a failure.
fn show_published(world: &World, folder: &Path, console: &Console) -> Result<ExitStatus, Refusal> {
    let status = PublishedStatus::published(folder)?;
    let age_seconds = status.age_seconds(world.wall());
    if console.is_for_programs() {
        let in_use = Some(InUse::of(&status, age_seconds));
        console.json_of(&ShowAnswer { shown: &status.pool, in_use, server: None })?;
    } else {
        say(console, folder, &status.pool);
        console.say(&format!(
            "  in use by process {} since {}; this is what it published {age_seconds} s ago",
            status.process, status.opened_at
        ));
        if age_seconds > SILENCE_MAX_SECONDS {
            console.warn(&format!(
                "process {} publishes every minute, and has not for {age_seconds} s: it may hang, or cannot write to {}",
                status.process,
                folder.display()
            ));
        }
        if let Some(why) = &status.stopped {
            console.say(&format!("  stopped: {why}; nothing is written any more"));
        }
        for event in &status.events {
            console.say(&format!("  {} {}", event.time, event.line()));
        }
    }
    console.finish(if status.stopped.is_some() { ExitStatus::Fail } else { ExitStatus::Pass })
}

fn say(console: &Console, folder: &Path, shown: &PoolStatus) {
    let PoolStatus { drives, rebuild, volumes, .. } = shown;
    console.say(&format!("{}: {}", folder.display(), used_of(shown)));
    if let Some(snapshots) = &shown.snapshot_room {
        let adding = "give the pool another drive with 'spindle pool add-drive'";
        console.say(&format!("  {} % full: {}, or {adding}", shown.alarm_percent, room_to_make(snapshots)));
    }
    for DriveStatus { name, reason, is_there, is_in_use, .. } in drives {
        let state = match (reason, *is_there && !*is_in_use) {
            (Some(reason), _) => format!(": not there: {reason}"),
            (None, true) => ": not used".to_owned(),
            (None, false) => String::new(),
        };
        console.say(&format!("  drive {name}{state}"));
    }
    for leaving in &shown.leaving {
        let done = 100 * leaving.done_bytes / leaving.total_bytes.max(1);
        let left = ByteCount(leaving.left_bytes);
        let problem =
            leaving.problem.as_ref().map_or(String::new(), |problem| format!("; stopped: {problem}"));
        console.say(&format!("  drive {} leaves: {done} %, {left} lie on it{problem}", leaving.name));
    }
    console.say(&format!("  {}", shown.losses.text()));
    shown.sparing.text().iter().for_each(|line| console.say(&format!("  {line}")));
    shown.grown.iter().for_each(|grown| console.say(&format!("  {}", grown.text(folder))));
    shown.domains.iter().for_each(|domain| console.say(&format!("  {}", domain.text(drives))));
    shown.failure_sets.text(drives).iter().for_each(|line| console.say(&format!("  {line}")));
    shown.levelling.text().iter().for_each(|line| console.say(&format!("  {line}")));
    shown.unused.iter().for_each(|line| console.say(&format!("  {line}")));
    let word = folder.display().to_string();
    shown.format.text(&word).iter().for_each(|line| console.say(&format!("  {line}")));
    if shown.degraded_segments > 0 {
        let left = ByteCount(rebuild.total_bytes.saturating_sub(rebuild.done_bytes));
        let single = ByteCount(rebuild.single_copy_bytes);
        console.say(&format!(
            "  {} segments lack a copy: {left} to be copied, {single} of it has one copy left; see 'spindle pool add-drive'",
            shown.degraded_segments
        ));
        if shown.copies_wait_s > 0 {
            console.say(&format!(
                "  a pool in use waits {} for drives that are away, and copies then; 'spindle pool forget' does not wait",
                show_duration(Duration::from_secs(shown.copies_wait_s))
            ));
        }
    }
    if shown.degraded_segments == 0 && rebuild.single_copy_bytes > 0 {
        console.say(&format!(
            "  {} has one copy, and no other drive can take a second; see 'spindle pool add-drive'",
            ByteCount(rebuild.single_copy_bytes)
        ));
    }
    if shown.lost_segments > 0 {
        console.say(&format!(
            "  {} segments of raid0 volumes lie on drives that are not in use, and nowhere else",
            shown.lost_segments
        ));
    }
    if rebuild.unreadable_blocks > 0 {
        console.say(&format!("  {} blocks could not be read for a copy", rebuild.unreadable_blocks));
    }
    for volume in volumes {
        console.say(&format!("  {}", volume.text()));
        for snapshot in &volume.snapshots {
            console.say(&format!("    {}", volume.snapshot_text(snapshot)));
        }
    }
}
