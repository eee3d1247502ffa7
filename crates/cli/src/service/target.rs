//! `spindle target`: iSCSI targets and their units.

use super::{
    ServiceSource,
    arguments::{OnOff, TargetArguments, TargetVerb},
    counted,
    result::change,
    running,
    session::session_line,
    source,
};
use crate::{console::Console, exit_status::ExitStatus};
use control::{
    site::row_change::find_target,
    web::client::{
        Method, NewTargetBody, NewUnitBody, SessionRow, TargetPatchBody, TargetRow, UnitCache, UnitPatchBody,
        UnitRow, in_uri,
    },
};
use report::Refusal;
use world::{
    World,
    real::{self, RealOptions},
};

const PATH: &str = "/v1/targets";

/// Runs the verb to its end.
pub fn target(arguments: &TargetArguments) -> Result<ExitStatus, Refusal> {
    let console = Console::new(arguments.common.json, false);
    real::run(0, RealOptions::default(), async |world: World| run(&world, arguments, &console).await)
}

async fn run(world: &World, arguments: &TargetArguments, console: &Console) -> Result<ExitStatus, Refusal> {
    let place = &arguments.common.place;
    let path = |target: &str, end: &str| format!("{PATH}/{}{end}", in_uri(target));
    match arguments.verb.clone() {
        TargetVerb::List { pool } => {
            let rows: Vec<TargetRow> = match source(world, place, console)? {
                ServiceSource::Server(server) => server.get(PATH).await?,
                ServiceSource::Journal(view) => TargetRow::all(&view),
            };
            let is_meant = |row: &TargetRow| pool.as_ref().is_none_or(|pool| row.pool == *pool);
            list(&rows.into_iter().filter(is_meant).collect::<Vec<_>>(), console)
        }
        TargetVerb::Show { target } => {
            let (row, sessions) = match source(world, place, console)? {
                ServiceSource::Server(server) => {
                    let row: TargetRow = server.get(&path(&target, "")).await?;
                    let sessions: Vec<SessionRow> =
                        server.get(&format!("/v1/sessions?service={}", in_uri(&row.name))).await?;
                    (row, sessions)
                }
                ServiceSource::Journal(view) => {
                    let found = find_target(&view.site, &target);
                    let found = found.ok_or_else(|| {
                        Refusal::new(format!("there was no target {target}"), "see 'spindle target list'")
                    })?;
                    (TargetRow::of(&view, found), Vec::new())
                }
            };
            show(&row, &sessions, console)
        }
        TargetVerb::Create { target, units, initiators, open, change: way } => {
            let body = NewTargetBody { name: target, open, units, initiators };
            change(&running(world, place)?, (Method::POST, PATH, Some(&body)), way, console).await
        }
        TargetVerb::Set { target, open, change: way } => {
            let body = TargetPatchBody { open: open.is_on() };
            let wanted = (Method::PATCH, &*path(&target, ""), Some(&body));
            change(&running(world, place)?, wanted, way, console).await
        }
        TargetVerb::Delete { target, change: way } => {
            let wanted = (Method::DELETE, &*path(&target, ""), None::<&()>);
            change(&running(world, place)?, wanted, way, console).await
        }
        TargetVerb::AddUnit { target, volume, number, read_only, shared, write_cache, change: way } => {
            let write_cache = write_cache.into();
            let body = NewUnitBody { number, volume, read_only, shared, write_cache };
            let wanted = (Method::POST, &*path(&target, "/units"), Some(&body));
            change(&running(world, place)?, wanted, way, console).await
        }
        TargetVerb::SetUnit { target, number, volume, read_only, shared, write_cache, change: way } => {
            let body = UnitPatchBody {
                volume,
                read_only: read_only.map(OnOff::is_on),
                shared: shared.map(OnOff::is_on),
                write_cache: write_cache.map(UnitCache::from),
            };
            let wanted = (Method::PATCH, &*path(&target, &format!("/units/{number}")), Some(&body));
            change(&running(world, place)?, wanted, way, console).await
        }
        TargetVerb::RemoveUnit { target, number, change: way } => {
            let wanted = (Method::DELETE, &*path(&target, &format!("/units/{number}")), None::<&()>);
            change(&running(world, place)?, wanted, way, console).await
        }
    }
}

fn list(rows: &[TargetRow], console: &Console) -> Result<ExitStatus, Refusal> {
    if console.is_for_programs() {
        console.json_of(&rows)?;
    }
    for row in rows {
        let users = match row.open {
            true => "open to all".to_owned(),
            false => counted(row.initiators.len(), "initiator"),
        };
        let pool = if row.pool.is_empty() { String::new() } else { format!("pool {}, ", row.pool) };
        console.say(&format!(
            "{}  {pool}{}, {users}, {}  {}",
            row.site_name,
            counted(row.luns.len(), "unit"),
            counted(row.sessions, "session"),
            row.name
        ));
    }
    if rows.is_empty() {
        console.say("no targets");
    }
    console.finish(ExitStatus::Pass)
}

fn show(row: &TargetRow, sessions: &[SessionRow], console: &Console) -> Result<ExitStatus, Refusal> {
    if console.is_for_programs() {
        console.json_of(row)?;
    }
    console.say(&format!("target {}: {}", row.site_name, row.name));
    row.luns.iter().for_each(|unit| console.say(&format!("  {}", unit_line(unit))));
    if row.open {
        console.say("  every initiator may use it");
    }
    for user in &row.initiators {
        let part = |verb: &str, list: &[String]| match list {
            [] => None,
            list => Some(format!("{verb} {}", list.join(", "))),
        };
        let rights = [part("uses", &user.uses), part("reads", &user.reads)];
        let rights = rights.into_iter().flatten().collect::<Vec<_>>().join("; ");
        console.say(&format!("  initiator {}: {rights}", user.name));
    }
    sessions.iter().for_each(|session| console.say(&format!("  session {}", session_line(session))));
    console.finish(ExitStatus::Pass)
}

fn unit_line(unit: &UnitRow) -> String {
    let flag = |is_set: bool, word: &'static str| if is_set { word } else { "" };
    let cache = match unit.write_cache {
        UnitCache::Volume => "",
        UnitCache::On => ", write cache on",
        UnitCache::Off => ", write cache off",
    };
    format!(
        "unit {}: {}{}{}{cache}{}",
        unit.number,
        unit.volume,
        flag(unit.read_only, ", read-only"),
        flag(unit.shared, ", shared"),
        flag(!unit.is_served, ", not served now")
    )
}
