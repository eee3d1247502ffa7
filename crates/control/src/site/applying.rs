//! The steps of a plan, done on the pools' threads.

use super::{
    adoption::with_groups_in_references,
    changes::{SiteStep, new_setting},
    planning::{PlanOccasion, PlannedSite},
    pool_answers::WithdrawnOrder,
    power::SitePower,
    row_changing::in_use,
    row_refusal::RowRefusal,
    row_sessions::LostServices,
    server::{SiteServer, parse},
    wanted_pool::WantedPool,
};
use crate::{
    conditions::ConditionClaim,
    daemon::AddedPools,
    journal::{ApplyRecord, JournalError, JournalPool},
    planted::{self, ApplyBug},
    pool_thread::ServedPool,
};
use array::{
    error::Error,
    format::{PoolId, VolumeId},
    pool::{INCOMPLETE_END, NewVolume, VolumeSetting},
    volume::MOVED_END,
};
use plan::site::split_snapshot;
use report::Refusal;
use serving::{export::WantedExports, pool::folder::refusal, uuid::random_uuid};
use std::{collections::BTreeMap, path::Path, rc::Rc, sync::Arc, time::Duration};
use world::{LocalFuture, with_deadline};

/// Time for a view to show a change; one that is late shows it later.
const SHOWN_WITHIN: Duration = Duration::from_secs(5);

/// Most changes that a refusal lists.
const LINES_SHOWN: usize = 8;

impl SiteServer {
    /// Does the steps of a plan, and serves what it wants. `tell` is called before each step. A step that fails ends the steps of
    /// its pool alone; a pool whose steps were not all done serves what it served, or at the start what is there.
    ///
    /// # Errors
    ///
    /// A step failed: the next apply goes on from there.
    pub async fn apply(&mut self, plan: PlannedSite, tell: impl FnMut(&SiteStep)) -> Result<(), Refusal> {
        self.renew_certificates(&plan.wanted);
        // At the start, all that is there is served even if a step fails.
        let at_start = (plan.occasion == PlanOccasion::Start).then(|| plan.text.clone());
        let done = self.apply_steps(plan, tell).await;
        self.requests.progress.set_steps(None);
        if self.power == SitePower::OnBattery {
            // Pools may have been opened or made.
            self.suspend_caches(true).await.into_iter().for_each(|failed| self.notices.warn(failed));
        }
        // Also after a step that failed: others are done.
        self.show_changes().await;
        let shown = self.journal.served_site().ok().flatten();
        // A journal that cannot be read has said so, and its texts were understood when they were written.
        self.read_served_site(at_start.filter(|_| done.is_err()).or(shown));
        self.publish();
        self.note_outcome(&done);
        done
    }

    /// Takes what is served now, for other threads.
    pub(super) fn read_served_site(&mut self, text: Option<String>) {
        if let Some(site) = text.and_then(|text| parse(&text).ok()) {
            self.served_site = Arc::new(with_groups_in_references(site));
        }
    }

    /// An apply that did not come to its end lasts until one does, whoever asked for it.
    pub(super) fn note_outcome(&self, done: &Result<(), Refusal>) {
        let (claim, now) = (ConditionClaim::new("apply_incomplete", "serve", ""), self.world.wall());
        match done {
            Ok(()) => self.notices.clear(&claim.id(), now),
            Err(refusal) => {
                let text = refusal.problem().to_owned();
                self.notices.raise(&ConditionClaim { text, ..claim }.with_next(refusal.remedy()), now);
            }
        }
    }

    /// Waits until the pools' views show what was done: the one who asked for it looks for it next.
    pub(super) async fn show_changes(&self) {
        for pool in self.daemon.pools() {
            let revision = self.order(&pool.name, "show changes", |served| {
                Box::pin(async move {
                    served.show_changes();
                    Ok(served.pool.catalogue_revision())
                })
            });
            // A pool that has stopped has said so.
            let Ok(revision) = revision.await else { continue };
            let mut views = pool.views.clone();
            let shown = views.wait_for(|view| view.catalogue_revision >= revision);
            with_deadline(self.world.sleep(SHOWN_WITHIN), shown).await;
        }
    }

