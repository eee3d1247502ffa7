//! Protocol data units: a basic header segment of 48 bytes, additional header segments, a data segment, and
//! digests if they were negotiated (RFC 7143, 11.2).

use std::{fmt, io};
use tokio::io::{AsyncRead, AsyncReadExt};
use world::Crc32c;

/// Length of a basic header segment.
pub const HEADER_BYTES: usize = 48;
/// Largest data segment a header can describe.
pub const DATA_BYTES_MAX: usize = (1 << 24) - 1;

/// Digests in force. Both are off until login has negotiated them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digests {
    pub header: bool,
    pub data: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pdu {
    pub header: [u8; HEADER_BYTES],
    pub additional: Vec<u8>,
    /// The data segment, without its padding.
    pub data: Vec<u8>,
}

/// Errors of reading a PDU. After any but [`PduError::DataDigest`] the start of the next PDU is unknown, or
/// RFC 7143 demands that the connection end.
#[derive(Debug)]
pub enum PduError {
    /// The data segment was damaged on its way. The next PDU can be read.
    DataDigest(Box<Pdu>),
    /// The header was damaged on its way.
    HeaderDigest,
    /// The data segment is longer than negotiated.
    TooLong { bytes: usize },
    /// The connection broke, or was closed within a PDU.
    Broken(io::Error),
}

impl fmt::Display for PduError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DataDigest(_) => f.write_str("data digest error"),
            Self::HeaderDigest => f.write_str("header digest error"),
            Self::TooLong { bytes } => {
                write!(f, "data segment of {bytes} bytes exceeds MaxRecvDataSegmentLength")
            }
            Self::Broken(error) => error.fmt(f),
        }
    }
}

impl From<io::Error> for PduError {
    fn from(error: io::Error) -> Self {
        Self::Broken(error)
    }
}

/// The CRC-32C of `pieces` in the byte order of the wire (RFC 7143, 13.1 and appendix A of RFC 3720).
pub fn digest<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> [u8; 4] {
    let mut crc = Crc32c::default();
    pieces.into_iter().for_each(|piece| crc.update(piece));
    crc.value().to_le_bytes()
}

/// Padding bytes that follow a segment of `length` bytes.
pub fn padding(length: usize) -> usize {
    length.next_multiple_of(4) - length
}

impl Pdu {
    /// Builds a PDU and writes the DataSegmentLength into its header.
    ///
    /// # Panics
    ///
    /// If the data segment is longer than the 24 bits of DataSegmentLength can say.
    pub fn new(mut header: [u8; HEADER_BYTES], data: Vec<u8>) -> Self {
        assert!(data.len() <= DATA_BYTES_MAX, "a header has 24 bits for it");
        header[4] = 0;
        header[5..8].copy_from_slice(&(data.len() as u32).to_be_bytes()[1..]);
        Self { header, additional: Vec::new(), data }
    }

    pub fn opcode(&self) -> u8 {
        self.header[0] & 0x3f
    }

    pub fn encode(&self, digests: Digests) -> Vec<u8> {
        assert!(self.additional.len() == 4 * usize::from(self.header[4]), "the header says how long it is");
        let mut bytes = self.header.to_vec();
        bytes.extend(&self.additional);
        if digests.header {
            let digest = digest([&bytes[..]]);
            bytes.extend(digest);
        }
        if !self.data.is_empty() {
            let fill = &[0; 3][..padding(self.data.len())];
            bytes.extend(&self.data);
            bytes.extend(fill);
            if digests.data {
                bytes.extend(digest([&self.data[..], fill]));
            }
        }
        bytes
    }

    /// Reads the next PDU; `None` if the connection was closed before its first byte.
    ///
    /// # Errors
    ///
    /// See [`PduError`]. A data segment of more than `data_max` bytes is not read.
    pub async fn read(
        reader: &mut (impl AsyncRead + Unpin),
        digests: Digests,
        data_max: usize,
    ) -> Result<Option<Self>, PduError> {
        let Some(head) = PduHead::read(reader, digests, data_max).await? else { return Ok(None) };
        let mut data = vec![0; head.data_bytes];
        let is_intact = head.read_data(reader, digests, &mut data).await?;
        let pdu = head.with_data(data);
        if is_intact { Ok(Some(pdu)) } else { Err(PduError::DataDigest(Box::new(pdu))) }
    }
}

/// The header segments of a PDU, read before its data segment: the caller chooses the memory for the data by them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PduHead {
    /// The basic header segment.
    pub header: [u8; HEADER_BYTES],
    additional: Vec<u8>,
    /// Length of the data segment, without its padding.
    pub data_bytes: usize,
}

