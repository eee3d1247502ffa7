//! `spindle pool room`.

use super::{pool_place::PoolPlace, reporter::open as open_pool, volume_access::VerbOptions};
use crate::{command_line::quoted, console::Console, exit_status::ExitStatus};
use report::Refusal;
use serde::Serialize;
use serving::pool::{
    room::{RoomGain, RoomStatus, RoomStep, VolumeRoom},
    room_history::RoomHistory,
};
use std::path::Path;
use world::{ByteCount, World};

/// Volumes and steps that are printed; JSON has all.
const LINES_MAX: usize = 16;

/// [`RoomStatus`], with the commands.
#[derive(Serialize)]
struct RoomAnswer<'a> {
    path: &'a Path,
    #[serde(flatten)]
    room: &'a RoomStatus,
    /// Of the gains, in their order.
    commands: Vec<String>,
}

/// Prints when the pool is full, what takes its room, and what would give some back.
pub async fn room(world: &World, pool: &Path, options: VerbOptions<'_>) -> Result<ExitStatus, Refusal> {
    let console = Console::new(options.json, false);
    let room = match PoolPlace::of_pool(world, pool, options.server).await? {
        PoolPlace::Served(served) => served.server().get(&served.path("/room")).await?,
        PoolPlace::Folder => {
            let open = open_pool(world, pool, &console).await?;
            let (drives, history) = (open.shown().statuses.clone(), RoomHistory::read(pool));
            let counted = RoomStatus::count(&open.pool, (&drives, &history), world.wall().seconds).await;
            let counted = counted.map_err(|error| open.refusal(&error, "see 'spindle pool show'"));
            let closed = open.close().await;
            let room = counted?;
            closed?;
            room
        }
    };
    let server = options.server.repeated();
    let commands = room.gains.iter().map(|gain| command_of(&gain.step, (pool, &server)));
    let commands: Vec<String> = commands.collect();
    if options.json {
        console.json_of(&RoomAnswer { path: pool, room: &room, commands: commands.clone() })?;
    }
    say(&console, pool, &room, &commands);
    console.finish(ExitStatus::Pass)
}

fn command_of(step: &RoomStep, (pool, server): (&Path, &str)) -> String {
    let at = |name: &str| quoted(&pool.join(name).display().to_string());
    let own = quoted(&pool.display().to_string());
    match step {
        RoomStep::DeleteSnapshot { volume, snapshot } => {
            format!("spindle volume delete {}{server}", at(&format!("{volume}@{snapshot}")))
        }
        RoomStep::DeleteSnapshots { volume, .. } => {
            format!("spindle volume delete {}{server}", at(&format!("{volume}@SNAPSHOT")))
        }
        RoomStep::DeleteVolume { volume } => format!("spindle volume delete {}{server}", at(volume)),
        RoomStep::StopSparing => format!("spindle pool set {own} --sparing none{server}"),
        RoomStep::Grow { drive } => format!("spindle pool grow {own} {drive}{server}"),
    }
}

fn say(console: &Console, pool: &Path, room: &RoomStatus, commands: &[String]) {
    let free = room.usable_bytes.saturating_sub(room.used_bytes);
    console.say(&format!(
        "{}: {} used of {}, {} free",
        pool.display(),
        ByteCount(room.used_bytes),
        ByteCount(room.usable_bytes),
        ByteCount(free)
    ));
    console.say(&format!("  {}", forecast(room)));
    for VolumeRoom { volume, used_bytes, snapshots, snapshots_bytes } in room.volumes.iter().take(LINES_MAX) {
        let kept = match snapshots {
            0 => String::new(),
            1 => format!(", of which its snapshot keeps {}", ByteCount(*snapshots_bytes)),
            many => format!(", of which its {many} snapshots keep {}", ByteCount(*snapshots_bytes)),
        };
        console.say(&format!("  volume {volume}: {}{kept}", ByteCount(*used_bytes)));
    }
    if room.volumes.len() > LINES_MAX {
        console.say(&format!("  and {} smaller volumes: --json has all", room.volumes.len() - LINES_MAX));
    }
    console.say(&format!(
        "  about {} beyond that hold the map, the log, and overwritten blocks that cleaning frees when room is wanted",
        ByteCount(room.overhead_bytes)
    ));
    if room.gains.is_empty() {
        console.say("nothing but deleting data gives room back; 'spindle pool add-drive' adds some");
        return;
    }
    console.say("gives back now:");
    for (gain, command) in room.gains.iter().zip(commands).take(LINES_MAX) {
        console.say(&format!("  {}", gain_text(gain, command)));
    }
    if room.gains.len() > LINES_MAX {
        console.say(&format!("  and {} smaller ones: --json has all", room.gains.len() - LINES_MAX));
    }
}

fn gain_text(RoomGain { step, bytes, is_exact }: &RoomGain, command: &str) -> String {
    let bytes = ByteCount(*bytes);
    let bytes = if *is_exact { bytes.to_string() } else { format!("at most {bytes}") };
    let what = match step {
        RoomStep::DeleteSnapshots { snapshots, .. } => format!(" (all {snapshots} of them, together)"),
        RoomStep::StopSparing => " (and no room is kept for a lost drive)".to_owned(),
        RoomStep::DeleteSnapshot { .. } | RoomStep::DeleteVolume { .. } | RoomStep::Grow { .. } => {
            String::new()
        }
    };
    format!("{bytes}: {command}{what}")
}

/// The date on which the pool is full, or why none is known.
fn forecast(room: &RoomStatus) -> String {
    match (&room.growth, &room.history_since) {
        (None, None) => {
            "no forecast: no history is known yet; a server or an export notes one while it has the pool open"
                .to_owned()
        }
        (None, Some(since)) => {
            format!("no forecast: the history begins at {since}, and a forecast takes a day of it")
        }
        (Some(growth), _) => {
            let since = &growth.since;
            let per_day = ByteCount(growth.bytes_per_day.max(0.0) as u64);
            match &growth.full_at {
                Some(full_at) => format!("full at {full_at}, at the rate since {since}: {per_day} a day"),
                None if growth.grown_bytes > 0 => {
                    format!("not full within 100 years at the rate since {since}: {per_day} a day")
                }
                None => format!("it has not grown since {since}, so it does not fill at that rate"),
            }
        }
    }
}
