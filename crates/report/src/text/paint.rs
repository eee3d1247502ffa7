//! Colours.

use crate::cell::Mark;

/// Role of a coloured text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ink {
    Bold,
    Soft,
    Pass,
    Fail,
    Warning,
    /// Index of a chart's line.
    Series(usize),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Paint {
    pub colour: bool,
}

/// Blue, yellow, cyan, magenta, green: distinguishable on dark and light terminals; red is for limits.
const SERIES: [&str; 5] = ["34", "33", "36", "35", "32"];

impl Paint {
    /// Colours `text`, if colours are enabled.
    pub(super) fn ink(self, ink: Ink, text: &str) -> String {
        if !self.colour || text.trim().is_empty() {
            return text.to_owned();
        }
        let code = match ink {
            Ink::Bold => "1",
            Ink::Soft => "2",
            Ink::Pass => "1;32",
            Ink::Fail => "1;31",
            Ink::Warning => "1;33",
            Ink::Series(index) => SERIES[index % SERIES.len()],
        };
        format!("\u{1b}[{code}m{text}\u{1b}[0m")
    }

    /// Colours `text` by a judgement, if colours are enabled.
    pub(super) fn mark(self, mark: Mark, text: &str) -> String {
        match mark {
            Mark::Pass => self.ink(Ink::Pass, text),
            Mark::Fail => self.ink(Ink::Fail, text),
            Mark::Warning => self.ink(Ink::Warning, text),
            Mark::NotJudged => self.ink(Ink::Soft, text),
        }
    }
}
