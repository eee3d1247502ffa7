//! Withholding: clients whose caches belong to contents that a forced rollback took away get the volume no more,
//! also from a process that opens the pool later. The pool keeps their names; who serves the volume refuses them.
//!
//! Invariants:
//!
//! 1. The rows of the clients are in the record of the rollback: both have happened, or none. Those of a group's rollback
//!    are durable before its intent ([`Pool::withhold`]): it never happens without them.
//! 2. A row stays until its client is readmitted, or the volume is deleted.

use super::{Pool, RollbackGoal, VolumeKey};
use crate::{
    engine::FeatureUse,
    error::{Error, Result},
    format::{
        RowKey, VolumeId, VolumeNumber,
        features::INCOMPATIBLE_WITHHOLDING,
        record::ENTRIES_MAX,
        row::{WithheldClient, WithholdingRow},
    },
    log::LogItem,
};

/// Most clients from which one rollback withholds: its record has room for them.
pub const WITHHELD_BY_ROLLBACK_MAX: usize = ENTRIES_MAX - 4;

impl Pool {
    /// As [`Pool::roll_back`], although somebody has the volume open, and withholds the volume from `clients`: in one
    /// record. The caller keeps commands of these clients away from the volume, from before this call on.
    ///
    /// # Errors
    ///
    /// Those of [`Pool::roll_back`]; or more than [`WITHHELD_BY_ROLLBACK_MAX`] clients are new to the volume, or one
    /// has an invalid name. Nothing has changed then.
    pub async fn force_rollback<'k>(
        &self,
        volume: impl Into<VolumeKey<'k>>,
        goal: RollbackGoal<'k>,
        left: VolumeId,
        clients: &[WithheldClient],
    ) -> Result<String> {
        self.roll_back_from(volume.into(), goal, left, Some(clients)).await
    }

    /// Withholds volumes from clients, before a rollback of their group that is forced: the caller keeps commands of these
    /// clients away from the volumes, from before this call on. Returns, by volume, the clients that are new to it.
    ///
    /// # Errors
    ///
    /// No such volume; more than [`WITHHELD_BY_ROLLBACK_MAX`] clients are new to one, or one has an invalid name; or the pool
    /// cannot write. Volumes before that one may be withheld then.
    pub async fn withhold(
        &self,
        wanted: &[(VolumeId, Vec<WithheldClient>)],
    ) -> Result<Vec<(VolumeId, Vec<WithheldClient>)>> {
        let one_at_a_time = self.host.admission.admit_rows().await?;
        let (mut rows, mut new) = (Vec::new(), Vec::new());
        for (volume, clients) in wanted {
            let number = self.number_of((*volume).into())?;
            let known = self.shared.state.borrow().catalogue.new_withholdings(number, clients);
            new.push((*volume, known.into_iter().map(|(_, client)| client).collect()));
            rows.push(self.withholding_rows(number, clients)?);
        }
        let features = self.begin_withholding(rows.iter().any(|rows| !rows.is_empty())).await?;
        // A record for each volume: together they may be more than one has room for.
        let puts = rows.into_iter().filter(|rows| !rows.is_empty()).map(|rows| {
            let put = |(row, bytes)| LogItem::Put { row, bytes };
            self.log.append_together(rows.into_iter().map(put).collect())
        });
        let logged: Vec<_> = puts.collect();
        let all = async move {
            for logged in logged {
                logged.await?;
            }
            Ok(())
        };
        self.answer((one_at_a_time, features), Box::pin(all)).await?;
        Ok(new)
    }

    /// Clients from which a volume is withheld.
    ///
    /// # Errors
    ///
    /// No such volume.
    pub fn withheld_from<'k>(&self, volume: impl Into<VolumeKey<'k>>) -> Result<Vec<WithholdingRow>> {
        let number = self.number_of(volume.into())?;
        let state = self.shared.state.borrow();
        Ok(state.catalogue.withheld_from(number).map(|(_, row)| row.clone()).collect())
    }

    /// Readmits the clients of a volume for which `is_readmitted` is true; a rollback meanwhile comes before, or after.
    /// Returns them. If this is interrupted, the volume stays withheld from some of them.
    ///
    /// # Errors
    ///
    /// No such volume; or the pool cannot write.
    pub async fn readmit<'k>(
        &self,
        volume: impl Into<VolumeKey<'k>>,
        is_readmitted: impl Fn(&WithheldClient) -> bool,
    ) -> Result<Vec<WithheldClient>> {
        let one_at_a_time = self.shared.lock_changes().await;
        let number = self.number_of(volume.into())?;
        let (numbers, clients): (Vec<u64>, Vec<WithheldClient>) = {
            let state = self.shared.state.borrow();
            let rows = state.catalogue.withheld_from(number);
            let rows = rows.filter(|(_, row)| is_readmitted(&row.client));
            rows.map(|(number, row)| (number, row.client.clone())).unzip()
        };
        let remove = |row: u64| LogItem::Remove(RowKey::of_withholding(number, row));
        self.log_in_order(one_at_a_time, numbers.into_iter().map(remove).collect()).await?;
        Ok(clients)
    }

    /// Sets the feature of a record with clients from which a volume is withheld, if there are any.
    pub(super) async fn begin_withholding(&self, are_there: bool) -> Result<Option<FeatureUse>> {
        match are_there {
            true => self.shared.begin_rows(INCOMPATIBLE_WITHHOLDING).await.map(Some),
            false => Ok(None),
        }
    }

    /// The rows of the clients that are new to a volume.
    pub(super) fn withholding_rows(
        &self,
        number: VolumeNumber,
        clients: &[WithheldClient],
    ) -> Result<Vec<(RowKey, Vec<u8>)>> {
        if let Some(WithheldClient::InitiatorPort(name)) = clients.iter().find(|client| !client.is_valid()) {
            return Err(Error::BadName(name.clone()));
        }
        let since = self.shared.wall_now();
        let new = self.shared.state.borrow().catalogue.new_withholdings(number, clients);
        if new.len() > WITHHELD_BY_ROLLBACK_MAX {
            return Err(Error::TooManyWithheld { clients: new.len(), at_most: WITHHELD_BY_ROLLBACK_MAX });
        }
        Ok(new.into_iter().map(|(key, client)| (key, WithholdingRow { client, since }.encode())).collect())
    }
}
