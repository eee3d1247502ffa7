//! Frames: a header of 48 bytes, more header, data, and a digest of each if that was agreed on (RFC 7143, 11.2).

use std::{fmt, io};
use tokio::io::{AsyncRead, AsyncReadExt};
use world::Crc32c;

/// Bytes of a basic header segment.
pub const HEADER_BYTES: usize = 48;
/// Bytes of data of one frame at most, whatever is agreed on.
pub const DATA_BYTES_MAX: usize = (1 << 24) - 1;

/// Which digests were agreed on. Before that there are none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digests {
    /// Of the header.
    pub header: bool,
    /// Of the data.
    pub data: bool,
}

/// A frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Basic header segment.
    pub header: [u8; HEADER_BYTES],
    /// Additional header segments.
    pub additional: Vec<u8>,
    /// Data, without what fills it up to four bytes.
    pub data: Vec<u8>,
}

/// Why a frame could not be read. After each of these, but for the first, nobody knows where the next one begins, or the
/// rules want the connection to end.
#[derive(Debug)]
pub enum Unreadable {
    /// Its data are not those that were sent. The frame behind it can be read.
    DataDigest(Box<Frame>),
    /// Its header is not the one that was sent.
    HeaderDigest,
    /// It has more data than was agreed on.
    TooLong {
        /// Bytes it has.
        bytes: usize,
    },
    /// The connection broke, or was closed within a frame.
    Broken(io::Error),
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DataDigest(_) => f.write_str("data were damaged on their way"),
            Self::HeaderDigest => f.write_str("a header was damaged on its way"),
            Self::TooLong { bytes } => {
                write!(f, "{bytes} bytes of data came at once, more than was agreed on")
            }
            Self::Broken(error) => error.fmt(f),
        }
    }
}

impl From<io::Error> for Unreadable {
    fn from(error: io::Error) -> Self {
        Self::Broken(error)
    }
}

/// The CRC-32C of bytes, as it is sent (RFC 7143, 13.1 and appendix A of RFC 3720).
pub fn digest<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> [u8; 4] {
    let mut crc = Crc32c::default();
    pieces.into_iter().for_each(|piece| crc.update(piece));
    crc.value().to_le_bytes()
}

/// Bytes that fill up so many to whole words.
pub fn padding(length: usize) -> usize {
    length.next_multiple_of(4) - length
}

impl Frame {
    /// A frame of a header and data; their length is put into the header.
    ///
    /// # Panics
    ///
    /// If there are more data than a header can say.
    pub fn new(mut header: [u8; HEADER_BYTES], data: Vec<u8>) -> Self {
        assert!(data.len() <= DATA_BYTES_MAX, "a header has 24 bits for it");
        header[4] = 0;
        header[5..8].copy_from_slice(&(data.len() as u32).to_be_bytes()[1..]);
        Self { header, additional: Vec::new(), data }
    }

    /// What it is: the low six bits of its first byte.
    pub fn opcode(&self) -> u8 {
        self.header[0] & 0x3f
    }

    /// Its bytes.
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

    /// The next frame; none if the connection was closed before it.
    ///
    /// # Errors
    ///
    /// It cannot be read, or is none. No more is read than `data_max` bytes of data and what belongs to them.
    pub async fn read(
        reader: &mut (impl AsyncRead + Unpin),
        digests: Digests,
        data_max: usize,
    ) -> Result<Option<Self>, Unreadable> {
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
                return Err(Unreadable::HeaderDigest);
            }
        }
        let length = u32::from_be_bytes([0, header[5], header[6], header[7]]) as usize;
        if length > data_max {
            return Err(Unreadable::TooLong { bytes: length });
        }
        let mut data = vec![0; length.next_multiple_of(4)];
        reader.read_exact(&mut data).await?;
        let mut is_right = true;
        if digests.data && length > 0 {
            let mut sent = [0; 4];
            reader.read_exact(&mut sent).await?;
            is_right = sent == digest([&data[..]]);
        }
        data.truncate(length);
        let frame = Self { header, additional, data };
        if is_right { Ok(Some(frame)) } else { Err(Unreadable::DataDigest(Box::new(frame))) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Polls what never waits.
    fn now<T>(future: impl Future<Output = T>) -> T {
        let mut future = std::pin::pin!(future);
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        match future.as_mut().poll(&mut context) {
            std::task::Poll::Ready(value) => value,
            std::task::Poll::Pending => panic!("bytes in memory are there"),
        }
    }

    fn read(bytes: &[u8], digests: Digests) -> Result<Option<Frame>, Unreadable> {
        now(Frame::read(&mut &bytes[..], digests, 8192))
    }

    #[test]
    fn digests_are_those_of_the_standard() {
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
    fn frames_read_back_as_written_one_behind_the_other() {
        for (header, data) in [(false, false), (true, false), (false, true), (true, true)] {
            let digests = Digests { header, data };
            let frames = [0, 1, 4, 4095].map(|length| Frame::new([7; HEADER_BYTES], vec![9; length]));
            let bytes: Vec<u8> = frames.iter().flat_map(|frame| frame.encode(digests)).collect();
            let mut rest = &bytes[..];
            for frame in frames {
                assert_eq!(now(Frame::read(&mut rest, digests, 8192)).unwrap(), Some(frame));
            }
            assert!(matches!(now(Frame::read(&mut rest, digests, 8192)), Ok(None)));
        }
    }

    #[test]
    fn what_is_cut_changed_or_too_long_is_told_apart() {
        let both = Digests { header: true, data: true };
        let mut additional = Frame::new([1; HEADER_BYTES], vec![3; 10]);
        (additional.header[4], additional.additional) = (2, vec![5; 8]);
        let bytes = additional.encode(both);
        assert_eq!(read(&bytes, both).unwrap(), Some(additional.clone()));
        for length in 1..bytes.len() {
            assert!(
                matches!(read(&bytes[..length], both), Err(Unreadable::Broken(_))),
                "{length} bytes of it"
            );
        }
        let behind_header = HEADER_BYTES + 8 + 4;
        for place in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[place] ^= 0x10;
            match read(&changed, both) {
                Err(Unreadable::DataDigest(frame)) => {
                    assert!(place >= behind_header);
                    assert_eq!(frame.header, additional.header);
                }
                Err(Unreadable::HeaderDigest | Unreadable::Broken(_)) => {
                    assert!(place < behind_header, "{place}")
                }
                other => panic!("a change at {place} is noticed: {other:?}"),
            }
        }
        let long = Frame::new([0; HEADER_BYTES], vec![0; 8193]).encode(both);
        assert!(matches!(read(&long, both), Err(Unreadable::TooLong { bytes: 8193 })));
    }
}
