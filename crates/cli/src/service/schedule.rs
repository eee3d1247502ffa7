//! `spindle schedule`: schedules of snapshots.

use super::{
    ServiceSource,
    arguments::{ScheduleArguments, ScheduleVerb},
    counted, names,
    result::change,
    running, source,
};
use crate::{console::Console, exit_status::ExitStatus};
use control::web::client::{
    Method, NewScheduleBody, SchedulePatchBody, ScheduleRow, ScheduledVolumeRow, in_uri,
};
use report::Refusal;
use world::{
    World,
    real::{self, RealOptions},
};

const PATH: &str = "/v1/schedules";

/// Runs the verb to its end.
pub fn schedule(arguments: &ScheduleArguments) -> Result<ExitStatus, Refusal> {
    let console = Console::new(arguments.common.json, false);
    real::run(0, RealOptions::default(), async |world: World| run(&world, arguments, &console).await)
}

async fn run(world: &World, arguments: &ScheduleArguments, console: &Console) -> Result<ExitStatus, Refusal> {
    let place = &arguments.common.place;
    let path = |name: &str| format!("{PATH}/{}", in_uri(name));
    match arguments.verb.clone() {
        ScheduleVerb::List { pool } => {
            let is_of = |row: &ScheduleRow, pool: &str| {
                let start = format!("{pool}/");
                row.pools.iter().any(|name| name == pool)
                    || row.volumes.iter().any(|volume| volume.starts_with(&start))
            };
            let mut rows = rows(world, place, console).await?;
            rows.retain(|row| pool.as_ref().is_none_or(|pool| is_of(row, pool)));
            if console.is_for_programs() {
                console.json_of(&rows)?;
            }
            rows.iter().for_each(|row| say(row, false, console));
            if rows.is_empty() {
                console.say("no schedules");
            }
            console.finish(ExitStatus::Pass)
        }
        ScheduleVerb::Show { name } => {
            let row = rows(world, place, console).await?.into_iter().find(|row| row.name == name);
            let row = row.ok_or_else(|| {
                Refusal::new(format!("there is no schedule {name}"), "see 'spindle schedule list'")
            })?;
            if console.is_for_programs() {
                console.json_of(&row)?;
            }
            say(&row, true, console);
            console.finish(ExitStatus::Pass)
        }
        ScheduleVerb::Create { name, every, at, keep, pools, volumes, change: way } => {
            let body = NewScheduleBody { name, every_hours: every, at, keep, pools, volumes };
            change(&running(world, place)?, (Method::POST, PATH, Some(&body)), way, console).await
        }
        ScheduleVerb::Set { name, every, at, keep, pools, volumes, change: way } => {
            let body = SchedulePatchBody {
                every_hours: every,
                at: at.map(|at| if at == "none" { String::new() } else { at }),
                keep,
                pools: pools.map(names),
                volumes: volumes.map(names),
            };
            let wanted = (Method::PATCH, &*path(&name), Some(&body));
            change(&running(world, place)?, wanted, way, console).await
        }
        ScheduleVerb::Delete { name, change: way } => {
            let wanted = (Method::DELETE, &*path(&name), None::<&()>);
            change(&running(world, place)?, wanted, way, console).await
        }
    }
}

async fn rows(
    world: &World,
    place: &crate::server::place::ServerPlace,
    console: &Console,
) -> Result<Vec<ScheduleRow>, Refusal> {
    Ok(match source(world, place, console)? {
        ServiceSource::Server(server) => server.get(PATH).await?,
        ServiceSource::Journal(view) => {
            view.site.snapshots.iter().map(|schedule| ScheduleRow::of(schedule, &[], |_| true)).collect()
        }
    })
}

fn say(row: &ScheduleRow, is_whole: bool, console: &Console) {
    let every = row.every_hours.map_or("never".to_owned(), |hours| format!("every {hours} hours"));
    let at = row.at.as_ref().map_or(String::new(), |at| format!(" at {at} UTC"));
    let keep = row.keep.map_or(String::new(), |keep| format!(", {keep} kept"));
    let pools = row.pools.iter().map(|pool| format!("all of {pool}"));
    let of: Vec<String> = pools.chain(row.volumes.iter().cloned()).collect();
    console.say(&format!("{}: {every}{at}{keep}: {}", row.name, of.join(", ")));
    for progress in &row.progress {
        let pool = &progress.pool;
        if let Some(problem) = &progress.problem {
            console.say(&format!("  {pool}: {problem}"));
        }
        if is_whole {
            for volume in &progress.volumes {
                console.say(&format!("  {pool}/{}: {}", volume.volume, volume_text(volume)));
            }
            continue;
        }
        let missed: u64 = progress.volumes.iter().map(|volume| volume.missed).sum();
        let first = |times: Vec<&String>| times.into_iter().min().cloned();
        let next = first(progress.volumes.iter().filter_map(|volume| volume.next_at.as_ref()).collect());
        let last = progress.volumes.iter().filter_map(|volume| volume.last_at.as_ref()).max();
        let last = last.map_or("no snapshot yet".to_owned(), |last| format!("last {last}"));
        let next = next.map_or(String::new(), |next| format!(", next {next}"));
        let missed = if missed > 0 { format!(", {missed} missed") } else { String::new() };
        let count = counted(progress.volumes.len(), "volume");
        console.say(&format!("  {pool}: {count}: {last}{next}{missed}"));
    }
}

fn volume_text(volume: &ScheduledVolumeRow) -> String {
    let last = volume.last_at.as_ref().map_or("no snapshot yet".to_owned(), |last| format!("last {last}"));
    let next = volume.next_at.as_ref().map_or(String::new(), |next| format!(", next {next}"));
    let missed = if volume.missed > 0 { format!(", {} missed", volume.missed) } else { String::new() };
    format!("{last}{next}, {}{missed}", counted(volume.kept, "snapshot"))
}
