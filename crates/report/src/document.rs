//! The document model.

use serde::{Deserialize, Serialize};

use crate::block::{Block, KeyValue, KeyValues, LimitTable, LogBlock, Paragraph};
use crate::cell::Cell;
use crate::chart::{Distribution, LineChart};
use crate::curve::CurveChart;
use crate::table::Table;

/// A report: its subject, its findings, and the evidence.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Document {
    pub title: String,
    /// One line; may be empty.
    pub subtitle: String,
    pub meta: Meta,
    /// None if the report judges nothing.
    pub verdict: Option<Verdict>,
    /// The most important figures.
    pub highlights: Vec<KeyValue>,
    /// The most serious first.
    pub findings: Vec<Finding>,
    /// In reading order.
    pub sections: Vec<Section>,
}

/// Origin of a report.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meta {
    /// Program and version.
    pub generator: String,
    /// Formatted time, UTC.
    pub created_utc: String,
    /// The machine of the run.
    pub machine: String,
    /// The seed that repeats the run; text, since many JSON readers lose digits of 64-bit numbers.
    pub seed: Option<String>,
    /// The command line.
    pub command: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    pub outcome: VerdictOutcome,
    /// Kind and extent of the test: "Performance test, 2 h".
    pub class: String,
    /// The answer in a sentence.
    pub headline: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VerdictOutcome {
    /// Every limit was kept.
    Pass,
    /// A limit was broken.
    Fail,
    /// The run ended without an answer.
    Incomplete,
}

/// A notable fact about the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    pub severity: Severity,
    /// The fact and the recommended action.
    pub text: String,
    /// Evidence or citation; may be empty.
    pub source: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Decided the verdict, or data is in danger.
    Error,
    /// Reduces the value of the verdict.
    Warning,
    /// Informational.
    Note,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Section {
    pub title: String,
    /// One or two sentences; may be empty.
    pub intro: String,
    /// In reading order.
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

    /// Adds a figure to the highlights.
    pub fn highlight(&mut self, key: impl Into<String>, value: Cell, note: impl Into<String>) {
        self.highlights.push(KeyValue { key: key.into(), value, note: note.into() });
    }

    /// Adds a finding, sorted by severity, then by order of addition.
    pub fn finding(&mut self, severity: Severity, text: impl Into<String>, source: impl Into<String>) {
        let place = self.findings.partition_point(|earlier| earlier.severity <= severity);
        self.findings.insert(place, Finding { severity, text: text.into(), source: source.into() });
    }

    /// Appends a section.
    pub fn section(&mut self, section: Section) {
        self.sections.push(section);
    }
}

impl Section {
    /// A section without content.
    pub fn new(title: impl Into<String>, intro: impl Into<String>) -> Self {
        Self { title: title.into(), intro: intro.into(), blocks: Vec::new() }
    }

    /// Appends a block.
    #[must_use]
    pub fn block(mut self, block: impl Into<Block>) -> Self {
        self.blocks.push(block.into());
        self
    }

    /// Appends a paragraph.
    #[must_use]
    pub fn paragraph(self, text: impl Into<String>) -> Self {
        self.block(Paragraph { text: text.into() })
    }
}

impl VerdictOutcome {
    /// The word shown.
    pub fn word(self) -> &'static str {
        match self {
            Self::Pass => "Pass",
            Self::Fail => "Fail",
            Self::Incomplete => "Incomplete",
        }
    }
}

impl Severity {
    /// The word shown.
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
    Curve(CurveChart),
    Distribution(Distribution),
    Log(LogBlock),
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_are_sorted_by_severity_and_keep_their_order() {
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
