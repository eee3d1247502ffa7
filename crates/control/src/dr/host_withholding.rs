//! Withholding of a group's volumes at a promotion that may lose what hosts were answered: hosts that were connected at the
//! other site get them no more, until they have let go of what they cached.
//!
//! Invariants:
//!
//! 1. The pool has the clients before the record of the group says primary: no host is served in between.
//! 2. A promotion that fails withholds from nobody from whom it was not withheld before.

use super::{group_clients::ClientsOfVolumes, hosted_group::HostedGroup};
use array::pool::WITHHELD_BY_ROLLBACK_MAX;
use report::Refusal;

impl HostedGroup {
    /// Withholds the volumes of the group from clients. Returns those from which they were not withheld before.
    pub(super) async fn withhold(&self, clients: &ClientsOfVolumes) -> Result<ClientsOfVolumes, Refusal> {
        let mut new = Vec::new();
        for (volume, clients) in clients.iter().filter(|(volume, _)| self.settings().volumes.contains(volume))
        {
            for some in clients.chunks(WITHHELD_BY_ROLLBACK_MAX) {
                match self.member.pool().withhold(&[(*volume, some.to_vec())]).await {
                    Ok(added) => new.extend(added.into_iter().filter(|(_, clients)| !clients.is_empty())),
                    Err(error) => {
                        self.take_withholding_back(new).await;
                        return Err(self.refusal(&error));
                    }
                }
            }
        }
        Ok(new)
    }

    /// The promotion did not happen.
    pub(super) async fn take_withholding_back(&self, new: ClientsOfVolumes) {
        for (volume, clients) in new {
            // A pool that cannot write keeps them: they are listed, and a person readmits them.
            let _ = self.member.pool().readmit(volume, |client| clients.contains(client)).await;
        }
    }
}
