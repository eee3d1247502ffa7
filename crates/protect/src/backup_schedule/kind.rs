//! Kinds of backups: with a freeze, of logs only, or without a freeze.

use super::SchedulePeriod;
use std::{fmt, time::Duration};

/// Distance of two freezes of an application unless people choose another.
const FREEZE_EVERY: Duration = Duration::from_secs(3_600);

/// The extent of a backup. Minimum counts and ages hold for full ones; the others are kept by count alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BackupKind {
    /// All volumes; whatever the set freezes is frozen.
    Full,
    /// The log volumes alone: it brings the full backup before it forward.
    InterimLogs,
    /// All volumes without a freeze, between two full backups.
    InterimCrash,
}

impl BackupKind {
    pub const ALL: [Self; 3] = [Self::Full, Self::InterimLogs, Self::InterimCrash];

    pub fn word(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::InterimLogs => "logs",
            Self::InterimCrash => "crash",
        }
    }

    pub fn is_full(self) -> bool {
        self == Self::Full
    }
}

impl fmt::Display for BackupKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// The rule by which an application is frozen now and then only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreezeLimit {
    /// `freeze_every` of the site file.
    pub every: Duration,
    /// The set freezes an application or a filesystem.
    pub has_freeze: bool,
    /// The set says which of its volumes hold logs, and a full backup is there for them to bring forward.
    pub has_logs: bool,
}

impl Default for FreezeLimit {
    fn default() -> Self {
        Self { every: FREEZE_EVERY, has_freeze: false, has_logs: false }
    }
}

impl FreezeLimit {
    /// The kind of a backup that fills slots of these periods; none for one that a person orders, which is always full: the
    /// limit is for what nobody watches. `since_freeze` is the time since the last freeze, by a clock that never jumps; `None` if
    /// there was none, or it is unknown.
    pub fn kind_of(&self, due: &[SchedulePeriod], since_freeze: Option<Duration>) -> BackupKind {
        if due.is_empty() {
            return BackupKind::Full;
        }
        let is_wanted = due.iter().any(|period| !period.is_close());
        // Slots start on time, backups a little after: a tenth is left, or each second one would be late.
        let is_rested = since_freeze.is_none_or(|since| since >= self.every * 9 / 10);
        if is_wanted && (is_rested || !self.has_freeze) {
            BackupKind::Full
        } else if self.has_logs {
            BackupKind::InterimLogs
        } else {
            BackupKind::InterimCrash
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn close_schedules_freeze_nothing_and_others_not_too_often() {
        let minutes = |minutes: u64| Some(Duration::from_secs(minutes * 60));
        let mail = FreezeLimit { has_freeze: true, has_logs: true, ..FreezeLimit::default() };
        let no_logs = FreezeLimit { has_logs: false, ..mail };
        let plain = FreezeLimit::default();
        for (limit, due, since, kind) in [
            (mail, "1min", None, BackupKind::InterimLogs),
            (mail, "14min", minutes(600), BackupKind::InterimLogs),
            (no_logs, "1min", None, BackupKind::InterimCrash),
            (plain, "1min", None, BackupKind::InterimCrash),
            (mail, "1h", None, BackupKind::Full),
            (mail, "1h", minutes(59), BackupKind::Full),
            (mail, "1h", minutes(50), BackupKind::InterimLogs),
            (no_logs, "15min", minutes(15), BackupKind::InterimCrash),
            (mail, "1min 1d", minutes(60), BackupKind::Full),
            (plain, "15min", minutes(15), BackupKind::Full),
            (mail, "", minutes(60), BackupKind::Full),
            (mail, "", minutes(5), BackupKind::Full),
        ] {
            let periods: Vec<SchedulePeriod> =
                due.split_whitespace().map(|period| period.parse().unwrap()).collect();
            assert_eq!(limit.kind_of(&periods, since), kind, "{due} {since:?}");
        }
    }
}
