//! The command of this process, for reports and suggestions.

use std::env;

/// The command line of this process.
pub fn own_command() -> String {
    command_line(env::args())
}

/// The command as it may be typed again: words that a shell would take apart are quoted.
pub fn command_line(words: impl Iterator<Item = String>) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,%+@".contains(c);
    let quoted = words.enumerate().map(|(index, word)| match (index, word.chars().all(is_plain)) {
        (0, _) => "spindle".to_owned(),
        (_, true) if !word.is_empty() => word,
        _ => format!("'{}'", word.replace('\'', r"'\''")),
    });
    quoted.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_of_a_report_may_be_typed_again() {
        let words = ["target/debug/spindle", "prove", "/mnt/my mail", "it's", "--size", "4GiB", ""];
        assert_eq!(
            command_line(words.map(str::to_owned).into_iter()),
            r"spindle prove '/mnt/my mail' 'it'\''s' --size 4GiB ''"
        );
    }
}
