//! A TOML error in one line: place, problem, suggestion.

use crate::figure::{nearest, suggestion};

/// The `error` of reading `text`.
pub(crate) fn problem(text: &str, error: &toml::de::Error) -> String {
    let said = error.message().split_whitespace().collect::<Vec<_>>().join(" ");
    let said = unknown_key(&said).unwrap_or_else(|| in_words(&said));
    match error.span() {
        Some(span) => {
            let line =
                text.as_bytes()[..span.start.min(text.len())].iter().filter(|byte| **byte == b'\n').count();
            format!("line {}: {said}", line + 1)
        }
        None => said,
    }
}

/// Kinds of numbers as people call them, not as the program does.
fn in_words(said: &str) -> String {
    let kinds = [
        (", expected u64", ", expected a whole number from 0 on"),
        (", expected u32", ", expected a whole number from 0 on"),
        (", expected f64", ", expected a number"),
    ];
    let kind = kinds.iter().find_map(|(kind, words)| Some((said.strip_suffix(kind)?, words)));
    kind.map_or_else(|| said.to_owned(), |(before, words)| format!("{before}{words}"))
}

/// ``unknown field `a`, expected one of `b`, `c` `` with the nearest of those that are expected.
fn unknown_key(said: &str) -> Option<String> {
    let mut quoted = said.strip_prefix("unknown field ")?.split('`').skip(1).step_by(2);
    let name = quoted.next()?;
    let nearest = nearest(name, quoted).map(str::to_owned);
    Some(format!("unknown key {name:?}{}", suggestion(&nearest)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "read for its errors")]
    struct Some {
        quota: String,
        users: u64,
    }

    #[track_caller]
    fn check(text: &str, expected: &str) {
        assert_eq!(problem(text, &toml::from_str::<Some>(text).unwrap_err()), expected);
    }

    #[test]
    fn a_text_that_is_wrong_says_where_and_what_was_meant() {
        check("users = 1\nqouta = \"2GB\"\n", "line 2: unknown key \"qouta\"; did you mean \"quota\"?");
        check("users = 1\nzzz = 2\n", "line 2: unknown key \"zzz\"");
        check("users = 1\n", "line 1: missing field `quota`");
        check(
            "users = -1\nquota = \"\"\n",
            "line 1: invalid value: integer `-1`, expected a whole number from 0 on",
        );
    }
}
