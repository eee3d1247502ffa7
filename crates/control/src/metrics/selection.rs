//! Volumes that a list of patterns selects.

use std::collections::BTreeSet;

/// Patterns of volumes: `VOLUME`, or `POOL/VOLUME`, with `*` for any characters of a name. A served snapshot is the volume
/// `VOLUME@SNAPSHOT`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeSelection {
    exact: BTreeSet<String>,
    patterns: BTreeSet<String>,
}

impl VolumeSelection {
    pub fn is_empty(&self) -> bool {
        self.exact.is_empty() && self.patterns.is_empty()
    }

    pub fn selects(&self, pool: &str, volume: &str) -> bool {
        if self.is_empty() {
            return false;
        }
        let path = format!("{pool}/{volume}");
        self.exact.contains(&path)
            || self.exact.contains(volume)
            || self.patterns.iter().any(|pattern| is_match(pattern, &path, volume))
    }

    /// The names and patterns that select none of these volumes.
    pub fn without_effect<'v>(&self, volumes: impl Iterator<Item = (&'v str, &'v str)>) -> Vec<String> {
        let (mut exact, mut patterns) = (self.exact.clone(), self.patterns.clone());
        for (pool, volume) in volumes {
            let path = format!("{pool}/{volume}");
            exact.remove(&path);
            exact.remove(volume);
            patterns.retain(|pattern| !is_match(pattern, &path, volume));
        }
        exact.into_iter().chain(patterns).collect()
    }
}

impl FromIterator<String> for VolumeSelection {
    fn from_iter<I: IntoIterator<Item = String>>(all: I) -> Self {
        let (patterns, exact) = all.into_iter().partition(|one| one.contains('*'));
        Self { exact, patterns }
    }
}

impl<const N: usize> From<[String; N]> for VolumeSelection {
    fn from(all: [String; N]) -> Self {
        all.into_iter().collect()
    }
}

fn is_match(pattern: &str, path: &str, volume: &str) -> bool {
    fits(pattern, if pattern.contains('/') { path } else { volume })
}

/// True if the text is the pattern, with some characters but slashes for each `*`.
fn fits(pattern: &str, text: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(text) = text.strip_prefix(start) else { return false };
    let rest = rest.trim_start_matches('*');
    let name_end = text.find('/').unwrap_or(text.len());
    // Shortest first: the rest decides.
    text[..name_end].char_indices().map(|(at, _)| at).chain([name_end]).any(|at| fits(rest, &text[at..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_patterns_select_volumes_of_any_pool_or_of_one() {
        let selection =
            VolumeSelection::from(["mail/store".to_owned(), "log*".into(), "lo*/*-1".into(), "x".into()]);
        for (pool, volume, is_selected) in [
            ("mail", "store", true),
            ("logs", "store", false),
            ("mail", "log", true),
            ("mail", "log-7", true),
            ("logs", "disk-1", true),
            ("mail", "disk-1", false),
            ("logs", "disk-11", false),
            ("any", "x", true),
            ("any", "xy", false),
        ] {
            assert_eq!(selection.selects(pool, volume), is_selected, "{pool}/{volume}");
        }
        let volumes = [("mail", "store"), ("mail", "log-7")];
        assert_eq!(selection.without_effect(volumes.into_iter()), ["x", "lo*/*-1"]);
        assert!(!VolumeSelection::default().selects("mail", "store"));
    }

    #[test]
    fn a_star_stands_for_part_of_one_name() {
        for (pattern, text, is_fit) in [
            ("*", "mail", true),
            ("*", "mail/store", false),
            ("*/*", "mail/store", true),
            ("m*l/s**e", "mail/store", true),
            ("m*l", "mail2", false),
            ("ä*", "äö", true),
            ("", "", true),
        ] {
            assert_eq!(fits(pattern, text), is_fit, "{pattern} {text}");
        }
    }
}
