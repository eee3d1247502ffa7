//! Deletions: by the rules after a round, by law, and for room.

use super::{SetKeeper, SetProblem};
use crate::{
    catalogue::{BackupDeletion, CatalogueEntry, CatalogueFileError, PointUse},
    planted_keeping::{self, KeepingBug},
    retention::{
        DeletionRule, KeepReason, RetainedBackup, RetentionOutcome, RoundOutcome, decide, is_full, thin_out,
        thinning::FULL_PERCENT,
    },
};
use std::time::Duration;

/// Time from one look for room in full pools to the next: pools free the room of what was deleted later.
const ROOM_EVERY: Duration = Duration::from_secs(60);
const SCHEDULE: &str = "schedule";

impl SetKeeper {
    /// Removes what no rule wants. Use and losses were asked for just before.
    pub(super) async fn retain(&mut self, round: RoundOutcome) -> Result<(), CatalogueFileError> {
        let decisions =
            decide(&self.retained(), self.settings.schedules.schedules(), &self.settings.keep, round);
        for decision in decisions {
            if let RetentionOutcome::Goes(rule) = decision.outcome {
                let why = match rule {
                    DeletionRule::AtMost => "it is older than at_most".to_owned(),
                    _ => "no rule wants it".to_owned(),
                };
                self.delete(decision.sequence, rule, SCHEDULE, &why).await?;
            }
        }
        Ok(())
    }

    /// Removes what is older than the law allows, without a round.
    pub(super) async fn delete_too_old(&mut self) -> Result<(), CatalogueFileError> {
        let Some(at_most_s) = self.settings.keep.at_most_s() else { return Ok(()) };
        if self.retained().iter().any(|backup| backup.age_s > at_most_s) {
            self.settle().await?;
            self.retain(RoundOutcome::Failed).await?;
        }
        Ok(())
    }

    /// Removes one backup if a pool of the set is full.
    pub(super) async fn thin_out(&mut self) -> Result<(), CatalogueFileError> {
        let full = self.pools.rooms().await.into_iter();
        let full: Vec<String> =
            full.filter(|room| is_full(room.used_bytes, room.capacity_bytes)).map(|room| room.pool).collect();
        if full.is_empty() {
            self.said.set(SetProblem::Full, None);
            return Ok(());
        }
        if self.looked_for_room_at.is_some_and(|last| self.world.now().since(last) < ROOM_EVERY) {
            return Ok(());
        }
        self.looked_for_room_at = Some(self.world.now());
        self.settle().await?;
        let mut retained = self.retained();
        // A backup without points there makes no room there.
        for backup in &mut retained {
            let row = self.catalogue().row(backup.sequence).expect("it is retained");
            backup.is_in_use |= !row.points.iter().any(|point| full.contains(&point.pool));
        }
        let pools = full.join(", ");
        match thin_out(&retained, &self.settings.keep) {
            Some(step) => {
                self.said.set(SetProblem::Full, None);
                self.delete(step.sequence, DeletionRule::ThinnedOut, SCHEDULE, &step.to_string()).await
            }
            None => {
                let text = format!(
                    "{pools} is {FULL_PERCENT} % full, and none of the {} backups may go: see 'spindle protect list'",
                    retained.len()
                );
                self.said.set(SetProblem::Full, Some(text));
                Ok(())
            }
        }
    }

    /// Deletes a backup. What cannot be removed now is removed at a later look.
    pub(super) async fn delete(
        &mut self,
        number: u64,
        rule: DeletionRule,
        by: &str,
        why: &str,
    ) -> Result<(), CatalogueFileError> {
        let row = self.catalogue().row(number).expect("it exists");
        let (points, name) = (row.points.clone(), row.start.name.clone());
        let is_full = row.start.kind.is_full();
        let deletion = BackupDeletion { backup: number, rule, by: by.to_owned() };
        if planted_keeping::is(KeepingBug::PointsBeforeDeleting) {
            let _ = self.pools.remove(points.clone()).await;
        }
        self.append(CatalogueEntry::Deleting(deletion.clone()))?;
        match self.pools.remove(points).await {
            Ok(()) => {
                self.append(CatalogueEntry::Deleted(deletion))?;
                let text = format!("{name} is deleted: {why}");
                match rule {
                    DeletionRule::ThinnedOut => self.said.warn(text),
                    _ if is_full => self.said.note(text),
                    // As many come by the minute: the catalogue has them.
                    _ => {}
                }
            }
            Err(error) => {
                self.note_settled(false);
                let text = format!("points of {name} are not removed, and will be tried again: {error}");
                self.said.set(SetProblem::Left, Some(text));
            }
        }
        Ok(())
    }

    /// The backups that exist, as rules look at them. One that was not asked about counts as in use.
    pub(super) fn retained(&self) -> Vec<RetainedBackup> {
        let mut uses = self.uses.clone();
        for (number, _) in self.catalogue().live() {
            uses.entry(number).or_insert(PointUse { is_in_use: true, frees_bytes: None });
        }
        self.catalogue().retained(self.age_s(), &uses)
    }

    /// The reasons for which a backup stays.
    pub(super) fn reasons(&self) -> Vec<(u64, Vec<KeepReason>)> {
        let schedules = self.settings.schedules.schedules();
        let decisions = decide(&self.retained(), schedules, &self.settings.keep, RoundOutcome::Succeeded);
        decisions
            .into_iter()
            .map(|decision| match decision.outcome {
                RetentionOutcome::Stays(reasons) => (decision.sequence, reasons),
                RetentionOutcome::Goes(_) => (decision.sequence, Vec::new()),
            })
            .collect()
    }
}
