//! Commands whose data are incomplete.
//!
//! Invariants:
//!
//! 1. Data arrive in order and without gaps; data beyond what was negotiated or requested are refused.
//! 2. A command receives no more data than its Expected Data Transfer Length.
//! 3. Data are received into the buffer that the device writes from, without a copy in between. Exceptions: a command of
//!    more than [`WHOLE_BYTES_MAX`] copies its unsolicited data once, and one whose data are cut is copied once.

use crate::{
    scsi::{properties::TRANSFER_BYTES_MAX, unit::TransferLength},
    session::negotiation::{RECEIVE_BYTES, SessionParameters},
    wire::header::{DataOut, FINAL, NO_TAG, ScsiCommand},
};
use std::ops::Range;
use world::Buffer;

/// Most bytes of one command: the longest transfer, twice for COMPARE AND WRITE.
const LIST_BYTES_MAX: u64 = 2 * TRANSFER_BYTES_MAX as u64;

/// A command of at most this many bytes gets a buffer for all of them with its first data. A longer one gets it when room is
/// reserved for it: until then an initiator binds no more memory than its unsolicited data need.
const WHOLE_BYTES_MAX: usize = RECEIVE_BYTES as usize;

#[derive(Debug)]
pub struct PendingCommand {
    pub command: ScsiCommand,
    /// `None` before the first data, and while it is lent.
    buffer: Option<Buffer>,
    /// Bytes received, from the start of the buffer.
    received: usize,
    /// The transfer length of the CDB.
    pub takes: TransferLength,
    /// The initiator announced another length than the CDB demands.
    pub is_mismatched: bool,
    expected: usize,
    /// End of the unsolicited data, while some are outstanding.
    unsolicited: Option<usize>,
    /// TTT and end of the outstanding burst.
    requested: Option<(u32, usize)>,
    data_sn: u32,
    /// Its data are counted in the connection's room.
    pub has_reservation: bool,
}

/// A command's buffer while data are received into it.
#[derive(Debug)]
pub struct LentBuffer {
    /// `None` for no bytes.
    buffer: Option<Buffer>,
    range: Range<usize>,
}

