//! Who may use a logical unit: persistent reservations (SPC-4, 5.13) and those of RESERVE(6) (SPC-2, 5.5).
//!
//! Invariants:
//!
//! 1. Who holds a persistent reservation is registered; of the types for all registrants each of them holds it.
//! 2. A reservation of RESERVE(6) and registrations exclude each other.
//! 3. The generation counts what changes registrations, and RESERVE and RELEASE do not.

use super::sense::{AdditionalSense, Sense};
use std::collections::BTreeMap;

/// Registrations at most: what a parameter list of READ KEYS has room for in 8 KiB, and more than a cluster has.
pub const REGISTRATIONS_MAX: usize = 1023;

/// An initiator and the port of ours it uses: a name no other one has.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Nexus(pub String);

/// What a registrant calls itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key(pub u64);

/// What others may not do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ReservationType {
    /// Others read.
    WriteExclusive = 1,
    /// Others do nothing.
    ExclusiveAccess = 3,
    /// Who is not registered reads.
    WriteExclusiveRegistrantsOnly = 5,
    /// Who is not registered does nothing.
    ExclusiveAccessRegistrantsOnly = 6,
    /// As registrants only, and each registrant holds it.
    WriteExclusiveAllRegistrants = 7,
    /// As registrants only, and each registrant holds it.
    ExclusiveAccessAllRegistrants = 8,
}

impl ReservationType {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::WriteExclusive,
        Self::ExclusiveAccess,
        Self::WriteExclusiveRegistrantsOnly,
        Self::ExclusiveAccessRegistrantsOnly,
        Self::WriteExclusiveAllRegistrants,
        Self::ExclusiveAccessAllRegistrants,
    ];

    /// The one of that number.
    pub fn of(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == number)
    }

    /// Each registrant holds it.
    pub fn is_for_all_registrants(self) -> bool {
        matches!(self, Self::WriteExclusiveAllRegistrants | Self::ExclusiveAccessAllRegistrants)
    }

    /// Registrants may do everything.
    pub fn spares_registrants(self) -> bool {
        !matches!(self, Self::WriteExclusive | Self::ExclusiveAccess)
    }

    /// Others may read.
    pub fn spares_reads(self) -> bool {
        matches!(
            self,
            Self::WriteExclusive | Self::WriteExclusiveRegistrantsOnly | Self::WriteExclusiveAllRegistrants
        )
    }
}

/// What a command does, as far as reservations are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// It asks about the unit: INQUIRY, REPORT LUNS, REQUEST SENSE, and the commands for reservations themselves.
    Always,
    /// It asks about the medium, which a persistent reservation does not hide: TEST UNIT READY, READ CAPACITY.
    Ask,
    /// It reads the medium.
    Read,
    /// It writes the medium, or changes the unit.
    Write,
}

/// Why something was not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// With the status RESERVATION CONFLICT.
    Conflict,
    /// With the status CHECK CONDITION.
    Check(Sense),
}

/// A persistent reservation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// What others may not do.
    pub kind: ReservationType,
    /// Who made it. Of a type for all registrants: nobody.
    pub holder: Option<Nexus>,
}

/// What others are to hear with their next command.
pub type Attentions = Vec<(Nexus, AdditionalSense)>;

/// See the module's documentation.
#[derive(Clone, Debug, Default)]
pub struct Reservations {
    generation: u32,
    registrants: BTreeMap<Nexus, Key>,
    reservation: Option<Reservation>,
    /// Of RESERVE(6).
    legacy: Option<Nexus>,
}

impl Reservations {
    /// Counts what changed registrations.
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// All who are registered, with their keys.
    pub fn registrants(&self) -> impl Iterator<Item = (&Nexus, Key)> {
        self.registrants.iter().map(|(nexus, key)| (nexus, *key))
    }

