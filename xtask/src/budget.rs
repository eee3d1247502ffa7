//! Time budgets of the rooms' tests: all of them together keep within one pass.
//!
//! Times are of two cores with nothing else to do. A room over its budget is a warning, never a failure: machines differ. A judge
//! that would break its room's budget goes to `--full`.

use std::{collections::BTreeMap, time::Duration};

/// Seconds a room's tests may take.
const BUDGETS_S: [(&str, u64); 21] = [
    ("array", 80),
    ("cli", 210),
    ("console", 5),
    ("control", 45),
    ("iscsi", 5),
    ("maildb", 55),
    ("nbd", 5),
    ("plan", 5),
    ("protect", 25),
    ("recovery", 10),
    ("replication", 45),
    ("report", 5),
    ("runs", 5),
    ("serving", 5),
    ("simulator", 105),
    ("tls", 5),
    ("vault", 10),
    ("verify", 5),
    ("workload", 55),
    ("world", 20),
    ("xtask", 15),
];

/// Time that the test programs of each room took.
#[derive(Debug, Default)]
pub(crate) struct RoomTimes(BTreeMap<String, Duration>);

impl RoomTimes {
    /// A test program of `room` took so long.
    pub fn add(&mut self, room: &str, took: Duration) {
        *self.0.entry(room.to_owned()).or_default() += took;
    }

    /// A line a room, in the order of their names: what it took, what it may take.
    pub fn table(&self) -> String {
        let lines = self.0.iter().map(|(room, took)| {
            let budget =
                budget(room).map_or_else(|| "none".to_owned(), |budget| format!("{} s", budget.as_secs()));
            format!("{room:<12} {:>7.1} s of {budget:>6}\n", took.as_secs_f64())
        });
        lines.collect()
    }

    /// A warning for each room that took too long, or has no budget.
    pub fn warnings(&self) -> Vec<String> {
        let warn = |(room, took): (&String, &Duration)| match budget(room) {
            None => Some(format!("warning: {room} has no budget: give it one in xtask/src/budget.rs")),
            Some(budget) if *took > budget => Some(format!(
                "warning: the tests of {room} took {:.0} s, and may take {} s: slow judges go to --full",
                took.as_secs_f64(),
                budget.as_secs()
            )),
            Some(_) => None,
        };
        self.0.iter().filter_map(warn).collect()
    }
}

fn budget(room: &str) -> Option<Duration> {
    let known = BUDGETS_S.iter().find(|(name, _)| *name == room);
    known.map(|(_, seconds)| Duration::from_secs(*seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_room_over_its_budget_and_one_without_are_named() {
        let mut times = RoomTimes::default();
        times.add("nbd", Duration::from_secs(2));
        assert_eq!(times.warnings(), [""; 0]);
        times.add("nbd", Duration::from_secs(4));
        times.add("cellar", Duration::from_millis(500));
        assert_eq!(
            times.warnings(),
            [
                "warning: cellar has no budget: give it one in xtask/src/budget.rs",
                "warning: the tests of nbd took 6 s, and may take 5 s: slow judges go to --full",
            ]
        );
        assert_eq!(times.table(), "cellar           0.5 s of   none\nnbd              6.0 s of    5 s\n");
    }

    #[test]
    fn all_budgets_together_leave_a_pass_time_to_build() {
        let sum: u64 = BUDGETS_S.iter().map(|(_, seconds)| seconds).sum();
        assert!(sum <= 720, "{sum} s of the 12 minutes of a pass");
    }
}
