//! One row of the served site, changed under its hosts without a file: planned, done as an apply is done, and taken back if it
//! fails.
//!
//! Invariants:
//!
//! 1. Pools and volumes are not changed: only what is served of them.
//! 2. A change is served as a whole and in the journal, or it is neither: what holds no data can be served as before. One that
//!    is cut short by the server's end was not made, and the next start says so.
//! 3. No host loses what it uses unless that is forced.

use super::{
    adoption::{FoundPool, refreshed_volumes, with_groups_in_references},
    changes::SiteStep,
    file_merge::{FileDifference, difference, implicitly_open, served_names},
    handle::{NewSecret, OnlineChange, RowAnswer, SiteAnswer},
    planning::{PlanOccasion, PlannedSite},
    row_change::{RowEffect, SiteRow, SiteRowChange, find_initiator},
    row_refusal::RowRefusal,
    server::{SiteServer, parse},
    wanted::WantedSite,
};
use crate::{
    hexadecimal::hexadecimal,
    session_view::{SessionProtocol, SessionView},
};
use plan::site::{Site, SiteInitiator};
use report::Refusal;
use ring::digest::{SHA256, digest};
use serving::export::{EndedServices, WantedExports, name_of};
use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};
use world::real::host_files::{self, PathKind};

/// Folder of secrets that came over the API, in the state folder.
const SECRETS: &str = "secrets";
/// Most bytes of a secret's file that are read.
const SECRET_BYTES_MAX: u64 = 4096;

impl SiteRow<'_> {
    /// The version of the row, as `ETag` and `If-Match` have it.
    pub fn tag(&self) -> String {
        let text = match self {
            Self::Target(row) => serde_json::to_string(row),
            Self::Initiator(row) => serde_json::to_string(row),
            Self::Export(row) => serde_json::to_string(row),
            Self::Schedule(row) => serde_json::to_string(row),
        };
        let hash = digest(&SHA256, text.expect("plain fields").as_bytes());
        format!("\"{}\"", hexadecimal(&hash.as_ref()[..8]))
    }
}

impl SiteServer {
    /// Changes one row, or shows what that would change.
    pub(super) async fn change_row(&mut self, wanted: OnlineChange) -> Result<SiteAnswer, RowRefusal> {
        let OnlineChange { mut change, secret, if_match, is_forced, is_dry_run } = wanted;
        let file = secret.map(|secret| self.keep_secret(&mut change, &secret)).transpose()?.flatten();
        let changed = self.change_row_with((change, if_match), is_forced, is_dry_run).await;
        if let Some(file) = file.filter(|_| is_dry_run || changed.is_err()) {
            // The refusal is the news; a secret that stays is known to nobody.
            let _ = host_files::remove_file(&file);
        }
        changed
    }

