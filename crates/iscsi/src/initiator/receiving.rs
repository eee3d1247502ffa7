//! What a target sends, taken in. Without any I/O.

use super::tasks::{Broken, Tasks};
use crate::wire::{
    frame::Frame,
    pdu::{
        ANSWER_NUMBERS_AT, AnswerNumbers, AsyncMessage, DataIn, Header, NO_TAG, NopIn, ReadyToTransfer,
        Reject, ScsiResponse, opcode,
    },
};
use world::Moment;
use zerocopy::FromBytes;

/// Residual overflow or underflow.
const RESIDUAL: u8 = 0x06;

/// Takes a unit in.
///
/// # Errors
///
/// Why the connection is of no more use.
pub fn take(tasks: &mut Tasks, frame: &Frame, now: Moment) -> Result<(), Broken> {
    let numbers = AnswerNumbers::read_from_bytes(&frame.header[ANSWER_NUMBERS_AT..ANSWER_NUMBERS_AT + 12]);
    let numbers = numbers.expect("twelve bytes");
    tasks.window(numbers.expected_command.get(), numbers.command_max.get());
    let task = u32::from_be_bytes(frame.header[16..20].try_into().expect("four bytes"));
    let has_status = match frame.opcode() {
        opcode::DATA_IN => frame.header[1] & 0x01 != 0,
        opcode::READY_TO_TRANSFER => false,
        // Of itself it has none of its own.
        opcode::NOP_IN => task != NO_TAG,
        _ => true,
    };
    if has_status {
        tasks.status(numbers.status.get());
    }
    match frame.opcode() {
        opcode::DATA_IN => {
            let header = DataIn::of(&frame.header);
            tasks.data_in(task, header.offset.get(), &frame.data)?;
            if has_status {
                let residual = if header.flags & RESIDUAL == 0 { 0 } else { header.residual.get() };
                tasks.answered(task, header.status, residual, &[], now);
            }
        }
        opcode::SCSI_RESPONSE => {
            let header = ScsiResponse::of(&frame.header);
            if header.response != 0 {
                return Err("the target could not do a command".to_owned());
            }
            let residual = if header.flags & RESIDUAL == 0 { 0 } else { header.residual.get() };
            tasks.answered(task, header.status, residual, &frame.data, now);
        }
        opcode::READY_TO_TRANSFER => tasks.asked_for(&ReadyToTransfer::of(&frame.header))?,
        opcode::NOP_IN => {
            let asked = NopIn::of(&frame.header);
            if asked.transfer.get() != NO_TAG {
                tasks.pong(&asked);
            }
        }
        opcode::ASYNC_MESSAGE => {
            // It asks for a logout, or will end the connection or the session itself.
            if matches!(AsyncMessage::of(&frame.header).event, 1..=3) {
                return Err("the target ends the session".to_owned());
            }
        }
        opcode::REJECT => {
            let reason = Reject::of(&frame.header).reason;
            return Err(format!("the target rejects what we sent: reason {reason:#04x}"));
        }
        opcode::LOGOUT_RESPONSE | opcode::TEXT_RESPONSE | opcode::TASK_MANAGEMENT_RESPONSE => {}
        other => return Err(format!("a target does not send units of kind {other:#04x}")),
    }
    tasks.wake(now);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        initiator::{
            commands,
            tasks::{Command, Kind},
        },
        session::negotiation::Agreed,
        wire::frame::HEADER_BYTES,
    };
    use std::sync::Arc;
    use world::{Buffer, Random, pieces::Payload};

    #[test]
    fn whatever_a_target_sends_does_no_harm() {
        let mut ended = 0;
        for seed in 0..2000 {
            let mut random = Random::new(seed, "target");
            let mut tasks = Tasks::new([0; 8]);
            tasks.begin(Agreed::default(), (1, 40), 1);
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
                    tasks.add(Command { cdb, kind: Kind::Write, into, payload, is_probe: false }, Moment(9))
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
                    // Something near to what is right.
                    header[40..44].copy_from_slice(&(512 * random.below(8) as u32).to_be_bytes());
                    header[44..48].copy_from_slice(&(512 * random.below(8) as u32).to_be_bytes());
                    (header[2], header[3]) = (0, [0, 2, 8, 0x18, 0x28][random.below(5) as usize]);
                }
                let mut data = vec![0; random.below(3) as usize * 512];
                random.fill(&mut data);
                let frame = Frame { header, additional: Vec::new(), data };
                if take(&mut tasks, &frame, now).is_err() {
                    ended += 1;
                    tasks.begin(Agreed::default(), (1, 40), 1);
                    tasks.open();
                }
            }
            tasks.give_up(Moment(9), "it is late");
            assert!(tasks.is_idle(), "seed {seed}");
            for mut told in told {
                told.try_recv().expect("each is told what became of it").ok();
            }
        }
        assert!(ended > 1000, "{ended}");
    }
}
