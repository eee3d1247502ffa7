//! Reservations of a logical unit: persistent (SPC-4, 5.13) and by RESERVE(6) (SPC-2, 5.5).
//!
//! Invariants:
//!
//! 1. The holder of a persistent reservation is registered; with an all registrants type every registrant
//!    holds it.
//! 2. A RESERVE(6) reservation and registrations exclude each other.
//! 3. PRGENERATION counts changes of registrations; RESERVE and RELEASE do not change it.

use super::sense::{AdditionalSense, Sense};
use std::collections::BTreeMap;

/// Most registrations: their keys fit into an 8 KiB READ KEYS list.
pub const REGISTRATIONS_MAX: usize = 1023;

/// An I_T nexus, named by initiator port and session (SAM-5).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Nexus(pub String);

impl Nexus {
    /// Name of the initiator.
    pub fn initiator(&self) -> &str {
        self.0.rsplit_once(",i,0x").map_or(&self.0, |(initiator, _)| initiator)
    }
}

/// RESERVATION KEY.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReservationKey(pub u64);

/// Persistent reservation type: the access it denies to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ReservationType {
    /// Others may read.
    WriteExclusive = 1,
    /// Others have no access.
    ExclusiveAccess = 3,
    /// Unregistered initiators may read.
    WriteExclusiveRegistrantsOnly = 5,
    /// Unregistered initiators have no access.
    ExclusiveAccessRegistrantsOnly = 6,
    /// As registrants only; every registrant holds the reservation.
    WriteExclusiveAllRegistrants = 7,
    /// As registrants only; every registrant holds the reservation.
    ExclusiveAccessAllRegistrants = 8,
}

impl ReservationType {
    pub const ALL: [Self; 6] = [
        Self::WriteExclusive,
        Self::ExclusiveAccess,
        Self::WriteExclusiveRegistrantsOnly,
        Self::ExclusiveAccessRegistrantsOnly,
        Self::WriteExclusiveAllRegistrants,
        Self::ExclusiveAccessAllRegistrants,
    ];

    /// The type with that code; `None` if it is reserved or obsolete.
    pub fn of(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == number)
    }

    pub fn is_for_all_registrants(self) -> bool {
        matches!(self, Self::WriteExclusiveAllRegistrants | Self::ExclusiveAccessAllRegistrants)
    }

    /// Registrants have full access.
    pub fn permits_registrants(self) -> bool {
        !matches!(self, Self::WriteExclusive | Self::ExclusiveAccess)
    }

    /// Initiators without access to write may read.
    pub fn permits_reads(self) -> bool {
        matches!(
            self,
            Self::WriteExclusive | Self::WriteExclusiveRegistrantsOnly | Self::WriteExclusiveAllRegistrants
        )
    }
}

