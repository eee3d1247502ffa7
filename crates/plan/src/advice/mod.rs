//! Advice on a site: rules, each with its source, and the places that break them.
//!
//! A rule is a row of `rules.toml` and a function under the same name in `checks/`. With each come a site that breaks it
//! and no other, and one that keeps it; a test walks over all of them. What the papers recommend and nobody can check from
//! a site is in `unchecked.toml`, and said to be unchecked.

mod checks;
mod line;
mod listing;
mod rule;
mod run_facts;
mod subject;

#[cfg(test)]
mod fixtures;

pub use line::{LINE_RULES, advise_on_line};
pub use listing::listing;
pub use rule::{Rule, Severity, Unchecked, rules, unchecked};
pub use run_facts::RunFacts;

use crate::site::Site;
use report::{Cell, Column, Document, Meta, Section, Table};
use serde::Serialize;
use subject::{Outcome, Subject};

/// A rule that is broken.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// Its short name.
    pub id: String,
    pub severity: Severity,
    pub finding: String,
    pub places: Vec<String>,
    pub why: String,
    /// Paper and section.
    pub source: String,
    pub fix: String,
}

/// A rule that could not be looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Skipped {
    /// Its short name.
    pub id: String,
    /// The keys that the site or the run lacks.
    pub missing: String,
}

/// Everything there is to say of a site.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Advice {
    /// Broken rules, the gravest first.
    pub findings: Vec<Finding>,
    /// Short names of the rules that are kept.
    pub passed: Vec<String>,
    /// Short names of the rules that found nothing of what they are about.
    pub not_applicable: Vec<String>,
    /// Rules that could not be looked at.
    pub skipped: Vec<Skipped>,
}

/// Holds `site`, and a `run` on it, against every rule.
pub fn advise(site: &Site, run: Option<&RunFacts>) -> Advice {
    let subject = Subject { site, run };
    let mut advice = Advice::default();
    for rule in rules() {
        let (_, check) = checks::CHECKS.iter().find(|(id, _)| *id == rule.id).expect("a test pairs them");
        match check(&subject) {
            Outcome::Kept => advice.passed.push(rule.id),
            Outcome::Outside => advice.not_applicable.push(rule.id),
            Outcome::Unsaid(missing) => advice.skipped.push(Skipped { id: rule.id, missing }),
            Outcome::Broken(places) => advice.findings.push(Finding {
                id: rule.id,
                severity: rule.severity,
                finding: rule.says,
                places,
                why: rule.why,
                source: rule.source,
                fix: rule.fix,
            }),
        }
    }
    advice.findings.sort_by_key(|finding| finding.severity);
    advice
}

impl Advice {
    pub fn has_errors(&self) -> bool {
        self.count(Severity::Error) > 0
    }

    /// Findings of this severity.
    pub fn count(&self, severity: Severity) -> usize {
        self.findings.iter().filter(|finding| finding.severity == severity).count()
    }

    /// All of it in a line.
    pub fn in_short(&self) -> String {
        let counted =
            |severity: Severity| report::prose::counted(self.count(severity) as u64, severity.word());
        let found = Severity::ALL.map(counted).join(", ");
        let (passed, not_applicable) = (self.passed.len(), self.not_applicable.len());
        let skipped = match self.skipped.len() {
            0 => String::new(),
            count => format!(", {count} skipped: the site does not say enough"),
        };
        format!("{found}; of the other rules {passed} passed, {not_applicable} not applicable{skipped}")
    }

    /// All of it as a report.
    pub fn document(&self, name: &str, meta: Meta) -> Document {
        let mut document = Document::new(format!("Advice for {name}"), self.in_short(), meta);
        for finding in &self.findings {
            let severity = match finding.severity {
                Severity::Error => report::Severity::Error,
                Severity::Warning => report::Severity::Warning,
                Severity::Note => report::Severity::Note,
            };
            let places = match finding.places.as_slice() {
                [] => String::new(),
                places => format!(": {}", shortened(places)),
            };
            let text = format!(
                "{} [{}]{places}. Why: {}. Fix: {}.",
                capital(&finding.finding),
                finding.id,
                finding.why,
                finding.fix
            );
            document.finding(severity, text, finding.source.clone());
        }
        if !self.skipped.is_empty() {
            let columns = [Column::text("Rule"), Column::text("The site does not say")];
            let mut table = Table::new("", columns);
            for rule in &self.skipped {
                table.push([Cell::text(rule.id.as_str()), Cell::text(rule.missing.as_str())]);
            }
            let section =
                Section::new("Skipped", "Say it in the site file, and these rules are checked, too.");
            document.section(section.block(table));
        }
        document
    }
}

/// Places, not all of them where there are many.
fn shortened(places: &[String]) -> String {
    const SHOWN: usize = 4;
    match places.len() {
        0..=SHOWN => places.join("; "),
        count => format!("{}; and {} more", places[..SHOWN].join("; "), count - SHOWN),
    }
}

/// `text` with its first letter large.
fn capital(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(char::to_uppercase);
    first.into_iter().flatten().chain(letters).collect()
}
