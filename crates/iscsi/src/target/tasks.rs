//! Commands whose data are still coming.
//!
//! Invariants:
//!
//! 1. Data come in their order, without gaps; what was not agreed on, or asked for, is refused.
//! 2. No more comes than the command said.

use crate::{
    scsi::{facts::TRANSFER_BYTES_MAX, unit::Takes},
    session::negotiation::Agreed,
    wire::pdu::{DataOut, FINAL, NO_TAG, ScsiCommand},
};

/// Bytes of one command at most, whatever it says: the longest transfer, twice for COMPARE AND WRITE.
const LIST_BYTES_MAX: u64 = 2 * TRANSFER_BYTES_MAX as u64;

/// A command, and what has come of its data.
#[derive(Clone, Debug)]
pub struct Coming {
    /// The command.
    pub command: ScsiCommand,
    /// What has come.
    pub data: Vec<u8>,
    /// What it takes.
    pub takes: Takes,
    /// Its initiator announced another number of bytes than it takes, and must not.
    pub is_mismatched: bool,
    expected: usize,
    /// Up to where data come without being asked for, if more of them are to come.
    unsolicited: Option<usize>,
    /// What was asked for: its tag, and where it ends.
    asked: Option<(u32, usize)>,
    data_number: u32,
    /// Room for its data is taken.
    pub has_room: bool,
}

/// What is to be done now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// To wait for more.
    Wait,
    /// To ask for so many bytes from there.
    Ask {
        /// From which byte on.
        offset: u32,
        /// How many.
        bytes: u32,
    },
    /// To execute it.
    Execute,
}

/// Data that do not belong where they say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Misplaced;

/// In the flags of a command: it writes.
pub const WRITES: u8 = 0x20;

impl Coming {
    /// A command that came with `immediate` data. What it does not take is not asked for, and neither is any of it if it
    /// takes just so many bytes and others were announced: then it is [`Coming::is_mismatched`].
    ///
    /// # Errors
    ///
    /// It came with data it must not have.
    pub fn new(
        command: ScsiCommand,
        immediate: Vec<u8>,
        takes: Takes,
        agreed: &Agreed,
    ) -> Result<Self, Misplaced> {
        let writes = command.flags & WRITES != 0;
        let announced = if writes { command.expected_bytes.get() as usize } else { 0 };
        let first_burst = (agreed.first_burst_bytes_max as usize).min(announced);
        let is_mismatched = matches!(takes, Takes::Exactly(bytes) if bytes != announced as u64);
        let expected =
            if is_mismatched { 0 } else { announced.min(takes.bytes().min(LIST_BYTES_MAX) as usize) };
        let is_final = command.flags & FINAL != 0;
        let may_have_more = writes && !agreed.initial_r2t;
        let fits = immediate.is_empty() || (agreed.immediate_data && immediate.len() <= first_burst);
        if !fits || (!is_final && !may_have_more) {
            return Err(Misplaced);
        }
        let unsolicited = (!is_final).then_some(first_burst);
        Ok(Self {
            command,
            data: immediate,
            takes,
            is_mismatched,
            expected,
            unsolicited,
            asked: None,
            data_number: 0,
            has_room: false,
        })
    }

    /// Data have come.
    ///
    /// # Errors
    ///
    /// They do not belong there.
    pub fn take(&mut self, header: &DataOut, data: &[u8]) -> Result<(), Misplaced> {
        let tag = header.transfer.get();
        let end = match (self.unsolicited, self.asked) {
            (Some(end), _) if tag == NO_TAG => end,
            (None, Some((asked, end))) if tag == asked => end,
            _ => return Err(Misplaced),
        };
        let is_next =
            header.offset.get() as usize == self.data.len() && header.data_number.get() == self.data_number;
        let is_final = header.flags & FINAL != 0;
        let reaches = self.data.len() + data.len();
        // What was asked for comes whole; what was not may end before.
        let is_whole = !is_final || tag == NO_TAG || reaches == end;
        if !is_next || reaches > end || !is_whole {
            return Err(Misplaced);
        }
        self.data.extend(data);
        self.data_number = self.data_number.wrapping_add(1);
        if is_final {
            (self.unsolicited, self.asked, self.data_number) = (None, None, 0);
        }
        Ok(())
    }

    /// Bytes it may come to hold.
    pub fn holds_bytes_max(&self) -> usize {
        self.expected.max(self.data.len())
    }

    /// How it goes on; who asks says so with [`Coming::asks`].
    pub fn next(&self, agreed: &Agreed) -> Next {
        if self.unsolicited.is_some() || self.asked.is_some() {
            return Next::Wait;
        }
        match self.expected.saturating_sub(self.data.len()) {
            0 => Next::Execute,
            left => Next::Ask {
                offset: self.data.len() as u32,
                bytes: left.min(agreed.burst_bytes_max as usize) as u32,
            },
        }
    }

