//! The failure domain of a drive: its name in the drive's row of the member table.
//!
//! A domain is what drives share that can fail: a shelf, a controller, a machine. Drives of one name fail together; a
//! drive without a name fails alone. Rows with a name have the incompatible feature 14: a program that does not know
//! it would put both copies of a segment into one domain.

use super::{features::INCOMPATIBLE_DOMAINS, member::Member};
use std::fmt;

/// Most bytes of a domain's name.
pub const DOMAIN_NAME_BYTES_MAX: usize = 12;

/// Name of a failure domain: 1 to 12 ASCII letters, digits, `-`, `_` and `.`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DomainName([u8; DOMAIN_NAME_BYTES_MAX]);

impl DomainName {
    /// `None` if it is no name of a domain.
    pub fn new(name: &str) -> Option<Self> {
        let mut bytes = [0; DOMAIN_NAME_BYTES_MAX];
        bytes.get_mut(..name.len())?.copy_from_slice(name.as_bytes());
        let is_name = !name.is_empty() && name.bytes().all(is_allowed);
        is_name.then_some(Self(bytes))
    }

    pub fn as_str(&self) -> &str {
        let length = self.0.iter().position(|&byte| byte == 0).unwrap_or(self.0.len());
        std::str::from_utf8(&self.0[..length]).expect("a name is ASCII")
    }

    /// The bytes of a row: filled up with zeroes, all zero without a domain.
    pub(super) fn to_bytes(name: Option<Self>) -> [u8; DOMAIN_NAME_BYTES_MAX] {
        name.map_or([0; DOMAIN_NAME_BYTES_MAX], |name| name.0)
    }

    /// The domain of a row, if any.
    ///
    /// # Errors
    ///
    /// Bytes that are no name.
    pub(super) fn of_bytes(bytes: [u8; DOMAIN_NAME_BYTES_MAX]) -> Result<Option<Self>, ()> {
        let length = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
        if length == 0 {
            return Ok(None);
        }
        if bytes[..length].iter().copied().all(is_allowed) { Ok(Some(Self(bytes))) } else { Err(()) }
    }
}

/// The features of a member table: 14 if a row has a domain.
pub(super) fn features_of_domains(members: &[Member]) -> u64 {
    if members.iter().any(|member| member.domain.is_some()) { INCOMPATIBLE_DOMAINS } else { 0 }
}

fn is_allowed(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.')
}

impl fmt::Display for DomainName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Debug for DomainName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DomainName({})", self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_short_and_plain() {
        for name in ["a", "shelf-1", "rack.2_unit7"] {
            let domain = DomainName::new(name).expect("it is a name");
            assert_eq!((domain.as_str(), domain.to_string().as_str()), (name, name));
            assert_eq!(DomainName::of_bytes(DomainName::to_bytes(Some(domain))), Ok(Some(domain)));
        }
        for name in ["", "thirteen-long", "two words", "shelf=1", "Stück", "a\0b"] {
            assert_eq!(DomainName::new(name), None, "{name:?}");
        }
        assert_eq!(DomainName::of_bytes(DomainName::to_bytes(None)), Ok(None));
        let with_gap = *b"a\0b\0\0\0\0\0\0\0\0\0";
        assert_eq!(DomainName::of_bytes(with_gap), Err(()));
    }
}