    async fn apply_steps(
        &mut self,
        plan: PlannedSite,
        mut tell: impl FnMut(&SiteStep),
    ) -> Result<(), Refusal> {
        let PlannedSite {
            text,
            file,
            said,
            begun,
            destroy,
            forgotten,
            settled_moves,
            wanted,
            refused,
            occasion,
            changes,
        } = plan;
        for line in said {
            self.notices.warn(line);
        }
        let mut steps = changes.steps;
        self.refused = refused;
        for (pool, refusal) in self.refused.clone() {
            self.stop_pool(&pool, refusal);
        }
        self.check_new(&mut steps, occasion).await?;
        self.check_locks(&steps, &wanted).await?;
        let record = ApplyRecord { text: text.clone(), destroy, file, begun, online: None };
        self.journal.begin_apply(&record).map_err(|error| error.refusal())?;
        for name in &forgotten {
            self.journal.forget_pool(name).map_err(|error| error.refusal())?;
        }
        self.open_pools(&wanted.pools).await;
        let (refused, daemon) = (&self.refused, &self.daemon);
        self.stopped.retain(|pool, _| refused.contains_key(pool) || daemon.pool(pool).is_none());
        if planted::is(ApplyBug::DocumentBeforeItsSteps) {
            self.keep_documents(&text, &wanted.pools).await?;
        }
        let total = steps.len();
        let (dr_groups, steps): (Vec<_>, Vec<_>) =
            steps.into_iter().partition(|step| matches!(step, SiteStep::MakeDrGroup(_)));
        let (changed_groups, steps): (Vec<_>, Vec<_>) =
            steps.into_iter().partition(|step| matches!(step, SiteStep::ChangeDrGroup { .. }));
        let (last, first): (Vec<_>, Vec<_>) =
            steps.into_iter().partition(|step| matches!(step, SiteStep::DestroyVolume { .. }));
        let mut failed = BTreeMap::new();
        let mut left: Vec<String> = Vec::new();
        let mut done = 0;
        let progress = self.requests.progress.clone();
        for step in first {
            progress.set_steps(Some((done, total)));
            let pool = step.pool().unwrap_or_default().to_owned();
            if failed.contains_key(&pool) {
                left.push(step.shown().to_string());
                continue;
            }
            tell(&step);
            match self.perform(&step).await {
                Ok(()) => done += 1,
                Err(refusal) => {
                    left.push(step.shown().to_string());
                    failed.insert(pool, refusal);
                }
            }
        }
        let is_kept = |pool: &WantedPool| match occasion {
            PlanOccasion::Start => false,
            _ => failed.contains_key(&pool.name),
        };
        let served: Vec<_> = wanted.pools.iter().filter(|pool| !is_kept(pool)).collect();
        for (pool, refusal) in self.serve(&wanted.pools, &served, &text).await {
            left.push(format!("what is served of pool {pool}"));
            failed.insert(pool, refusal);
        }
        self.metrics = Arc::new(wanted.metrics);
        // A pool that was made is seen by its schedules.
        self.publish();
        // Fewer to be kept is destruction as well: it waits until all has been done.
        if failed.is_empty() || occasion == PlanOccasion::Start {
            self.schedules.set(wanted.schedules);
            self.sets.set(wanted.sets);
            self.watched.send_replace(Arc::new(wanted.watched));
        }
        if planted::is(ApplyBug::EndedBeforeItsLastStep) {
            self.journal.end_apply().map_err(|error| error.refusal())?;
        }
        for step in &last {
            if !failed.is_empty() {
                left.push(step.shown().to_string());
                continue;
            }
            tell(step);
            progress.set_steps(Some((done, total)));
            if let Err(refusal) = self.perform(step).await {
                left.push(step.shown().to_string());
                failed.insert(step.pool().unwrap_or_default().to_owned(), refusal);
            } else {
                done += 1;
            }
        }
        progress.set_steps(Some((done, total)));
        changed_groups.iter().for_each(&mut tell);
        let not_changed = self.change_dr_groups(&changed_groups, |pool| failed.contains_key(pool)).await;
        done += changed_groups.len() - not_changed.len();
        left.extend(not_changed.iter().map(|(name, _)| format!("DR group {name}")));
        dr_groups.iter().for_each(&mut tell);
        let not_made =
            self.make_dr_groups(&dr_groups, wanted.listens, |pool| failed.contains_key(pool)).await;
        if !failed.is_empty() {
            // The next apply makes them.
            self.waiting_dr_groups.clear();
        }
        done += dr_groups.len() - not_made.len();
        left.extend(not_made.iter().map(|(name, _)| format!("DR group {name}")));
        match failed.into_iter().next() {
            Some((pool, refusal)) if self.unanswered.has(&pool) => {
                let problem = format!(
                    "{done} of {total} changes are done; {}; not done: {}",
                    refusal.problem(),
                    shortened(&left)
                );
                Err(Refusal::new(problem, refusal.remedy()))
            }
            Some((pool, refusal)) => {
                let problem = format!("{done} of {total} changes are done; pool {pool}: {refusal}");
                Err(Refusal::new(problem, next_of(occasion)).caused_by(refusal.cause()))
            }
            None => {
                // Killed before the end, it is done again by the next apply, with the same number.
                self.keep_documents(&text, &wanted.pools).await?;
                self.journal.end_apply().map_err(|error| error.refusal())?;
                self.journal.forget_moves(&settled_moves).map_err(|error| error.refusal())?;
                if let Some((name, refusal)) = not_changed.into_iter().next() {
                    let problem = format!(
                        "{done} of {total} changes are done; DR group {name} is not changed: {}",
                        refusal.problem()
                    );
                    return Err(Refusal::new(problem, refusal.remedy()));
                }
                match not_made.into_iter().next() {
                    None => Ok(()),
                    // Hosts are served as the file says, and another site need not be reached for that.
                    Some((name, refusal)) => {
                        let refusal = self.not_made(&name, &refusal, occasion);
                        let problem = format!("{done} of {total} changes are done; {}", refusal.problem());
                        Err(Refusal::new(problem, refusal.remedy()))
                    }
                }
            }
        }
    }

