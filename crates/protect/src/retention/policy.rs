//! The keys of `keep`, and the wishes among them that cannot all be true.

use crate::backup_schedule::{BackupSchedule, ScheduleSet};
use std::fmt;
use thiserror::Error;

/// Most backups that `at_least` may want.
const AT_LEAST_MAX: u32 = 10_000;
/// Proven or not, a set without the key has one backup at least.
const AT_LEAST: u32 = 1;
const DAY_S: i64 = 86_400;
/// Longest age, in days: a century.
const DAYS_MAX: i64 = 36_525;

/// The keys as a site file has them. Spans are texts such as `"90min"`, `"12h"`, `"7d"`, `"2w"`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeepSettings {
    pub at_least: Option<u32>,
    pub not_before: Option<String>,
    pub at_most: Option<String>,
    pub only_after: Option<String>,
    pub on_full: Option<String>,
    pub lock: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFull {
    /// Old backups make room for writes.
    #[default]
    ThinOut,
    /// Backups stay; writes are refused by a full pool.
    Keep,
}

/// The reason why these are no rules.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum KeepPolicyError {
    #[error("keep: at_least = {0} is impossible; say 1 to {AT_LEAST_MAX}")]
    AtLeast(u32),
    #[error("keep: {key} = {text:?} is no span; say a number and min, h, d or w, such as \"7d\"")]
    Span { key: &'static str, text: String },
    #[error("keep: {key} = {text:?} is too long; a century is 36525d")]
    LongSpan { key: &'static str, text: String },
    #[error("keep: only_after = {0:?} is unknown; say \"verified\", or leave it out")]
    OnlyAfter(String),
    #[error("keep: on_full = {0:?} is unknown; say \"thin-out\" or \"keep\"")]
    OnFull(String),
    #[error("keep: {key} = {span} and at_most = {at_most} cannot both be true; say a longer at_most")]
    OlderThanAllowed { key: &'static str, span: KeepSpan, at_most: KeepSpan },
    #[error(
        "keep: {schedule} reaches back {reach} and at_most = {at_most}: they cannot both be true; \
         say a smaller count or a longer at_most"
    )]
    ScheduleTooLong { schedule: BackupSchedule, reach: KeepSpan, at_most: KeepSpan },
    #[error(
        "keep: only_after = \"verified\" needs results of verifications, and an agent notes its own alone; say when it verifies \
         (verify), or leave it out"
    )]
    NothingVerified,
}

/// Seconds, shown as people write them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeepSpan(pub i64);

/// Rules that can all be kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeepPolicy {
    at_least: u32,
    not_before: KeepSpan,
    at_most: Option<KeepSpan>,
    only_verified: bool,
    on_full: OnFull,
    lock: Option<KeepSpan>,
}

impl Default for KeepPolicy {
    fn default() -> Self {
        Self::new(&KeepSettings::default()).expect("no rule contradicts none")
    }
}

impl KeepPolicy {
    /// # Errors
    ///
    /// A key has no such value, or two contradict each other.
    pub fn new(settings: &KeepSettings) -> Result<Self, KeepPolicyError> {
        let at_least = settings.at_least.unwrap_or(AT_LEAST);
        if !(1..=AT_LEAST_MAX).contains(&at_least) {
            return Err(KeepPolicyError::AtLeast(at_least));
        }
        let span = |key, text: &Option<String>| text.as_deref().map(|text| span(key, text)).transpose();
        let policy = Self {
            at_least,
            not_before: span("not_before", &settings.not_before)?.unwrap_or(KeepSpan(0)),
            at_most: span("at_most", &settings.at_most)?,
            only_verified: match settings.only_after.as_deref() {
                None => false,
                Some("verified") => true,
                Some(other) => return Err(KeepPolicyError::OnlyAfter(other.to_owned())),
            },
            on_full: match settings.on_full.as_deref() {
                None | Some("thin-out") => OnFull::ThinOut,
                Some("keep") => OnFull::Keep,
                Some(other) => return Err(KeepPolicyError::OnFull(other.to_owned())),
            },
            lock: span("lock", &settings.lock)?,
        };
        for (key, wish) in [("not_before", Some(policy.not_before)), ("lock", policy.lock)] {
            if let (Some(span), Some(at_most)) = (wish, policy.at_most)
                && span > at_most
            {
                return Err(KeepPolicyError::OlderThanAllowed { key, span, at_most });
            }
        }
        Ok(policy)
    }

    /// Compares the rules with the rest of the set.
    ///
    /// # Errors
    ///
    /// A schedule wants backups that are older than `at_most`, or the minimum is of proven ones and nothing proves any.
    pub fn check_set(&self, schedules: &ScheduleSet, has_verification: bool) -> Result<(), KeepPolicyError> {
        if self.only_verified && !has_verification {
            return Err(KeepPolicyError::NothingVerified);
        }
        for &schedule in schedules.schedules() {
            let reach = KeepSpan(schedule.period().longest_s(schedule.count()));
            if let Some(at_most) = self.at_most
                && reach > at_most
            {
                return Err(KeepPolicyError::ScheduleTooLong { schedule, reach, at_most });
            }
        }
        Ok(())
    }

