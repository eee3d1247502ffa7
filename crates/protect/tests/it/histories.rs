//! Random histories: a server that looks at its schedule whenever it is up, down times, and a clock that jumps.

use proptest::{collection::vec, prelude::*, test_runner::RngSeed};
use protect::{ScheduleMark, SnapshotSchedule, TakingPace, UnixSecond};
use std::time::Duration;

/// A part of a history.
#[derive(Clone, Debug)]
enum Spell {
    /// The server runs, and looks every so many seconds.
    Up {
        looks: u16,
        every_s: u16,
    },
    Down {
        seconds: u32,
    },
    /// The civil clock is set.
    Jump {
        seconds: i64,
    },
    /// A person takes a snapshot with a note of their own.
    Person,
}

/// A snapshot, by both clocks.
#[derive(Clone, Copy, Debug, PartialEq)]
struct TakenSnapshot {
    civil: UnixSecond,
    /// Seconds since the history's start.
    elapsed_s: i64,
    is_own: bool,
}

/// A volume with its snapshots in the order in which they were taken.
#[derive(Debug)]
struct Volume {
    schedule: SnapshotSchedule,
    elapsed_s: i64,
    ahead_s: i64,
    pace: TakingPace,
    snapshots: Vec<TakenSnapshot>,
    /// All that were ever taken.
    taken: Vec<TakenSnapshot>,
}

impl Volume {
    fn civil(&self) -> UnixSecond {
        UnixSecond(1_795_782_896 + self.elapsed_s + self.ahead_s)
    }

    fn own(&self) -> Vec<TakenSnapshot> {
        self.snapshots.iter().copied().filter(|taken| taken.is_own).collect()
    }

    fn take(&mut self, is_own: bool) {
        let taken = TakenSnapshot { civil: self.civil(), elapsed_s: self.elapsed_s, is_own };
        self.snapshots.push(taken);
        self.taken.push(taken);
    }

    /// The step of a server. Returns true if it took one.
    fn look(&mut self) -> bool {
        let elapsed = Duration::from_secs(self.elapsed_s.unsigned_abs());
        let last = self.own().last().map(|taken| taken.civil);
        let is_due =
            self.schedule.is_due(last, self.civil()) && self.pace.allows(self.schedule.interval_s(), elapsed);
        if is_due {
            self.take(true);
            self.pace.note_taken(elapsed);
        }
        let surplus = self.schedule.surplus(self.own().len());
        for old in self.own().into_iter().take(surplus) {
            let index = self.snapshots.iter().position(|taken| *taken == old).unwrap();
            self.snapshots.remove(index);
        }
        is_due
    }

    fn live(&mut self, spell: &Spell) {
        match *spell {
            Spell::Up { looks, every_s } => {
                for _ in 0..looks {
                    self.elapsed_s += i64::from(every_s) + 1;
                    self.look();
                }
            }
            Spell::Down { seconds } => {
                self.elapsed_s += i64::from(seconds);
                self.pace = TakingPace::default();
            }
            Spell::Jump { seconds } => self.ahead_s += seconds,
            Spell::Person => self.take(false),
        }
    }
}

fn schedules() -> impl Strategy<Value = SnapshotSchedule> {
    let keep = 1_u32..6;
    let hours = prop_oneof![Just(1.0 / 60.0), Just(0.25), Just(1.0), Just(5.0), Just(24.0), Just(744.0)];
    let at = (0_u32..24, 0_u32..60, any::<bool>());
    (hours, at, keep).prop_map(|(hours, (hour, minute, has_at), keep)| {
        let at = format!("{hour:02}:{minute:02}");
        let at = (has_at && hours >= 24.0).then_some(at.as_str());
        SnapshotSchedule::new(hours, at, keep).unwrap()
    })
}

fn spells(jumps: bool) -> impl Strategy<Value = Vec<Spell>> {
    let up = (1_u16..60, 0_u16..4000).prop_map(|(looks, every_s)| Spell::Up { looks, every_s });
    let down = (0_u32..4_000_000).prop_map(|seconds| Spell::Down { seconds });
    let year = 366 * 86_400_i64;
    let jump =
        prop_oneof![-7200_i64..7200, -20 * year..20 * year].prop_map(|seconds| Spell::Jump { seconds });
    let spell = if jumps {
        prop_oneof![4 => up, 1 => down, 2 => jump, 1 => Just(Spell::Person)].boxed()
    } else {
        prop_oneof![4 => up, 2 => down, 1 => Just(Spell::Person)].boxed()
    };
    vec(spell, 1..40)
}