    /// The reservation there is, and the key under which it is reported: 0 if each registrant holds it.
    pub fn reservation(&self) -> Option<(Key, ReservationType)> {
        let reservation = self.reservation.as_ref()?;
        let holder = reservation.holder.as_ref();
        let key = holder.map_or(Key(0), |holder| self.registrants[holder]);
        Some((key, reservation.kind))
    }

    /// Whether `nexus` holds the reservation.
    pub fn holds(&self, nexus: &Nexus) -> bool {
        self.reservation.as_ref().is_some_and(|reservation| match &reservation.holder {
            Some(holder) => holder == nexus,
            None => self.registrants.contains_key(nexus),
        })
    }

    /// Whether `nexus` may do that.
    ///
    /// # Errors
    ///
    /// Another one has reserved the unit.
    pub fn check(&self, nexus: &Nexus, what: Use) -> Result<(), Refused> {
        if what == Use::Always {
            return Ok(());
        }
        if self.legacy.as_ref().is_some_and(|holder| holder != nexus) {
            return Err(Refused::Conflict);
        }
        let Some(Reservation { kind, .. }) = self.reservation else { return Ok(()) };
        let is_spared = self.holds(nexus)
            || (kind.spares_registrants() && self.registrants.contains_key(nexus))
            || what == Use::Ask
            || (what == Use::Read && kind.spares_reads());
        if is_spared { Ok(()) } else { Err(Refused::Conflict) }
    }

    /// REGISTER: `nexus`, known by `own` so far (0: not registered), wants to be known by `new` (0: not to be registered).
    ///
    /// # Errors
    ///
    /// It is known otherwise, or there is no room for more.
    pub fn register(&mut self, nexus: &Nexus, own: Key, new: Key) -> Result<Attentions, Refused> {
        let known = self.registrants.get(nexus).copied().unwrap_or(Key(0));
        if known != own {
            return Err(Refused::Conflict);
        }
        self.register_and_ignore(nexus, new)
    }

    /// REGISTER AND IGNORE EXISTING KEY.
    ///
    /// # Errors
    ///
    /// There is no room for more.
    pub fn register_and_ignore(&mut self, nexus: &Nexus, new: Key) -> Result<Attentions, Refused> {
        if self.legacy.is_some() {
            return Err(Refused::Conflict);
        }
        let is_registered = self.registrants.contains_key(nexus);
        let attentions = match (is_registered, new) {
            (false, Key(0)) => return Ok(Vec::new()),
            (true, Key(0)) => self.unregister(nexus),
            (false, _) if self.registrants.len() >= REGISTRATIONS_MAX => {
                return Err(Refused::Check(Sense::illegal(AdditionalSense::INSUFFICIENT_REGISTRATIONS)));
            }
            _ => {
                self.registrants.insert(nexus.clone(), new);
                Vec::new()
            }
        };
        self.changed();
        Ok(attentions)
    }

    fn unregister(&mut self, nexus: &Nexus) -> Attentions {
        let held = self.holds(nexus);
        self.registrants.remove(nexus);
        let Some(Reservation { kind, holder }) = self.reservation.clone() else { return Vec::new() };
        let is_over = held && (holder.is_some() || self.registrants.is_empty());
        if !is_over {
            return Vec::new();
        }
        self.reservation = None;
        match kind.spares_registrants() {
            true => self.others(nexus, AdditionalSense::RESERVATIONS_RELEASED),
            false => Vec::new(),
        }
    }

    /// RESERVE.
    ///
    /// # Errors
    ///
    /// Not registered by that key, or there is another reservation.
    pub fn reserve(&mut self, nexus: &Nexus, own: Key, kind: ReservationType) -> Result<(), Refused> {
        self.check_key(nexus, own)?;
        if let Some(reservation) = &self.reservation {
            let is_the_same = self.holds(nexus) && reservation.kind == kind;
            return if is_the_same { Ok(()) } else { Err(Refused::Conflict) };
        }
        self.reservation = Some(Self::reservation_of(nexus, kind));
        Ok(())
    }

