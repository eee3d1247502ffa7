//! `spindle dr` and `spindle failover`: groups of volumes at two sites, through the API of a running server.

pub mod arguments;
mod day_window;
mod failover_all;
mod forks;
mod modes;
mod rehearsal;
mod status;
mod suspension;
mod verification;

use crate::{
    console::Console, exit_status::ExitStatus, server::connection::ServerConnection,
    service::arguments::OnOff,
};
use arguments::{AcceptedLoss, DrArguments, DrVerb, FailoverArguments};
use control::web::{
    client::{
        DrGroupList, DrGroupRow, DrSiteRow, DrSites, FailoverAnswer, FailoverBody, MadePairingToken, Method,
        NewDrGroupBody, NewPairingBody, NewPairingTokenBody, in_uri,
    },
    rows::{VolumeEntry, VolumePage},
};
use modes::SaidMode;
use report::Refusal;
use serde::Serialize;
use std::{collections::BTreeMap, time::Duration};
use world::{
    World,
    real::{self, RealOptions, host_files},
};

const GROUPS_PATH: &str = "/v1/dr/groups";
const SITES_PATH: &str = "/v1/dr/sites";
/// Interval of `dr status --watch`.
const WATCH_EVERY: Duration = Duration::from_secs(1);
/// More than a token and its line end have.
const TOKEN_BYTES_MAX: u64 = 4096;

/// The answer to the removal of something, as JSON.
#[derive(Serialize)]
struct RemovedRow<'a> {
    name: &'a str,
    done: &'static str,
}

/// Runs the verb to its end.
pub fn dr(arguments: &DrArguments) -> Result<ExitStatus, Refusal> {
    let console = Console::new(arguments.common.json, false);
    real::run(0, RealOptions::default(), async |world: World| {
        let server = arguments.common.place.connection(&world)?;
        run((&world, &server), &arguments.verb, &console).await
    })
}

/// Runs the verb to its end.
pub fn fail_over(arguments: &FailoverArguments) -> Result<ExitStatus, Refusal> {
    if arguments.rehearse {
        return rehearsal::rehearse(arguments);
    }
    if !arguments.unplanned
        && arguments.at.is_none()
        && (arguments.accept_loss.is_some() || arguments.peer_is_off)
    {
        return Err(Refusal::new(
            "⟨accept-loss⟩ and ⟨peer-is-off⟩ are of unplanned failovers",
            "say ⟨unplanned⟩ or ⟨at⟩, or leave them out",
        ));
    }
    let console = Console::new(arguments.common.json, false);
    real::run(0, RealOptions::default(), async |world: World| {
        let server = arguments.common.place.connection(&world)?;
        let Some(group) = &arguments.group else {
            return failover_all::run((&world, &server), arguments, &console).await;
        };
        let (group, body) = (find(&server, group).await?, failover_body(arguments));
        let path = format!("{GROUPS_PATH}/{}/failover", group.group);
        let answer: FailoverAnswer = server.change(Method::POST, &path, Some(&body)).await?.parsed()?;
        status::show_failover(&answer, &console)
    })
}

fn failover_body(arguments: &FailoverArguments) -> FailoverBody {
    FailoverBody {
        unplanned: arguments.unplanned || arguments.at.is_some(),
        accept_loss_s: match arguments.accept_loss {
            Some(AcceptedLoss::Within(time)) => Some(time.as_secs_f64()),
            _ => None,
        },
        accept_any_loss: arguments.accept_loss == Some(AcceptedLoss::Any),
        peer_is_off: arguments.peer_is_off,
        at: arguments.at.clone(),
    }
}

