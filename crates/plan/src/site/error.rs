//! Why a site file was refused: where, what, and what to do.

use thiserror::Error;

/// Why a site was refused. It is one line.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{}{problem}{}", .line.map(|line| format!("line {line}: ")).unwrap_or_default(), if .remedy.is_empty() { String::new() } else { format!("; {remedy}") })]
pub struct SiteError {
    /// Line, if the fault is in one place.
    pub line: Option<usize>,
    pub problem: String,
    /// Remedy; may be empty.
    pub remedy: String,
}

impl SiteError {
    /// Something that is wrong with all of it.
    pub(super) fn whole(problem: String) -> Self {
        Self { line: None, problem, remedy: String::new() }
    }

    /// The parser's error on `text`, with a suggestion for an unknown word.
    pub(super) fn of(text: &str, error: &toml::de::Error) -> Self {
        let at = error.span().map(|span| span.start.min(text.len()));
        let line = at.map(|at| text.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count() + 1);
        let message = error.message().split_whitespace().collect::<Vec<_>>().join(" ");
        let (problem, remedy) = match unknown(&message) {
            Some((kind, word, known)) => {
                let remedy = match nearest(word, &known) {
                    Some(nearest) => format!("did you mean {nearest:?}?"),
                    None => format!("there are {}", known.join(", ")),
                };
                (format!("no {kind} is called {word:?} here"), remedy)
            }
            None => (message, String::new()),
        };
        Self { line, problem, remedy }
    }
}

/// The kind, the word and the known words of "unknown field `a`, expected one of `b`, `c`".
fn unknown(message: &str) -> Option<(&'static str, &str, Vec<&str>)> {
    let (kind, rest) = [("key", "unknown field "), ("value", "unknown variant ")]
        .into_iter()
        .find_map(|(kind, start)| Some((kind, message.strip_prefix(start)?)))?;
    let mut words = rest.split('`').skip(1).step_by(2);
    let word = words.next()?;
    Some((kind, word, words.collect()))
}

fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let near = |name: &&str| strsim::jaro_winkler(word, name);
    let best = known.iter().copied().max_by(|a, b| near(a).total_cmp(&near(b)))?;
    (near(&best) > 0.75).then_some(best)
}