    fn reservation_of(nexus: &Nexus, kind: ReservationType) -> Reservation {
        let holder = if kind.is_for_all_registrants() { None } else { Some(nexus.clone()) };
        Reservation { kind, holder }
    }

    /// RELEASE. Who holds nothing releases nothing.
    ///
    /// # Errors
    ///
    /// Not registered by that key, or the reservation is of another type.
    pub fn release(&mut self, nexus: &Nexus, own: Key, kind: ReservationType) -> Result<Attentions, Refused> {
        self.check_key(nexus, own)?;
        if !self.holds(nexus) {
            return Ok(Vec::new());
        }
        let held = self.reservation.as_ref().expect("it is held").kind;
        if held != kind {
            return Err(Refused::Check(Sense::illegal(AdditionalSense::INVALID_RELEASE)));
        }
        self.reservation = None;
        Ok(match kind.spares_registrants() {
            true => self.others(nexus, AdditionalSense::RESERVATIONS_RELEASED),
            false => Vec::new(),
        })
    }

    /// CLEAR: nobody is registered, and nothing reserved.
    ///
    /// # Errors
    ///
    /// Not registered by that key.
    pub fn clear(&mut self, nexus: &Nexus, own: Key) -> Result<Attentions, Refused> {
        self.check_key(nexus, own)?;
        let attentions = self.others(nexus, AdditionalSense::RESERVATIONS_PREEMPTED);
        self.registrants.clear();
        self.reservation = None;
        self.changed();
        Ok(attentions)
    }

    /// PREEMPT: those who are registered by `victim` no longer are; a reservation of theirs passes to `nexus`, as `kind`.
    ///
    /// # Errors
    ///
    /// Not registered by that key; nobody has the other one.
    pub fn preempt(
        &mut self,
        nexus: &Nexus,
        own: Key,
        victim: Key,
        kind: ReservationType,
    ) -> Result<Attentions, Refused> {
        self.check_key(nexus, own)?;
        let takes_over = self.reservation().is_some_and(|(key, held)| match held.is_for_all_registrants() {
            true => victim == Key(0),
            false => key == victim,
        });
        if victim == Key(0) && !takes_over {
            return Err(Refused::Check(Sense::illegal(AdditionalSense::INVALID_FIELD_IN_PARAMETER_LIST)));
        }
        let is_victim = |key: Key| victim == Key(0) || key == victim;
        if !takes_over && !self.registrants.values().any(|&key| is_victim(key)) {
            return Err(Refused::Conflict);
        }
        let before = self.reservation.as_ref().map(|reservation| reservation.kind);
        let mut attentions = Attentions::new();
        self.registrants.retain(|known, key| {
            let goes = known != nexus && is_victim(*key);
            if goes {
                attentions.push((known.clone(), AdditionalSense::REGISTRATIONS_PREEMPTED));
            }
            !goes
        });
        if !takes_over && victim == own {
            // Who names itself, and takes nothing over, is gone as well.
            self.unregister(nexus);
        }
        if takes_over {
            self.reservation = Some(Self::reservation_of(nexus, kind));
            if before != Some(kind) {
                attentions.extend(self.others(nexus, AdditionalSense::RESERVATIONS_RELEASED));
            }
        }
        self.changed();
        Ok(attentions)
    }

    /// RESERVE(6).
    ///
    /// # Errors
    ///
    /// Another one has reserved the unit, or somebody is registered.
    pub fn reserve_legacy(&mut self, nexus: &Nexus) -> Result<(), Refused> {
        let is_others = self.legacy.as_ref().is_some_and(|holder| holder != nexus);
        if is_others || !self.registrants.is_empty() {
            return Err(Refused::Conflict);
        }
        self.legacy = Some(nexus.clone());
        Ok(())
    }

    /// RELEASE(6). Who holds nothing releases nothing.
    ///
    /// # Errors
    ///
    /// Somebody is registered.
    pub fn release_legacy(&mut self, nexus: &Nexus) -> Result<(), Refused> {
        if !self.registrants.is_empty() {
            return Err(Refused::Conflict);
        }
        if self.legacy.as_ref() == Some(nexus) {
            self.legacy = None;
        }
        Ok(())
    }

