//! A restore in place: volumes go back to their snapshots, or clones that were brought forward take their places.

use super::{
    LogOutcome, SetRestore,
    hooks::HostHooks,
    one_database::only,
    replacements::{CloneSource, LeftReplacements, Replacement, Replacements, paths_of},
    volumes::{
        EarlyEnd, RestoredRow, RestoredVolume, look_at_all, refuse_in_dr_group, refuse_users, roll_back_all,
    },
};
use crate::protect::log_chain::{LogPlan, LogSource, LogWish, temporary_clone_name};
use control::web::client::BackupPointRow;
use report::Refusal;
use std::collections::{BTreeMap, BTreeSet};

impl SetRestore<'_> {
    /// The clones that take the places of the volumes of these points.
    pub(super) fn replacements<'r>(&'r self, points: &'r [BackupPointRow]) -> Replacements<'r> {
        Replacements { server: self.server, change: &self.change, points }
    }

    /// Refuses to bring databases forward in place where that would lose what hosts write, or cannot be done.
    pub(super) async fn refuse_replacing(
        &self,
        volumes: &[RestoredVolume],
        logs: &LogOutcome,
    ) -> Result<(), Refusal> {
        // A restore of one database that is completed asks for no log any more.
        let is_put_back = !self.arguments.databases.is_empty() && !logs.rows.is_empty();
        if !logs.goes_further() && !is_put_back {
            return Ok(());
        }
        let is_live = self.wish.as_ref().is_some_and(|wish| wish.newest == LogSource::Live);
        let used = volumes.iter().find(|volume| !volume.users.is_empty());
        if let Some(used) = used.filter(|_| is_live && self.arguments.force) {
            return Err(Refusal::new(
                format!(
                    "{} is used by {}, who may write while its log is read",
                    used.path(),
                    used.users.join(", ")
                ),
                "end the mail server, unmount and log out; or say ⟨logs⟩ none, or the number of a backup",
            ));
        }
        let remedy = "say ⟨as⟩ NAME to restore beside it, or ⟨logs⟩ none to go back to the backup alone";
        refuse_in_dr_group(self.server, volumes, remedy).await
    }

    /// Takes all volumes back, within the hooks if there are any.
    pub(super) async fn in_place(
        &self,
        (points, left): (&[BackupPointRow], &LeftReplacements),
        of_group: Option<&BTreeSet<usize>>,
        logs: &mut LogOutcome,
    ) -> Result<Vec<RestoredRow>, EarlyEnd> {
        let Self { server, arguments, backup, console, .. } = self;
        let named = (arguments.set.as_str(), backup.name.as_str());
        HostHooks::around(arguments.hooks.as_deref(), named, console, async || {
            // As they are once the hook has disconnected this host.
            let volumes = only(look_at_all(server, points).await?, of_group);
            refuse_users(&volumes, arguments.force)?;
            match &self.wish {
                _ if !left.decided.is_empty() => {
                    console.say_progress("completing a restore that ended early");
                    self.replacements(points).take_places(&left.decided, &volumes, console).await
                }
                Some(wish) if logs.goes_further() || !arguments.databases.is_empty() => {
                    // Their names are those of the next ones.
                    self.replacements(points).give_up(&left.undecided).await;
                    Box::pin(self.replace(points, &volumes, wish, logs)).await
                }
                _ => roll_back_all(server, &volumes, console).await,
            }
        })
        .await
    }

    /// Brings databases forward on clones, and lets these take the places of the volumes.
    async fn replace(
        &self,
        points: &[BackupPointRow],
        volumes: &[RestoredVolume],
        wish: &LogWish,
        logs: &mut LogOutcome,
    ) -> Result<Vec<RestoredRow>, EarlyEnd> {
        // Hosts have gone: nothing is written to the live log any more.
        self.refuse_replacing(volumes, logs).await?;
        let mut plan = Box::pin(self.chained.prove(wish)).await?;
        let replacements = self.replacements(points);
        let made = Box::pin(self.brought_forward(&replacements, volumes, (&mut plan, wish))).await;
        *logs = LogOutcome::of(Some(&plan));
        if let Err(refusal) = self.end(Some(plan)).await {
            self.console.warn(&format!("copies of logs are left until their time is over: {refusal}"));
        }
        let mut made = made?;
        if let Err(refusal) = replacements.decide(&mut made).await {
            replacements.give_up(&made).await;
            return Err(refusal.into());
        }
        self.console.say_progress(
            "databases are brought forward on clones, which change places with the volumes now",
        );
        replacements.take_places(&made, volumes, self.console).await
    }

    /// Clones all that changes, with the databases on it as the logs have them.
    async fn brought_forward(
        &self,
        replacements: &Replacements<'_>,
        volumes: &[RestoredVolume],
        (plan, wish): (&mut LogPlan, &LogWish),
    ) -> Result<Vec<Replacement>, Refusal> {
        let of_groups = plan.volumes();
        let changes = |&index: &usize| !volumes[index].is_done || of_groups.contains(&index);
        let is_one = !self.arguments.databases.is_empty();
        let source = |index: usize| match is_one {
            true => (index, CloneSource { volume_id: volumes[index].volume.id.clone(), snapshot: None }),
            false => (index, CloneSource::of_point(&volumes[index].point)),
        };
        let wanted: BTreeMap<usize, CloneSource> = (0..volumes.len()).filter(changes).map(source).collect();
        let name =
            |point: &BackupPointRow| temporary_clone_name(self.chained.world, self.chained.base, point);
        let made = replacements.clone(&wanted, name).await?;
        let paths = paths_of(&made);
        let joined = match is_one {
            true => Box::pin(self.chained.put_back(plan, &paths, wish)).await,
            false => Box::pin(self.chained.join(plan, &paths, wish)).await,
        };
        if let Err(refusal) = joined {
            replacements.give_up(&made).await;
            let problem = format!("{}; nothing was restored", refusal.problem());
            return Err(Refusal::new(problem, refusal.remedy()));
        }
        Ok(made)
    }
}
