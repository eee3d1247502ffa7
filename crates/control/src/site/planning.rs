//! The plan of a site: what is there, what is wanted, and the steps between.

use super::{
    adoption::{FoundPool, refreshed_volumes},
    changes::{KnownSite, SiteChanges, SiteStep},
    file_merge::{MergedSite, merged, served_names, undone},
    handle::{PoolHandle, SiteView},
    known_dr_group::KnownDrGroups,
    moved_volumes::{follow_known, place_of, settled},
    places::PoolPlaces,
    pool_answers::UnansweredPools,
    server::{SiteServer, WantedAddresses, parse},
    wanted::{SiteContext, WantedSite},
    wanted_pool::{WantedDrives, WantedPool, WantedVolume},
};
use crate::{
    job_request::RequestedJob,
    journal::{DaemonJournal, JournalPool},
    planted::{self, ApplyBug},
    presenting::board::PresentationBoard,
};
use plan::site::{Site, Volume};
use report::Refusal;
use serving::pool::sparing::level_name;
use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    rc::Rc,
    sync::Arc,
};
use tokio::sync::watch;

/// A site file, and the steps to it.
pub struct PlannedSite {
    /// The file as it is recorded: without comments, with whole paths.
    pub(super) text: String,
    /// The file, if `text` differs from it by what was changed online.
    pub(super) file: Option<String>,
    /// Decisions between the file and what was changed online, which are events.
    pub(super) said: Vec<String>,
    /// The site without the rows that were changed since the apply began that this one goes on with.
    pub(super) begun: Option<String>,
    pub(super) destroy: Vec<String>,
    /// Pools that are gone for good.
    pub(super) forgotten: Vec<String>,
    /// Moves of volumes that the file knows, by where the volumes were.
    pub(super) settled_moves: Vec<String>,
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
}

impl PlannedSite {
    /// Parts of the file that are not served, and dangers.
    pub fn notes(&self) -> &[String] {
        &self.wanted.notes
    }
}

/// Plans sites from the journal and the views of pools: it gives no orders, so it waits for no pool and no apply.
#[derive(Clone)]
pub(super) struct SitePlanner {
    pub journal: Arc<DaemonJournal>,
    pub context: SiteContext,
    pub places: Rc<dyn PoolPlaces>,
    pub addresses: Rc<WantedAddresses>,
    pub view: watch::Receiver<Arc<SiteView>>,
    pub unanswered: UnansweredPools,
    pub presentations: PresentationBoard,
}

impl SiteServer {
    /// The steps from what is there to the site file `text`. Of what the file lacks, `destroy` names the volumes to destroy, and
    /// pools that are gone to forget; an apply that was interrupted with the same file goes on with what it was to destroy.
    /// Of a pool that does not answer, the last view counts.
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
        if matches!(occasion, PlanOccasion::Apply | PlanOccasion::Reload) {
            self.show_changes().await;
        }
        self.publish();
        self.planner.plan(text, destroy, occasion)
    }
}