/// Access class of a command: reservations deny it or not (SPC-4, table 66; SBC-3, table 15).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandAccess {
    /// Never denied: INQUIRY, REPORT LUNS, REQUEST SENSE, and the reservation commands.
    Unrestricted,
    /// Denied only by RESERVE(6): TEST UNIT READY, READ CAPACITY.
    Inquire,
    /// Reads the medium.
    Read,
    /// Writes the medium or changes the unit.
    Write,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReservationError {
    /// RESERVATION CONFLICT status.
    Conflict,
    /// CHECK CONDITION status.
    Check(Sense),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reservation {
    pub kind: ReservationType,
    /// `None` for an all registrants type.
    pub holder: Option<Nexus>,
}

/// Unit attentions to establish for other nexuses.
pub type UnitAttentions = Vec<(Nexus, AdditionalSense)>;

#[derive(Clone, Debug, Default)]
pub struct Reservations {
    generation: u32,
    registrants: BTreeMap<Nexus, ReservationKey>,
    reservation: Option<Reservation>,
    /// Holder of the RESERVE(6) reservation.
    legacy: Option<Nexus>,
}

impl Reservations {
    /// PRGENERATION.
    pub fn generation(&self) -> u32 {
        self.generation
    }

    pub fn registrants(&self) -> impl Iterator<Item = (&Nexus, ReservationKey)> {
        self.registrants.iter().map(|(nexus, key)| (nexus, *key))
    }

    /// The reservation and the key reported for it: 0 for an all registrants type.
    pub fn reservation(&self) -> Option<(ReservationKey, ReservationType)> {
        let reservation = self.reservation.as_ref()?;
        let holder = reservation.holder.as_ref();
        let key = holder.map_or(ReservationKey(0), |holder| self.registrants[holder]);
        Some((key, reservation.kind))
    }

    pub fn holds(&self, nexus: &Nexus) -> bool {
        self.reservation.as_ref().is_some_and(|reservation| match &reservation.holder {
            Some(holder) => holder == nexus,
            None => self.registrants.contains_key(nexus),
        })
    }

    /// Checks if a reservation denies the access.
    ///
    /// # Errors
    ///
    /// RESERVATION CONFLICT.
    pub fn check(&self, nexus: &Nexus, what: CommandAccess) -> Result<(), ReservationError> {
        if what == CommandAccess::Unrestricted {
            return Ok(());
        }
        if self.legacy.as_ref().is_some_and(|holder| holder != nexus) {
            return Err(ReservationError::Conflict);
        }
        let Some(Reservation { kind, .. }) = self.reservation else { return Ok(()) };
        let is_permitted = self.holds(nexus)
            || (kind.permits_registrants() && self.registrants.contains_key(nexus))
            || what == CommandAccess::Inquire
            || (what == CommandAccess::Read && kind.permits_reads());
        if is_permitted { Ok(()) } else { Err(ReservationError::Conflict) }
    }

    /// REGISTER: changes the key of `nexus` from `own` (0: not registered) to `new` (0: unregister).
    ///
    /// # Errors
    ///
    /// `own` is not the registered key, or there are too many registrations.
    pub fn register(
        &mut self,
        nexus: &Nexus,
        own: ReservationKey,
        new: ReservationKey,
    ) -> Result<UnitAttentions, ReservationError> {
        let known = self.registrants.get(nexus).copied().unwrap_or(ReservationKey(0));
        if known != own {
            return Err(ReservationError::Conflict);
        }
        self.register_and_ignore(nexus, new)
    }

    /// REGISTER AND IGNORE EXISTING KEY.
    ///
    /// # Errors
    ///
    /// There are too many registrations, or RESERVE(6) holds the unit.
    pub fn register_and_ignore(
        &mut self,
        nexus: &Nexus,
        new: ReservationKey,
    ) -> Result<UnitAttentions, ReservationError> {
        if self.legacy.is_some() {
            return Err(ReservationError::Conflict);
        }
        let is_registered = self.registrants.contains_key(nexus);
        let attentions = match (is_registered, new) {
            (false, ReservationKey(0)) => return Ok(Vec::new()),
            (true, ReservationKey(0)) => self.unregister(nexus),
            (false, _) if self.registrants.len() >= REGISTRATIONS_MAX => {
                return Err(ReservationError::Check(Sense::illegal(
                    AdditionalSense::INSUFFICIENT_REGISTRATIONS,
                )));
            }
            _ => {
                self.registrants.insert(nexus.clone(), new);
                Vec::new()
            }
        };
        self.changed();
        Ok(attentions)
    }

    fn unregister(&mut self, nexus: &Nexus) -> UnitAttentions {
        let held = self.holds(nexus);
        self.registrants.remove(nexus);
        let Some(Reservation { kind, holder }) = self.reservation.clone() else { return Vec::new() };
        let is_over = held && (holder.is_some() || self.registrants.is_empty());
        if !is_over {
            return Vec::new();
        }
        self.reservation = None;
        if kind.permits_registrants() {
            self.others(nexus, AdditionalSense::RESERVATIONS_RELEASED)
        } else {
            Vec::new()
        }
    }

    /// RESERVE.
    ///
    /// # Errors
    ///
    /// `own` is not the registered key, or there is another reservation.
    pub fn reserve(
        &mut self,
        nexus: &Nexus,
        own: ReservationKey,
        kind: ReservationType,
    ) -> Result<(), ReservationError> {
        self.check_key(nexus, own)?;
        if let Some(reservation) = &self.reservation {
            let is_the_same = self.holds(nexus) && reservation.kind == kind;
            return if is_the_same { Ok(()) } else { Err(ReservationError::Conflict) };
        }
        self.reservation = Some(Self::reservation_of(nexus, kind));
        Ok(())
    }

    fn reservation_of(nexus: &Nexus, kind: ReservationType) -> Reservation {
        let holder = if kind.is_for_all_registrants() { None } else { Some(nexus.clone()) };
        Reservation { kind, holder }
    }

    /// RELEASE. Succeeds without effect if `nexus` is not the holder.
    ///
    /// # Errors
    ///
    /// `own` is not the registered key, or the reservation has another type.
    pub fn release(
        &mut self,
        nexus: &Nexus,
        own: ReservationKey,
        kind: ReservationType,
    ) -> Result<UnitAttentions, ReservationError> {
        self.check_key(nexus, own)?;
        if !self.holds(nexus) {
            return Ok(Vec::new());
        }
        let held = self.reservation.as_ref().expect("it is held").kind;
        if held != kind {
            return Err(ReservationError::Check(Sense::illegal(AdditionalSense::INVALID_RELEASE)));
        }
        self.reservation = None;
        Ok(if kind.permits_registrants() {
            self.others(nexus, AdditionalSense::RESERVATIONS_RELEASED)
        } else {
            Vec::new()
        })
    }

    /// CLEAR: removes all registrations and the reservation.
    ///
    /// # Errors
    ///
    /// `own` is not the registered key.
    pub fn clear(&mut self, nexus: &Nexus, own: ReservationKey) -> Result<UnitAttentions, ReservationError> {
        self.check_key(nexus, own)?;
        let attentions = self.others(nexus, AdditionalSense::RESERVATIONS_PREEMPTED);
        self.registrants.clear();
        self.reservation = None;
        self.changed();
        Ok(attentions)
    }

    /// PREEMPT: removes the registrations with key `victim`; a reservation of theirs passes to `nexus` with
    /// type `kind`.
    ///
    /// # Errors
    ///
    /// `own` is not the registered key; no registration has key `victim`.
    pub fn preempt(
        &mut self,
        nexus: &Nexus,
        own: ReservationKey,
        victim: ReservationKey,
        kind: ReservationType,
    ) -> Result<UnitAttentions, ReservationError> {
        self.check_key(nexus, own)?;
        let takes_over = self.reservation().is_some_and(|(key, held)| {
            if held.is_for_all_registrants() { victim == ReservationKey(0) } else { key == victim }
        });
        if victim == ReservationKey(0) && !takes_over {
            return Err(ReservationError::Check(Sense::illegal(
                AdditionalSense::INVALID_FIELD_IN_PARAMETER_LIST,
            )));
        }
        let is_victim = |key: ReservationKey| victim == ReservationKey(0) || key == victim;
        if !takes_over && !self.registrants.values().any(|&key| is_victim(key)) {
            return Err(ReservationError::Conflict);
        }
        let before = self.reservation.as_ref().map(|reservation| reservation.kind);
        let mut attentions = UnitAttentions::new();
        self.registrants.retain(|known, key| {
            let goes = known != nexus && is_victim(*key);
            if goes {
                attentions.push((known.clone(), AdditionalSense::REGISTRATIONS_PREEMPTED));
            }
            !goes
        });
        if !takes_over && victim == own {
            // A nexus that names its own key without preempting the reservation removes itself.
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
    /// Another nexus has reserved the unit, or there are registrations.
    pub fn reserve_legacy(&mut self, nexus: &Nexus) -> Result<(), ReservationError> {
        let is_others = self.legacy.as_ref().is_some_and(|holder| holder != nexus);
        if is_others || !self.registrants.is_empty() {
            return Err(ReservationError::Conflict);
        }
        self.legacy = Some(nexus.clone());
        Ok(())
    }

    /// RELEASE(6). Succeeds without effect if `nexus` is not the holder.
    ///
    /// # Errors
    ///
    /// There are registrations.
    pub fn release_legacy(&mut self, nexus: &Nexus) -> Result<(), ReservationError> {
        if !self.registrants.is_empty() {
            return Err(ReservationError::Conflict);
        }
        if self.legacy.as_ref() == Some(nexus) {
            self.legacy = None;
        }
        Ok(())
    }

    /// Releases the RESERVE(6) reservation of `nexus`, or any if `None`: at the end of a session and at a
    /// reset. Persistent reservations remain.
    pub fn drop_legacy(&mut self, nexus: Option<&Nexus>) {
        if nexus.is_none() || self.legacy.as_ref() == nexus {
            self.legacy = None;
        }
    }

    fn check_key(&self, nexus: &Nexus, own: ReservationKey) -> Result<(), ReservationError> {
        let is_known = self.registrants.get(nexus) == Some(&own);
        if is_known { Ok(()) } else { Err(ReservationError::Conflict) }
    }

    /// Establishes `what` for every other registrant.
    fn others(&self, nexus: &Nexus, what: AdditionalSense) -> UnitAttentions {
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

    /// Three initiators, registered with keys 1, 2 and 3.
    fn registered() -> (Reservations, [Nexus; 3]) {
        let mut reservations = Reservations::default();
        let all = ["a", "b", "c"].map(nexus);
        for (number, nexus) in all.iter().enumerate() {
            assert_eq!(
                reservations.register(nexus, ReservationKey(0), ReservationKey(number as u64 + 1)),
                Ok(Vec::new())
            );
        }
        (reservations, all)
    }

    #[test]
    fn a_reservation_needs_the_registered_key() {
        let (mut reservations, [a, ..]) = registered();
        let stranger = nexus("x");
        assert_eq!(reservations.generation(), 3);
        assert_eq!(
            reservations.register(&a, ReservationKey(9), ReservationKey(5)),
            Err(ReservationError::Conflict)
        );
        assert_eq!(
            reservations.register(&stranger, ReservationKey(1), ReservationKey(5)),
            Err(ReservationError::Conflict)
        );
        assert_eq!(
            reservations.reserve(&stranger, ReservationKey(0), WriteExclusive),
            Err(ReservationError::Conflict)
        );
        assert_eq!(
            reservations.reserve(&a, ReservationKey(2), WriteExclusive),
            Err(ReservationError::Conflict)
        );
        assert_eq!(reservations.register(&a, ReservationKey(1), ReservationKey(5)), Ok(Vec::new()));
        assert_eq!(reservations.register_and_ignore(&stranger, ReservationKey(0)), Ok(Vec::new()));
        assert_eq!(reservations.generation(), 4, "only what changed something counts");
        assert_eq!(reservations.registrants().map(|(_, key)| key.0).collect::<Vec<_>>(), [5, 2, 3]);
    }

    #[test]
    fn each_reservation_type_denies_the_right_accesses() {
        for kind in ReservationType::ALL {
            let (mut reservations, [a, b, _]) = registered();
            reservations.reserve(&a, ReservationKey(1), kind).unwrap();
            let stranger = nexus("x");
            let may = |who: &Nexus, what| reservations.check(who, what).is_ok();
            assert!(may(&a, CommandAccess::Read) && may(&a, CommandAccess::Write), "{kind:?}");
            assert_eq!(may(&b, CommandAccess::Write), kind.permits_registrants(), "{kind:?}");
            assert_eq!(
                may(&b, CommandAccess::Read),
                kind.permits_registrants() || kind.permits_reads(),
                "{kind:?}"
            );
            assert!(!may(&stranger, CommandAccess::Write), "{kind:?}");
            assert_eq!(may(&stranger, CommandAccess::Read), kind.permits_reads(), "{kind:?}");
            assert!(
                may(&stranger, CommandAccess::Inquire) && may(&stranger, CommandAccess::Unrestricted),
                "{kind:?}"
            );
            assert_eq!(reservations.holds(&b), kind.is_for_all_registrants());
            assert_eq!(ReservationType::of(kind as u8), Some(kind));
        }
        assert_eq!(ReservationType::of(2), None);
    }

    #[test]
    fn only_the_holder_releases_a_reservation() {
        let (mut reservations, [a, b, c]) = registered();
        reservations.reserve(&a, ReservationKey(1), WriteExclusiveRegistrantsOnly).unwrap();
        reservations.reserve(&a, ReservationKey(1), WriteExclusiveRegistrantsOnly).expect("the same again");
        assert_eq!(
            reservations.reserve(&a, ReservationKey(1), ExclusiveAccess),
            Err(ReservationError::Conflict)
        );
        assert_eq!(
            reservations.reserve(&b, ReservationKey(2), WriteExclusiveRegistrantsOnly),
            Err(ReservationError::Conflict)
        );
        assert_eq!(
            reservations.release(&b, ReservationKey(2), WriteExclusive),
            Ok(Vec::new()),
            "it holds nothing"
        );
        let wrong = ReservationError::Check(Sense::illegal(AdditionalSense::INVALID_RELEASE));
        assert_eq!(reservations.release(&a, ReservationKey(1), ExclusiveAccess), Err(wrong));
        let told = reservations.release(&a, ReservationKey(1), WriteExclusiveRegistrantsOnly).unwrap();
        let released = AdditionalSense::RESERVATIONS_RELEASED;
        assert_eq!(told, [(b, released), (c, released)]);
        assert_eq!(reservations.reservation(), None);
        assert_eq!(reservations.generation(), 3);
    }

    #[test]
    fn a_reservation_ends_with_its_holders_registration_or_the_last_one() {
        let (mut reservations, [a, b, c]) = registered();
        reservations.reserve(&a, ReservationKey(1), ExclusiveAccess).unwrap();
        assert_eq!(reservations.register(&a, ReservationKey(1), ReservationKey(0)), Ok(Vec::new()));
        assert_eq!(reservations.reservation(), None);
        reservations.reserve(&b, ReservationKey(2), ExclusiveAccessAllRegistrants).unwrap();
        assert_eq!(reservations.reservation(), Some((ReservationKey(0), ExclusiveAccessAllRegistrants)));
        reservations.register(&b, ReservationKey(2), ReservationKey(0)).unwrap();
        assert!(reservations.holds(&c), "each registrant holds it");
        reservations.register(&c, ReservationKey(3), ReservationKey(0)).unwrap();
        assert_eq!(reservations.reservation(), None);
    }

    #[test]
    fn a_preempted_nexus_is_unregistered_and_gets_a_unit_attention() {
        let (mut reservations, [a, b, c]) = registered();
        let gone = AdditionalSense::REGISTRATIONS_PREEMPTED;
        assert_eq!(
            reservations.preempt(&a, ReservationKey(1), ReservationKey(9), WriteExclusive),
            Err(ReservationError::Conflict)
        );
        assert!(matches!(
            reservations.preempt(&a, ReservationKey(1), ReservationKey(0), WriteExclusive),
            Err(ReservationError::Check(_))
        ));
        reservations.reserve(&b, ReservationKey(2), ExclusiveAccess).unwrap();
        assert_eq!(
            reservations.preempt(&a, ReservationKey(1), ReservationKey(3), WriteExclusive),
            Ok(vec![(c.clone(), gone)])
        );
        assert!(reservations.holds(&b), "another one's reservation stays");
        let told = reservations.preempt(&a, ReservationKey(1), ReservationKey(2), WriteExclusive).unwrap();
        assert_eq!(told, [(b.clone(), gone)]);
        assert_eq!(reservations.reservation(), Some((ReservationKey(1), WriteExclusive)));
        assert_eq!(reservations.check(&b, CommandAccess::Write), Err(ReservationError::Conflict));
        let (mut reservations, [a, b, c]) = registered();
        reservations.reserve(&b, ReservationKey(2), WriteExclusiveAllRegistrants).unwrap();
        let told = reservations.preempt(&a, ReservationKey(1), ReservationKey(0), ExclusiveAccess).unwrap();
        assert_eq!(told, [(b, gone), (c, gone)]);
        assert_eq!(reservations.reservation(), Some((ReservationKey(1), ExclusiveAccess)));
    }

    #[test]
    fn clear_removes_registrations_and_reservation() {
        let (mut reservations, [a, b, c]) = registered();
        reservations.reserve(&b, ReservationKey(2), ExclusiveAccess).unwrap();
        let preempted = AdditionalSense::RESERVATIONS_PREEMPTED;
        assert_eq!(
            reservations.clear(&a, ReservationKey(1)),
            Ok(vec![(b.clone(), preempted), (c, preempted)])
        );
        assert_eq!((reservations.registrants().count(), reservations.reservation()), (0, None));
        assert_eq!(reservations.check(&b, CommandAccess::Write), Ok(()));
    }

    #[test]
    fn reserve_6_and_persistent_reservations_exclude_each_other() {
        let (a, b) = (nexus("a"), nexus("b"));
        let mut reservations = Reservations::default();
        reservations.reserve_legacy(&a).unwrap();
        reservations.reserve_legacy(&a).expect("the same again");
        assert_eq!(reservations.reserve_legacy(&b), Err(ReservationError::Conflict));
        for what in [CommandAccess::Inquire, CommandAccess::Read, CommandAccess::Write] {
            assert_eq!(reservations.check(&b, what), Err(ReservationError::Conflict));
            assert_eq!(reservations.check(&a, what), Ok(()));
        }
        assert_eq!(reservations.check(&b, CommandAccess::Unrestricted), Ok(()));
        assert_eq!(
            reservations.register(&b, ReservationKey(0), ReservationKey(1)),
            Err(ReservationError::Conflict)
        );
        reservations.release_legacy(&b).expect("it holds nothing");
        assert_eq!(reservations.check(&b, CommandAccess::Read), Err(ReservationError::Conflict));
        reservations.release_legacy(&a).unwrap();
        reservations.register(&b, ReservationKey(0), ReservationKey(1)).unwrap();
        assert_eq!(reservations.reserve_legacy(&a), Err(ReservationError::Conflict));
        let mut reservations = Reservations::default();
        reservations.reserve_legacy(&a).unwrap();
        reservations.drop_legacy(Some(&b));
        assert_eq!(reservations.check(&b, CommandAccess::Read), Err(ReservationError::Conflict));
        reservations.drop_legacy(None);
        assert_eq!(reservations.check(&b, CommandAccess::Read), Ok(()));
    }

    #[test]
    fn random_commands_never_leave_an_unregistered_holder() {
        for seed in 0..200 {
            let mut random = world::Random::new(seed, "reservations");
            let mut reservations = Reservations::default();
            let all = ["a", "b", "c", "d"].map(nexus);
            for _ in 0..100 {
                let who = &all[random.below(4) as usize];
                let known = reservations.registrants().find(|(nexus, _)| *nexus == who).map(|(_, key)| key);
                let own = if random.percent(90.0) {
                    known.unwrap_or(ReservationKey(0))
                } else {
                    ReservationKey(random.below(4))
                };
                let other = ReservationKey(random.below(4));
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
                let writers = all
                    .iter()
                    .filter(|nexus| reservations.check(nexus, CommandAccess::Write).is_ok())
                    .count();
                assert!(writers > 0, "seed {seed}: somebody may always write");
            }
        }
    }
}
