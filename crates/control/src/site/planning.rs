//! The plan of a site: what is there, what is wanted, and the steps between.

use super::{
    adoption::refreshed_volumes,
    changes::{KnownSite, SiteChanges},
    file_merge::{MergedSite, merged, served_names, undone},
    server::{SiteServer, WantedAddresses, parse},
    wanted::WantedSite,
    wanted_pool::{WantedDrives, WantedPool},
};
use crate::{job_request::RequestedJob, journal::JournalPool, pool_thread::PoolThread};
use plan::site::{Site, Volume};
use report::Refusal;
use serving::pool::sparing::level_name;
use std::{collections::BTreeMap, path::Path};

/// A site file, and the steps to it.
pub struct PlannedSite {
    /// The file as it is recorded: without comments, with whole paths.
    pub(super) text: String,
    /// The file, if `text` differs from it by what was changed online.
    pub(super) file: Option<String>,
    /// Decisions between the file and what was changed online, which are events.
    pub(super) said: Vec<String>,
    /// Of one row without a file: the change in words.
    pub(super) online: Option<String>,
    pub(super) destroy: Vec<String>,
    /// Pools that are gone for good.
    pub(super) forgotten: Vec<String>,
    pub(super) wanted: WantedSite,
    /// Pools that are left as they are, with the reasons; only at the start.
    pub(super) refused: BTreeMap<String, Refusal>,
    pub(super) occasion: PlanOccasion,
    pub changes: SiteChanges,
}

/// The occasion of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanOccasion {
    /// Of the server: nothing is served yet, and what can be served is to be.
    Start,
    /// Under clients.
    Reload,
    /// By a person, who may have named what to destroy.
    Apply,
    /// Of one row, without a file.
    Online,
}

impl PlannedSite {
    /// Parts of the file that are not served, and dangers.
    pub fn notes(&self) -> &[String] {
        &self.wanted.notes
    }
}

impl SiteServer {
    /// The steps from what is there to the site file `text`. Of what the file lacks, `destroy` names the volumes to destroy, and
    /// pools that are gone to forget; an apply that was interrupted with the same file goes on with what it was to destroy.
    ///
    /// # Errors
    ///
    /// The file is wrong, or asks for what there is not; or a change would lose data that nobody named. At the start, only the
    /// pool concerned is left as it is.
    pub async fn plan(
        &self,
        text: &str,
        destroy: &[String],
        occasion: PlanOccasion,
    ) -> Result<PlannedSite, Refusal> {
        self.check_power()?;
        let site = parse(text)?;
        let file = with_whole_paths(site.clone(), &self.context.folder);
        let MergedSite { site: merged, kept, lost, said } = self.merged(&file, occasion)?;
        let (text, mut wanted) = (merged.to_toml(), WantedSite::of(&merged, &self.context)?);
        self.check_addresses(&wanted, &site)?;
        self.check_moves(&merged, occasion)?;
        let file = (!kept.is_empty()).then(|| file.to_toml());
        let mut destroy = destroy.to_vec();
        let under_way = self.journal.apply_under_way().map_err(|error| error.refusal())?;
        if let Some(online) = under_way.as_ref().and_then(|apply| apply.online.as_ref())
            && occasion != PlanOccasion::Online
        {
            wanted.notes.push(format!(
                "the server ended while this was changed online, and it was not made: {online}"
            ));
        }
        let begun = under_way.map(|apply| (apply.text == text, apply.destroy)).unwrap_or_default();
        let forgotten = self.forgotten(&mut destroy)?;
        let (known, mut refused) = self.known((&text, &wanted), &forgotten, occasion).await?;
        wanted.notes.extend(known.notes.iter().cloned());
        match (begun, occasion) {
            ((true, names), PlanOccasion::Apply) => {
                let left = names.into_iter().filter(|name| is_there(name, &known) && !destroy.contains(name));
                destroy.extend(left.collect::<Vec<_>>());
            }
            ((_, names), _) => {
                for name in names.iter().filter(|name| is_there(name, &known) && !destroy.contains(name)) {
                    wanted.notes.push(format!(
                        "an apply that was interrupted was to destroy {name}, and has not: if it still is to go, end the \
                         server and use ⟨destroy⟩ {name} with 'spindle apply'"
                    ));
                }
            }
        }
        let mut changes = SiteChanges::between(&known, &wanted, &destroy)?;
        refused.append(&mut changes.refused);
        let gone = lost.into_iter().map(|row| match occasion {
            PlanOccasion::Apply => row,
            _ => format!("changed online, and not served any more: {row}"),
        });
        let said: Vec<String> = said.into_iter().chain(gone).collect();
        wanted.notes.extend(said.iter().cloned());
        if !kept.is_empty() {
            changes
                .kept
                .extend(kept.into_iter().map(|row| format!("{row}: it was changed online, and stays so")));
            let note = "the file lacks what was changed online, which a start with the same file keeps; 'spindle site' prints \
                        a file with all of it";
            wanted.notes.push(note.to_owned());
        }
        if !matches!(occasion, PlanOccasion::Start | PlanOccasion::Online)
            && let Some((pool, refusal)) = refused.iter().next()
        {
            return Err(Refusal::new(format!("pool {pool}: {refusal}"), ""));
        }
        let said = if occasion == PlanOccasion::Apply { Vec::new() } else { said };
        Ok(PlannedSite {
            text,
            file,
            said,
            online: None,
            destroy,
            forgotten,
            wanted,
            refused,
            occasion,
            changes,
        })
    }

