//! A change of a row, done: served by the pools, journalled, and taken back if a pool refuses it.

use super::{
    planning::PlannedSite, row_layers::SiteLayer, row_refusal::RowRefusal, server::SiteServer,
    wanted::WantedSite,
};
use crate::journal::ApplyRecord;
use report::Refusal;
use std::sync::Arc;

impl SiteServer {
    /// Has the pools serve what they are to serve by a change, whose versions are given, that first which is shown.
    ///
    /// # Errors
    ///
    /// A pool refuses it: everything is served as before. A pool does not answer: the change is made, and that pool gets it
    /// when it answers.
    pub(super) async fn apply_row(
        &mut self,
        layers: Vec<SiteLayer>,
        is_forced: bool,
        has_ended: bool,
    ) -> Result<(), RowRefusal> {
        let is_whole = self.is_applied();
        let made = layers.iter().find(|layer| !layer.plan.changes.steps.is_empty()).unwrap_or(&layers[0]);
        let words: Vec<String> = made.plan.changes.shown().iter().map(ToString::to_string).collect();
        if is_whole {
            let text = layers[0].plan.text.clone();
            let begun = ApplyRecord { text, online: Some(words.join("; ")), ..ApplyRecord::default() };
            // A journal that takes no change has begun none.
            self.journal
                .begin_apply(&begun)
                .map_err(|error| nothing_changed(&error.refusal(), "nothing was changed"))?;
        }
        self.renew_certificates(&layers[0].plan.wanted);
        let mut late = Vec::new();
        for layer in &layers {
            let text: Arc<str> = layer.plan.text.as_str().into();
            for pool in self.pools_to_change(layer) {
                let lost = Some(layer.lost()).filter(|_| !is_forced);
                match self.serve_pool(pool, &text, lost).await {
                    Ok(()) => {}
                    Err(_) if self.unanswered.has(&pool.name) => late.push(pool.name.clone()),
                    Err(refusal) => {
                        return Err(self.take_back(&layers, refusal, (is_whole, has_ended)).await);
                    }
                }
            }
        }
        // Killed before the end, it was not made, and the next start has the number of its documents.
        let SiteLayer { plan, .. } = &layers[0];
        let kept = self.keep_documents(&plan.text, &plan.wanted.pools).await;
        let kept = kept.and_then(|()| self.keep_row(&layers, is_whole).map_err(|error| error.refusal()));
        if let Err(refusal) = kept {
            return Err(self.take_back(&layers, refusal.into(), (is_whole, has_ended)).await);
        }
        let after: Vec<Arc<str>> = layers.iter().map(|layer| layer.plan.text.as_str().into()).collect();
        for text in self.served_texts.values_mut() {
            let index = layers.iter().position(|layer| is_whole || layer.text == *text);
            if let Some(index) = index {
                *text = Arc::clone(&after[index]);
            }
        }
        let SiteLayer { plan, .. } = layers.into_iter().next().expect("there is one at least");
        if is_whole {
            self.note_outcome(&Ok(()));
        }
        self.go_on_with(plan);
        match late.first() {
            None => Ok(()),
            Some(pool) => {
                words.iter().for_each(|change| self.notices.note(format!("changed online: {change}")));
                Err(RowRefusal::no_answer(
                    format!(
                        "changed ({}), but pool {pool} did not answer and serves as before: it gets the change when it answers",
                        words.join("; ")
                    ),
                    "look at the pool's drives; the server goes on with it when it answers, also after a restart",
                ))
            }
        }
    }

    /// Has schedules, sets and other threads follow a change of rows that is made.
    pub(super) fn go_on_with(&mut self, PlannedSite { text, wanted, .. }: PlannedSite) {
        self.read_served_site(Some(text));
        self.schedules.set(wanted.schedules);
        self.sets.set(wanted.sets);
        self.watched.send_replace(Arc::new(wanted.watched));
        self.publish();
    }

    /// Journals a change that the pools serve.
    fn keep_row(&self, layers: &[SiteLayer], is_whole: bool) -> Result<(), crate::journal::JournalError> {
        if is_whole {
            return self.journal.end_apply();
        }
        let changed = |text: &str| {
            layers.iter().find(|layer| *layer.text == *text).map(|layer| layer.plan.text.clone())
        };
        self.journal.change_rows(changed)
    }

    /// Serves what was served before. Returns the refusal, with what has become of the change.
    async fn take_back(
        &mut self,
        layers: &[SiteLayer],
        refused: RowRefusal,
        (is_whole, has_ended): (bool, bool),
    ) -> RowRefusal {
        let serving_before = async {
            for layer in layers {
                let wanted = WantedSite::of(&layer.before, &self.context)?;
                let changed: Arc<str> = layer.plan.text.as_str().into();
                for pool in &wanted.pools {
                    let is_changed = self.served_texts.get(&pool.name).is_none_or(|text| *text == changed);
                    if is_changed && self.daemon.pool(&pool.name).is_some() {
                        let served = self.serve_pool(pool, &layer.text, None).await;
                        if !self.unanswered.has(&pool.name) {
                            served?;
                        }
                    }
                }
            }
            if is_whole {
                let text = layers[0].text.to_string();
                let online = Some("what was served before".to_owned());
                let record = ApplyRecord { text, online, ..ApplyRecord::default() };
                let ended = self.journal.begin_apply(&record).and_then(|()| self.journal.end_apply());
                ended.map_err(|error| error.refusal())?;
            }
            Ok(())
        };
        let RowRefusal { kind, refusal } = refused;
        let refusal = match serving_before.await {
            Ok(()) if has_ended => nothing_changed(
                &refusal,
                "what was served before is served again; hosts whose sessions ended may log in",
            ),
            Ok(()) => nothing_changed(&refusal, "nothing was changed"),
            Err::<(), Refusal>(error) => Refusal::new(
                format!("{}; and what was before is not served either: {error}", refusal.problem()),
                "send the server SIGHUP: it serves the site file with what was changed online",
            ),
        };
        RowRefusal { kind, refusal }
    }
}

/// A refusal, with what has become of the change.
fn nothing_changed(refusal: &Refusal, words: &str) -> Refusal {
    refusal.with_problem(format!("{}; {words}", refusal.problem()))
}
