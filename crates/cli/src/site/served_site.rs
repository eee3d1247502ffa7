//! `spindle apply` and `spindle site` while a server has the state folder: through its API, with the same answers.

use super::{arguments::ApplyArguments, folder_of, shown_changes};
use crate::{console::Console, exit_status::ExitStatus, server::connection::ServerConnection};
use control::{
    site::{planning::with_whole_paths, server::parse},
    web::{
        client::{ApiReply, Method, SiteBody},
        rows::{PoolState, SitePlan},
    },
};
use plan::site::Site;
use report::Refusal;
use std::{path::Path, time::Duration};
use world::{Address, World};

const PLAN_PATH: &str = "/v1/site/plan";
const APPLY_PATH: &str = "/v1/site/apply";
/// Between two questions whether an apply has ended.
const ASK_EVERY: Duration = Duration::from_secs(5);

/// Plans and applies a site file.
pub async fn apply(
    (world, socket): (&World, &Path),
    (arguments, text): (&ApplyArguments, &str),
    console: &Console,
) -> Result<ExitStatus, Refusal> {
    let site = with_whole_paths(parse(text)?, &folder_of(&arguments.file)?);
    if arguments.place.site.is_some() {
        console.warn("the server was started with a ⟨site⟩ of its own, or without one: that one counts");
    }
    let server = ServerConnection::new(world, Address::Unix(socket.to_owned()), None);
    let body = SiteBody { text: site.to_toml(), destroy: arguments.destroy.clone() };
    let plan: SitePlan = server.post(PLAN_PATH, &body).await?.parsed()?;
    shown_changes::show(&plan, &arguments.file.display().to_string(), console)?;
    let has_changes = !plan.changes.is_empty();
    if arguments.dry_run {
        check_pools(&server, &site, arguments).await?;
        return console.finish(if has_changes { ExitStatus::Fail } else { ExitStatus::Pass });
    }
    let reply = server.change(Method::POST, APPLY_PATH, Some(&body)).await?;
    let done: SitePlan = if goes_on(&reply) {
        console.say_progress("the server goes on with it; this waits for its end");
        wait_for_end(world, &server, &body).await?;
        plan.clone()
    } else {
        reply.parsed()?
    };
    if done.changes != plan.changes {
        console.warn("another change came before this one: the server's log shows what was done");
    }
    check_pools(&server, &site, arguments).await?;
    if has_changes {
        console.say("done; clients were served on");
        console.say("'spindle serve' applies its own file again at its next start: make the same changes there, if it is another one");
    }
    console.finish(ExitStatus::Pass)
}

/// True if the server had not ended within its time for answers, or has too much to do.
fn goes_on(reply: &ApiReply) -> bool {
    let kind = reply.problem().map(|problem| problem.kind);
    kind.is_some_and(|kind| kind == "urn:spindle:goes-on" || kind == "urn:spindle:busy")
}

/// Waits until no apply is under way: the plan of its file is empty then, if all was done.
async fn wait_for_end(world: &World, server: &ServerConnection, body: &SiteBody) -> Result<(), Refusal> {
    loop {
        let reply = server.post(PLAN_PATH, body).await?;
        if goes_on(&reply) {
            world.sleep(ASK_EVERY).await;
            continue;
        }
        let SitePlan { changes: left, apply_under_way, .. } = reply.parsed()?;
        if apply_under_way.is_some() {
            world.sleep(ASK_EVERY).await;
            continue;
        }
        return match left.first() {
            None => Ok(()),
            Some(change) => Err(Refusal::new(
                format!("not everything is done: {} changes are left, the first is {change}", left.len()),
                "see the server's log, and apply the file again: it goes on from there",
            )),
        };
    }
}

/// Refuses to call a site made of which a pool is stopped.
async fn check_pools(
    server: &ServerConnection,
    site: &Site,
    arguments: &ApplyArguments,
) -> Result<(), Refusal> {
    let is_wanted = |name: &str| {
        site.groups.iter().any(|group| group.name == name)
            && !arguments.destroy.iter().any(|gone| gone == name)
    };
    let mut pools = server.pools().await?.into_iter();
    match pools.find(|pool| pool.state == PoolState::Stopped && is_wanted(&pool.name)) {
        Some(pool) => {
            Err(Refusal::new(format!("pool {}: {}", pool.name, pool.reason.unwrap_or_default()), ""))
        }
        None => Ok(()),
    }
}

/// The site as a file, and what it lacks.
pub async fn print(world: &World, socket: &Path) -> Result<(String, Vec<String>), Refusal> {
    let server = ServerConnection::new(world, Address::Unix(socket.to_owned()), None);
    let reply = server.get_text("/v1/site").await?;
    Ok((reply.body, reply.left_out.into_iter().collect()))
}
