//! Bytes of a frame's body: numbers in little-endian order, and lists whose length is checked before it is used.

use super::{FrameError, FrameFault};
use crate::{
    cut::{GroupCut, PARTS_MAX},
    lineage::{EpochSpan, GroupEpoch, Lineage},
};
use array::format::Stamp;

/// Reads a body from its start to its end.
pub(crate) struct BodyReader<'b> {
    bytes: &'b [u8],
    at: usize,
}

impl<'b> BodyReader<'b> {
    pub fn new(bytes: &'b [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// An error at the last field that was read.
    pub fn fault(&self, fault: FrameFault) -> FrameError {
        FrameError { at: self.at, fault }
    }

    pub fn bytes(&mut self, count: usize) -> Result<&'b [u8], FrameError> {
        let rest = &self.bytes[self.at..];
        let found = rest.get(..count).ok_or_else(|| self.fault(FrameFault::Short))?;
        self.at += count;
        Ok(found)
    }

    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], FrameError> {
        Ok(self.bytes(N)?.try_into().expect("as many as were asked for"))
    }

    pub fn u8(&mut self) -> Result<u8, FrameError> {
        Ok(self.array::<1>()?[0])
    }

    pub fn u16(&mut self) -> Result<u16, FrameError> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub fn u32(&mut self) -> Result<u32, FrameError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub fn u64(&mut self) -> Result<u64, FrameError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// A byte that is 0 or 1.
    pub fn flag(&mut self) -> Result<bool, FrameError> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(self.fault(FrameFault::Value("a flag"))),
        }
    }

    /// UTF-8 without control characters, after its length in two bytes.
    pub fn text(&mut self, bytes_max: usize) -> Result<String, FrameError> {
        let count = usize::from(self.u16()?);
        if count > bytes_max {
            return Err(self.fault(FrameFault::Value("the length of a text")));
        }
        let text = std::str::from_utf8(self.bytes(count)?).ok();
        let text = text.filter(|text| !text.chars().any(char::is_control));
        text.map(str::to_owned).ok_or_else(|| self.fault(FrameFault::Value("a text")))
    }

    /// The number of a list's items, each of at least so many bytes: not more than can follow.
    pub fn count(&mut self, item_bytes: usize) -> Result<usize, FrameError> {
        let count = self.u32()? as usize;
        if count > (self.bytes.len() - self.at) / item_bytes {
            return Err(self.fault(FrameFault::Value("the length of a list")));
        }
        Ok(count)
    }

    /// A cut, after its number of parts in one byte.
    pub fn cut(&mut self) -> Result<GroupCut, FrameError> {
        let parts = usize::from(self.u8()?);
        if !(1..=PARTS_MAX).contains(&parts) {
            return Err(self.fault(FrameFault::Value("the number of parts")));
        }
        let stamps = (0..parts).map(|_| Ok(Stamp(self.u64()?))).collect::<Result<_, _>>()?;
        Ok(GroupCut::new(stamps))
    }

    pub fn epoch(&mut self) -> Result<GroupEpoch, FrameError> {
        let epoch = array::format::EpochId(self.array()?);
        let parts = usize::from(self.u8()?);
        if !(1..=PARTS_MAX).contains(&parts) {
            return Err(self.fault(FrameFault::Value("the number of parts")));
        }
        let span =
            |reader: &mut Self| Ok(EpochSpan { fork: Stamp(reader.u64()?), start: Stamp(reader.u64()?) });
        let spans = (0..parts).map(|_| span(self)).collect::<Result<_, _>>()?;
        Ok(GroupEpoch { epoch, spans })
    }

    /// A lineage; none if it has no epochs.
    pub fn lineage(&mut self) -> Result<Option<Lineage>, FrameError> {
        let count = self.count(33)?;
        if count == 0 {
            return Ok(None);
        }
        let epochs = (0..count).map(|_| self.epoch()).collect::<Result<_, _>>()?;
        let lineage = Lineage::from_epochs(epochs);
        lineage.map(Some).map_err(|error| self.fault(FrameFault::Lineage(error)))
    }

    /// To be called last.
    pub fn end(self) -> Result<(), FrameError> {
        if self.at == self.bytes.len() { Ok(()) } else { Err(self.fault(FrameFault::Trailing)) }
    }
}

/// Writes a body.
#[derive(Default)]
pub(crate) struct BodyWriter(pub Vec<u8>);

impl BodyWriter {
    pub fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }

    pub fn u8(&mut self, value: u8) -> &mut Self {
        self.bytes(&[value])
    }

    pub fn u16(&mut self, value: u16) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    pub fn u32(&mut self, value: u32) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    pub fn u64(&mut self, value: u64) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    pub fn count(&mut self, count: usize) -> &mut Self {
        self.u32(u32::try_from(count).expect("a list fits into a frame"))
    }

    pub fn text(&mut self, text: &str) -> &mut Self {
        self.u16(u16::try_from(text.len()).expect("a text is short")).bytes(text.as_bytes())
    }

    pub fn cut(&mut self, cut: &GroupCut) -> &mut Self {
        self.u8(cut.parts() as u8);
        cut.stamps().iter().for_each(|stamp| {
            self.u64(stamp.0);
        });
        self
    }

    pub fn epoch(&mut self, epoch: &GroupEpoch) -> &mut Self {
        self.bytes(&epoch.epoch.0).u8(epoch.spans.len() as u8);
        epoch.spans.iter().for_each(|span| {
            self.u64(span.fork.0).u64(span.start.0);
        });
        self
    }

    pub fn lineage(&mut self, lineage: Option<&Lineage>) -> &mut Self {
        let epochs = lineage.map_or(&[][..], Lineage::epochs);
        self.count(epochs.len());
        epochs.iter().for_each(|epoch| {
            self.epoch(epoch);
        });
        self
    }
}
