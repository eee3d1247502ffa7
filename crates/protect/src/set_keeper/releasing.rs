//! Logs of what is frozen, which go once a proven backup has them.
//!
//! Nothing of it is in the catalogue's state: after a restart the newest proven backup is named again, and what is frozen
//! answers that nothing has to go. The catalogue has a line for each time that logs went.

use super::{ReleasedLogs, SetKeeper, SetProblem};
use crate::{
    backup::control_socket::LogRelease,
    catalogue::{BackupRow, CatalogueEntry, CatalogueFileError, HookRunLine, LabelWord, entry::LOGS_WENT},
    planted_keeping::{self, KeepingBug},
    retention::BackupProof,
};
use std::time::Duration;
use world::Moment;

/// Time after a release that failed.
const AGAIN: Duration = Duration::from_secs(300);

/// The releases of a keeper since it was opened.
#[derive(Default)]
pub(super) struct LogReleases {
    /// The backup for which logs went last, or for which nothing had to go.
    done: u64,
    again_from: Moment,
}

impl SetKeeper {
    /// Has the logs go that the newest proven backup holds, if something is frozen whose logs wait for that.
    pub(super) async fn release_logs(&mut self) -> Result<(), CatalogueFileError> {
        let is_early = self.world.now() < self.releases.again_from;
        if !self.settings.freeze_limit.has_freeze || is_early {
            return Ok(());
        }
        let Some((number, name)) = self.newest_to_release() else { return Ok(()) };
        if !self.are_points_there(number).await {
            // The next comparison says that they are lost, or which pool is silent.
            return Ok(());
        }
        let results = self.freezing.release_logs(&name).await;
        let mut failures = Vec::new();
        for ReleasedLogs { of, result } in results {
            match result {
                Ok(LogRelease::Released { oldest }) => self.note_release(number, &name, (of, oldest))?,
                Ok(LogRelease::Nothing(_)) => {}
                Err(error) => failures.push(error.to_string()),
            }
        }
        if failures.is_empty() {
            self.releases = LogReleases { done: number, again_from: Moment(0) };
            self.said.set(SetProblem::Unreleased, None);
        } else {
            self.releases.again_from = self.world.now() + AGAIN;
            let text =
                format!("{name} is proven, and logs that it has could not go: {}", failures.join("; "));
            self.said.set(SetProblem::Unreleased, Some(text));
        }
        Ok(())
    }

    /// The newest backup that proves the logs before it needless, unless that was said for it or a newer one.
    fn newest_to_release(&self) -> Option<(u64, String)> {
        let mut newest = self.catalogue().live().rev().filter(|(_, row)| has_all_logs(row));
        let (number, row) = newest.next()?;
        (number > self.releases.done).then(|| (number, row.start.name.clone()))
    }

    /// True if the pools have just shown every point of the backup.
    async fn are_points_there(&self, number: u64) -> bool {
        let answer = self.pools.points(&self.catalogue().header().id).await;
        let row = self.catalogue().row(number).expect("it is live");
        let is_there = |point| answer.found.iter().any(|found| found.point.is_same(point));
        row.points.iter().all(is_there) || planted_keeping::is(KeepingBug::LostReleases)
    }

    fn note_release(
        &mut self,
        backup: u64,
        name: &str,
        (of, oldest): (String, u32),
    ) -> Result<(), CatalogueFileError> {
        let text = format!("the logs before generation {oldest} went: {name} has them, and is proven");
        self.said.note(format!("{of}: {text}"));
        let (phase, result) = (LOGS_WENT.to_owned(), "done".to_owned());
        self.append(CatalogueEntry::Hook(HookRunLine { backup, phase, command: of, result, output: text }))
    }
}

/// A full backup that was cut while all was frozen, and whose databases were read by its last verification. A log chain alone
/// says nothing of them.
fn has_all_logs(row: &BackupRow) -> bool {
    let last = row.verifications.last().map(|(_, last)| last.level.as_str());
    let is_proven = row.proof() == BackupProof::Proven && last != Some("chain");
    let is_proven = is_proven || planted_keeping::is(KeepingBug::UnprovenReleases);
    row.start.kind.is_full() && row.label == Some(LabelWord::Application) && is_proven
}