    /// A DR group that was not made, and what makes it.
    pub(super) fn not_made(&self, name: &str, refusal: &Refusal, occasion: PlanOccasion) -> Refusal {
        let next = self.waiting_dr_groups.next_of(name);
        let next = next.unwrap_or_else(|| next_of(occasion).to_owned());
        Refusal::new(format!("DR group {name} is not made: {refusal}"), next)
    }

    /// Checks the pools that are to be made, unless their making had begun. At the start, one that cannot be made is left out.
    async fn check_new(&mut self, steps: &mut Vec<SiteStep>, occasion: PlanOccasion) -> Result<(), Refusal> {
        let records = self.journal.pools().map_err(|error| error.refusal())?;
        let mut refused = BTreeMap::new();
        for step in steps.iter() {
            let SiteStep::MakePool(pool) = step else { continue };
            if records.get(&pool.name).is_some_and(|record| record.being_made.is_some()) {
                continue;
            }
            match self.places.check(&self.world, pool).await {
                Ok(()) => {}
                Err(refusal) if occasion == PlanOccasion::Start && !self.daemon.pools().is_empty() => {
                    drop(refused.insert(pool.name.clone(), refusal));
                }
                Err(refusal) => return Err(Refusal::new(format!("pool {}: {refusal}", pool.name), "")),
            }
        }
        steps.retain(|step| step.pool().is_none_or(|pool| !refused.contains_key(pool)));
        for (pool, refusal) in refused {
            self.stop_pool(&pool, refusal);
        }
        Ok(())
    }

    /// Serves what the site wants of these pools, as far as they are open and it is there; open pools that the file lacks are
    /// closed. Returns the pools that serve what they served before, with the reasons.
    async fn serve(
        &mut self,
        all: &[WantedPool],
        pools: &[&WantedPool],
        text: &str,
    ) -> BTreeMap<String, Refusal> {
        let text: Arc<str> = text.into();
        let mut failed = BTreeMap::new();
        for pool in pools {
            if self.daemon.pool(&pool.name).is_none() {
                continue;
            }
            if let Err(RowRefusal { refusal, .. }) = self.serve_pool(pool, &text, None).await {
                self.notices.of(&pool.name).warn(format!("not served as the file says: {refusal}"));
                failed.insert(pool.name.clone(), refusal);
            }
        }
        let is_wanted = |name: &String| all.iter().any(|pool| pool.name == *name);
        let open = self.daemon.pools().iter().map(|pool| pool.name.clone());
        for name in open.filter(|name| !is_wanted(name)).collect::<Vec<_>>() {
            // It would come back served, with rights of before, if the machine were lost.
            if let Err(refusal) = self.forget_document(&name).await {
                self.notices.of(&name).warn(format!("it goes on keeping what was served of it: {refusal}"));
            }
            self.publish_without(Some(&name));
            let late = self.daemon.remove_pool(&name).await;
            self.served_exports.remove(&name);
            self.served_texts.remove(&name);
            match late {
                None => {
                    self.notices.of(&name).note("closed: the site file has no group of this name any more")
                }
                Some(why) => self
                    .notices
                    .of(&name)
                    .warn(format!("the site file has no group of this name any more; {why}")),
            }
        }
        failed
    }