    /// The file with what was changed online since it was applied, at a start or a reload. A person who applies it is told what
    /// that undoes.
    fn merged(&self, file: &Site, occasion: PlanOccasion) -> Result<MergedSite, Refusal> {
        let alone = MergedSite { site: file.clone(), ..MergedSite::default() };
        let refused = |error: crate::journal::JournalError| error.refusal();
        let (applied, served) =
            (self.journal.applied_file().map_err(refused)?, self.journal.served_site().map_err(refused)?);
        let (Some(applied), Some(served)) = (applied, served) else { return Ok(alone) };
        if occasion == PlanOccasion::Online || applied == served {
            return Ok(alone);
        }
        let [applied, served] = [applied, served].map(|text| parse(&text));
        let (applied, served) = match (applied, served) {
            (Ok(applied), Ok(served)) => (applied, served),
            // The person who applies a file knows what it says, and what was taken away online is not known any more.
            (Err(refusal), _) | (_, Err(refusal)) if occasion == PlanOccasion::Apply => {
                let line = format!("what was changed online cannot be read, and is undone: {refusal}");
                return Ok(MergedSite { lost: vec![line], ..alone });
            }
            (Err(refusal), _) | (_, Err(refusal)) => {
                return Err(Refusal::new(
                    format!("what was changed online cannot be read: {refusal}"),
                    "'spindle apply' of the file serves what the file says, and undoes all of it",
                ));
            }
        };
        let is_applied =
            |volume: &Volume| applied.volume(&format!("{}/{}", volume.group, volume.name)).is_some();
        let served = refreshed_volumes(served, &self.found_pools()?, is_applied);
        if occasion == PlanOccasion::Apply {
            return Ok(MergedSite { lost: undone(applied, served, file.clone()), ..alone });
        }
        let check = |site: &Site| match WantedSite::of(site, &self.context) {
            Ok(_) => Ok(()),
            Err(refusal) => Err(refusal.to_string()),
        };
        Ok(merged(applied, served, file.clone(), check))
    }