async fn run(
    (world, server): (&World, &ServerConnection),
    verb: &DrVerb,
    console: &Console,
) -> Result<ExitStatus, Refusal> {
    match verb {
        DrVerb::Token { valid } => {
            let body = NewPairingTokenBody { valid_s: valid.as_secs() };
            let made: MadePairingToken = server.post("/v1/dr/tokens", &body).await?.parsed()?;
            console.say_progress(&format!(
                "one other site may pair with it at {}; shown now and never again",
                made.address
            ));
            match console.is_for_programs() {
                true => console.json_of(&made)?,
                false => console.say_always(&made.token),
            }
        }
        DrVerb::Pair { site, address, pairing_token } => {
            let shown = pairing_token.display();
            let bytes = host_files::read_at_most(pairing_token, TOKEN_BYTES_MAX).map_err(|error| {
                Refusal::new(error.to_string(), "'spindle dr token' at the other site makes a token")
            })?;
            let token = String::from_utf8(bytes).unwrap_or_default().trim().to_owned();
            if token.is_empty() {
                return Err(Refusal::new(format!("{shown}: it is empty"), "it is to have the token alone"));
            }
            let body = NewPairingBody { name: site.clone(), address: address.clone(), token };
            let row: DrSiteRow = server.change(Method::POST, SITES_PATH, Some(&body)).await?.parsed()?;
            if console.is_for_programs() {
                console.json_of(&row)?;
            }
            console.say(&format!("paired with {site}; connections to {address} are kept from now on"));
        }
        DrVerb::Unpair { site } => {
            let path = format!("{SITES_PATH}/{}", in_uri(site));
            server.change(Method::DELETE, &path, None::<&()>).await?.checked()?;
            if console.is_for_programs() {
                console.json_of(&RemovedRow { name: site, done: "unpaired" })?;
            }
            console.say(&format!("{site}: no longer paired; say it there, too"));
        }
        DrVerb::Create { group, volumes, to, pool, mode, failsafe, auto: _, witness, settings } => {
            let said = SaidMode { failsafe: failsafe.then_some(true), settings: *settings };
            let mode = said.mode(*mode)?;
            let mut ids = Vec::new();
            for volume in volumes {
                ids.push(volume_of(server, volume).await?.id);
            }
            let (pool, pools) = pools_of(pool)?;
            let body = NewDrGroupBody {
                name: group.clone(),
                volumes: ids,
                peer: to.clone(),
                pool,
                pools,
                mode,
                witness: witness.clone(),
            };
            let made = server.change_to_its_end(Method::POST, GROUPS_PATH, Some(&body)).await?;
            return status::show_change(&made.parsed()?, console);
        }
        DrVerb::Set { group, mode, failsafe, settings } => {
            let said = SaidMode { failsafe: failsafe.map(OnOff::is_on), settings: *settings };
            return modes::set(server, group, (*mode, said), console).await;
        }
        DrVerb::Status { group, watch } => {
            let mut shown = Vec::new();
            loop {
                let (sites, groups) = look(server, group.as_deref()).await?;
                if !*watch {
                    return status::show(&sites, &groups, console);
                }
                status::show_again((&sites, &groups), &mut shown, console)?;
                world.sleep(WATCH_EVERY).await;
            }
        }
        DrVerb::GiveWay { group, yes } => {
            let row = find(server, group).await?;
            confirm(
                group,
                yes.as_deref(),
                "its own writes become a fork, and the other site's take their place",
                console,
            )?;
            let path = format!("{GROUPS_PATH}/{}/give-way", row.group);
            let row = server.change(Method::POST, &path, None::<&()>).await?.parsed()?;
            return status::show_change(&row, console);
        }
        DrVerb::Alone { group, peer_is_off: _ } => {
            let row = find(server, group).await?;
            let path = format!("{GROUPS_PATH}/{}/alone", row.group);
            let row = server.change(Method::POST, &path, None::<&()>).await?.parsed()?;
            return status::show_change(&row, console);
        }
        DrVerb::Verify { group } => return verification::verify((world, server), group, console).await,
        DrVerb::Fork { verb } => return forks::run(server, verb, console).await,
        DrVerb::Suspend { groups } => return suspension::suspend(server, groups, console).await,
        DrVerb::Resume { groups, merge, rate } => {
            return suspension::resume(server, groups, (merge.as_ref(), *rate), console).await;
        }
        DrVerb::Remove { group, yes } => {
            let list: DrGroupList = server.get(GROUPS_PATH).await?;
            let of_row = list.groups.iter().find(|row| row.name == *group).map(|row| row.group.clone());
            let damaged = list.damaged.iter().find(|row| row.group == *group).map(|row| row.group.clone());
            let id = of_row.or(damaged).ok_or_else(|| no_group(group))?;
            confirm(group, yes.as_deref(), "the other site gets its writes no more", console)?;
            let path = format!("{GROUPS_PATH}/{id}");
            server.change(Method::DELETE, &path, None::<&()>).await?.checked()?;
            if console.is_for_programs() {
                console.json_of(&RemovedRow { name: group, done: "removed" })?;
            }
            console.say(&format!(
                "{group}: removed from this site; its volumes stay. Say it at the other site, too"
            ));
        }
    }
    console.finish(ExitStatus::Pass)
}