    /// A reset of the unit, or the end of a session: what RESERVE(6) holds for `nexus` (or for all) is over. Persistent
    /// reservations stay.
    pub fn forget_legacy(&mut self, nexus: Option<&Nexus>) {
        if nexus.is_none() || self.legacy.as_ref() == nexus {
            self.legacy = None;
        }
    }

    fn check_key(&self, nexus: &Nexus, own: Key) -> Result<(), Refused> {
        let is_known = self.registrants.get(nexus) == Some(&own);
        if is_known { Ok(()) } else { Err(Refused::Conflict) }
    }

    /// The others who are registered are to hear of it.
    fn others(&self, nexus: &Nexus, what: AdditionalSense) -> Attentions {
        let others = self.registrants.keys().filter(|other| *other != nexus);
        others.map(|other| (other.clone(), what)).collect()
    }

    fn changed(&mut self) {
        self.generation = self.generation.wrapping_add(1);
        if let Some(Reservation { holder, .. }) = &self.reservation {
            let is_held = match holder {
                Some(holder) => self.registrants.contains_key(holder),
                None => !self.registrants.is_empty(),
            };
            assert!(is_held, "who holds a reservation is registered");
        }
        assert!(self.legacy.is_none() || self.registrants.is_empty(), "one kind of reservation at a time");
    }
}

#[cfg(test)]
mod tests {
    use super::{ReservationType::*, *};

    fn nexus(name: &str) -> Nexus {
        Nexus(name.to_owned())
    }

    /// Three initiators, registered by keys 1, 2 and 3.
    fn registered() -> (Reservations, [Nexus; 3]) {
        let mut reservations = Reservations::default();
        let all = ["a", "b", "c"].map(nexus);
        for (number, nexus) in all.iter().enumerate() {
            assert_eq!(reservations.register(nexus, Key(0), Key(number as u64 + 1)), Ok(Vec::new()));
        }
        (reservations, all)
    }

    #[test]
    fn a_key_is_needed_and_must_be_right() {
        let (mut reservations, [a, ..]) = registered();
        let stranger = nexus("x");
        assert_eq!(reservations.generation(), 3);
        assert_eq!(reservations.register(&a, Key(9), Key(5)), Err(Refused::Conflict));
        assert_eq!(reservations.register(&stranger, Key(1), Key(5)), Err(Refused::Conflict));
        assert_eq!(reservations.reserve(&stranger, Key(0), WriteExclusive), Err(Refused::Conflict));
        assert_eq!(reservations.reserve(&a, Key(2), WriteExclusive), Err(Refused::Conflict));
        assert_eq!(reservations.register(&a, Key(1), Key(5)), Ok(Vec::new()));
        assert_eq!(reservations.register_and_ignore(&stranger, Key(0)), Ok(Vec::new()));
        assert_eq!(reservations.generation(), 4, "only what changed something counts");
        assert_eq!(reservations.registrants().map(|(_, key)| key.0).collect::<Vec<_>>(), [5, 2, 3]);
    }

    #[test]
    fn each_type_keeps_out_whom_it_should() {
        for kind in ReservationType::ALL {
            let (mut reservations, [a, b, _]) = registered();
            reservations.reserve(&a, Key(1), kind).unwrap();
            let stranger = nexus("x");
            let may = |who: &Nexus, what| reservations.check(who, what).is_ok();
            assert!(may(&a, Use::Read) && may(&a, Use::Write), "{kind:?}");
            assert_eq!(may(&b, Use::Write), kind.spares_registrants(), "{kind:?}");
            assert_eq!(may(&b, Use::Read), kind.spares_registrants() || kind.spares_reads(), "{kind:?}");
            assert!(!may(&stranger, Use::Write), "{kind:?}");
            assert_eq!(may(&stranger, Use::Read), kind.spares_reads(), "{kind:?}");
            assert!(may(&stranger, Use::Ask) && may(&stranger, Use::Always), "{kind:?}");
            assert_eq!(reservations.holds(&b), kind.is_for_all_registrants());
            assert_eq!(ReservationType::of(kind as u8), Some(kind));
        }
        assert_eq!(ReservationType::of(2), None);
    }

