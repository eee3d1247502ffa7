//! PERSISTENT RESERVE IN and OUT (SPC-4, 6.15 and 6.16).

use super::{LogicalUnit, ResponseData, ScsiRequest, UnitResult, be16, be32, be64, list_of, parameters};
use crate::scsi::{
    commands::code,
    reservations::{Nexus, ReservationKey, ReservationType},
    sense::{AdditionalSense, Sense},
};
use std::collections::BTreeSet;

/// Length of the PERSISTENT RESERVE OUT parameter list.
const LIST_BYTES: usize = 24;

impl LogicalUnit {
    pub fn registered(&self) -> BTreeSet<Nexus> {
        self.reservations.borrow().registrants().map(|(nexus, _)| nexus.clone()).collect()
    }

    pub(super) fn reserve_in(&self, request: &ScsiRequest<'_>) -> UnitResult<ResponseData> {
        let room = be16(&request.cdb[7..9]);
        let reservations = self.reservations.borrow();
        let mut data = reservations.generation().to_be_bytes().to_vec();
        let mut body = Vec::new();
        match request.cdb[1] & 0x1f {
            0 => reservations.registrants().for_each(|(_, key)| body.extend(key.0.to_be_bytes())),
            1 => {
                if let Some((key, kind)) = reservations.reservation() {
                    body.extend(key.0.to_be_bytes());
                    body.extend([0, 0, 0, 0, 0, kind as u8, 0, 0]);
                }
            }
            2 => return Ok(parameters(capabilities(), room)),
            _ => {
                let kind = reservations.reservation().map(|(_, kind)| kind);
                for (nexus, key) in reservations.registrants() {
                    let held = kind.filter(|_| reservations.holds(nexus));
                    body.extend(self.full_status(nexus, key, held));
                }
            }
        }
        data.extend((body.len() as u32).to_be_bytes());
        data.extend(body);
        Ok(parameters(data, room))
    }

    /// A full status descriptor with the TransportID (SPC-4, 6.15.5 and 7.6.4.6).
    fn full_status(&self, nexus: &Nexus, key: ReservationKey, held: Option<ReservationType>) -> Vec<u8> {
        let mut name = nexus.0.clone().into_bytes();
        name.resize((name.len() + 1).next_multiple_of(4).max(20), 0);
        let mut transport = vec![0x45, 0];
        transport.extend((name.len() as u16).to_be_bytes());
        transport.extend(name);
        let mut data = key.0.to_be_bytes().to_vec();
        data.extend([0; 4]);
        data.extend([u8::from(held.is_some()), held.map_or(0, |kind| kind as u8), 0, 0, 0, 0]);
        data.extend(self.properties.port.to_be_bytes());
        data.extend((transport.len() as u32).to_be_bytes());
        data.extend(transport);
        data
    }

    pub(super) fn reserve_out(&self, request: &ScsiRequest<'_>) -> UnitResult<ResponseData> {
        let illegal = |what| Err(Sense::illegal(what).into());
        let length = be32(&request.cdb[5..9]) as usize;
        let list: Vec<u8> = list_of(&request.data, length);
        if length != LIST_BYTES || list.len() != LIST_BYTES {
            return illegal(AdditionalSense::PARAMETER_LIST_LENGTH_ERROR);
        }
        let (own, other) = (ReservationKey(be64(&list[0..8])), ReservationKey(be64(&list[8..16])));
        // SPEC_I_PT, ALL_TG_PT and APTPL are not supported.
        if list[20] & 0x0d != 0 {
            return illegal(AdditionalSense::INVALID_FIELD_IN_PARAMETER_LIST);
        }
        let action = request.cdb[1] & 0x1f;
        let kind = ReservationType::of(request.cdb[2] & 0x0f);
        let (is_of_unit, nexus) = (request.cdb[2] >> 4 == 0, request.nexus);
        let needs_kind = matches!(action, 1 | 2 | 4 | 5);
        let Some(kind) =
            kind.filter(|_| is_of_unit).or((!needs_kind).then_some(ReservationType::WriteExclusive))
        else {
            return illegal(AdditionalSense::INVALID_FIELD_IN_CDB);
        };
        let attentions = {
            let mut reservations = self.reservations.borrow_mut();
            match action {
                0 => reservations.register(nexus, own, other)?,
                1 => {
                    reservations.reserve(nexus, own, kind)?;
                    Vec::new()
                }
                2 => reservations.release(nexus, own, kind)?,
                3 => reservations.clear(nexus, own)?,
                4 | 5 => reservations.preempt(nexus, own, other, kind)?,
                _ => reservations.register_and_ignore(nexus, other)?,
            }
        };
        let preempted = AdditionalSense::REGISTRATIONS_PREEMPTED;
        for (nexus, what) in &attentions {
            if action == code::PREEMPT_AND_ABORT && *what == preempted {
                self.removable_medium.borrow_mut().allow(Some(nexus));
            }
            self.raise_attention(nexus, *what);
        }
        Ok(ResponseData::None)
    }
}

/// REPORT CAPABILITIES (SPC-4, 6.15.4): all six types; nothing persists through power loss.
fn capabilities() -> Vec<u8> {
    let mut mask = [0_u8; 2];
    for kind in ReservationType::ALL {
        let bit = kind as usize;
        mask[bit / 8] |= 1 << (bit % 8);
    }
    // TMV; ALLOW COMMANDS 1: TEST UNIT READY is never denied.
    vec![0, 8, 0x00, 0x90, mask[0], mask[1], 0, 0]
}
