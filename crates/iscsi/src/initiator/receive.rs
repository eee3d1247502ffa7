//! Handling of the PDUs a target sends. No I/O.

use super::tasks::Tasks;
use crate::wire::{
    header::{
        AsyncMessage, DataIn, NO_TAG, NopIn, PduHeader, ReadyToTransfer, Reject, SEQUENCE_NUMBERS_OFFSET,
        ScsiResponse, SequenceNumbers, opcode,
    },
    pdu::Pdu,
};
use world::Moment;
use zerocopy::FromBytes;

/// The O and U bits.
const RESIDUAL: u8 = 0x06;

/// Handles one PDU. The data of a Data-In are in its command's buffers already if `in_place`, their length, is not zero.
///
/// # Errors
///
/// The reason the connection must be dropped.
pub fn receive(tasks: &mut Tasks, pdu: &Pdu, in_place: usize, now: Moment) -> Result<(), String> {
    let numbers =
        SequenceNumbers::read_from_bytes(&pdu.header[SEQUENCE_NUMBERS_OFFSET..SEQUENCE_NUMBERS_OFFSET + 12]);
    let numbers = numbers.expect("twelve bytes");
    tasks.set_window(numbers.exp_cmd_sn.get(), numbers.max_cmd_sn.get());
    let itt = u32::from_be_bytes(pdu.header[16..20].try_into().expect("four bytes"));
    let has_status = match pdu.opcode() {
        opcode::DATA_IN => pdu.header[1] & 0x01 != 0,
        opcode::READY_TO_TRANSFER => false,
        // An unsolicited NOP-In does not advance StatSN.
        opcode::NOP_IN => itt != NO_TAG,
        _ => true,
    };
    if has_status {
        tasks.advance_stat_sn(numbers.stat_sn.get());
    }
    match pdu.opcode() {
        opcode::DATA_IN => {
            let header = DataIn::of(&pdu.header);
            if in_place > 0 {
                tasks.received_in_place(itt, in_place);
            } else {
                tasks.receive_data(itt, header.buffer_offset.get(), &pdu.data)?;
            }
            if has_status {
                let residual = if header.flags & RESIDUAL == 0 { 0 } else { header.residual.get() };
                tasks.complete(itt, header.status, residual, &[], now);
            }
        }
        opcode::SCSI_RESPONSE => {
            let header = ScsiResponse::of(&pdu.header);
            if header.response != 0 {
                return Err("the target could not complete a command".to_owned());
            }
            let residual = if header.flags & RESIDUAL == 0 { 0 } else { header.residual.get() };
            tasks.complete(itt, header.status, residual, &pdu.data, now);
        }
        opcode::READY_TO_TRANSFER => tasks.data_requested(&ReadyToTransfer::of(&pdu.header))?,
        opcode::NOP_IN => {
            let asked = NopIn::of(&pdu.header);
            if asked.ttt.get() != NO_TAG {
                tasks.pong(&asked);
            }
        }
        opcode::ASYNC_MESSAGE => {
            // Logout request, or notice that the target drops the connection or session.
            if matches!(AsyncMessage::of(&pdu.header).async_event, 1..=3) {
                return Err("the target ends the session".to_owned());
            }
        }
        opcode::REJECT => {
            let reason = Reject::of(&pdu.header).reason;
            return Err(format!("the target rejected a PDU: reason {reason:#04x}"));
        }
        opcode::LOGOUT_RESPONSE | opcode::TEXT_RESPONSE | opcode::TASK_MANAGEMENT_RESPONSE => {}
        other => return Err(format!("unexpected opcode {other:#04x} from the target")),
    }
    tasks.release_delayed(now);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        initiator::{
            commands,
            login::SessionTerms,
            tasks::{CacheEffect, CommandRequest},
        },
        wire::pdu::HEADER_BYTES,
    };
    use std::sync::Arc;
    use world::{Buffer, Random, payload::Payload};

    #[test]
    fn random_pdus_of_a_target_do_no_harm() {
        let terms = SessionTerms { cmd_sn: 1, max_cmd_sn: 40, exp_stat_sn: 1, ..SessionTerms::default() };
        let mut ended = 0;
        for seed in 0..2000 {
            let mut random = Random::new(seed, "target");
            let mut tasks = Tasks::new([0; 8]);
            tasks.begin_connection(&terms);
            tasks.open();
            let now = Moment(0);
            let written = Arc::new(Buffer::zeroed(16_384));
            let told: Vec<_> = (0..6)
                .map(|number| {
                    let is_write = number % 2 == 0;
                    let into = if is_write { Vec::new() } else { vec![Buffer::zeroed(4096); 2] };
                    let payload =
                        if is_write { vec![(Arc::clone(&written), 0..16_384)] } else { Payload::new() };
                    let cdb = commands::read(0, 16);
                    tasks.add(
                        CommandRequest { cdb, effect: CacheEffect::Write, into, payload, is_probe: false },
                        Moment(9),
                    )
                })
                .collect();
            for _ in 0..100 {
                while tasks.next_to_send().is_some() {}
                let mut header = [0_u8; HEADER_BYTES];
                random.fill(&mut header);
                let kinds = [0x20, 0x21, 0x25, 0x25, 0x31, 0x31, 0x32, 0x3f, 0x22, 0x00];
                header[0] = kinds[random.below(10) as usize];
                header[16..20].copy_from_slice(&(random.below(8) as u32).to_be_bytes());
                if random.percent(80.0) {
                    // Plausible offsets and lengths.
                    header[40..44].copy_from_slice(&(512 * random.below(8) as u32).to_be_bytes());
                    header[44..48].copy_from_slice(&(512 * random.below(8) as u32).to_be_bytes());
                    (header[2], header[3]) = (0, [0, 2, 8, 0x18, 0x28][random.below(5) as usize]);
                }
                let mut data = vec![0; random.below(3) as usize * 512];
                random.fill(&mut data);
                let pdu = Pdu { header, additional: Vec::new(), data };
                if receive(&mut tasks, &pdu, 0, now).is_err() {
                    ended += 1;
                    tasks.begin_connection(&terms);
                    tasks.open();
                }
            }
            tasks.expire(Moment(9), "it is late");
            assert!(tasks.is_idle(), "seed {seed}");
            for mut told in told {
                told.try_recv().expect("every command completes").ok();
            }
        }
        assert!(ended > 1000, "{ended}");
    }
}
