//! Colour, if there is any.

use crate::cell::Mark;

/// What a piece of text is to stand out as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ink {
    Bold,
    Soft,
    Pass,
    Fail,
    Warning,
    /// Line number so-and-so of a chart.
    Series(usize),
}

/// Whether there is colour.
#[derive(Clone, Copy, Debug)]
pub(super) struct Paint {
    pub colour: bool,
}

/// Blue, yellow, cyan, magenta, green: told apart on dark and light terminals; red is the limits'.
const SERIES: [&str; 5] = ["34", "33", "36", "35", "32"];

impl Paint {
    /// `text` in `ink`, or as it is where there is no colour.
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

    /// `text` in the colour of a judgement.
    pub(super) fn mark(self, mark: Mark, text: &str) -> String {
        match mark {
            Mark::Pass => self.ink(Ink::Pass, text),
            Mark::Fail => self.ink(Ink::Fail, text),
            Mark::Warning => self.ink(Ink::Warning, text),
            Mark::NotJudged => self.ink(Ink::Soft, text),
        }
    }
}
