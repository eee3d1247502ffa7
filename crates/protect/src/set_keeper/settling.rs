//! Catalogue and pools made to agree: after a start, after each round, and while something is open.

use super::{PoolsAnswer, SetKeeper, SetProblem};
use crate::{
    catalogue::{CatalogueEntry, CatalogueFileError, CatalogueRepair, CutPoint, PointUse, reconcile},
    planted_keeping::{self, KeepingBug},
};
use std::collections::{BTreeMap, BTreeSet};

/// Open ends of a comparison.
#[derive(Default)]
struct Open {
    waits: Vec<String>,
    strays: Vec<String>,
    left: Vec<String>,
}

impl SetKeeper {
    /// Asks the pools for the set's points, and makes catalogue and pools agree as far as they answer.
    pub(super) async fn settle(&mut self) -> Result<(), CatalogueFileError> {
        let set = self.catalogue().header().id.clone();
        let answer = self.pools.points(&set).await;
        let uncovered = self.settings.uncovered();
        let repairs = reconcile(self.catalogue(), &answer.found, &answer.asked, uncovered);
        let mut open = Open::default();
        for repair in repairs {
            self.repair(repair, &answer, &mut open).await?;
        }
        open.strays.extend(answer.of_others.iter().map(|(id, count)| {
            let name = &self.settings.name;
            format!(
                "{count} points are of another catalogue of a set called {name} ({id}): none of them counts or goes here; \
                 bring that catalogue back, or delete them"
            )
        }));
        self.uses = self.uses_of(&answer);
        self.note_settled(open.waits.is_empty() && open.left.is_empty());
        let text = |texts: Vec<String>| (!texts.is_empty()).then(|| texts.join("; "));
        self.said.set(SetProblem::Waiting, text(open.waits));
        self.said.set(SetProblem::Strays, text(open.strays));
        self.said.set(SetProblem::Left, text(open.left));
        Ok(())
    }

    async fn repair(
        &mut self,
        repair: CatalogueRepair,
        answer: &PoolsAnswer,
        open: &mut Open,
    ) -> Result<(), CatalogueFileError> {
        match repair {
            CatalogueRepair::Adopt(found) => {
                let (name, reason) = (found.name.clone(), found.reason.clone());
                let label = found.label.word();
                self.append(CatalogueEntry::Found(found))?;
                self.said.warn(format!("{name} was found in the pools and counts as {label}: {reason}"));
            }
            CatalogueRepair::Remove { points, failed } => match self.pools.remove(points).await {
                Ok(()) => {
                    let number = failed.backup;
                    let why = failed.problems.join("; ");
                    self.append(CatalogueEntry::Failed(failed))?;
                    self.said.warn(format!("backup {number} was not made: {why}"));
                }
                Err(error) => {
                    open.left.push(format!("points of backup {} are not removed: {error}", failed.backup));
                }
            },
            CatalogueRepair::DeleteAgain { deletion, points, silent } => {
                let number = deletion.backup;
                match self.pools.remove(points).await {
                    Ok(()) if silent.is_empty() => {
                        self.append(CatalogueEntry::Deleted(deletion))?;
                        self.said.note(format!("backup {number} is deleted; that had not ended"));
                    }
                    Ok(()) => open.waits.push(format!(
                        "backup {number} is to be deleted from {}",
                        silent_text(&silent, &answer.silent)
                    )),
                    Err(error) => {
                        open.left.push(format!("points of backup {number} are not removed: {error}"))
                    }
                }
            }
            CatalogueRepair::NoteLost { lost, left } => {
                let number = lost.backup;
                let why = lost.why.clone();
                self.append(CatalogueEntry::Lost(lost))?;
                let rest = match left.is_empty() {
                    true => String::new(),
                    false => format!("; what is left of it stays: {}", points_text(&left)),
                };
                self.said.warn(format!("backup {number} is lost, and not by this set: {why}{rest}"));
            }
            CatalogueRepair::Stray { name, points } => {
                open.strays.push(format!(
                    "{name} is in no catalogue and lacks points; delete what is left of it, or leave it: {}",
                    points_text(&points)
                ));
            }
            CatalogueRepair::Wait { backup, pools } => open.waits.push(format!(
                "backup {backup} has begun, and {}; no other is made before that is known",
                silent_text(&pools, &answer.silent)
            )),
        }
        Ok(())
    }

    /// The use of each backup: one of its points is enough. A pool that is silent may use everything.
    fn uses_of(&self, answer: &PoolsAnswer) -> BTreeMap<u64, PointUse> {
        let is_used = |point: &CutPoint| {
            let is_silent = !answer.asked.contains(&point.pool);
            (is_silent || answer.in_use.iter().any(|used| used.is_same(point)))
                && !planted_keeping::is(KeepingBug::UseIgnored)
        };
        let rows = self.catalogue().live();
        rows.map(|(number, row)| {
            (number, PointUse { is_in_use: row.points.iter().any(is_used), frees_bytes: None })
        })
        .collect()
    }
}

/// `pool east does not answer (it is closed)`.
fn silent_text(pools: &[String], reasons: &BTreeMap<String, String>) -> String {
    let text = |pool: &String| match reasons.get(pool) {
        Some(why) => format!("pool {pool} does not answer ({why})"),
        None => format!("pool {pool} does not answer"),
    };
    pools.iter().map(text).collect::<Vec<_>>().join(" and ")
}

fn points_text(points: &[CutPoint]) -> String {
    let texts: BTreeSet<String> =
        points.iter().map(|point| format!("{}/{}", point.pool, point.volume)).collect();
    texts.into_iter().collect::<Vec<_>>().join(", ")
}
