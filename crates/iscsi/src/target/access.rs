//! Who may use what: initiators, the secrets that show who they are, the units there are for them.
//!
//! Invariants:
//!
//! 1. Either everybody may use everything, or only who is named may use anything.
//! 2. What an initiator may not use is not there for it: neither targets nor units are told to it.
//! 3. No initiator has the secret by which we show who we are: it could answer our challenges with our own answers.

use crate::session::chap::Credentials;
use std::collections::BTreeMap;
use thiserror::Error;

/// What may be done with a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// It is read.
    Read,
    /// It is read and written.
    Write,
}

/// An initiator that is named.
#[derive(Clone, Debug, Default)]
pub struct Admitted {
    /// How it shows who it is; none: its name is believed.
    pub credentials: Option<Credentials>,
    /// Units it may use, by the name of their target and their number.
    pub units: BTreeMap<String, BTreeMap<u64, Right>>,
}

/// See the module's documentation.
#[derive(Clone, Debug, Default)]
pub struct Access {
    named: Option<BTreeMap<String, Admitted>>,
    own: Option<Credentials>,
}

/// An initiator has the secret by which we show who we are.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{initiator} has the secret by which the targets show who they are; each must have its own")]
pub struct SharedSecret {
    /// Which one.
    pub initiator: String,
}

impl Access {
    /// Everybody may use everything.
    pub fn everybody() -> Self {
        Self::default()
    }

    /// Only those that are named; with `own` we show who we are to those that ask, and show themselves.
    ///
    /// # Errors
    ///
    /// One of them has our secret.
    pub fn only(
        named: impl IntoIterator<Item = (String, Admitted)>,
        own: Option<Credentials>,
    ) -> Result<Self, SharedSecret> {
        let named: BTreeMap<String, Admitted> =
            named.into_iter().map(|(name, admitted)| (name.to_ascii_lowercase(), admitted)).collect();
        let secret_of =
            |credentials: &Option<Credentials>| credentials.as_ref().map(|known| known.secret.clone());
        let own_secret = secret_of(&own);
        let has_ours =
            |admitted: &Admitted| own_secret.is_some() && secret_of(&admitted.credentials) == own_secret;
        match named.iter().find(|(_, admitted)| has_ours(admitted)) {
            Some((initiator, _)) => Err(SharedSecret { initiator: initiator.clone() }),
            None => Ok(Self { named: Some(named), own }),
        }
    }

    /// The same, for targets under the names that `full_name` makes of those said so far.
    pub fn with_target_names(mut self, full_name: impl Fn(&str) -> String) -> Self {
        for admitted in self.named.iter_mut().flat_map(BTreeMap::values_mut) {
            let units = std::mem::take(&mut admitted.units);
            admitted.units = units.into_iter().map(|(name, units)| (full_name(&name), units)).collect();
        }
        self
    }

    fn admitted(&self, initiator: &str) -> Option<&Admitted> {
        self.named.as_ref()?.get(&initiator.to_ascii_lowercase())
    }

    /// Whether that initiator may log in at all.
    pub fn admits(&self, initiator: &str) -> bool {
        self.named.is_none() || self.admitted(initiator).is_some()
    }

    /// How that initiator has to show who it is.
    pub fn credentials_of(&self, initiator: &str) -> Option<&Credentials> {
        self.admitted(initiator)?.credentials.as_ref()
    }

    /// How we show who we are.
    pub fn own(&self) -> Option<&Credentials> {
        self.own.as_ref()
    }

    /// What that initiator may do with a unit; none: for it the unit is not there.
    pub fn right(&self, initiator: &str, target: &str, unit: u64) -> Option<Right> {
        if self.named.is_none() {
            return Some(Right::Write);
        }
        self.admitted(initiator)?.units.get(target)?.get(&unit).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::chap::Secret;

    fn who(name: &str, secret: &str) -> Option<Credentials> {
        Some(Credentials { name: name.to_owned(), secret: Secret::new(secret).unwrap() })
    }

    #[test]
    fn only_who_is_named_may_use_what_is_named() {
        let everybody = Access::everybody();
        assert!(everybody.admits("iqn.x:a") && everybody.credentials_of("iqn.x:a").is_none());
        assert_eq!(everybody.right("iqn.x:a", "iqn.t", 7), Some(Right::Write));
        let units = BTreeMap::from([("iqn.t".to_owned(), BTreeMap::from([(0, Right::Read)]))]);
        let admitted = Admitted { credentials: who("a", "twelve bytes"), units };
        let access = Access::only([("iqn.x:A".to_owned(), admitted)], None).unwrap();
        assert!(access.admits("IQN.x:a") && !access.admits("iqn.x:b"), "upper and lower case are one");
        assert_eq!(access.right("iqn.x:a", "iqn.t", 0), Some(Right::Read));
        assert_eq!(access.right("iqn.x:a", "iqn.t", 1), None);
        assert_eq!(access.right("iqn.x:a", "iqn.u", 0), None);
        assert_eq!(access.right("iqn.x:b", "iqn.t", 0), None);
        assert!(!Access::only([], None).unwrap().admits("iqn.x:a"), "nobody");
    }

    #[test]
    fn nobody_has_our_secret() {
        let admitted = Admitted { credentials: who("a", "the same secret"), ..Admitted::default() };
        let shared = Access::only([("iqn.x:a".to_owned(), admitted.clone())], who("us", "the same secret"));
        assert_eq!(shared.unwrap_err(), SharedSecret { initiator: "iqn.x:a".to_owned() });
        assert!(Access::only([("iqn.x:a".to_owned(), admitted)], who("us", "another secret")).is_ok());
    }
}