    async fn change_row_with(
        &mut self,
        (change, if_match): (SiteRowChange, Option<String>),
        is_forced: bool,
        is_dry_run: bool,
    ) -> Result<SiteAnswer, RowRefusal> {
        let (before, mut site) = self.site_to_change()?;
        let is_stale = if_match.is_some_and(|tag| change.row(&before).is_none_or(|row| row.tag() != tag));
        let is_creation = matches!(change, SiteRowChange::CreateTarget { .. });
        let effect = change.make(&mut site)?;
        // One that was made before, by the same request, is no change.
        if is_stale && effect != RowEffect::None {
            return Err(RowRefusal::stale());
        }
        keep_needed_volumes(&mut site, &before);
        if let Some(fault) = site.fault() {
            return Err(Refusal::new(fault, "").into());
        }
        let open_before = implicitly_open(&before);
        let opened = implicitly_open(&site).into_iter().find(|name| !open_before.contains(name));
        if let Some(name) = opened.filter(|_| !is_creation) {
            let problem = format!("target {name} would be open to every initiator: no other one uses it");
            return Err(Refusal::new(
                problem,
                "give another initiator a right on it first, or delete the target",
            )
            .into());
        }
        let mut plan = self.plan(&site.to_toml(), &[], PlanOccasion::Online).await?;
        plan.changes.steps.retain(|step| matches!(step, SiteStep::Serve { .. }));
        plan.changes.kept.clear();
        let words: Vec<String> = plan.changes.shown().iter().map(ToString::to_string).collect();
        plan.online = Some(words.join("; "));
        self.check_services(&plan).await?;
        let ended = self.ended_sessions(&before, &plan).await?;
        if let Some((session, what)) = ended.first().filter(|_| !is_forced && !is_dry_run) {
            let more = match ended.len() {
                1 => String::new(),
                many => format!(", and {} more hosts use what would go", many - 1),
            };
            return Err(RowRefusal::in_use(format!("{what} is used by {}{more}", session.host())));
        }
        let answer = |plan: &PlannedSite, difference| SiteAnswer {
            changes: plan.changes.shown(),
            notes: plan.notes().to_vec(),
            row: Some(RowAnswer {
                effect,
                ended: ended.iter().map(|(session, what)| format!("{}: {what}", session.host())).collect(),
                difference,
            }),
            ..SiteAnswer::default()
        };
        if is_dry_run {
            return Ok(answer(&plan, FileDifference::default()));
        }
        if effect == RowEffect::None {
            return Ok(answer(&plan, self.difference_from_file()?));
        }
        let shown = plan.changes.shown();
        let mut done = answer(&plan, FileDifference::default());
        if let Err(refusal) = self.apply(plan, |_| ()).await {
            // A journal that takes no change has begun none.
            if self.journal.apply_under_way().is_ok_and(|apply| apply.is_none()) {
                return Err(nothing_changed(&refusal, "nothing was changed").into());
            }
            return Err(self.take_back(&before, refusal, !ended.is_empty()).await.into());
        }
        for change in &shown {
            self.notices.note(format!("changed online: {change}"));
        }
        if let Some(row) = &mut done.row {
            row.difference = self.difference_from_file()?;
        }
        Ok(done)
    }

    /// The served site, and the same with the volumes that the pools have now.
    fn site_to_change(&self) -> Result<(Site, Site), RowRefusal> {
        let under_way = self.journal.apply_under_way().map_err(|error| error.refusal())?;
        if under_way.is_some_and(|apply| apply.online.is_none()) {
            let problem = "a site file was not applied to its end, so nobody knows what is served";
            let next = "send the server SIGHUP: it goes on where it was, and keeps what was changed online; 'spindle apply' \
                        undoes that";
            return Err(Refusal::new(problem, next).into());
        }
        let text = self.journal.served_site().map_err(|error| error.refusal())?;
        let text = text.ok_or_else(|| Refusal::new("no site file was applied", "apply one"))?;
        let before = with_groups_in_references(parse(&text)?);
        let site = refreshed_volumes(before.clone(), &self.found_pools()?, |_| true);
        Ok((before, site))
    }

    /// The pools that are open, with their volumes.
    pub(super) fn found_pools(&self) -> Result<Vec<FoundPool>, Refusal> {
        let records = self.journal.pools().map_err(|error| error.refusal())?;
        let mut pools = Vec::new();
        for pool in self.daemon.pools() {
            let Some(view) = pool.view() else { continue };
            let folder = records.get(&pool.name).map(|record| record.folder.clone()).unwrap_or_default();
            pools.push(FoundPool::served(&pool.name, folder, &view));
        }
        Ok(pools)
    }

