//! One database of a set restored: clones of the live volumes get it, so the other databases and the log keep what they have.
//!
//! The databases of a storage group share its log, and a recovery replays all of it for each of them: a database that ends
//! earlier than the log cannot be attached beside the others. So it comes back up to the minute, or beside with all others.

use super::{
    SetRestore,
    replacements::LeftReplacements,
    volumes::{EarlyEnd, RestoredRow, RestoredVolume, clone_live, refuse_taken_names},
};
use crate::protect::log_chain::{LogPlan, LogSource, LogWish};
use maildb::log::JoinEnd;
use report::Refusal;
use std::collections::{BTreeMap, BTreeSet};

/// The wish for the logs of one database: all of them, and no earlier end.
///
/// # Errors
///
/// Another one was said.
pub(super) fn wish(said: Option<LogWish>) -> Result<LogWish, Refusal> {
    match said {
        Some(wish) if wish.newest == LogSource::Live && wish.end == JoinEnd::Newest => {
            Ok(LogWish { is_said: true, ..wish })
        }
        _ => Err(Refusal::new(
            "⟨database⟩: a database alone comes back up to the minute, as it shares its log with others that are up to there: \
             one that ends earlier cannot be attached beside them",
            "leave out ⟨logs⟩, ⟨to-time⟩ and ⟨to-log⟩; or leave out ⟨database⟩ and say ⟨as⟩ NAME: all databases of the set then \
             come back to that moment beside the live ones",
        )),
    }
}

/// The volumes, of which all but those of a storage group are left alone.
pub(super) fn only(volumes: Vec<RestoredVolume>, of_group: Option<&BTreeSet<usize>>) -> Vec<RestoredVolume> {
    let Some(of_group) = of_group else { return volumes };
    let of_group = |(index, volume)| RestoredVolume { is_done: !of_group.contains(&index), ..volume };
    volumes.into_iter().enumerate().map(of_group).collect()
}

impl SetRestore<'_> {
    /// The volumes of the group of the only database that comes back, by their points; `None` if all come back.
    pub(super) fn volumes_of_database(
        &self,
        plan: Option<&LogPlan>,
        left: &LeftReplacements,
    ) -> Option<BTreeSet<usize>> {
        if self.arguments.databases.is_empty() {
            return None;
        }
        let decided = || left.decided.iter().map(|clone| clone.point).collect();
        Some(plan.map_or_else(decided, LogPlan::volumes))
    }

    /// Clones the live volumes of the group as `VOLUME-NAME`, with the database in them.
    pub(super) async fn database_beside(
        &self,
        volumes: &[RestoredVolume],
        suffix: &str,
        plan: &mut Option<LogPlan>,
    ) -> Result<Vec<RestoredRow>, EarlyEnd> {
        let (Some(plan), Some(wish)) = (plan, &self.wish) else {
            unreachable!("one database comes back with its logs")
        };
        // Clones of one volume after the other are of one moment only while nobody writes.
        if let Some(used) = volumes.iter().find(|volume| !volume.is_done && !volume.users.is_empty()) {
            let problem = format!("{} is used by {}: nothing was cloned", used.path(), used.users.join(", "));
            let remedy = "end the mail server, unmount and log out; or leave out ⟨database⟩: all volumes are then cloned from the \
                          backup, while they are used";
            return Err(Refusal::new(problem, remedy).into());
        }
        refuse_taken_names(self.server, volumes.iter().filter(|volume| !volume.is_done), suffix).await?;
        let (mut rows, mut by_point) = (Vec::new(), BTreeMap::new());
        for (point, volume) in volumes.iter().enumerate() {
            let mut row = volume.row();
            if !volume.is_done {
                let made = clone_live(self.server, volume, suffix).await;
                let made = made.map_err(|refusal| volume.ended_early(&rows, &refusal))?;
                by_point.insert(point, made.clone());
                row.made = Some(made);
            }
            rows.push(row);
        }
        Box::pin(self.chained.put_back(plan, &by_point, wish)).await.map_err(|refusal| {
            let made: Vec<&str> = by_point.values().map(String::as_str).collect();
            let problem =
                format!("{}; the clones {} do not have the database", refusal.problem(), made.join(", "));
            EarlyEnd::after_changes(problem, format!("{}; delete the clones", refusal.remedy()))
        })?;
        Ok(rows)
    }
}
