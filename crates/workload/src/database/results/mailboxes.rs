//! Mailbox counts: converts IOPS to mailboxes of 150 messages a day.
//!
//! The figures are those of the planner, each with its source. Only a run within every limit gives a count:
//! storage that is too slow supports no mailboxes.

use crate::{
    database::{
        plan::{LoadPlan, profile::ServerProfile},
        results::RunResults,
    },
    search::SearchBound,
    verdict::{
        RunVerdict, VerdictOutcome,
        limits::{LimitSet, Measure},
    },
};
use ::plan::{figure::Confidence, rules::Rules};
use report::prose::{counted, number};

/// Servers with planning rules, by the start of a profile's name.
const SERVERS: [&str; 6] =
    ["exchange-2003", "exchange-2007", "exchange-2010", "exchange-2013", "exchange-2016", "exchange-2019"];

/// Page size, in bytes, of the first server that used it.
const PAGES: [(usize, &str); 3] =
    [(4096, "exchange-2003"), (8192, "exchange-2007"), (32_768, "exchange-2010")];

/// Messages sent and received a day by the headline's mailbox (Dell 2010's example user).
pub const MESSAGES_PER_DAY: u32 = 150;

/// Reserve beyond the mailboxes' own I/O.
#[derive(Clone, Debug, PartialEq)]
pub struct Headroom {
    pub percent: f64,
    /// Citation.
    pub source: String,
    pub confidence: Confidence,
}

/// The I/O of one mailbox.
#[derive(Clone, Debug, PartialEq)]
pub struct MailboxFigure {
    /// Name of the mail server.
    pub server: String,
    /// Messages sent and received a day.
    pub messages_per_day: u32,
    /// Database IOPS.
    pub iops: f64,
    /// Citation, with the calculation if the source has no figure for this user.
    pub source: String,
    pub confidence: Confidence,
}

impl MailboxFigure {
    /// The figure for mailboxes without copies on the server of `rules`.
    fn of(rules: &Rules, messages_per_day: u32) -> Option<Self> {
        let each = rules.curve("iops_per_mailbox")?;
        let stand_alone = rules.figure("stand_alone_iops")?;
        let is_printed = each.points.iter().any(|point| point.at == Some(messages_per_day.into()));
        let mut figure = Self {
            server: rules.title.clone(),
            messages_per_day,
            iops: each.at(messages_per_day.into()) * stand_alone.value,
            source: each.source.clone(),
            confidence: each.confidence,
        };
        if !is_printed {
            figure.source.push_str("; interpolated by messages");
            figure.confidence = figure.confidence.weaker(Confidence::Computed);
        }
        if stand_alone.value != 1.0 {
            figure
                .source
                .push_str(&format!("; without copies × {}: {}", stand_alone.value, stand_alone.source));
            figure.confidence = figure.confidence.weaker(stand_alone.confidence);
        }
        Some(figure)
    }
}

impl Headroom {
    fn of(rules: &Rules) -> Option<Self> {
        let figure = rules.figure("iops_headroom")?;
        Some(Self { percent: figure.value, source: figure.source.clone(), confidence: figure.confidence })
    }
}

/// The planning rules of the server that `profile` imitates: by its name, else by its page size.
fn rules_of(profile: &ServerProfile) -> Option<Rules> {
    let named = SERVERS.into_iter().find(|name| profile.name.starts_with(name));
    let by_page = || PAGES.into_iter().find(|(bytes, _)| *bytes == profile.page_size().bytes());
    let name = named.or_else(|| by_page().map(|(_, name)| name))?;
    Some(Rules::named(name).expect("the rule sets of these servers are built in; a test sees to it"))
}

/// Qualifier of a mailbox count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountQualifier {
    /// The search found this maximum.
    Highest,
    /// A rate was held: the storage may support more.
    AtLeast,
    /// The search ended before the storage was the limit: it may support more.
    Generated,
    /// Measured in a closed loop: the storage may support more, or more slowly.
    AtThisLoad,
}

impl CountQualifier {
    /// Words that follow the count.
    pub fn words(self) -> &'static str {
        match self {
            Self::Highest => "the highest rate within limits",
            Self::AtLeast => "at least: no higher rate was tried",
            Self::Generated => "at least: no higher rate could be generated",
            Self::AtThisLoad => "at this load; --max finds the highest",
        }
    }
}

