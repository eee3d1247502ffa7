//! Commands whose data are incomplete.
//!
//! Invariants:
//!
//! 1. Data arrive in order and without gaps; data beyond what was negotiated or requested are refused.
//! 2. A command receives no more data than its Expected Data Transfer Length.

use crate::{
    scsi::{properties::TRANSFER_BYTES_MAX, unit::TransferLength},
    session::negotiation::SessionParameters,
    wire::header::{DataOut, FINAL, NO_TAG, ScsiCommand},
};

/// Most bytes of one command: the longest transfer, twice for COMPARE AND WRITE.
const LIST_BYTES_MAX: u64 = 2 * TRANSFER_BYTES_MAX as u64;

#[derive(Clone, Debug)]
pub struct PendingCommand {
    pub command: ScsiCommand,
    pub data: Vec<u8>,
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextStep {
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
    /// Starts a command with its immediate data. Data beyond the CDB's transfer length are not requested; if
    /// the CDB demands an exact length and another was announced, none are: then
    /// [`PendingCommand::is_mismatched`] is set.
    ///
    /// # Errors
    ///
    /// The immediate data, or a missing F bit, violate the negotiated parameters.
    pub fn new(
        command: ScsiCommand,
        immediate: Vec<u8>,
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
        let fits = immediate.is_empty() || (parameters.immediate_data && immediate.len() <= first_burst);
        if !fits || (!is_final && !may_have_more) {
            return Err(MisplacedData);
        }
        let unsolicited = (!is_final).then_some(first_burst);
        Ok(Self {
            command,
            data: immediate,
            takes,
            is_mismatched,
            expected,
            unsolicited,
            requested: None,
            data_sn: 0,
            has_reservation: false,
        })
    }

    /// Stores the data of a Data-Out.
    ///
    /// # Errors
    ///
    /// The data do not continue the current burst.
    pub fn receive(&mut self, header: &DataOut, data: &[u8]) -> Result<(), MisplacedData> {
        let tag = header.ttt.get();
        let end = match (self.unsolicited, self.requested) {
            (Some(end), _) if tag == NO_TAG => end,
            (None, Some((requested, end))) if tag == requested => end,
            _ => return Err(MisplacedData),
        };
        let is_next =
            header.buffer_offset.get() as usize == self.data.len() && header.data_sn.get() == self.data_sn;
        let is_final = header.flags & FINAL != 0;
        let reaches = self.data.len() + data.len();
        // A solicited burst must be complete; unsolicited data may end early.
        let is_whole = !is_final || tag == NO_TAG || reaches == end;
        if !is_next || reaches > end || !is_whole {
            return Err(MisplacedData);
        }
        self.data.extend(data);
        self.data_sn = self.data_sn.wrapping_add(1);
        if is_final {
            (self.unsolicited, self.requested, self.data_sn) = (None, None, 0);
        }
        Ok(())
    }

    /// Most bytes this command will hold.
    pub fn bytes_max(&self) -> usize {
        self.expected.max(self.data.len())
    }

    /// The next step. After sending an R2T, call [`PendingCommand::data_requested`].
    pub fn next(&self, parameters: &SessionParameters) -> NextStep {
        if self.unsolicited.is_some() || self.requested.is_some() {
            return NextStep::Wait;
        }
        match self.expected.saturating_sub(self.data.len()) {
            0 => NextStep::Execute,
            left => NextStep::RequestData {
                offset: self.data.len() as u32,
                bytes: left.min(parameters.burst_bytes_max as usize) as u32,
            },
        }
    }

    /// Records an R2T for `bytes` bytes with that TTT.
    pub fn data_requested(&mut self, tag: u32, bytes: u32) {
        assert!(self.requested.is_none() && self.unsolicited.is_none(), "one thing comes at a time");
        self.requested = Some((tag, self.data.len() + bytes as usize));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::header::PduHeader;

    fn command(flags: u8, bytes: u32) -> ScsiCommand {
        ScsiCommand { flags, expected_transfer_length: bytes.into(), ..ScsiCommand::empty() }
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
        let mut pending = PendingCommand::new(command(WRITES, 5000), vec![1; 512], ALL, &parameters).unwrap();
        assert_eq!(pending.next(&parameters), NextStep::Wait);
        pending.receive(&data(NO_TAG, 512, 0, FINAL), &[2; 512]).unwrap();
        assert_eq!(pending.next(&parameters), NextStep::RequestData { offset: 1024, bytes: 2048 });
        pending.data_requested(7, 2048);
        pending.receive(&data(7, 1024, 0, 0), &[3; 1024]).unwrap();
        assert_eq!(pending.next(&parameters), NextStep::Wait);
        pending.receive(&data(7, 2048, 1, FINAL), &[3; 1024]).unwrap();
        assert_eq!(pending.next(&parameters), NextStep::RequestData { offset: 3072, bytes: 1928 });
        pending.data_requested(8, 1928);
        pending.receive(&data(8, 3072, 0, FINAL), &[4; 1928]).unwrap();
        assert_eq!((pending.next(&parameters), pending.data.len()), (NextStep::Execute, 5000));
    }

    #[test]
    fn a_command_without_data_is_executed_at_once() {
        let parameters = SessionParameters::default();
        assert_eq!(
            PendingCommand::new(command(FINAL, 512), Vec::new(), ALL, &parameters).unwrap().next(&parameters),
            NextStep::Execute
        );
        let all = PendingCommand::new(command(FINAL | WRITES, 512), vec![0; 512], ALL, &parameters).unwrap();
        assert_eq!(all.next(&parameters), NextStep::Execute);
    }

    #[test]
    fn data_against_the_negotiated_parameters_are_refused() {
        let strict = SessionParameters { immediate_data: false, ..SessionParameters::default() };
        assert!(PendingCommand::new(command(FINAL | WRITES, 512), vec![0; 4], ALL, &strict).is_err());
        assert!(
            PendingCommand::new(command(WRITES, 512), Vec::new(), ALL, &strict).is_err(),
            "all data must be solicited"
        );
        let parameters = SessionParameters::default();
        assert!(
            PendingCommand::new(command(FINAL | WRITES, 512), vec![0; 516], ALL, &parameters).is_err(),
            "more than its length"
        );
        let mut pending =
            PendingCommand::new(command(FINAL | WRITES, 4096), Vec::new(), ALL, &parameters).unwrap();
        pending.data_requested(5, 4096);
        for (header, bytes) in [
            (data(NO_TAG, 0, 0, 0), 512),
            (data(6, 0, 0, 0), 512),
            (data(5, 512, 0, 0), 512),
            (data(5, 0, 1, 0), 512),
            (data(5, 0, 0, 0), 4100),
            (data(5, 0, 0, FINAL), 512),
        ] {
            assert_eq!(pending.receive(&header, &vec![0; bytes]), Err(MisplacedData), "{header:?}");
        }
        pending.receive(&data(5, 0, 0, FINAL), &[0; 4096]).expect("nothing was changed by what was refused");
    }

    #[test]
    fn no_data_beyond_the_cdbs_transfer_length_are_requested() {
        let parameters = SessionParameters::default();
        let pending = |takes| {
            PendingCommand::new(command(FINAL | WRITES, 8192), vec![1; 512], takes, &parameters).unwrap()
        };
        assert_eq!(
            pending(TransferLength::UpTo(4096)).next(&parameters),
            NextStep::RequestData { offset: 512, bytes: 3584 }
        );
        assert_eq!(pending(TransferLength::UpTo(0)).next(&parameters), NextStep::Execute);
        let mismatched = pending(TransferLength::Exactly(4096));
        assert!(mismatched.is_mismatched && mismatched.next(&parameters) == NextStep::Execute);
        assert!(!pending(TransferLength::Exactly(8192)).is_mismatched);
    }
}
