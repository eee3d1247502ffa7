//! Responses to commands: data, status, sense, residual.

use super::{connection::Connection, pending_command::WRITES, send_queue::StatSn};
use crate::{
    scsi::unit::{CommandStatus, ResponseData, TransferLength, buffers_of},
    wire::header::{DataIn, FINAL, NO_TAG, PduHeader, ScsiCommand, ScsiResponse},
};
use std::sync::Arc;
use world::payload::{Payload, bytes_in, part_of};

impl Connection {
    /// Sends the status of a command that has ended, and its data.
    pub(super) fn answer(&self, command: &ScsiCommand, takes: TransferLength, ended: CommandStatus) {
        let given = takes.bytes();
        match ended {
            CommandStatus::Good(data) => self.answer_good(command, given, data),
            CommandStatus::CheckCondition(sense) => {
                let sense = sense.fixed();
                let mut data = (sense.len() as u16).to_be_bytes().to_vec();
                data.extend(sense);
                self.respond(command, 0x02, given, &data);
            }
            CommandStatus::ReservationConflict => self.respond(command, 0x18, 0, &[]),
            CommandStatus::Moved => {
                self.has_moved.set(true);
                self.targets.sessions.end_unless(|connection| !std::ptr::eq(connection, self));
            }
        }
    }

    /// Sends Data-Ins; the last one carries the status.
    fn answer_good(&self, command: &ScsiCommand, taken: u64, data: ResponseData) {
        let buffers = match data {
            ResponseData::None => Vec::new(),
            ResponseData::Parameters(bytes) => buffers_of(&bytes),
            ResponseData::Blocks(buffers) => buffers,
        };
        let whole = buffers.into_iter().map(|buffer| (0..buffer.len(), Arc::new(buffer)));
        let payload: Payload = whole.map(|(range, buffer)| (buffer, range)).collect();
        let bytes = bytes_in(&payload);
        let reads = command.flags & 0x40 != 0;
        let room = if reads { command.expected_transfer_length.get() as usize } else { 0 };
        let sent = bytes.min(room);
        if sent == 0 {
            let moved = if command.flags & WRITES == 0 { bytes as u64 } else { taken };
            return self.respond(command, 0, moved, &[]);
        }
        let (flags, residual) = residual_of(command, bytes as u64);
        let mut offset = 0;
        let mut number = 0_u32;
        while offset < sent {
            let burst_end = (offset / self.parameters.burst_bytes_max as usize + 1)
                * self.parameters.burst_bytes_max as usize;
            let end = (offset + self.parameters.send_bytes_max as usize).min(sent).min(burst_end);
            let is_last = end == sent;
            let mut header = DataIn {
                lun: command.lun,
                itt: command.itt,
                ttt: NO_TAG.into(),
                data_sn: number.into(),
                buffer_offset: (offset as u32).into(),
                ..DataIn::empty()
            };
            if is_last || end == burst_end {
                header.flags |= FINAL;
            }
            let mut counted = StatSn::None;
            if is_last {
                header.flags |= flags | 0x01;
                header.residual = residual.into();
                counted = StatSn::Advance;
            }
            self.send_queue.send_payload(&header, counted, part_of(&payload, offset, end));
            offset = end;
            number += 1;
        }
    }

    fn respond(&self, command: &ScsiCommand, status: u8, moved: u64, data: &[u8]) {
        // For a failed write the residual is known; a failed read has moved nothing.
        let has_residual = status == 0 || moved > 0;
        let (flags, residual) = if has_residual { residual_of(command, moved) } else { (0, 0) };
        let response = ScsiResponse {
            flags: FINAL | flags,
            status,
            itt: command.itt,
            residual: residual.into(),
            ..ScsiResponse::empty()
        };
        self.send_queue.send(&response, StatSn::Advance, data);
    }
}

/// Residual flags and count of a command that moved `given` bytes.
fn residual_of(command: &ScsiCommand, given: u64) -> (u8, u32) {
    const OVERFLOW: u8 = 0x04;
    const UNDERFLOW: u8 = 0x02;
    let expected = u64::from(command.expected_transfer_length.get());
    match given.cmp(&expected) {
        std::cmp::Ordering::Less => (UNDERFLOW, (expected - given) as u32),
        std::cmp::Ordering::Greater => (OVERFLOW, u32::try_from(given - expected).unwrap_or(u32::MAX)),
        std::cmp::Ordering::Equal => (0, 0),
    }
}
