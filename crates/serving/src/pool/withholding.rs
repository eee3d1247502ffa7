//! Clients from which a volume is withheld, as `pool show` and an export show them; and their readmission.

use super::volume_change::{ChangeablePool, VolumeDone, VolumeOutcome, VolumeRef};
use array::format::row::{WithheldClient, WithholdingRow};
use iscsi::scsi::reservations::Nexus;
use report::{Refusal, calendar::utc_time};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeSet, path::Path};

/// Clients from which a volume is withheld.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WithholdingStatus {
    /// iSCSI names of initiators, sorted.
    pub initiators: Vec<String>,
    /// All NBD clients: they have no names.
    pub nbd: bool,
    /// Time of the last rollback or failover that withheld it, in UTC.
    pub since: String,
}

/// Clients to be readmitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadmittedClients {
    All,
    Named {
        /// iSCSI names.
        initiators: Vec<String>,
        nbd: bool,
    },
}

/// Clients that were readmitted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReadmissionAnswer {
    /// iSCSI names of initiators, sorted.
    pub initiators: Vec<String>,
    /// All NBD clients.
    pub nbd: bool,
}

impl WithholdingStatus {
    /// `None` for a volume that is withheld from nobody.
    pub fn of(rows: &[WithholdingRow]) -> Option<Self> {
        let last = rows.iter().map(|row| row.since.0).max()?;
        let ReadmissionAnswer { initiators, nbd } = ReadmissionAnswer::of(rows.iter().map(|row| &row.client));
        Some(Self { initiators, nbd, since: utc_time((last / 1_000_000_000) as i64) })
    }

    /// Behind a comma.
    pub fn text(&self) -> String {
        format!(", withheld since {} from {}", self.since, clients_text(&self.initiators, self.nbd))
    }

    /// For the start of an export of `path`.
    pub fn notice(&self, path: &Path) -> String {
        format!(
            "{path} was rolled back, or failed over with a loss, at {} under clients, whose caches belong to the contents of before: it is withheld from \
             {}; an initiator gets it when it has logged out and logs in again, or, as NBD clients do, after 'spindle volume \
             readmit {path}', with this export ended",
            self.since,
            clients_text(&self.initiators, self.nbd),
            path = path.display()
        )
    }
}

impl ReadmissionAnswer {
    fn of<'c>(clients: impl IntoIterator<Item = &'c WithheldClient>) -> Self {
        let (mut initiators, mut nbd) = (BTreeSet::new(), false);
        for client in clients {
            match client {
                WithheldClient::AllNbd => nbd = true,
                WithheldClient::InitiatorPort(port) => _ = initiators.insert(initiator_of(port)),
            }
        }
        Self { initiators: initiators.into_iter().collect(), nbd }
    }

    /// In a line.
    pub fn text(&self, path: &Path) -> String {
        if self.initiators.is_empty() && !self.nbd {
            return format!("{}: withheld from nobody", path.display());
        }
        format!("{}: readmitted: {}", path.display(), clients_text(&self.initiators, self.nbd))
    }
}

/// Readmits clients of a volume, whatever they have cached. Those of a served volume may use it at once, NBD clients over
/// new connections.
pub(super) async fn readmit(
    on: &ChangeablePool<'_>,
    volume: &VolumeRef,
    clients: &ReadmittedClients,
) -> Result<VolumeDone, Refusal> {
    let help = format!("see 'spindle pool show {}'", on.place.display());
    let refused = |error| on.refusal(&error, &help);
    let rows = on.pool.withheld_from(volume.key()).map_err(refused)?;
    let info = on.info(volume)?;
    let known = ReadmissionAnswer::of(rows.iter().map(|row| &row.client));
    if let ReadmittedClients::Named { initiators, nbd } = clients {
        let stranger = initiators.iter().find(|name| !known.initiators.contains(*name)).map(String::as_str);
        let stranger = stranger.or((*nbd && !known.nbd).then_some("NBD clients"));
        if let Some(stranger) = stranger {
            let problem = format!("{} is not withheld from {stranger}", on.path(&info.name).display());
            return Err(Refusal::new(problem, help));
        }
    }
    let is_readmitted = |client: &WithheldClient| match (clients, client) {
        (ReadmittedClients::All, _) => true,
        (ReadmittedClients::Named { nbd, .. }, WithheldClient::AllNbd) => *nbd,
        (ReadmittedClients::Named { initiators, .. }, WithheldClient::InitiatorPort(port)) => {
            initiators.contains(&initiator_of(port))
        }
    };
    let answer = match on.device(&info) {
        Some(device) => {
            let answer =
                ReadmissionAnswer::of(rows.iter().map(|row| &row.client).filter(|c| is_readmitted(c)));
            for initiator in &answer.initiators {
                device.served.readmit(initiator).await.map_err(refused)?;
            }
            if answer.nbd {
                device.served.readmit_nbd().await.map_err(refused)?;
            }
            answer
        }
        None => {
            let readmitted = on.pool.readmit(info.volume, is_readmitted).await.map_err(refused)?;
            ReadmissionAnswer::of(&readmitted)
        }
    };
    Ok(VolumeDone::of(on.info(&info.volume.into())?, VolumeOutcome::Readmitted(answer)))
}

fn initiator_of(port: &str) -> String {
    Nexus(port.to_owned()).initiator().to_owned()
}

/// Clients by their names, NBD clients all together.
pub fn clients_text(initiators: &[String], nbd: bool) -> String {
    let nbd = nbd.then_some("all NBD clients");
    let all: Vec<&str> = initiators.iter().map(String::as_str).chain(nbd).collect();
    match all.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        _ => all.join(""),
    }
}
