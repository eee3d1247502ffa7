//! What initiators know a unit by, whatever path, target or server shows it to them.
//!
//! Whether two units are paths to one disk is decided by these names alone: two disks that share one would be written
//! over each other. [The decision](../../../../docs/decisions/2026-11-24-lun-identity.md) says which initiator keys on
//! which of them.

use super::facts::{VENDOR, padded};
use std::fmt;

/// A UUID (RFC 9562) that no other unit has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity(pub [u8; 16]);

impl Identity {
    /// Its 32 hexadecimal digits: the unit serial number (page 80h).
    pub fn digits(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// 60 bits of it as an NAA Locally Assigned designator (SPC-5, 7.7.6.6.4): the last ones, because a UUID's version
    /// and variant are bits before them, the same in every UUID.
    pub fn naa(&self) -> [u8; 8] {
        let last: [u8; 8] = self.0[8..].try_into().expect("eight of sixteen bytes");
        ((u64::from_be_bytes(last) & (u64::MAX >> 4)) | 3 << 60).to_be_bytes()
    }

    /// All of it as a T10 vendor ID designator (SPC-5, 7.7.6.4).
    pub fn vendor_name(&self) -> Vec<u8> {
        [&padded::<8>(VENDOR)[..], self.digits().as_bytes()].concat()
    }

    /// All of it as a UUID designator (SPC-5, 7.7.6.13): UUID type 1h, a reserved byte, the UUID.
    pub fn uuid_designator(&self) -> Vec<u8> {
        [&[0x10, 0][..], &self.0].concat()
    }
}

impl fmt::Display for Identity {
    /// As UUIDs are written: `0e984725-c51c-4bf4-9960-e1c80e27aba0`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.digits();
        let parts = [0..8, 8..12, 12..16, 16..20, 20..32].map(|part| &digits[part]);
        f.write_str(&parts.join("-"))
    }
}

/// Text that is not a UUID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotAUuid;

impl std::str::FromStr for Identity {
    type Err = NotAUuid;

    /// Reads what [`fmt::Display`] writes; upper and lower case are one.
    fn from_str(text: &str) -> Result<Self, NotAUuid> {
        let has_dashes = text.len() == 36 && [8, 13, 18, 23].iter().all(|&at| text.as_bytes()[at] == b'-');
        let digits = text.replace('-', "");
        let is_uuid =
            has_dashes && digits.len() == 32 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        let number = u128::from_str_radix(&digits, 16).ok().filter(|_| is_uuid);
        number.map(|number| Self(number.to_be_bytes())).ok_or(NotAUuid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_reads_back_as_it_is_written() {
        let identity: Identity = "0E984725-c51c-4bf4-9960-e1c80e27aba0".parse().unwrap();
        assert_eq!(identity.to_string(), "0e984725-c51c-4bf4-9960-e1c80e27aba0");
        assert_eq!(identity.digits(), "0e984725c51c4bf49960e1c80e27aba0");
        for text in ["", "0e984725c51c4bf49960e1c80e27aba0", "0e984725-c51c-4bf4-9960-e1c80e27abag"] {
            assert_eq!(text.parse::<Identity>(), Err(NotAUuid), "{text}");
        }
    }

    #[test]
    fn each_designator_has_the_bits_it_has_room_for() {
        let identity: Identity = "0e984725-c51c-4bf4-9960-e1c80e27aba0".parse().unwrap();
        assert_eq!(identity.naa(), [0x39, 0x60, 0xe1, 0xc8, 0x0e, 0x27, 0xab, 0xa0]);
        assert_eq!(identity.vendor_name(), b"SPINDLE 0e984725c51c4bf49960e1c80e27aba0");
        assert_eq!(identity.uuid_designator()[..4], [0x10, 0, 0x0e, 0x98]);
        assert_eq!(identity.uuid_designator().len(), 18);
    }
}