    /// Has a pool serve what the site `text` wants of it, unless hosts lose something by that which is `lost`: that is looked at
    /// in the same step of the pool's thread, so that no host logs in between.
    pub(super) async fn serve_pool(
        &mut self,
        pool: &WantedPool,
        text: &Arc<str>,
        lost: Option<LostServices>,
    ) -> Result<(), RowRefusal> {
        let exports = pool.exports.clone();
        // Until it is served as a whole.
        self.served_exports.remove(&pool.name);
        self.served_texts.entry(pool.name.clone()).or_insert_with(|| Arc::clone(text));
        let names = pool.volumes.iter().filter_map(|volume| Some((volume.name.clone(), volume.was.clone()?)));
        let names_of_before: BTreeMap<String, String> = names.collect();
        let withdrawn = WithdrawnOrder::default();
        let given = withdrawn.clone();
        let serving = self.order(&pool.name, "serve", move |pool| {
            Box::pin(async move {
                given.check()?;
                let ended = lost.map(|lost| lost.sessions(&pool, &exports)).unwrap_or_default();
                if !ended.is_empty() {
                    return Ok(Err(in_use(&ended)));
                }
                let (exports, mut warnings) = present(exports, &names_of_before, &pool);
                warnings.extend(pool.serve_wanted(&exports)?);
                Ok(Ok((warnings, pool.services_revision())))
            })
        });
        let served = serving.await;
        if self.unanswered.has(&pool.name) {
            // By then it might serve more than is wanted.
            withdrawn.withdraw();
        }
        let (warnings, revision) = served??;
        self.served_texts.insert(pool.name.clone(), Arc::clone(text));
        if warnings.is_empty() {
            self.served_exports.insert(pool.name.clone(), pool.exports.clone());
        }
        if let Some(thread) = self.daemon.pool(&pool.name) {
            with_deadline(self.world.sleep(SHOWN_WITHIN), thread.shows_services(revision)).await;
        }
        for what in warnings {
            self.notices.of(&pool.name).warn(what);
        }
        Ok(())
    }

    /// Makes a pool. Its UUID is recorded first, so that an interrupted making is known as ours.
    async fn make_pool(&mut self, pool: &WantedPool) -> Result<(), Refusal> {
        if self.daemon.pool(&pool.name).is_some() {
            return Ok(());
        }
        if self.late.has(&pool.name) {
            return Err(self.stopped[&pool.name].clone());
        }
        let refused = |error: JournalError| error.refusal();
        let begun =
            self.journal.pools().map_err(refused)?.remove(&pool.name).and_then(|pool| pool.being_made);
        let id = begun.unwrap_or_else(|| random_uuid(&self.world));
        let mut record = JournalPool { folder: pool.folder.clone(), being_made: Some(id) };
        self.journal.put_pool(&pool.name, &record).map_err(refused)?;
        let setting = self.places.make(pool, PoolId(id), begun.is_some());
        let AddedPools { refused: not_made, late } = self.daemon.add_pools(vec![setting]).await;
        if let Some((_, refusal)) = not_made.into_iter().next() {
            return Err(refusal);
        }
        if let Some(late) = late.into_iter().next() {
            self.await_late(pool, late);
            return Err(self.stopped[&pool.name].clone());
        }
        self.stopped.remove(&pool.name);
        record.being_made = None;
        self.journal.put_pool(&pool.name, &record).map_err(refused)
    }

    async fn perform(&mut self, step: &SiteStep) -> Result<(), Refusal> {
        match step {
            SiteStep::MakePool(pool) => self.make_pool(pool).await,
            SiteStep::RenameVolume { pool, from, to } => {
                let is_made_anew = planted::is(ApplyBug::MadeInsteadOfRenamed);
                let id = VolumeId(random_uuid(&self.world));
                let (from, to) = (from.clone(), to.clone());
                self.change(pool, "rename volume", move |pool| {
                    Box::pin(async move {
                        if is_made_anew
                            && let Some(known) = pool.pool.volumes().into_iter().find(|one| one.name == from)
                        {
                            pool.pool.delete_volume(&*from, true).await?;
                            let (size_bytes, setting) = (known.size_bytes, known.setting);
                            let new = NewVolume { name: to, volume: id, size_bytes, setting };
                            return pool.pool.create_volume(&new).await;
                        }
                        pool.pool.rename_volume(&*from, &to).await
                    })
                })
                .await
            }
            SiteStep::GrowVolume { pool, volume, to, .. } => {
                let (volume, size) = (volume.clone(), *to);
                self.change(pool, "resize volume", move |pool| Box::pin(grow(pool, volume, size.0))).await
            }
            SiteStep::SetVolume { pool, volume, to, .. } => {
                let (volume, setting) = (volume.clone(), *to);
                self.change(pool, "set volume", move |pool| Box::pin(set(pool, volume, setting))).await
            }
            SiteStep::MakeVolume { pool, volume } => {
                let new = NewVolume {
                    name: volume.name.clone(),
                    volume: VolumeId(random_uuid(&self.world)),
                    size_bytes: volume.size.0,
                    setting: new_setting(volume),
                };
                self.change(pool, "create volume", move |pool| {
                    Box::pin(async move {
                        // A refresh or a move has it under another name for a while.
                        let is_it = |known: &str| {
                            [INCOMPLETE_END, MOVED_END]
                                .iter()
                                .any(|end| known.strip_suffix(end) == Some(&new.name))
                        };
                        match pool.pool.volumes().into_iter().find(|known| is_it(&known.name)) {
                            Some(known) => Err(Error::IncompleteCopy(known.name)),
                            None => pool.pool.create_volume(&new).await,
                        }
                    })
                })
                .await
            }
            // All at once, for each pool.
            SiteStep::Serve { .. } => Ok(()),
            SiteStep::MakeDrGroup(_) | SiteStep::ChangeDrGroup { .. } => {
                unreachable!("DR groups come last")
            }
            SiteStep::DestroyVolume { pool, volume, .. } => {
                // A backup may have been made since the apply began.
                self.check_volume_unlocked(pool, volume).await?;
                let volume = volume.clone();
                self.change(pool, "delete volume", move |pool| {
                    Box::pin(async move { pool.pool.delete_volume(&*volume, true).await })
                })
                .await
            }
        }
    }

