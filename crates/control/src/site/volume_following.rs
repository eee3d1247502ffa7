//! The site follows a volume that has moved to another pool: its units, exports and schedules, under hosts that use it.
//!
//! Invariants:
//!
//! 1. The volume has its place in the new pool before this begins, and the old one is not deleted before it has ended. So a
//!    server that ends at any moment finds one of both, and goes on.
//! 2. The new pool serves it before sessions in the old one end: who logs in again finds it. Until then no command on the old
//!    one is executed.
//! 3. It is done once: again, it changes nothing but what is missing.

use super::{
    adoption::with_groups_in_references,
    handle::SiteAnswer,
    moved_volumes::{follow, pool_of},
    row_change::RowEffect,
    row_layers::SiteLayer,
    row_refusal::RowRefusal,
    server::{SiteServer, parse},
    wanted_pool::WantedPool,
};
use array::format::PoolId;
use report::Refusal;
use std::{collections::BTreeMap, sync::Arc};

/// A volume that is in another pool by now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MovedVolumeNews {
    /// `POOL/VOLUME` before.
    pub from: String,
    /// The pool that has it, and its name there.
    pub pool: PoolId,
    pub name: String,
}

impl SiteServer {
    /// Has the site follow a volume that has moved.
    ///
    /// # Errors
    ///
    /// The journal cannot be written, or the site contradicts itself with the volume in its new place: ask again.
    pub(super) async fn follow_moved(&mut self, news: &MovedVolumeNews) -> Result<SiteAnswer, RowRefusal> {
        let is_it = |pool: &&crate::pool_thread::PoolThread| pool.last_view().pool == Some(news.pool);
        let Some(group) = self.daemon.pools().iter().find(is_it).map(|pool| pool.name.clone()) else {
            return Err(Refusal::new("the pool of the volume is not open", "it goes on when it is").into());
        };
        let (from, to) = (news.from.clone(), format!("{group}/{}", news.name));
        // The plan is made from views.
        self.show_changes().await;
        self.publish();
        let layers = self.layers_with_moved(&from, &to)?;
        let Some(shown) = layers.first() else { return Ok(SiteAnswer::default()) };
        self.keep_documents(&shown.plan.text, &shown.plan.wanted.pools).await?;
        let changed = |text: &str| {
            let layer =
                layers.iter().find(|layer| *layer.text == *text && layer.effect != Some(RowEffect::None));
            layer.map(|layer| layer.plan.text.clone())
        };
        // A place that no file says may be that of another volume one day.
        let is_said =
            self.file_says(&from)? || layers.iter().any(|layer| layer.effect != Some(RowEffect::None));
        if is_said {
            self.journal.follow_move(&from, &to, changed).map_err(|error| error.refusal())?;
        }
        let old_group = pool_of(&from);
        self.serve_moved(&layers, [&group, old_group]).await;
        let SiteLayer { plan, .. } = layers.into_iter().next().expect("there is one at least");
        let changes = plan.changes.shown();
        self.go_on_with(plan);
        let words: Vec<String> = changes.iter().map(ToString::to_string).collect();
        let services = if words.is_empty() { "nothing served it".to_owned() } else { words.join("; ") };
        self.notices.note(format!("{from} is {to} now: {services}"));
        for schedule in self.served_site.snapshots.iter() {
            if schedule.groups.iter().any(|name| name == old_group) && !schedule.groups.contains(&group) {
                self.notices.note(format!(
                    "schedule {} takes snapshots of group {old_group}, and {to} is not in it any more",
                    schedule.name
                ));
            }
        }
        Ok(SiteAnswer { changes, ..SiteAnswer::default() })
    }

    /// True if the file that was applied last has the volume.
    fn file_says(&self, place: &str) -> Result<bool, RowRefusal> {
        let file = self.journal.applied_file().map_err(|error| error.refusal())?;
        Ok(file.is_some_and(|text| parse(&text).is_ok_and(|site| site.volume(place).is_some())))
    }

    /// The versions of the site that pools serve, with the volume in its new place. None if no site was applied.
    fn layers_with_moved(&self, from: &str, to: &str) -> Result<Vec<SiteLayer>, RowRefusal> {
        let mut layers = Vec::new();
        for text in self.versions()? {
            let before = with_groups_in_references(parse(&text)?);
            let mut site = before.clone();
            let is_changed = follow(&mut site, from, to);
            let plan = self.planner.plan_rows(&before, &site)?;
            let effect = Some(if is_changed { RowEffect::Changed } else { RowEffect::None });
            layers.push(SiteLayer { text, before: Arc::new(before), effect, plan });
        }
        Ok(layers)
    }

    /// Has the new pool serve the volume, and then the old one end its sessions. One that cannot now does when it goes on.
    async fn serve_moved(&mut self, layers: &[SiteLayer], pools: [&str; 2]) {
        let after: BTreeMap<Arc<str>, Arc<str>> =
            layers.iter().map(|layer| (Arc::clone(&layer.text), layer.plan.text.as_str().into())).collect();
        for name in pools {
            let text = self.served_texts.get(name).cloned().unwrap_or_else(|| Arc::clone(&layers[0].text));
            let layer = layers.iter().find(|layer| layer.text == text).unwrap_or(&layers[0]);
            let wanted: Option<&WantedPool> = layer.plan.wanted.pools.iter().find(|pool| pool.name == name);
            let Some(wanted) = wanted.filter(|_| self.daemon.pool(name).is_some()) else { continue };
            let text = Arc::clone(&after[&layer.text]);
            if let Err(refused) = self.serve_pool(wanted, &text, None).await {
                let line =
                    format!("a volume has moved, and what is served is as before: {}", refused.refusal);
                self.notices.of(name).warn(line);
            }
        }
        for text in self.served_texts.values_mut() {
            if let Some(new) = after.get(text) {
                *text = Arc::clone(new);
            }
        }
    }
}