impl PduHead {
    /// Reads the header segments of the next PDU; `None` if the connection was closed before its first byte.
    /// [`PduHead::read_data`] must follow.
    ///
    /// # Errors
    ///
    /// Any [`PduError`] but [`PduError::DataDigest`].
    pub async fn read(
        reader: &mut (impl AsyncRead + Unpin),
        digests: Digests,
        data_max: usize,
    ) -> Result<Option<Self>, PduError> {
        let mut header = [0; HEADER_BYTES];
        if reader.read(&mut header[..1]).await? == 0 {
            return Ok(None);
        }
        reader.read_exact(&mut header[1..]).await?;
        let mut additional = vec![0; 4 * usize::from(header[4])];
        reader.read_exact(&mut additional).await?;
        if digests.header {
            let mut sent = [0; 4];
            reader.read_exact(&mut sent).await?;
            if sent != digest([&header[..], &additional]) {
                return Err(PduError::HeaderDigest);
            }
        }
        let data_bytes = u32::from_be_bytes([0, header[5], header[6], header[7]]) as usize;
        if data_bytes > data_max {
            return Err(PduError::TooLong { bytes: data_bytes });
        }
        Ok(Some(Self { header, additional, data_bytes }))
    }

    pub fn opcode(&self) -> u8 {
        self.header[0] & 0x3f
    }

    /// Reads the data segment into `into`, which has its length. Returns false if its digest does not match; the next PDU
    /// can be read nevertheless.
    ///
    /// # Errors
    ///
    /// The connection broke.
    pub async fn read_data(
        &self,
        reader: &mut (impl AsyncRead + Unpin),
        digests: Digests,
        into: &mut [u8],
    ) -> Result<bool, PduError> {
        assert_eq!(into.len(), self.data_bytes, "there is room for the data segment");
        reader.read_exact(into).await?;
        let mut padding_bytes = [0; 3];
        let padding = &mut padding_bytes[..padding(into.len())];
        reader.read_exact(padding).await?;
        if !digests.data || into.is_empty() {
            return Ok(true);
        }
        let mut sent = [0; 4];
        reader.read_exact(&mut sent).await?;
        Ok(sent == digest([&*into, &*padding]))
    }

    /// The PDU with its data segment.
    pub fn with_data(self, data: Vec<u8>) -> Pdu {
        Pdu { header: self.header, additional: self.additional, data }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Polls a future that never waits.
    fn now<T>(future: impl Future<Output = T>) -> T {
        let mut future = std::pin::pin!(future);
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        match future.as_mut().poll(&mut context) {
            std::task::Poll::Ready(value) => value,
            std::task::Poll::Pending => panic!("bytes in memory are there"),
        }
    }

    fn read(bytes: &[u8], digests: Digests) -> Result<Option<Pdu>, PduError> {
        now(Pdu::read(&mut &bytes[..], digests, 8192))
    }

    #[test]
    fn digests_match_rfc_3720_appendix_b() {
        // RFC 3720, appendix B.4.
        let ascending: Vec<u8> = (0..32).collect();
        let descending: Vec<u8> = (0..32).rev().collect();
        for (bytes, expected) in [
            (&[0; 32][..], [0xaa, 0x36, 0x91, 0x8a]),
            (&[0xff; 32], [0x43, 0xab, 0xa8, 0x62]),
            (&ascending, [0x4e, 0x79, 0xdd, 0x46]),
            (&descending, [0x5c, 0xdb, 0x3f, 0x11]),
        ] {
            assert_eq!(digest([bytes]), expected);
        }
    }

    #[test]
    fn pdus_parse_as_encoded() {
        for (header, data) in [(false, false), (true, false), (false, true), (true, true)] {
            let digests = Digests { header, data };
            let pdus = [0, 1, 4, 4095].map(|length| Pdu::new([7; HEADER_BYTES], vec![9; length]));
            let bytes: Vec<u8> = pdus.iter().flat_map(|pdu| pdu.encode(digests)).collect();
            let mut rest = &bytes[..];
            for pdu in pdus {
                assert_eq!(now(Pdu::read(&mut rest, digests, 8192)).unwrap(), Some(pdu));
            }
            assert!(matches!(now(Pdu::read(&mut rest, digests, 8192)), Ok(None)));
        }
    }

    #[test]
    fn truncated_damaged_and_oversized_pdus_are_told_apart() {
        let both = Digests { header: true, data: true };
        let mut additional = Pdu::new([1; HEADER_BYTES], vec![3; 10]);
        (additional.header[4], additional.additional) = (2, vec![5; 8]);
        let bytes = additional.encode(both);
        assert_eq!(read(&bytes, both).unwrap(), Some(additional.clone()));
        for length in 1..bytes.len() {
            assert!(matches!(read(&bytes[..length], both), Err(PduError::Broken(_))), "{length} bytes of it");
        }
        let behind_header = HEADER_BYTES + 8 + 4;
        for place in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[place] ^= 0x10;
            match read(&changed, both) {
                Err(PduError::DataDigest(pdu)) => {
                    assert!(place >= behind_header);
                    assert_eq!(pdu.header, additional.header);
                }
                Err(PduError::HeaderDigest | PduError::Broken(_)) => {
                    assert!(place < behind_header, "{place}")
                }
                other => panic!("a change at {place} is noticed: {other:?}"),
            }
        }
        let long = Pdu::new([0; HEADER_BYTES], vec![0; 8193]).encode(both);
        assert!(matches!(read(&long, both), Err(PduError::TooLong { bytes: 8193 })));
    }
}