fn volume(schedule: SnapshotSchedule) -> Volume {
    Volume {
        schedule,
        elapsed_s: 0,
        ahead_s: 0,
        pace: TakingPace::default(),
        snapshots: Vec::new(),
        taken: Vec::new(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 400, failure_persistence: None, rng_seed: RngSeed::Fixed(27), ..ProptestConfig::default()
    })]

    #[test]
    fn one_snapshot_an_interval_and_one_after_any_down_time(schedule in schedules(), spells in spells(false)) {
        let mut volume = volume(schedule);
        volume.look();
        for spell in &spells {
            let before = volume.own();
            volume.live(spell);
            if let Spell::Down { .. } = spell {
                let last = before.last().map(|taken| taken.civil);
                let due = schedule.is_due(last, volume.civil());
                prop_assert_eq!(volume.look(), due);
                prop_assert!(!volume.look(), "one is made up, not one for each");
            }
        }
        let own: Vec<_> = volume.taken.iter().filter(|taken| taken.is_own).collect();
        for pair in own.windows(2) {
            // As many as boundaries of intervals lie between.
            let boundary = schedule.due_at(Some(pair[0].civil), pair[0].civil);
            prop_assert!(pair[0].civil < boundary && boundary <= pair[1].civil, "{:?}", pair);
            prop_assert!(boundary.0 - pair[0].civil.0 <= schedule.interval_s());
        }
    }

    #[test]
    fn pruning_keeps_the_newest_and_what_is_not_its_own(schedule in schedules(), spells in spells(true)) {
        let mut volume = volume(schedule);
        for spell in &spells {
            volume.live(spell);
            volume.look();
            let taken_own: Vec<_> = volume.taken.iter().copied().filter(|taken| taken.is_own).collect();
            let newest = taken_own[taken_own.len().saturating_sub(schedule.keep())..].to_vec();
            prop_assert_eq!(volume.own(), newest);
            let person = |all: &[TakenSnapshot]| all.iter().filter(|taken| !taken.is_own).count();
            prop_assert_eq!(person(&volume.snapshots), person(&volume.taken));
        }
    }

    #[test]
    fn a_clock_that_jumps_makes_no_burst_and_stops_no_schedule(
        schedule in schedules(),
        jumps in vec((-20 * 366 * 86_400_i64..20 * 366 * 86_400, 1_u32..30), 1..30),
    ) {
        let mut volume = volume(schedule);
        volume.look();
        let interval = schedule.interval_s();
        // A server that is up and looks ten times an interval; the clock jumps at any of them.
        for (jump, looks) in jumps {
            volume.ahead_s += jump;
            for _ in 0..looks {
                volume.look();
                volume.elapsed_s += interval / 10;
            }
        }
        let taken: Vec<i64> = volume.taken.iter().map(|taken| taken.elapsed_s).collect();
        let ends = taken.iter().copied().chain([volume.elapsed_s]).collect::<Vec<_>>();
        prop_assert!(ends.windows(2).all(|pair| pair[1] - pair[0] <= 2 * interval), "{:?}", ends);
        prop_assert!(taken.windows(3).all(|three| three[2] - three[0] >= interval * 9 / 10), "{:?}", taken);
    }

    #[test]
    fn the_moment_said_is_the_first_at_which_one_is_due(
        schedule in schedules(), last in any::<i32>(), later in 0_i64..4_000_000, before in -4_000_000_i64..0,
    ) {
        let last = UnixSecond(i64::from(last));
        for now in [UnixSecond(last.0 + later), UnixSecond(last.0 + before)] {
            let due = schedule.due_at(Some(last), now);
            prop_assert!(due >= now && schedule.is_due(Some(last), due));
            prop_assert!(due == now || !schedule.is_due(Some(last), UnixSecond(due.0 - 1)));
        }
    }

    #[test]
    fn a_person_s_note_is_no_mark(note in "[ -~]{0,40}", schedule in "[a-z]{1,8}") {
        let mark = ScheduleMark { schedule: &schedule };
        prop_assert!(mark.is_on(mark.note().as_bytes()));
        prop_assert_eq!(mark.is_on(note.as_bytes()), note == mark.note());
    }
}