/// This site, and its groups, or one of them.
async fn look(server: &ServerConnection, group: Option<&str>) -> Result<(DrSites, DrGroupList), Refusal> {
    let sites = server.get(SITES_PATH).await?;
    let mut groups: DrGroupList = server.get(GROUPS_PATH).await?;
    if let Some(wanted) = group {
        groups.groups.retain(|row| row.name == *wanted);
        if groups.groups.is_empty() {
            return Err(no_group(wanted));
        }
    }
    Ok((sites, groups))
}

/// The pools there: one for all volumes, or one for each pool here.
fn pools_of(said: &[String]) -> Result<(Option<String>, BTreeMap<String, String>), Refusal> {
    if let [one] = said
        && !one.contains('=')
    {
        return Ok((Some(one.clone()), BTreeMap::new()));
    }
    let pair = |text: &String| match text.split_once('=') {
        Some((here, there)) if !here.is_empty() && !there.is_empty() => {
            Ok((here.to_owned(), there.to_owned()))
        }
        _ => Err(Refusal::new(format!("{text:?} is no pair of pools"), "say HERE=THERE, such as dbs=mail2")),
    };
    Ok((None, said.iter().map(pair).collect::<Result<_, _>>()?))
}

/// Rows of groups, each whole group once: what is asked of one part is done with all.
fn whole_groups(rows: &[DrGroupRow]) -> impl Iterator<Item = &DrGroupRow> {
    let whole = |row: &DrGroupRow| row.part.as_ref().map(|part| part.whole.clone());
    let is_first = move |at: usize| {
        whole(&rows[at]).is_none_or(|one| !rows[..at].iter().any(|row| whole(row).as_ref() == Some(&one)))
    };
    rows.iter().enumerate().filter(move |(at, _)| is_first(*at)).map(|(_, row)| row)
}

/// Asks for the name of what is changed for good, unless it was said.
fn confirm(group: &str, yes: Option<&str>, what: &str, console: &Console) -> Result<(), Refusal> {
    let said = match yes {
        Some(yes) => Some(yes.to_owned()),
        None => console.ask(&format!("{group}: {what}. Type its name: ")),
    };
    match said {
        Some(said) if said.trim() == group => Ok(()),
        Some(_) => Err(Refusal::new("that is another name: nothing was changed", "")),
        None => Err(Refusal::new(format!("{group}: {what}"), format!("say ⟨yes⟩ {group}"))),
    }
}

fn no_group(name: &str) -> Refusal {
    Refusal::new(format!("there is no DR group {name:?} here"), "see 'spindle dr status'")
}

/// The group of a name.
async fn find(server: &ServerConnection, name: &str) -> Result<DrGroupRow, Refusal> {
    let list: DrGroupList = server.get(GROUPS_PATH).await?;
    list.groups.into_iter().find(|row| row.name == name).ok_or_else(|| no_group(name))
}

/// A volume by VOLUME or POOL/VOLUME.
async fn volume_of(server: &ServerConnection, meant: &str) -> Result<VolumeEntry, Refusal> {
    let (pool, name) = match meant.split_once('/') {
        Some((pool, name)) => (Some(pool), name),
        None => (None, meant),
    };
    let page: VolumePage = server.get(&format!("/v1/volumes?name={}", in_uri(name))).await?;
    let mut found: Vec<VolumeEntry> = page.volumes;
    found.retain(|row| pool.is_none_or(|pool| row.pool == pool));
    match found.len() {
        1 => Ok(found.remove(0)),
        0 => Err(Refusal::new(format!("there is no volume {meant}"), "see 'spindle pool show POOL'")),
        _ => Err(Refusal::new(format!("several pools have a volume {meant}"), "say POOL/VOLUME")),
    }
}
