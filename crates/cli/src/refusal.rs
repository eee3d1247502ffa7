//! The one clear line: why Spindle would not begin, or could not go on.

use std::fmt;

/// Spindle could not do what was asked: what is wrong and where, and what to do about it.
///
/// Shown as one line, `problem; remedy`. The program ends with code 2 and everything is as it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    problem: String,
    remedy: String,
}

impl Refusal {
    /// A refusal; neither part ends with a full stop, both fit one line.
    pub fn new(problem: impl Into<String>, remedy: impl Into<String>) -> Self {
        let refusal = Self { problem: one_line(&problem.into()), remedy: one_line(&remedy.into()) };
        assert!(!refusal.problem.is_empty(), "a refusal says what is wrong");
        refusal
    }
}

/// A message of the kernel or of a library may hold line breaks; ours is one line.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.remedy.as_str() {
            "" => write!(f, "{}", self.problem),
            remedy => write!(f, "{}; {remedy}", self.problem),
        }
    }
}

impl std::error::Error for Refusal {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_one_line_whatever_its_parts_held() {
        let refusal = Refusal::new("/dev/sdb:\n  busy", "stop what uses it");
        assert_eq!(refusal.to_string(), "/dev/sdb: busy; stop what uses it");
        assert_eq!(Refusal::new("no space", "").to_string(), "no space");
    }
}
