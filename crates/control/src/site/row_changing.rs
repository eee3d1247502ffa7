//! One row of the served site, changed under its hosts without a file: planned, done (`row_applying`), and taken back if it
//! fails.
//!
//! Invariants:
//!
//! 1. Pools and volumes are not changed: only what is served of them.
//! 2. A change is served as a whole and in the journal, or it is neither: what holds no data can be served as before. One that
//!    is cut short by the server's end was not made, and the next start says so. A pool that does not answer gets it when it
//!    does.
//! 3. No host loses what it uses unless that is forced.
//! 4. While a site file is applied to a part, a row is changed in the site before and in that of the file (`row_layers`).

use super::{
    changes::SiteStep,
    file_merge::{FileDifference, difference},
    handle::{NewSecret, OnlineChange, RowAnswer, SiteAnswer},
    planning::PlannedSite,
    row_change::{RowEffect, SiteRow, SiteRowChange, find_initiator},
    row_layers::SiteLayer,
    row_refusal::RowRefusal,
    server::{SiteServer, parse},
    wanted_pool::WantedPool,
};
use crate::{hexadecimal::hexadecimal, row_tag::row_tag, session_view::SessionView};
use plan::site::SiteInitiator;
use report::Refusal;
use serving::export::WantedExports;
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
        match self {
            Self::Target(row) => row_tag(row),
            Self::Initiator(row) => row_tag(row),
            Self::Export(row) => row_tag(row),
            Self::Schedule(row) => row_tag(row),
        }
    }
}

impl SiteServer {
    /// Changes one row, or shows what that would change.
    pub(super) async fn change_row(&mut self, wanted: OnlineChange) -> Result<SiteAnswer, RowRefusal> {
        let OnlineChange { mut change, secret, if_match, is_forced, is_dry_run } = wanted;
        let file = secret.map(|secret| self.keep_secret(&mut change, &secret)).transpose()?.flatten();
        let changed = self.change_row_with((change, if_match), is_forced, is_dry_run).await;
        // A change may be made although it ends with a refusal: a pool that does not answer gets it later.
        if let Some(file) = file.filter(|file| (is_dry_run || changed.is_err()) && !self.is_named(file)) {
            // The refusal is the news; a secret that stays is known to nobody.
            let _ = host_files::remove_file(&file);
        }
        changed
    }

    /// True if a version of the site that counts has the path of a file. A journal that cannot be read may have it.
    fn is_named(&self, file: &Path) -> bool {
        let path = file.display().to_string();
        let (served, under_way) = (self.journal.served_site(), self.journal.apply_under_way());
        let (Ok(served), Ok(under_way)) = (served, under_way) else { return true };
        [served, under_way.map(|apply| apply.text)].into_iter().flatten().any(|text| text.contains(&path))
    }

    async fn change_row_with(
        &mut self,
        (change, if_match): (SiteRowChange, Option<String>),
        is_forced: bool,
        is_dry_run: bool,
    ) -> Result<SiteAnswer, RowRefusal> {
        let layers = self.layers(&change)?;
        let effects = || layers.iter().filter_map(|layer| layer.effect);
        let effect = effects().find(|&effect| effect != RowEffect::None).unwrap_or(RowEffect::None);
        let row = layers.iter().find_map(|layer| change.row(&layer.before));
        let is_stale = if_match.is_some_and(|tag| row.is_none_or(|row| row.tag() != tag));
        // One that was made before, by the same request, is no change.
        if is_stale && effect != RowEffect::None {
            return Err(RowRefusal::stale());
        }
        for layer in &layers {
            self.check_services(layer).await?;
        }
        let mut ended = Vec::new();
        for layer in &layers {
            ended.extend(self.ended_sessions(layer, is_forced || is_dry_run).await?);
        }
        if !ended.is_empty() && !is_forced && !is_dry_run {
            return Err(in_use(&ended));
        }
        let made = layers.iter().find(|layer| layer.effect == Some(effect)).unwrap_or(&layers[0]);
        let answer = |difference| SiteAnswer {
            changes: made.plan.changes.shown(),
            notes: made.plan.notes().to_vec(),
            row: Some(RowAnswer {
                effect,
                ended: ended.iter().map(|(session, what)| format!("{}: {what}", session.host())).collect(),
                difference,
            }),
            ..SiteAnswer::default()
        };
        if is_dry_run {
            return Ok(answer(FileDifference::default()));
        }
        if effect == RowEffect::None {
            return Ok(answer(self.difference_from_file()?));
        }
        let mut done = answer(FileDifference::default());
        self.apply_row(layers, is_forced, !ended.is_empty()).await?;
        for change in &done.changes {
            self.notices.note(format!("changed online: {change}"));
        }
        if let Some(row) = &mut done.row {
            row.difference = self.difference_from_file()?;
        }
        Ok(done)
    }

    /// The open pools that serve a version, and that are to serve something else by the change. One that has stopped serves
    /// nobody, and of one of which nothing changes, hosts feel nothing.
    pub(super) fn pools_to_change<'l>(&self, layer: &'l SiteLayer) -> Vec<&'l WantedPool> {
        let is_whole = self.is_applied();
        let pools = layer.plan.wanted.pools.iter().filter(|pool| {
            let is_open = self.daemon.pool(&pool.name).is_some_and(|thread| thread.view().is_some());
            is_open
                && (is_whole || self.served_texts.get(&pool.name) == Some(&layer.text))
                && self.served_exports.get(&pool.name) != Some(&pool.exports)
        });
        pools.collect()
    }

    /// Refuses services that are new, of volumes or snapshots that are not there.
    async fn check_services(&self, layer: &SiteLayer) -> Result<(), RowRefusal> {
        let plan: &PlannedSite = &layer.plan;
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

    /// The hosts that would lose something that they use by a change, and what.
    async fn ended_sessions(
        &self,
        layer: &SiteLayer,
        is_forced: bool,
    ) -> Result<Vec<(SessionView, String)>, RowRefusal> {
        let mut ended = Vec::new();
        for pool in self.pools_to_change(layer) {
            if is_forced && self.unanswered.has(&pool.name) {
                continue;
            }
            let (wanted, lost) = (pool.exports.clone(), layer.lost());
            let sessions = self.order(&pool.name, "sessions", |served| {
                Box::pin(async move { Ok(lost.sessions(&served, &wanted)) })
            });
            match sessions.await {
                Ok(sessions) => ended.extend(sessions),
                Err(_) if is_forced && self.unanswered.has(&pool.name) => {}
                Err(refusal) if self.unanswered.has(&pool.name) => {
                    let problem = format!(
                        "{}, so nobody knows which hosts use it; nothing was changed",
                        refusal.problem()
                    );
                    return Err(RowRefusal::no_answer(
                        problem,
                        "with ⟨force⟩ it is changed for the other pools now, and for this one when it answers",
                    ));
                }
                Err(refusal) => return Err(refusal.into()),
            }
        }
        Ok(ended)
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

/// The refusal of a change by which these hosts would lose something.
pub(super) fn in_use(ended: &[(SessionView, String)]) -> RowRefusal {
    let (session, what) = &ended[0];
    let more = match ended.len() {
        1 => String::new(),
        many => format!(", and {} more hosts use what would go", many - 1),
    };
    RowRefusal::in_use(format!("{what} is used by {}{more}", session.host()))
}