impl SitePlanner {
    /// See [`SiteServer::plan`]; views may be a second old.
    pub fn plan(
        &self,
        text: &str,
        destroy: &[String],
        occasion: PlanOccasion,
    ) -> Result<PlannedSite, Refusal> {
        self.view.borrow().power.check()?;
        let site = parse(text)?;
        let mut file = with_whole_paths(site.clone(), &self.context.folder);
        let mut moves = self.journal.moved_volumes().map_err(|error| error.refusal())?;
        if planted::is(ApplyBug::MovesForgotten) {
            moves.clear();
        }
        let (settled_moves, stale) = (settled(&file, &moves), follow_known(&mut file, &moves));
        let (MergedSite { site: merged, kept, lost, said }, begun) = self.with_rows_of(&file, occasion)?;
        let begun_text = begun;
        let (text, mut wanted) = (merged.to_toml(), WantedSite::of(&merged, &self.context)?);
        self.check_addresses(&wanted, &site)?;
        if occasion != PlanOccasion::Start {
            self.check_moves(merged.volumes.iter())?;
        }
        wanted.notes.extend(stale);
        let file = (!kept.is_empty()).then(|| file.to_toml());
        let mut destroy = destroy.to_vec();
        let under_way = self.journal.apply_under_way().map_err(|error| error.refusal())?;
        if let Some(online) = under_way.as_ref().and_then(|apply| apply.online.as_ref()) {
            wanted.notes.push(format!(
                "the server ended while this was changed online, and it was not made: {online}"
            ));
        }
        let begun = under_way.map(|apply| (apply.text == text, apply.destroy)).unwrap_or_default();
        let forgotten = self.forgotten(&mut destroy)?;
        let (known, mut refused) = self.known((&text, &wanted), &forgotten)?;
        wanted.notes.extend(known.notes.iter().cloned());
        let late = self.unanswered.names().into_iter();
        wanted.notes.extend(late.map(|pool| {
            format!("pool {pool} does not answer: the server goes on with what it misses when it does")
        }));
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
        if occasion == PlanOccasion::Start {
            changes.leave_dr_groups();
        }
        wanted.notes.append(&mut changes.notes);
        let fixed = std::mem::take(&mut changes.fixed_dr_groups);
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
        if occasion != PlanOccasion::Start
            && let Some((pool, refusal)) = refused.iter().next()
        {
            return Err(Refusal::new(format!("pool {pool}: {refusal}"), ""));
        }
        match fixed.into_iter().next() {
            Some(refusal) if occasion != PlanOccasion::Start => return Err(refusal),
            fixed => wanted.notes.extend(fixed.map(|refusal| refusal.to_string())),
        }
        let said = if occasion == PlanOccasion::Apply { Vec::new() } else { said };
        Ok(PlannedSite {
            text,
            file,
            said,
            begun: begun_text,
            destroy,
            forgotten,
            settled_moves,
            wanted,
            refused,
            occasion,
            changes,
        })
    }

    /// The plan of a change of rows from one version of the site to another: of pools and volumes nothing is changed.
    pub fn plan_rows(&self, before: &Site, after: &Site) -> Result<PlannedSite, Refusal> {
        self.view.borrow().power.check()?;
        let text = after.to_toml();
        let site = parse(&text)?;
        let wanted = WantedSite::of(&site, &self.context)?;
        self.check_addresses(&wanted, &site)?;
        let known: BTreeSet<String> = served_names(before).into_iter().collect();
        let new = served_names(&site).into_iter().filter(|name| !known.contains(name)).collect::<Vec<_>>();
        self.check_moves(new.iter().filter_map(|name| site.served_volume(name)))?;
        let pools = wanted.pools.iter().map(|pool| (pool.name.clone(), None)).collect();
        let services = match before == after {
            true => wanted.services.clone(),
            // One of an older version, perhaps: what it served is shown as new then.
            false => {
                WantedSite::described(before, &self.context).map(|site| site.services).unwrap_or_default()
            }
        };
        let known = KnownSite { pools, services, ..KnownSite::default() };
        let mut changes = SiteChanges::between(&known, &wanted, &[])?;
        changes.steps.retain(|step| matches!(step, SiteStep::Serve { .. }));
        changes.kept.clear();
        Ok(PlannedSite {
            text,
            file: None,
            said: Vec::new(),
            begun: None,
            destroy: Vec::new(),
            forgotten: Vec::new(),
            settled_moves: Vec::new(),
            wanted,
            refused: BTreeMap::new(),
            occasion: PlanOccasion::Reload,
            changes,
        })
    }

    /// The site that counts, and the same without rows that were changed since an apply began that did not come to its end. The
    /// plan for another file than that lists the changes that it undoes.
    fn with_rows_of(
        &self,
        file: &Site,
        occasion: PlanOccasion,
    ) -> Result<(MergedSite, Option<String>), Refusal> {
        let under_way = self.journal.apply_under_way().map_err(|error| error.refusal())?;
        let changed = under_way.and_then(|apply| Some((apply.begun?, apply.text)));
        let Some((begun, text)) = changed else { return Ok((self.merged(file, occasion)?, None)) };
        let begun = self.with_moves(parse(&begun)?)?;
        let first = match occasion {
            PlanOccasion::Apply if begun.to_toml() != file.to_toml() => {
                return Ok((self.merged(file, occasion)?, None));
            }
            PlanOccasion::Apply => MergedSite { site: file.clone(), ..MergedSite::default() },
            PlanOccasion::Start | PlanOccasion::Reload => self.merged(file, occasion)?,
        };
        let without = first.site.to_toml();
        let second = merged(begun, parse(&text)?, first.site, |site| self.check(site));
        let mut both = MergedSite { site: second.site, ..first };
        for (all, new) in
            [(&mut both.kept, second.kept), (&mut both.lost, second.lost), (&mut both.said, second.said)]
        {
            let unknown: Vec<String> = new.into_iter().filter(|line| !all.contains(line)).collect();
            all.extend(unknown);
        }
        Ok((both, Some(without)))
    }

