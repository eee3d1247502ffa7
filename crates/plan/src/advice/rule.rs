//! A rule, as its table has it.

use serde::{Deserialize, Serialize};

/// How much a broken rule matters.
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
    /// What it is about.
    pub area: String,
    /// How much it matters.
    pub severity: Severity,
    /// What is wrong where it is broken.
    pub says: String,
    /// Why that is wrong.
    pub why: String,
    /// Which paper says so, and where in it.
    pub source: String,
    /// What to do.
    pub mend: String,
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
    /// The advice.
    pub says: String,
    /// Which paper says so, and where in it.
    pub source: String,
    /// Why nothing here checks it.
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
