//! Removable media (SBC-3, 4.4): PREVENT ALLOW MEDIUM REMOVAL and START STOP UNIT.
//!
//! Invariants:
//!
//! 1. While an initiator prevents removal, the medium is neither ejected nor loaded.
//! 2. The cache is flushed before the medium is ejected; an ejected medium is neither read nor written.

use super::{LogicalUnit, ResponseData, ScsiRequest, UnitResult};
use crate::scsi::{
    commands::{SupportedCommand, code},
    reservations::Nexus,
    sense::{AdditionalSense, Sense, SenseKey},
};
use std::collections::BTreeSet;

#[derive(Default)]
pub struct RemovableMedium {
    is_out: bool,
    preventing: BTreeSet<Nexus>,
}

impl RemovableMedium {
    /// Ends the prevention by `nexus`, or by all if `None`.
    pub fn allow(&mut self, nexus: Option<&Nexus>) {
        match nexus {
            Some(nexus) => drop(self.preventing.remove(nexus)),
            None => self.preventing.clear(),
        }
    }
}

impl LogicalUnit {
    /// NOT READY if `known` needs a medium and it is ejected.
    pub(super) fn check_loaded(&self, known: &SupportedCommand) -> UnitResult<()> {
        let needs_it = super::is_medium_command(known)
            || matches!(
                known.code,
                code::TEST_UNIT_READY
                    | code::READ_CAPACITY_10
                    | code::SERVICE_ACTION_IN_16
                    | code::READ_DEFECT_DATA_10
                    | code::READ_DEFECT_DATA_12
            );
        if needs_it && known.code != code::START_STOP_UNIT { self.check_medium() } else { Ok(()) }
    }

    /// NOT READY, MEDIUM NOT PRESENT if the medium is ejected.
    pub(super) fn check_medium(&self) -> UnitResult<()> {
        if self.removable_medium.borrow().is_out {
            Err(Sense::new(SenseKey::NotReady, AdditionalSense::MEDIUM_NOT_PRESENT).into())
        } else {
            Ok(())
        }
    }

    /// PREVENT ALLOW MEDIUM REMOVAL; without effect on a medium that is not removable.
    pub(super) fn prevent_allow(&self, request: &ScsiRequest<'_>) -> ResponseData {
        let mut removable_medium = self.removable_medium.borrow_mut();
        match request.cdb[4] & 1 {
            0 => removable_medium.allow(Some(request.nexus)),
            _ => drop(removable_medium.preventing.insert(request.nexus.clone())),
        }
        ResponseData::None
    }

    /// START STOP UNIT: stopping or ejecting flushes the cache first.
    pub(super) async fn start_stop(&self, request: &ScsiRequest<'_>) -> UnitResult<ResponseData> {
        let cdb = request.cdb;
        let (condition, no_flush, moves, starts) =
            (cdb[4] >> 4, cdb[4] & 0x04 != 0, cdb[4] & 0x02 != 0, cdb[4] & 0x01 != 0);
        // With POWER CONDITION, the other fields are ignored.
        if condition != 0 {
            return Ok(ResponseData::None);
        }
        if moves {
            self.check_may_move()?;
        }
        if !starts && (moves || !no_flush) && self.check_medium().is_ok() {
            self.flush().await?;
        }
        if moves {
            // Another initiator may have prevented removal during the flush.
            self.check_may_move()?;
            let was_out = std::mem::replace(&mut self.removable_medium.borrow_mut().is_out, !starts);
            if was_out && starts {
                self.raise_attention_for_others(
                    Some(request.nexus),
                    AdditionalSense::MEDIUM_MAY_HAVE_CHANGED,
                );
            }
        }
        Ok(ResponseData::None)
    }

    fn check_may_move(&self) -> UnitResult<()> {
        if !self.properties.is_removable {
            return Err(Sense::invalid_byte(4).into());
        }
        if self.removable_medium.borrow().preventing.is_empty() {
            Ok(())
        } else {
            Err(Sense::illegal(AdditionalSense::REMOVAL_PREVENTED).into())
        }
    }
}
