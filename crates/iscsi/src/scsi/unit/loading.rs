//! A medium that can be taken out (SBC-3, 4.4), and initiators that want it to stay.
//!
//! Invariants:
//!
//! 1. While somebody prevents removal, nothing is taken out or put in.
//! 2. What is taken out was made stable before; until it is put in again nothing of it is read or written.

use super::{Asked, Data, Going, Unit};
use crate::scsi::{
    commands::{Known, code},
    reservations::Nexus,
    sense::{AdditionalSense, Sense, SenseKey},
};
use std::collections::BTreeSet;

/// Whether the medium is there, and who keeps it there.
#[derive(Default)]
pub struct Loading {
    is_out: bool,
    preventing: BTreeSet<Nexus>,
}

impl Loading {
    /// A session ended, or all are reset: nobody is kept waiting for it.
    pub fn allow(&mut self, nexus: Option<&Nexus>) {
        match nexus {
            Some(nexus) => drop(self.preventing.remove(nexus)),
            None => self.preventing.clear(),
        }
    }
}

impl Unit {
    /// Whether `known` can be done without a medium.
    pub(super) fn check_loaded(&self, known: &Known) -> Going<()> {
        let needs_it = super::is_of_media(known)
            || matches!(
                known.code,
                code::TEST_UNIT_READY
                    | code::READ_CAPACITY_10
                    | code::SERVICE_ACTION_IN_16
                    | code::READ_DEFECT_DATA_10
                    | code::READ_DEFECT_DATA_12
            );
        match needs_it && known.code != code::START_STOP_UNIT {
            true => self.check_medium(),
            false => Ok(()),
        }
    }

    /// NOT READY, MEDIUM NOT PRESENT, if it is out.
    pub(super) fn check_medium(&self) -> Going<()> {
        match self.loading.borrow().is_out {
            true => Err(Sense::new(SenseKey::NotReady, AdditionalSense::MEDIUM_NOT_PRESENT).into()),
            false => Ok(()),
        }
    }

    /// PREVENT ALLOW MEDIUM REMOVAL: of a medium that cannot be removed it means nothing.
    pub(super) fn prevent_allow(&self, asked: &Asked<'_>) -> Data {
        let mut loading = self.loading.borrow_mut();
        match asked.cdb[4] & 1 {
            0 => loading.allow(Some(asked.nexus)),
            _ => drop(loading.preventing.insert(asked.nexus.clone())),
        }
        Data::None
    }

    /// START STOP UNIT: there is nothing to start; what stops, or goes out, makes its cache stable first.
    pub(super) async fn start_stop(&self, asked: &Asked<'_>) -> Going<Data> {
        let cdb = asked.cdb;
        let (condition, no_flush, moves, starts) =
            (cdb[4] >> 4, cdb[4] & 0x04 != 0, cdb[4] & 0x02 != 0, cdb[4] & 0x01 != 0);
        // Of a power condition, nothing else means anything.
        if condition != 0 {
            return Ok(Data::None);
        }
        if moves {
            self.check_may_move()?;
        }
        if !starts && (moves || !no_flush) && self.check_medium().is_ok() {
            self.flush().await?;
        }
        if moves {
            // Somebody may have asked for it to stay meanwhile.
            self.check_may_move()?;
            let was_out = std::mem::replace(&mut self.loading.borrow_mut().is_out, !starts);
            if was_out && starts {
                self.tell_others(Some(asked.nexus), AdditionalSense::MEDIUM_MAY_HAVE_CHANGED);
            }
        }
        Ok(Data::None)
    }

    fn check_may_move(&self) -> Going<()> {
        if !self.facts.is_removable {
            return Err(Sense::invalid_byte(4).into());
        }
        match self.loading.borrow().preventing.is_empty() {
            true => Ok(()),
            false => Err(Sense::illegal(AdditionalSense::REMOVAL_PREVENTED).into()),
        }
    }
}
