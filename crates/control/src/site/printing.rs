//! The site that was applied last, as a file whose plan is empty: with the volumes and DR groups that its pools have now.

use super::{
    adoption::{FoundPool, refreshed_with},
    handle::{SiteAnswer, SiteHandle},
    known_dr_group::{KnownDrGroups, PeerNames},
    server::parse,
    wanted::{SiteContext, WantedSite},
};
use crate::{journal::DaemonJournal, presenting::Presentation};
use report::Refusal;
use serving::pool::{folder::OpenReadOnlyPool, record::is_pool};
use world::World;

/// The site that is served. From any thread: it waits for no apply that is under way, whose site it is not yet.
///
/// # Errors
///
/// No site file was applied, or the site and the pools contradict each other.
pub fn printed_site(journal: &DaemonJournal, handle: &SiteHandle) -> Result<SiteAnswer, Refusal> {
    let view = handle.look();
    let text = journal.served_site().map_err(|error| error.refusal())?;
    let text = text.ok_or_else(|| Refusal::new("no site file was applied", "apply one"))?;
    let pools = FoundPool::all_served(&view, &handle.presentations);
    let dr_groups = KnownDrGroups::of(&view, journal).map_err(|error| error.refusal())?;
    let (site, notes) = refreshed_with(parse(&text)?, &pools, Some(&dr_groups))?;
    Ok(SiteAnswer { notes, text: Some(site.to_toml()), ..SiteAnswer::default() })
}

/// The site `text` that no server has open now. Its pools are not written to. The second part names what was left out, with the
/// reasons.
///
/// # Errors
///
/// A pool cannot be read, or the site and the pools contradict each other.
pub async fn printed_closed_site(
    world: &World,
    text: &str,
    (context, names): (&SiteContext, &PeerNames),
    presentations: &[Presentation],
) -> Result<(String, Vec<String>), Refusal> {
    let site = parse(text)?;
    let (mut pools, mut dr_groups) = (Vec::new(), KnownDrGroups::default());
    for pool in WantedSite::described(&site, context)?.pools.iter().filter(|pool| is_pool(&pool.folder)) {
        let open = OpenReadOnlyPool::open(world, &pool.folder).await?;
        dr_groups.add_closed(&pool.name, &open.pool, names);
        let presented = presentations.iter().filter_map(Presentation::clone_id).collect();
        pools.push(FoundPool { name: pool.name.clone(), presented, ..FoundPool::of(&open, &pool.folder)? });
    }
    let (site, left_out) = refreshed_with(site, &pools, Some(&dr_groups))?;
    Ok((site.to_toml(), left_out))
}
