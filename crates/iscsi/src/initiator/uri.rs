//! URIs of logical units: `iscsi://HOST[:PORT][,HOST[:PORT]…]/TARGET/UNIT`.
//!
//! libiscsi's form with a user name and a password is refused: every user of the machine can read a command
//! line.

use crate::PORT;
use std::{fmt, str::FromStr};
use thiserror::Error;
use world::Address;

/// Longest iSCSI name (RFC 7143, 4.2.7.1).
const NAME_BYTES_MAX: usize = 223;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IscsiUri {
    /// Address of the portal.
    pub address: Address,
    /// More portals, as those of another site, for when it does not serve the unit.
    pub others: Vec<Address>,
    /// Name of the target: `iqn.2026-11.org.example:mail`.
    pub target: String,
    /// Logical unit number.
    pub unit: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{text:?} is not an iSCSI URI: {problem}; expected iscsi://HOST:PORT/TARGET/UNIT")]
pub struct IscsiUriError {
    text: String,
    problem: &'static str,
}

/// Flat space addressing has 14 bits (SAM-5, 4.7.7).
const UNITS_END: u16 = 1 << 14;

impl FromStr for IscsiUri {
    type Err = IscsiUriError;

    fn from_str(text: &str) -> Result<Self, IscsiUriError> {
        let rest = text.strip_prefix("iscsi://");
        // The part before an @ may hold a password: it is not repeated in the error.
        let has_secret = rest.is_some_and(|rest| rest.split('/').next().unwrap_or_default().contains('@'));
        let shown = if has_secret { "iscsi://…" } else { text };
        let refuse = |problem| IscsiUriError { text: shown.to_owned(), problem };
        let rest = rest.ok_or_else(|| refuse("it does not begin with iscsi://"))?;
        if has_secret {
            return Err(refuse("it must not contain a name and a secret"));
        }
        let mut parts = rest.split('/');
        let host = parts.next().unwrap_or_default();
        let target = parts.next().filter(|target| !target.is_empty());
        let target = target.ok_or_else(|| refuse("it names no target"))?;
        let unit = parts.next().ok_or_else(|| refuse("it names no unit (usually 0)"))?;
        if parts.next().is_some() {
            return Err(refuse("something follows the unit"));
        }
        let is_name = |name: &str| {
            let plain = |c: char| c.is_ascii_alphanumeric() || "-.:".contains(c) || !c.is_ascii();
            name.len() <= NAME_BYTES_MAX && name.chars().all(plain)
        };
        if !is_name(target) {
            return Err(refuse("its target is not an iSCSI name"));
        }
        let unit = unit.parse().ok().filter(|&unit: &u16| unit < UNITS_END);
        let unit = unit.ok_or_else(|| refuse("a unit is a number from 0 to 16383"))?;
        let portal = |host: &str| {
            Address::parse(host, PORT).ok().filter(|address| matches!(address, Address::Tcp { .. }))
        };
        let portals: Option<Vec<Address>> = host.split(',').map(portal).collect();
        let mut portals =
            portals.ok_or_else(|| refuse("it names no host, or its port is invalid"))?.into_iter();
        let address = portals.next().expect("a text has a first part");
        Ok(Self { address, others: portals.collect(), target: target.to_owned(), unit })
    }
}

impl fmt::Display for IscsiUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "iscsi://{}", self.address)?;
        self.others.iter().try_for_each(|other| write!(f, ",{other}"))?;
        write!(f, "/{}/{}", self.target, self.unit)
    }
}

impl IscsiUri {
    /// The LUN field (SAM-5, 4.7): peripheral device addressing below 256, flat space addressing above.
    pub fn lun(&self) -> [u8; 8] {
        let [high, low] = self.unit.to_be_bytes();
        match high {
            0 => [0, low, 0, 0, 0, 0, 0, 0],
            _ => [0x40 | high, low, 0, 0, 0, 0, 0, 0],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_parse_and_print() {
        for (text, address, target, unit, printed) in [
            ("iscsi://mail/iqn.x:t/0", "mail:3260", "iqn.x:t", 0, "iscsi://mail:3260/iqn.x:t/0"),
            ("iscsi://[::1]:1/eui.02/300", "[::1]:1", "eui.02", 300, "iscsi://[::1]:1/eui.02/300"),
        ] {
            let uri: IscsiUri = text.parse().unwrap();
            assert_eq!(
                (uri.address.to_string().as_str(), uri.target.as_str(), uri.unit),
                (address, target, unit)
            );
            assert_eq!(uri.to_string(), printed);
        }
        let two: IscsiUri = "iscsi://mail,[::1]:1/t/0".parse().unwrap();
        assert_eq!(two.others, [Address::parse("[::1]:1", 0).unwrap()]);
        assert_eq!(two.to_string(), "iscsi://mail:3260,[::1]:1/t/0");
        let lun = |unit: u16| IscsiUri { unit, ..("iscsi://h/t/0").parse().unwrap() }.lun();
        assert_eq!((lun(5)[..2].to_vec(), lun(300)[..2].to_vec()), (vec![0, 5], vec![0x41, 0x2c]));
    }

    #[test]
    fn a_malformed_uri_is_refused_without_repeating_its_secret() {
        for text in ["", "nbd://h/x/0", "iscsi://h", "iscsi://h/", "iscsi://h/t", "iscsi://h/t/x"]
            .into_iter()
            .chain(["iscsi://h/t/16384", "iscsi://h/t/0/1", "iscsi:///t/0", "iscsi://h:x/t/0"])
            .chain(["iscsi://h/a b/0", "iscsi://unix:/x/t/0", "iscsi://h,/t/0", "iscsi://,h/t/0"])
        {
            let error = text.parse::<IscsiUri>().expect_err(text).to_string();
            assert!(error.contains("expected iscsi://HOST:PORT/TARGET/UNIT"), "{error}");
        }
        let error = "iscsi://me%hidden@h/t/0".parse::<IscsiUri>().unwrap_err().to_string();
        assert!(!error.contains("hidden") && error.contains("secret"), "{error}");
    }
}