    async fn change(
        &self,
        pool: &str,
        name: &'static str,
        work: impl FnOnce(Rc<ServedPool>) -> LocalFuture<Result<(), Error>> + Send + 'static,
    ) -> Result<(), Refusal> {
        let shown = pool.to_owned();
        self.order(pool, name, move |pool| {
            let work = work(pool);
            Box::pin(async move { work.await.map_err(|error| refusal(Path::new(&shown), &error, "")) })
        })
        .await
    }
}

/// The way on after a step that failed.
fn next_of(occasion: PlanOccasion) -> &'static str {
    match occasion {
        PlanOccasion::Apply => "then apply the file again: it goes on from here",
        // An apply would undo what was changed online.
        _ => "then send the server SIGHUP: it goes on from here",
    }
}

/// The first of many lines, as one.
fn shortened(lines: &[String]) -> String {
    let shown = lines.iter().take(LINES_SHOWN).map(String::as_str).collect::<Vec<_>>().join(", ");
    match lines.len().saturating_sub(LINES_SHOWN) {
        0 => shown,
        more => format!("{shown}, and {more} more"),
    }
}

/// The exports that are wanted and there, and a line for each part that is not. A volume that was not renamed yet is found by the name it
/// has.
fn present(
    wanted: WantedExports,
    names_of_before: &BTreeMap<String, String>,
    pool: &ServedPool,
) -> (WantedExports, Vec<String>) {
    let mut missing = Vec::new();
    let mut find = |what: &str, meant: &mut String| {
        let Err(refusal) = pool.exports.check(meant) else { return true };
        let (volume, snapshot) = split_snapshot(meant);
        let before = names_of_before.get(volume).map(|before| match snapshot {
            Some(snapshot) => format!("{before}@{snapshot}"),
            None => before.clone(),
        });
        match before.filter(|before| pool.exports.check(before).is_ok()) {
            Some(before) => *meant = before,
            None => {
                missing.push(format!("{what} is not served: {refusal}"));
                return false;
            }
        }
        true
    };
    let WantedExports { mut nbd, mut targets, access } = wanted;
    nbd.retain_mut(|export| find(&format!("NBD export {:?}", export.name), &mut export.volume));
    for target in &mut targets {
        let name = target.name.clone();
        target.units.retain_mut(|unit| find(&format!("unit {name}/{}", unit.number), &mut unit.volume));
    }
    (WantedExports { nbd, targets, access }, missing)
}

async fn grow(pool: Rc<ServedPool>, volume: String, size: u64) -> Result<(), Error> {
    pool.pool.resize_volume(&*volume, size).await?;
    if let Some(known) = pool.pool.volumes().into_iter().find(|known| known.name == volume) {
        pool.exports.capacity_changed(known.volume);
    }
    Ok(())
}

async fn set(pool: Rc<ServedPool>, volume: String, setting: VolumeSetting) -> Result<(), Error> {
    let VolumeSetting { write_cache, rates, bounds, .. } = setting;
    pool.pool.set_bounds(&*volume, bounds).await?;
    pool.pool.set_rates(&*volume, rates).await?;
    pool.pool.set_write_cache(&*volume, write_cache).await
}