impl LentBuffer {
    /// Room for the data segment.
    pub fn bytes(&mut self) -> &mut [u8] {
        match &mut self.buffer {
            Some(buffer) => &mut buffer[self.range.clone()],
            None => &mut [],
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransferStep {
    /// Data are outstanding.
    Wait,
    /// Send an R2T for `bytes` bytes at `offset`.
    RequestData { offset: u32, bytes: u32 },
    /// All data have arrived.
    Execute,
}

/// Data-Out that violates the negotiated order, length or tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MisplacedData;

/// The W bit.
pub const WRITES: u8 = 0x20;

impl PendingCommand {
    /// Starts a command with `immediate` bytes of immediate data, which go through [`PendingCommand::lend`] and
    /// [`PendingCommand::give_back`]. Data beyond the CDB's transfer length are not requested; if
    /// the CDB demands an exact length and another was announced, none are: then
    /// [`PendingCommand::is_mismatched`] is set.
    ///
    /// # Errors
    ///
    /// The immediate data, or a missing F bit, violate the negotiated parameters.
    pub fn new(
        command: ScsiCommand,
        immediate: usize,
        takes: TransferLength,
        parameters: &SessionParameters,
    ) -> Result<Self, MisplacedData> {
        let writes = command.flags & WRITES != 0;
        let announced = if writes { command.expected_transfer_length.get() as usize } else { 0 };
        let first_burst = (parameters.first_burst_bytes_max as usize).min(announced);
        let is_mismatched = matches!(takes, TransferLength::Exactly(bytes) if bytes != announced as u64);
        let expected =
            if is_mismatched { 0 } else { announced.min(takes.bytes().min(LIST_BYTES_MAX) as usize) };
        let is_final = command.flags & FINAL != 0;
        let may_have_more = writes && !parameters.initial_r2t;
        let fits = immediate == 0 || (parameters.immediate_data && immediate <= first_burst);
        if !fits || (!is_final && !may_have_more) {
            return Err(MisplacedData);
        }
        let unsolicited = (!is_final).then_some(first_burst);
        Ok(Self {
            command,
            buffer: None,
            received: 0,
            takes,
            is_mismatched,
            expected,
            unsolicited,
            requested: None,
            data_sn: 0,
            has_reservation: false,
        })
    }

    /// Lends the buffer with room for `bytes` more bytes.
    pub fn lend(&mut self, bytes: usize) -> LentBuffer {
        let end = self.received + bytes;
        let range = self.received..end;
        if bytes == 0 {
            return LentBuffer { buffer: None, range };
        }
        let has_room = self.buffer.as_ref().is_some_and(|buffer| buffer.len() >= end);
        if !has_room {
            let whole = self.expected.max(end);
            let is_whole = self.has_reservation || whole <= WHOLE_BYTES_MAX;
            let length = if is_whole { whole } else { end }.max(self.unsolicited.unwrap_or(0));
            let mut grown = Buffer::zeroed(length);
            if let Some(buffer) = &self.buffer {
                grown[..self.received].copy_from_slice(&buffer[..self.received]);
            }
            self.buffer = Some(grown);
        }
        LentBuffer { buffer: self.buffer.take(), range }
    }

    /// Takes the buffer back, with the lent room filled.
    pub fn give_back(&mut self, lent: LentBuffer) {
        assert_eq!(lent.range.start, self.received, "one data segment is received at a time");
        self.received = lent.range.end;
        self.buffer = lent.buffer.or(self.buffer.take());
    }

    /// Checks a Data-Out with `bytes` bytes of data.
    ///
    /// # Errors
    ///
    /// The data do not continue the current burst.
    pub fn check(&self, header: &DataOut, bytes: usize) -> Result<(), MisplacedData> {
        let tag = header.ttt.get();
        let end = match (self.unsolicited, self.requested) {
            (Some(end), _) if tag == NO_TAG => end,
            (None, Some((requested, end))) if tag == requested => end,
            _ => return Err(MisplacedData),
        };
        let is_next =
            header.buffer_offset.get() as usize == self.received && header.data_sn.get() == self.data_sn;
        let is_final = header.flags & FINAL != 0;
        let reaches = self.received + bytes;
        // A solicited burst must be complete; unsolicited data may end early.
        let is_whole = !is_final || tag == NO_TAG || reaches == end;
        if is_next && reaches <= end && is_whole { Ok(()) } else { Err(MisplacedData) }
    }

    /// The data of a Data-Out, which was checked, have arrived in the lent buffer.
    pub fn receive(&mut self, header: &DataOut, lent: LentBuffer) {
        self.give_back(lent);
        self.data_sn = self.data_sn.wrapping_add(1);
        if header.flags & FINAL != 0 {
            (self.unsolicited, self.requested, self.data_sn) = (None, None, 0);
        }
    }

    /// The data received, cut to the CDB's transfer length.
    pub fn into_data(self) -> Vec<Buffer> {
        let length =
            usize::try_from(self.takes.bytes()).map_or(self.received, |takes| takes.min(self.received));
        match self.buffer {
            Some(buffer) if length == buffer.len() => vec![buffer],
            Some(buffer) if length > 0 => vec![Buffer::copy_of(&buffer[..length])],
            _ => Vec::new(),
        }
    }

    /// Most bytes this command will hold.
    pub fn bytes_max(&self) -> usize {
        self.expected.max(self.received)
    }

    /// The next step. After sending an R2T, call [`PendingCommand::data_requested`].
    pub fn next(&self, parameters: &SessionParameters) -> TransferStep {
        if self.unsolicited.is_some() || self.requested.is_some() {
            return TransferStep::Wait;
        }
        match self.expected.saturating_sub(self.received) {
            0 => TransferStep::Execute,
            left => TransferStep::RequestData {
                offset: self.received as u32,
                bytes: left.min(parameters.burst_bytes_max as usize) as u32,
            },
        }
    }

    /// Records an R2T for `bytes` bytes with that TTT.
    pub fn data_requested(&mut self, tag: u32, bytes: u32) {
        assert!(self.requested.is_none() && self.unsolicited.is_none(), "one thing comes at a time");
        self.requested = Some((tag, self.received + bytes as usize));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::header::PduHeader;

    fn command(flags: u8, bytes: u32) -> ScsiCommand {
        ScsiCommand { flags, expected_transfer_length: bytes.into(), ..ScsiCommand::empty() }
    }

    fn begin(
        command: ScsiCommand,
        immediate: &[u8],
        takes: TransferLength,
        parameters: &SessionParameters,
    ) -> Result<PendingCommand, MisplacedData> {
        let mut pending = PendingCommand::new(command, immediate.len(), takes, parameters)?;
        let mut lent = pending.lend(immediate.len());
        lent.bytes().copy_from_slice(immediate);
        pending.give_back(lent);
        Ok(pending)
    }

    fn receive(pending: &mut PendingCommand, header: &DataOut, data: &[u8]) -> Result<(), MisplacedData> {
        pending.check(header, data.len())?;
        let mut lent = pending.lend(data.len());
        lent.bytes().copy_from_slice(data);
        pending.receive(header, lent);
        Ok(())
    }

    /// No limit.
    const ALL: TransferLength = TransferLength::UpTo(u64::MAX);

    fn data(tag: u32, offset: u32, number: u32, flags: u8) -> DataOut {
        DataOut {
            flags,
            ttt: tag.into(),
            buffer_offset: offset.into(),
            data_sn: number.into(),
            ..DataOut::empty()
        }
    }

    #[test]
    fn data_are_immediate_then_unsolicited_then_solicited() {
        let parameters = SessionParameters {
            initial_r2t: false,
            first_burst_bytes_max: 1024,
            burst_bytes_max: 2048,
            ..SessionParameters::default()
        };
        let mut pending = begin(command(WRITES, 5000), &[1; 512], ALL, &parameters).unwrap();
        assert_eq!(pending.next(&parameters), TransferStep::Wait);
        receive(&mut pending, &data(NO_TAG, 512, 0, FINAL), &[2; 512]).unwrap();
        assert_eq!(pending.next(&parameters), TransferStep::RequestData { offset: 1024, bytes: 2048 });
        pending.data_requested(7, 2048);
        receive(&mut pending, &data(7, 1024, 0, 0), &[3; 1024]).unwrap();
        assert_eq!(pending.next(&parameters), TransferStep::Wait);
        receive(&mut pending, &data(7, 2048, 1, FINAL), &[3; 1024]).unwrap();
        assert_eq!(pending.next(&parameters), TransferStep::RequestData { offset: 3072, bytes: 1928 });
        pending.data_requested(8, 1928);
        receive(&mut pending, &data(8, 3072, 0, FINAL), &[4; 1928]).unwrap();
        assert_eq!((pending.next(&parameters), pending.received), (TransferStep::Execute, 5000));
    }

    #[test]
    fn a_command_without_data_is_executed_at_once() {
        let parameters = SessionParameters::default();
        assert_eq!(
            begin(command(FINAL, 512), &[], ALL, &parameters).unwrap().next(&parameters),
            TransferStep::Execute
        );
        let all = begin(command(FINAL | WRITES, 512), &[0; 512], ALL, &parameters).unwrap();
        assert_eq!(all.next(&parameters), TransferStep::Execute);
    }

    #[test]
    fn data_against_the_negotiated_parameters_are_refused() {
        let strict = SessionParameters { immediate_data: false, ..SessionParameters::default() };
        assert!(begin(command(FINAL | WRITES, 512), &[0; 4], ALL, &strict).is_err());
        assert!(begin(command(WRITES, 512), &[], ALL, &strict).is_err(), "all data must be solicited");
        let parameters = SessionParameters::default();
        assert!(
            begin(command(FINAL | WRITES, 512), &[0; 516], ALL, &parameters).is_err(),
            "more than its length"
        );
        let mut pending = begin(command(FINAL | WRITES, 4096), &[], ALL, &parameters).unwrap();
        pending.data_requested(5, 4096);
        for (header, bytes) in [
            (data(NO_TAG, 0, 0, 0), 512),
            (data(6, 0, 0, 0), 512),
            (data(5, 512, 0, 0), 512),
            (data(5, 0, 1, 0), 512),
            (data(5, 0, 0, 0), 4100),
            (data(5, 0, 0, FINAL), 512),
        ] {
            assert_eq!(receive(&mut pending, &header, &vec![0; bytes]), Err(MisplacedData), "{header:?}");
        }
        receive(&mut pending, &data(5, 0, 0, FINAL), &[0; 4096])
            .expect("nothing was changed by what was refused");
    }

    #[test]
    fn no_data_beyond_the_cdbs_transfer_length_are_requested() {
        let parameters = SessionParameters::default();
        let pending = |takes| begin(command(FINAL | WRITES, 8192), &[1; 512], takes, &parameters).unwrap();
        assert_eq!(
            pending(TransferLength::UpTo(4096)).next(&parameters),
            TransferStep::RequestData { offset: 512, bytes: 3584 }
        );
        assert_eq!(pending(TransferLength::UpTo(0)).next(&parameters), TransferStep::Execute);
        let mismatched = pending(TransferLength::Exactly(4096));
        assert!(mismatched.is_mismatched && mismatched.next(&parameters) == TransferStep::Execute);
        assert!(!pending(TransferLength::Exactly(8192)).is_mismatched);
    }

    #[test]
    fn data_are_received_into_one_buffer_that_is_handed_on() {
        let parameters = SessionParameters { initial_r2t: false, ..SessionParameters::default() };
        for length in [8192, WHOLE_BYTES_MAX as u32] {
            let mut pending = begin(command(FINAL | WRITES, length), &[1; 512], ALL, &parameters).unwrap();
            let first = pending.buffer.as_ref().unwrap().as_ptr();
            let bytes = length - 512;
            assert_eq!(pending.next(&parameters), TransferStep::RequestData { offset: 512, bytes });
            pending.data_requested(7, bytes);
            receive(&mut pending, &data(7, 512, 0, FINAL), &vec![2; bytes as usize]).unwrap();
            let data = pending.into_data();
            assert_eq!((data.len(), data[0].len(), data[0].as_ptr()), (1, length as usize, first));
            assert_eq!((data[0][511], data[0][512]), (1, 2));
        }
        // More than the transfer length: cut.
        let takes = TransferLength::UpTo(256);
        let data = begin(command(FINAL | WRITES, 512), &[1; 512], takes, &parameters).unwrap().into_data();
        assert_eq!((data.len(), data[0].len()), (1, 256));
        let data = begin(command(FINAL, 0), &[], ALL, &parameters).unwrap().into_data();
        assert!(data.is_empty());
    }

    #[test]
    fn a_long_command_binds_memory_for_its_solicited_data_only_with_a_reservation() {
        let parameters = SessionParameters {
            initial_r2t: false,
            burst_bytes_max: 1 << 20,
            ..SessionParameters::default()
        };
        let mut pending = begin(command(WRITES, 1 << 20), &[1; 512], ALL, &parameters).unwrap();
        assert_eq!(pending.buffer.as_ref().unwrap().len(), parameters.first_burst_bytes_max as usize);
        receive(&mut pending, &data(NO_TAG, 512, 0, FINAL), &[1; 512]).unwrap();
        pending.has_reservation = true;
        pending.data_requested(7, (1 << 20) - 1024);
        receive(&mut pending, &data(7, 1024, 0, FINAL), &vec![2; (1 << 20) - 1024]).unwrap();
        let data = pending.into_data();
        assert_eq!((data.len(), data[0].len(), data[0][1023], data[0][1024]), (1, 1 << 20, 1, 2));
    }
}
