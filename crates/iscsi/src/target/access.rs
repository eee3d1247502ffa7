//! Access control: initiators, their credentials, and the logical units they may use.
//!
//! Invariants:
//!
//! 1. Either every initiator may use every unit; or listed initiators may use listed units, and every initiator may use all
//!    units of open targets.
//! 2. Targets and LUNs an initiator may not access are hidden from it: discovery and REPORT LUNS omit them.
//! 3. No initiator shares the targets' own secret: it could answer our challenges with our own answers.

use crate::session::chap::Credentials;
use std::collections::{BTreeMap, BTreeSet};
use thiserror::Error;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessRight {
    Read,
    /// Reading and writing.
    Write,
}

/// Credentials and rights of one listed initiator.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InitiatorRights {
    /// CHAP credentials it must present. Without them its name is believed.
    pub credentials: Option<Credentials>,
    /// Rights by target name and logical unit number.
    pub units: BTreeMap<String, BTreeMap<u64, AccessRight>>,
}

/// The initiators that may log in and their rights.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessList {
    named: Option<BTreeMap<String, InitiatorRights>>,
    /// Targets that every initiator may use, if initiators are listed.
    open: BTreeSet<String>,
    own: Option<Credentials>,
}

/// An initiator was given the targets' own CHAP secret.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{initiator} has the targets' own CHAP secret; each must have a secret of its own")]
pub struct SharedSecret {
    pub initiator: String,
}

impl AccessList {
    /// Every initiator may use every unit.
    pub fn everybody() -> Self {
        Self::default()
    }

    /// Only the listed initiators may log in. `own` are the targets' credentials for mutual CHAP.
    ///
    /// # Errors
    ///
    /// An initiator shares the secret of `own`.
    pub fn only(
        named: impl IntoIterator<Item = (String, InitiatorRights)>,
        own: Option<Credentials>,
    ) -> Result<Self, SharedSecret> {
        let named: BTreeMap<String, InitiatorRights> =
            named.into_iter().map(|(name, rights)| (name.to_ascii_lowercase(), rights)).collect();
        let secret_of =
            |credentials: &Option<Credentials>| credentials.as_ref().map(|known| known.secret.clone());
        let own_secret = secret_of(&own);
        let has_ours =
            |rights: &InitiatorRights| own_secret.is_some() && secret_of(&rights.credentials) == own_secret;
        match named.iter().find(|(_, rights)| has_ours(rights)) {
            Some((initiator, _)) => Err(SharedSecret { initiator: initiator.clone() }),
            None => Ok(Self { named: Some(named), open: BTreeSet::new(), own }),
        }
    }

    /// The same list, and every initiator may use these targets.
    pub fn with_open(self, targets: impl IntoIterator<Item = String>) -> Self {
        Self { open: targets.into_iter().collect(), ..self }
    }

    /// Replaces each target name by `full_name` of it, and drops the rights on targets that have none.
    pub fn with_target_names(mut self, full_name: impl Fn(&str) -> Option<String>) -> Self {
        for rights in self.named.iter_mut().flat_map(BTreeMap::values_mut) {
            let units = std::mem::take(&mut rights.units);
            let named = units.into_iter().filter_map(|(name, units)| Some((full_name(&name)?, units)));
            rights.units = named.collect();
        }
        self.open = std::mem::take(&mut self.open).iter().filter_map(|name| full_name(name)).collect();
        self
    }

