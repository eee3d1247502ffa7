//! Every slot that was due, and what became of it: the first table of an auditor's report.

use super::{
    entry::MissedRange,
    state::{BackupCatalogue, BackupStage},
};
use crate::{UnixSecond, backup_schedule::FilledSlot};

/// The fate of one slot, or of slots in a row that were missed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SlotFate {
    /// It was made; [`BackupCatalogue::row`] has its label, verifications, copies and deletion.
    Made {
        backup: u64,
    },
    /// A round for it failed. Another one may have filled it later.
    Failed {
        backup: u64,
        problems: Vec<String>,
    },
    Missed {
        last: UnixSecond,
        count: u64,
        why: String,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotAccount {
    /// The slot; the first of those that were missed.
    pub slot: FilledSlot,
    /// Civil time of the entry.
    pub at_s: i64,
    pub fate: SlotFate,
}

/// The slots that were noted since a time, in the order of schedules and starts. The catalogue is read with
/// [`CatalogueScope::All`](super::CatalogueScope::All).
pub fn slot_accounts(catalogue: &BackupCatalogue, since: UnixSecond) -> Vec<SlotAccount> {
    let mut accounts = Vec::new();
    for (backup, row) in catalogue.rows() {
        let fate = match row.stage {
            BackupStage::Begun => continue,
            BackupStage::Failed => SlotFate::Failed { backup, problems: row.reasons.clone() },
            BackupStage::Cut | BackupStage::Deleting | BackupStage::Deleted | BackupStage::Lost => {
                SlotFate::Made { backup }
            }
        };
        let of_slot = |slot| SlotAccount { slot, at_s: row.at_s, fate: fate.clone() };
        accounts.extend(row.start.slots.iter().map(|slot| of_slot(slot.into())));
    }
    for (at_s, missed) in catalogue.missed() {
        let MissedRange { of, first_s, last_s, count, why } = missed.clone();
        let slot = FilledSlot { period: of, start: UnixSecond(first_s) };
        let fate = SlotFate::Missed { last: UnixSecond(last_s), count, why };
        accounts.push(SlotAccount { slot, at_s: *at_s, fate });
    }
    accounts.retain(|account| account.at_s >= since.0);
    accounts.sort_by_key(|account| (account.slot, account.at_s));
    accounts
}
