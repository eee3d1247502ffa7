//! `spindle site`: a site as a file.

use super::{arguments::SiteArguments, own_folder::StateFolder, served_site, state_of};
use crate::{console::Console, exit_status::ExitStatus};
use control::site::{
    SiteContext,
    adoption::{FoundPool, adopt, refreshed},
    wanted::WantedSite,
};
use plan::site::Site;
use report::Refusal;
use serving::{export::AccessFile, pool::record::is_pool};
use std::path::Path;
use world::{
    World,
    real::{self, RealOptions, host_files},
};

/// Runs the verb to its end.
pub fn print(arguments: &SiteArguments) -> Result<ExitStatus, Refusal> {
    let console = Console::new(false, false);
    let site = real::run(0, RealOptions::default(), async |world: World| match arguments.adopt.as_slice() {
        [] => served(&world, arguments).await,
        _ => adopted(&world, arguments).await,
    });
    let (text, left_out) = site?;
    left_out.iter().for_each(|line| console.warn(&format!("left out: {line}")));
    console.say_always(text.trim_end());
    console.finish(ExitStatus::Pass)
}

/// The site that was applied last, with the volumes that its pools have now.
async fn served(world: &World, arguments: &SiteArguments) -> Result<(String, Vec<String>), Refusal> {
    let state = state_of(&arguments.place);
    let (folder, journal) = match StateFolder::open(&state)? {
        StateFolder::Own(folder, journal) => (folder, journal),
        StateFolder::Served(socket) => return served_site::print(world, &socket).await,
    };
    let state = host_files::canonical(&state).map_err(|error| Refusal::new(error.to_string(), ""))?;
    let text = journal.served_site().map_err(|error| error.refusal())?;
    drop(journal);
    folder.leave_as_it_was();
    let text = text.ok_or_else(|| {
        Refusal::new(
            format!("no site file was applied with the state folder {}", state.display()),
            "apply one, name another folder with ⟨state⟩, or adopt pools with ⟨adopt⟩",
        )
    })?;
    let site =
        Site::from_toml(&text).map_err(|error| Refusal::new(format!("the applied file: {error}"), ""))?;
    let context = SiteContext { folder: state.clone(), state, site: arguments.place.site.clone() };
    let mut pools = Vec::new();
    for pool in WantedSite::described(&site, &context)?.pools.iter().filter(|pool| is_pool(&pool.folder)) {
        pools.push(FoundPool { name: pool.name.clone(), ..FoundPool::look(world, &pool.folder).await? });
    }
    refreshed(site, &pools).map(|(site, left_out)| (site.to_toml(), left_out))
}

async fn adopted(world: &World, arguments: &SiteArguments) -> Result<(String, Vec<String>), Refusal> {
    let mut pools = Vec::new();
    for folder in &arguments.adopt {
        pools.push(FoundPool::look(world, folder).await?);
    }
    let file = arguments.access.as_deref().map(AccessFile::read).transpose()?;
    let folder = arguments.access.as_deref().and_then(Path::parent).unwrap_or(Path::new(""));
    let (site, left_out) = adopt(&pools, file.as_ref().map(|file| (file, folder)))?;
    Ok((site.to_toml(), left_out))
}
