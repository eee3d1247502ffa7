//! Mailbox counts: converts IOPS to mailboxes of 150 messages a day.
//!
//! The figures are data with sources (`mailboxes.toml`). Only a run within every limit gives a count: storage
//! that is too slow supports no mailboxes.

use crate::{
    database::{
        plan::{LoadPlan, profile::ServerProfile, setting::Confidence},
        results::RunResults,
    },
    search::SearchBound,
    verdict::{
        RunVerdict, VerdictOutcome,
        limits::{LimitSet, Measure},
    },
};
use report::prose::{counted, number};
use serde::Deserialize;

const FIGURES: &str = include_str!("mailboxes.toml");

/// Messages sent and received a day by the headline's mailbox (Dell 2010's example user).
pub const MESSAGES_PER_DAY: u32 = 150;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FigureFile {
    headroom: Headroom,
    set: Vec<FigureSet>,
}

/// Reserve beyond the mailboxes' own I/O.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Headroom {
    pub percent: f64,
    /// Citation.
    pub source: String,
    pub confidence: Confidence,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FigureSet {
    name: String,
    profiles: Vec<String>,
    page_bytes: Option<usize>,
    points: Vec<Point>,
    source: String,
    confidence: Confidence,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Point {
    messages_per_day: f64,
    iops: f64,
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
    /// The figure for the server that `profile` imitates.
    pub fn of(profile: &ServerProfile, messages_per_day: u32) -> Option<Self> {
        let page_bytes = profile.page_size().bytes();
        let file = figures();
        let named = |set: &&FigureSet| set.profiles.iter().any(|name| profile.name.starts_with(name));
        let by_pages = |set: &&FigureSet| set.page_bytes == Some(page_bytes);
        let set = file.set.iter().find(named).or_else(|| file.set.iter().find(by_pages))?;
        let (iops, how) = interpolated(&set.points, messages_per_day.into());
        let confidence = match (how, set.confidence) {
            ("", confidence) | (_, confidence @ Confidence::Recalled) => confidence,
            _ => Confidence::Computed,
        };
        let source = format!("{}{how}", set.source);
        Some(Self { server: set.name.clone(), messages_per_day, iops, source, confidence })
    }
}

pub fn headroom() -> Headroom {
    figures().headroom
}

fn figures() -> FigureFile {
    toml::from_str(FIGURES).expect("the built-in figures parse; a test sees to it")
}

/// IOPS at `messages`, and the method. `points` ascend.
fn interpolated(points: &[Point], messages: f64) -> (f64, &'static str) {
    let above = points.iter().position(|point| point.messages_per_day >= messages);
    match above {
        Some(index) if points[index].messages_per_day == messages => (points[index].iops, ""),
        Some(index) if index > 0 => {
            let (low, high) = (&points[index - 1], &points[index]);
            let share = (messages - low.messages_per_day) / (high.messages_per_day - low.messages_per_day);
            (low.iops + share * (high.iops - low.iops), "; on the line between two of them")
        }
        _ => {
            let nearest = if above.is_some() { &points[0] } else { &points[points.len() - 1] };
            (nearest.iops * messages / nearest.messages_per_day, "; in proportion to messages")
        }
    }
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
        let figure = MailboxFigure::of(&results.plan.profile, MESSAGES_PER_DAY)?;
        let headroom = headroom();
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

    fn figure(profile: &str, messages: u32) -> MailboxFigure {
        MailboxFigure::of(&ServerProfile::load(profile).unwrap(), messages).unwrap()
    }

    #[test]
    fn the_figures_parse_ascend_and_name_their_source() {
        let file = figures();
        assert!(file.set.iter().all(|set| !set.source.is_empty() && !set.points.is_empty()));
        for set in &file.set {
            let ascends = |pair: &[Point]| {
                pair[0].messages_per_day < pair[1].messages_per_day && pair[0].iops < pair[1].iops
            };
            assert!(set.points.windows(2).all(ascends), "{}", set.name);
        }
    }

    #[test]
    fn every_built_in_profile_has_its_figure() {
        for name in ServerProfile::names() {
            let figure = figure(name, MESSAGES_PER_DAY);
            assert!((0.1..1.1).contains(&figure.iops), "{name}: {figure:?}");
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
        assert_eq!(headroom().percent, 20.0);
    }

    #[test]
    fn a_number_has_two_digits_and_is_never_rounded_up() {
        let two = |count| two_digits(count);
        assert_eq!([two(0), two(7), two(99), two(101), two(57_999)], [0, 7, 99, 100, 57_000]);
    }
}
