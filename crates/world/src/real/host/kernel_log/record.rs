//! One record of /dev/kmsg (Documentation/ABI/testing/dev-kmsg of the kernel).
//!
//! ```text
//! 3,1234,5678901234,-;I/O error, dev sda, sector 8 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 2
//!  SUBSYSTEM=block
//!  DEVICE=b8:0
//! ```
//!
//! Before the semicolon: facility × 8 + level, number, microseconds since boot, flags, and what later
//! kernels may add. After it the message, to the end of the line, in which bytes that are not printable
//! are written as `\x0a`; then lines that begin with a blank, each a key and a value.

use thiserror::Error;

/// One record of the kernel log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelRecord {
    /// The origin: 0 is the kernel.
    pub facility: u32,
    /// Severity: 0 is an emergency, 7 is debugging.
    pub level: u8,
    /// Kernel clock, in microseconds since boot.
    pub at_us: u64,
    /// The message, its lines joined by blanks.
    pub text: String,
    /// The device key, where the kernel attaches one: `b8:0`, `+scsi:0:0:0:0`.
    pub device: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("no record of the kernel log")]
pub struct MalformedRecord;

impl KernelRecord {
    pub fn parse(bytes: &[u8]) -> Result<Self, MalformedRecord> {
        let text = String::from_utf8_lossy(bytes);
        let mut lines = text.lines();
        let (head, message) = lines.next().and_then(|line| line.split_once(';')).ok_or(MalformedRecord)?;
        let mut fields = head.split(',');
        let mut number = || fields.next().and_then(|field| field.parse::<u64>().ok()).ok_or(MalformedRecord);
        let (priority, _number, at_us) = (number()?, number()?, number()?);
        Ok(Self {
            facility: u32::try_from(priority >> 3).map_err(|_| MalformedRecord)?,
            level: (priority & 7) as u8,
            at_us,
            text: unescape(message).split_whitespace().collect::<Vec<_>>().join(" "),
            device: lines.find_map(|line| line.strip_prefix(" DEVICE=")).map(unescape),
        })
    }

    /// True if the kernel itself wrote it.
    pub fn is_of_kernel(&self) -> bool {
        self.facility == 0
    }
}

/// Decodes `\x0a`. Other backslashes stay.
fn unescape(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let code = after.first_chunk::<3>().filter(|code| first == b'\\' && code[0] == b'x');
        let code = code.and_then(|code| u8::from_str_radix(str::from_utf8(&code[1..]).ok()?, 16).ok());
        bytes.push(code.unwrap_or(first));
        rest = if code.is_some() { &after[3..] } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_parsed_into_its_fields() {
        let bytes =
            b"3,1234,5678901234,-,caller=T7;I/O error, dev sda, sector 8\n SUBSYSTEM=block\n DEVICE=b8:0\n";
        let record = KernelRecord::parse(bytes).unwrap();
        assert_eq!((record.facility, record.level, record.at_us), (0, 3, 5_678_901_234));
        assert_eq!((&*record.text, record.device.as_deref()), ("I/O error, dev sda, sector 8", Some("b8:0")));
        let lines =
            b"6,1,2,c;dd: attempt to access beyond end of device\\x0aloop0: rw=1; caf\\xc3\\xa9 \\q\n";
        let record = KernelRecord::parse(lines).unwrap();
        assert_eq!(record.text, "dd: attempt to access beyond end of device loop0: rw=1; caf\u{e9} \\q");
    }

    #[test]
    fn messages_of_programs_are_recognised_by_facility() {
        assert!(!KernelRecord::parse(b"12,1,2,-;I/O error, dev sda").unwrap().is_of_kernel());
        assert!(KernelRecord::parse(b"4,1,2,-;I/O error, dev sda").unwrap().is_of_kernel());
    }

    #[test]
    fn any_bytes_parse_or_are_refused() {
        for bytes in [
            &b""[..],
            b";",
            b",,,;",
            b"3,1234",
            b"x,1,2,-;text",
            b"99999999999999999999,1,2,-;text",
            b"18446744073709551615,1,2,-;text",
            b"\xff\xfe\x00",
        ] {
            assert_eq!(KernelRecord::parse(bytes), Err(MalformedRecord), "{bytes:?}");
        }
        // Truncated input is parsed or refused, and never panics.
        let whole = b"3,1,2,-;a\\x0ab\\x\n DEVICE=\\xb8\n";
        for length in 0..whole.len() {
            let _ = KernelRecord::parse(&whole[..length]);
        }
        assert_eq!(KernelRecord::parse(b"3,1,2,-;").unwrap().text, "");
    }
}