    #[test]
    fn a_reservation_is_made_once_and_released_by_who_holds_it() {
        let (mut reservations, [a, b, c]) = registered();
        reservations.reserve(&a, Key(1), WriteExclusiveRegistrantsOnly).unwrap();
        reservations.reserve(&a, Key(1), WriteExclusiveRegistrantsOnly).expect("the same again");
        assert_eq!(reservations.reserve(&a, Key(1), ExclusiveAccess), Err(Refused::Conflict));
        assert_eq!(reservations.reserve(&b, Key(2), WriteExclusiveRegistrantsOnly), Err(Refused::Conflict));
        assert_eq!(reservations.release(&b, Key(2), WriteExclusive), Ok(Vec::new()), "it holds nothing");
        let wrong = Refused::Check(Sense::illegal(AdditionalSense::INVALID_RELEASE));
        assert_eq!(reservations.release(&a, Key(1), ExclusiveAccess), Err(wrong));
        let told = reservations.release(&a, Key(1), WriteExclusiveRegistrantsOnly).unwrap();
        let released = AdditionalSense::RESERVATIONS_RELEASED;
        assert_eq!(told, [(b, released), (c, released)]);
        assert_eq!(reservations.reservation(), None);
        assert_eq!(reservations.generation(), 3);
    }

    #[test]
    fn a_reservation_goes_with_its_holder_or_with_the_last_registrant() {
        let (mut reservations, [a, b, c]) = registered();
        reservations.reserve(&a, Key(1), ExclusiveAccess).unwrap();
        assert_eq!(reservations.register(&a, Key(1), Key(0)), Ok(Vec::new()));
        assert_eq!(reservations.reservation(), None);
        reservations.reserve(&b, Key(2), ExclusiveAccessAllRegistrants).unwrap();
        assert_eq!(reservations.reservation(), Some((Key(0), ExclusiveAccessAllRegistrants)));
        reservations.register(&b, Key(2), Key(0)).unwrap();
        assert!(reservations.holds(&c), "each registrant holds it");
        reservations.register(&c, Key(3), Key(0)).unwrap();
        assert_eq!(reservations.reservation(), None);
    }

    #[test]
    fn who_is_preempted_is_no_longer_registered_and_hears_of_it() {
        let (mut reservations, [a, b, c]) = registered();
        let gone = AdditionalSense::REGISTRATIONS_PREEMPTED;
        assert_eq!(reservations.preempt(&a, Key(1), Key(9), WriteExclusive), Err(Refused::Conflict));
        assert!(matches!(reservations.preempt(&a, Key(1), Key(0), WriteExclusive), Err(Refused::Check(_))));
        reservations.reserve(&b, Key(2), ExclusiveAccess).unwrap();
        assert_eq!(reservations.preempt(&a, Key(1), Key(3), WriteExclusive), Ok(vec![(c.clone(), gone)]));
        assert!(reservations.holds(&b), "another one's reservation stays");
        let told = reservations.preempt(&a, Key(1), Key(2), WriteExclusive).unwrap();
        assert_eq!(told, [(b.clone(), gone)]);
        assert_eq!(reservations.reservation(), Some((Key(1), WriteExclusive)));
        assert_eq!(reservations.check(&b, Use::Write), Err(Refused::Conflict));
        let (mut reservations, [a, b, c]) = registered();
        reservations.reserve(&b, Key(2), WriteExclusiveAllRegistrants).unwrap();
        let told = reservations.preempt(&a, Key(1), Key(0), ExclusiveAccess).unwrap();
        assert_eq!(told, [(b, gone), (c, gone)]);
        assert_eq!(reservations.reservation(), Some((Key(1), ExclusiveAccess)));
    }