    /// So many more bytes were asked for, by that tag.
    pub fn asks(&mut self, tag: u32, bytes: u32) {
        assert!(self.asked.is_none() && self.unsolicited.is_none(), "one thing comes at a time");
        self.asked = Some((tag, self.data.len() + bytes as usize));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::pdu::Header;

    fn command(flags: u8, bytes: u32) -> ScsiCommand {
        ScsiCommand { flags, expected_bytes: bytes.into(), ..ScsiCommand::empty() }
    }

    /// A command that takes what is announced.
    const ALL: Takes = Takes::UpTo(u64::MAX);

    fn data(tag: u32, offset: u32, number: u32, flags: u8) -> DataOut {
        DataOut {
            flags,
            transfer: tag.into(),
            offset: offset.into(),
            data_number: number.into(),
            ..DataOut::empty()
        }
    }

    #[test]
    fn data_come_with_the_command_then_unasked_then_asked_for() {
        let agreed = Agreed {
            initial_r2t: false,
            first_burst_bytes_max: 1024,
            burst_bytes_max: 2048,
            ..Agreed::default()
        };
        let mut coming = Coming::new(command(WRITES, 5000), vec![1; 512], ALL, &agreed).unwrap();
        assert_eq!(coming.next(&agreed), Next::Wait);
        coming.take(&data(NO_TAG, 512, 0, FINAL), &[2; 512]).unwrap();
        assert_eq!(coming.next(&agreed), Next::Ask { offset: 1024, bytes: 2048 });
        coming.asks(7, 2048);
        coming.take(&data(7, 1024, 0, 0), &[3; 1024]).unwrap();
        assert_eq!(coming.next(&agreed), Next::Wait);
        coming.take(&data(7, 2048, 1, FINAL), &[3; 1024]).unwrap();
        assert_eq!(coming.next(&agreed), Next::Ask { offset: 3072, bytes: 1928 });
        coming.asks(8, 1928);
        coming.take(&data(8, 3072, 0, FINAL), &[4; 1928]).unwrap();
        assert_eq!((coming.next(&agreed), coming.data.len()), (Next::Execute, 5000));
    }

    #[test]
    fn a_command_without_data_is_executed_at_once() {
        let agreed = Agreed::default();
        assert_eq!(
            Coming::new(command(FINAL, 512), Vec::new(), ALL, &agreed).unwrap().next(&agreed),
            Next::Execute
        );
        let all = Coming::new(command(FINAL | WRITES, 512), vec![0; 512], ALL, &agreed).unwrap();
        assert_eq!(all.next(&agreed), Next::Execute);
    }

    #[test]
    fn what_was_not_agreed_on_or_asked_for_is_refused() {
        let strict = Agreed { immediate_data: false, ..Agreed::default() };
        assert!(Coming::new(command(FINAL | WRITES, 512), vec![0; 4], ALL, &strict).is_err());
        assert!(
            Coming::new(command(WRITES, 512), Vec::new(), ALL, &strict).is_err(),
            "all must be asked for"
        );
        let agreed = Agreed::default();
        assert!(
            Coming::new(command(FINAL | WRITES, 512), vec![0; 516], ALL, &agreed).is_err(),
            "more than it said"
        );
        let mut coming = Coming::new(command(FINAL | WRITES, 4096), Vec::new(), ALL, &agreed).unwrap();
        coming.asks(5, 4096);
        for (header, bytes) in [
            (data(NO_TAG, 0, 0, 0), 512),
            (data(6, 0, 0, 0), 512),
            (data(5, 512, 0, 0), 512),
            (data(5, 0, 1, 0), 512),
            (data(5, 0, 0, 0), 4100),
            (data(5, 0, 0, FINAL), 512),
        ] {
            assert_eq!(coming.take(&header, &vec![0; bytes]), Err(Misplaced), "{header:?}");
        }
        coming.take(&data(5, 0, 0, FINAL), &[0; 4096]).expect("nothing was changed by what was refused");
    }

    #[test]
    fn no_more_is_asked_for_than_a_command_takes() {
        let agreed = Agreed::default();
        let coming =
            |takes| Coming::new(command(FINAL | WRITES, 8192), vec![1; 512], takes, &agreed).unwrap();
        assert_eq!(coming(Takes::UpTo(4096)).next(&agreed), Next::Ask { offset: 512, bytes: 3584 });
        assert_eq!(coming(Takes::UpTo(0)).next(&agreed), Next::Execute);
        let mismatched = coming(Takes::Exactly(4096));
        assert!(mismatched.is_mismatched && mismatched.next(&agreed) == Next::Execute);
        assert!(!coming(Takes::Exactly(8192)).is_mismatched);
    }
}
