//! The initiators that use units. An exclusive unit serves one initiator name at a time: two hosts that mount one filesystem
//! destroy it. [The decision](../../../../docs/decisions/2026-11-26-one-initiator-a-unit.md) gives the reasons.
//!
//! Invariants:
//!
//! 1. A session holds all units of its target that its initiator may use, from before its last login response until its last
//!    command is done, whether they are exclusive then or not: they may become it.
//! 2. While an initiator holds an exclusive unit, none with another name logs in to a target with that unit. Its own further
//!    sessions are never refused. Units are known by their identity, names without their case.
//! 3. After a logout, or a silence that ended the session, the hold is gone. After a session that broke it is kept for
//!    [`UNIT_KEPT`], so that no other host slips in while this one logs in again. So a host that crashed holds nothing for ever.
//! 4. Nothing is kept for an initiator that holds it by another session: when that one logs out, the units are free.

use crate::scsi::{identity::UnitIdentity, unit::AccessibleUnit};
use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
    fmt,
    rc::Rc,
    time::Duration,
};
use thiserror::Error;
use world::{Moment, WallTime, World};

/// Initiators log in again within seconds; open-iscsi tries every two to three.
pub const UNIT_KEPT: Duration = Duration::from_secs(30);

/// A login to a target with an exclusive unit that another initiator holds.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub struct UnitConflict {
    /// The initiator that was refused.
    pub initiator: String,
    pub target: String,
    /// Logical unit number.
    pub unit: u64,
    /// The initiator that holds the unit.
    pub holder: String,
    /// Its address.
    pub holder_peer: String,
    pub since: WallTime,
    pub held_for: Duration,
    /// Its session broke; the unit is kept for it so much longer.
    pub kept_for: Option<Duration>,
}

impl fmt::Display for UnitConflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { initiator, target, unit, holder, holder_peer, .. } = self;
        write!(f, "{initiator} was refused: LUN {unit} of {target} is ")?;
        match self.kept_for {
            None => {
                write!(f, "used by {holder} ({holder_peer}) for {}", span(self.held_for))?;
            }
            Some(left) => {
                let left = span(left);
                write!(f, "kept {left} more for {holder} ({holder_peer}), whose session broke")?;
            }
        }
        f.write_str("; log that one out, or set shared = true if both may use it")
    }
}

/// A time span for people.
fn span(span: Duration) -> String {
    match span.as_secs() {
        s @ 0..120 => format!("{s} s"),
        s @ 120..7200 => format!("{} min", s / 60),
        s @ 7200..172_800 => format!("{} h", s / 3600),
        s => format!("{} days", s / 86_400),
    }
}

#[derive(Default)]
pub(super) struct UnitHolders {
    /// By the number of the session.
    holds: RefCell<BTreeMap<u64, Hold>>,
    next: Cell<u64>,
}

struct Hold {
    initiator: String,
    peer: String,
    units: BTreeSet<UnitIdentity>,
    since: WallTime,
    began: Moment,
    /// Set once the session has broken.
    kept_until: Option<Moment>,
}

impl Hold {
    fn is_of(&self, initiator: &str) -> bool {
        self.initiator.eq_ignore_ascii_case(initiator)
    }
}

/// The units of one session. They are released when this is dropped, unless they are kept.
pub(super) struct HeldUnits {
    world: World,
    holders: Rc<UnitHolders>,
    session: u64,
}

