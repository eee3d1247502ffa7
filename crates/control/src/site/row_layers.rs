//! The versions of the site that pools serve, with the change of a row made in each.
//!
//! Usually there is one. While a site file is applied to a part, pools that missed it serve the site before, and the others that of
//! the file: what is taken away is taken out of both, so that neither brings it back.

use super::{
    adoption::{refreshed_volumes, with_groups_in_references},
    changes::SiteStep,
    file_merge::{implicitly_open, served_names},
    planning::PlannedSite,
    row_change::{RowEffect, SiteRowChange},
    row_refusal::{RowRefusal, RowRefusalKind},
    row_sessions::LostServices,
    server::{SiteServer, parse},
};
use plan::site::Site;
use report::Refusal;
use std::{collections::BTreeSet, sync::Arc};

/// A version of the site, and the change in it.
pub(super) struct SiteLayer {
    /// The version before.
    pub text: Arc<str>,
    pub before: Arc<Site>,
    /// `None` if it does not have the row.
    pub effect: Option<RowEffect>,
    /// The version with the change.
    pub plan: PlannedSite,
}

impl SiteLayer {
    /// Services that the change takes away.
    pub fn lost(&self) -> LostServices {
        let gone = self.plan.changes.steps.iter().filter_map(|step| match step {
            SiteStep::Serve { kind, name, from: Some(_), .. } => Some((*kind, name.clone())),
            _ => None,
        });
        LostServices { before: Arc::clone(&self.before), gone: Arc::new(gone.collect()) }
    }
}

impl SiteServer {
    /// The versions with the change, that first which is shown.
    pub(super) fn layers(&self, change: &SiteRowChange) -> Result<Vec<SiteLayer>, RowRefusal> {
        let texts = self.served_versions()?;
        let is_only = texts.len() == 1;
        let mut layers = Vec::new();
        let mut lacking = None;
        for text in texts {
            let before = with_groups_in_references(parse(&text)?);
            let mut site = refreshed_volumes(before.clone(), &self.planner.found_pools(), |_| true);
            let may_lack = !is_only && !change.is_creation();
            let effect = match change.row(&site) {
                None if may_lack => None,
                _ => match change.clone().make(&mut site) {
                    Err(refusal)
                        if may_lack && change.is_removal() && refusal.kind == RowRefusalKind::NotFound =>
                    {
                        lacking = Some(refusal);
                        None
                    }
                    made => Some(made?),
                },
            };
            if effect.is_none() {
                site = before.clone();
            }
            keep_needed_volumes(&mut site, &before);
            check(change, &before, &site)?;
            let plan = self.planner.plan_rows(&before, &site)?;
            layers.push(SiteLayer { text, before: Arc::new(before), effect, plan });
        }
        if layers.iter().all(|layer| layer.effect.is_none()) {
            let refusal = change.clone().make(&mut Site::clone(&layers[0].before)).err();
            return Err(lacking.or(refusal).unwrap_or_else(RowRefusal::stale));
        }
        Ok(layers)
    }

    /// Texts of the versions of the site that pools serve or are to serve, that first which is shown.
    fn served_versions(&self) -> Result<Vec<Arc<str>>, RowRefusal> {
        let texts = self.versions()?;
        match texts.is_empty() {
            true => Err(Refusal::new("no site file was applied", "apply one").into()),
            false => Ok(texts),
        }
    }

    /// As [`Self::served_versions`]; none if no site was applied.
    pub(super) fn versions(&self) -> Result<Vec<Arc<str>>, RowRefusal> {
        let under_way = self.journal.apply_under_way().map_err(|error| error.refusal())?;
        let served = self.journal.served_site().map_err(|error| error.refusal())?;
        let mut texts: Vec<Arc<str>> = Vec::new();
        let mut add = |text: &str| {
            if !texts.iter().any(|known| **known == *text) {
                texts.push(text.into());
            }
        };
        served.iter().for_each(|text| add(text));
        if let Some(apply) = under_way.filter(|apply| apply.online.is_none()) {
            add(&apply.text);
            self.served_texts.values().for_each(|text| add(text));
        }
        let is_shown = |text: &Arc<str>| {
            parse(text).is_ok_and(|site| with_groups_in_references(site) == *self.served_site)
        };
        if let Some(shown) = texts.iter().position(is_shown) {
            texts.swap(0, shown);
        }
        Ok(texts)
    }
}

/// Refuses a site that contradicts itself, or in which a target is open to all that was not.
fn check(change: &SiteRowChange, before: &Site, site: &Site) -> Result<(), RowRefusal> {
    if let Some(fault) = site.fault() {
        return Err(Refusal::new(fault, "").into());
    }
    let is_new_target = matches!(change, SiteRowChange::CreateTarget { .. });
    let open_before = implicitly_open(before);
    let opened = implicitly_open(site).into_iter().find(|name| !open_before.contains(name));
    match opened.filter(|_| !is_new_target) {
        None => Ok(()),
        Some(name) => {
            let problem = format!("target {name} would be open to every initiator: no other one uses it");
            let next = "give another initiator a right on it first, or delete the target";
            Err(Refusal::new(problem, next).into())
        }
    }
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
