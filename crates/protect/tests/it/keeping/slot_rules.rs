//! Slots of any schedule in any zone, most of all around changes of a zone's offset.

use super::seeds;
use proptest::{prelude::*, test_runner::RngSeed};
use protect::{
    SnapshotSchedule, UnixSecond,
    backup_schedule::{BackupSchedule, ScheduleZone},
};
use world::Random;

const ZONES: [&str; 9] = [
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "America/Havana",
    "America/Santiago",
    "Australia/Lord_Howe",
    "Pacific/Apia",
    "Asia/Kathmandu",
    "Antarctica/Troll",
];
const SCHEDULES: [&str; 12] = [
    "9x1min",
    "9x7min",
    "9x1h",
    "9x5h",
    "9x24h",
    "9x1d",
    "9x1d@02:30",
    "9x2d@23:59",
    "9x1w@Sun 02:30",
    "9x1month@31 02:30",
    "9x5month",
    "9x1y@00:30",
];

/// Slots follow each other without a gap, and a moment lies in its slot.
pub fn check_seed(seed: u64) {
    let mut random = Random::new(seed, "slots");
    let zone = ScheduleZone::named(ZONES[random.below(9) as usize]).expect("a zone");
    let schedule: BackupSchedule = SCHEDULES[random.below(12) as usize].parse().expect("a schedule");
    let now = moment(&zone, &mut random);
    let slot = schedule.slot_at(&zone, now);
    assert!((slot.start..slot.end).contains(&now), "{schedule} in {zone}: {now:?} in {slot:?}");
    assert_eq!(schedule.slot_at(&zone, slot.start), slot, "{schedule} in {zone}");
    assert_eq!(schedule.slot_at(&zone, UnixSecond(slot.end.0 - 1)), slot, "{schedule} in {zone}");
    assert_eq!(schedule.slot_at(&zone, slot.end).start, slot.end, "{schedule} in {zone}");
    let span_s = schedule.period().shortest_s().unsigned_abs() * 100;
    let later = schedule.slot_at(&zone, UnixSecond(slot.end.0 + random.below(span_s) as i64));
    let newest: Vec<UnixSecond> = schedule.newest_starts(&zone, slot.start, later.start).collect();
    let missed = schedule.missed_between(&zone, slot.start, later.start).map_or(0, |missed| missed.count);
    assert_eq!(newest.len() as u64, missed + 2, "{schedule} in {zone}");
    assert_eq!((newest.first(), newest.last()), (Some(&later.start), Some(&slot.start)));
    // No slot is much longer than its period; a day without an offset's change is not shorter either.
    let excess_s = slot.length_s() - schedule.period().longest_s(1);
    assert!(excess_s <= 26 * 3_600, "{schedule} in {zone}: {slot:?}");
}

/// A moment within three hours of a change, if the zone has any; from 1971 to 2040.
fn moment(zone: &ScheduleZone, random: &mut Random) -> UnixSecond {
    let any_s = 366 * 86_400 + random.below(69 * 365 * 86_400) as i64;
    let zone = jiff::tz::TimeZone::get(zone.name()).expect("a zone");
    let any = jiff::Timestamp::from_second(any_s).expect("a time");
    let change = zone.following(any).next().map(|change| change.timestamp().as_second());
    let near_s = change.filter(|s| *s < 70 * 365 * 86_400).unwrap_or(any_s);
    UnixSecond(near_s + random.below(6 * 3_600) as i64 - 3 * 3_600)
}

#[test]
fn slots_follow_each_other_through_every_change_of_clocks() {
    seeds(20_000).for_each(check_seed);
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 2000, failure_persistence: None, rng_seed: RngSeed::Fixed(27), ..ProptestConfig::default()
    })]

    #[test]
    fn schedules_of_snapshots_have_the_same_slots_in_the_new_grammar(
        minutes in prop_oneof![1_u32..=999, (1_u32..=744).prop_map(|hours| hours * 60), (1_u32..=31).prop_map(|days| days * 1440)],
        at in prop::option::of((0_u32..24, 0_u32..60)),
        last in 86_400_i64..4_000_000_000,
        later in 0_i64..4_000_000,
    ) {
        let at = at.filter(|_| minutes % 1440 == 0).map(|(hour, minute)| format!("{hour:02}:{minute:02}"));
        let old = SnapshotSchedule::new(f64::from(minutes) / 60.0, at.as_deref(), 7).unwrap();
        let new = old.backup_schedule().unwrap();
        prop_assert_eq!(new.count(), 7);
        let (last, now) = (UnixSecond(last), UnixSecond(last + later));
        let slot = |at| new.slot_at(&ScheduleZone::UTC, at);
        prop_assert_eq!(old.is_due(Some(last), now), slot(now).start > slot(last).start, "{} {}", old.text(), new);
        if slot(now) == slot(last) {
            prop_assert_eq!(old.due_at(Some(last), now), slot(now).end);
        }
    }
}
