//! Sessions that follow a change of targets and rights.

use super::{Targets, connection::Connection};
use crate::{
    scsi::{sense::AdditionalSense, unit::AccessibleUnit},
    session::login::LoginPolicy,
};
use std::{collections::BTreeMap, rc::Rc};

impl Connection {
    /// Follows a change of targets and rights: units that the initiator has gained are announced. False if it has lost any, or
    /// a right: then the session must end.
    pub(super) fn follow(&self, targets: &Targets) -> bool {
        let target = LoginPolicy::target(targets, &self.target_name, &self.initiator);
        let mut now = match &target {
            Some(target) => targets.units_of(target, &self.initiator),
            None => BTreeMap::new(),
        };
        let reach = targets.units_in_reach(&self.initiator, target.as_ref());
        let before = self.units();
        let keeps = |before: &AccessibleUnit, now: &AccessibleUnit| {
            Rc::ptr_eq(&before.unit, &now.unit) && now.may_write >= before.may_write
        };
        let keeps_unit =
            |(number, unit): (&u64, &AccessibleUnit)| now.get(number).is_some_and(|now| keeps(unit, now));
        let keeps_reach = |unit: &AccessibleUnit| reach.iter().any(|now| keeps(unit, now));
        if !before.iter().all(keeps_unit) || !self.reach.iter().all(keeps_reach) {
            self.has_lost_rights.set(true);
            return false;
        }
        now.retain(|number, _| !before.contains_key(number));
        let gained = targets.sessions.holders.extend(self.hold, now);
        if !gained.is_empty() {
            gained.values().for_each(|gained| gained.unit.begin_session(&self.nexus));
            let all = before.iter().map(|(number, unit)| (*number, unit.clone())).chain(gained).collect();
            self.units.replace(Rc::new(all));
            let told = before.values().map(|known| &known.unit);
            told.for_each(|unit| unit.raise_attention(&self.nexus, AdditionalSense::REPORTED_LUNS_CHANGED));
        }
        true
    }
}
