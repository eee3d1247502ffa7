//! The command of this process, for reports and suggestions.

use std::env;

/// The command line of this process.
pub fn own_command() -> String {
    command_line(env::args())
}

/// The command as it may be typed again: words that a shell would take apart are quoted.
pub fn command_line(words: impl Iterator<Item = String>) -> String {
    let quoted =
        words.enumerate().map(|(index, word)| if index == 0 { "spindle".to_owned() } else { quoted(&word) });
    quoted.collect::<Vec<_>>().join(" ")
}

/// A word of a command, quoted if a shell would take it apart.
pub fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,%+@~".contains(c);
    match !word.is_empty() && !word.starts_with('~') && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
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