    /// Newest full backups that stay; proven ones if [`only_verified`](Self::only_verified).
    pub fn at_least(&self) -> usize {
        self.at_least as usize
    }

    /// Seconds that a full backup stays in any case.
    pub fn not_before_s(&self) -> i64 {
        self.not_before.0
    }

    /// Seconds after which a backup goes by law.
    pub fn at_most_s(&self) -> Option<i64> {
        self.at_most.map(|span| span.0)
    }

    pub fn only_verified(&self) -> bool {
        self.only_verified
    }

    pub fn on_full(&self) -> OnFull {
        self.on_full
    }

    /// Seconds from the cut for which new backups are locked.
    pub fn lock_s(&self) -> Option<i64> {
        self.lock.map(|span| span.0)
    }
}

impl fmt::Display for KeepSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            s if s % DAY_S == 0 => write!(f, "{}d", s / DAY_S),
            s if s % 3_600 == 0 => write!(f, "{}h", s / 3_600),
            s if s % 60 == 0 => write!(f, "{}min", s / 60),
            s => write!(f, "{s}s"),
        }
    }
}

fn span(key: &'static str, text: &str) -> Result<KeepSpan, KeepPolicyError> {
    let wrong = || KeepPolicyError::Span { key, text: text.to_owned() };
    let long = || KeepPolicyError::LongSpan { key, text: text.to_owned() };
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let unit_s = match unit {
        "min" => 60,
        "h" => 3_600,
        "d" => DAY_S,
        "w" => 7 * DAY_S,
        _ => return Err(wrong()),
    };
    if number.is_empty() {
        return Err(wrong());
    }
    let number: i64 = number.parse().map_err(|_| long())?;
    let seconds = number.checked_mul(unit_s).filter(|s| *s <= DAYS_MAX * DAY_S).ok_or_else(long)?;
    Ok(KeepSpan(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> KeepSettings {
        let text = |text: &str| Some(text.to_owned());
        KeepSettings {
            at_least: Some(3),
            not_before: text("7d"),
            at_most: text("750d"),
            only_after: text("verified"),
            on_full: text("thin-out"),
            lock: text("14d"),
        }
    }

    fn schedules(texts: &[&str]) -> ScheduleSet {
        ScheduleSet::parse(texts, "UTC").unwrap()
    }

    #[test]
    fn the_example_of_the_manual_can_be_kept() {
        let policy = KeepPolicy::new(&settings()).unwrap();
        policy.check_set(&schedules(&["60x1min", "24x1h", "30x1d@02:30", "24x1month"]), true).unwrap();
        assert_eq!(
            (policy.at_least(), policy.not_before_s(), policy.lock_s()),
            (3, 7 * DAY_S, Some(14 * DAY_S))
        );
        assert_eq!((policy.at_most_s(), policy.only_verified()), (Some(750 * DAY_S), true));
        let default = KeepPolicy::default();
        assert_eq!((default.at_least(), default.at_most_s(), default.on_full()), (1, None, OnFull::ThinOut));
    }

    #[test]
    fn wishes_that_cannot_all_be_true_are_refused() {
        let refusal = |change: &dyn Fn(&mut KeepSettings)| {
            let mut settings = settings();
            change(&mut settings);
            KeepPolicy::new(&settings).unwrap_err().to_string()
        };
        let text = |text: &str| Some(text.to_owned());
        for (found, expected) in [
            (refusal(&|s| s.at_least = Some(0)), "at_least = 0 is impossible; say 1 to 10000"),
            (refusal(&|s| s.not_before = text("7 days")), "not_before = \"7 days\" is no span"),
            (refusal(&|s| s.not_before = text("7month")), "say a number and min, h, d or w, such as \"7d\""),
            (refusal(&|s| s.lock = text("d")), "lock = \"d\" is no span"),
            (refusal(&|s| s.lock = text("40000d")), "lock = \"40000d\" is too long"),
            (refusal(&|s| s.lock = text("99999999999999999999d")), "is too long"),
            (
                refusal(&|s| s.only_after = text("copied")),
                "only_after = \"copied\" is unknown; say \"verified\"",
            ),
            (refusal(&|s| s.on_full = text("thin")), "on_full = \"thin\" is unknown; say \"thin-out\" or"),
            (refusal(&|s| s.lock = text("751d")), "lock = 751d and at_most = 750d cannot both be true"),
            (
                refusal(&|s| s.not_before = text("18001h")),
                "not_before = 18001h and at_most = 750d cannot both",
            ),
        ] {
            assert!(found.contains(expected), "{found}");
        }
        let policy = KeepPolicy::new(&settings()).unwrap();
        let found = policy.check_set(&schedules(&["25x1month"]), true).unwrap_err().to_string();
        assert!(found.contains("25x1month reaches back 763d and at_most = 750d"), "{found}");
        let found = policy.check_set(&schedules(&["24x1month"]), false).unwrap_err().to_string();
        assert!(found.contains("only_after = \"verified\" needs results of verifications"), "{found}");
    }
}
