//! Settings that a text names, in the spelling of the caller that prints it.
//!
//! The rooms below the program do not know how a setting is spelt: as an option of the command line, as a key of a site file, or in
//! a request. Their texts name it as ⟨size⟩; the one who prints a text replaces that.

use std::borrow::Cow;

const OPENS: char = '⟨';
const CLOSES: char = '⟩';

/// `text` with each setting in the caller's spelling.
pub fn spelled(text: &str, spelling: impl Fn(&str) -> String) -> Cow<'_, str> {
    if !text.contains(OPENS) {
        return Cow::Borrowed(text);
    }
    let mut spelled = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(OPENS) {
        spelled.push_str(before);
        match after.split_once(CLOSES).filter(|(name, _)| is_name(name)) {
            Some((name, after)) => {
                spelled.push_str(&spelling(name));
                rest = after;
            }
            None => {
                spelled.push(OPENS);
                rest = after;
            }
        }
    }
    spelled.push_str(rest);
    Cow::Owned(spelled)
}

/// The settings that `text` names.
pub fn named_in(text: &str) -> impl Iterator<Item = &str> {
    let parts = text.split(OPENS).skip(1).filter_map(|part| part.split_once(CLOSES));
    parts.map(|(name, _)| name).filter(|name| is_name(name))
}

/// True for words in small letters with hyphens between them.
fn is_name(name: &str) -> bool {
    name.split('-').all(|word| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_lowercase()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_setting_is_spelt_as_the_caller_says() {
        let text = "⟨sweep⟩ threads= does not go with ⟨max⟩";
        assert_eq!(spelled(text, |name| format!("--{name}")), "--sweep threads= does not go with --max");
        assert_eq!(spelled(text, str::to_uppercase), "SWEEP threads= does not go with MAX");
        assert_eq!(named_in(text).collect::<Vec<_>>(), ["sweep", "max"]);
    }

    #[test]
    fn all_else_stays_as_it_is() {
        for text in ["no setting", "a folder ⟨With Blanks⟩", "⟨", "⟨⟩ and ⟨-⟩", "open ⟨size"]
        {
            assert_eq!(spelled(text, |_| "wrong".to_owned()), text);
            assert_eq!(named_in(text).count(), 0);
        }
        assert_eq!(spelled("⟨ ⟨size⟩", |name| name.to_owned()), "⟨ size");
    }
}
