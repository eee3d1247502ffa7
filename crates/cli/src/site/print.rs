//! `spindle site`: a site as a file.

use super::{arguments::SiteArguments, own_folder::StateFolder, served_site, state_of};
use crate::{console::Console, exit_status::ExitStatus};
use control::site::{
    SiteContext,
    adoption::{FoundPool, adopt},
    known_dr_group::PeerNames,
    printed_closed_site,
};
use report::Refusal;
use serving::export::AccessFile;
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
    let names = PeerNames::of(&journal).map_err(|error| error.refusal())?;
    let presentations = journal.presentations().map_err(|error| error.refusal())?;
    drop(journal);
    folder.leave_as_it_was();
    let text = text.ok_or_else(|| {
        Refusal::new(
            format!("no site file was applied with the state folder {}", state.display()),
            "apply one, name another folder with ⟨state⟩, or adopt pools with ⟨adopt⟩",
        )
    })?;
    let context = SiteContext { folder: state.clone(), state, site: arguments.place.site.clone() };
    printed_closed_site(world, &text, (&context, &names), &presentations).await
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
