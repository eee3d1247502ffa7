//! The schedules of a set, with the one of its logs.

use plan::site::ProtectedSet;
use protect::backup_schedule::{SchedulePeriod, ScheduleSet};

/// Most cuts of logs that `logs_every` keeps: the newest has every log that the older ones have, unless a backup was proven in
/// between.
const LOG_CUTS_MAX: i64 = 120;

/// The reason why a table has no such schedules, and the next step.
pub(super) type ScheduleFault = (String, &'static str);

/// The schedules that a table says, and one of its logs alone if it has `logs_every`: from one full backup to the next.
pub(super) fn schedules_of(table: &ProtectedSet, zone: &str) -> Result<ScheduleSet, ScheduleFault> {
    let parsed = |texts: &[String]| ScheduleSet::parse(texts, zone).map_err(|error| (error.to_string(), ""));
    let said = parsed(&table.schedules)?;
    let every = &table.logs_every;
    if every.is_empty() {
        return Ok(said);
    }
    let Some(period) = every.parse::<SchedulePeriod>().ok().filter(|period| period.is_close()) else {
        let remedy = "say 1min to 14min; backups that are farther apart are schedules";
        return Err((format!("logs_every = {every:?} is no time below 15 minutes"), remedy));
    };
    if table.logs.is_empty() {
        return Err(("logs_every needs logs".to_owned(), "say in logs which of its volumes hold logs"));
    }
    let periods = || said.schedules().iter().map(|schedule| schedule.period());
    if periods().any(|said| said == period) {
        return Err((format!("logs_every = {every:?} is a schedule already"), "leave one of the two out"));
    }
    let full_s = periods().filter(|period| !period.is_close()).map(SchedulePeriod::shortest_s).min();
    let Some(full_s) = full_s else {
        return Err(("logs_every needs full backups".to_owned(), "add a schedule such as 24x1h"));
    };
    // One more than there are between two full backups: a full one may be late.
    let count = (full_s / period.shortest_s() + 1).min(LOG_CUTS_MAX);
    parsed(&[&table.schedules[..], &[format!("{count}x{period}")]].concat())
}
