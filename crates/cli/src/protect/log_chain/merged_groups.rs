//! Storage groups that came back, joined with the dial tone that stood in for them, on clones.

use super::{backup_groups::BackupGroup, chained_logs::ChainedLogs};
use crate::protect::mailboxes::{MailDatabases, NamedDatabase};
use maildb::{DatabaseLocation, Instance, InstanceConfig, LogRetention};
use report::Refusal;
use std::{collections::BTreeMap, rc::Rc};
use workload::database::load::{
    dial_tone::read_dial_tone,
    merge::{MergedMail, merge_into},
};
use world::Directory;

/// A database that was joined.
pub struct MergedDatabase {
    pub name: String,
    pub mail: MergedMail,
}

impl ChainedLogs<'_> {
    /// Adds what came in during a dial tone to databases on clones of restored volumes. `volumes` has the paths of the clones by
    /// their points, `live` the databases of the dial tone, and `live_names` the paths of their volumes.
    ///
    /// # Errors
    ///
    /// No dial tone is in place, the restored databases are one themselves, or they cannot be recovered or written. The clones
    /// are worth nothing then.
    pub async fn merge(
        &self,
        groups: &[BackupGroup],
        volumes: &BTreeMap<usize, String>,
        (live, live_names): (&MailDatabases, &BTreeMap<usize, String>),
    ) -> Result<Vec<MergedDatabase>, Refusal> {
        self.on_clones(groups, volumes, async |folders| {
            let mut merged = Vec::new();
            for group in groups {
                merged.extend(Box::pin(self.merge_group(group, folders, (live, live_names))).await?);
            }
            Ok(merged)
        })
        .await
    }

    async fn merge_group(
        &self,
        group: &BackupGroup,
        folders: &BTreeMap<usize, Rc<dyn Directory>>,
        (live, live_names): (&MailDatabases, &BTreeMap<usize, String>),
    ) -> Result<Vec<MergedDatabase>, Refusal> {
        let refused = |problem: String| Refusal::new(format!("{}: {problem}", group.names()), "");
        let location = |(index, file_name): &(usize, String)| DatabaseLocation {
            directory: Rc::clone(&folders[index]),
            file_name: file_name.clone(),
        };
        let locations = group.databases.iter().map(location).collect();
        // Backups of before are brought forward with these logs.
        let config = InstanceConfig { log_retention: LogRetention::UntilReleased, ..group.config.clone() };
        let log = Rc::clone(&folders[&group.log]);
        let instance = Instance::open(self.world, log, locations, config).await;
        let instance = instance.map_err(|error| refused(error.to_string()))?;
        let mut session = instance.session();
        let mut merged = Vec::new();
        for (restored, (volume, name)) in instance.databases().iter().zip(&group.databases) {
            let is_meant = |one: &&NamedDatabase| one.name == *name && one.point == live_names[volume];
            let Some(dial_tone) = live.databases.iter().find(is_meant) else {
                return Err(refused(format!("{} has no {name} with a mail table", live_names[volume])));
            };
            let from = dial_tone.reader.database();
            let marks = (read_dial_tone(from).await, read_dial_tone(restored).await);
            match marks {
                (Ok(Some(_)), Ok(None)) => {}
                (Ok(None), _) => {
                    let problem =
                        format!("{name} on {} is no dial tone: there is nothing to join", live_names[volume]);
                    return Err(Refusal::new(problem, "see 'spindle protect report SET' for what was done"));
                }
                (Ok(Some(_)), Ok(Some(_))) => {
                    let problem = format!("{name} beside it is a dial tone itself");
                    return Err(Refusal::new(problem, "restore the lost databases beside, and name those"));
                }
                (Err(error), _) | (_, Err(error)) => return Err(refused(error.to_string())),
            }
            let mail = merge_into(from, (restored, &mut session)).await;
            let mail = mail.map_err(|error| refused(error.to_string()))?;
            self.console.say_progress(&format!("{name}: {} messages added", mail.added));
            merged.push(MergedDatabase { name: name.clone(), mail });
        }
        drop(session);
        instance.close().await.map_err(|error| refused(error.to_string()))?;
        Ok(merged)
    }
}
