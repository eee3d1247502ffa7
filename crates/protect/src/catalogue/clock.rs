//! The confirmed clock of a catalogue: time that has certainly passed.
//!
//! Locks and ages must not end because someone set a clock. So each line has the age of the catalogue, which grows by
//! clocks that never jump:
//!
//! 1. Within one start of a machine, by the time since that start.
//! 2. After a restart of the same machine, by the time since the new start, and at most by what the civil clock says.
//! 3. On another machine, by nothing until its runner has written a line.
//!
//! The age errs on the short side: backups stay too long, never too short.

use super::entry::RunnerOpening;
use crate::UnixSecond;
use world::{MachineUptime, World};

/// The clocks of a machine at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineTime {
    pub machine: String,
    pub boot: String,
    /// Seconds since the machine's start.
    pub up_s: u64,
    pub civil: UnixSecond,
}

impl MachineTime {
    /// That of this machine now.
    pub fn of(world: &World) -> Self {
        let MachineUptime { machine, boot, up } = world.machine_uptime();
        Self { machine, boot, up_s: up.as_secs(), civil: UnixSecond(world.wall().seconds) }
    }
}

/// The age of a catalogue, and the clocks by which it grows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CatalogueClock {
    /// Of the last line.
    age_s: u64,
    at_s: i64,
    /// The last runner, and the age of the catalogue when it opened it.
    opening: Option<(RunnerOpening, u64)>,
}

impl CatalogueClock {
    /// Age as of the last line.
    pub fn age_s(&self) -> u64 {
        self.age_s
    }

    /// Civil time of the last line.
    pub fn at(&self) -> UnixSecond {
        UnixSecond(self.at_s)
    }

    /// Notes the times of a line.
    pub(super) fn note_line(&mut self, at_s: i64, age_s: u64) {
        assert!(age_s >= self.age_s, "ages do not fall");
        (self.at_s, self.age_s) = (at_s, age_s);
    }

    /// Notes the runner that wrote the last line.
    pub(super) fn note_opening(&mut self, opening: &RunnerOpening) {
        self.opening = Some((opening.clone(), self.age_s));
    }

    /// True if a line of that runner needs no opening before it.
    pub(super) fn is_open_for(&self, now: &MachineTime) -> bool {
        self.opening.as_ref().is_some_and(|(last, _)| last.machine == now.machine && last.boot == now.boot)
    }

    /// Age of the catalogue at that moment.
    pub fn age_at(&self, now: &MachineTime) -> u64 {
        let Some((opening, opened_age_s)) = &self.opening else { return self.age_s };
        let civil_s = now.civil.0.saturating_sub(self.at_s).max(0).unsigned_abs();
        let passed_s = if opening.machine != now.machine {
            0
        } else if opening.boot != now.boot {
            now.up_s.min(civil_s)
        } else {
            let last_up_s = opening.up_s.saturating_add(self.age_s - opened_age_s);
            now.up_s.saturating_sub(last_up_s)
        };
        self.age_s.saturating_add(passed_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(machine: &str, boot: &str, up_s: u64, civil: i64) -> MachineTime {
        MachineTime { machine: machine.to_owned(), boot: boot.to_owned(), up_s, civil: UnixSecond(civil) }
    }

    /// A line at that moment; the age of the catalogue then.
    fn line(clock: &mut CatalogueClock, now: &MachineTime) -> u64 {
        let age_s = clock.age_at(now);
        clock.note_line(now.civil.0, age_s);
        if !clock.is_open_for(now) {
            let (machine, boot) = (now.machine.clone(), now.boot.clone());
            clock.note_opening(&RunnerOpening { runner: String::new(), machine, boot, up_s: now.up_s });
        }
        age_s
    }

    #[test]
    fn only_time_that_certainly_passed_counts() {
        let mut clock = CatalogueClock::default();
        let day = 86_400;
        for (now, age_s, why) in [
            (time("a", "1", 1_000, 10_000), 0, "the first line"),
            (time("a", "1", 1_600, 10_600), 600, "the same start"),
            (time("a", "1", 1_700, 10_700 + 6_000 * day), 700, "the civil clock is ahead"),
            (time("a", "1", 1_800, 10_800), 800, "and is set back"),
            (time("a", "2", 50, 12_000), 850, "a restart: the time since"),
            (time("a", "2", 150, 12_100), 950, "the same start again"),
            (time("a", "3", 700, 12_200), 1_050, "a restart: no more than civil time"),
            (time("a", "4", 700, 11_000), 1_050, "a restart with the clock set back"),
            (time("b", "9", 999_999, 90_000), 1_050, "another machine"),
            (time("b", "9", 999_999 + 60, 90_060), 1_110, "which goes on"),
            (time("b", "9", 7, 90_060), 1_110, "a clock that lies does not go back"),
        ] {
            assert_eq!(line(&mut clock, &now), age_s, "{why}");
        }
    }
}
