//! What goes over the wire: numbers, and layouts of fixed size. All numbers are big-endian.

pub mod handshake;

pub mod transmission;

/// Bytes of one request's data, or of one read's, at most; what servers promise without being asked.
pub const PAYLOAD_BYTES_MAX: u32 = 32 << 20;
/// Bytes of an export's name, or of any other text, at most.
pub const TEXT_BYTES_MAX: usize = 4096;

/// Bytes that are taken from the front; none if there are too few.
#[derive(Clone, Copy, Debug)]
pub struct Taking<'a>(pub &'a [u8]);

impl<'a> Taking<'a> {
    /// The next `count` bytes.
    pub fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    /// The next two bytes.
    pub fn u16(&mut self) -> Option<u16> {
        Some(u16::from_be_bytes(self.bytes(2)?.try_into().ok()?))
    }

    /// The next four.
    pub fn u32(&mut self) -> Option<u32> {
        Some(u32::from_be_bytes(self.bytes(4)?.try_into().ok()?))
    }

    /// The next eight.
    pub fn u64(&mut self) -> Option<u64> {
        Some(u64::from_be_bytes(self.bytes(8)?.try_into().ok()?))
    }

    /// A text behind its length in four bytes: UTF-8, at most [`TEXT_BYTES_MAX`].
    pub fn text(&mut self) -> Option<&'a str> {
        let length = self.u32()? as usize;
        let text = std::str::from_utf8(self.bytes(length)?).ok()?;
        (length <= TEXT_BYTES_MAX).then_some(text)
    }

    /// All that is left, which is a text.
    pub fn rest_as_text(&mut self) -> Option<&'a str> {
        let rest = self.bytes(self.0.len())?;
        std::str::from_utf8(rest).ok().filter(|text| text.len() <= TEXT_BYTES_MAX)
    }

    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Appends a text behind its length.
pub fn put_text(into: &mut Vec<u8>, text: &str) {
    into.extend((text.len() as u32).to_be_bytes());
    into.extend(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_is_taken_and_no_more() {
        let mut bytes = 7_u16.to_be_bytes().to_vec();
        put_text(&mut bytes, "mail");
        let mut taking = Taking(&bytes);
        assert_eq!(
            (taking.u16(), taking.text(), taking.u32(), taking.is_empty()),
            (Some(7), Some("mail"), None, true)
        );
        for length in 0..bytes.len() {
            let mut cut = Taking(&bytes[..length]);
            assert!(cut.u16().and_then(|_| cut.text()).is_none(), "{length} bytes are too few");
        }
        let long = [&(TEXT_BYTES_MAX as u32 + 1).to_be_bytes()[..], &[b'a'; TEXT_BYTES_MAX + 1]].concat();
        assert_eq!(Taking(&long).text(), None);
    }
}