    /// Refuses a site with a volume that is on its way to another pool: a start would make an empty one in its place. At the start
    /// no move has begun, and one that goes on finds the volume in use.
    fn check_moves(&self, site: &Site, occasion: PlanOccasion) -> Result<(), Refusal> {
        let views = self.daemon.pools().iter().filter_map(PoolThread::view);
        for view in views.filter(|_| occasion != PlanOccasion::Start) {
            let open = view.job_requests.iter().filter(|request| request.is_open());
            let moves = open.filter(|request| request.job == RequestedJob::Move);
            for from in moves.filter_map(|request| Some(&request.transfer.as_ref()?.from)) {
                let is_it = |volume: &Volume| format!("{}/{}", volume.group, volume.name) == *from;
                let is_served =
                    || served_names(site).iter().any(|name| site.served_volume(name).is_some_and(is_it));
                // A change of a row leaves volumes in the site that it had before.
                let is_named = match occasion {
                    PlanOccasion::Online => is_served(),
                    _ => site.volumes.iter().any(is_it),
                };
                if is_named {
                    return Err(Refusal::new(
                        format!("{from} is being moved to another pool"),
                        "wait for the move, or cancel it: see 'spindle job list'",
                    ));
                }
            }
        }
        Ok(())
    }

    fn check_addresses(&self, wanted: &WantedSite, site: &Site) -> Result<(), Refusal> {
        if WantedAddresses::of(wanted, site, &self.context.folder) == self.addresses {
            return Ok(());
        }
        Err(Refusal::new(
            "the addresses or the certificates under [serve] are others than those that are used",
            "end the server and start it again to change them",
        ))
    }

    /// Pools among `destroy` that are gone for good, which are taken out of it.
    fn forgotten(&self, destroy: &mut Vec<String>) -> Result<Vec<String>, Refusal> {
        let pools = self.journal.pools().map_err(|error| error.refusal())?;
        let is_gone = |name: &String| pools.get(name).is_some_and(|pool| !self.places.is_pool(&pool.folder));
        let gone = destroy.iter().filter(|name| is_gone(name)).cloned().collect();
        destroy.retain(|name| !is_gone(name));
        Ok(gone)
    }

    /// The site as it is, and the pools that cannot be looked into or made, with the reasons.
    async fn known(
        &self,
        (text, wanted): (&str, &WantedSite),
        forgotten: &[String],
        occasion: PlanOccasion,
    ) -> Result<(KnownSite, BTreeMap<String, Refusal>), Refusal> {
        let (mut known, mut refused) = (KnownSite::default(), BTreeMap::new());
        let records = self.journal.pools().map_err(|error| error.refusal())?;
        for pool in &wanted.pools {
            let record = records.get(&pool.name).filter(|_| !forgotten.contains(&pool.name));
            // Volumes stay as they are, and a pool that does not answer hinders no other.
            if occasion == PlanOccasion::Online {
                known.pools.insert(pool.name.clone(), None);
                continue;
            }
            if let Err(refusal) = self.check_place(pool, record, &records) {
                known.pools.insert(pool.name.clone(), None);
                refused.insert(pool.name.clone(), refusal);
            } else if self.daemon.pool(&pool.name).is_some() {
                known.pools.insert(pool.name.clone(), Some(self.volumes(&pool.name).await?));
                known.notes.extend(self.fixed_differences(pool).await?);
            } else if self.places.is_made(pool) {
                known.pools.insert(pool.name.clone(), None);
            }
        }
        for (name, record) in &records {
            let is_wanted = wanted.pools.iter().any(|pool| pool.name == *name);
            if !is_wanted && self.places.is_pool(&record.folder) {
                known.pools.insert(name.clone(), None);
            }
        }
        known.services = match self.journal.served_site().map_err(|error| error.refusal())? {
            Some(served) if served == text => wanted.services.clone(),
            Some(served) => {
                // A file of an older version, perhaps: what it served is shown as new then.
                let before = parse(&served).and_then(|site| WantedSite::described(&site, &self.context));
                before.map(|before| before.services).unwrap_or_default()
            }
            None => BTreeMap::new(),
        };
        Ok((known, refused))
    }