    fn check(&self, site: &Site) -> Result<(), String> {
        WantedSite::of(site, &self.context).map(drop).map_err(|refusal| refusal.to_string())
    }

    /// The file with what was changed online since it was applied, at a start or a reload. A person who applies it is told what
    /// that undoes.
    fn merged(&self, file: &Site, occasion: PlanOccasion) -> Result<MergedSite, Refusal> {
        let alone = MergedSite { site: file.clone(), ..MergedSite::default() };
        let refused = |error: crate::journal::JournalError| error.refusal();
        let (applied, served) =
            (self.journal.applied_file().map_err(refused)?, self.journal.served_site().map_err(refused)?);
        let (Some(applied), Some(served)) = (applied, served) else { return Ok(alone) };
        if applied == served {
            return Ok(alone);
        }
        let [applied, served] = [applied, served].map(|text| parse(&text));
        let (applied, served) = match (applied, served) {
            (Ok(applied), Ok(served)) => (self.with_moves(applied)?, served),
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
        let is_applied = |volume: &Volume| applied.volume(&place_of(volume)).is_some();
        let served = refreshed_volumes(served, &self.found_pools(), is_applied);
        if occasion == PlanOccasion::Apply {
            return Ok(MergedSite { lost: undone(applied, served, file.clone()), ..alone });
        }
        Ok(merged(applied, served, file.clone(), |site| self.check(site)))
    }

    /// A site that was written before volumes were moved, as if it had been written since.
    fn with_moves(&self, mut site: Site) -> Result<Site, Refusal> {
        let moves = self.journal.moved_volumes().map_err(|error| error.refusal())?;
        follow_known(&mut site, &moves);
        Ok(site)
    }

    /// Refuses a volume of the site that is on its way to another pool: an apply would make an empty one in its place, and a
    /// start of a service would open it. When the server starts no move has begun, and one that goes on finds the volume in use.
    fn check_moves<'v>(&self, mut volumes: impl Iterator<Item = &'v Volume>) -> Result<(), Refusal> {
        let mut moving = BTreeSet::new();
        for pool in self.view.borrow().pools.values() {
            let view = pool.views.borrow();
            let open = view.job_requests.iter().filter(|request| request.is_open());
            let moves = open.filter(|request| request.job == RequestedJob::Move);
            moving.extend(moves.filter_map(|request| Some(request.transfer.as_ref()?.from.clone())));
        }
        match volumes.find(|volume| moving.contains(&place_of(volume))) {
            None => Ok(()),
            Some(volume) => Err(Refusal::new(
                format!("{} is being moved to another pool", place_of(volume)),
                "wait for the move, or cancel it: see 'spindle job list'",
            )),
        }
    }

    fn check_addresses(&self, wanted: &WantedSite, site: &Site) -> Result<(), Refusal> {
        if WantedAddresses::of(wanted, site, &self.context.folder) == *self.addresses {
            return Ok(());
        }
        Err(Refusal::new(
            "the addresses or the certificates under [serve] are others than those that are used",
            "end the server and start it again to change them",
        ))
    }

    fn pool(&self, name: &str) -> Option<PoolHandle> {
        self.view.borrow().pools.get(name).cloned()
    }

