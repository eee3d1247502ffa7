//! A rule, as its table has it.

use serde::{Deserialize, Serialize};

/// Weight of a broken rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// Mail is lost, stands still, or is not served as asked.
    Error,
    /// It will be, sooner than it need.
    Warning,
    /// It could be better.
    Note,
}

impl Severity {
    /// All, the gravest first.
    pub const ALL: [Self; 3] = [Self::Error, Self::Warning, Self::Note];

    /// As it is written.
    pub fn word(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Note => "note",
        }
    }
}

/// A rule that a site can break.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Short name; that of its check.
    pub id: String,
    pub area: String,
    pub severity: Severity,
    /// The finding where it is broken.
    pub says: String,
    pub why: String,
    /// Paper and section.
    pub source: String,
    pub fix: String,
    /// The sound site that the two fixtures change.
    pub base: String,
    /// A change that breaks this rule and no other.
    pub fails: toml::Table,
    /// A change, or none, that leaves it kept.
    pub passes: toml::Table,
}

/// Advice that neither a site nor a run shows to be followed.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Unchecked {
    pub says: String,
    /// Paper and section.
    pub source: String,
    pub why_not: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rules {
    rule: Vec<Rule>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AllUnchecked {
    advice: Vec<Unchecked>,
}

/// Every rule, in the order of the table.
pub fn rules() -> Vec<Rule> {
    toml::from_str::<Rules>(include_str!("rules.toml")).expect("a test reads the table").rule
}

/// The advice that is only listed.
pub fn unchecked() -> Vec<Unchecked> {
    toml::from_str::<AllUnchecked>(include_str!("unchecked.toml")).expect("a test reads the table").advice
}