    /// Refuses a pool that would be made in the place of one that was there, or that another group has open.
    pub(super) fn check_place(
        &self,
        pool: &WantedPool,
        record: Option<&JournalPool>,
        records: &BTreeMap<String, JournalPool>,
    ) -> Result<(), Refusal> {
        let is_here = |record: &JournalPool| self.places.is_one_folder(&record.folder, &pool.folder);
        let open_elsewhere = records.iter().find(|(name, record)| {
            **name != pool.name && is_here(record) && self.daemon.pool(name).is_some()
        });
        if let Some((other, _)) = open_elsewhere {
            let problem = format!("its folder is that of the pool {other}, which is open");
            return Err(Refusal::new(
                problem,
                "to rename a group, end the server and start it with the new file",
            ));
        }
        let Some(record) = record.filter(|record| record.being_made.is_none()) else { return Ok(()) };
        let (was, now) = (record.folder.display(), pool.folder.display());
        match (is_here(record), self.places.is_pool(&record.folder), self.places.is_made(pool)) {
            (true, _, true) | (false, false, true) => Ok(()),
            (false, true, _) => Err(Refusal::new(
                format!("it is in {was}, and the file says {now}"),
                "say the folder where it is, or end the server and move it",
            )),
            (_, false, false) | (true, true, false) => Err(Refusal::new(
                format!("it was in {was}, and is not there; nothing is made in its place"),
                format!("mount it; if it is gone for good, use ⟨destroy⟩ {} with 'spindle apply'", pool.name),
            )),
        }
    }

    /// A line for each thing that the file says of an open pool otherwise than it is, and that no apply changes.
    async fn fixed_differences(&self, wanted: &WantedPool) -> Result<Vec<String>, Refusal> {
        let facts = self.order(&wanted.name, "facts", |pool| {
            Box::pin(async move {
                let (copies, sparing) = (pool.pool.redundancy().copies, pool.pool.sparing().level);
                Ok((usize::from(copies), sparing, pool.pool.drives_present()))
            })
        });
        let (copies, sparing, drives) = facts.await?;
        let name = &wanted.name;
        let mut lines = Vec::new();
        if wanted.copies.is_some_and(|wanted| wanted != copies) {
            lines.push(format!(
                "group {name:?}: its pool keeps {copies} copies, which is fixed, whatever the file says"
            ));
        }
        if wanted.sparing.is_some_and(|wanted| wanted != sparing) {
            let level = level_name(sparing);
            lines.push(format!(
                "group {name:?}: its pool has sparing {level}: 'spindle pool set --sparing' changes it"
            ));
        }
        if let WantedDrives::Devices(devices) = &wanted.drives
            && devices.len() != drives
        {
            let listed = devices.len();
            lines.push(format!(
                "group {name:?}: its pool uses {drives} drives, and the file lists {listed}: 'spindle pool add-drive', \
                 'retire' and 'replace' change them"
            ));
        }
        Ok(lines)
    }
}

/// The site with paths that mean the same wherever the file lies: `folder` is that of the file.
pub fn with_whole_paths(mut site: Site, folder: &Path) -> Site {
    let paths = site.groups.iter_mut().map(|group| &mut group.folder);
    let paths = paths.chain(site.initiators.iter_mut().map(|initiator| &mut initiator.secret_file));
    let notifiers = site.notifiers.iter_mut().flat_map(|one| [&mut one.secret_file, &mut one.ca_file]);
    let serve = &mut site.serve;
    let of_serve = [&mut serve.nbd_tls, &mut serve.api_tls, &mut serve.chap_secret_file];
    for path in paths.chain(notifiers).chain(of_serve) {
        if !path.is_empty() {
            *path = folder.join(&*path).display().to_string();
        }
    }
    site
}

fn is_there(name: &str, known: &KnownSite) -> bool {
    let Some((pool, volume)) = name.split_once('/') else { return true };
    match known.pools.get(pool) {
        Some(Some(volumes)) => volumes.iter().any(|known| known.name == volume),
        Some(None) => true,
        None => false,
    }
}