    #[test]
    fn clearing_leaves_nothing() {
        let (mut reservations, [a, b, c]) = registered();
        reservations.reserve(&b, Key(2), ExclusiveAccess).unwrap();
        let preempted = AdditionalSense::RESERVATIONS_PREEMPTED;
        assert_eq!(reservations.clear(&a, Key(1)), Ok(vec![(b.clone(), preempted), (c, preempted)]));
        assert_eq!((reservations.registrants().count(), reservations.reservation()), (0, None));
        assert_eq!(reservations.check(&b, Use::Write), Ok(()));
    }

    #[test]
    fn old_and_persistent_reservations_exclude_each_other() {
        let (a, b) = (nexus("a"), nexus("b"));
        let mut reservations = Reservations::default();
        reservations.reserve_legacy(&a).unwrap();
        reservations.reserve_legacy(&a).expect("the same again");
        assert_eq!(reservations.reserve_legacy(&b), Err(Refused::Conflict));
        for what in [Use::Ask, Use::Read, Use::Write] {
            assert_eq!(reservations.check(&b, what), Err(Refused::Conflict));
            assert_eq!(reservations.check(&a, what), Ok(()));
        }
        assert_eq!(reservations.check(&b, Use::Always), Ok(()));
        assert_eq!(reservations.register(&b, Key(0), Key(1)), Err(Refused::Conflict));
        reservations.release_legacy(&b).expect("it holds nothing");
        assert_eq!(reservations.check(&b, Use::Read), Err(Refused::Conflict));
        reservations.release_legacy(&a).unwrap();
        reservations.register(&b, Key(0), Key(1)).unwrap();
        assert_eq!(reservations.reserve_legacy(&a), Err(Refused::Conflict));
        let mut reservations = Reservations::default();
        reservations.reserve_legacy(&a).unwrap();
        reservations.forget_legacy(Some(&b));
        assert_eq!(reservations.check(&b, Use::Read), Err(Refused::Conflict));
        reservations.forget_legacy(None);
        assert_eq!(reservations.check(&b, Use::Read), Ok(()));
    }

    #[test]
    fn whatever_is_asked_whoever_holds_it_is_registered() {
        for seed in 0..200 {
            let mut random = world::Random::new(seed, "reservations");
            let mut reservations = Reservations::default();
            let all = ["a", "b", "c", "d"].map(nexus);
            for _ in 0..100 {
                let who = &all[random.below(4) as usize];
                let known = reservations.registrants().find(|(nexus, _)| *nexus == who).map(|(_, key)| key);
                let own = if random.percent(90.0) { known.unwrap_or(Key(0)) } else { Key(random.below(4)) };
                let other = Key(random.below(4));
                let kind = ReservationType::ALL[random.below(6) as usize];
                let before = reservations.clone();
                let done = match random.below(8) {
                    0 | 1 => reservations.register(who, own, other).map(drop),
                    2 => reservations.register_and_ignore(who, other).map(drop),
                    3 => reservations.reserve(who, own, kind),
                    4 => reservations.release(who, own, kind).map(drop),
                    5 => reservations.preempt(who, own, other, kind).map(drop),
                    6 => reservations.clear(who, own).map(drop),
                    _ => reservations.reserve_legacy(who).and_then(|()| reservations.release_legacy(who)),
                };
                if done.is_err() {
                    assert_eq!(
                        reservations.registrants, before.registrants,
                        "what is refused changes nothing"
                    );
                    assert_eq!(reservations.reservation, before.reservation);
                }
                if reservations.reservation.is_some() {
                    assert!(all.iter().any(|nexus| reservations.holds(nexus)), "seed {seed}");
                }
                let writers =
                    all.iter().filter(|nexus| reservations.check(nexus, Use::Write).is_ok()).count();
                assert!(writers > 0, "seed {seed}: somebody may always write");
            }
        }
    }
}
