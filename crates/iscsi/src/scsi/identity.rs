//! The identity of a unit, the same on every path, target and server.
//!
//! Initiators decide by these names alone if two units are paths to one disk: two disks with one identity
//! would overwrite each other. [The decision](../../../../docs/decisions/2026-11-24-lun-identity.md) lists
//! the name each initiator relies on.

use super::properties::{VENDOR, padded};
use std::fmt;

/// A UUID (RFC 9562), unique to the unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnitIdentity(pub [u8; 16]);

impl UnitIdentity {
    /// The 32 hexadecimal digits; the unit serial number (page 80h).
    pub fn digits(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The last 60 bits as an NAA Locally Assigned designator (SPC-5, 7.7.6.6.4). The bits before them
    /// include the UUID's version and variant, which are constant.
    pub fn naa(&self) -> [u8; 8] {
        let last: [u8; 8] = self.0[8..].try_into().expect("eight of sixteen bytes");
        ((u64::from_be_bytes(last) & (u64::MAX >> 4)) | 3 << 60).to_be_bytes()
    }

    /// A T10 vendor ID designator of all digits (SPC-5, 7.7.6.4).
    pub fn vendor_name(&self) -> Vec<u8> {
        [&padded::<8>(VENDOR)[..], self.digits().as_bytes()].concat()
    }

    /// A UUID designator (SPC-5, 7.7.6.13): UUID type 1h, a reserved byte, the UUID.
    pub fn uuid_designator(&self) -> Vec<u8> {
        [&[0x10, 0][..], &self.0].concat()
    }
}

impl fmt::Display for UnitIdentity {
    /// The form of RFC 9562: `0e984725-c51c-4bf4-9960-e1c80e27aba0`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.digits();
        let parts = [0..8, 8..12, 12..16, 16..20, 20..32].map(|part| &digits[part]);
        f.write_str(&parts.join("-"))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotAUuid;

impl std::str::FromStr for UnitIdentity {
    type Err = NotAUuid;

    /// Parses the form that [`fmt::Display`] writes, in upper or lower case.
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
    fn a_uuid_parses_as_it_is_printed() {
        let identity: UnitIdentity = "0E984725-c51c-4bf4-9960-e1c80e27aba0".parse().unwrap();
        assert_eq!(identity.to_string(), "0e984725-c51c-4bf4-9960-e1c80e27aba0");
        assert_eq!(identity.digits(), "0e984725c51c4bf49960e1c80e27aba0");
        for text in ["", "0e984725c51c4bf49960e1c80e27aba0", "0e984725-c51c-4bf4-9960-e1c80e27abag"] {
            assert_eq!(text.parse::<UnitIdentity>(), Err(NotAUuid), "{text}");
        }
    }

    #[test]
    fn designators_hold_the_identity() {
        let identity: UnitIdentity = "0e984725-c51c-4bf4-9960-e1c80e27aba0".parse().unwrap();
        assert_eq!(identity.naa(), [0x39, 0x60, 0xe1, 0xc8, 0x0e, 0x27, 0xab, 0xa0]);
        assert_eq!(identity.vendor_name(), b"SPINDLE 0e984725c51c4bf49960e1c80e27aba0");
        assert_eq!(identity.uuid_designator()[..4], [0x10, 0, 0x0e, 0x98]);
        assert_eq!(identity.uuid_designator().len(), 18);
    }
}