impl UnitHolders {
    /// Holds `units` for a new session of `initiator` to `target`.
    ///
    /// # Errors
    ///
    /// Another initiator holds an exclusive one of them. Nothing is held then.
    pub fn hold(
        self: &Rc<Self>,
        world: &World,
        (initiator, peer): (&str, &str),
        target: &str,
        units: &BTreeMap<u64, AccessibleUnit>,
    ) -> Result<HeldUnits, Box<UnitConflict>> {
        let now = world.now();
        let mut holds = self.holds.borrow_mut();
        holds.retain(|_, hold| hold.kept_until.is_none_or(|until| until > now));
        for (&unit, reached) in units.iter().filter(|(_, reached)| reached.unit.is_exclusive()) {
            let identity = reached.unit.identity();
            let holding = || holds.values().filter(|hold| hold.units.contains(&identity));
            if holding().any(|hold| hold.is_of(initiator)) {
                continue;
            }
            if let Some(hold) = holding().next() {
                return Err(Box::new(UnitConflict {
                    initiator: initiator.to_owned(),
                    target: target.to_owned(),
                    unit,
                    holder: hold.initiator.clone(),
                    holder_peer: hold.peer.clone(),
                    since: hold.since,
                    held_for: now.since(hold.began),
                    kept_for: hold.kept_until.map(|until| until.since(now)),
                }));
            }
        }
        let session = self.next.get();
        self.next.set(session + 1);
        let units: BTreeSet<_> = units.values().map(|reached| reached.unit.identity()).collect();
        holds.retain(|_, hold| {
            hold.kept_until.is_none() || !hold.is_of(initiator) || !hold.units.is_subset(&units)
        });
        let hold = Hold {
            initiator: initiator.to_owned(),
            peer: peer.to_owned(),
            units,
            since: world.wall(),
            began: now,
            kept_until: None,
        };
        holds.insert(session, hold);
        Ok(HeldUnits { world: world.clone(), holders: Rc::clone(self), session })
    }
}

impl UnitHolders {
    /// Adds units to the hold of a session: those that no other initiator has. Returns these.
    pub fn extend(
        &self,
        session: u64,
        mut units: BTreeMap<u64, AccessibleUnit>,
    ) -> BTreeMap<u64, AccessibleUnit> {
        let mut holds = self.holds.borrow_mut();
        let Some(own) = holds.get(&session).map(|hold| hold.initiator.clone()) else {
            return BTreeMap::new();
        };
        units.retain(|_, reached| {
            let identity = reached.unit.identity();
            let is_held = holds.values().any(|hold| hold.units.contains(&identity) && !hold.is_of(&own));
            !reached.unit.is_exclusive() || !is_held
        });
        let hold = holds.get_mut(&session).expect("it was there");
        hold.units.extend(units.values().map(|reached| reached.unit.identity()));
        units
    }
}

impl HeldUnits {
    /// Number of the session's hold.
    pub fn session(&self) -> u64 {
        self.session
    }

    /// The session broke: keeps the units for its initiator for a while.
    pub fn keep(self) {
        let mut holds = self.holders.holds.borrow_mut();
        let Some(mut hold) = holds.remove(&self.session) else { return };
        let holds_them = |other: &Hold| {
            other.kept_until.is_none() && other.is_of(&hold.initiator) && hold.units.is_subset(&other.units)
        };
        if !holds.values().any(holds_them) {
            hold.kept_until = Some(self.world.now() + UNIT_KEPT);
            holds.insert(self.session, hold);
        }
    }
}

impl Drop for HeldUnits {
    fn drop(&mut self) {
        let mut holds = self.holders.holds.borrow_mut();
        if holds.get(&self.session).is_some_and(|hold| hold.kept_until.is_none()) {
            holds.remove(&self.session);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_conflict_says_who_has_the_unit_and_what_to_do() {
        let conflict = UnitConflict {
            initiator: "iqn.host:b".into(),
            target: "iqn.array:mail".into(),
            unit: 3,
            holder: "iqn.host:a".into(),
            holder_peer: "10.0.0.7:4711".into(),
            since: WallTime::default(),
            held_for: Duration::from_secs(754),
            kept_for: None,
        };
        assert_eq!(
            conflict.to_string(),
            "iqn.host:b was refused: LUN 3 of iqn.array:mail is used by iqn.host:a (10.0.0.7:4711) for 12 min; log \
             that one out, or set shared = true if both may use it"
        );
        let kept = UnitConflict { kept_for: Some(Duration::from_secs(12)), ..conflict };
        let said = kept.to_string();
        assert!(
            said.contains("is kept 12 s more for iqn.host:a (10.0.0.7:4711), whose session broke; "),
            "{said}"
        );
    }

    #[test]
    fn spans_are_rounded_down() {
        let spans = [0, 119, 120, 7199, 7200, 172_799, 172_800].map(|s| span(Duration::from_secs(s)));
        assert_eq!(spans, ["0 s", "119 s", "2 min", "119 min", "2 h", "47 h", "2 days"]);
    }
}
