//! A whole report, as data.

use serde::{Deserialize, Serialize};

use crate::block::{Block, KeyValue, KeyValues, LimitTable, Log, Paragraph};
use crate::cell::Cell;
use crate::chart::{Distribution, LineChart};
use crate::curve::Curve;
use crate::table::Table;

/// A report: what was asked, what was found, and everything needed to believe it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Document {
    /// The name of the report.
    pub title: String,
    /// What it is about, in a line; may be empty.
    pub subtitle: String,
    /// Who made it, when, where.
    pub meta: Meta,
    /// The answer, if the report has one.
    pub verdict: Option<Verdict>,
    /// The few figures a reader wants first.
    pub highlights: Vec<KeyValue>,
    /// What a reader should know before trusting or acting on the rest, the gravest first.
    pub findings: Vec<Finding>,
    /// The body, in reading order.
    pub sections: Vec<Section>,
}

/// Where a report comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meta {
    /// Program and version that made the report.
    pub generator: String,
    /// When it was made, UTC, as it is to be shown.
    pub created_utc: String,
    /// The machine the run was on.
    pub machine: String,
    /// The seed that repeats the run; text, because many JSON readers lose digits of 64-bit numbers.
    pub seed: Option<String>,
    /// The command that was given.
    pub command: Option<String>,
}

/// The answer of a report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// The answer in a word.
    pub outcome: Outcome,
    /// How far it reaches: "Performance test, 2 h".
    pub class: String,
    /// The answer in a sentence.
    pub headline: String,
}

/// The answer in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Every limit was kept.
    Pass,
    /// A limit was broken.
    Fail,
    /// The run ended before it could answer.
    Incomplete,
}

/// Something a reader should know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// How much it matters.
    pub severity: Severity,
    /// What was found, and what to do about it.
    pub text: String,
    /// What it rests on; may be empty.
    pub source: String,
}

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// It decided the verdict, or data is in danger.
    Error,
    /// The verdict is worth less because of it.
    Warning,
    /// Good to know.
    Note,
}

/// A titled part of the body.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Section {
    /// Its title.
    pub title: String,
    /// What it shows, in a sentence or two; may be empty.
    pub intro: String,
    /// Its content, in reading order.
    pub blocks: Vec<Block>,
}

impl Document {
    /// A report without content.
    pub fn new(title: impl Into<String>, subtitle: impl Into<String>, meta: Meta) -> Self {
        Self {
            title: title.into(),
            subtitle: subtitle.into(),
            meta,
            verdict: None,
            highlights: Vec::new(),
            findings: Vec::new(),
            sections: Vec::new(),
        }
    }

    /// Adds a figure to those a reader wants first.
    pub fn highlight(&mut self, key: impl Into<String>, value: Cell, note: impl Into<String>) {
        self.highlights.push(KeyValue { key: key.into(), value, note: note.into() });
    }

    /// Adds a finding; they are kept with the gravest first, otherwise in the order they came.
    pub fn finding(&mut self, severity: Severity, text: impl Into<String>, source: impl Into<String>) {
        let place = self.findings.partition_point(|earlier| earlier.severity <= severity);
        self.findings.insert(place, Finding { severity, text: text.into(), source: source.into() });
    }

    /// Adds a section at the end.
    pub fn section(&mut self, section: Section) {
        self.sections.push(section);
    }
}

impl Section {
    /// A section without content.
    pub fn new(title: impl Into<String>, intro: impl Into<String>) -> Self {
        Self { title: title.into(), intro: intro.into(), blocks: Vec::new() }
    }

    /// The same section with one more piece.
    #[must_use]
    pub fn block(mut self, block: impl Into<Block>) -> Self {
        self.blocks.push(block.into());
        self
    }

    /// The same section with one more paragraph.
    #[must_use]
    pub fn paragraph(self, text: impl Into<String>) -> Self {
        self.block(Paragraph { text: text.into() })
    }
}

impl Outcome {
    /// The word shown for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Pass => "Pass",
            Self::Fail => "Fail",
            Self::Incomplete => "Incomplete",
        }
    }
}

impl Severity {
    /// The word shown for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Note => "note",
        }
    }
}

macro_rules! block_from {
    ($($kind:ident($content:ty)),* $(,)?) => {$(
        impl From<$content> for Block {
            fn from(content: $content) -> Self {
                Self::$kind(content)
            }
        }
    )*};
}

block_from!(
    Paragraph(Paragraph),
    KeyValues(KeyValues),
    Table(Table),
    Limits(LimitTable),
    LineChart(LineChart),
    Curve(Curve),
    Distribution(Distribution),
    Log(Log),
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gravest_finding_comes_first_and_equals_keep_their_order() {
        let mut document = Document::new("t", "", Meta::default());
        for (severity, text) in [
            (Severity::Note, "n1"),
            (Severity::Warning, "w1"),
            (Severity::Error, "e1"),
            (Severity::Warning, "w2"),
            (Severity::Error, "e2"),
        ] {
            document.finding(severity, text, "");
        }
        let order: Vec<_> = document.findings.iter().map(|finding| finding.text.as_str()).collect();
        assert_eq!(order, ["e1", "e2", "w1", "w2", "n1"]);
    }
}
