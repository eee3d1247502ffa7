//! The wire format. All numbers are big-endian.

pub mod handshake;

pub mod transmission;

/// Largest payload of a request or reply: the maximum a client may assume without block size constraints.
pub const PAYLOAD_BYTES_MAX: u32 = 32 << 20;
/// Longest string (proto.md, "Strings").
pub const TEXT_BYTES_MAX: usize = 4096;

/// Reads fields from the front of a slice; `None` if too few bytes are left.
#[derive(Clone, Copy, Debug)]
pub struct ByteReader<'a>(pub &'a [u8]);

impl<'a> ByteReader<'a> {
    pub fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    pub fn u16(&mut self) -> Option<u16> {
        Some(u16::from_be_bytes(self.bytes(2)?.try_into().ok()?))
    }

    pub fn u32(&mut self) -> Option<u32> {
        Some(u32::from_be_bytes(self.bytes(4)?.try_into().ok()?))
    }

    pub fn u64(&mut self) -> Option<u64> {
        Some(u64::from_be_bytes(self.bytes(8)?.try_into().ok()?))
    }

    /// A string preceded by its length in four bytes: UTF-8, at most [`TEXT_BYTES_MAX`].
    pub fn string(&mut self) -> Option<&'a str> {
        let length = self.u32()? as usize;
        let text = std::str::from_utf8(self.bytes(length)?).ok()?;
        (length <= TEXT_BYTES_MAX).then_some(text)
    }

    /// The remaining bytes as a string.
    pub fn rest_as_string(&mut self) -> Option<&'a str> {
        let rest = self.bytes(self.0.len())?;
        std::str::from_utf8(rest).ok().filter(|text| text.len() <= TEXT_BYTES_MAX)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Appends a string preceded by its length.
pub fn write_string(into: &mut Vec<u8>, text: &str) {
    into.extend((text.len() as u32).to_be_bytes());
    into.extend(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_parse_as_written() {
        let mut bytes = 7_u16.to_be_bytes().to_vec();
        write_string(&mut bytes, "mail");
        let mut reader = ByteReader(&bytes);
        assert_eq!(
            (reader.u16(), reader.string(), reader.u32(), reader.is_empty()),
            (Some(7), Some("mail"), None, true)
        );
        for length in 0..bytes.len() {
            let mut cut = ByteReader(&bytes[..length]);
            assert!(cut.u16().and_then(|_| cut.string()).is_none(), "{length} bytes are too few");
        }
        let long = [&(TEXT_BYTES_MAX as u32 + 1).to_be_bytes()[..], &[b'a'; TEXT_BYTES_MAX + 1]].concat();
        assert_eq!(ByteReader(&long).string(), None);
    }
}