    /// The rights of all lists, which are on different targets. Credentials are those of the first list with an initiator.
    pub fn merged<'a>(lists: impl IntoIterator<Item = &'a Self>) -> Self {
        let mut merged = Self::default();
        for list in lists {
            merged.own = merged.own.or_else(|| list.own.clone());
            merged.open.extend(list.open.clone());
            let Some(named) = &list.named else { continue };
            let known = merged.named.get_or_insert_default();
            for (initiator, rights) in named {
                let entry = known.entry(initiator.clone()).or_insert_with(|| InitiatorRights {
                    credentials: rights.credentials.clone(),
                    units: BTreeMap::new(),
                });
                entry.units.extend(rights.units.clone());
            }
        }
        merged
    }

    /// The same list with more initiators, whose rights are on targets that it does not know; one that it lists keeps its credentials
    /// here. `open` are targets that every initiator may use, `own` the targets' credentials if it has none. A list of nobody in
    /// particular has all rights already.
    #[must_use]
    pub fn with_added(
        &self,
        added: impl IntoIterator<Item = (String, InitiatorRights)>,
        open: impl IntoIterator<Item = String>,
        own: Option<Credentials>,
    ) -> Self {
        let mut list = self.clone();
        let Some(named) = &mut list.named else { return list };
        for (initiator, rights) in added {
            let entry = named.entry(initiator.to_ascii_lowercase()).or_insert_with(|| InitiatorRights {
                credentials: rights.credentials.clone(),
                units: BTreeMap::new(),
            });
            for (target, units) in rights.units {
                entry.units.entry(target).or_default().extend(units);
            }
        }
        list.open.extend(open);
        let is_shared = |own: &Credentials| {
            let mut secrets = named.values().filter_map(|rights| rights.credentials.as_ref());
            secrets.any(|known| known.secret == own.secret)
        };
        list.own = list.own.or(own.filter(|own| !is_shared(own)));
        list
    }

    /// The listed initiators, in lower case, with their rights; none if every initiator may use every unit.
    pub fn listed(&self) -> impl Iterator<Item = (&str, &InitiatorRights)> {
        self.named.iter().flatten().map(|(name, rights)| (name.as_str(), rights))
    }

    /// True if every initiator may use the target.
    pub fn is_open(&self, target: &str) -> bool {
        self.named.is_none() || self.open.contains(target)
    }

    fn rights(&self, initiator: &str) -> Option<&InitiatorRights> {
        self.named.as_ref()?.get(&initiator.to_ascii_lowercase())
    }

    /// True if the initiator may log in.
    pub fn admits(&self, initiator: &str) -> bool {
        self.named.is_none() || !self.open.is_empty() || self.rights(initiator).is_some()
    }

    /// Credentials the initiator must present; `None` if its name is enough.
    pub fn credentials_of(&self, initiator: &str) -> Option<&Credentials> {
        self.rights(initiator)?.credentials.as_ref()
    }

    /// Credentials of the targets, for mutual CHAP.
    pub fn own(&self) -> Option<&Credentials> {
        self.own.as_ref()
    }

    /// The initiator's right on a unit; `None` hides the unit from it.
    pub fn right(&self, initiator: &str, target: &str, unit: u64) -> Option<AccessRight> {
        if self.named.is_none() {
            return Some(AccessRight::Write);
        }
        if self.open.contains(target) {
            return Some(AccessRight::Write);
        }
        self.rights(initiator)?.units.get(target)?.get(&unit).copied()
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
    fn only_listed_initiators_may_use_listed_units() {
        let everybody = AccessList::everybody();
        assert!(everybody.admits("iqn.x:a") && everybody.credentials_of("iqn.x:a").is_none());
        assert_eq!(everybody.right("iqn.x:a", "iqn.t", 7), Some(AccessRight::Write));
        let units = BTreeMap::from([("iqn.t".to_owned(), BTreeMap::from([(0, AccessRight::Read)]))]);
        let rights = InitiatorRights { credentials: who("a", "twelve bytes"), units };
        let access = AccessList::only([("iqn.x:A".to_owned(), rights)], None).unwrap();
        assert!(access.admits("IQN.x:a") && !access.admits("iqn.x:b"), "upper and lower case are one");
        assert_eq!(access.right("iqn.x:a", "iqn.t", 0), Some(AccessRight::Read));
        assert_eq!(access.right("iqn.x:a", "iqn.t", 1), None);
        assert_eq!(access.right("iqn.x:a", "iqn.u", 0), None);
        assert_eq!(access.right("iqn.x:b", "iqn.t", 0), None);
        assert!(!AccessList::only([], None).unwrap().admits("iqn.x:a"), "nobody");
        let open = access.with_open(["iqn.u".to_owned()]);
        assert!(open.admits("iqn.x:b") && open.credentials_of("iqn.x:a").is_some());
        assert_eq!(open.right("iqn.x:b", "iqn.u", 3), Some(AccessRight::Write));
        assert_eq!((open.right("iqn.x:b", "iqn.t", 0), open.right("iqn.x:a", "iqn.t", 1)), (None, None));
        let other = InitiatorRights {
            credentials: who("b", "another twelve"),
            units: BTreeMap::from([("iqn.v".to_owned(), BTreeMap::from([(2, AccessRight::Write)]))]),
        };
        let added = [("iqn.x:A".to_owned(), other.clone()), ("iqn.x:c".to_owned(), other.clone())];
        let more = open.with_added(added.clone(), ["iqn.w".to_owned()], who("us", "twelve bytes"));
        assert_eq!(more.credentials_of("iqn.x:a"), open.credentials_of("iqn.x:a"), "those of here");
        assert_eq!(more.credentials_of("iqn.x:c"), other.credentials.as_ref());
        assert_eq!(more.right("iqn.x:a", "iqn.v", 2), Some(AccessRight::Write));
        assert_eq!(more.right("iqn.x:a", "iqn.t", 0), Some(AccessRight::Read));
        assert!(more.is_open("iqn.w") && more.own().is_none(), "an initiator has that secret");
        assert_eq!(everybody.with_added(added, [], None), everybody);
        let merged = AccessList::merged([&open, &AccessList::everybody()]);
        assert_eq!(merged, open, "a list of no initiators adds none");
    }

    #[test]
    fn rights_of_parts_are_together_those_of_the_whole() {
        let rights = |targets: &[&str]| {
            let units = targets
                .iter()
                .map(|target| ((*target).to_owned(), BTreeMap::from([(0, AccessRight::Write)])));
            InitiatorRights { credentials: who("a", "twelve bytes"), units: units.collect() }
        };
        let own = who("us", "another secret");
        let whole = AccessList::only([("iqn.x:a".to_owned(), rights(&["one", "two"]))], own).unwrap();
        let part = |name: &'static str| {
            whole.clone().with_target_names(|target| (target == name).then(|| format!("iqn.{target}")))
        };
        let (one, two) = (part("one"), part("two"));
        assert_eq!(one.right("iqn.x:a", "iqn.one", 0), Some(AccessRight::Write));
        assert_eq!(one.right("iqn.x:a", "iqn.two", 0), None);
        assert_eq!(
            AccessList::merged([&one, &two]),
            whole.with_target_names(|target| Some(format!("iqn.{target}")))
        );
        assert!(AccessList::merged([]).admits("iqn.x:b"), "as everybody");
    }

    #[test]
    fn an_initiator_with_the_targets_secret_is_refused() {
        let rights =
            InitiatorRights { credentials: who("a", "the same secret"), ..InitiatorRights::default() };
        let shared = AccessList::only([("iqn.x:a".to_owned(), rights.clone())], who("us", "the same secret"));
        assert_eq!(shared.unwrap_err(), SharedSecret { initiator: "iqn.x:a".to_owned() });
        assert!(AccessList::only([("iqn.x:a".to_owned(), rights)], who("us", "another secret")).is_ok());
    }
}