    /// Refuses services that are new, of volumes or snapshots that are not there.
    async fn check_services(&self, plan: &PlannedSite) -> Result<(), RowRefusal> {
        let mut new: BTreeSet<(&'static str, &str)> = BTreeSet::new();
        for step in &plan.changes.steps {
            if let SiteStep::Serve { kind, name, to: Some(_), .. } = step {
                new.insert((kind, name));
            }
        }
        for pool in &plan.wanted.pools {
            let WantedExports { nbd, targets, .. } = &pool.exports;
            let exports = nbd.iter().filter(|export| new.contains(&("nbd export", export.name.as_str())));
            let units = targets.iter().flat_map(|target| {
                let is_new =
                    |number: u64| new.contains(&("unit", format!("{}/{number}", target.name).as_str()));
                target.units.iter().filter(move |unit| is_new(unit.number)).map(|unit| &unit.volume)
            });
            let volumes: Vec<String> = exports.map(|export| &export.volume).chain(units).cloned().collect();
            if volumes.is_empty() {
                continue;
            }
            self.order(&pool.name, "check services", move |served| {
                Box::pin(async move { volumes.iter().try_for_each(|volume| served.exports.check(volume)) })
            })
            .await?;
        }
        Ok(())
    }

    /// The hosts that would lose something that they use by a plan, and what.
    async fn ended_sessions(
        &self,
        before: &Site,
        plan: &PlannedSite,
    ) -> Result<Vec<(SessionView, String)>, RowRefusal> {
        let mut gone: BTreeSet<(&str, &str)> = BTreeSet::new();
        for step in &plan.changes.steps {
            if let SiteStep::Serve { kind, name, from: Some(_), .. } = step {
                gone.insert((kind, name));
            }
        }
        let mut ended = Vec::new();
        for pool in &plan.wanted.pools {
            // One that has stopped has no sessions, and one of which nothing changes keeps them.
            if self.daemon.pool(&pool.name).is_none_or(|thread| thread.view().is_none())
                || self.served_exports.get(&pool.name) == Some(&pool.exports)
            {
                continue;
            }
            let wanted = pool.exports.clone();
            let sessions = self.order(&pool.name, "sessions", |served| {
                Box::pin(async move {
                    // What is not there is refused, or left out with a warning, when it is served.
                    let other = served.exports.ended_by(&wanted).unwrap_or_default();
                    Ok((served.sessions(), other))
                })
            });
            let (sessions, other) = sessions.await?;
            for session in sessions {
                let what = lost_by(&session, before, &plan.wanted, &gone);
                if let Some(what) = what.or_else(|| changed_under(&session, &other)) {
                    ended.push((session, what));
                }
            }
        }
        Ok(ended)
    }

    /// Serves what was served before. Returns the refusal, with what has become of the change.
    async fn take_back(&mut self, before: &Site, refusal: Refusal, has_ended: bool) -> Refusal {
        let serving_before = async {
            let mut plan = self.plan(&before.to_toml(), &[], PlanOccasion::Online).await?;
            plan.changes.steps.clear();
            plan.online = Some("what was served before".to_owned());
            self.apply(plan, |_| ()).await
        };
        match serving_before.await {
            Ok(()) if has_ended => nothing_changed(
                &refusal,
                "what was served before is served again; hosts whose sessions ended may log in",
            ),
            Ok(()) => nothing_changed(&refusal, "nothing was changed"),
            Err(error) => Refusal::new(
                format!("{}; and what was before is not served either: {error}", refusal.problem()),
                "send the server SIGHUP: it serves the site file with what was changed online",
            ),
        }
    }

    /// Tables for the file that was applied last.
    pub(super) fn difference_from_file(&self) -> Result<FileDifference, Refusal> {
        let refused = |error: crate::journal::JournalError| error.refusal();
        let file = self.journal.applied_file().map_err(refused)?;
        let served = self.journal.served_site().map_err(refused)?;
        match (file, served) {
            (Some(file), Some(served)) => Ok(difference(parse(&file)?, parse(&served)?)),
            _ => Ok(FileDifference::default()),
        }
    }

    /// Keeps a secret in a file of its own, which the initiator's row names; the file of before, if it has this secret. Returns
    /// the file if it is new. None is ever removed that was served: a site file may name it that this server has not seen.
    fn keep_secret(
        &self,
        change: &mut SiteRowChange,
        secret: &NewSecret,
    ) -> Result<Option<PathBuf>, RowRefusal> {
        let folder = self.context.state.join(SECRETS);
        let known = find_initiator(&self.served_site, change.initiator().unwrap_or_default());
        let known =
            known.map(|row| row.secret_file.clone()).filter(|file| Path::new(file).starts_with(&folder));
        let is_same = |file: &String| {
            let bytes = host_files::read_file_at_most(Path::new(file), SECRET_BYTES_MAX);
            bytes.is_ok_and(|bytes| bytes == secret.text.as_bytes())
        };
        let known = known.filter(is_same);
        let file = folder.join(hexadecimal(&secret.uuid));
        match change {
            SiteRowChange::CreateInitiator { initiator: SiteInitiator { secret_file, .. } } => {
                *secret_file = known.clone().unwrap_or_else(|| file.display().to_string());
            }
            SiteRowChange::SetInitiator { patch, .. } => {
                patch.secret_file = known.is_none().then(|| file.display().to_string());
            }
            _ => return Err(RowRefusal::bad("only initiators have secrets".to_owned(), String::new())),
        }
        if known.is_some() {
            return Ok(None);
        }
        let is_new = !matches!(host_files::kind(&file), Ok(PathKind::File));
        let written = host_files::create_private_dir_all(&folder)
            .and_then(|()| host_files::write_secret(&file, secret.text.as_bytes()));
        written.map_err(|error| Refusal::new(error.to_string(), "see the state folder of the server"))?;
        Ok(is_new.then_some(file))
    }
}

/// A refusal, with what has become of the change.
fn nothing_changed(refusal: &Refusal, words: &str) -> Refusal {
    Refusal::new(format!("{}; {words}", refusal.problem()), refusal.remedy())
}

/// Takes volumes out that the site did not have, and that nothing refers to.
fn keep_needed_volumes(site: &mut Site, before: &Site) {
    let known = site.clone();
    let named = served_names(&known);
    let served: BTreeSet<(&str, &str)> = named
        .iter()
        .filter_map(|meant| known.served_volume(meant))
        .map(|volume| (volume.group.as_str(), volume.name.as_str()))
        .collect();
    site.volumes.retain(|volume| {
        let is_known =
            before.volumes.iter().any(|known| known.group == volume.group && known.name == volume.name);
        is_known || served.contains(&(volume.group.as_str(), volume.name.as_str()))
    });
}

/// The first thing that a session uses and that is served anew, with what its volume was set to since.
fn changed_under(session: &SessionView, ended: &EndedServices) -> Option<String> {
    if session.protocol == SessionProtocol::Nbd {
        let is_ended = ended.exports.contains(&session.service);
        return is_ended.then(|| format!("NBD export {}", session.service));
    }
    let is_used = |(target, number): &&(String, u64)| {
        name_of(target) == session.service && session.units.iter().any(|(unit, _)| unit == number)
    };
    ended.units.iter().find(is_used).map(|(target, number)| format!("unit {target}/{number}"))
}

/// The first thing that a session uses and would lose.
fn lost_by(
    session: &SessionView,
    before: &Site,
    wanted: &WantedSite,
    gone: &BTreeSet<(&str, &str)>,
) -> Option<String> {
    if session.protocol == SessionProtocol::Nbd {
        if gone.contains(&("nbd export", session.service.as_str())) {
            return Some(format!("NBD export {}", session.service));
        }
        // All clients of a volume are disconnected with one of its exports.
        let volume =
            |name: &str| before.exports.iter().find(|export| export.name == name).map(|row| &row.volume);
        let own = volume(&session.service)?;
        let other = gone.iter().find(|(kind, name)| *kind == "nbd export" && volume(name) == Some(own));
        return other
            .map(|(_, other)| format!("NBD export {}, of one volume with {other},", session.service));
    }
    let target = before.targets.iter().find(|target| name_of(&target.name) == session.service)?;
    let initiator = session.initiator.as_deref().unwrap_or_default();
    let access = wanted.pools.first().map(|pool| &pool.exports.access);
    session.units.iter().find_map(|&(number, may_write)| {
        let unit = format!("{}/{number}", target.name);
        let right = access.and_then(|access| access.right(initiator, &session.service, number));
        let keeps_right =
            right.is_some_and(|right| !may_write || right == iscsi::target::access::AccessRight::Write);
        let is_gone = gone.contains(&("unit", unit.as_str())) || !keeps_right;
        is_gone.then(|| format!("unit {unit}"))
    })
}