/// A mailbox count and its calculation.
#[derive(Clone, Debug, PartialEq)]
pub struct Mailboxes {
    /// Rounded down to two digits.
    pub count: u64,
    pub claim: CountQualifier,
    /// Database IOPS within limits.
    pub achieved_iops: f64,
    pub figure: MailboxFigure,
    pub headroom: Headroom,
    /// Limit of the average database read, in milliseconds.
    pub within_ms: f64,
}

impl Mailboxes {
    /// None unless the run passed and figures for its profile exist.
    pub fn of(results: &RunResults, verdict: &RunVerdict) -> Option<Self> {
        if verdict.answer != VerdictOutcome::Pass || results.measured_s <= 0.0 {
            return None;
        }
        let limits = LimitSet::load(&results.plan.profile.limits).ok()?;
        let read = limits.limits.iter().find(|limit| limit.measure == Measure::DatabaseReadAverageMs)?;
        let rules = rules_of(&results.plan.profile)?;
        let figure = MailboxFigure::of(&rules, MESSAGES_PER_DAY)?;
        let headroom = Headroom::of(&rules)?;
        let achieved_iops = results.achieved_iops();
        let each = figure.iops * (1.0 + headroom.percent / 100.0);
        let count = two_digits((achieved_iops / each) as u64);
        let claim = match results.plan.load {
            LoadPlan::Threads { .. } | LoadPlan::TunedThreads { .. } => CountQualifier::AtThisLoad,
            LoadPlan::Mailboxes { .. } => CountQualifier::AtLeast,
            LoadPlan::Maximum { .. }
                if results.search.as_ref().is_some_and(|found| found.bound == SearchBound::Limit) =>
            {
                CountQualifier::Highest
            }
            LoadPlan::Maximum { .. } => CountQualifier::Generated,
        };
        let within_ms = read.value(results.class());
        (count > 0).then_some(Self { count, claim, achieved_iops, figure, headroom, within_ms })
    }

    /// `≈ 57,000 mailboxes of 150 messages a day within 20 ms`.
    pub fn headline(&self) -> String {
        let at_least = if matches!(self.claim, CountQualifier::AtLeast | CountQualifier::Generated) {
            "at least "
        } else {
            ""
        };
        let at_this_load = if self.claim == CountQualifier::AtThisLoad { " at this load" } else { "" };
        let mailboxes = counted(self.count, "mailbox");
        format!(
            "{at_least}≈ {mailboxes} of {} messages a day within {} ms{at_this_load}",
            self.figure.messages_per_day, self.within_ms
        )
    }

    /// The count as text: `57,000`.
    pub fn number(&self) -> String {
        number(self.count as f64, 0)
    }
}

/// Rounds down to two digits, the precision of the figures.
fn two_digits(count: u64) -> u64 {
    let step = 10_u64.pow(count.checked_ilog10().unwrap_or(0).saturating_sub(1));
    count / step * step
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(profile: &str) -> Rules {
        rules_of(&ServerProfile::load(profile).unwrap()).unwrap()
    }

    fn figure(profile: &str, messages: u32) -> MailboxFigure {
        MailboxFigure::of(&rules(profile), messages).unwrap()
    }

    #[test]
    fn every_built_in_profile_has_its_figure() {
        for name in ServerProfile::names() {
            let figure = figure(name, MESSAGES_PER_DAY);
            assert!((0.1..1.1).contains(&figure.iops), "{name}: {figure:?}");
            assert!(!figure.source.is_empty(), "{name}");
        }
    }

    #[test]
    fn the_figures_of_the_papers_are_as_printed() {
        let of_2010 = figure("exchange-2010", 150);
        assert_eq!((of_2010.iops, of_2010.confidence), (0.18, Confidence::Seed));
        // Dell BP1026: 50 messages 0.06, 300 messages 0.36.
        assert!((figure("exchange-2010", 50).iops - 0.06).abs() < 1e-12);
        assert!((figure("exchange-2010", 300).iops - 0.36).abs() < 1e-12);
        let of_2003 = figure("exchange-2003", 150);
        assert!((of_2003.iops - (1.0 + 0.5 / 7.0)).abs() < 1e-12, "between heavy and large: {of_2003:?}");
        assert_eq!(of_2003.confidence, Confidence::Computed);
        assert_eq!(figure("exchange-2007", 150).confidence, Confidence::Recalled);
        assert_eq!(Headroom::of(&rules("exchange-2010")).unwrap().percent, 20.0);
    }

    #[test]
    fn a_number_has_two_digits_and_is_never_rounded_up() {
        let two = |count| two_digits(count);
        assert_eq!([two(0), two(7), two(99), two(101), two(57_999)], [0, 7, 99, 100, 57_000]);
    }
}