    /// The pools that are open, with their volumes.
    pub fn found_pools(&self) -> Vec<FoundPool> {
        FoundPool::all_served(&self.view.borrow(), &self.presentations)
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
    fn known(
        &self,
        (text, wanted): (&str, &WantedSite),
        forgotten: &[String],
    ) -> Result<(KnownSite, BTreeMap<String, Refusal>), Refusal> {
        let (mut known, mut refused) = (KnownSite::default(), BTreeMap::new());
        let records = self.journal.pools().map_err(|error| error.refusal())?;
        for pool in &wanted.pools {
            let record = records.get(&pool.name).filter(|_| !forgotten.contains(&pool.name));
            if let Err(refusal) = self.check_place(pool, record, &records) {
                known.pools.insert(pool.name.clone(), None);
                refused.insert(pool.name.clone(), refusal);
            } else if let Some(open) = self.pool(&pool.name) {
                let mut volumes = open.last_view().volumes.to_vec();
                let clones = self.presentations.clones();
                let is_named = |name: &str| {
                    let is_named =
                        |wanted: &WantedVolume| wanted.name == name || wanted.was.as_deref() == Some(name);
                    pool.volumes.iter().any(is_named)
                };
                // They end by the clock.
                volumes.retain(|volume| is_named(&volume.name) || !clones.contains(&volume.volume));
                known.pools.insert(pool.name.clone(), Some(volumes));
                known.notes.extend(fixed_differences(pool, &open));
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
        let dr_groups = KnownDrGroups::of(&self.view.borrow(), &self.journal);
        known.dr_groups = Some(dr_groups.map_err(|error| error.refusal())?);
        let served = self.journal.served_site().map_err(|error| error.refusal())?;
        // A file of an older version, perhaps: what it served is shown as new then.
        let before = served.as_deref().and_then(|served| parse(served).ok());
        known.volumes_before = before.iter().flat_map(|site| &site.volumes).map(place_of).collect();
        known.services = match (served, before) {
            (Some(served), _) if served == text => wanted.services.clone(),
            (_, Some(before)) => {
                WantedSite::described(&before, &self.context).map(|site| site.services).unwrap_or_default()
            }
            _ => BTreeMap::new(),
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
        let open_elsewhere = records
            .iter()
            .find(|(name, record)| **name != pool.name && is_here(record) && self.pool(name).is_some());
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
}

/// A line for each thing that the file says of an open pool otherwise than it is, and that no apply changes.
fn fixed_differences(wanted: &WantedPool, pool: &PoolHandle) -> Vec<String> {
    let view = pool.last_view();
    let Some(health) = &view.health else { return Vec::new() };
    let name = &wanted.name;
    let mut lines = Vec::new();
    if wanted.copies.is_some_and(|copies| copies != usize::from(health.copies)) {
        lines.push(format!(
            "group {name:?}: its pool keeps {} copies, which is fixed, whatever the file says",
            health.copies
        ));
    }
    let level = &health.sparing.level;
    if wanted.sparing.is_some_and(|wanted| level_name(wanted) != level) {
        lines.push(format!(
            "group {name:?}: its pool has sparing {level}: 'spindle pool set --sparing' changes it"
        ));
    }
    let drives = view.drives_in_use;
    if let WantedDrives::Devices(devices) = &wanted.drives
        && devices.len() != drives
    {
        let listed = devices.len();
        lines.push(format!(
            "group {name:?}: its pool uses {drives} drives, and the file lists {listed}: 'spindle pool add-drive', \
             'retire' and 'replace' change them"
        ));
    }
    lines
}

/// The site with paths that mean the same wherever the file lies: `folder` is that of the file.
pub fn with_whole_paths(mut site: Site, folder: &Path) -> Site {
    let paths = site.groups.iter_mut().map(|group| &mut group.folder);
    let paths = paths.chain(site.initiators.iter_mut().map(|initiator| &mut initiator.secret_file));
    let notifiers = site.notifiers.iter_mut().flat_map(|one| [&mut one.secret_file, &mut one.ca_file]);
    let serve = &mut site.serve;
    let of_serve = [&mut serve.nbd_tls, &mut serve.api_tls, &mut serve.chap_secret_file];
    let replication = site.replication.iter_mut();
    let witness = replication.flat_map(|one| [&mut one.witness_tls, &mut one.witness_secret_file]);
    for path in paths.chain(notifiers).chain(of_serve).chain(witness) {
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
